"""The zip archives that `torch.save` writes, within a file: entries, found and bounded, and their bytes.

Reads positionally, so one file may hold many archives, as `.distcp` files do. What PyTorch never writes is refused
and not interpreted: compressed or encrypted entries, names that climb, two entries of one name, bytes that belong to
two entries or to none of the file. So an archive never gives more bytes than it has. Knows no pickle and no tensor.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from collections import OrderedDict
from types import TracebackType
from typing import Final, NamedTuple

from ..errors import Error, Location, error
from .refusal import Place, refuse

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_PIECE: Final = 8 << 20
MAX_DIRECTORY: Final = 256 << 20
"""Bytes of an archive's directory: about three million storages."""


class Files:
    """Files that are open, of as many as there may be: no more than `at_once` have a descriptor at any time."""

    def __init__(self, *, at_once: int = 64) -> None:
        self._at_once = at_once
        self._open: OrderedDict[Source, int] = OrderedDict()

    def source(self, path: str | os.PathLike[str], *, follow_links: bool) -> Source:
        """The file of that path, opened. Raises `not-found`, `not-regular` and what the system answers."""
        source = Source(self, os.fspath(path), follow_links)
        self._open[source] = source.reopen()
        self._evict()
        return source

    def descriptor(self, source: Source) -> int:
        """A descriptor of the file, until the next call."""
        fd = self._open.pop(source, None)
        self._open[source] = source.reopen() if fd is None else fd
        self._evict()
        return self._open[source]

    def close(self) -> None:
        """Closes all."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _evict(self) -> None:
        while len(self._open) > self._at_once:
            os.close(self._open.popitem(last=False)[1])

    def __enter__(self) -> Files:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Source:
    """A regular file that is read at positions; made by `Files`."""

    def __init__(self, files: Files, path: str, follow_links: bool) -> None:
        self.path = path
        self.size = -1
        self._files = files
        self._flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
        self._same: tuple[int, ...] | None = None

    def reopen(self) -> int:
        """A new descriptor, of the very file that was there before."""
        try:
            fd = os.open(self.path, self._flags)
        except OSError as e:
            raise _failed(e, self.path) from None
        info = os.fstat(fd)
        same = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
        place = Location(file=self.path)
        if not stat.S_ISREG(info.st_mode):
            os.close(fd)
            raise error("not-regular", "expected a file, found something else", location=place)
        if self._same not in (None, same):
            os.close(fd)
            raise error("bad-argument", "the file changed while it was imported", location=place)
        self._same, self.size = same, info.st_size
        return fd

    def read(self, offset: int, length: int) -> bytes:
        """Exactly so many bytes; the caller has bounded them by `size`."""
        data = bytearray(length)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fills `out`, whose bytes the caller has bounded by `size`."""
        fd = self._files.descriptor(self)
        done = 0
        while done < len(out):
            try:
                count = os.preadv(fd, [out[done : done + _PIECE]], offset + done)
            except OSError as e:
                raise _failed(e, self.path) from None
            if count == 0:
                message = "the file became shorter while it was read"
                raise error("length-mismatch", message, location=Location(file=self.path, offset=offset + done))
            done += count


class Stored(NamedTuple):
    """The bytes of an entry."""

    offset: int
    """From the start of the file."""
    length: int
    crc32: int


