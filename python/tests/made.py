"""Small checkpoints for tests of `_core`: made through the contract, with contents that the tests can compute."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from waystation import _core

Key = tuple[str, str, str, "str | None", "str | None", tuple[tuple[str, int], ...]]

DTYPES = {"f4": "F32", "f8": "F64", "u1": "U8", "i4": "I32", "u2": "U16", "u8": "U64"}


def param(name: str) -> Key:
    return ("main", "param", name, None, None, ())


def buffer(name: str) -> Key:
    return ("main", "buffer", name, None, None, ())


def raw(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, as `_core` takes them."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def dtype_of(array: np.ndarray) -> str:
    return DTYPES[array.dtype.str[1:]]


def checkpoint(
    path: Path,
    tensors: Mapping[Key, np.ndarray],
    *,
    rows: int | None = None,
    aliases: Sequence[tuple[str, str, str, Key]] = (),
    records: Sequence[tuple[str, str, dict[str, object]]] = (),
    attachments: Mapping[str, bytes] = {},
    step: int = 7,
) -> str:
    """Saves tensors, each in chunks of `rows` rows when given, and gives the path."""
    session = _core.Session.standing_alone(str(path), run="made", step=step)
    pieces = []
    for key, array in tensors.items():
        height = array.shape[0] if array.ndim else 1
        cut = height if rows is None or not array.ndim else rows
        for begin in range(0, height, cut):
            part = array[begin : begin + cut] if array.ndim else array
            start = [begin] + [0] * (array.ndim - 1) if array.ndim else []
            number = session.chunk(key, dtype_of(array), array.shape, start, part.shape)
            pieces.append((number, raw(part)))
    for component, role, name, of in aliases:
        session.alias(component, role, name, of)
    for kind, name, value in records:
        session.record(kind, name, (), json.dumps(value, sort_keys=True, separators=(",", ":")))
    for name, data in attachments.items():
        session.attach(name, data)
    writing = session.lay_out()
    writing.write(pieces)
    writing.finish()
    _core.commit(str(path))
    return str(path)


def read(opened: _core.Checkpoint, key: Key, region: _core.Region | None = None, count: int | None = None) -> bytes:
    """The bytes of a tensor, or of a region of `count` bytes."""
    entry = opened.find(key)
    assert entry is not None
    out = np.empty(entry.nbytes if count is None else count, np.uint8)
    opened.read([(key, region, out)])
    return out.tobytes()


def damage(path: str, name_part: str, offset: int) -> None:
    """Flips a bit of the one file of the checkpoint whose name has `name_part` in it."""
    (found,) = [file for file in Path(path).iterdir() if name_part in file.name]
    content = bytearray(found.read_bytes())
    content[offset] ^= 1
    found.chmod(0o644)
    found.write_bytes(content)
