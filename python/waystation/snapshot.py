"""What one writer saves at one moment: boxes of tensors and their data, aliases, records, attachments.

Knows nothing of runs, ranks that talk, or files: `Snapshot.declare` tells a session of the native half what there is,
and `write` hands it the bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from . import arrays, dtypes
from .errors import usage
from .key import Key
from .progress import beyond
from .records import Record

if TYPE_CHECKING:
    from . import _core

Native = tuple[tuple[str, tuple[str | int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """A tensor that this writer knows and has no piece of: it has no elements, or they are elsewhere."""

    key: Key
    dtype: str
    shape: tuple[int, ...]
    axes: tuple[int | None, ...] | None = None
    native: Native = ()
    valid: tuple[int, ...] | None = None
    block: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One box of one tensor, and its data here.

    `dtype` is an id of the registry, `shape` the global one; the box begins at `start` and has `extent`, all in
    elements. `data` are exactly its elements, row-major: an array of NumPy, a tensor of PyTorch on any device, or bytes
    as they lie in a file.
    """

    key: Key
    dtype: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    extent: tuple[int, ...]
    data: object
    axes: tuple[int | None, ...] | None = None
    native: Native = ()
    valid: tuple[int, ...] | None = None
    block: int | None = None

    @staticmethod
    def whole(
        key: Key,
        data: object,
        *,
        axes: tuple[int | None, ...] | None = None,
        native: Native = (),
        valid: tuple[int, ...] | None = None,
        block: int | None = None,
    ) -> Piece:
        """The whole tensor; dtype and shape are those of `data`."""
        dtype, shape = arrays.form_of(data)
        return _Draft(key, dtype, shape, (0,) * len(shape), shape, data, axes, native, valid, block).finished()

    @staticmethod
    def box(
        key: Key,
        dtype: str,
        shape: tuple[int, ...],
        start: tuple[int, ...],
        extent: tuple[int, ...],
        data: object,
        axes: tuple[int | None, ...] | None = None,
    ) -> Piece:
        """As the constructor, in a third of its time."""
        return _Draft(key, dtype, shape, start, extent, data, axes, (), None, None).finished()

    def holding(self, data: object) -> Piece:
        """The same box, its elements in `data`."""
        return _Draft(self.key, self.dtype, self.shape, self.start, self.extent, data, self.axes, self.native,
                      self.valid, self.block).finished()

    @property
    def nbytes(self) -> int:
        """Bytes of the box in a file."""
        if self.block is not None:
            # A flat companion holds one element for each run of `block` elements of the box (5.5).
            count = -(-_product(self.extent) // self.block)
            return (count * dtypes.bits(self.dtype) + 7) // 8
        return dtypes.packed_bytes(self.dtype, self.extent)


class _Draft:
    """A piece before it is frozen: a save blocks for the making of many thousands, and the constructor of a frozen class
    takes three times as long."""

    __slots__ = tuple(each.name for each in fields(Piece))

    def __init__(
        self,
        key: Key,
        dtype: str,
        shape: tuple[int, ...],
        start: tuple[int, ...],
        extent: tuple[int, ...],
        data: object,
        axes: tuple[int | None, ...] | None,
        native: Native,
        valid: tuple[int, ...] | None,
        block: int | None,
    ) -> None:
        self.key, self.dtype, self.shape, self.start, self.extent = key, dtype, shape, start, extent
        self.data, self.axes, self.native, self.valid, self.block = data, axes, native, valid, block

    def finished(self) -> Piece:
        # Both have the same slots and nothing else, so one may become the other.
        self.__class__ = Piece  # type: ignore[assignment]
        return self  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name of a param or buffer: tied weights."""

    component: str
    role: str
    name: str
    of: Key
    native: Native = ()


@dataclass(frozen=True, slots=True)
class Omitted:
    """Parameters that exist and are not saved, and why: `frozen`, …"""

    component: str
    names: tuple[str, ...]
    reason: str


@dataclass(slots=True)
class Snapshot:
    """All that one writer saves. `inventory` are the identities of the whole checkpoint, where a writer knows them."""

    pieces: list[Piece] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    omitted: list[Omitted] = field(default_factory=list)
    attachments: dict[str, bytes | os.PathLike[str]] = field(default_factory=dict)
    inventory: list[Key] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.nbytes for piece in self.pieces)

    def merge(self, other: Snapshot) -> None:
        """Takes all of `other` in. Raises `bad-argument` where both have an attachment of one path."""
        twice = self.attachments.keys() & other.attachments.keys()
        if twice:
            raise usage(f"two attachments have the path {sorted(twice)[0]!r}")
        self.pieces += other.pieces
        self.declared += other.declared
        self.aliases += other.aliases
        self.records += other.records
        self.omitted += other.omitted
        self.attachments.update(other.attachments)
        if other.inventory is not None:
            self.inventory = [*(self.inventory or ()), *other.inventory]

    def declare(self, session: _core.Session) -> list[tuple[int, Piece]]:
        """Tells `session` all there is, and gives each piece's place in its `Writing`; pieces without elements are
        declared."""
        placed: list[tuple[int, Piece]] = []
        for tensor in self.declared:
            session.declare(
                tensor.key,
                tensor.dtype,
                tensor.shape,
                axes=tensor.axes,
                native=tensor.native,
                valid=tensor.valid,
                block=tensor.block,
            )
        for piece in self.pieces:
            if 0 in piece.extent:
                session.declare(
                    piece.key,
                    piece.dtype,
                    piece.shape,
                    axes=piece.axes,
                    native=piece.native,
                    valid=piece.valid,
                    block=piece.block,
                )
                continue
            place = session.chunk(
                piece.key,
                piece.dtype,
                piece.shape,
                piece.start,
                piece.extent,
                axes=piece.axes,
                native=piece.native,
                valid=piece.valid,
                block=piece.block,
            )
            placed.append((place, piece))
        for alias in self.aliases:
            session.alias(alias.component, alias.role, alias.name, alias.of, native=alias.native)
        for record in self.records:
            session.record(record.kind, record.name, record.coordinate, record.value_json)
        for omitted in self.omitted:
            session.omit(omitted.component, omitted.names, omitted.reason)
        if self.inventory is not None:
            session.inventory(self.inventory)
        for path, content in self.attachments.items():
            if isinstance(content, bytes):
                session.attach(path, content)
            else:
                session.attach_file(path, os.fspath(content))
        return placed


def write(
    writing: _core.Writing,
    placed: Sequence[tuple[int, Piece]],
    *,
    threads: int | None = None,
    progress: _core.Progress | None = None,
    memory: int = 1 << 30,
) -> None:
    """Writes the data of all pieces.

    Those that lie contiguous in host memory are written from where they are. The others are copied first, as many at a
    time as fit into `memory` bytes, and at least one: a single piece larger than that is copied whole.
    """
    done, total = 0, writing.nbytes
    batch: list[tuple[int, arrays.Bytes]] = []
    copied = 0

    def flush() -> None:
        nonlocal batch, copied, done
        if batch:
            writing.write(batch, threads=threads, progress=beyond(progress, done, total))
            done += sum(data.nbytes for _, data in batch)
            batch, copied = [], 0

    for place, piece in placed:
        size = 0 if arrays.is_contiguous(piece.data) else piece.nbytes
        if size and copied + size > memory:
            flush()
        data = arrays.as_bytes(piece.data)
        if data.nbytes != piece.nbytes:
            raise usage(
                f"the box of {piece.dtype} {list(piece.extent)} has {piece.nbytes} bytes, its data {data.nbytes}",
                tensor=piece.key.text,
            )
        copied += size
        batch.append((place, data))
    flush()


def owner_rank(key: Key, candidates: Sequence[int]) -> int:
    """Which of several ranks that hold the same tensor writes it: a function of the identity alone, the same
    everywhere."""
    if len(candidates) == 1:
        return candidates[0]
    digest = hashlib.blake2b(key.text.encode(), digest_size=8).digest()
    return candidates[int.from_bytes(digest, "little") % len(candidates)]


def _product(numbers: Sequence[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product
