"""Whether ranks that ought to hold the same really do, before one of them writes it for all.

It knows pieces, records and a group. A tensor that several ranks hold is written by one of them; if the others differ,
the run that resumes is not the run that was saved, and nothing says so. So every rank tells the others a checksum of
every box and of every record that is not its own alone: one all_gather of 12 bytes each, and one pass over the data by
CRC-32 on several threads (device tensors are copied to the host for it).
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from .. import arrays
from ..errors import error
from ..group import Group
from ..records import Record
from ..snapshot import Piece

__all__ = ["compare"]

_ENTRY = struct.Struct("<8sI")
THREADS = 8
NAMED = 5


def compare(group: Group, pieces: Sequence[Piece], records: Iterable[Record]) -> None:
    """Raises `state-disagree` on every rank where the ranks that have a box, or a record, do not have the same.

    `pieces` are all boxes that this rank holds, whoever writes them; `records` those that other ranks may have too. A
    collective of the whole group, of one all_gather.
    """
    if group.size == 1:
        return
    mine: dict[bytes, tuple[int, str]] = {}
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as threads:
        for piece, checksum in zip(pieces, threads.map(_checksum, pieces)):
            name = f"{piece.key.text} {list(piece.start)} {list(piece.extent)} of {list(piece.shape)} {piece.dtype}"
            mine[_short(name)] = checksum, f"tensor {_call(piece)}"
    for record in records:
        text = record.text
        mine[_short(text)] = zlib.crc32(record.value_json.encode()), f"record {text}"
    packed = b"".join(_ENTRY.pack(name, checksum) for name, (checksum, _) in mine.items())
    found: dict[bytes, dict[int, list[int]]] = {}
    for rank, theirs in enumerate(group.all_gather(packed)):
        for name, checksum in _ENTRY.iter_unpack(theirs):
            found.setdefault(name, {}).setdefault(checksum, []).append(rank)
    apart = {name: by for name, by in found.items() if len(by) > 1}
    if not apart:
        return
    known = [f"{mine[name][1]} ({_sides(by)})" for name, by in apart.items() if name in mine]
    elsewhere = len(apart) - len(known)
    shown = "; ".join(known[:NAMED]) + (f"; and {len(known) - NAMED} more" if len(known) > NAMED else "")
    if elsewhere:
        shown += f"{'; ' if shown else ''}{elsewhere} that rank {group.rank} does not hold"
    raise error("state-disagree", f"ranks that hold the same hold different bytes: {shown}", remedy=(
        "Nothing was saved. Find what differs between these ranks (a parameter that is not averaged, a seed that is "
        "not the "
        "rank's); what differs on purpose is named in per_rank, a stream is PerRank()."))


def _checksum(piece: Piece) -> int:
    return zlib.crc32(arrays.as_bytes(piece.data).data)


def _short(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:8]


def _call(piece: Piece) -> str:
    key = piece.key
    return " ".join(word for word in (key.role, key.name, key.slot, key.owner) if word)


def _sides(by: dict[int, list[int]]) -> str:
    """Ranks that agree with one another, the fewest last."""
    sides = sorted(by.values(), key=lambda ranks: (-len(ranks), ranks))
    return " against ".join("rank" + ("s " if len(ranks) > 1 else " ") + ", ".join(map(str, ranks[:8]))
                            + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "") for ranks in sides)
