"""Where a job goes on from: the newest whole checkpoint of a run, after finishing what an earlier job left unfinished.

It knows the order of attempts and which of them only lack their commit; it must not know what they hold. A job that dies
between its last part and its commit leaves an attempt that is whole: every file that a part names was durable before the
part. Committing it then gives the bytes that the dead job would have given.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from . import _core
from .errors import Error, NoCheckpointError
from .run import Listed, Skipped, latest, list_checkpoints

__all__ = ["ResumePoint", "resume_point", "roll_forward"]


@dataclass(slots=True)
class ResumePoint:
    """What to resume from; no name and no digest for a fresh start. `skipped` could have come before it."""

    name: str | None = None
    digest: str | None = None
    skipped: list[Skipped] = field(default_factory=list)


def resume_point(run_path: str, resume: str | os.PathLike[str] | None) -> ResumePoint:
    """Resolves "latest", a path, or None, for all ranks of a job; one of them calls it.

    Raises what keeps `latest` from being known: an error of class io or unsupported.
    """
    if resume is None:
        return ResumePoint()
    if resume != "latest":
        checkpoint = _core.Checkpoint.open(os.fspath(resume))
        return ResumePoint(os.path.basename(os.path.abspath(resume)), checkpoint.digest)
    if not os.path.lexists(run_path):
        return ResumePoint()
    skipped = roll_forward(run_path)
    try:
        found = latest(run_path)
    except NoCheckpointError:
        return ResumePoint(skipped=skipped)
    # That an attempt is not committed says less than why it could not be.
    known = {one.name for one in skipped}
    skipped += [one for one in found.skipped if one.name not in known]
    return ResumePoint(found.name, found.digest, skipped)


def roll_forward(run_path: str) -> list[Skipped]:
    """Commits the newest attempt that is newer than the latest checkpoint and has parts of all its writers.

    The answer is what could not be committed, and why: `writer-missing` where a save was cut short, which is nobody's
    concern. Harmless while the job that wrote the attempt still runs: whoever commits puts the same bytes. Raises errors
    of class io.
    """
    skipped = []
    for attempt in sorted(list_checkpoints(run_path), key=_rank, reverse=True):
        if attempt.rejected is not None:
            continue
        if attempt.state == "complete":
            break
        if attempt.state != "uncommitted":
            continue
        try:
            _core.commit(attempt.path, run_path=run_path, name=attempt.name)
        except Error as error:
            if error.class_ == "io":
                raise
            skipped.append(Skipped(attempt.name, error))
        else:
            break
    return skipped


def _rank(attempt: Listed) -> tuple[int, int, str]:
    """The order of `latest`."""
    return attempt.timeline, attempt.step, attempt.attempt
