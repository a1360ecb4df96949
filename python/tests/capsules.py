"""DLPack capsules made by hand, to say what no array library would."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


@dataclass
class Exporter:
    """An object that speaks DLPack and says of its memory what it is told to."""

    memory: np.ndarray = field(default_factory=lambda: np.zeros(64, np.uint8))
    versioned: bool = True
    major: int = 1
    flags: int = 0
    deleted: int = 0
    says: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (64,)
    strides: tuple[int, ...] | None = (1,)
    kept: list[Any] = field(default_factory=list)

    def capsule(self) -> Any:
        shape = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        strides = None if self.strides is None else (ctypes.c_int64 * max(1, len(self.strides)))(*self.strides)
        said = {
            "data": self.memory.ctypes.data,
            "device_kind": 1,
            "ndim": len(self.shape),
            "code": 1,
            "bits": 8,
            "lanes": 1,
            "shape": ctypes.addressof(shape),
            "strides": None if strides is None else ctypes.addressof(strides),
            **self.says,
        }
        tensor = Tensor(**said)

        def delete(_: int) -> None:
            self.deleted += 1

        deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(delete)
        address = ctypes.cast(deleter, ctypes.c_void_p)
        managed: Any
        if self.versioned:
            managed = Versioned(major=self.major, deleter=address, flags=self.flags, tensor=tensor)
        else:
            managed = Legacy(tensor=tensor, deleter=address)
        self.kept += [shape, strides, deleter, managed]
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        self.kept.append(name)
        return _new(ctypes.addressof(managed), name, None)

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> Any:
        if not self.versioned and max_version is not None:
            raise TypeError("an exporter of before knows no max_version")
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.says.get("device_kind", 1), 0)


def name_of(capsule: Any) -> bytes:
    """The name of a capsule."""
    return _name(capsule)
