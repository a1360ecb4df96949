"""Numbers and element types of NumPy and ml_dtypes as value trees (16.6 of the specification), bit for bit.

Knows the trees of single numbers. Places within an object, `tree` knows.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np

from . import dtypes
from ._registry import DTYPES

_ML = {row.ml_dtypes: row.id for row in DTYPES.values() if row.ml_dtypes is not None}
_ML_PREFIX = "ml_dtypes."
_NUMPY: dict[str, Any] = {
    "bool": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.complex64,
    "complex128": np.complex128,
}
_CHUNK_DIGITS = 512
_CHUNK = 10**_CHUNK_DIGITS
_PLAIN = re.compile("[<>|=]?(?:[?bBiufc][0-9]{0,2}|[SUV][0-9]{1,9}|[mM]8(?:\\[[0-9]{0,9}[a-zA-Z]{1,7}\\])?)")


def f64(number: float) -> dict[str, str]:
    """The tree of a binary64."""
    return {"f64": struct.pack(">d", number).hex()}


def known(name: str) -> bool:
    """Whether `from_tree` makes numbers of this type."""
    prefix, _, kind = name.partition(".")
    return prefix == "numpy" and kind in _NUMPY or prefix == "ml_dtypes" and kind in _ML


def to_tree(number: np.generic) -> dict[str, Any] | None:
    """The tree of a number, or None where it has none."""
    name = number.dtype.name
    if number.dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        return _typed(_ML_PREFIX + name, {"bytes": number.tobytes().hex()}) if name in _ML else None
    if name not in _NUMPY:
        return None
    name = f"numpy.{name}"
    if isinstance(number, np.bool_):
        return _typed(name, bool(number))
    if isinstance(number, np.integer):
        whole = int(number)
        return _typed(name, whole if abs(whole) < 2**53 else {"int": str(whole)})
    if isinstance(number, np.complexfloating):
        return _typed(name, {"tuple": [_float(number.real), _float(number.imag)]})
    return _typed(name, _float(number))


def from_tree(name: str, tree: Any) -> Any:
    """The number of a tree of that type. Raises TypeError, KeyError, ValueError or OverflowError where it is none."""
    if name.startswith(_ML_PREFIX):
        kind = dtypes.numpy_dtype(_ML[name.removeprefix(_ML_PREFIX)])
        return np.frombuffer(_one(tree, "bytes", kind.itemsize), kind)[0]
    kind = np.dtype(_NUMPY[name.removeprefix("numpy.")])
    if kind.kind == "b":
        if type(tree) is not bool:
            raise TypeError
        return np.bool_(tree)
    if kind.kind in "iu":
        whole = int(tree["int"]) if type(tree) is dict else tree
        if type(whole) is not int:
            raise TypeError
        # Through bytes: a constructor of NumPy may wrap what does not fit.
        data = whole.to_bytes(kind.itemsize, "little", signed=kind.kind == "i")
        return np.frombuffer(data, kind.newbyteorder("<"))[0]
    if kind.kind == "c":
        parts = tree["tuple"]
        if type(parts) is not list or len(parts) != 2:
            raise ValueError
        return np.frombuffer(b"".join(_bits(part, kind.itemsize // 2) for part in parts), kind.newbyteorder("<"))[0]
    return np.frombuffer(_bits(tree, kind.itemsize), kind.newbyteorder("<"))[0]


def digits_of(number: int, most: int) -> str | None:
    """The decimal digits of an integer, None where there are more than `most`, which may be up to 4300."""
    # Python may be told to write out longer ones, or none as long as this.
    if number.bit_length() > most * 4:
        return None
    sign, rest, chunks = "-" if number < 0 else "", abs(number), []
    while rest:
        rest, low = divmod(rest, _CHUNK)
        chunks.append(low)
    digits = "".join(f"{chunk:0{_CHUNK_DIGITS}d}" for chunk in reversed(chunks)).lstrip("0") or "0"
    return sign + digits if len(digits) <= most else None


def dtype_text(dtype: np.dtype[Any]) -> str | None:
    """What names an element type in a tree, or None where it is not a plain one."""
    if dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        return dtype.name if dtype.name in _ML else None
    return dtype.str if dtype.names is None and dtype.subdtype is None and _PLAIN.fullmatch(dtype.str) else None


def dtype_of(name: str) -> np.dtype[Any]:
    """The element type that a text names. Raises ValueError or TypeError where it is none of these."""
    if name in _ML:
        return dtypes.numpy_dtype(_ML[name])
    if not _PLAIN.fullmatch(name):
        raise ValueError(name)
    return np.dtype(name)


def _float(number: Any) -> dict[str, str]:
    data = number.tobytes()
    if len(data) == 2:
        return {"bytes": data.hex()}
    return {"f32" if len(data) == 4 else "f64": data[::-1].hex()}


def _bits(tree: Any, size: int) -> bytes:
    """Little-endian bytes of a float's tree."""
    return _one(tree, "bytes", 2) if size == 2 else _one(tree, "f32" if size == 4 else "f64", size)[::-1]


def _one(tree: Any, member: str, size: int) -> bytes:
    if type(tree) is not dict or set(tree) != {member}:
        raise ValueError
    digits = tree[member]
    if type(digits) is not str or len(digits) != 2 * size:
        raise ValueError
    return bytes.fromhex(digits)


def _typed(name: str, tree: Any) -> dict[str, Any]:
    return {"type": [name, tree]}
