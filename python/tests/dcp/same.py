"""Whether two state dicts are the same: in structure, types, dtypes, shapes and bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor


def same(left: Any, right: Any, at: str = "") -> None:
    """Raises AssertionError with the place of the first difference."""
    assert type(left) is type(right), f"{at}: {type(left)} and {type(right)}"
    if isinstance(left, DTensor):
        same(left.to_local(), right.to_local(), at)
    elif isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype and left.shape == right.shape, (
            f"{at}: {left.dtype} {left.shape} {right.dtype} {right.shape}"
        )
        assert bits(left) == bits(right), f"{at}: other bits"
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes(), at
    elif isinstance(left, Mapping):
        assert list(map(repr, sorted(left, key=repr))) == list(map(repr, sorted(right, key=repr))), (
            f"{at}: {set(left) ^ set(right)}"
        )
        for key in left:
            same(left[key], right[key], f"{at}/{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), at
        for index, (one, other) in enumerate(zip(left, right)):
            same(one, other, f"{at}/{index}")
    elif isinstance(left, float) and math.isnan(left):
        assert math.isnan(right), at
    else:
        assert left == right, f"{at}: {left!r} and {right!r}"


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's elements."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def blank(value: Any) -> Any:
    """The same structure with other tensors and values, to load into."""
    if isinstance(value, DTensor):
        return DTensor.from_local(
            torch.full_like(value.to_local(), 77),
            value.device_mesh,
            value.placements,
            run_check=False,
            shape=value.shape,
            stride=value.stride(),
        )
    if isinstance(value, torch.Tensor):
        return torch.full_like(value, 77) if value.dtype is not torch.bool else ~value
    if isinstance(value, dict):
        return type(value)((key, blank(item)) for key, item in value.items())
    if isinstance(value, list) and any(isinstance(item, (torch.Tensor, dict, list)) for item in value):
        return [blank(item) for item in value]
    return None
