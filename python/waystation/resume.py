"""What one place of a job gets of a checkpoint's records, and how well each resumes (chapter 19 of the specification).

A place is a topology and a coordinate along all of its axes. Nothing that would resume otherwise than it was saved is
handed out in silence: `restore` raises unless the caller says what it puts up with, and the report tells of every
record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from . import tree
from ._json import canonical
from ._opening import checkpoint_of
from ._registry import GRADES
from .errors import Error, from_parts, usage
from .records import Coordinate, Record

if TYPE_CHECKING:
    from . import _core
    from .checkpoint import Checkpoint
    from .tree import GetTensor

Source = tuple[int, str]
"""Number of records of a data source, and the SHA-256 of what they are."""


@dataclass(frozen=True)
class Graded:
    """One record and how well it resumes: a grade of the registry, `exact` first, and why it is no better."""

    kind: str
    name: str
    coordinate: Coordinate
    grade: str
    reason: str | None = None

    @property
    def exact(self) -> bool:
        """Whether it resumes to the bit."""
        return self.grade == "exact"


class GradedReport(tuple[Graded, ...]):
    """The grades of all records. Printed, it is a table."""

    __slots__ = ()

    @property
    def exact(self) -> bool:
        """Whether everything resumes to the bit."""
        return all(graded.exact for graded in self)

    def worst(self) -> str:
        """The worst grade in it."""
        return max((graded.grade for graded in self), key=GRADES.index, default=GRADES[0])

    def __str__(self) -> str:
        if not self:
            return "no records"
        head = ("kind", "name", "at", "grade", "why")
        rows = [
            head,
            *(
                (
                    of.kind,
                    of.name,
                    " ".join(f"{axis}={index}" for axis, index in of.coordinate),
                    of.grade,
                    of.reason or "",
                )
                for of in self
            ),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]).rstrip() for row in rows
        )


@dataclass(frozen=True)
class Progress:
    """How far training had come; None where the trainer did not count it."""

    optimizer_step: int
    iteration: int | None = None
    skipped: int | None = None
    epoch: int | None = None
    samples: int | None = None
    tokens: int | None = None
    batch: int | None = None


@dataclass(frozen=True)
class Stream:
    """A random stream. `value` is its record's, for `_core.stream_to_native`; None where it is not restored."""

    name: str
    coordinate: Coordinate
    grade: str
    reason: str | None
    value: dict[str, Any] | None
    forked: bool
    """Whether it is a new stream, made by the fork rule; the value has its lineage, for the next checkpoint."""


@dataclass(frozen=True)
class Cursor:
    """A position in the data. `value` is its record's; None where it is not restored."""

    name: str
    coordinate: Coordinate
    grade: str
    reason: str | None
    value: dict[str, Any] | None
    rank: int | None
    """Which share of each batch the place gets; None where the cursor says nothing of shares."""
    ranks: int | None
    wanted: tuple[Source, ...]
    """The sources that it was saved on, where it is not restored for want of them."""


@dataclass(frozen=True)
class Restored:
    """All that the place gets. Records are joined and chosen for it; tensors are read from the checkpoint by their
    keys."""

    step: int
    digest: str
    topology: Coordinate
    coordinate: Coordinate
    progress: Progress | None
    optimizers: dict[str, Record]
    averages: dict[str, Record]
    schedules: dict[str, Record]
    scalers: dict[str, Record]
    values: dict[str, Any]
    """Value trees, by name; `value` makes objects of them."""
    streams: dict[str, Stream]
    cursors: dict[str, Cursor]
    report: GradedReport
    refused: Error | None
    """What `restore` raises; None where it hands out all of this."""
    checkpoint: Checkpoint

    def value(self, name: str, get_tensor: GetTensor | None = None) -> Any:
        """The Python object of a value, its tensors read from the checkpoint. Raises `not-found`."""
        if name not in self.values:
            raise usage(f"no value {name!r} for this place", "not-found")
        return tree.from_tree(self.values[name], get_tensor or self.checkpoint.tensor)

    def walk(self, name: str, *, budget: int | None = None) -> _core.Walk:
        """The items of a computed cursor, from the one that comes next. Raises `not-found` where it is not restored."""
        cursor = self.cursors.get(name)
        if cursor is None or cursor.value is None:
            why = "" if cursor is None else f": {cursor.grade}, {cursor.reason}"
            raise usage(f"no cursor {name!r} is restored{why}", "not-found")
        return self.checkpoint.core.walk(canonical(cursor.value), budget=budget)


