"""Samplers: PyTorch's own order, positions of completed steps only, and every item once whatever is killed and
reshaped."""

import json
import os
import random

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from waystation import _core
from waystation.errors import Error, NotExactError
from waystation.torch.data import DistributedSamplerCursor, ResumableSampler, digest_of_dataset, digest_of_files
from waystation.torch.group import Place, Solo

SOURCE = digest_of_dataset("numbers", 1)


class Numbers(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index


class Ranks(Solo):
    rank = size = 0

    def __init__(self, rank, size):
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "size", size)


def place(rank, size):
    return Place((("dp", size),), (("dp", rank),), Ranks(rank, size)) if size > 1 else Place()


def sampler(n=50, batch=8, **more):
    return ResumableSampler(n, batch, **({"seed": 7, "source": SOURCE, "rank": 0, "ranks": 1} | more))


def value(data, at=Place()):
    """As a record has it: through JSON, and looked at by the other implementation."""
    value = json.loads(json.dumps(data.value(at)))
    items = _core.Walk(json.dumps(value)).take(value["next"]["count"])
    assert items[:4] == value["next"]["first"] and len(items) == value["next"]["count"]
    again = json.loads(_core.Walk(json.dumps(value)).cursor_json(value["next"]["count"]))
    assert again == value
    return value


def resumed(data, saved):
    data.check(saved)
    data.put(saved, None)
    return data


def torchs(n, ranks, rank, seed, epoch, batch_size, drop_last=False, loader_drops=False):
    """Batches of a DataLoader over a DistributedSampler."""
    theirs = DistributedSampler(Numbers(n), ranks, rank, seed=seed, drop_last=drop_last)
    theirs.set_epoch(epoch)
    return [batch.tolist() for batch in DataLoader(Numbers(n), batch_size, sampler=theirs, drop_last=loader_drops)]


SHAPES = [(50, 2), (50, 3), (51, 2), (49, 4), (16, 2), (7, 2)]


@pytest.mark.parametrize("n,ranks", SHAPES)
@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_indices_are_those_of_a_distributed_sampler(n, ranks, epoch, drop_last):
    for rank in range(ranks):
        data = sampler(n, 3 * ranks, tail="drop" if drop_last else "pad", unit=ranks, rank=rank, ranks=ranks)
        data._epoch = epoch
        assert list(data) == torchs(n, ranks, rank, 7, epoch, 3, drop_last)
        assert len(data) == len(torchs(n, ranks, rank, 7, epoch, 3, drop_last))


@pytest.mark.parametrize("n,ranks", SHAPES)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("loader_drops", [False, True])
def test_a_wrapped_distributed_sampler_goes_on(n, ranks, drop_last, loader_drops):
    if loader_drops and n < 3 * ranks:
        pytest.skip("no batch is left")
    for rank in range(ranks):
        def make():
            theirs = DistributedSampler(Numbers(n), ranks, rank, seed=7, drop_last=drop_last)
            data = DistributedSamplerCursor(theirs, 3, source=SOURCE, drop_last=loader_drops)
            return data, DataLoader(Numbers(n), 3, sampler=data, drop_last=loader_drops, generator=data.generator)

        data, loader = make()
        for epoch in range(3):
            data.set_epoch(epoch)
            expected = torchs(n, ranks, rank, 7, epoch, 3, drop_last, loader_drops)
            found = []
            for batch in loader:
                found.append(batch.tolist())
                data.step()
                later, its_loader = make()
                resumed(later, value(data, place(rank, ranks)))
                assert later.consumed == data.consumed
                if later.epoch == epoch:
                    assert [batch.tolist() for batch in its_loader] == expected[len(found):]
            assert found == expected
    assert data.epoch == 3


