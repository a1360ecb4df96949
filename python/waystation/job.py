"""One start of a training job in a run: what its ranks agree on once, and its saves.

It knows plans, attempts, and who waits for whom; it must not know what a snapshot holds, nor when to save. Starting
makes one broadcast, and one all_gather where it resumes. A save makes no collective: rank 0 makes the directory, every
rank writes its own part of it, rank 0 commits once all parts are there. Each rank finds the directory by its name,
which is a function of the plan, the step and the number of the save; so all ranks must save the same steps in the same
order.

Nothing half written is a checkpoint: after a failure the next save is another attempt. A job of one process removes
the attempt that failed, for nobody else writes to it; of several ranks another may still be writing, and it is left to
the next job and to retention.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import Error, Location, error, from_parts, to_parts, usage
from .group import Group, Solo
from .progress import Progress, Report, reporting
from .rollforward import resume_point
from .run import Skipped
from .snapshot import Snapshot, write
from .waiting import commit_file, until

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

__all__ = ["Job", "Reserved", "Saved"]

Topology = Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is there to stay. Where a path is expected, it is `path`."""

    path: str
    name: str
    step: int
    digest: str
    """SHA-256 of its manifest, 64 hex digits."""

    def __fspath__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Reserved:
    """The number and the name of a save that a rank is about to make."""

    step: int
    counter: int
    name: str


