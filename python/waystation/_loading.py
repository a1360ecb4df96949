"""Many tensors into memory: everything is compared first, then read as one plan.

What only passes through host memory on its way to a device goes in portions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _destination as destination
from . import _overlap as overlap
from ._reading import Source, Want
from .errors import Error, Location, error, usage
from .progress import Report, beyond

if TYPE_CHECKING:
    from .tensor import Tensor

_PORTION = 1 << 30  # bytes


class _Read(NamedTuple):
    """One tensor and the array that it goes to, where the caller has one."""

    tensor: Tensor
    out: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor._box(self.tensor.shape)


def load(
    source: Source,
    tensors: Mapping[Any, Tensor],
    given: Mapping[Any, Any],
    framework: str,
    device: Any,
    report: Report | None,
) -> dict[Any, Any]:
    """The arrays of `tensors` by the same names, those of `given` among them."""
    reads: dict[Any, _Read] = {}
    places: dict[Any, Any] = {}
    for name, tensor in tensors.items():
        out = given.get(name)
        target = tensor.alias_of or tensor.key
        read = _Read(tensor, out)
        try:
            _check(read, framework, device)
        except Error as why:
            raise _named(why, tensor) from None
        place = places[name] = (target, None if out is None else destination.memory(out))
        # Names of one tensor have one array, and arrays of the caller that are one memory are read into once.
        reads.setdefault(place, read)
    common = overlap.among((read.tensor.key.text, read.out) for read in reads.values() if read.out is not None)
    if common is not None:
        raise usage(f"the arrays of 'out' for {common[0]} and {common[1]} lie over each other: one would be lost")
    if device is None and source.memory_budget is not None:
        allocated = sum(read.tensor.nbytes for read in reads.values() if read.out is None)
        if allocated > source.memory_budget:
            raise error(
                "limit",
                f"the tensors take {allocated} bytes, the memory_budget is {source.memory_budget}",
                rule="open.memory",
                remedy="Load fewer at a time, or into arrays of your own.",
            )

    made: dict[Any, Any] = {}
    done, total = 0, sum(read.tensor.nbytes for read in reads.values())
    for portion in _portions(reads, device, min(_PORTION, source.memory_budget or _PORTION)):
        wants = {place: _want(reads[place], framework, device) for place in portion}
        source.read_all(list(wants.values()), beyond(report, done, total))
        for place, want in wants.items():
            made[place] = want.made.finish()
            done += want.made.bytes.nbytes
    return {name: given[name] if name in given else made[places[name]] for name in tensors}


def _check(read: _Read, framework: str, device: Any) -> None:
    if read.out is not None:
        destination.check(read.out, read.tensor.dtype, read.shape)
    else:
        destination.possible(framework, read.tensor.dtype, read.shape, device)


def _portions(reads: Mapping[Any, _Read], device: Any, room: int) -> list[list[Any]]:
    """What is read at once: all that stays where it is read to, then the rest as much at a time as there is room."""
    staged = {
        place
        for place, read in reads.items()
        if (device is not None if read.out is None else not destination.is_direct(read.out))
    }
    portions = [[place for place in reads if place not in staged]]
    left = 0
    for place in reads:
        if place in staged:
            size = reads[place].tensor.nbytes
            if size > left:
                portions.append([])
                left = room
            portions[-1].append(place)
            left -= size
    return [portion for portion in portions if portion]


def _want(read: _Read, framework: str, device: Any) -> Want:
    tensor = read.tensor
    if read.out is not None:
        made = destination.into(read.out, tensor.dtype, read.shape)
    else:
        made = destination.new(framework, tensor.dtype, read.shape, device)
    return Want(tensor, (0,) * len(tensor.shape), tensor.shape, made)


def _named(why: Error, tensor: Tensor) -> Error:
    """`why` with the tensor as its place."""
    return why.with_message(why.message, location=Location(tensor=tensor.key.text))
