"""Element types: ids of the registry, and the types of NumPy, ml_dtypes and PyTorch that they are.

Neither ml_dtypes nor PyTorch is imported before a type of theirs is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ._registry import DTYPES, Dtype
from .errors import error, usage

if TYPE_CHECKING:
    import torch

_NUMPY = {row.numpy: row.id for row in DTYPES.values() if row.numpy is not None}
_ML_DTYPES = {row.ml_dtypes: row.id for row in DTYPES.values() if row.ml_dtypes is not None}
_TORCH = {row.torch: row.id for row in DTYPES.values() if row.torch is not None}


def row(dtype: str) -> Dtype:
    """The row of the registry. Raises `unsupported-dtype`."""
    try:
        return DTYPES[dtype]
    except KeyError:
        raise error("unsupported-dtype", f"{dtype!r} is none of {', '.join(DTYPES)}") from None


def bits(dtype: str) -> int:
    """Bits of one element."""
    return row(dtype).bits


def packed_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a box of `shape`, as it lies in a file: elements below a byte are packed."""
    return (prod(shape) * row(dtype).bits + 7) // 8


@cache
def per_element(dtype: str) -> int:
    """Elements of `dtype` in one element of its PyTorch type: 2 for F4_E2M1, 1 for all others."""
    return 2 if (row(dtype).torch or "").endswith("_x2") else 1


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type: NumPy's own, or one of ml_dtypes. Raises `unsupported-dtype` where that is not installed."""
    known = row(dtype)
    if known.numpy is not None:
        return np.dtype(known.numpy)
    try:
        import ml_dtypes
    except ImportError:
        raise _install(dtype, "NumPy has no such type: install ml_dtypes (pip install 'waystation[dtypes]')") from None
    kind = getattr(ml_dtypes, known.ml_dtypes or "", None)
    if kind is None:
        raise _install(dtype, f"ml_dtypes {ml_dtypes.__version__} has no {known.ml_dtypes}: install a newer one")
    found: np.dtype[Any] = np.dtype(kind)
    return found


def of_numpy(dtype: np.dtype[Any]) -> str:
    """The registry id of a NumPy type, of any byte order. Raises `unsupported-dtype`."""
    if dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        found = _ML_DTYPES.get(dtype.name)
    else:
        found = _NUMPY.get(dtype.name)
    if found is None:
        raise error(
            "unsupported-dtype",
            f"NumPy arrays of {dtype} have no element type in the registry",
            remedy="Convert it, or save its bytes as uint8 and say in a record what they are.",
        )
    return found


@cache
def torch_dtype(dtype: str) -> torch.dtype:
    """The type of PyTorch. Raises `unsupported-dtype` where the PyTorch that is installed has none."""
    known = row(dtype)
    torch = import_torch()
    found = getattr(torch, known.torch or "", None)
    if found is None:
        have = f"PyTorch {torch.__version__} has no type for it"
        raise _install(dtype, f'{have}: read it into NumPy (framework="numpy") or as it lies (Tensor.raw())')
    return found  # type: ignore[no-any-return]


@cache
def of_torch(dtype: torch.dtype) -> str:
    """The registry id of a type of PyTorch. Raises `unsupported-dtype`."""
    found = _TORCH.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise error(
            "unsupported-dtype",
            f"tensors of {dtype} have no element type in the registry",
            remedy="Convert it, or save its bytes as uint8 and say in a record what they are.",
        )
    return found


def import_torch() -> Any:
    """PyTorch. Raises `bad-argument` where it is not installed."""
    if sys.modules.get("torch") is None:
        try:
            import torch
        except ImportError:
            remedy = "pip install 'waystation[torch]'"
            raise usage("this needs PyTorch, which is not installed", remedy=remedy) from None
    return sys.modules["torch"]


def pack(dtype: str, elements: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Elements below a byte, one a byte (as ml_dtypes has them), as they lie in a file: least significant first."""
    width = bits(dtype)
    flat = np.ascontiguousarray(elements).reshape(-1).view(np.uint8)
    out = np.empty((flat.size * width + 7) // 8, np.uint8)
    # In pieces that begin at whole bytes, so that 8 bytes of work for each element do not add up.
    for first in range(0, flat.size, _PIECE):
        piece = flat[first : first + _PIECE]
        low = np.unpackbits(piece.reshape(-1, 1), axis=1, count=width, bitorder="little")
        packed = np.packbits(low.reshape(-1), bitorder="little")
        out[first * width // 8 : first * width // 8 + packed.size] = packed
    return out


def unpack(dtype: str, packed: np.ndarray[Any, np.dtype[np.uint8]], count: int) -> np.ndarray[Any, Any]:
    """`count` elements below a byte, one a byte, 1-D, of `numpy_dtype(dtype)`."""
    width, kind = bits(dtype), numpy_dtype(dtype)
    out = np.empty(count, np.uint8)
    signed = kind.name in ("int4", "int2", "int1")
    for first in range(0, count, _PIECE):
        number = min(_PIECE, count - first)
        piece = packed[first * width // 8 : ((first + number) * width + 7) // 8]
        each = np.unpackbits(piece, count=number * width, bitorder="little").reshape(number, width)
        if signed:  # a byte of ml_dtypes has the sign in all bits above
            each = np.concatenate([each, np.repeat(each[:, -1:], 8 - width, axis=1)], axis=1)
        out[first : first + number] = np.packbits(each, axis=1, bitorder="little").reshape(-1)
    return out.view(kind)


_PIECE = 1 << 20  # elements; a multiple of 8, so that each piece begins at a whole byte


def _install(dtype: str, what: str) -> Exception:
    return error("unsupported-dtype", f"{dtype}: {what}", remedy="Tensor.raw() gives its bytes without any of this.")
