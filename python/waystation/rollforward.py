"""Where a job goes on from: the newest whole checkpoint of a run, after finishing what an earlier job left unfinished.

It knows the order of attempts and which of them only lack their commit; it must not know what they hold. A job that
dies between its last part and its commit leaves an attempt that is whole: every file that a part names was durable
before the part. Committing it then gives the bytes that the dead job would have given.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from . import _core
from ._opening import open_core
from .errors import Error, Location, NoCheckpointError, NoneResumableError, UnsupportedError, error
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

    Raises what keeps `latest` from being known: an error of class io or unsupported. And a run whose checkpoints are
    all damaged or rejected is no fresh start: `none-resumable`, which names them.
    """
    if resume != "latest":
        _finish(run_path)
    if resume is None:
        return ResumePoint()
    if resume != "latest":
        checkpoint = open_core(resume)
        return ResumePoint(os.path.basename(os.path.abspath(resume)), checkpoint.digest)
    if not os.path.lexists(run_path):
        return ResumePoint()
    skipped = roll_forward(run_path)
    try:
        found = latest(run_path)
    except NoCheckpointError:
        return ResumePoint(skipped=_never_committed(run_path, skipped))
    except NoneResumableError as lost:
        raise lost.with_message(lost.message, remedy=_LOST) from None
    # That an attempt is not committed says less than why it could not be.
    known = {one.name for one in skipped}
    skipped += [one for one in found.skipped if one.name not in known]
    return ResumePoint(found.name, found.digest, skipped)


def roll_forward(run_path: str) -> list[Skipped]:
    """Commits the newest attempt that is newer than the latest checkpoint and has parts of all its writers.

    The answer is what could not be committed, and why: `writer-missing` where a save was cut short, which is nobody's
    concern. Harmless while the job that wrote the attempt still runs: whoever commits puts the same bytes. Raises
    errors of class io and unsupported: whether there is a newer checkpoint is not known then.
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
        except Error as failed:
            if failed.class_ in ("io", "unsupported"):
                raise
            skipped.append(Skipped(attempt.name, failed))
        else:
            break
    return skipped


def _finish(run_path: str) -> None:
    """Rolls forward for a job that resumes from something else: once it has made an attempt, nobody else may."""
    if not os.path.lexists(run_path):
        return
    try:
        roll_forward(run_path)
    except UnsupportedError:
        pass  # left for a newer version, as it is


def _never_committed(run_path: str, skipped: list[Skipped]) -> list[Skipped]:
    """What a run without a checkpoint has: attempts that never were one, newest first."""
    known = {one.name: one for one in skipped}
    passed: list[Skipped] = []
    for attempt in sorted(list_checkpoints(run_path), key=_rank, reverse=True):
        if attempt.state not in ("uncommitted", "deleted"):
            message = f"expected a run without a checkpoint, found {attempt.name}, which was committed a moment ago"
            raise error("not-found", message, location=Location(file=run_path), remedy="Start the job again.")
        code = "deleted" if attempt.state == "deleted" else "not-committed"
        why = error(code, "it never became a checkpoint, or is being removed")
        passed.append(known.get(attempt.name, Skipped(attempt.name, why)))
    return passed


_LOST = (
    "Repair one: from another copy, by `waystation salvage`, or by removing its `rejected` marker. To train from nothing "
    "all the same call start_over(), or start the job with resume=None."
)


def _rank(attempt: Listed) -> tuple[int, int, str]:
    """The order of `latest`."""
    return attempt.timeline, attempt.step, attempt.attempt
