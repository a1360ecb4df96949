"""The manager: when it saves, what it keeps, what it does beside training, and that no failure is lost."""

from __future__ import annotations

import json
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from managing import BEGIN, snapshot, steps
from processes import run

import waystation
from waystation import _core
from waystation.errors import Error
from waystation.job import Job
from waystation.key import Key
from waystation.manager import CheckpointManager, KeepWarning
from waystation.records import progress
from waystation.snapshot import Piece, Snapshot


@pytest.fixture
def runs(tmp_path) -> Path:
    return tmp_path / "run"


@pytest.fixture(params=[None, "auto", 1 << 20], ids=["synchronous", "auto", "pool"])
def pool_bytes(request):
    return request.param


class Gate:
    """Holds a save of a manager on its thread, in its progress callback, until opened."""

    def __init__(self) -> None:
        self.reached, self.open, self.raises = threading.Event(), threading.Event(), None

    def __call__(self, what: str, done: int, total: int) -> None:
        self.reached.set()
        assert self.open.wait(60)
        if self.raises is not None:
            raise self.raises


def test_a_run_is_saved_and_resumed(runs, pool_bytes):
    with CheckpointManager(runs, every=2, pool_bytes=pool_bytes) as manager:
        assert manager.resume() is None
        for step in range(1, 6):
            if manager.should_save(step):
                handle = manager.save(step, lambda: snapshot(step))
                assert handle.step == step and handle.result(60).step == step and handle.done()
        assert manager.wait() is manager.last and manager.last.step == 4
    with CheckpointManager(runs, every=2, pool_bytes=pool_bytes) as manager:
        checkpoint = manager.resume()
        assert checkpoint.step == 4 and manager.job.plan.timeline == 2
        assert [step for step in range(4, 9) if manager.should_save(step)] == [6, 8]
    assert steps(runs) == [2, 4]


def test_what_is_trained_on_after_a_save_does_not_reach_it(runs):
    gate = Gate()
    weights = np.full(1000, 1, np.int32)
    with CheckpointManager(runs, pool_bytes="auto", progress=gate) as manager:
        handle = manager.save(1, Snapshot(pieces=[Piece.whole(Key.param("w"), weights)], records=[progress(1)]))
        weights += 1
        assert gate.reached.wait(60) and not handle.done()
        gate.open.set()
    assert steps(runs) == [1]


def test_a_second_save_waits_for_the_first(runs):
    gate = Gate()
    with CheckpointManager(runs, pool_bytes="auto", progress=gate) as manager:
        first = manager.save(1, snapshot(1))
        assert gate.reached.wait(60)
        with pytest.raises(TimeoutError, match="step 1 is not over"):
            first.result(0.01)
        threading.Timer(0.05, gate.open.set).start()
        second = manager.save(2, snapshot(2))
        assert first.done() and second.result().step == 2
    assert manager.skipped == 0 and steps(runs) == [1, 2]


def test_a_second_save_is_skipped_where_asked_for(runs):
    gate = Gate()
    with CheckpointManager(runs, pool_bytes="auto", progress=gate, on_busy="skip") as manager:
        manager.save(1, snapshot(1))
        assert gate.reached.wait(60)
        assert manager.save(2, pytest.fail) is None and manager.skipped == 1
        assert manager.should_save(2) is False
        threading.Timer(0.05, gate.open.set).start()
        assert manager.save(3, snapshot(3), force=True).result().step == 3
        # Preemption does not skip either.
        gate.open.clear()
        gate.reached.clear()
        manager.save(4, snapshot(4))
        assert gate.reached.wait(60)
        manager.preempt()
        assert manager.should_save(5) and manager.preempted
        threading.Timer(0.05, gate.open.set).start()
        assert manager.save(5, snapshot(5)) is not None
    assert steps(runs) == [1, 3, 4, 5]


def test_the_schedule(runs):
    with CheckpointManager(runs, every=3, every_seconds=1e9) as manager:
        assert [step for step in range(10) if manager.should_save(step)] == [3, 6, 9]
        assert manager.should_save(3)
        manager.save(3, snapshot(3))
        assert not manager.should_save(3)
        manager.preempt()
        assert not manager.preempted  # only from the next question on
        assert not manager.should_save(3) and manager.preempted
        assert manager.should_save(4)
    with CheckpointManager(runs, every_seconds=1e-9, save_on_sigterm=False) as manager:
        manager.resume()
        assert not manager.should_save(3) and manager.should_save(4) and manager.should_save(5)
    with CheckpointManager(runs) as manager:
        assert not any(manager.should_save(step) for step in range(100))