@dataclass(slots=True)
class Job:
    """One start of a training job; made by `Job.start`, by all ranks together."""

    run_path: str
    plan: _core.SessionPlan
    group: Group
    topology: tuple[tuple[str, int], ...]
    coordinate: tuple[tuple[str, int], ...]
    """This rank's place in the topology, as far as it was given."""
    resume_from: Checkpoint | None
    """What the job goes on from, open; None for a fresh start."""
    skipped: list[Skipped]
    """Attempts that were passed over on the way to `resume_from`, and why."""
    threads: int | None = None
    shard_bytes: int | None = None
    check: bool = True
    _counter: int = field(default=0, repr=False)
    _newest: Reserved | None = field(default=None, repr=False)
    """The save begun last: of the greatest step, and of that the greatest name."""

    @classmethod
    def start(
        cls,
        run_path: str | os.PathLike[str],
        *,
        name: str | None = None,
        group: Group | None = None,
        topology: Topology = (),
        coordinate: Sequence[tuple[str, int]] = (),
        parent: str | None = None,
        resume: str | os.PathLike[str] | None = None,
        block_bytes: int | None = None,
        threads: int | None = None,
        shard_bytes: int | None = None,
        check: bool = True,
    ) -> Job:
        """Starts a job in the run at `run_path`, which is made if it is not there. All ranks call it alike.

        `name` is the run's, by default the directory's. `resume` is "latest" (what is newest and whole; an attempt of
        an earlier job that only lacks its commit is committed first), or the path of a checkpoint, or None: start over.
        `parent` is the digest of a checkpoint that the state comes from by other ways; `resume` gives it by itself.
        `block_bytes`, `threads`, `shard_bytes` and `check` are handed to the writers.

        The ranks agree by one broadcast, and where they resume by one all_gather once each has opened the checkpoint.

        Raises what the run's listing does: never is a failing disk, or a run whose checkpoints are all damaged, taken
        for a fresh start. `digest-mismatch` where a rank sees another checkpoint under the name than rank 0 does. What
        one rank meets all raise.
        """
        group = Solo() if group is None else group
        path = os.path.abspath(run_path)
        axes = tuple((str(axis), int(size)) for axis, size in topology)
        if parent is not None and resume is not None:
            raise usage("expected a parent or something to resume from, found both: resuming sets the parent")
        answer = b""
        if group.rank == 0:
            # The others wait for exactly one message, whatever happens here.
            message = _refusal(error("interrupted", "it stopped while it started the job"))
            try:
                message = _plan(path, name, group.size, axes, parent, resume, block_bytes)
            except Error as refused:
                message = _refusal(refused)
                raise
            finally:
                answer = group.broadcast(message)
        else:
            answer = group.broadcast(None)
        agreed = json.loads(answer)
        if "error" in agreed:
            raise _of_rank(0, agreed["error"])
        # Only now: a rank that fails before the broadcast leaves the others in it.
        if group.size > 1 and agreed["resume"] is not None:
            place, checkpoint = _together(group, lambda: (
                _check_place(axes, coordinate), _open(path, resume, agreed["resume"])
            ))  # fmt: skip
        else:
            place, checkpoint = _check_place(axes, coordinate), _open(path, resume, agreed["resume"])
        return cls(
            run_path=path,
            plan=_core.SessionPlan.from_json(agreed["plan"]),
            group=group,
            topology=axes,
            coordinate=place,
            resume_from=checkpoint,
            skipped=[Skipped(name, from_parts(*parts)) for name, parts in agreed["skipped"]],
            threads=threads,
            shard_bytes=shard_bytes,
            check=check,
        )

    @property
    def rank(self) -> int:
        """This process, 0 … size-1."""
        return self.group.rank

    @property
    def size(self) -> int:
        """How many processes the job has."""
        return self.group.size

    @property
    def counter(self) -> int:
        """The number that a next save takes, from 0; the same on all ranks. A step that is saved again may pass over some."""
        return self._counter

    def reserve(self, step: int) -> Reserved:
        """Takes the next number for a save of `step`, which the rank then makes or gives up.

        For callers that may fail between the decision to save and the save itself: the rank stays in step with the
        others. `bad-argument` for a step that is no count, and for one below a step that the job has begun to save:
        what is resumed from is the greatest step, and that would not be the one saved last.
        """
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise usage(f"expected a step of 0 or more, found {step!r}")
        newest = self._newest
        if newest is not None and step < newest.step:
            raise usage(
                f"expected a step of {newest.step} or more, which this job saved before, found {step}",
                remedy="To go back to an older checkpoint start the job from it: manager.resume(path), Job.start(resume=path).",
            )
        again = newest is not None and step == newest.step
        for counter in range(self._counter, self._counter + _TRIES):
            name = self.plan.attempt_name(step, counter)
            # Of two saves of one step the greater name is resumed from: it has to be that of the later one.
            if newest is None or not again or name > newest.name:
                self._counter = counter + 1
                self._newest = Reserved(step, counter, name)
                return self._newest
        raise error("limit", f"expected step {step} to be saved a few times, found no greater name than {newest and newest.name}",
                    remedy="Save at another step.")

    def save(
        self,
        snapshot: Snapshot,
        step: int,
        *,
        progress: Progress = None,
        deadline: float = 600.0,
        reserved: Reserved | None = None,
    ) -> Saved:
        """Writes this rank's part of a checkpoint of `step`, and returns when the whole is committed and durable.

        The data of `snapshot` must stay as they are meanwhile. `deadline` is in seconds: how long rank 0 waits for the
        parts of slower ranks. The others wait as long for the directory, and twice as long for the commit.

        Raises `writer-missing` at rank 0 with the numbers of the ranks that wrote no part in time; `not-found` at a
        rank that saw no directory, `not-committed` at one that saw no commit; `fenced` when a newer job is at work in
        the run; and what writing does, `io-full` for one. After any of them there is no checkpoint of this save (but
        for `not-committed` and `commit-unknown`, where there may be), and the job may save again. What was written of it
        is removed by a job of one process; else it is left, and the error's remedy says so.
        """
        mine = self.reserve(step) if reserved is None else reserved
        if mine.step != step:
            raise usage(f"expected the step {mine.step}, which was reserved, found {step}")
        with reporting(progress) as report:
            path = os.path.join(self.run_path, mine.name)
            return Saved(path, mine.name, step, self._write(path, mine, snapshot, deadline, report))

    def _write(self, path: str, mine: Reserved, snapshot: Snapshot, deadline: float, report: Report | None) -> str:
        """The save, from the directory to the commit; the digest."""
        if self.rank == 0:
            _core.make_attempt(self.run_path, self.plan, mine.step, mine.counter)
        else:
            self._wait_for_directory(path, mine, deadline, report)
        try:
            return self._fill(path, mine, snapshot, deadline, report)
        except Exception as failed:
            self._give_up(mine, failed)
            raise

    def _give_up(self, mine: Reserved, failed: Exception) -> None:
        """Makes room again, where nobody else can be writing; says what is left otherwise."""
        code = failed.code if isinstance(failed, Error) else None
        if code in ("commit-unknown", "not-committed"):
            return  # there may be a checkpoint
        left = f"{mine.name} is left in {self.run_path} and is no checkpoint"
        if self.size == 1:
            try:
                _core.abandon(self.run_path, mine.name)
            except Error as kept:
                left = f"{left}: it could not be removed ({kept.code}: {kept.message})"
            else:
                return
        else:
            left = f"{left}, for other ranks may still be writing to it"
        if isinstance(failed, Error):
            failed.remedy = f"{failed.remedy} {left}. {_LEFT}".lstrip()

    def _fill(self, path: str, mine: Reserved, snapshot: Snapshot, deadline: float, report: Report | None) -> str:
        """This rank's part of the attempt, and the commit of all; the digest."""
        session = _core.Session.begin(path, self.plan, mine.step, mine.counter, self.rank, threads=self.threads,
                                      shard_bytes=self.shard_bytes, check_state=self.check)
        placed = snapshot.declare(session)
        writing = session.lay_out()
        try:
            write(writing, placed, threads=self.threads, progress=report)
            writing.finish()
        finally:
            writing.close()
        commit = self._commit if self.rank == 0 else self._wait_for_commit
        return commit(path, mine, deadline, report)

    def _commit(self, path: str, mine: Reserved, deadline: float, report: Report | None) -> str:
        # A job of one has all its parts already.
        wait = deadline if self.size > 1 else None
        try:
            digest, _ = _core.commit(path, run_path=self.run_path, name=mine.name, deadline=wait,
                                     check_state=self.check, progress=report)
        except Error as failed:
            if failed.code != "writer-missing" or self.size == 1:
                raise
            message = f"{failed.message}, {deadline:g} s after rank 0 wrote its own part of {mine.name}"
            raise error(failed.code, message, location=failed.location, rule=failed.rule, remedy=_ADVICE) from failed
        return digest

    def _wait_for_directory(self, path: str, mine: Reserved, deadline: float, report: Report | None) -> None:
        made = until(lambda: os.path.isdir(path) or None, deadline, "waiting for rank 0", report)
        if made is None:
            message = (
                f"rank {self.rank} expected rank 0 to make {mine.name} (step {mine.step}, save number {mine.counter} "
                f"of the job) within {deadline:g} s, found no such directory"
            )
            raise usage(message, "not-found", remedy=f"{_ADVICE} All ranks save the same steps in the same order.")

    def _wait_for_commit(self, path: str, mine: Reserved, deadline: float, report: Report | None) -> str:
        # Twice: rank 0 itself waits so long for the slowest rank, and commits then.
        digest = until(lambda: commit_file(path), 2 * deadline, "waiting for the commit", report)
        if digest is None:
            message = (
                f"rank {self.rank} wrote its part of {mine.name} and expected rank 0 to commit it within "
                f"{2 * deadline:g} s, found no commit file"
            )
            raise error("not-committed", message, location=Location(file=path), remedy=_ADVICE)
        # Rank 0 may still be between the commit file and its fsync; nobody reports a checkpoint that can vanish.
        for directory in (path, self.run_path):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return digest