class Archive:
    """An archive that fills `length` bytes of a file from `offset`: its entries by their names below its folder."""

    def __init__(
        self, source: Source, offset: int = 0, length: int | None = None, *, what: str | None = None, check: bool = True
    ) -> None:
        self.source = source
        self._check = check
        self.offset = offset
        self.length = source.size - offset if length is None else length
        self.place = Place(source.path, offset, what)
        if not 0 <= offset <= offset + self.length <= source.size:
            message = f"{self.length} bytes at {offset} are stated, the file has {source.size}"
            raise refuse(message, Place(source.path, offset, what), code="length-mismatch")
        head = source.read(offset, min(4, self.length))
        if head != b"PK\x03\x04":
            raise refuse(_no_archive(head), self.place)
        self.entries = self._entries()

    def find(self, name: str) -> Stored:
        """The entry of that name."""
        found = self.entries.get(name)
        if found is None:
            raise refuse(f"the archive has no {name!r}", self.place)
        return found

    def read(self, name: str, limit: int) -> bytes:
        """All of a small entry, checked against its CRC-32."""
        entry = self.find(name)
        if entry.length > limit:
            raise refuse(f"{name!r} has {entry.length} bytes, at most {limit} are read", self.place, code="limit")
        data = self.source.read(entry.offset, entry.length)
        self.check(name, zlib.crc32(data))
        return data

    def read_into(self, name: str, start: int, out: memoryview, *, known: bool) -> None:
        """Fills `out` from byte `start` of an entry, all of which is checked against its CRC-32 unless `known` good."""
        entry = self.find(name)
        if start + len(out) > entry.length:
            raise refuse(f"{name!r} has {entry.length} bytes, {start + len(out)} are used", self.place)
        if known or not self._check:
            return self.source.read_into(entry.offset + start, out)
        crc = self._crc(entry, 0, start, 0)
        for at in range(0, len(out), _PIECE):
            piece = out[at : at + _PIECE]
            self.source.read_into(entry.offset + start + at, piece)
            crc = zlib.crc32(piece, crc)
        self.check(name, self._crc(entry, start + len(out), entry.length, crc))

    def check(self, name: str, crc: int) -> None:
        """Compares a CRC-32 with the stated one, unless nothing is to be checked."""
        if not self._check:
            return
        stated = self.entries[name].crc32
        if crc != stated:
            raise refuse(
                f"the bytes of {name!r} have CRC-32 {crc:08x}, the archive states {stated:08x}",
                self.place.at(self.entries[name].offset - self.offset),
                code="crc-mismatch",
                remedy="The file was damaged after it was written: take another copy. A file that was saved with "
                "torch.serialization.set_crc32_options(False) states none: import it with verify_crc=False.",
            )

    def _crc(self, entry: Stored, start: int, end: int, crc: int) -> int:
        piece = bytearray(min(_PIECE, end - start))
        for at in range(start, end, _PIECE):
            view = memoryview(piece)[: min(_PIECE, end - at)]
            self.source.read_into(entry.offset + at, view)
            crc = zlib.crc32(view, crc)
        return crc

    # The directory.

    def _bytes(self, start: int, length: int, what: str) -> bytes:
        if start < 0 or length < 0 or start + length > self.length:
            raise refuse(f"{what} is not within the archive", self.place)
        return self.source.read(self.offset + start, length)

    def _end(self) -> tuple[int, int, int, int]:
        """Entries, bytes and start of the directory, and where what comes after it begins."""
        # PyTorch writes no comment, so the end stands at the end and is not searched for.
        at = self.length - _END.size
        end = _END.unpack(self._bytes(at, _END.size, "the end of the directory"))
        signature, disk, directory_disk, here, entries, size, start, comment = end
        if signature != b"PK\x05\x06" or comment != 0:
            raise refuse("the archive does not end as one: it is cut short, or more follows it", self.place.at(at))
        if (disk, directory_disk) != (0, 0) or here != entries:
            raise refuse("an archive in several pieces", self.place)
        locator_at = at - _LOCATOR.size
        if locator_at >= 0 and self._bytes(locator_at, 4, "the end") == b"PK\x06\x07":
            _, disk, at64, disks = _LOCATOR.unpack(self._bytes(locator_at, _LOCATOR.size, "the locator"))
            end64 = _END64.unpack(self._bytes(at64, _END64.size, "the end of the directory"))
            signature, _, _, _, d1, d2, here, entries, size, start = end64
            if signature != b"PK\x06\x06" or disk or disks > 1 or d1 or d2 or here != entries:
                raise refuse("the archive's zip64 end is not well-formed", self.place.at(at64))
            at = at64
        if start + size != at:
            raise refuse("bytes stand between the archive's directory and its end", self.place)
        return entries, size, start, at

    def _entries(self) -> dict[str, Stored]:
        count, size, start, _ = self._end()
        if size > MAX_DIRECTORY:
            raise refuse(
                f"the archive's directory has {size} bytes, at most {MAX_DIRECTORY} are read", self.place, code="limit"
            )
        if count * _CENTRAL.size > size:
            raise refuse(f"{count} entries do not fit into a directory of {size} bytes", self.place)
        directory = self._bytes(start, size, "the directory")
        at = 0
        found: dict[str, Stored] = {}
        spans: list[tuple[int, int]] = []
        root: str | None = None
        for _ in range(count):
            if at + _CENTRAL.size > size:
                raise refuse("the archive's directory is cut short", self.place.at(start + at))
            fields = _CENTRAL.unpack_from(directory, at)
            signature, flags, method, crc = fields[0], fields[3], fields[4], fields[7]
            packed, length, name_bytes, extra_bytes, comment_bytes, local = *fields[8:13], fields[16]
            place = self.place.at(start + at)
            at += _CENTRAL.size
            end = at + name_bytes + extra_bytes + comment_bytes
            if signature != b"PK\x01\x02" or end > size:
                raise refuse("the archive's directory is not well-formed", place)
            name = _name(directory[at : at + name_bytes], place)
            extra = directory[at + name_bytes : at + name_bytes + extra_bytes]
            at = end
            length, packed, local = _wide(extra, length, packed, local, place)
            if flags & 0x2041:
                raise refuse(f"{name!r} is encrypted", place)
            if method != 0 or packed != length:
                raise refuse(f"{name!r} is compressed: PyTorch stores entries as they are", place)
            span, stored = self._local(name, local, length, crc)
            folder, slash, rest = name.partition("/")
            if not slash or not rest or root not in (None, folder):
                raise refuse(f"{name!r} does not stand in the archive's one folder", place)
            root = folder
            if rest in found:
                raise refuse(f"two entries are called {name!r}", place)
            found[rest] = stored
            spans.append(span)
        if at != size:
            raise refuse("the archive's directory has more than its entries", self.place.at(start + at))
        spans.sort()
        past = 0
        for first, last in spans:
            if first < past or last > start:
                raise refuse("entries overlap: the same bytes are stated to be two things", self.place.at(first))
            past = last
        return found

    def _local(self, name: str, at: int, length: int, crc: int) -> tuple[tuple[int, int], Stored]:
        """The bytes from an entry's local header to its end, and its data."""
        header = _LOCAL.unpack(self._bytes(at, _LOCAL.size, f"the header of {name!r}"))
        signature, method, name_bytes, extra_bytes = header[0], header[3], header[9], header[10]
        begin = at + _LOCAL.size
        if signature != b"PK\x03\x04" or method != 0:
            raise refuse(f"the header of {name!r} is not the one of a stored entry", self.place.at(at))
        if self._bytes(begin, name_bytes, f"the header of {name!r}") != name.encode():
            raise refuse(f"{name!r} has another name in its own header", self.place.at(at))
        begin += name_bytes + extra_bytes
        if begin + length > self.length:
            raise refuse(f"{name!r} is cut short: {length} bytes are stated", self.place.at(at))
        return (at, begin + length), Stored(self.offset + begin, length, crc)


