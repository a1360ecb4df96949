"""Memory to read tensors into: new arrays of NumPy or PyTorch, or those of the caller.

Knows element types and shapes. It must not know files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from . import _overlap as overlap
from . import arrays, dtypes
from .errors import usage

Framework = Literal["numpy", "torch"]


class Destination(NamedTuple):
    """Bytes to read into, and what makes the array of them once they are there."""

    bytes: arrays.Bytes
    finish: Callable[[], Any]
    own: bool = False
    """Whether it is the caller's memory itself, and nothing was allocated."""


@cache
def _makeable(framework: str, dtype: str, device: Any) -> Any:
    """The type of `framework`; raises as `possible` does, of what no shape changes."""
    if framework == "torch":
        kind = dtypes.torch_dtype(dtype)
        if dtypes.import_torch().device("cpu" if device is None else device).type == "meta":
            raise usage("the meta device holds no elements: nothing can be read into it")
        return kind
    if framework != "numpy":
        raise usage(f"framework is 'numpy' or 'torch', not {framework!r}")
    if device is not None:
        raise usage(f"NumPy has no device {device!r}: give framework='torch' too")
    return dtypes.numpy_dtype(dtype)


def possible(framework: str, dtype: str, shape: tuple[int, ...], device: Any = None) -> None:
    """Refuses what `new` cannot make, and allocates nothing: `bad-argument`, `unsupported-dtype`."""
    _makeable(framework, dtype, device)
    if framework == "torch":
        torch_shape(dtype, shape)


def new(framework: str, dtype: str, shape: tuple[int, ...], device: Any = None) -> Destination:
    """A new array, of what is `possible`."""
    kind = _makeable(framework, dtype, device)
    if framework == "torch":
        torch = dtypes.import_torch()
        array = torch.empty(torch_shape(dtype, shape), dtype=kind)
        flat = array.reshape(-1).view(torch.uint8).numpy()
        return Destination(flat, lambda: array if device is None else array.to(device))
    if dtypes.bits(dtype) < 8:
        raw = np.empty(dtypes.packed_bytes(dtype, shape), np.uint8)
        return Destination(raw, lambda: dtypes.unpack(dtype, raw, prod(shape)).reshape(shape))
    array = np.empty(shape, kind)
    return Destination(array.reshape(-1).view(np.uint8), lambda: array)


def torch_shape(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in elements of PyTorch's type. Raises `bad-argument` where pairs cannot make it up."""
    pair = dtypes.per_element(dtype)
    if pair == 1:
        return shape
    if not shape or shape[-1] % pair:
        raise usage(
            f"PyTorch keeps {dtype} in pairs along the last axis, which shape {list(shape)} does not allow: read "
            f"it into NumPy, or raw"
        )
    return (*shape[:-1], shape[-1] // pair)


def check(out: Any, dtype: str, shape: tuple[int, ...]) -> None:
    """Refuses a caller's array that is not of exactly this type and shape, or that cannot be written to
    (`bad-argument`)."""
    if isinstance(out, bytearray):
        expected = dtypes.packed_bytes(dtype, shape)
        if len(out) != expected:
            raise usage(f"{dtype} {list(shape)} takes {expected} bytes, the destination has {len(out)}")
        return
    if arrays.is_torch(out):
        arrays.plain_tensor(out)
    elif not isinstance(out, np.ndarray):
        raise usage(f"{type(out).__name__} is no destination: an array of NumPy, a tensor or a bytearray is")
    elif not out.flags.writeable:
        raise usage("the destination is read-only")
    have = (arrays.dtype_of(out), arrays.shape_of(out))
    if have != (dtype, shape):
        raise usage(f"the destination is {have[0]} {list(have[1])}, the tensor {dtype} {list(shape)}: nothing is cast")
    if not is_direct(out) and overlap.within(out):
        raise usage("elements of the destination lie over each other (as expand makes them): not all fit in")


def is_direct(out: Any) -> bool:
    """Whether a caller's array is read into where it lies; any other is copied into at the end."""
    return isinstance(out, bytearray) or arrays.is_contiguous(out)


def memory(out: Any) -> tuple[Any, ...]:
    """What two arrays of one type and shape have in common that are one, bit for bit."""
    if arrays.is_torch(out):
        return (out.device, out.data_ptr(), out.stride(), out.is_conj(), out.is_neg())
    if isinstance(out, np.ndarray):
        little = out.dtype.newbyteorder("<") == out.dtype
        return ("cpu", out.__array_interface__["data"][0], out.strides, little)
    return (id(out),)


def into(out: Any, dtype: str, shape: tuple[int, ...]) -> Destination:
    """The caller's array, after `check`."""
    check(out, dtype, shape)
    if is_direct(out):
        if arrays.is_torch(out):
            # Written to behind PyTorch's back: a gradient that needs what was there before must still find out.
            dtypes.import_torch().autograd.graph.increment_version(out)
        return Destination(arrays.writable_bytes(out), lambda: out, own=True)
    torch_like = arrays.is_torch(out)
    made = new("torch" if torch_like else "numpy", dtype, shape)

    def copy() -> Any:
        if torch_like:
            arrays.bitwise(out.detach()).copy_(arrays.bitwise(made.finish()))
        else:
            out[...] = made.finish()
        return out

    return Destination(made.bytes, copy)