def restore(
    checkpoint: Checkpoint | str | os.PathLike[str],
    *,
    topology: Iterable[tuple[str, int]] | None = None,
    coordinate: Iterable[tuple[str, int]] = (),
    streams: str = "exact",
    cursors: str = "exact",
    leave_out: Iterable[str] = (),
    sources: Mapping[str, Source | list[Source]] | None = None,
    fingerprints: Mapping[str, Any] | None = None,
    budget_steps: int | None = None,
    budget_bytes: int | None = None,
) -> Restored:
    """What the place gets, or the refusal, before anything is handed out.

    `topology` is the new job's, by default the checkpoint's; `coordinate` names the place along all of its axes.
    `streams` and `cursors` are the worst grades that are put up with: `exact`, `fork` for streams on another topology,
    `opaque-same-topology` for loaders whose state only they understand, `none`. `leave_out` are streams and cursors, by
    name, to go on without. `sources` are the data that are there: for each cursor (records, SHA-256), or a list of
    them; `fingerprints` for each opaque cursor what it depends on, as it was saved. A canary that takes more than
    `budget_steps` or `budget_bytes` is not compared, and its cursor not restored.

    Raises `not-exact`, `source-changed` and `canary-mismatch` for what would resume as another run, `bad-argument` for
    a place that is none.
    """
    restored = appraise(
        checkpoint,
        topology=topology,
        coordinate=coordinate,
        streams=streams,
        cursors=cursors,
        leave_out=leave_out,
        sources=sources,
        fingerprints=fingerprints,
        budget_steps=budget_steps,
        budget_bytes=budget_bytes,
    )
    if restored.refused is not None:
        raise restored.refused
    return restored


def appraise(
    checkpoint: Checkpoint | str | os.PathLike[str],
    *,
    topology: Iterable[tuple[str, int]] | None = None,
    coordinate: Iterable[tuple[str, int]] = (),
    streams: str = "exact",
    cursors: str = "exact",
    leave_out: Iterable[str] = (),
    sources: Mapping[str, Source | list[Source]] | None = None,
    fingerprints: Mapping[str, Any] | None = None,
    budget_steps: int | None = None,
    budget_bytes: int | None = None,
) -> Restored:
    """As `restore`, but refuses nothing: `refused` says what would be. Only to look at."""
    checkpoint = checkpoint_of(checkpoint)
    axes = checkpoint.topology if topology is None else tuple((axis, size) for axis, size in topology)
    at = tuple((axis, index) for axis, index in coordinate)
    if isinstance(leave_out, str):
        raise usage(f"'leave_out' is a collection of names, not the string {leave_out!r}")
    options: dict[str, Any] = {
        "streams": streams,
        "cursors": cursors,
        "leave_out": sorted(leave_out),
        "sources": [
            [name, records, sha256]
            for name, offered in (sources or {}).items()
            for records, sha256 in _listed(name, offered)
        ],
        "fingerprints": {name: tree.to_tree(value) for name, value in (fingerprints or {}).items()},
    }
    for name, budget in (("budget_steps", budget_steps), ("budget_bytes", budget_bytes)):
        if budget is not None:
            options[name] = budget
    said = json.loads(asked(checkpoint, axes, at, options, _SOURCES))
    return _restored(checkpoint, axes, at, said)


