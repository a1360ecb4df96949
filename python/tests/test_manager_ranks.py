"""Managers of several ranks: what they agree on, and that a failure of one is told to all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from managing import BEGIN, steps
from processes import end, start

from waystation import _core


@pytest.fixture
def runs(tmp_path) -> Path:
    return tmp_path / "run"


GROUP = BEGIN + """
    from processes import FileGroup
    run, talk, rank, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    def piece(step):
        rows = np.full((2, 3), step, np.int32)
        return Snapshot(pieces=[Piece(Key.param("w"), "I32", (2 * size, 3), (2 * rank, 0), (2, 3), rows)],
                        records=[progress(step)])
    group = FileGroup(talk, rank, size)
"""


def group_of(runs: Path, size: int, script: str) -> list[str]:
    talk = runs.parent / "talk"
    talk.mkdir()
    processes = [start(GROUP + script, runs, talk, rank, size) for rank in range(size)]
    return [end(process) for process in processes]


def test_ranks_leave_together_when_one_is_preempted(runs):
    texts = group_of(runs, 3, """
    with CheckpointManager(run, every=10, pool_bytes="auto", group=group) as manager:
        manager.resume()
        step = 0
        while step < 100 and not manager.preempted:
            step += 1
            if (rank, step) == (1, 4):
                import signal
                signal.raise_signal(signal.SIGTERM)
                assert not manager.preempted
            manager.sync_preempted()
            if manager.should_save(step):
                manager.save(step, lambda: piece(step))
    print("left after", step, manager.last.step, manager.last.digest)
    """)  # fmt: skip
    assert len(set(texts)) == 1 and "left after 4 4" in texts[0]
    assert steps(runs) == [4]


def test_a_rank_killed_beside_training_is_told_by_the_others(runs):
    script = """
    import signal
    from waystation.errors import Error
    dies = {"now": False}
    def watch(what, done, total):
        if dies["now"] and total:
            os.kill(os.getpid(), signal.SIGKILL)
    with CheckpointManager(run, every=1, pool_bytes="auto", group=group, deadline=%s, progress=watch) as manager:
        resumed = manager.resume()
        first = 1 if resumed is None else resumed.step + 1
        print("from", first, flush=True)
        manager.save(first, lambda: piece(first))
        manager.wait()
        if rank == 1 and first == 1:
            dies["now"] = True
        manager.save(first + 1, lambda: piece(first + 1))
    """
    talk = runs.parent / "first"
    talk.mkdir()
    # Long enough for the first save, in which nobody dies, on a slow machine.
    zero, one, two = [start(GROUP + script % 4.0, runs, talk, rank, 3) for rank in range(3)]
    end(one, -9)
    assert "writer-missing" in (text := end(zero, 1)) and "1" in text.split("writer-missing")[1]
    assert "not-committed" in end(two, 1)
    assert steps(runs) == [1]
    for text in group_of(runs, 3, script % 60.0):
        assert "from 2" in text
    assert steps(runs) == [1, 2, 3]


def test_what_one_rank_met_all_raise_and_the_next_save_is_made(runs):
    """The checkpoint that rank 0 reads back is damaged: all ranks hear of it, and none loses count."""
    texts = group_of(runs, 3, """
    from waystation import manager as module
    from pathlib import Path
    from waystation.errors import Error
    real = module._verify
    def damaged(saved):
        if saved.step == 2:
            shard = next(Path(saved.path).glob("model-*"))
            shard.chmod(0o644)
            with open(shard, "r+b") as file:
                file.seek(4096)
                file.write(b"\\xff")
        real(saved)
    module._verify = damaged
    with CheckpointManager(run, pool_bytes="auto", group=group, verify_after=True) as manager:
        manager.save(1, piece(1))
        manager.save(2, piece(2))
        try:
            manager.save(3, piece(3))
        except Error as failed:
            assert failed.code == "crc-mismatch" and "read back after the save" in failed.message, failed
            assert rank == 0 or "failed at rank 0" in failed.message
            assert not hasattr(failed, "__notes__") or "save of step 3 is" in failed.__notes__[0]
        else:
            raise AssertionError("no failure")
        manager.save(4, piece(4))
        assert manager.wait().step == 4
    print("counted", manager.job.counter)
    """)  # fmt: skip
    assert texts == ["counted 4\n"] * 3
    listed = json.loads(_core.list_json(str(runs)))
    assert [(one["step"], one["rejected"] is None) for one in listed] == [(1, True), (2, False), (3, True), (4, True)]


def test_a_signal_that_a_group_does_not_ask_for_is_warned_of_once(runs):
    texts = group_of(runs, 2, """
    import signal, warnings
    from waystation.manager import KeepWarning
    with CheckpointManager(run, every=100, group=group) as manager:
        manager.resume()
        signal.raise_signal(signal.SIGTERM)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert not any(manager.should_save(step) for step in (1, 2, 3)) and not manager.preempted
        assert [one.category for one in seen] == [KeepWarning] and "sync_preempted" in str(seen[0].message)
        assert manager.sync_preempted() and manager.should_save(4)
    """)  # fmt: skip
    assert texts == ["", ""]


def test_ranks_skip_together(runs):
    texts = group_of(runs, 3, """
    gate = threading.Event()
    reached = threading.Event()
    def hold(what, done, total):
        reached.set()
        assert gate.wait(60)
    # Only the save of rank 2 takes long.
    with CheckpointManager(run, pool_bytes="auto", group=group, on_busy="skip", keep_last=None,
                           progress=hold if rank == 2 else False) as manager:
        manager.save(1, piece(1))
        if rank == 2:
            assert reached.wait(60)
        group.all_gather(b"")
        assert manager.save(2, piece(2)) is None
        gate.set()
        manager.wait()
        group.all_gather(b"")
        assert manager.save(3, piece(3)) is not None
    print("skipped", manager.skipped, manager.job.counter)
    """)  # fmt: skip
    assert set(texts) == {"skipped 1 2\n"}
    assert steps(runs) == [1, 3]


def test_ranks_go_by_the_clock_of_rank_0(runs):
    texts = group_of(runs, 2, """
    from waystation.errors import Error
    with CheckpointManager(run, every_seconds=1e-9 if rank == 0 else 1e9, group=group) as manager:
        try:
            manager.should_save(1)
        except Error as error:
            assert "sync_preempted" in str(error)
        else:
            raise AssertionError
        for step in (1, 2):
            manager.sync_preempted()
            assert manager.should_save(step)
            manager.save(step, piece(step))
            assert not manager.should_save(step)
    """)  # fmt: skip
    assert texts == ["", ""]
    assert steps(runs) == [1, 2]