def test_what_cannot_be_is_refused(runs):
    for wrong in ({"every": 0}, {"every_seconds": 0}, {"keep_last": 0}, {"keep_every": 0}, {"on_busy": "drop"},
                  {"on_error": "ignore"}, {"deadline": -1}, {"pool_bytes": -1}):
        with pytest.raises(Error, match=next(iter(wrong)).split("_")[0]) as caught:
            CheckpointManager(runs, **wrong)
        assert caught.value.code == "bad-argument"


def test_a_run_with_checkpoints_is_not_saved_over_by_who_did_not_resume(runs):
    with CheckpointManager(runs) as manager:
        manager.save(7, snapshot(7))
    with CheckpointManager(runs) as manager:
        with pytest.raises(Error, match="resume.. before the first save.*step 7.*start_over"):
            manager.save(1, snapshot(1))
        with pytest.raises(Error, match="has not started"):
            manager.job
        manager.start_over()
        manager.save(1, snapshot(1))
        # The job that was refused had claimed 2.
        assert manager.job.plan.timeline == 3
        # The newer timeline is what counts now.
        assert manager.resume().step == 1
    assert steps(runs) == [1, 7]


def test_going_back_in_one_process(runs):
    with CheckpointManager(runs, every=1, pool_bytes="auto", keep_last=None) as manager:
        for step in (1, 2, 3):
            manager.save(step, snapshot(step))
        manager.wait()
        first = json.loads(_core.list_json(str(runs)))[0]
        assert manager.resume(runs / first["name"]).step == 1
        assert not manager.should_save(1) and manager.should_save(2)
        manager.save(2, snapshot(2))
    with CheckpointManager(runs) as manager:
        assert manager.resume().step == 2


def test_nothing_is_removed_unless_asked_for(runs):
    with CheckpointManager(runs) as manager:
        for step in range(1, 6):
            manager.save(step, snapshot(step))
    assert steps(runs) == [1, 2, 3, 4, 5]


def test_starting_over_never_costs_what_was_there(runs):
    with CheckpointManager(runs) as manager:
        for step in (1000, 1001):
            manager.save(step, snapshot(step))
    with CheckpointManager(runs, keep_last=1) as manager:
        manager.start_over()
        for step in (1, 2, 3):
            manager.save(step, snapshot(step))
    assert steps(runs) == [3, 1001]
    kept = {one["step"]: one["pins"] for one in json.loads(_core.list_json(str(runs)))}
    assert kept == {3: [], 1001: ["before-start-over-2"]}


def test_starting_over_removes_nothing_where_it_cannot_pin(runs, monkeypatch):
    def refuse(path: str, name: str) -> None:
        raise waystation.errors.error("io-denied", "read-only")

    with CheckpointManager(runs) as manager:
        manager.save(1000, snapshot(1000))
    monkeypatch.setattr(_core, "pin", refuse)
    with CheckpointManager(runs, keep_last=1) as manager:
        with pytest.warns(KeepWarning, match="could not be pinned, so nothing is removed.*read-only"):
            manager.start_over()
        for step in (1, 2):
            manager.save(step, snapshot(step))
    assert steps(runs) == [1, 2, 1000]


def test_a_run_whose_checkpoints_are_all_damaged_is_no_fresh_start(runs):
    with CheckpointManager(runs) as manager:
        manager.save(1, snapshot(1))
        manager.save(2, snapshot(2))
    names = [one["name"] for one in json.loads(_core.list_json(str(runs)))]
    next((runs / names[1]).glob("model-*")).unlink()
    _core.reject(str(runs / names[0]), "loss is nan")
    with CheckpointManager(runs) as manager:
        for call in (manager.resume, lambda: manager.save(3, snapshot(3))):
            with pytest.raises(Error, match="none of the 2 in the run can be") as caught:
                call()
            assert caught.value.code == "none-resumable" and all(name in str(caught.value) for name in names)
            assert "loss is nan" in str(caught.value) and "start_over()" in caught.value.remedy
        manager.start_over()
        manager.save(3, snapshot(3))
    assert steps(runs) == [3] or steps(runs) == [1, 3]


def test_a_fresh_start_says_what_was_never_finished(runs):
    job = Job.start(runs)
    _core.make_attempt(str(runs), job.plan, 5, 0)
    with CheckpointManager(runs) as manager:
        with pytest.warns(KeepWarning, match="was passed over: writer-missing"):
            assert manager.resume() is None
        assert [one.error.code for one in manager.job.skipped] == ["writer-missing"]