def grades(checkpoint: Checkpoint | str | os.PathLike[str]) -> GradedReport:
    """The grade of each record where no topology is asked about; sources and fingerprints count as offered."""
    return _report(json.loads(checkpoint_of(checkpoint).core.grades_json()))


def _restored(checkpoint: Checkpoint, axes: Coordinate, at: Coordinate, said: dict[str, Any]) -> Restored:
    def records(member: str, kind: str) -> dict[str, Record]:
        return {name: Record(kind, name, value) for name, value in said[member].items()}

    refused = said["refused"]
    return Restored(
        step=checkpoint.step,
        digest=checkpoint.digest,
        topology=axes,
        coordinate=at,
        progress=None if said["progress"] is None else _progress(said["progress"]),
        optimizers=records("optimizers", "optimizer"),
        averages=records("averages", "ema"),
        schedules=records("schedules", "schedule"),
        scalers=records("scalers", "scaler"),
        values=said["values"],
        streams={
            one["name"]: Stream(
                one["name"], _pairs(one["coordinate"]), one["grade"], one["reason"], one["value"], one["forked"]
            )
            for one in said["streams"]
        },
        cursors={one["name"]: _cursor(one) for one in said["cursors"]},
        report=_report(said["report"]),
        refused=None if refused is None else refusal_of(refused, _SOURCES),
        checkpoint=checkpoint,
    )


def asked(checkpoint: Checkpoint, topology: Coordinate, at: Coordinate, options: dict[str, Any], sources: str) -> str:
    """`_core.restore_json`, whose errors are advised about as `refusal_of` does."""
    try:
        return checkpoint.core.restore_json(topology, at, canonical(options))
    except Error as why:
        raise _advised(why, sources) from None


def refusal_of(refused: dict[str, Any], sources: str) -> Error:
    """The refusal of a restore, with the parameters of Python that answer it; `sources` says where data are offered."""
    return _advised(from_parts(**{_ARGUMENT.get(member, member): value for member, value in refused.items()}), sources)


def _advised(made: Error, sources: str) -> Error:
    more = {"not-exact": _LESS, "canary-mismatch": _WITHOUT, "source-changed": f"{sources}; {_WITHOUT}"}.get(made.code)
    return made if more is None else made.with_message(made.message, remedy=f"{made.remedy} {more}.".lstrip())


_ARGUMENT = {"class": "class_"}
_WITHOUT = "leave_out=(name, …) goes on without one"
_LESS = (
    'In restore(…), streams="fork" puts up with new streams, cursors="opaque-same-topology" or "none" with less of '
    f"the position in the data, and {_WITHOUT}"
)
_SOURCES = (
    "In restore(…), sources={name: (records, sha256)} offers it; the digest is made as it was then, as by "
    "digest_of_dataset or digest_of_files of waystation.torch"
)
_COUNTS = tuple(field.name for field in fields(Progress))


def _progress(value: dict[str, int]) -> Progress:
    return Progress(**{name: value[name] for name in _COUNTS if name in value})


def _cursor(one: dict[str, Any]) -> Cursor:
    rank, ranks = one["rank"] or (None, None)
    return Cursor(
        one["name"],
        _pairs(one["coordinate"]),
        one["grade"],
        one["reason"],
        one["cursor"],
        rank,
        ranks,
        tuple((records, sha256) for records, sha256 in one["wanted"]),
    )


def _report(said: list[dict[str, Any]]) -> GradedReport:
    return GradedReport(
        Graded(one["kind"], one["name"], _pairs(one["coordinate"]), one["grade"], one["reason"]) for one in said
    )


def _pairs(said: list[list[Any]]) -> Coordinate:
    return tuple((axis, index) for axis, index in said)


def _listed(name: str, offered: Source | list[Source]) -> list[Source]:
    found = offered if isinstance(offered, list) else [offered]
    for one in found:
        if not isinstance(one, tuple) or len(one) != 2:
            raise usage(f"the source of {name!r} is (records, sha256), or a list of such, not {one!r}")
    return found
