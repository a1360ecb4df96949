"""What a checkpoint has for live objects: a list of lines, of which some stand against loading.

Made before anything is touched. It knows no tensors: those who compare say what they found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .._registry import GRADES
from ..errors import NotExactError

ALWAYS = frozenset({"shape", "dtype", "form", "algorithm", "memory"})
"""Findings that no `strict=False` passes over: the elements would be other ones."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing and how well it is restored.

    `grade` is one of the registry. `finding` says in a word what stands against it: `missing` (in the checkpoint),
    `unexpected` (there, and the live object has none), `shape`, `dtype`, `tied`, `hyper`, `order`, `form`, `algorithm`,
    `memory` (shared with another tensor, and other elements are stored of that);
    None where nothing does. A line with a reason and no finding is a note.
    """

    kind: str
    name: str
    grade: str = "exact"
    reason: str | None = None
    finding: str | None = None

    def __post_init__(self) -> None:
        assert self.grade in GRADES

    def __str__(self) -> str:
        said = f"{self.kind} {self.name}: {self.finding or self.grade}"
        return f"{said} ({self.reason})" if self.reason else said


@dataclass(slots=True)
class Report:
    """Lines in the order in which they were found; printed, it is a table of all that is not simply exact, notes too."""

    lines: list[Line] = field(default_factory=list)

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def ok(self) -> bool:
        """Whether all fits: nothing missing, unexpected or different."""
        return not self.findings

    @property
    def findings(self) -> list[Line]:
        """The lines that stand against loading with `strict`."""
        return [line for line in self.lines if line.finding is not None]

    @property
    def notes(self) -> list[Line]:
        """What to know and what stands against nothing."""
        return [line for line in self.lines if line.finding is None and line.reason is not None]

    def refusals(self, strict: bool = True) -> list[Line]:
        """The lines that stand against loading. Without `strict` only those whose elements would be other ones."""
        return self.findings if strict else [line for line in self.findings if line.finding in ALWAYS]

    def add(self, kind: str, name: str, grade: str = "exact", reason: str | None = None,
            finding: str | None = None) -> None:
        """Adds a line."""
        self.lines.append(Line(kind, name, grade, reason, finding))

    def extend(self, lines: Iterable[Line]) -> None:
        """Adds the lines of another report."""
        self.lines.extend(lines)

    def raise_if_bad(self, strict: bool = True) -> None:
        """Raises `not-exact` with all that stands against loading; the report is the error's `report`."""
        bad = self.refusals(strict)
        if not bad:
            return
        shown = "; ".join(str(line) for line in bad[:8])
        more = f"; and {len(bad) - 8} more" if len(bad) > 8 else ""
        remedy = ("Nothing was touched. Make the model and optimizers as those that were saved."
                  if any(line.finding in ALWAYS for line in bad) else
                  "Nothing was touched. Make the live objects as those that were saved, or load with strict=False.")
        raise Refused("not-exact", f"the checkpoint and the live objects differ: {shown}{more}", self, remedy)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        exact = sum(line.finding is None and line.grade == GRADES[0] for line in self.lines)
        rows = [(line.kind, line.name, line.finding or line.grade, line.reason or "")
                for line in self.lines if line.finding is not None or line.reason is not None]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        text = [f"{exact} of {len(self.lines)} exact"]
        for row in rows:
            text.append("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip())
        return "\n".join(text)


class Refused(NotExactError):
    """`not-exact`: the checkpoint and the live objects differ, and nothing was touched. `report` says all of it."""

    def __init__(self, code: str, message: str, report: Report, remedy: str) -> None:
        super().__init__(code, message, remedy=remedy)
        self.report = report
