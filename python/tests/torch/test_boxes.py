"""Boxes of DTensors: against PyTorch's own arithmetic, and against the elements that ranks really hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from waystation.errors import Error
from waystation.key import Key
from waystation.torch.boxes import Box, Ranks, boxes, pieces, plain, runs


def _covered(shape: tuple[int, ...], mesh: tuple[int, ...], placements: list[object]) -> dict[tuple[int, ...], int]:
    """How many distinct places of the mesh, replicas counted once, hold each element."""
    count = dict.fromkeys(product(*map(range, shape)), 0)
    seen = set()
    for at in product(*map(range, mesh)):
        axes = runs(shape, mesh, at, placements)
        sharded = tuple(index for index, placement in zip(at, placements) if not isinstance(placement, Replicate))
        if sharded in seen:
            continue
        seen.add(sharded)
        for element in product(*([start + k for start, n in axis for k in range(n)] for axis in axes)):
            count[element] += 1
    return count


def _random_case(seed: int) -> tuple[tuple[int, ...], tuple[int, ...], list[object]]:
    draw = random.Random(seed)
    shape = tuple(draw.choice([1, 2, 3, 5, 7, 8, 12]) for _ in range(draw.randint(1, 3)))
    mesh = tuple(draw.choice([1, 2, 3, 4]) for _ in range(draw.randint(1, 3)))
    placements: list[object] = []
    for _ in mesh:
        kind = draw.choice(["replicate", "shard", "shard", "strided"])
        dim = draw.randrange(len(shape))
        placements.append(Replicate() if kind == "replicate" else Shard(dim) if kind == "shard" else
                          _StridedShard(dim, split_factor=draw.choice([1, 2, 3])))
    return shape, mesh, placements


@pytest.mark.parametrize("seed", range(60))
def test_boxes_are_as_pytorch_says_and_cover_each_element_once(seed: int) -> None:
    shape, mesh, placements = _random_case(seed)
    for at in product(*map(range, mesh)):
        axes = runs(shape, mesh, at, placements)
        extent, offset = _compute_local_shape_and_global_offset(shape, mesh, list(at), placements)
        assert tuple(sum(n for _, n in axis) for axis in axes) == extent, (shape, mesh, placements, at)
        if 0 not in extent:
            assert tuple(axis[0][0] for axis in axes) == offset, (shape, mesh, placements, at)
    assert set(_covered(shape, mesh, placements).values()) == {1}, (shape, mesh, placements)


def test_runs_that_meet_are_one_box() -> None:
    assert runs((8,), (2, 2), (0, 0), [Shard(0), Shard(0)]) == [[(0, 2)]]
    assert runs((8,), (2,), (1,), [_StridedShard(0, split_factor=2)]) == [[(2, 2), (6, 2)]]
    assert runs((8,), (1,), (0,), [_StridedShard(0, split_factor=4)]) == [[(0, 8)]]


def test_a_partial_tensor_is_refused() -> None:
    with pytest.raises(Error, match="not a share"):
        runs((4,), (2,), (0,), [Partial()])


def test_plain_tensors_are_one_box_of_their_own_memory() -> None:
    tensor = torch.arange(6.0).reshape(2, 3).t()
    (box,) = boxes(tensor)
    assert box == Box((0, 0), (3, 2), box.data) and box.data.data_ptr() == tensor.data_ptr()
    assert boxes(torch.zeros(0, 4)) == []
    (scalar,) = boxes(torch.tensor(1.0))
    assert scalar.start == () and scalar.extent == ()


class _Scaled(torch.Tensor):
    pass


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("make, word", [
    (lambda: torch.zeros(3, device="meta"), "meta"),
    (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "scales"),
    (lambda: torch.eye(3).to_sparse(), "layout"),
    (lambda: torch.zeros(3).as_subclass(_Scaled), "_Scaled"),
    (torch.nn.parameter.UninitializedParameter, "not initialised"),
], ids=["meta", "quantised", "sparse", "subclass", "lazy"])
def test_tensors_that_are_more_or_less_than_their_elements(make: Callable[[], torch.Tensor], word: str) -> None:
    tensor = make()
    with pytest.raises(Error, match=word) as caught:
        plain(tensor, "parameter 'w'")
    assert "parameter 'w'" in str(caught.value)


def test_one_of_all_ranks_writes_a_replica_and_the_others_declare_it_unless_it_is_compared() -> None:
    tensor, key = torch.ones(3), Key.param("w")
    for compared, first in ((False, False), (True, False), (False, True), (True, True)):
        writers, declarers = [], []
        for rank in range(5):
            held = [] if compared else None
            named = frozenset({"w"} if first else ())
            written, declared = pieces(key, tensor, Ranks(rank, 5, first=named, held=held))
            writers += [rank] * len(written)
            declarers += [rank] * len(declared)
            assert [each.holders for each in held or ()] == [(0, 1, 2, 3, 4)] * (compared and not first)
        assert len(writers) == 1 and (not first or writers == [0])
        others = [rank for rank in range(5) if rank not in writers]  # the writer declares by writing
        assert declarers == ([rank for rank in others if rank == 0] if compared and not first else others)


def test_holders_and_scopes_say_who_writes() -> None:
    tensor = torch.ones(3)
    written = [bool(pieces(Key.param("w"), tensor, Ranks(rank, 4, holders=(1, 3)))[0]) for rank in (1, 3)]
    assert sorted(written) == [False, True]
    for rank in range(3):
        assert pieces(Key.param("w", scope=(("dp", rank),)), tensor, Ranks(rank, 3))[0]
    with pytest.raises(Error, match="holders"):
        Ranks(0, 4, holders=(1, 3))


def _written(rank: int) -> dict[str, list[tuple[tuple[int, ...], tuple[int, ...], torch.Tensor]]]:
    """What rank `rank` of four writes of one tensor, sharded in many ways; nothing is sent between ranks."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = torch.arange(7 * 6, dtype=torch.int32).reshape(7, 6)
    found = {}
    for name, where, placements in [
        ("rows", mesh, [Shard(0), Replicate()]), ("both", mesh, [Shard(0), Shard(1)]),
        ("same", mesh, [Shard(0), Shard(0)]),
        ("strided", mesh, [_StridedShard(0, split_factor=2), Shard(0)]), ("copies", mesh, [Replicate(), Replicate()]),
        ("slice", mesh["dp"], [Shard(0)]), ("other slice", mesh["tp"], [Shard(1)]),
        ("flat", mesh._flatten("all"), [Shard(0)]),
    ]:
        if name == "strided":  # distribute_tensor does not make these: fully_shard does, from a local part
            rows, _ = runs((7, 6), (2, 2), mesh.get_coordinate(), placements)
            here = torch.cat([whole[start:start + n] for start, n in rows])
            tensor = DTensor.from_local(here, where, placements, run_check=False, shape=whole.shape, stride=(6, 1))
        else:
            tensor = distribute_tensor(whole, where, placements, src_data_rank=None)
        written, _ = pieces(Key.param(name), tensor, Ranks(rank, 4))
        found[name] = [(piece.start, piece.extent, piece.data.clone()) for piece in written]
    with pytest.raises(Error, match=r"\[4\] hold the model too"):
        pieces(Key.param("x"), distribute_tensor(whole, mesh, [Shard(0), Shard(0)], src_data_rank=None), Ranks(rank, 5))
    return found


def test_four_ranks_write_every_element_once() -> None:
    ranks = []
    for rank in range(4):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
        try:
            ranks.append(_written(rank))
        finally:
            dist.destroy_process_group()
    for name in ranks[0]:
        whole, written = torch.full((7, 6), -1, dtype=torch.int32), torch.zeros(7, 6, dtype=torch.int32)
        for rank in ranks:
            for start, extent, data in rank[name]:
                at = tuple(slice(a, a + n) for a, n in zip(start, extent))
                whole[at] = data
                written[at] += 1
        assert torch.equal(written, torch.ones_like(written)), name
        assert torch.equal(whole, torch.arange(42, dtype=torch.int32).reshape(7, 6)), name