def test_retention(runs, pool_bytes):
    with CheckpointManager(runs, keep_last=2, keep_every=4, pool_bytes=pool_bytes) as manager:
        for step in range(1, 10):
            manager.save(step, snapshot(step))
            if step == 2:
                _core.pin(manager.wait().path, "mine")
    assert steps(runs) == [2, 4, 8, 9]


def test_retention_that_fails_is_a_warning_and_no_failed_save(runs, pool_bytes):
    with CheckpointManager(runs, keep_last=1, pool_bytes=pool_bytes) as manager:
        first = manager.save(1, snapshot(1)).result()
        (Path(first.path) / "directory").mkdir()
        with pytest.warns(KeepWarning, match="a directory in it was left"):
            assert manager.save(2, snapshot(2)).result().step == 2
    assert steps(runs) == [2]


def test_a_warning_that_is_an_error_is_raised_after_the_save(runs, pool_bytes):
    with CheckpointManager(runs, keep_last=1, pool_bytes=pool_bytes) as manager:
        (Path(manager.save(1, snapshot(1)).result().path) / "directory").mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(KeepWarning, match="was left"):
                manager.save(2, snapshot(2))
                manager.wait()
        manager.save(3, snapshot(3))
    assert 3 in steps(runs)


def test_a_checkpoint_that_does_not_read_back_is_rejected(runs, pool_bytes, monkeypatch):
    def verify(path: str, **more) -> str:
        if path.endswith(bad):
            shard = next(Path(path).glob("model-*"))
            shard.chmod(0o644)
            with open(shard, "r+b") as file:
                file.seek(4096)
                file.write(b"\xff")
        return real(path, **more)

    bad, real = "no such", _core.verify_json
    monkeypatch.setattr(_core, "verify_json", verify)
    with CheckpointManager(runs, pool_bytes=pool_bytes, verify_after=True) as manager:
        manager.save(1, snapshot(1)).result()
        bad = manager.job.plan.attempt_name(2, 1)
        with pytest.raises(Error, match="read back after the save.*is rejected") as caught:
            manager.save(2, snapshot(2)).result()
        assert caught.value.code == "crc-mismatch"
        assert manager.last.step == 1
    assert json.loads(_core.latest_json(str(runs)))["step"] == 1


def said_of(raised: BaseException) -> str:
    """What is said beside an error: its notes, or before Python 3.11 the chain."""
    return "\n".join(getattr(raised, "__notes__", [])) or repr(raised.__context__)


def failing(runs: Path, **more) -> tuple[CheckpointManager, Gate]:
    """A manager whose save of step 2 fails on its thread."""
    gate = Gate()
    gate.open.set()
    manager = CheckpointManager(runs, pool_bytes="auto", progress=gate, **more)
    manager.save(1, snapshot(1))
    manager.wait()
    gate.raises = ZeroDivisionError("the disk is round")
    manager.save(2, snapshot(2))._future.exception(60)
    return manager, gate


@pytest.mark.parametrize("how", ["save", "wait", "close", "resume"])
def test_a_failure_beside_training_is_raised_by_what_is_called_next(runs, how):
    manager, gate = failing(runs)
    def save() -> None:
        gate.raises = None
        manager.save(3, snapshot(3))

    call = {"save": save, "wait": manager.wait, "close": manager.close,
            "resume": manager.resume}[how]
    with pytest.raises(ZeroDivisionError, match="round") as caught:
        call()
    gate.raises = None
    if hasattr(caught.value, "__notes__"):
        assert "this is what the save of step 2 met" in caught.value.__notes__
    if how == "save":
        # It was made all the same: no failure costs two checkpoints.
        assert "save of step 3 is" in said_of(caught.value)
        assert manager.wait().step == 3
    if how != "close":
        # Once, and then all goes on.
        manager.save(4, snapshot(4))
        manager.close()
        assert steps(runs) == ([1, 3, 4] if how == "save" else [1, 4])
    manager.close()
    assert 2 not in steps(runs)


