"""Digests of tensors: equal for equal bytes wherever they lie, and others for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from waystation.dcp import replicas
from waystation.dcp.replicas import Digests, compare, of_tensor, sum_of
from waystation.errors import Error

# The sum that devices make is made on the host as well here.
_WAYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "host": of_tensor,
    "device": lambda given: sum_of(given.contiguous()),
}
if torch.cuda.is_available():
    _WAYS["cuda"] = lambda given: of_tensor(given.cuda())


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_where_the_bytes_lie_does_not_matter(dtype: torch.dtype, way: str) -> None:
    torch.manual_seed(1)
    for count in (1, 3, 8, 1021):
        raw = torch.randint(0, 2, (count * dtype.itemsize,), dtype=torch.uint8)
        expected = _WAYS[way](raw.view(dtype))
        for shift in range(0, 16, dtype.itemsize):
            room = torch.zeros(shift + len(raw), dtype=torch.uint8)
            room[shift:] = raw
            assert _WAYS[way](room[shift:].view(dtype)) == expected
        wide = torch.zeros(count, 2, dtype=dtype)
        wide[:, 0] = raw.view(dtype)
        assert _WAYS[way](wide[:, 0]) == expected


@pytest.mark.parametrize("way", _WAYS)
def test_changes_do_not_cancel_one_another(way: str) -> None:
    ones = torch.ones(64)
    seen = {_WAYS[way](ones)}
    for at in range(1, 64, 2):
        for other in range(at + 2, 64, 2):
            changed = ones.clone()
            changed[[at, other]] *= -1
            seen.add(_WAYS[way](changed))
    assert len(seen) == 1 + 32 * 31 // 2
    masks = {_WAYS[way](torch.tensor([(number >> bit) & 1 for bit in range(8)])) for number in range(256)}
    assert len(masks) == 256


def test_a_sum_of_many_steps_is_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    long = torch.arange(3001, dtype=torch.int32)
    expected = sum_of(long)
    monkeypatch.setattr(replicas, "_WORDS", 64)
    assert sum_of(long) == expected
    moved = long.clone()
    moved[[5, 2000]] = moved[[2000, 5]]
    assert sum_of(moved) != expected


@pytest.mark.parametrize("way", _WAYS)
def test_odd_strides(way: str) -> None:
    column = torch.arange(4.0).as_strided((4, 1), (1, 4))
    assert _WAYS[way](column) == _WAYS[way](torch.arange(4.0).reshape(4, 1))
    assert _WAYS[way](torch.ones(1, 1).as_strided((1, 1), (3, 7))) == _WAYS[way](torch.ones(1, 1))


def test_shapes_and_dtypes_are_told_apart() -> None:
    different = [torch.zeros(4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32), torch.zeros(0), torch.zeros(())]
    assert len({of_tensor(tensor) for tensor in different}) == len(different)


def test_host_and_device_are_not_compared_with_one_another() -> None:
    def ranks(*sums: int) -> None:
        compare((Digests.of(rank, {("w", ()): found}) for rank, found in enumerate(sums)), lambda: [("w", ())])

    ranks(7, 7 | 1 << 31, 7)
    ranks(7, 8 | 1 << 31)
    for apart in ((7, 8), (7 | 1 << 31, 8 | 1 << 31)):
        with pytest.raises(Error, match="'w'"):
            ranks(*apart)
