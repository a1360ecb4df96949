"""Whether arrays lie over each other in memory, or an array over itself. Looks at addresses only, at no element."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from . import arrays

_WORK = 100_000  # steps of NumPy's search for a common byte, beyond which there may be one


class _Laid(NamedTuple):
    """Where the elements of an array are: all in bytes."""

    where: str
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The first byte, and the one behind the last."""
        steps = [stride * (number - 1) for number, stride in zip(self.shape, self.strides)]
        first = self.start + sum(step for step in steps if step < 0)
        return first, self.start + sum(step for step in steps if step > 0) + self.item


def within(array: Any) -> bool:
    """Whether two elements of an array have bytes in common, or might: true of no view that slices and transposes
    make."""
    laid = _laid(array)
    if 0 in laid.shape:
        return False
    reach = laid.item
    for stride, number in sorted((abs(stride), number) for number, stride in zip(laid.shape, laid.strides)):
        if number > 1:
            if stride < reach:
                return True
            reach += stride * (number - 1)
    return False


def among(named: Iterable[tuple[Any, Any]]) -> tuple[Any, Any] | None:
    """The names of two arrays that have bytes in common, or might, if there are any."""
    devices: dict[str, list[tuple[int, int, Any, _Laid]]] = defaultdict(list)
    for name, array in named:
        laid = _laid(array)
        if 0 not in laid.shape:
            devices[laid.where].append((*laid.bounds, name, laid))
    for there in devices.values():
        before: list[tuple[int, int, Any, _Laid]] = []
        for one in sorted(there, key=lambda one: one[:2]):
            # Rows and columns of one array have bounds that cross, and no byte in common.
            before = [other for other in before if other[1] > one[0]]
            for other in before:
                if _share(one[3], other[3]):
                    return other[2], one[2]
            before.append(one)
    return None


def _laid(array: Any) -> _Laid:
    if arrays.is_torch(array):
        item = array.element_size()
        strides = tuple(stride * item for stride in array.stride())
        return _Laid(str(array.device), array.data_ptr(), tuple(array.shape), strides, item)
    if not isinstance(array, np.ndarray):
        array = np.frombuffer(array, np.uint8)
    return _Laid("cpu", array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize)


def _share(one: _Laid, other: _Laid) -> bool:
    try:
        return np.shares_memory(_addresses(one), _addresses(other), _WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _addresses(laid: _Laid) -> np.ndarray[Any, Any]:
    """An array of NumPy of the same addresses, of whatever device: nothing ever looks at what is there."""

    class Interface:
        __array_interface__ = {
            "version": 3,
            "data": (laid.start, True),
            "shape": laid.shape,
            "strides": laid.strides,
            "typestr": f"|V{laid.item}",
        }

    return np.asarray(Interface())
