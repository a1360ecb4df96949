"""Replicas and groups: bytes of any length among ranks, and who holds something else than the others, by name."""

import numpy
import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

import thread_ranks

from waystation.errors import Error
from waystation.key import Key
from waystation.records import Record
from waystation.snapshot import Piece
from waystation.torch.boxes import Held
from waystation.torch.group import Place, TorchGroup
from waystation.torch.replicas import compare, tell


def on_all(size, held):
    """Compares what `held(rank)` gives on each of `size` ranks: what each raised."""
    def one(group):
        pieces, records = held(group.rank)
        compare(group, tell([Held(piece, holders) for piece, holders in pieces], records))

    return thread_ranks.on_all(size, one)


def weight(name, fill, start=0, extent=4, holders=(0, 1, 2)):
    data = numpy.full(extent, fill, numpy.float32)
    return Piece(Key.param(name), "F32", (8,), (start,), (extent,), data), tuple(holders)


def test_those_who_agree_and_those_who_hold_other_boxes_pass():
    record = Record("value", "a", {"tree": 1})
    assert on_all(3, lambda rank: ([weight("w", 1), weight("v", rank, rank * 2, 2, (rank,))], [record])) == [None] * 3


def test_the_one_that_differs_is_named_with_its_ranks():
    raised = on_all(4, lambda rank: ([weight("w", 1, holders=range(4)),
                                    weight("v", 2 if rank == 2 else 1, holders=range(4))], []))
    for error in raised:
        assert error.code == "state-disagree"
        assert "param v" in error.message and "ranks 0, 1, 3 against rank 2" in error.message
        assert "param w" not in error.message


def test_bits_are_compared_not_numbers():
    raised = on_all(2, lambda rank: ([weight("w", -0.0 if rank else 0.0, holders=(0, 1))], []))
    assert all(error.code == "state-disagree" for error in raised)
    assert on_all(2, lambda rank: ([weight("w", float("nan"), holders=(0, 1))], [])) == [None, None]


def test_those_who_have_nothing_and_those_who_think_otherwise_of_it_are_found():
    raised = on_all(4, lambda rank: ([weight("w", 1, holders=(1, 2, 3))] if rank in (1, 3) else [], []))
    assert all("param w (ranks 1, 3; rank 2 without it" in error.message for error in raised)
    raised = on_all(2, lambda rank: ([weight("w", 1, holders=(0, 1) if rank else (0,))], []))
    assert all(error.code == "state-disagree" for error in raised)
    assert len({error.message for error in raised}) == 1


def test_records_are_compared_and_told_where_they_are_not_held():
    raised = on_all(3, lambda rank: ([], [] if rank == 2 else [Record("rng", "python", {"state": str(rank)})]))
    assert all('"python"' in error.message and "rank 0 against rank 1" in error.message for error in raised)


def test_a_place_is_held_against_its_group():
    box = thread_ranks.ThreadGroup(0, 4, None, None)
    with pytest.raises(Error):
        Place((("dp", 2),), (("dp", 0),), box)
    with pytest.raises(Error):
        Place((("dp", 4),), (("dp", 4),), box)
    with pytest.raises(Error):
        Place((("dp", 4),), (("tp", 0),), box)
    both = Place((("dp", 2), ("tp", 2)), (("dp", 1), ("tp", 0)), box)
    assert both.along(("tp",)) == (("tp", 0),) and both.along(None) == both.coordinate
    with pytest.raises(Error):
        both.along(("pp",))


def test_a_group_needs_a_process_group():
    with pytest.raises(Error, match="init_process_group"):
        TorchGroup()


def talk(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=3)
    group = TorchGroup()
    assert (group.rank, group.size) == (rank, 3)
    for data in (b"", b"x", bytes(range(256)) * 1000):
        assert group.broadcast(data if rank == 0 else None) == data
    assert group.all_gather(b"ab" * rank) == [b"", b"ab", b"abab"]
    assert group.all_gather(b"") == [b""] * 3
    pair = dist.new_group([1, 2])
    if rank:
        inner = TorchGroup(pair)
        assert (inner.rank, inner.size) == (rank - 1, 2)
        assert inner.broadcast(b"from one" if rank == 1 else None) == b"from one"
        assert inner.all_gather(bytes([rank])) == [b"\x01", b"\x02"]
    dist.destroy_process_group()


def test_bytes_travel_over_gloo(tmp_path):
    mp.start_processes(talk, (str(tmp_path / "store"),), nprocs=3, start_method="fork")
