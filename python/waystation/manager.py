"""When a job saves, beside training: on a schedule, before it is preempted, on a thread of its own; and what it keeps.

It knows steps, clocks, one save in flight, and how failures reach the caller; it must not know what a snapshot holds or
how it is written. A save blocks training for one copy of the state into a pool of memory; a thread then writes, commits
and removes what is not kept. No failure is lost: it is raised by whatever the caller calls next, and where nobody calls
anything, reported when the interpreter exits. The interpreter does not exit before a save in flight has ended.
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from .errors import Error, NoCheckpointError, NoneResumableError, error, from_parts, to_parts, usage
from .group import Group, Solo
from .handle import SaveHandle
from .job import Job, Reserved, Saved
from .pool import Pool
from .preempt import Preemption
from .progress import Progress
from .run import gc, latest, pin, reject, verify
from .snapshot import Snapshot

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

__all__ = ["CheckpointManager", "KeepWarning", "SaveHandle"]


# What a killed job leaves, and a keeper at work: nothing to warn of.
_CUT_SHORT = ("writer-missing", "not-committed", "deleted")


class KeepWarning(UserWarning):
    """Retention did not do what it was asked to, or an attempt was passed over. No save failed."""


class CheckpointManager:
    """Saves a job's state in a run, and resumes from it.

    ```python
    with CheckpointManager("runs/demo", every=1000, pool_bytes="auto") as manager:
        checkpoint = manager.resume()                   # None in an empty run
        for step in range(first, last + 1):             # counts completed optimizer steps
            train()
            if manager.should_save(step):
                manager.save(step, lambda: snapshot(step))
            if manager.preempted:
                break
    ```

    * `every`: steps between saves; `every_seconds`: seconds between the beginnings of two. Either, both or none.
    * `keep_last`: how many checkpoints retention leaves; None, if not given: all. `keep_every`: with it, those whose
      step is a multiple of this stay too. Pinned ones always do. `uncommitted_older_than`: seconds after whose last
      change an attempt that was never committed is removed too, for failed saves take space; None leaves them to a
      newer job. A manager of one process removes its own failed attempt at once.
    * `pool_bytes`: memory for asynchronous saves: bytes, or "auto": made to measure at the first save. None: save()
      writes.
    * `on_busy`: what save() does while one is in flight: "wait" for it, or "skip" this one.
    * `on_error`: what save(), wait() and close() do about a failed asynchronous save: "raise" it, or "warn" and go on.
      A handle's result() raises it either way.
    * `deadline`: seconds that ranks may be apart in one save, see `Job.save`.
    * `save_on_sigterm`: SIGTERM makes should_save() true and sets `preempted`, instead of ending the process. In a
      group see `sync_preempted`.
    * `verify_after`: rank 0 reads every checkpoint back; one that is damaged is rejected, and the save has failed.
    * `progress`: True, False, or called with what is done, bytes so far and bytes in all. Of an asynchronous save it is
      called on its thread.

    `group`, `topology`, `coordinate` and `threads` are handed to `Job.start`. Use it in one thread.
    """

    def __init__(
        self,
        run_path: str | os.PathLike[str],
        *,
        name: str | None = None,
        every: int | None = None,
        every_seconds: float | None = None,
        keep_last: int | None = None,
        keep_every: int | None = None,
        uncommitted_older_than: float | None = 86400.0,
        group: Group | None = None,
        topology: Sequence[tuple[str, int]] = (),
        coordinate: Sequence[tuple[str, int]] = (),
        pool_bytes: int | Literal["auto"] | None = None,
        on_busy: Literal["wait", "skip"] = "wait",
        on_error: Literal["raise", "warn"] = "raise",
        deadline: float = 600.0,
        save_on_sigterm: bool = True,
        progress: Progress = False,
        verify_after: bool = False,
        threads: int | None = None,
    ) -> None:
        _check("every", every, "at least 1 or None", every is None or every >= 1)
        _check("every_seconds", every_seconds, "above 0 or None", every_seconds is None or every_seconds > 0)
        _check("keep_last", keep_last, "at least 1 or None", keep_last is None or keep_last >= 1)
        _check("keep_every", keep_every, "at least 1 or None", keep_every is None or keep_every >= 1)
        _check("on_busy", on_busy, "wait or skip", on_busy in ("wait", "skip"))
        _check("on_error", on_error, "raise or warn", on_error in ("raise", "warn"))
        _check("deadline", deadline, "0 or more", deadline >= 0)
        self.run_path = os.path.abspath(run_path)
        self.skipped = 0
        """How many saves were skipped because one was in flight."""
        self.last: Saved | None = None
        """The newest checkpoint that this manager made."""
        self._group = Solo() if group is None else group
        self._start: dict[str, Any] = {
            "name": name, "group": self._group, "topology": topology, "coordinate": coordinate, "threads": threads,
        }  # fmt: skip
        self._every, self._every_seconds = every, every_seconds
        self._keep_last, self._keep_every, self._stale = keep_last, keep_every, uncommitted_older_than
        self._on_busy, self._on_error = on_busy, on_error
        self._deadline = deadline
        self._verify_after = verify_after
        self._progress = progress
        self._pool = None if pool_bytes is None else _pool(pool_bytes, threads)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="waystation-save")
        self._job: Job | None = None
        self._flight: SaveHandle | None = None
        self._complaint: Warning | None = None
        self._failed: BaseException | None = None
        """What the save before met, until somebody raises it."""
        self._failed_at = 0
        self._asked_step: int | None = None
        """The step that should_save() was asked about last, since the job began."""
        self._begun_step: int | None = None
        self._begun_at = time.monotonic()
        self._failed_step: int | None = None
        self._preempted = False
        self._told_to_sync = False
        self._agreed_due: bool | None = None
        self._process = os.getpid()
        self._closed = False
        self._entered = threading.Lock()
        self._writing: int | None = None
        """The thread that writes a save."""
        self._preemption = Preemption()
        if save_on_sigterm:
            self._preemption.watch()

    def __repr__(self) -> str:
        last = "no save yet" if self.last is None else f"last saved {self.last.name}"
        flight = "" if self._flight is None or self._flight.done() else ", one in flight"
        return f"<CheckpointManager of {self.run_path}: {'closed, ' if self._closed else ''}{last}{flight}>"

    @property
    def job(self) -> Job:
        """What the ranks agreed on at resume(). `bad-argument` before."""
        if self._job is None:
            raise usage("expected resume(), start_over() or save() before, found a job that has not started")
        return self._job

    @property
    def preempted(self) -> bool:
        """Whether the loop is to leave now: the signal had come when should_save() was asked last, which then said yes.

        In a group the signal reaches ranks at different steps: this is what they agreed on in `sync_preempted` last.
        A loop that does not ask should_save() calls that as well.
        """
        return self._preempted

    def preempt(self) -> None:
        """As if SIGTERM had come; for handlers of other signals and for watchers of a provider's notices."""
        self._preemption.note()

    def sync_preempted(self) -> bool:
        """Agrees on `preempted`, and on whether `every_seconds` are over by the clock of rank 0: one all_gather.

        All ranks call it at the same steps, before should_save(), and leave the loop together.
        """
        self._told_to_sync = True
        answers = self._group.all_gather(bytes([self._preemption.noted, self._is_due()]))
        self._preempted = any(answer[0] for answer in answers)
        self._agreed_due = bool(answers[0][1])
        return self._preempted

    def resume(self, checkpoint: str | os.PathLike[str] | None = None) -> Checkpoint | None:
        """Starts the job from the latest checkpoint of the run, or the one at a path; None when there is none yet.

        An attempt of an earlier job that only lacks its commit is committed first. What was passed over on the way is
        warned of. Called again it waits for the save in flight and starts anew: so training goes back to an older
        checkpoint. Read what is needed of it before the first save: retention does not know of its readers.
        Raises what `Job.start` does: a failing disk is no fresh start.
        """
        self._check_usable()
        self._settle()
        self._asked_step = None
        return self._begin("latest" if checkpoint is None else checkpoint).resume_from

    def start_over(self) -> None:
        """Starts the job without resuming.

        What the run would have been resumed from is pinned as `before-start-over-<timeline of this job>`, so that
        retention never removes it: `waystation.unpin` when it is of no use any more. Older ones go as `keep_last` says.
        Where it cannot be pinned, a warning says so, and retention removes nothing while this job lasts.
        """
        self._check_usable()
        self._settle()
        self._asked_step = None
        job = self._begin(None)
        if job.rank == 0:
            self._spare(job)

    def should_save(self, step: int) -> bool:
        """Whether to save now, after completed step `step`. Never the one resumed from, nor twice the same step, unless
        the save of it is known to have failed (in a group not even then: it may have failed on one rank).

        In a group the same on all ranks; with `every_seconds` only after `sync_preempted` (`bad-argument` without).
        """
        self._asked_step = step
        if self._group.size == 1:
            # Seen here and nowhere else, so that no loop leaves between this answer and the next.
            self._preempted = self._preemption.noted
        elif self._preemption.noted and not self._told_to_sync:
            self._told_to_sync = True
            warnings.warn("this rank was told to stop, and nobody acts on it: in a group all ranks call "
                          "sync_preempted() at every step, before should_save()", KeepWarning, stacklevel=2)
        if step == self._begun_step and (self._group.size > 1 or step != self._failed_step):
            return False
        if self._preempted:
            return True
        if self._every is not None and step > 0 and step % self._every == 0:
            return True
        if self._every_seconds is None:
            return False
        if self._group.size == 1:
            return self._is_due()
        if self._agreed_due is None:
            raise usage("with every_seconds in a group, all ranks call sync_preempted() before should_save(): "
                        "their clocks differ, and they must decide alike")
        return self._agreed_due

    def save(
        self, step: int, snapshot: Snapshot | Callable[[], Snapshot], *, force: bool = False
    ) -> SaveHandle | None:
        """Saves the state after `step`; None where it was skipped. All ranks save the same steps in the same order.

        With a pool it returns when the state is copied; without, when the checkpoint is there. A function as `snapshot`
        is called only when the save is made. `force`, and being preempted, wait rather than skip.

        In a group it makes one all_gather of a few bytes, before anything is copied: whether a save is in flight
        anywhere, and what the one before met. So a failure of one rank is raised by all, as the same error, and all
        ranks have counted the same saves. It costs a wait for the slowest rank.

        A step may be saved again, and the later save is then the one that is resumed from. One below a step that was
        saved is refused (`bad-argument`): `resume(path)` goes back. So is one below the step that should_save() was
        asked about last: a loop that counts for itself, and a state that nobody tells of its steps.

        Raises what a save before this one met (`on_error`), after this one was made or begun: no failure costs two
        checkpoints. What became of this one is in a note of the error. Raises also what the snapshot and copying it
        raise, `limit` for a pool that is too small; and without a pool, what `Job.save` does.
        """
        self._check_usable()
        if not self._entered.acquire(blocking=False):
            raise usage("expected one call of save() at a time, found another within it or on another thread",
                        remedy="Let a handler of a signal call preempt(), and threads take turns.")
        try:
            return self._enter(step, snapshot, force)
        finally:
            self._entered.release()

    def _enter(self, step: int, snapshot: Snapshot | Callable[[], Snapshot], force: bool) -> SaveHandle | None:
        job = self._started()
        if self._asked_step is not None and step < self._asked_step:
            raise usage(f"expected a step of {self._asked_step} or more, for which should_save() was asked, found {step}",
                        remedy="Give both one count: state.progress.optimizer_step, which state.step() counts.")
        skips = self._on_busy == "skip" and not force and not self._preempted
        busy = skips and self._flight is not None and not self._flight.done()
        if not busy:
            self._await()
        if self._group.size > 1:
            busy = self._agree(busy)
        if busy:
            self.skipped += 1
            return None
        # From here on the rank counts the save, whatever fails: the others make it too.
        reserved = job.reserve(step)
        earlier, self._failed = self._failed, None
        self._begun_step, self._begun_at, self._failed_step = step, time.monotonic(), None
        try:
            handle = self._make(job, reserved, snapshot)
        except BaseException as failed:
            if not isinstance(failed, KeepWarning):
                self._failed_step = step
            if earlier is not None and isinstance(failed, Exception):
                said = f"the save of step {step} failed as well: {type(failed).__name__}: {failed}"
                self._raise(earlier, said, failed)
            else:
                self._failed = earlier
            raise
        if earlier is not None:
            over = "is made" if handle.done() else "is begun, and wait() says what becomes of it"
            self._raise(earlier, f"the save of step {step} {over}")
        return handle

    def wait(self) -> Saved | None:
        """Waits for the save in flight; the newest checkpoint made. Raises what that save met (`on_error`)."""
        self._check_usable()
        self._settle()
        return self.last

    def close(self) -> None:
        """Waits for the save in flight and gives back memory and signal. Raises what that save met (`on_error`).

        A second call does nothing, and so does any in a child of a fork.
        """
        if self._closed or os.getpid() != self._process:
            return
        try:
            self._settle()
        finally:
            self._closed = True
            self._preemption.release()
            # An interrupted wait leaves the save to the interpreter's exit, which waits as well.
            self._worker.shutdown(wait=self._flight is None)
            self._pool = None

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if raised is None:
            self.close()
            return
        try:
            self.close()
        except Exception as failed:  # whatever it is, it goes on: as a part of what is raised already
            _add(raised, failed, f"and the save in flight failed: {type(failed).__name__}: {failed}")

    def _begin(self, resume: str | os.PathLike[str] | None) -> Job:
        job = Job.start(self.run_path, resume=resume, **self._start)
        if job.rank == 0:
            for one in job.skipped:
                # Cut short is nothing to warn of, but that all there is was.
                if one.error.code not in _CUT_SHORT or job.resume_from is None:
                    warnings.warn(f"{one.name} was passed over: {one.error}", KeepWarning, stacklevel=3)
        self._job = job
        self._begun_step = None if job.resume_from is None else job.resume_from.step
        self._begun_at = time.monotonic()
        return job

    def _spare(self, job: Job) -> None:
        """Keeps what was there before the job began anew."""
        try:
            pin(latest(self.run_path).path, f"before-start-over-{job.plan.timeline}")
        except (NoCheckpointError, NoneResumableError):
            pass  # what is damaged is no retention's to remove
        except Error as failed:
            self._keep_last = None
            message = f"what the run had before could not be pinned, so nothing is removed: {failed}"
            warnings.warn(message, KeepWarning, stacklevel=3)

    def _started(self) -> Job:
        """The job; one is started in a run without checkpoints, where nothing can be left behind."""
        if self._job is not None:
            return self._job
        job = self._begin("latest")
        found = job.resume_from
        if found is not None:
            self._job = None
            raise usage(f"expected resume() before the first save, for the run has a checkpoint of step {found.step} "
                        f"at {found.path}; start_over() if it is not to be used")
        return job

    def _is_due(self) -> bool:
        return self._every_seconds is not None and time.monotonic() - self._begun_at >= self._every_seconds

    def _agree(self, busy: bool) -> bool:
        """Whether a save is in flight on any rank. If not, what the one before met on any is what all of them raise."""
        failed = self._failed
        mine = {"busy": busy, "failed": None if busy or failed is None else _told(failed)}
        answers = [json.loads(answer) for answer in self._group.all_gather(json.dumps(mine).encode())]
        if any(answer["busy"] for answer in answers):
            return True
        for rank, answer in enumerate(answers):
            if answer["failed"] is None:
                continue
            if rank != self._group.rank:
                self._failed = _of_rank(rank, answer["failed"])
                self._failed.__cause__ = failed
            break
        return False

    def _make(self, job: Job, reserved: Reserved, snapshot: Snapshot | Callable[[], Snapshot]) -> SaveHandle:
        """Makes the save, or begins it where there is a pool."""
        taken = snapshot if isinstance(snapshot, Snapshot) else snapshot()
        if self._pool is None:
            saved = self._write(job, reserved, taken)
            self._complain()
            return SaveHandle.done_already(reserved.step, reserved.name, saved)
        made: Future[Saved] = Future()
        begun = threading.Lock()
        try:
            staged = self._pool.stage(taken)
            handle = self._flight = SaveHandle(reserved.step, reserved.name, made)
            self._submit(job, reserved, staged, made, begun)
        except BaseException:
            # Interrupted, perhaps: what nobody has begun to write by now nobody will, and its memory is free again.
            if begun.acquire(blocking=False):
                self._flight = None
                self._pool.release()
            raise
        return handle

    def _submit(self, job: Job, reserved: Reserved, staged: Snapshot, made: Future[Saved], begun: threading.Lock) -> None:
        def make() -> None:
            # Whoever comes first makes it: a call that the worker refused may be in its queue all the same.
            if begun.acquire(blocking=False):
                self._writing = threading.get_ident()
                try:
                    made.set_result(self._write(job, reserved, staged))
                except BaseException as failed:  # nothing is lost: it is what the future has
                    made.set_exception(failed)
                finally:
                    self._writing = None

        try:
            self._worker.submit(make)
        except RuntimeError:
            # The interpreter is exiting, or the system gives no thread: the save is made here.
            make()

    def _write(self, job: Job, reserved: Reserved, snapshot: Snapshot) -> Saved:
        """The save itself, on whatever thread."""
        try:
            saved = self._save(job, reserved, snapshot)
        except BaseException:
            self._failed_step = reserved.step
            raise
        self.last = saved
        if job.rank == 0:
            self._keep()
        return saved

    def _save(self, job: Job, reserved: Reserved, snapshot: Snapshot) -> Saved:
        try:
            saved = job.save(snapshot, reserved.step, progress=self._progress, deadline=self._deadline,
                             reserved=reserved)
        finally:
            if self._pool is not None:
                self._pool.release(snapshot)
        if job.rank == 0 and self._verify_after:
            _verify(saved)
        return saved

    def _keep(self) -> None:
        """Removes what is not kept. The save stands, whatever becomes of this."""
        if self._keep_last is None:
            return
        try:
            fates = gc(self.run_path, keep_last=self._keep_last, keep_every=self._keep_every,
                       uncommitted_older_than=self._stale)
        except Error as failed:
            self._warn(f"older checkpoints are not removed: {failed}")
            return
        for one in fates:
            if one.fate == "failed":
                self._warn(f"{one.name} is not removed: {one.error}")
            elif one.fate == "left":
                self._warn(f"{one.name} is no checkpoint any more, but a directory in it was left")

    def _warn(self, message: str) -> None:
        try:
            warnings.warn(message, KeepWarning, stacklevel=2)
        except KeepWarning as asked_for:
            # The caller makes errors of warnings: raised where they can see it, after the save.
            self._complaint = asked_for

    def _complain(self) -> None:
        complaint, self._complaint = self._complaint, None
        if complaint is not None:
            raise complaint

    def _settle(self) -> None:
        """Waits for the save in flight, if one is, and tells what became of it."""
        self._await()
        failed, self._failed = self._failed, None
        if failed is not None:
            self._raise(failed)

    def _await(self) -> None:
        """Waits for the save in flight, and keeps what it met for who may raise it."""
        flight = self._flight
        if flight is None:
            return
        if self._writing == threading.get_ident():
            raise usage("expected nobody to wait for a save within itself, as in its progress callback")
        failed = flight.settle()
        self._flight = None
        complaint, self._complaint = self._complaint, None
        self._failed = complaint if failed is None else failed
        self._failed_at = flight.step

    def _raise(self, failed: BaseException, note: str | None = None, other: Exception | None = None) -> None:
        """Raises what a save met, or warns of it where that is asked for."""
        if self._on_error == "warn" and isinstance(failed, Exception) and not isinstance(failed, KeepWarning):
            warnings.warn(f"the save of step {self._failed_at} failed: {failed}", KeepWarning, stacklevel=3)
            return
        if note is not None:
            _add(failed, KeepWarning(note) if other is None else other, note)
        if not isinstance(failed, KeepWarning) and hasattr(failed, "add_note"):
            failed.add_note(f"this is what the save of step {self._failed_at} met")  # Python 3.10 has no notes
        raise failed

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise usage("expected the process that made the manager, found a child of it: make one there")
        if self._closed:
            raise usage("expected an open manager, found one that is closed")


