"""What a place gets of a checkpoint's streams and cursors, held against the generators and loaders that are there.

It knows grades, demands and names. Nothing is put in here: what would be is found, refused or listed first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._registry import GRADES
from ..errors import Error, error, usage
from ..resume import asked, refusal_of
from .data import CursorSource
from .group import Place
from .report import Line
from .rng import Streams

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint

__all__ = ["Placed", "answer", "hold"]

_SOURCES = ("Make the sampler with the same source= and number of records; the digest is made as it was then, as by "
            "digest_of_dataset or digest_of_files of waystation.torch")


def answer(ckpt: Checkpoint, place: Place, live: Streams, sources: Mapping[str, CursorSource], streams: str,
           cursors: str, leave_out: Collection[str]) -> dict[str, Any]:
    """What the format says that `place` gets, canaries compared. Raises `source-changed` where other data are offered
    than were read, `canary-mismatch`, and `bad-argument` for a grade that there is not and for a name to leave out that
    neither the checkpoint nor the trainer has."""
    for demand in (streams, cursors):
        if demand not in GRADES:
            raise usage(f"expected one of the grades {', '.join(GRADES)}, found {demand!r}")
    live.look()
    saved = {kind: {record.name for record in ckpt.records(kind)} for kind in ("rng", "cursor", "uncaptured")}
    there = saved["rng"] | saved["cursor"] | saved["uncaptured"]
    unknown = set(leave_out) - there - set(live.names) - set(live.off) - sources.keys()
    if unknown:
        raise usage(f"expected streams and cursors to leave out, found {sorted(unknown)}; the checkpoint has "
                    f"{sorted(there)}")
    offered: list[list[Any]] = []
    fingerprints: dict[str, Any] = {}
    for name, source in sources.items():
        if name not in saved["cursor"]:
            continue
        these, fingerprint = source.offer(place)
        offered += [[name, records, sha256] for records, sha256 in these]
        if fingerprint is not None:
            fingerprints[name] = fingerprint
    options = {"streams": streams, "cursors": cursors, "leave_out": sorted(there & set(leave_out)), "sources": offered,
               "fingerprints": fingerprints}
    said: dict[str, Any] = json.loads(asked(ckpt, place.topology, place.coordinate, options, _SOURCES))
    return said


@dataclass(slots=True)
class Placed:
    """What will be put in: values of records, by the name of the stream or cursor, and a line for each record."""

    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    natives: dict[str, bytes] = field(default_factory=dict)
    cursors: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    off: list[str] = field(default_factory=list)
    """Streams that were not saved and are switched off here too, which nobody said to go on without."""
    problems: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)

    def raise_if_bad(self, said: dict[str, Any]) -> None:
        """Raises what stands against the place, if anything does: the format's own refusal before what was found
        here."""
        refused = said["refused"]
        if refused is not None:
            why = refusal_of(refused, _SOURCES)
            if self.off:
                why.remedy = (f"{', '.join(self.off)} were switched off when this was saved, as they are here: say "
                              f"leave_out={tuple(self.off)!r} to go on without them, or streams=\"none\". {why.remedy}")
            raise why
        if self.problems:
            advice = dict.fromkeys([*self.remedies, "or restore(…, leave_out=(name, …)) to go on without"])
            raise error("not-exact", "; ".join(self.problems), rule="restore.demand",
                        remedy=f"Nothing was touched. {'; '.join(advice)}")

    def _bad(self, kind: str, name: str, why: str, remedy: str) -> None:
        self.problems.append(f"{kind} {name!r} {why}")
        self.remedies.append(remedy)
        self.lines.append(Line(kind, name, "none", why))


def hold(said: dict[str, Any], streams: Streams, sources: Mapping[str, CursorSource], demands: tuple[str, str],
         leave_out: Collection[str]) -> Placed:
    """Holds what the place gets against the live streams and sources. `demands` are the grades for streams and
    cursors."""
    placed = Placed()
    _hold_streams(placed, said, streams, demands[0], leave_out)
    _hold_cursors(placed, said, sources, demands[1], leave_out)
    for graded in said["report"]:
        if graded["kind"] == "uncaptured":
            placed.lines.append(Line("uncaptured", graded["name"], "none", graded.get("reason")))
            if demands[0] != "none" and graded["name"] in streams.off.keys() - set(leave_out):
                placed.off.append(graded["name"])
    return placed


def _hold_streams(placed: Placed, said: dict[str, Any], streams: Streams, demand: str,
                  leave_out: Collection[str]) -> None:
    lax = demand == "none"
    for stream in said["streams"]:
        name, value, grade, reason = stream["name"], stream["value"], stream["grade"], stream.get("reason")
        if name in leave_out or value is None:
            placed.lines.append(Line("rng", name, "none", reason or "left out"))
        elif name in streams.names:
            at = streams.coordinate(name)
            if at and not stream["coordinate"]:
                # By the format it fits every topology: here that would be one stream on all ranks that draw apart.
                placed._bad("rng", name, "was one for the whole job, and every rank draws from its own here",
                            f"say rng={{{name!r}: Shared()}} where all ranks are to go on with it")
            else:
                try:
                    placed.natives.update(streams.natives({name: value}))
                except Error as other:
                    placed._bad("rng", name, f"does not fit its generator here: {other.message}", other.remedy)
                    continue
                placed.streams[name] = value
                placed.lines.append(Line("rng", name, grade, reason))
        elif lax:
            placed.lines.append(Line("rng", name, "none", "nothing here draws from it"))
        elif name in streams.off:
            placed._bad("rng", name, "was saved and is switched off here", f"capture {name!r} here too")
        else:
            placed._bad("rng", name, "was saved and no generator of that name is here",
                        f"hand its generator over, rng={{{name!r}: generator}}")
    saved = {stream["name"] for stream in said["streams"]}
    for name in streams.names:
        if name in saved or any(line.name == name and line.kind == "rng" for line in placed.lines):
            continue
        if lax or name in leave_out:
            placed.lines.append(Line("rng", name, "none", "not in the checkpoint; it stays as it is"))
        else:
            placed._bad("rng", name, "draws here and is not in the checkpoint",
                        "make it as it was made then, by its seed")


def _hold_cursors(placed: Placed, said: dict[str, Any], sources: Mapping[str, CursorSource], demand: str,
                  leave_out: Collection[str]) -> None:
    lax = demand == "none"
    saved = {cursor["name"]: cursor for cursor in said["cursors"]}
    for name, cursor in saved.items():
        value, grade, reason = cursor["cursor"], cursor["grade"], cursor.get("reason")
        if name in leave_out or value is None:
            placed.lines.append(Line("cursor", name, "none", reason or "left out"))
        elif name not in sources:
            placed._bad("cursor", name, "was saved and no data of that name are here",
                        f"hand them over, data={{{name!r}: …}}")
        else:
            try:
                sources[name].check(value)
            except Error as other:
                placed._bad("cursor", name, f"does not fit the data here: {other.message}", other.remedy)
                continue
            placed.cursors[name] = value
            placed.lines.append(Line("cursor", name, grade, reason))
    for name in sources.keys() - saved.keys():
        if lax or name in leave_out:
            placed.lines.append(Line("cursor", name, "none", "not in the checkpoint; it stays as it is"))
        else:
            placed._bad("cursor", name, "is not in the checkpoint", "start it from its beginning: restore(…, leave_out=(name, …))")