_TRIES = 1 << 20
"""Names that are tried for a step that is saved again. Each save of it halves the names that are left, of 2^32."""
_LEFT = (
    "It goes when a newer job has committed, or once it is as old as gc(…, uncommitted_older_than=seconds) says: "
    "`waystation gc` for a shell."
)
_ADVICE = "See what the ranks that are waited for report, whether they still run, and whether all see one file system."


def _plan(
    path: str,
    name: str | None,
    writers: int,
    topology: Topology,
    parent: str | None,
    resume: str | os.PathLike[str] | None,
    block_bytes: int | None,
) -> bytes:
    """What rank 0 tells all ranks."""
    point = resume_point(path, resume)
    plan = _core.SessionPlan.next_in(
        path,
        os.path.basename(path) if name is None else name,
        writers=writers,
        topology=topology,
        parent=parent if point.digest is None else point.digest,
        block_bytes=block_bytes,
    )
    resumed = None if point.digest is None else {"name": point.name, "digest": point.digest}
    skipped = [[one.name, to_parts(one.error)] for one in point.skipped]
    return json.dumps({"plan": plan.to_json(), "resume": resumed, "skipped": skipped}).encode()


_Place = tuple[tuple[str, int], ...]


def _together(
    group: Group, go: Callable[[], tuple[_Place, Checkpoint | None]]
) -> tuple[_Place, Checkpoint | None]:
    """What `go` gives on this rank, once all ranks have it; where one cannot, all raise what the first of them met."""
    message = _refusal(error("interrupted", "it stopped while it opened the checkpoint"))
    answers: list[bytes] = []
    try:
        made = go()
        message = b""
    except Error as refused:
        message = _refusal(refused)
        raise
    finally:
        answers = group.all_gather(message)
    for rank, answer in enumerate(answers):
        if answer:
            if made[1] is not None:
                made[1].close()
            raise _of_rank(rank, json.loads(answer)["error"])
    return made


def _of_rank(rank: int, parts: list[Any]) -> Error:
    failed = from_parts(*parts)
    return failed.with_message(f"rank {rank} could not start the job: {failed.message}")


def _open(path: str, resume: str | os.PathLike[str] | None, agreed: dict[str, Any] | None) -> Checkpoint | None:
    """Opens what rank 0 found, by its directory, and sees that it is the same."""
    if agreed is None or resume is None:
        return None
    from .checkpoint import open as open_checkpoint

    place = os.path.join(path, agreed["name"]) if resume == "latest" else os.fspath(resume)
    checkpoint = open_checkpoint(place)
    if checkpoint.digest != agreed["digest"]:
        message = f"expected the checkpoint {agreed['digest']} that rank 0 resumes from, found {checkpoint.digest}"
        remedy = "Let all ranks see one file system."
        raise error("digest-mismatch", message, location=Location(file=place), remedy=remedy)
    return checkpoint


def _check_place(topology: Topology, coordinate: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    sizes = dict(topology)
    for axis, at in coordinate:
        if axis not in sizes or not 0 <= at < sizes[axis]:
            raise usage(f"expected a coordinate within the topology {dict(topology)}, found {axis}={at}")
    return tuple((str(axis), int(at)) for axis, at in coordinate)


def _refusal(failed: Error) -> bytes:
    """What rank 0 tells the others when it cannot start."""
    return json.dumps({"error": to_parts(failed)}).encode()