def _name(raw: bytes, place: Place) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise refuse("the name of an entry is not UTF-8", place) from None
    plain = all(part not in ("", ".", "..") for part in name.split("/"))
    if not plain or "\\" in name or not name.isprintable():
        raise refuse(f"the name of an entry is not one of plain folders: {ascii(name)[:200]}", place)
    return name


def _wide(extra: bytes, length: int, packed: int, local: int, place: Place) -> tuple[int, int, int]:
    """The 64-bit numbers of an entry whose 32-bit ones say that they do not fit."""
    numbers = [length, packed, local]
    wanted = [index for index, number in enumerate(numbers) if number == 0xFFFFFFFF]
    at = 0
    while wanted and at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        at += 4
        if kind == 1 and at + size <= len(extra) and size >= 8 * len(wanted):
            for index, number in zip(wanted, struct.unpack_from(f"<{len(wanted)}Q", extra, at)):
                numbers[index] = number
            return numbers[0], numbers[1], numbers[2]
        at += size
    if wanted:
        raise refuse("an entry lacks its 64-bit length", place)
    return length, packed, local


def _no_archive(head: bytes) -> str:
    if head[:1] == b"\x80":
        return (
            "a bare pickle, as `torch.save` wrote before 1.6 and pickle itself does: only zip archives are read. "
            "Load it where you trust it and save it again"
        )
    return "not an archive of `torch.save`"


def _failed(e: OSError, path: str) -> Error:
    place = Location(file=path)
    if e.errno in (errno.ENOENT, errno.ENOTDIR):
        return error("not-found", "there is no such file", location=place)
    if e.errno == errno.ELOOP:
        return error("not-regular", "a link, which is not followed here", location=place)
    code = "io-denied" if e.errno in (errno.EACCES, errno.EPERM) else "io"
    return error(code, os.strerror(e.errno) if e.errno else str(e), location=place)
