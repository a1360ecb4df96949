"""Arrays of NumPy, PyTorch and whoever speaks their protocols, as bytes of the format.

Bytes are 1-D contiguous `uint8` arrays of NumPy: row-major, little-endian, elements below a byte packed. They share
memory with the array wherever it lies so already; a copy is made only where it does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from . import dtypes
from .errors import usage

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# Before 2.1 a read-only array of NumPy could not be handed to another library at all; those are copied.
_LENDS_READ_ONLY = tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 1)


def is_torch(obj: object) -> bool:
    """Whether this is a tensor of PyTorch; does not import it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.Tensor)


def dtype_of(obj: Any) -> str:
    """The registry id of an array's elements; bytes are `U8`. Raises `unsupported-dtype` and `bad-argument`."""
    if is_torch(obj):
        return dtypes.of_torch(obj.dtype)
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return "U8"
    return dtypes.of_numpy(_numpy(obj).dtype)


def shape_of(obj: Any) -> tuple[int, ...]:
    """The shape in elements of `dtype_of(obj)`: the last axis of a tensor of pairs has two for each."""
    if is_torch(obj):
        return _torch_form(obj)[1]
    if isinstance(obj, (bytes, bytearray)):
        return (len(obj),)
    if isinstance(obj, memoryview):
        return (obj.nbytes,)
    return tuple(int(number) for number in _numpy(obj).shape)


def form_of(obj: Any) -> tuple[str, tuple[int, ...]]:
    """`dtype_of` and `shape_of`."""
    return _torch_form(obj) if is_torch(obj) else (dtype_of(obj), shape_of(obj))


def as_bytes(obj: Any) -> Bytes:
    """An array's bytes. Those of a device are copied to the host; the result must not be written to."""
    if is_torch(obj):
        return _torch_bytes(obj)
    if isinstance(obj, (bytes, bytearray, memoryview)):
        if isinstance(obj, memoryview) and not obj.c_contiguous:
            obj = obj.tobytes()
        return _lendable(np.frombuffer(obj, np.uint8))
    array = _numpy(obj)
    dtype = dtypes.of_numpy(array.dtype)
    if dtypes.bits(dtype) < 8:
        return dtypes.pack(dtype, array)
    little = array.dtype.newbyteorder("<")
    return _lendable(np.ascontiguousarray(array, little).reshape(-1).view(np.uint8))


def is_contiguous(obj: Any) -> bool:
    """Whether `as_bytes` shares memory with the array, and copies nothing."""
    if is_torch(obj):
        return bool(obj.device.type == "cpu" and obj.is_contiguous() and not obj.is_conj() and not obj.is_neg())
    if isinstance(obj, bytearray):
        return True
    if isinstance(obj, (bytes, memoryview)):
        view = memoryview(obj)
        return view.c_contiguous and (_LENDS_READ_ONLY or not view.readonly)
    array = _numpy(obj)
    return bool(
        array.flags.c_contiguous
        and (_LENDS_READ_ONLY or array.flags.writeable)
        and array.dtype.newbyteorder("<") == array.dtype
        and dtypes.bits(dtypes.of_numpy(array.dtype)) >= 8
    )


def writable_bytes(obj: Any) -> Bytes:
    """The bytes of a contiguous array in host memory, to be written to. Raises `bad-argument` for any other."""
    if is_torch(obj):
        plain_tensor(obj)
        if not is_contiguous(obj):
            raise usage(f"the destination is a tensor on {obj.device}, or not contiguous: one in host memory is needed")
        return _torch_bytes(obj)
    if isinstance(obj, bytearray):
        return np.frombuffer(obj, np.uint8)
    if not isinstance(obj, np.ndarray):
        raise usage(f"{type(obj).__name__} is no destination: an array of NumPy, a tensor or a bytearray is")
    if not obj.flags.writeable or not is_contiguous(obj):
        raise usage(f"the destination of {obj.dtype} {obj.shape} is read-only, not contiguous or not little-endian")
    return obj.reshape(-1).view(np.uint8)


