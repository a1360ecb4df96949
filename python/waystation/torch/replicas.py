"""Whether ranks that ought to hold the same really do, before one of them writes it for all.

It knows pieces, records and a group. A tensor that several ranks hold is written by one of them; if the others differ,
the run that resumes is not the run that was saved, and nothing says so. So every rank tells the others of every box and
of every record that is not its own alone a checksum, and how many ought to have it: one all_gather of 16 bytes each,
and one pass over the data by CRC-32 on several threads (device tensors are copied to the host for it). A rank that
could not capture its state says that instead, in the same all_gather. Only where something is wrong a second one tells
everybody what it is called.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from .. import arrays
from ..errors import Error, error
from ..group import Group
from ..records import Record
from .boxes import Held

__all__ = ["Told", "agree", "compare", "refuse", "tell"]

_ENTRY = struct.Struct("<8sII")
THREADS = 8
NAMED = 5

_HOLDS, _FAILED = b"+", b"!"


@dataclass(slots=True)
class Told:
    """What a rank tells the others: for each thing, by a short name, its checksum and how many ought to have it (0:
    any number); and what it is called, and the ranks that ought to have it, which is told when it is asked for."""

    entries: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    called: dict[bytes, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def packed(self) -> bytes:
        """For the all_gather."""
        return _HOLDS + b"".join(_ENTRY.pack(name, *entry) for name, entry in self.entries.items())


def tell(held: Sequence[Held], records: Iterable[Record]) -> Told:
    """What this rank has: `held` are boxes that other ranks ought to have too, whoever writes them, `records` those
    that other ranks may have."""
    told = Told()
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as threads:
        for each, checksum in zip(held, threads.map(_checksum, held)):
            piece = each.piece
            name = _short(f"{piece.key.text} {list(piece.start)} {list(piece.extent)} of {list(piece.shape)} "
                          f"{piece.dtype}")
            told.entries[name] = checksum, len(each.holders)
            told.called[name] = f"tensor {_call(each)}", each.holders
    for record in records:
        name = _short(record.text)
        told.entries[name] = zlib.crc32(record.value_json.encode()), 0
        told.called[name] = f"record {record.text}", ()
    return told


def compare(group: Group, told: Told) -> None:
    """Raises `state-disagree` on every rank where the ranks that ought to have a box, or have a record, do not have
    the same; and what `refuse` says on any of them. A collective of the whole group."""
    if group.size == 1:
        return
    found: dict[bytes, dict[tuple[int, int], list[int]]] = {}
    answers = group.all_gather(told.packed())
    _failure(answers, "could not capture its state, so nothing was saved on any rank")
    for rank, theirs in enumerate(answers):
        for name, checksum, count in _ENTRY.iter_unpack(theirs[len(_HOLDS):]):
            found.setdefault(name, {}).setdefault((checksum, count), []).append(rank)
    apart = {name for name, by in found.items() if len(by) > 1 or any(count not in (0, len(ranks))
                                                                     for (_, count), ranks in by.items())}
    if not apart:
        return
    # All ranks found the same, so all come here.
    names = {name.hex(): told.called[name] for name in sorted(apart & told.called.keys())[:NAMED]}
    called: dict[bytes, tuple[str, list[int]]] = {}
    for answer in group.all_gather(json.dumps(names).encode()):
        called |= {bytes.fromhex(name): (what, holders) for name, (what, holders) in json.loads(answer).items()}
    several = sorted(called.items(), key=lambda item: item[1][0])[:NAMED]
    shown = "; ".join(f"{what} ({_sides(found[name].values(), holders)})" for name, (what, holders) in several)
    more = f"; and {len(apart) - len(several)} more" if len(apart) > len(several) else ""
    remedy = ("Nothing was saved. Find what differs between these ranks (a parameter that is not averaged, a seed that "
              "is not the rank's, a step that one of them did not make); what differs on purpose is named in per_rank, "
              "a stream is PerRank().")
    if any(what.startswith("tensor buffer ") for what, _ in called.values()):
        remedy += (" Buffers that every rank computes of its own batches, as BatchNorm's running statistics, are named "
                   "in first_rank, where the lowest rank's are meant.")
    raise error("state-disagree", f"ranks that hold the same hold different bytes: {shown}{more}", remedy=remedy)


def refuse(why: BaseException) -> bytes:
    """What a rank tells instead, in the all_gather of the others, where it cannot do what they do."""
    code, message = (why.code, why.message) if isinstance(why, Error) else (None, f"{type(why).__name__}: {why}")
    return _FAILED + json.dumps([code, message]).encode()


def agree(group: Group, why: BaseException | None, what: str, remedy: str) -> None:
    """Tells all ranks whether this one failed, and raises `not-exact` where only others did: one all_gather."""
    if group.size == 1:
        return
    answers = group.all_gather(_HOLDS if why is None else refuse(why))
    if why is None:
        _failure(answers, what, remedy, "not-exact")


def _failure(answers: Sequence[bytes], what: str, remedy: str = "Do there what its own error says.",
            as_code: str | None = None) -> None:
    """Raises `as_code`, or the code of the first rank that failed (`interrupted` of what has none), saying `what` that
    means and why it did."""
    failed = [rank for rank, answer in enumerate(answers) if answer.startswith(_FAILED)]
    if not failed:
        return
    code, message = json.loads(answers[failed[0]][len(_FAILED):])
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    said = f"{code}: {message}" if code else message
    raise error(as_code or code or "interrupted", f"rank {failed[0]}{others} {what}: {said}", remedy=remedy)


def _checksum(each: Held) -> int:
    return zlib.crc32(arrays.as_bytes(each.piece.data).data)


def _short(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:8]


def _call(each: Held) -> str:
    key = each.piece.key
    return " ".join(word for word in (key.role, key.name, key.slot, key.owner) if word)


def _sides(by: Iterable[list[int]], holders: Sequence[int]) -> str:
    """Ranks that agree with one another, the fewest last, and those that have nothing."""
    sides = sorted(by, key=lambda ranks: (-len(ranks), ranks))
    text = " against ".join(map(_ranks, sides))
    without = sorted(set(holders).difference(*sides))
    return f"{text}; {_ranks(without)} without it, or with another shape" if without else text


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank" + ("s " if len(ranks) > 1 else " ") + ", ".join(map(str, ranks[:8]))
            + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""))
