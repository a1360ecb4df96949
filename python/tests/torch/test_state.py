"""A whole state: all or nothing is put back, in order, and what stands against it is said before anything is
touched."""

import json
import random

import numpy
import pytest
import torch
from torch.utils.data import DataLoader

import torch_trainer
import waystation
from waystation.errors import Error, NotExactError
from waystation.job import Job
from waystation.torch import (
    Off,
    PerRank,
    Place,
    Progress,
    ResumableSampler,
    Shared,
    StatefulLoaderCursor,
    Streams,
    TrainingState,
    digest_of_dataset,
)

torch.set_num_threads(1)


class Alike:
    """A rank of a job whose others do just as it does."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def all_gather(self, data):
        return [data] * self.size


def trained(steps=7, seed=1, **more):
    trainer = torch_trainer.Trainer(seed, **more)
    for _ in zip(range(steps), trainer.steps()):
        pass
    return trainer


def save(state, run, **more):
    job = Job.start(run, **more)
    return waystation.open(state.save(job).path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A trainer after 7 iterations, in mid-epoch, its checkpoint, and what it held."""
    trainer = trained()
    ckpt = save(trainer.state, tmp_path_factory.mktemp("run"))
    return ckpt, trainer.everything(), [loss for _, loss in zip(range(6), trainer.steps())]


def refused(trainer, ckpt, code="not-exact", **how):
    """That a restore is refused, and that nothing was touched: not even by what fits."""
    before = trainer.everything()
    with pytest.raises(Error) as caught:
        trainer.state.restore(ckpt, **how)
    assert caught.value.code == code, caught.value
    assert trainer.everything() == before
    return str(caught.value)


def test_puts_all_back_and_goes_on(saved):
    ckpt, held, losses = saved
    later = trained(2, seed=9)
    later.data = later.state.data["train"] = ResumableSampler(
        torch_trainer.RECORDS, torch_trainer.BATCH, seed=1, source=torch_trainer.SOURCE)
    later.loader = later.data.loader(later.dataset)
    assert later.everything() != held
    report = later.state.restore(ckpt)
    assert report.ok and {line.grade for line in report} == {"exact"}, report
    assert later.everything() == held
    assert [loss for _, loss in zip(range(6), later.steps())] == losses


def test_saved_again_at_once_it_is_the_same(saved, tmp_path):
    ckpt, _, _ = saved
    later = trained(3)
    later.state.restore(ckpt)
    again = save(later.state, tmp_path / "run")
    assert {(record.text, record.value_json) for record in again.records()} == \
        {(record.text, record.value_json) for record in ckpt.records()}
    assert {tensor.key: tensor.raw().tobytes() for tensor in again.tensors()} == \
        {tensor.key: tensor.raw().tobytes() for tensor in ckpt.tensors()}


def test_another_shape_is_refused(saved):
    assert "param body.0.weight: shape" in refused(trained(2, width=40), saved[0])


def test_other_data_are_refused(saved):
    later = trained(2)
    later.state.data["train"] = ResumableSampler(torch_trainer.RECORDS, torch_trainer.BATCH, seed=1,
                                                 source=digest_of_dataset("others"))
    refused(later, saved[0], "source-changed")
    for other in ({"seed": 2}, {"seed": 1, "shuffle": False}, {"seed": 1, "tail": "pad"}):
        later.state.data["train"] = ResumableSampler(torch_trainer.RECORDS, torch_trainer.BATCH,
                                                     source=torch_trainer.SOURCE, **other)
        assert "train" in refused(later, saved[0])


def test_what_is_on_one_side_only_is_refused(saved):
    later = trained(2)
    later.state.data["validation"] = later.state.data["train"]
    assert "'validation' is not in the checkpoint" in refused(later, saved[0])
    later = trained(2)
    later.state.data.clear()
    # Nobody offers its source, so the format refuses it.
    assert "train" in refused(later, saved[0])
    later = trained(2)
    del later.state.optimizers["head"]
    assert "head" in refused(later, saved[0])
    later = trained(2)
    later.state.values["more"] = torch.nn.Linear(2, 2)
    assert "more" in refused(later, saved[0])


@pytest.mark.parametrize("rng,named", [
    ({"noise": Off("not-here")}, "switched off"), ({}, "no generator of that name"),
    ({"noise": numpy.random.Generator(numpy.random.Philox(1))}, "PCG64"),
    ({"noise": torch.Generator()}, "does not fit"),
    ({"noise": numpy.random.Generator(numpy.random.PCG64(1)), "more": random.Random(1)}, "'more' draws here"),
], ids=["off", "missing", "other engine", "other framework", "one more"])
def test_streams_that_do_not_match_are_refused(saved, rng, named):
    later = trained(2)
    later.state.streams = Streams(rng, Place())
    assert named in refused(later, saved[0])
    name = "more" if "more" in rng else "noise"
    report = later.state.restore(saved[0], leave_out=[name])
    assert [line.grade for line in report if line.name == name and line.kind == "rng"] == ["none"]