def _pool(pool_bytes: int | Literal["auto"], threads: int | None) -> Pool:
    return Pool(0, grow=True, threads=threads) if pool_bytes == "auto" else Pool(pool_bytes, threads=threads)


def _verify(saved: Saved) -> None:
    """Reads a checkpoint back; one that is not what was written is rejected, so that nobody resumes from it."""
    report = verify(saved.path)
    if report.ok:
        return
    first = report.findings[0].error
    reason = f"read back after the save: {first.message}"
    reject(saved.path, f"{first.code}: {reason}"[:400])
    message = f"{reason}; of {len(report.findings)} findings the first; {saved.name} is rejected"
    raise error(first.code, message, location=first.location, rule=first.rule, remedy=first.remedy)


def _told(failed: BaseException) -> list[Any]:
    """A failure as the other ranks are told of it."""
    if isinstance(failed, Error):
        return to_parts(failed)
    return to_parts(error("interrupted", f"{type(failed).__name__}: {failed}"))


def _of_rank(rank: int, parts: list[Any]) -> Error:
    failed = from_parts(*parts)
    return failed.with_message(f"the save before failed at rank {rank}: {failed.message}")


def _add(raised: BaseException, failed: BaseException, text: str) -> None:
    """Puts a second failure, or a note, beside the one that is being raised, so that neither hides the other."""
    if failed is raised:
        return
    if hasattr(raised, "add_note"):
        raised.add_note(text)
        return
    # Python 3.10 prints no notes; it prints the chain.
    last = raised
    while last.__context__ is not None and last.__context__ is not failed:
        last = last.__context__
    last.__context__ = failed


def _check(name: str, found: object, expected: str, holds: bool) -> None:
    if not holds:
        raise usage(f"expected {name} to be {expected}, found {found!r}")