def test_a_state_that_nobody_tells_of_its_steps_is_found(runs):
    with CheckpointManager(runs, every=2) as manager:
        assert manager.should_save(2)
        with pytest.raises(Error, match=r"expected a step of 2 or more, for which should_save\(\) was asked, found 0"):
            manager.save(0, snapshot(0))
        manager.save(2, snapshot(2))
        manager.should_save(3)
        manager.save(8, snapshot(8))  # one that was not asked about
        with pytest.raises(Error, match="expected a step of 8 or more"):
            manager.save(4, snapshot(4))
        # Whoever goes back says so.
        manager.resume(waystation.list_checkpoints(runs)[0].path)
        assert manager.should_save(4)
        manager.save(4, snapshot(4))
    assert waystation.latest(runs).step == 4


def test_two_failures_are_both_told(runs):
    manager, gate = failing(runs)
    with pytest.raises(ZeroDivisionError, match="round") as caught:
        manager.save(3, lambda: {}["weights"])
    assert "save of step 3 failed as well: KeyError" in said_of(caught.value)
    gate.raises = None
    assert manager.save(4, snapshot(4)).name == manager.job.plan.attempt_name(4, 3)
    manager.close()
    assert steps(runs) == [1, 4]


def test_the_save_before_leaving_is_made_whatever_the_one_before_it_met(runs):
    with pytest.raises(ZeroDivisionError, match="round"):
        manager, gate = failing(runs)
        with manager:
            gate.raises = None
            manager.preempt()
            assert manager.should_save(3)
            manager.save(3, snapshot(3))
    assert steps(runs) == [1, 3]