def test_a_stream_of_one_process_is_not_given_to_every_rank(saved):
    later = trained(2)
    place = Place((("dp", 4),), (("dp", 1),), Alike(1, 4))
    later.state.place, later.state.streams = place, Streams({"noise": later.noise}, place)
    assert "Shared()" in refused(later, saved[0])
    shared = {"noise": (later.noise, Shared()), "python": Shared(), "numpy": Shared(), "torch": Shared()}
    later.state.streams = Streams(shared, place)
    report = later.state.restore(saved[0])
    assert {line.grade for line in report if line.kind == "rng"} == {"exact"}


def test_without_strict_or_with_less_demanded(saved):
    ckpt, held, _ = saved
    later = trained(2)
    later.state.data.clear(), later.state.optimizers.pop("head"), later.state.schedulers.pop("head")
    noise = repr(later.noise.bit_generator.state)
    report = later.state.restore(ckpt, streams="none", leave_out=["train", "noise"], strict=False)
    grades = {(line.kind, line.name): line.grade for line in report}
    assert grades["optimizer", "head"] == grades["cursor", "train"] == grades["rng", "noise"] == "none"
    now = later.everything()
    same = {name for name in held if held[name] == now[name]}
    assert {"model head.weight", "torch", "python", "cosine"} <= same
    assert not {"data", "noise", "sgd"} & same and repr(later.noise.bit_generator.state) == noise


def test_appraising_touches_and_refuses_nothing(saved):
    later = trained(2, width=40)
    before = later.everything()
    report = later.state.appraise(saved[0])
    assert not report.ok and "shape" in str(report)
    assert later.everything() == before


def test_damage_is_found_before_anything_is_put_in(saved, tmp_path):
    trainer = trained(4)
    save(trainer.state, tmp_path / "run")
    [page] = tmp_path.glob("run/*/records-*.json")
    text = page.read_text()
    value = next(record for record in json.loads(text)["records"] if record["name"] == "noise")["value"]
    flipped = value["state"][:-1] + ("0" if value["state"][-1] != "0" else "1")
    page.write_text(text.replace(value["state"], flipped))
    trainer = trained(2)
    before = trainer.everything()
    with pytest.raises(Error):
        trainer.state.restore(waystation.open(page.parent))
    assert trainer.everything() == before


def test_a_loader_that_draws_from_the_default_generator_is_found(saved):
    ckpt, held, losses = saved
    later = trained(2)
    later.loader = DataLoader(later.dataset, batch_sampler=later.data)
    later.state.restore(ckpt)
    with pytest.raises(NotExactError, match="generator of its own"):
        next(later.steps())
    # Made before the streams are put back, it does no harm.
    iterators = []
    later.state.restore(ckpt, iterators=lambda: iterators.append(iter(later.loader)))
    assert later.everything() == held
    found = []
    for batch, _ in zip(iterators[0], range(6)):
        found.append(later.step([batch]))
    assert found == losses


def test_counting(tmp_path):
    trainer = trained(5)
    assert trainer.state.progress == Progress(5, 5, 0, 0, 60)
    with pytest.raises(Error, match="5 optimizer steps"):
        trainer.state.snapshot(4)
    next(iter(trainer.loader))
    trainer.state.step(skipped=True)
    assert trainer.state.progress == Progress(5, 6, 1, 0, 60) and trainer.data.consumed == 72
    two = TrainingState(trainer.model, data={"a": trainer.data, "b": trainer.data}, rng=False)
    with pytest.raises(Error, match="data="):
        two.step()
    with pytest.raises(Error, match="skipped"):
        TrainingState(trainer.model).step(skipped=True)
    with pytest.raises(Error, match="one of the data"):
        two.step(data=["c"])
    put = Progress(samples=5, batch=4)
    put.put({"optimizer_step": 9, "tokens": 7, "batch": 8})
    assert put == Progress(9, tokens=7, batch=4)


def test_names_and_topologies_are_checked(tmp_path):
    model = torch.nn.Linear(2, 2)
    with pytest.raises(Error, match="per_rank"):
        TrainingState(model, per_rank=["weights"])
    with pytest.raises(Error, match="names of their own"):
        TrainingState(model, values={"torch.mine": model})
    with pytest.raises(Error, match="topology"):
        TrainingState(model).save(Job.start(tmp_path / "run", topology=[("dp", 1)]))


def test_one_process_of_a_job_with_axes_forks_where_they_grow(tmp_path):
    model, alone = torch.nn.Linear(2, 2), Place((("dp", 1),), (("dp", 0),))
    random.seed(4)
    ckpt = save(TrainingState(model, place=alone), tmp_path / "run", topology=[("dp", 1)])
    expected = random.random()
    random.seed(5)
    TrainingState(model, place=alone).restore(ckpt)
    assert random.random() == expected
    states = []
    for rank in range(2):
        place = Place((("dp", 2),), (("dp", rank),), Alike(rank, 2))
        state = TrainingState(model, place=place)
        with pytest.raises(NotExactError):
            state.restore(ckpt)
        report = state.restore(ckpt, streams="fork")
        assert {line.grade for line in report if line.kind == "rng"} == {"fork"}
        states.append(random.random())
        lineage = {record.value["fork"]["step"] for record in state.streams.capture()}
        assert lineage == {0}
    assert len({expected, *states}) == 3


