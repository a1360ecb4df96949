"""Basic indices, as NumPy has them, as regions of a tensor and what is left to do with the elements read.

Knows numbers only.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from .errors import error, usage

Index = Any
"""Integers, slices, `...`, `None`, or a tuple of them."""


@dataclass(frozen=True)
class Cut:
    """A box to read, and the index to apply to it."""

    start: tuple[int, ...]
    extent: tuple[int, ...]
    rest: tuple[Any, ...]
    """Steps, axes that an integer takes away, new axes."""

    @property
    def plain(self) -> bool:
        """Whether the box read is what was asked for already."""
        return all(isinstance(item, slice) and item.step is None for item in self.rest)


def whole(shape: tuple[int, ...]) -> Cut:
    """All of a tensor."""
    return Cut((0,) * len(shape), shape, (slice(None),) * len(shape))


def cut(index: Index, shape: tuple[int, ...]) -> Cut:
    """What an index selects from `shape`. Raises `bad-region` beyond it, `bad-argument` for arrays as indices."""
    items = list(index) if isinstance(index, tuple) else [index]
    axes = sum(1 for item in items if item is not None and item is not Ellipsis)
    if axes > len(shape):
        raise error("bad-region", f"{axes} indices for a tensor of {len(shape)} axes, of shape {list(shape)}")
    dots = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise error("bad-region", "an index has at most one '...'")
    at = dots[0] if dots else len(items)
    items[at : at + 1] = [slice(None)] * (len(shape) - axes)

    start: list[int] = []
    extent: list[int] = []
    rest: list[Any] = []
    axis = 0
    for item in items:
        if item is None:
            rest.append(None)
            continue
        size = shape[axis]
        if isinstance(item, slice):
            first, count, after = _slice(item, size)
            start.append(first)
            extent.append(count)
            rest.append(after)
        else:
            start.append(_integer(item, size, axis))
            extent.append(1)
            rest.append(0)
        axis += 1
    return Cut(tuple(start), tuple(extent), tuple(rest))


def _slice(item: slice, size: int) -> tuple[int, int, slice]:
    """Start and extent of the hull, and the slice of it."""
    try:
        first, stop, step = item.indices(size)
    except TypeError:
        raise usage(f"{item} is no slice of integers") from None
    except ValueError as why:
        raise usage(f"{item}: {why}") from None
    number = len(range(first, stop, step))
    if number == 0:
        return min(first, size) if step > 0 else 0, 0, slice(None)
    last = first + (number - 1) * step
    if step == 1:
        return first, number, slice(None)
    if step > 0:
        return first, last - first + 1, slice(None, None, step)
    return last, first - last + 1, slice(None, None, step)


def _integer(item: Any, size: int, axis: int) -> int:
    if isinstance(item, bool) or type(item).__name__ in ("bool_", "bool"):
        raise usage("a boolean is no index here: only integers, slices, '...' and None are; read, then select")
    try:
        number = operator.index(item)
    except TypeError:
        raise usage(
            f"{type(item).__name__} is no index here: only integers, slices, '...' and None are; read, then select"
        ) from None
    if not -size <= number < size:
        raise error("bad-region", f"index {number} is out of bounds for axis {axis} with size {size}")
    return number % size
