"""What a save that failed leaves: of one process nothing, of several what others may still write to."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from managing import snapshot, steps
from thread_ranks import ThreadGroup, on_all

from waystation import _core
from waystation.errors import Error, error
from waystation.job import Job
from waystation.manager import CheckpointManager

ATTEMPT = "step-*"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may have more than 100 kB: as a disk that fills up while a shard is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("pool", [None, "auto"])
def test_one_process_leaves_nothing_of_a_failed_save(runs: Path, pool: str | None, small_files: None) -> None:
    with CheckpointManager(runs, pool_bytes=pool) as manager:  # type: ignore[arg-type]
        manager.save(1, snapshot(1))
        manager.wait()
        for step in (2, 3):
            with pytest.raises(Error, match="File too large") as failed:
                manager.save(step, snapshot(step, 1_000_000))
                manager.wait()
            assert "is left" not in failed.value.remedy
        assert [path.name[5:17] for path in runs.glob(ATTEMPT)] == [f"{1:012}"]
        open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdecimal()
                      and os.path.lexists(f"/proc/self/fd/{fd}")]
        assert not [path for path in open_files if path.endswith("(deleted)") and str(runs) in path]
        assert manager.save(4, snapshot(4)) is not None
    assert steps(runs) == [1, 4]


def test_a_save_that_fails_at_its_commit_leaves_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, **more: object) -> None:
        raise error("io-full", "no space left")

    job = Job.start(runs)
    with monkeypatch.context() as patched:
        patched.setattr(_core, "commit", full)
        with pytest.raises(Error, match="no space left"):
            job.save(snapshot(1), 1)
    assert not list(runs.glob(ATTEMPT))
    # Whether it was committed nobody knows: nothing is touched.
    with monkeypatch.context() as patched:
        patched.setattr(_core, "commit", lambda path, **more: (_ for _ in ()).throw(error("commit-unknown", "lost")))
        with pytest.raises(Error, match="lost"):
            job.save(snapshot(2), 2)
    assert len(list(runs.glob(ATTEMPT))) == 1


def test_what_cannot_be_removed_is_said(runs: Path, monkeypatch: pytest.MonkeyPatch, small_files: None) -> None:
    def refuse(run: str, name: str) -> None:
        raise error("io-denied", "read-only")

    monkeypatch.setattr(_core, "abandon", refuse)
    with pytest.raises(Error, match="File too large") as failed:
        Job.start(runs).save(snapshot(1, 1_000_000), 1)
    (left,) = runs.glob(ATTEMPT)
    assert f"{left.name} is left in" in failed.value.remedy and "read-only" in failed.value.remedy


def test_an_attempt_that_another_made_is_not_touched(runs: Path) -> None:
    job = Job.start(runs)
    name = job.plan.attempt_name(1, 0)
    _core.make_attempt(str(runs), job.plan, 1, 0)
    with pytest.raises(Error, match="exists"):
        job.save(snapshot(1), 1)
    assert (runs / name).is_dir()


def test_several_ranks_leave_it_and_say_so(runs: Path) -> None:
    def rank(group: ThreadGroup) -> Error:
        job = Job.start(runs, group=group, topology=[("dp", 2)], coordinate=[("dp", group.rank)])
        bad = snapshot(1)
        if group.rank == 1:
            bad.pieces[0].data.resize(1)
        with pytest.raises(Error) as failed:
            job.save(bad, 1, deadline=0.5)
        return failed.value

    first, second = on_all(2, rank)
    (left,) = runs.glob(ATTEMPT)
    assert first.code == "writer-missing"
    for failed in (first, second):
        assert f"{left.name} is left in" in failed.remedy and "uncommitted_older_than" in failed.remedy