def test_values_of_ones_own(tmp_path):
    class Meter:
        def __init__(self):
            self.held = {"best": 1.5, "at": [1, (2, None)], "ema": torch.arange(3.0), "none": b"\0"}

        def state_dict(self):
            return self.held

        def load_state_dict(self, state):
            self.held = state

    model, meter = torch.nn.Linear(2, 2), Meter()
    ckpt = save(TrainingState(model, values={"meter": meter}), tmp_path / "run")
    expected, meter.held = meter.held, {}
    TrainingState(model, values={"meter": meter}).restore(ckpt)
    assert repr(meter.held) == repr(expected)
    report = TrainingState(model).restore(ckpt)
    assert [(line.name, line.grade) for line in report if line.kind == "value"] == [("meter", "none")]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_with_a_state_of_its_own(tmp_path, workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def make(workers=workers, batch=4):
        torch.manual_seed(3)
        loader = stateful.StatefulDataLoader(torch_trainer.Points(), batch, shuffle=True, num_workers=workers)
        cursor = StatefulLoaderCursor(loader, source=torch_trainer.SOURCE)
        model = torch.nn.Linear(2, 2)
        return cursor, TrainingState(model, data={"train": cursor}, rng={"python": False, "numpy": False})

    cursor, state = make()
    taken = iter(cursor)
    first = [next(taken)[0] for _ in range(3)]
    ckpt = save(state, tmp_path / "run")
    waystation._core.verify_json(ckpt.path)
    drawn = [torch.rand(1).item()]
    rest = [batch[0] for batch in taken]
    drawn.append(torch.rand(1).item())
    later, state = make()
    out = {"leave_out": ["python", "numpy"]}
    with pytest.raises(NotExactError, match="opaque-same-topology"):
        state.restore(ckpt, **out)
    report = state.restore(ckpt, cursors="opaque-same-topology", **out)
    assert [line.grade for line in report if line.kind == "cursor"] == ["opaque-same-topology"]
    taken = iter(later)
    again = [next(taken)[0]]
    assert torch.rand(1).item() == drawn[0]
    again += [batch[0] for batch in taken]
    assert torch.rand(1).item() == drawn[1]
    assert len(again) == len(rest) and all(map(torch.equal, again, rest)) and not torch.equal(first[0], rest[0])
    for other in ({"workers": 1}, {"batch": 5}):
        _, state = make(**other)
        with pytest.raises(Error) as caught:
            state.restore(ckpt, cursors="opaque-same-topology", **out)
        assert caught.value.code == "source-changed"


def test_per_rank_generators_are_told_apart_by_the_axes_they_vary_over():
    place = Place((("dp", 2), ("tp", 2)), (("dp", 1), ("tp", 0)), Alike(2, 4))
    state = TrainingState(torch.nn.Linear(2, 2), place=place, rng={"torch": PerRank(axes=("dp",))})
    where = {record.name: record.coordinate for record in state.streams.capture()}
    assert where == {"torch": (("dp", 1),), "python": place.coordinate, "numpy": place.coordinate}


def test_streams_that_are_off_at_both_ends_are_named_with_what_to_say(tmp_path):
    state = TrainingState(torch.nn.Linear(2, 2), rng=False)
    ckpt = save(state, tmp_path / "run")
    with pytest.raises(NotExactError) as caught:
        state.restore(ckpt)
    assert "leave_out=('numpy', 'python', 'torch')" in caught.value.remedy and "streams" in caught.value.remedy
    assert state.restore(ckpt, leave_out=("numpy", "python", "torch")).ok
    assert state.restore(ckpt, streams="none").ok
    with pytest.raises(NotExactError) as caught:
        TrainingState(torch.nn.Linear(2, 2)).restore(ckpt)
    assert "leave_out=('numpy'" not in caught.value.remedy


def test_a_rate_that_was_changed_here_is_said_to_be_replaced(tmp_path):
    def made(rate, scheduled):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        steps = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) if scheduled else None
        return optimizer, steps, TrainingState(model, optimizer, schedulers=steps, rng=False)

    for scheduled in (False, True):
        optimizer, steps, state = made(0.5, scheduled)
        if steps is not None:
            optimizer.step(), steps.step()
        ckpt = save(state, tmp_path / f"run{scheduled}")
        for rate in (0.5, 0.125):
            optimizer, _, state = made(rate, scheduled)
            report = state.restore(ckpt, streams="none")
            said = [line.reason for line in report.notes if line.kind == "optimizer"]
            member = "initial_lr" if scheduled else "lr"
            assert said == ([f"{member} was 0.125 here and is 0.5 as saved"] if rate != 0.5 else [])
            assert optimizer.param_groups[0]["lr"] == (0.25 if scheduled else 0.5)
