"""States of several ranks, each with objects of its own: what differs is found, and where one fails all do."""

import os
import struct

import pytest
import torch
from thread_ranks import on_all
from torch import nn

import waystation
from waystation.errors import Error
from waystation.job import Job
from waystation.torch import Place, TrainingState

torch.set_num_threads(1)


class Meter:
    """A value of one's own."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


class Net(nn.Module):
    """Tied weights, and running statistics."""

    def __init__(self, fill):
        super().__init__()
        self.a = nn.Parameter(torch.full((4,), fill))
        self.b = self.a
        self.norm = nn.BatchNorm1d(4)


def constant(fill=1.0):
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])
    for each in model.parameters():
        nn.init.constant_(each, fill)
    return model


def state_of(group, model, *more, **how):
    at = Place((("dp", group.size),), (("dp", group.rank),), group)
    return TrainingState(model, *more, place=at, rng=False, **how)


def save(group, state, run, **how):
    job = Job.start(run, group=group, topology=state.place.topology, coordinate=state.place.coordinate)
    return state.save(job, deadline=20, **how).path


def saved_by_all(run, fill=7.0, size=2):
    paths = on_all(size, lambda group: save(group, state_of(group, constant(fill)), run))
    assert len(set(paths)) == 1
    return paths[0]


def nothing_saved(run):
    with pytest.raises(Error, match="no-checkpoint"):
        waystation.latest(run)


def alike(raised, code):
    """That all ranks raised the same error."""
    assert [getattr(each, "code", each) for each in raised] == [code] * len(raised), raised
    assert len({each.message for each in raised}) == 1
    return raised[0].message


def test_tensors_within_values_are_compared(tmp_path):
    def held(where):
        def task(group):
            meter = Meter({"mean": torch.full((3,), float(group.rank if where == "values" else 0))})
            return save(group, state_of(group, constant(), values={"meter": meter}), tmp_path / where)
        return task

    assert "meter" in alike(on_all(2, held("values")), "state-disagree")
    nothing_saved(tmp_path / "values")
    assert not [each for each in on_all(2, held("nothing")) if isinstance(each, Exception)]


def stepped_on(only, run, **how):
    """Saves after a step with momentum that rank `only` made and the others did not."""
    def task(group):
        model = constant()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
        if group.rank == only:
            model(torch.ones(1, 8)).sum().backward()
            optimizer.step()
        state = state_of(group, model, optimizer, **how)
        job = Job.start(run, group=group, topology=state.place.topology, coordinate=state.place.coordinate)
        return state.save(job, deadline=2)

    return on_all(3, task)


@pytest.mark.parametrize("only", [0, 1, 2])
def test_state_that_some_ranks_have_not_is_found(tmp_path, only):
    message = alike(stepped_on(only, tmp_path / "run"), "state-disagree")
    others = ", ".join(str(rank) for rank in range(3) if rank != only)
    assert "momentum" in message and f"rank {only}; ranks {others} without it" in message
    nothing_saved(tmp_path / "run")


@pytest.mark.parametrize("only", [0, 1, 2])
def test_state_that_some_ranks_have_not_is_not_lost_where_nothing_is_compared(tmp_path, only):
    raised = stepped_on(only, tmp_path / "run", check_replicas=False)
    assert all(isinstance(each, Error) for each in raised), raised
    assert raised[0].code == "cover-gap"
    nothing_saved(tmp_path / "run")


def test_other_shapes_under_one_name_are_found(tmp_path):
    def task(group):
        meter = Meter({"mean": torch.zeros(3 + group.rank)})
        return save(group, state_of(group, constant(), values={"meter": meter}), tmp_path / "run")

    assert "another shape" in alike(on_all(2, task), "state-disagree")


def test_running_statistics_are_those_of_the_lowest_rank_where_that_is_said(tmp_path):
    def task(run, **how):
        def on_one(group):
            model = Net(1.0)
            model.norm.running_mean.fill_(group.rank)
            return save(group, state_of(group, model, **how), run)
        return on_one

    raised = on_all(3, task(tmp_path / "compared"))
    assert "buffer norm.running_mean" in alike(raised, "state-disagree")
    assert all("first_rank" in each.remedy for each in raised)
    paths = on_all(3, task(tmp_path / "run", first_rank=["norm.running_mean"]))
    assert waystation.open(paths[0])["norm.running_mean"].numpy().tolist() == [0.0] * 4
    unchecked = on_all(3, task(tmp_path / "unchecked", first_rank=["norm.running_mean"], check_replicas=False))
    assert waystation.open(unchecked[0])["norm.running_mean"].numpy().tolist() == [0.0] * 4

    def later(group):
        model = Net(2.0)
        state_of(group, model, first_rank=["norm.running_mean"]).restore(waystation.open(paths[0]), streams="none")
        return model.norm.running_mean.tolist(), model.a.tolist()

    assert on_all(2, later) == [([0.0] * 4, [1.0] * 4)] * 2


def test_names_of_tied_parameters_are_all_the_same(tmp_path):
    def task(group):
        return save(group, state_of(group, Net(float(group.rank)), per_rank=["b"]), tmp_path / "run")

    ckpt = waystation.open(on_all(2, task)[0])
    found = {tensor.key.scope: tensor.numpy()[0] for tensor in ckpt.tensors() if tensor.key.name == "a"}
    assert found == {(("dp", 0),): 0.0, (("dp", 1),): 1.0}
    with pytest.raises(Error, match="both name"):
        TrainingState(Net(0.0), per_rank=["b"], first_rank=["a"])
    with pytest.raises(Error, match="first_rank names"):
        TrainingState(Net(0.0), first_rank=["c"])
    with pytest.raises(Error, match="the text"):
        TrainingState(Net(0.0), per_rank="b")


@pytest.mark.parametrize("what", ["value", "step", "topology", "memory"])
def test_where_one_rank_cannot_capture_its_state_all_raise(tmp_path, what, monkeypatch):
    def task(group):
        bad = group.rank == 1
        meter = Meter({"x": object() if bad and what == "value" else 1})
        state = state_of(group, constant(), values={"meter": meter})
        if bad and what == "memory":
            def fails():
                raise torch.OutOfMemoryError("no memory")
            meter.state_dict = fails
        job = Job.start(tmp_path / "run", group=group, topology=state.place.topology)
        if bad and what == "topology":
            job.topology = (("tp", 2),)
        return state.save(job, 1 if bad and what == "step" else 0, deadline=5)

    others, mine = on_all(2, task)
    assert isinstance(mine, torch.OutOfMemoryError if what == "memory" else Error)
    assert others.code == ("interrupted" if what == "memory" else "bad-argument"), others
    assert "rank 1 could not capture its state" in others.message
    assert ("no memory" if what == "memory" else mine.message) in others.message
    nothing_saved(tmp_path / "run")


@pytest.mark.parametrize("what", ["shape", "memory"])
def test_where_one_rank_refuses_all_do_and_nothing_is_touched(tmp_path, what):
    path = saved_by_all(tmp_path / "run")

    class Failing(TrainingState):
        def _plan(self, stored, said):
            raise torch.OutOfMemoryError("no memory")

    def task(group):
        bad = group.rank == 1
        model = nn.Linear(3, 3) if bad and what == "shape" else constant(1.0)
        before = [each.clone() for each in model.parameters()]
        state = state_of(group, model)
        if bad and what == "memory":
            state.__class__ = Failing
        try:
            state.restore(waystation.open(path), streams="none")
        except (Error, torch.OutOfMemoryError) as raised:
            return raised, all(map(torch.equal, before, model.parameters()))

    (others, untouched), (mine, untouched_too) = on_all(2, task)
    assert untouched and untouched_too
    assert others.code == "not-exact" and "rank 1 refused the checkpoint" in others.message
    assert "Nothing was touched" in others.remedy
    assert getattr(mine, "message", str(mine)) in others.message


def damage(path):
    """Flips a bit of an element, a 7, of the last file."""
    file = max(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names
               if name.endswith(".safetensors"))
    os.chmod(file, 0o644)
    with open(file, "r+b") as opened:
        at = opened.read().rindex(struct.pack("<f", 7.0))
        opened.seek(at)
        opened.write(b"\1")


def test_damage_met_while_reading_says_what_has_become_of_the_state(tmp_path):
    path = saved_by_all(tmp_path / "run")
    damage(path)
    for first in (False, True):
        def task(group):
            model = constant(1.0)
            try:
                state_of(group, model).restore(waystation.open(path), streams="none", verify_first=first)
            except Error as raised:
                return raised, {each.flatten()[0].item() for each in model.parameters()}

        for raised, now in on_all(2, task):
            assert raised is not None
            assert ("part old and part new" in raised.remedy) == (not first), raised
            assert first == (now == {1.0})


def test_a_rank_that_breaks_off_while_it_restores_stops_the_others(tmp_path):
    path = saved_by_all(tmp_path / "run")

    def task(group):
        def iterators():
            if group.rank == 1:
                raise torch.OutOfMemoryError("no memory")

        return state_of(group, constant(1.0)).restore(waystation.open(path), streams="none", iterators=iterators)

    others, mine = on_all(2, task)
    assert mine.code == "not-exact" and isinstance(mine.__cause__, torch.OutOfMemoryError)
    assert others.code == "not-exact" and "rank 1 broke off" in others.message
    assert "part old and part new" in others.remedy and "part old and part new" in mine.remedy