def test_a_step_whose_save_failed_may_be_saved_again(runs, pool_bytes):
    def refuse(what: str, done: int, total: int) -> None:
        if refusing:
            raise OSError("full")

    refusing = [True]
    with CheckpointManager(runs, every=1, pool_bytes=pool_bytes, progress=refuse) as manager:
        with pytest.raises(OSError, match="full"):
            manager.save(1, snapshot(1))
            manager.wait()
        assert manager.should_save(1)
        with pytest.raises(ZeroDivisionError):
            manager.save(2, lambda: 1 // 0)
        assert manager.should_save(2)
        refusing.clear()
        manager.save(2, snapshot(2))
        manager.wait()
        assert not manager.should_save(2)
    assert steps(runs) == [2]


def test_a_system_that_gives_no_thread_costs_no_save_and_makes_none_twice(runs, monkeypatch):
    def refuse(pool: ThreadPoolExecutor) -> None:
        if calls.append(1) or len(calls) == 1:
            raise RuntimeError("can't start new thread")
        real(pool)

    def save(job: Job, taken: Snapshot, step: int, **more):
        saves.append(step)
        return real_save(job, taken, step, **more)

    calls: list[int] = []
    saves: list[int] = []
    real, real_save = ThreadPoolExecutor._adjust_thread_count, Job.save
    monkeypatch.setattr(Job, "save", save)
    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", refuse)
    with CheckpointManager(runs, pool_bytes="auto", on_error="raise") as manager:
        assert manager.save(1, snapshot(1)).done()
        # Its thread finds the first save in its queue as well, which must not be made of this one's memory.
        assert manager.save(2, snapshot(2)).result(60).step == 2
        manager.save(3, snapshot(3))
    assert steps(runs) == saves == [1, 2, 3]


def test_a_failure_that_was_seen_is_not_raised_again(runs):
    manager, gate = failing(runs)
    with pytest.raises(ZeroDivisionError):
        manager._flight.result()
    gate.raises = None
    manager.save(3, snapshot(3))
    manager.close()
    assert steps(runs) == [1, 3]


def test_failures_may_be_warnings(runs):
    manager, gate = failing(runs, on_error="warn")
    handle = manager._flight
    gate.raises = None
    with pytest.warns(KeepWarning, match="save of step 2 failed: the disk is round"):
        manager.save(3, snapshot(3))
    with pytest.raises(ZeroDivisionError):
        handle.result()
    manager.close()
    assert steps(runs) == [1, 3]


def test_leaving_by_an_exception_hides_neither_error(runs):
    with pytest.raises(KeyError) as caught:
        with failing(runs)[0]:
            raise KeyError("training broke")
    said = said_of(caught.value)
    assert "the disk is round" in said and "ZeroDivisionError" in said


def test_leaving_by_an_exception_still_finishes_the_save(runs):
    with pytest.raises(KeyError):
        with CheckpointManager(runs, pool_bytes="auto") as manager:
            manager.save(1, snapshot(1))
            raise KeyError
    assert steps(runs) == [1]


def test_a_snapshot_that_cannot_be_taken_costs_its_number_and_no_more(runs, pool_bytes):
    with CheckpointManager(runs, pool_bytes=pool_bytes) as manager:
        with pytest.raises(ZeroDivisionError):
            manager.save(1, lambda: 1 // 0)
        assert manager.save(2, snapshot(2)).result().name == manager.job.plan.attempt_name(2, 1)
    assert steps(runs) == [2]


def test_a_pool_that_is_too_small_is_said_at_once(runs):
    with CheckpointManager(runs, pool_bytes=64) as manager:
        with pytest.raises(Error, match="at most 64 bytes") as caught:
            manager.save(1, snapshot(1))
        assert caught.value.code == "limit"
        manager.save(2, snapshot(2, 16))
    assert steps(runs) == [2]


def test_a_closed_manager_is_closed(runs):
    manager = CheckpointManager(runs)
    manager.close()
    manager.close()
    for call in (lambda: manager.save(1, snapshot(1)), manager.wait, manager.resume, manager.start_over):
        with pytest.raises(Error, match="found one that is closed"):
            call()


def test_what_was_passed_over_is_warned_of(runs):
    with CheckpointManager(runs) as manager:
        manager.save(1, snapshot(1))
        path = manager.save(2, snapshot(2)).result().path
    next(Path(path).glob("model-*")).unlink()
    with CheckpointManager(runs) as manager:
        with pytest.warns(KeepWarning, match="was passed over: file-missing"):
            assert manager.resume().step == 1


def test_an_exit_without_close_finishes_the_save(runs):
    run(BEGIN + """
    manager = CheckpointManager(sys.argv[1], pool_bytes="auto")
    manager.save(1, snapshot(1, 4_000_000))
    sys.exit(0)
    """, runs)  # fmt: skip
    assert steps(runs) == [1]


def test_a_failure_that_nobody_asked_for_is_reported_at_exit(runs):
    text = run(BEGIN + """
    def refuse(what, done, total):
        raise OSError("the disk is round")
    manager = CheckpointManager(sys.argv[1], pool_bytes="auto", progress=refuse)
    manager.save(1, snapshot(1))._future.exception(60)
    del manager
    # A child of a fork has nothing to do with it.
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    """, runs)  # fmt: skip
    assert text.count("the save of step 1 failed, and nobody asked: OSError: the disk is round") == 1
    assert steps(runs) == []


def test_a_save_at_exit_is_made(runs):
    run(BEGIN + """
    import atexit
    manager = CheckpointManager(sys.argv[1], pool_bytes="auto")
    atexit.register(lambda: manager.save(1, snapshot(1)))
    """, runs)  # fmt: skip
    assert steps(runs) == [1]


def test_a_child_of_a_fork_leaves_the_save_alone(runs):
    text = run(BEGIN + """
    from waystation.errors import Error
    gate = threading.Event()
    reached = threading.Event()
    def hold(what, done, total):
        reached.set()
        assert gate.wait(60)
    with CheckpointManager(sys.argv[1], pool_bytes="auto", progress=hold) as manager:
        handle = manager.save(1, snapshot(1))
        assert reached.wait(60)
        child = os.fork()
        if child == 0:
            for call in (manager.wait, lambda: manager.save(2, snapshot(2)), handle.result):
                try:
                    call()
                except Error as error:
                    assert "a child of it" in str(error)
                else:
                    os._exit(3)
            sys.exit(4)  # runs the exits of `with` and of the interpreter
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        gate.set()
    print("parent", handle.result().step)
    """, runs)  # fmt: skip
    assert text.count("parent 1") == 1
    assert steps(runs) == [1]


@pytest.mark.parametrize("pool", ["None", "'auto'"])
def test_no_space_is_an_error_and_the_old_checkpoint_stays(runs, pool):
    text = run(BEGIN + f"""
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    manager = CheckpointManager(sys.argv[1], pool_bytes={pool}, keep_last=1)
    manager.save(1, snapshot(1))
    manager.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    """ + """
    try:
        manager.save(2, snapshot(2, 1_000_000))
        manager.close()
    except Exception as error:
        print(type(error).__name__, error.class_, error)
    """, runs)  # fmt: skip
    assert text.startswith("StorageError io") and "File too large" in text
    assert steps(runs) == [1]
    with CheckpointManager(runs) as manager:
        assert manager.resume().step == 1


def test_the_job_may_be_started_by_hand(runs):
    # A save of a job that the manager did not make is resumed from all the same.
    Job.start(runs).save(snapshot(3), 3)
    with CheckpointManager(os.fspath(runs)) as manager:
        assert manager.resume().step == 3