def plain_tensor(tensor: Any) -> None:
    """Refuses tensors whose elements do not lie in memory of their own: sparse, nested, quantised, meta, and wrapped
    ones."""
    torch = sys.modules["torch"]
    kind = type(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise usage(f"{kind.__module__}.{kind.__qualname__} wraps other tensors: hand over its parts, or the whole")
    if tensor.is_nested:
        raise usage("a nested tensor is several of different shapes: hand over its parts (unbind())")
    if tensor.layout != torch.strided:
        raise usage(f"a tensor of layout {tensor.layout} has no elements in a row: make it dense, or save its parts")
    if tensor.is_quantized:
        raise usage(f"a tensor of {tensor.dtype} has scales beside its elements: save int_repr(), scales and zeros")
    if tensor.device.type == "meta":
        raise usage("a tensor on the meta device has no elements")


def _torch_form(tensor: Any) -> tuple[str, tuple[int, ...]]:
    if tensor.is_nested:
        plain_tensor(tensor)
    dtype = dtypes.of_torch(tensor.dtype)
    shape = tuple(tensor.shape)
    pair = dtypes.per_element(dtype)
    if pair == 1:
        return dtype, shape
    if not shape:
        raise usage(f"a tensor of {tensor.dtype} without axes has no shape in single elements")
    return dtype, (*shape[:-1], shape[-1] * pair)


def _lendable(array: Bytes) -> Bytes:
    return array if _LENDS_READ_ONLY or array.flags.writeable else array.copy()


def _torch_bytes(tensor: Any) -> Bytes:
    plain_tensor(tensor)
    torch = sys.modules["torch"]
    return flat_bytes(bitwise(tensor.detach().resolve_conj().resolve_neg()).cpu().contiguous())


def bitwise(tensor: Any) -> Any:
    """A tensor as a type that PyTorch copies bit for bit: of a strided bool it makes 0 and 1, whatever was there."""
    torch = sys.modules["torch"]
    return tensor.view(torch.uint8) if tensor.dtype is torch.bool else tensor


def flat_bytes(tensor: Any) -> Bytes:
    """The memory of a plain contiguous tensor of the host that records no gradients, as it lies."""
    if tensor.dtype in _numpys_own():
        # A third of the time: there may be many thousands of them.
        return tensor.numpy().reshape(-1).view(np.uint8)  # type: ignore[no-any-return]
    # An axis of one element is contiguous to PyTorch whatever its stride is, but for the view as bytes.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return flat.view(sys.modules["torch"].uint8).numpy()  # type: ignore[no-any-return]


@cache
def lender(dtype: Any) -> Callable[[Any], Any]:
    """What lends `_core` the memory of plain contiguous tensors of this type in the host, whether they record gradients
    or not: as DLPack capsules, or as arrays where the PyTorch that is here has none for the type."""
    torch = sys.modules["torch"]
    try:
        # `Tensor.__dlpack__` takes thirty times as long, and refuses what records gradients.
        lend: Callable[[Any], Any] = torch.utils.dlpack.to_dlpack
        lend(torch.empty(1, dtype=dtype))
    except Exception:  # of several kinds, in several versions
        return lambda tensor: flat_bytes(tensor.detach())
    return lend


@cache
def _numpys_own() -> frozenset[Any]:
    """The types of PyTorch that NumPy has as well."""
    torch = sys.modules["torch"]
    names = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
    return frozenset(getattr(torch, name) for name in names)


def _numpy(obj: Any) -> np.ndarray[Any, Any]:
    """`obj` as an array of NumPy that shares its memory, where it can."""
    if isinstance(obj, (np.ndarray, np.generic)):
        array = np.asarray(obj)
        if isinstance(obj, np.ma.MaskedArray):
            raise usage("a masked array is two arrays: save data and mask apart")
        return array
    if hasattr(obj, "__array__"):
        return np.asarray(obj)
    if hasattr(obj, "__dlpack__"):
        return np.from_dlpack(obj)
    raise usage(
        f"{type(obj).__module__}.{type(obj).__qualname__} is no array: one of NumPy or PyTorch, or an object "
        f"with __array__ or __dlpack__, is needed"
    )
