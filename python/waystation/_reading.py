"""An open checkpoint as all its views share it: reads of many tensors as one plan, within the memory budget."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from . import dtypes
from .errors import error, usage
from .progress import Report, beyond

if TYPE_CHECKING:
    from . import _core
    from ._destination import Destination
    from .tensor import Tensor


class Want(NamedTuple):
    """A box of a tensor, and where it goes."""

    tensor: Tensor
    start: tuple[int, ...]
    extent: tuple[int, ...]
    made: Destination


class Source:
    """What is open, until it is closed."""

    def __init__(self, core: _core.Checkpoint, memory_budget: int | None) -> None:
        self._core: _core.Checkpoint | None = core
        self.memory_budget = memory_budget

    @property
    def core(self) -> _core.Checkpoint:
        """Raises `bad-argument` once it is closed."""
        if self._core is None:
            raise usage("the checkpoint is closed")
        return self._core

    def close(self) -> None:
        """Lets go of the files; what was read stays."""
        self._core = None

    def read(self, tensor: Tensor, start: tuple[int, ...], extent: tuple[int, ...], made: Destination) -> None:
        """Reads one box."""
        self.read_all([Want(tensor, start, extent, made)])

    def read_all(self, wants: Sequence[Want], progress: Report | None = None) -> None:
        """Reads all, as one plan. What the caller's own arrays take does not count against the memory budget: beyond it
        they are filled by several plans. Raises `limit` where what must be allocated is beyond it."""
        budget = self.memory_budget
        if budget is None:
            self.core.read([_of(want) for want in wants], progress=progress)
            return
        allocated = sum(want.made.bytes.nbytes for want in wants if not want.made.own)
        if allocated > budget:
            raise error(
                "limit",
                f"{allocated} bytes are more than the checkpoint's memory_budget of {budget}",
                rule="open.memory",
                remedy="Read parts, read into arrays of your own, or open it with more.",
            )
        total = sum(want.made.bytes.nbytes for want in wants)
        done = 0
        for plan in _plans(wants, budget):
            self.core.read(plan, progress=beyond(progress, done, total))
            done += sum(data.nbytes for _, _, data in plan)


_Asked = tuple["_core.KeyTuple", "_core.Region | None", Any]


def _of(want: Want) -> _Asked:
    key = want.tensor._target
    whole = want.extent == want.tensor.shape
    return key, None if whole else (want.start, want.extent), want.made.bytes


def _plans(wants: Sequence[Want], budget: int) -> list[list[_Asked]]:
    """The reads in groups of at most `budget` bytes, tensors beyond that in boxes of rows."""
    plans: list[list[_Asked]] = [[]]
    room = budget
    for want in wants:
        parts = [_of(want)] if want.made.bytes.nbytes <= budget else _rows(want, budget)
        for part in parts:
            size = part[2].nbytes
            if size > room and plans[-1]:
                plans.append([])
                room = budget
            plans[-1].append(part)
            room -= size
    return plans


def _rows(want: Want, budget: int) -> list[_Asked]:
    """One box as boxes along its first axis that has more than one row, each of whole bytes."""
    tensor, extent = want.tensor, want.extent
    axis = next((axis for axis, number in enumerate(extent) if number > 1), None)
    bits = dtypes.bits(tensor.dtype)
    if axis is None or tensor.block is not None or prod(extent[axis + 1 :]) * bits % 8:
        return [_of(want)]
    row = prod(extent[axis + 1 :]) * bits // 8
    rows = max(1, budget // row)
    parts: list[_Asked] = []
    for first in range(0, extent[axis], rows):
        number = min(rows, extent[axis] - first)
        start = (*want.start[:axis], want.start[axis] + first, *want.start[axis + 1 :])
        box = (*extent[:axis], number, *extent[axis + 1 :])
        parts.append((tensor._target, (start, box), want.made.bytes[first * row : (first + number) * row]))
    return parts
