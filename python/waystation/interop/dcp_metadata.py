"""The `.metadata` of a checkpoint of `torch.distributed.checkpoint`: what the state holds and where it lies.

A pickle of that module's classes, read by `pickle_machine` with stand-ins for just those. Everything that it states is
checked before it is used: boxes lie in their tensors and cover them exactly once, files are plain names.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from . import torch_globals
from .pickle_machine import Global, Inert, Unknown, load
from .refusal import Place, refuse
from .torch_globals import ELEMENTS, TorchDtype, counts, is_count
from .walk import Path, show

_MODULE: Final = "torch.distributed.checkpoint.metadata"
_FILES: Final = "torch.distributed.checkpoint.filesystem"
MAX_METADATA: Final = 2 << 30
Numbers = tuple[int, ...]
_AXES: Final = 16


@dataclass(frozen=True)
class Span:
    """Bytes of a file of the directory."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class Box:
    """A stored box of a tensor."""

    start: Numbers
    extent: Numbers
    span: Span


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the state: its key and path in the state dict, and its boxes, which cover it."""

    key: str
    path: Path
    dtype: TorchDtype
    size: Numbers
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class StoredValue:
    """Anything else of the state."""

    key: str
    path: Path
    span: Span


@dataclass(frozen=True)
class Metadata:
    """All that a checkpoint of DCP says of itself."""

    tensors: tuple[StoredTensor, ...]
    values: tuple[StoredValue, ...]
    pickle_bytes: int


class _Fields(Inert):
    """An object of a class of that module: the members that its pickle gives."""

    __slots__ = ("kind", "members")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.members: dict[object, object] = {}

    def build(self, state: object) -> None:
        if isinstance(state, tuple):  # of TensorProperties: its dtype comes first
            state = {"dtype": state[0] if state else None}
        if not isinstance(state, dict):
            raise ValueError(f"the state of a {self.kind} is no mapping")
        self.members.update(state)


def _make(kind: str) -> Callable[[tuple[object, ...]], object]:
    def make(arguments: tuple[object, ...]) -> object:
        if arguments:
            raise ValueError("it takes no arguments here")
        return _Fields(kind)

    return make


def _ignored(_: tuple[object, ...]) -> object:
    """What is not looked at: paths, memory formats."""
    return Unknown("what is not looked at")


_CLASSES: Final = (
    "Metadata",
    "TensorStorageMetadata",
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "TensorProperties",
    "MetadataIndex",
    "StorageMeta",
)
_TABLE: Final[dict[tuple[str, str], Inert]] = {
    **{(_MODULE, name): Global(name, _make(name)) for name in _CLASSES},
    (_MODULE, "_MEM_FORMAT_ENCODING"): Global("_MEM_FORMAT_ENCODING", _ignored),
    (_FILES, "_StorageInfo"): Global("_StorageInfo", _make("_StorageInfo")),
    **{
        (module, name): Global(name, _ignored)
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")
    },
}


def _find(module: str, name: str) -> Inert | None:
    return _TABLE.get((module, name)) or torch_globals.find(module, name)


def read(data: bytes, place: Place) -> Metadata:
    """Reads and checks a `.metadata`.

    Raises `bad-argument` for what is none or has anything in it that such a file has not, `unsupported-dtype`,
    `file-missing`, `cover-gap` and `cover-overlap`.
    """
    root, unknown = load(data, _find, place=place)
    if unknown:
        raise refuse(
            f"it names {', '.join(unknown[:5])}: nothing of the kind belongs into the metadata of a checkpoint", place
        )
    return _Reader(place, len(data)).metadata(root)


class _Reader:
    def __init__(self, place: Place, pickle_bytes: int) -> None:
        self.place = place
        self.pickle_bytes = pickle_bytes
        self.chunks_left = pickle_bytes // 8
        """Chunks that may still be met: one takes more bytes than that, unless it stands in many places."""

    def bad(self, message: str, key: str | None = None, code: str = "bad-argument") -> Exception:
        return refuse(message if key is None else f"{show((key,))}: {message}", self.place, code=code)

    def fields(self, value: object, kind: str, key: str | None = None) -> dict[object, object]:
        if not isinstance(value, _Fields) or value.kind != kind:
            raise self.bad(f"expected a {kind}", key)
        return value.members

    def numbers(self, value: object, key: str) -> Numbers:
        # Their number and each of them are bounded before anything is multiplied or told.
        try:
            numbers = counts(value, "a size or offset")
        except ValueError as e:
            raise self.bad(str(e), key) from None
        if len(numbers) > _AXES:
            raise self.bad(f"a tensor of {len(numbers)} axes, the format has {_AXES}", key, "limit")
        return numbers

    def metadata(self, root: object) -> Metadata:
        members = self.fields(root, "Metadata")
        state, places = members.get("state_dict_metadata"), members.get("storage_data")
        if not isinstance(state, dict) or not isinstance(places, dict):
            raise self.bad("it states no state or no place of it")
        spans = self.spans(places)
        paths = members.get("planner_data")
        tensors: list[StoredTensor] = []
        values: list[StoredValue] = []
        for key, said in state.items():
            if type(key) is not str or not key:
                raise self.bad("a key of the state that is no text")
            path = self.path(paths, key)
            if isinstance(said, _Fields) and said.kind == "BytesStorageMetadata":
                values.append(StoredValue(key, path, self.span(spans, key, None)))
            else:
                tensors.append(self.tensor(key, path, said, spans))
        return Metadata(tuple(tensors), tuple(values), self.pickle_bytes)

    def path(self, paths: object, key: str) -> Path:
        """The path that the planner gave, or the key alone where it gave none."""
        path = paths.get(key) if isinstance(paths, dict) else None
        if path is None:
            return (key,)
        if not isinstance(path, (tuple, list)) or not 1 <= len(path) <= 64:
            raise self.bad("a path that is none", key)
        for step in path:
            if type(step) is not str and not (type(step) is int and 0 <= step < 2**53):
                raise self.bad("a path of something else than text and numbers", key)
        # Counted first: a text that the pickle has once can be in many paths, many times.
        if sum(len(step) for step in path if type(step) is str) > len(key) or ".".join(map(str, path)) != key:
            raise self.bad("a path that does not give its key", key)
        return tuple(path)

    def spans(self, places: dict[object, object]) -> dict[tuple[str, Numbers | None], Span]:
        spans: dict[tuple[str, Numbers | None], Span] = {}
        for index, info in places.items():
            members = self.fields(index, "MetadataIndex")
            key, offset = members.get("fqn"), members.get("offset")
            if type(key) is not str:
                raise self.bad("a place of something without a key")
            at = (key, None if offset is None else self.numbers(offset, key))
            if at in spans:
                raise self.bad("two places are stated for one box", key)
            spans[at] = self.span_of(key, info)
        in_order = sorted(spans.items(), key=lambda item: (item[1].file, item[1].offset))
        for (_, one), ((key, _), other) in zip(in_order, in_order[1:]):
            # Else a small directory could be a checkpoint of any size.
            if one.file == other.file and one.offset + one.length > other.offset:
                raise self.bad("its bytes are stated to be those of something else, too", key)
        return spans

    def span_of(self, key: str, info: object) -> Span:
        members = self.fields(info, "_StorageInfo", key)
        file, offset, length = (members.get(name) for name in ("relative_path", "offset", "length"))
        if members.get("transform_descriptors"):
            raise self.bad(
                "its bytes are transformed (compressed or encrypted) by an extension: only plain ones are read", key
            )
        plain = (
            type(file) is str
            and len(file) <= 255
            and file not in ("", ".", "..")
            and "/" not in file
            and "\\" not in file
            and file.isprintable()
        )
        if not plain:
            raise self.bad("it lies in a file whose name is not one of this directory", key)
        if not is_count(offset) or not is_count(length):
            raise self.bad("the place of its bytes is none", key)
        return Span(str(file), offset, length)

    def span(self, spans: dict[tuple[str, Numbers | None], Span], key: str, offset: Numbers | None) -> Span:
        found = spans.get((key, offset))
        if found is None:
            where = "" if offset is None else f" at {list(offset)}"
            raise self.bad(f"the metadata name no file for its data{where}: nothing is filled in", key, "file-missing")
        return found

    def tensor(self, key: str, path: Path, said: object, spans: dict[tuple[str, Numbers | None], Span]) -> StoredTensor:
        members = self.fields(said, "TensorStorageMetadata", key)
        dtype = self.fields(members.get("properties"), "TensorProperties", key).get("dtype")
        size, chunks = self.numbers(members.get("size"), key), members.get("chunks")
        if not isinstance(dtype, TorchDtype) or not isinstance(chunks, list):
            raise self.bad("a tensor without an element type or chunks", key)
        if dtype.dtype is None:
            raise self.bad(f"tensors of {dtype.name} have no element type in the registry", key, "unsupported-dtype")
        if math.prod(number for number in size if number) > ELEMENTS:
            raise self.bad("a tensor of more elements than can be", key)
        self.chunks_left -= len(chunks)
        if self.chunks_left < 0:
            raise self.bad("it states far more chunks than it has bytes: it repeats itself")
        boxes: list[Box] = []
        for chunk in chunks:
            stated = self.fields(chunk, "ChunkStorageMetadata", key)
            start, extent = self.numbers(stated.get("offsets"), key), self.numbers(stated.get("sizes"), key)
            inside = len(start) == len(extent) == len(size) and all(
                at + length <= whole for at, length, whole in zip(start, extent, size)
            )
            if not inside:
                raise self.bad(f"its box {list(start)} + {list(extent)} leaves the shape {list(size)}", key)
            if 0 not in extent:
                boxes.append(Box(start, extent, self.span(spans, key, start)))
        fault = cover_fault(size, [(box.start, box.extent) for box in boxes])
        if fault is not None:
            raise self.bad(f"its boxes do not make up the shape {list(size)}: {fault[1]}", key, fault[0])
        return StoredTensor(key, path, dtype, size, tuple(boxes))


def cover_fault(size: Sequence[int], boxes: Sequence[tuple[Numbers, Numbers]]) -> tuple[str, str] | None:
    """What is wrong with boxes, all within `size`, that do not cover it exactly once: a code, and words.

    Linear in the boxes: the corners of all boxes, each with the sign of its upper sides, must leave those of the whole.
    """
    have, whole = sum(math.prod(extent) for _, extent in boxes), math.prod(size)
    if have < whole:
        return "cover-gap", f"{have} of {whole} elements are stored; nothing is filled in"
    split = [axis for axis, length in enumerate(size) if any(extent[axis] != length for _, extent in boxes)]
    if have == whole and not split:
        return None
    if len(split) > 8:
        return "limit", f"it is split along {len(split)} axes, the format allows 8"
    corners: dict[Numbers, int] = {}
    for start, extent in [*boxes, ((0,) * len(size), tuple(-length for length in size))] if whole else boxes:
        outer = -1 if extent and extent[0] < 0 else 1
        for upper in itertools.product((0, 1), repeat=len(split)):
            at = tuple(start[axis] + (abs(extent[axis]) if up else 0) for axis, up in zip(split, upper))
            sign = outer * (-1 if sum(upper) % 2 else 1)
            corners[at] = corners.get(at, 0) + sign
    if have != whole or any(corners.values()):
        return "cover-overlap", f"boxes overlap ({have} elements are stored for {whole})"
    return None