def test_a_wrapped_sampler_is_refused_where_the_epoch_is_another():
    def make(ranks):
        return DistributedSamplerCursor(DistributedSampler(Numbers(50), ranks, 0, seed=7), 3, source=SOURCE)

    with pytest.raises(NotExactError, match="epoch_end"):
        make(4).check(value(make(2), place(0, 2)))
    with pytest.raises(Error, match="epoch 0"):
        make(2).set_epoch(1)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_read_ahead_does_not_count(workers):
    data = sampler(200, 8)
    loader = data.loader(Numbers(200), num_workers=workers)
    given = []
    for batch in loader:
        given.append(batch.tolist())
        if len(given) == 3:
            break
        data.step()
    saved = value(data)
    assert (saved["position"], saved["consumed"]) == (16, 16)
    later = resumed(sampler(200, 8), saved)
    rest = [batch.tolist() for batch in later.loader(Numbers(200), num_workers=workers)]
    assert rest[0] == given[2] and len(rest) == 23


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tail,n,batch", [("drop", 101, 12), ("pad", 101, 12), ("keep", 103, 12)])
def test_killed_and_reshaped_at_will_every_item_comes_as_if_nothing_had(seed, tail, n, batch):
    """Global batches, in order, over three epochs: killed after any step, resumed on 1 to 4 ranks, each time with other
    numbers of micro-batches, and with work that is done and lost."""
    chance = random.Random(seed)
    shape = {"tail": tail, "n": n, "batch": batch}

    def steps(ranks, saved, count, accumulate):
        """`count` steps of `ranks` ranks from `saved`: the batches, and what each rank would save."""
        all_ranks = [sampler(rank=rank, ranks=ranks, accumulate=accumulate, **shape) for rank in range(ranks)]
        if saved is not None:
            all_ranks = [resumed(data, saved) for data in all_ranks]
        batches, iterators = [], None
        while len(batches) < count:
            if iterators is None:
                iterators, left = [iter(data) for data in all_ranks], all_ranks[0].items - all_ranks[0].position
            size = min(batch, left)
            shares = []
            for iterator in iterators:
                share = []
                while len(share) < size // ranks:
                    share += next(iterator)
                shares.append(share)
            batches.append([shares[place % ranks][place // ranks] for place in range(size // ranks * ranks)])
            left -= size
            assert {data.step() for data in all_ranks} == {size}
            if not left:
                for iterator in iterators:
                    assert list(iterator) == []
                iterators = None
        values = [value(data, place(rank, ranks)) for rank, data in enumerate(all_ranks)]
        assert all(each == values[0] for each in values)
        return batches, values[0]

    expected, end = steps(1, None, 25, 1)
    found, saved = [], None
    while len(found) < 25:
        # Shares of a short batch are whole on 1, and here on all others too.
        ranks = chance.choice([1, 2, 3, 4])
        if tail == "keep" and ranks in (2, 3, 4) and (n % batch) % ranks:
            ranks = 1
        count = min(chance.randrange(1, 9), 25 - len(found))
        steps(ranks, saved, chance.randrange(1, 4), 1)  # of a process that was killed
        batches, saved = steps(ranks, saved, count, chance.choice([1, 2, 3]))
        found += batches
    assert found == expected
    for said in (saved, end):
        said.pop("partition", None)
    assert saved == end


def test_shares_are_those_of_the_specification():
    for ranks in (1, 2, 3, 5):
        ours = [next(iter(sampler(60, 20, rank=rank, ranks=ranks))) for rank in range(ranks)]
        said = value(sampler(60, 20, rank=0, ranks=ranks), place(0, ranks))
        assert said["partition"] == {"axes": ["dp"] if ranks > 1 else [], "batch": 20, "rule": "round-robin"}
        walk = [_core.Walk(json.dumps(said)).share(20, "round-robin", rank, ranks) for rank in range(ranks)]
        assert ours == walk


def test_every_rank_has_as_many_micro_batches():
    for ranks, accumulate in ((3, 2), (4, 3), (5, 1)):
        given = [list(sampler(101, 17, rank=rank, ranks=ranks, accumulate=accumulate)) for rank in range(ranks)]
        assert len({len(batches) for batches in given}) == 1 and all(all(batches) for batches in given)
        assert len(given[0]) == len(sampler(101, 17, rank=0, ranks=ranks, accumulate=accumulate))
        assert len({index for batches in given for batch in batches for index in batch}) == 85


def test_a_step_that_is_forgotten_is_found():
    data = sampler(24, 8)
    for _ in data:
        pass
    with pytest.raises(Error, match="step"):
        iter(data)
    data = sampler(24, 8)
    with pytest.raises(Error, match="not given yet"):
        data.step()
    iterator = iter(data)
    next(iterator), data.step()
    with pytest.raises(Error, match="not given yet"):
        data.step()


def test_an_iterator_of_before_is_not_gone_on_with():
    data = sampler(24, 8)
    old = iter(data)
    next(old), data.step()
    data.put(value(data), None)
    with pytest.raises(Error, match="before"):
        next(old)


@pytest.mark.parametrize("other", [
    {"n": 51}, {"seed": 8}, {"shuffle": False}, {"tail": "pad"}, {"batch": 10}, {"unit": 16},
], ids=str)
def test_another_order_is_refused(other):
    with pytest.raises(NotExactError) as caught:
        sampler(**other).check(value(sampler()))
    assert "order" in str(caught.value) or "epoch_end" in str(caught.value)


def test_a_batch_may_change_where_the_epoch_does_not():
    data = sampler(64, 8, unit=32)
    for _ in zip(range(3), data):
        data.step()
    later = resumed(sampler(64, 16, unit=32), value(data))
    assert sum(later, []) == sum(sampler(64, 8), [])[24:]
    assert later.position == 24 and "partition" not in value(later)


def test_without_shuffling_and_large_seeds():
    assert sum(sampler(20, 5, shuffle=False), []) == list(range(20))
    assert value(sampler(shuffle=False))["order"] == {"algorithm": "identity", "n": 50}
    data = sampler(seed=2**64 - 1)
    assert value(data)["order"]["seed"] == {"int": str(2**64 - 1)}
    data._epoch = 1  # the seed of which is 0
    assert list(data) == list(sampler(seed=0)) and value(data)


def test_an_order_that_pytorch_changed_is_found(monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda n, generator: torch.arange(n))
    with pytest.raises(NotExactError, match="randperm"):
        list(sampler())


@pytest.mark.parametrize("wrong", [
    {"n": 0}, {"batch": 0}, {"batch": 60}, {"rank": 2, "ranks": 2}, {"seed": -1}, {"seed": 2**64}, {"source": "c4"},
    {"tail": "wrap"}, {"tail": "keep", "unit": 5}, {"batch": 4, "ranks": 5}, {"accumulate": 9},
    {"n": 49, "tail": "keep", "ranks": 2},
], ids=str)
def test_what_has_no_order_is_refused(wrong):
    with pytest.raises(Error) as caught:
        sampler(**wrong)
    assert caught.value.code == "bad-argument"


def test_axes_are_held_against_the_place():
    both = Place((("dp", 2), ("tp", 2)), (("dp", 1), ("tp", 0)), Ranks(2, 4))
    data = sampler(rank=1, ranks=2, axes=("dp",))
    assert value(data, both)["partition"]["axes"] == ["dp"]
    assert "partition" not in value(sampler(rank=1, ranks=2), both)
    for wrong in (sampler(rank=0, ranks=2, axes=("dp",)), sampler(rank=1, ranks=2, axes=("tp",)),
                  sampler(rank=1, ranks=2, axes=("pp",))):
        with pytest.raises(Error):
            wrong.value(both)


def test_digests(tmp_path):
    assert digest_of_dataset("a", 1, [("b", 2)]) == digest_of_dataset("a", 1, [["b", 2]])
    assert len({digest_of_dataset(*said) for said in (("a", 1), ("a", "1"), ("a1",), (b"a", 1))}) == 4
    with pytest.raises(Error):
        digest_of_dataset({"a": 1})
    (tmp_path / "b").mkdir()
    (tmp_path / "b/two").write_bytes(b"22")
    (tmp_path / "one").write_bytes(b"1")
    sizes, contents = digest_of_files(tmp_path), digest_of_files(tmp_path, contents=True)
    (tmp_path / "one").write_bytes(b"2")
    assert digest_of_files(tmp_path) == sizes and digest_of_files(tmp_path, contents=True) != contents
    (tmp_path / "one").write_bytes(b"12")
    assert digest_of_files(tmp_path) != sizes
    with pytest.raises(OSError, match="none"):
        digest_of_files(tmp_path / "none")


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path, monkeypatch):
    (tmp_path / "b").mkdir()
    (tmp_path / "one").write_bytes(b"1")
    scandir = os.scandir

    def denied(path):
        if os.fspath(path).endswith("b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(Error) as caught:
        digest_of_files(tmp_path)
    assert caught.value.code == "io-denied"
