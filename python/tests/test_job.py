"""Jobs: what ranks agree on, who waits for whom, and what becomes of a save that some rank does not finish."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from processes import end, start, wait_for

import waystation
from waystation import _core
from waystation.errors import Error, error
from waystation.job import Job
from waystation.key import Key
from waystation.records import progress
from waystation.snapshot import Piece, Snapshot

# One rank of a job: "w" is split by rows, "shared" has one owner, progress is written by all alike.
RANK = """
    import os, signal, sys
    import numpy as np
    from processes import FileGroup
    from waystation.job import Job
    from waystation.key import Key
    from waystation.records import progress
    from waystation.snapshot import Piece, Snapshot, owner_rank

    run, talk, rank, size, step = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    at = sys.argv[6] if len(sys.argv) > 6 else ""

    def snapshot(rank, size, step):
        rows = np.full((2, 3), 10 * step + rank, np.float32)
        pieces = [Piece(Key.param("w"), "F32", (2 * size, 3), (2 * rank, 0), (2, 3), rows)]
        shared = Key.buffer("shared")
        if owner_rank(shared, range(size)) == rank:
            pieces.append(Piece.whole(shared, np.full(5, step, np.int64)))
        return Snapshot(pieces=pieces, records=[progress(step)])

    job = Job.start(run, group=FileGroup(talk, rank, size), topology=[("dp", size)], coordinate=[("dp", rank)],
                    resume="latest")
    resumed = "none" if job.resume_from is None else job.resume_from.step
    print(f"rank {rank} timeline {job.plan.timeline} resumed {resumed} parent {job.plan.parent}", flush=True)
    for one in job.skipped:
        print("skipped", one.error.code)
    taken = snapshot(rank, size, step)
    # In the middle of its writing, not while it waits for the directory.
    dies = (lambda what, done, total: total and os.kill(os.getpid(), signal.SIGKILL)) if at == "dies" and rank == 1 else None
    saved = job.save(taken, step, deadline=4.0 if at else 60.0, progress=dies)
    print(f"saved {saved.step} {saved.digest}")
"""


@pytest.fixture
def runs(tmp_path) -> Path:
    return tmp_path / "run"


def snapshot(step: int, size: int = 1000) -> Snapshot:
    return Snapshot(pieces=[Piece.whole(Key.param("w"), np.full(size, step, np.int32))], records=[progress(step)])


def ranks(runs: Path, size: int, step: int, at: str = "") -> list:
    talk = runs.parent / f"talk-{step}-{at}-{size}"
    talk.mkdir()
    return [start(RANK, runs, talk, rank, size, step, at) for rank in range(size)]


def states(runs: Path) -> dict[int, str]:
    return {one["step"]: one["state"] for one in json.loads(_core.list_json(str(runs)))}


def whole(path: str | os.PathLike[str]) -> None:
    report = json.loads(_core.verify_json(os.fspath(path)))
    assert report["ok"], report


def parts_without_commit(runs: Path, step: int, writers: int = 1, missing: int | None = None,
                         plan: _core.SessionPlan | None = None) -> str:
    """What a job leaves that dies between its last part and its commit; its path."""
    plan = plan or _core.SessionPlan.next_in(str(runs), "run", writers=writers)
    name = _core.make_attempt(str(runs), plan, step, 0)
    path = os.path.join(runs, name)
    for writer in range(writers):
        if writer == missing:
            continue
        session = _core.Session.begin(path, plan, step, 0, writer)
        rows = Piece(Key.param("w"), "I32", (4 * writers,), (4 * writer,), (4,), np.full(4, step, np.int32))
        placed = Snapshot(pieces=[rows], records=[progress(step)]).declare(session)
        writing = session.lay_out()
        writing.write([(place, piece.data.view(np.uint8)) for place, piece in placed])
        writing.finish()
    return path


def test_a_save_is_there_when_it_returns(runs):
    job = Job.start(runs)
    saved = job.save(snapshot(5), 5)
    assert saved.path == os.path.join(runs, saved.name) and saved.step == 5
    whole(saved.path)
    with waystation.open(saved.path) as checkpoint:
        assert checkpoint.digest == saved.digest and checkpoint.run == "run" and checkpoint.parent is None
        assert (checkpoint["w"].numpy() == 5).all()
    assert job.resume_from is None and job.counter == 1


def test_one_step_may_be_saved_twice(runs):
    job = Job.start(runs)
    first, second = job.save(snapshot(5), 5), job.save(snapshot(5, 10), 5)
    assert first.name != second.name
    whole(first.path)
    whole(second.path)


def test_of_a_step_that_is_saved_again_the_last_save_is_resumed_from(runs):
    job = Job.start(runs)
    for again in range(8):
        saved = job.save(snapshot(5, 10 + again), 5)
        assert waystation.latest(runs).path == saved.path, again
    assert job.save(snapshot(6), 6).path == waystation.latest(runs).path


def test_a_step_below_a_saved_one_is_refused(runs):
    job = Job.start(runs)
    old, new = job.save(snapshot(5), 5), job.save(snapshot(6), 6)
    with pytest.raises(Error, match="expected a step of 6 or more, which this job saved before, found 5"):
        job.save(snapshot(5), 5)
    assert waystation.latest(runs).path == new.path
    back = Job.start(runs, resume=old.path)
    assert back.save(snapshot(5), 5).path == waystation.latest(runs).path


def test_a_job_goes_on_from_the_latest(runs):
    saved = Job.start(runs).save(snapshot(5), 5)
    job = Job.start(runs, resume="latest")
    assert job.resume_from.path == saved.path and job.plan.parent == saved.digest and job.plan.timeline == 2
    after = job.save(snapshot(6), 6)
    with waystation.open(after.path) as checkpoint:
        assert checkpoint.parent == saved.digest


def test_a_job_goes_on_from_a_path(runs):
    job = Job.start(runs, name="mine")
    old, _ = job.save(snapshot(5), 5), job.save(snapshot(6), 6)
    job = Job.start(runs, name="mine", resume=old.path)
    assert job.resume_from.step == 5
    job.save(snapshot(6), 6)
    assert Job.start(runs, resume="latest").resume_from.attempt.startswith("00000002")


def test_an_empty_or_absent_run_is_a_fresh_start(runs):
    assert Job.start(runs, resume="latest").resume_from is None
    assert runs.is_dir()
    assert Job.start(runs, resume="latest").resume_from is None


def test_a_run_that_is_no_directory_is_no_fresh_start(runs):
    runs.write_text("a file")
    with pytest.raises(Error):
        Job.start(runs, resume="latest")


def test_what_cannot_be_is_said_before_anything_is_made(runs):
    for wrong in ({"coordinate": [("dp", 0)]}, {"topology": [("dp", 2)], "coordinate": [("dp", 2)]},
                  {"parent": "0" * 64, "resume": "latest"}):
        with pytest.raises(Error) as caught:
            Job.start(runs, **wrong)
        assert caught.value.code == "bad-argument"
    job = Job.start(runs)
    for step in (-1, 1.0, True, "5"):
        with pytest.raises(Error, match="expected a step"):
            job.save(snapshot(0), step)
    assert job.counter == 0


def test_a_job_that_another_succeeded_is_fenced(runs):
    old = Job.start(runs)
    old.save(snapshot(1), 1)
    Job.start(runs, resume="latest").save(snapshot(2), 2)
    with pytest.raises(Error) as caught:
        old.save(snapshot(3), 3)
    assert caught.value.code == "fenced"
    assert states(runs) == {1: "complete", 2: "complete"}


def test_three_ranks_save_together_and_resume(runs):
    texts = [end(process) for process in ranks(runs, 3, 4)]
    assert len({text.split("saved ")[1] for text in texts}) == 1
    texts = [end(process) for process in ranks(runs, 3, 5)]
    for text in texts:
        assert "timeline 2 resumed 4" in text
    with waystation.open(json.loads(_core.latest_json(str(runs)))["path"]) as checkpoint:
        assert checkpoint.step == 5 and checkpoint.writers == 3
        assert checkpoint["w"].numpy().tolist() == [[50 + row // 2] * 3 for row in range(6)]
        assert checkpoint["shared"].numpy().tolist() == [5] * 5
        whole(checkpoint.path)
    assert "timeline 3 resumed 5" in end(ranks(runs, 1, 6)[0])


def test_a_rank_that_dies_is_named_and_the_next_job_goes_on(runs):
    for process in ranks(runs, 3, 4):
        end(process)
    zero, one, two = ranks(runs, 3, 5, "dies")
    assert "resumed 4" in end(one, -signal.SIGKILL)
    assert list(runs.glob("step-000000000005-*/*-00001-*")), "it was killed before it wrote"
    text = end(zero, 1)
    assert "writer-missing" in text and "4 s after rank 0" in text and "1" in text.split("writer-missing")[1]
    text = end(two, 1)
    assert "not-committed" in text and "rank 2 wrote its part" in text and "within 8 s" in text
    assert states(runs) == {4: "complete", 5: "uncommitted"}
    for process in ranks(runs, 3, 6):
        assert "timeline 3 resumed 4" in end(process)


def test_a_rank_whose_coordinator_never_comes_says_so(runs):
    Job.start(runs)
    plan = _core.SessionPlan.next_in(str(runs), "run", writers=2).to_json()
    job = Job.start(runs, group=Told({"plan": plan, "resume": None, "skipped": []}))
    with pytest.raises(Error) as caught:
        job.save(snapshot(7), 7, deadline=0.2)
    text = str(caught.value)
    assert "not-found" in text and "step 7, save number 0" in text and "same steps in the same order" in text


class Told:
    """Rank 1 of a job whose rank 0 says `message`."""

    rank, size = 1, 2

    def __init__(self, message: object) -> None:
        self.message = message

    def broadcast(self, data: bytes | None) -> bytes:
        assert data is None
        return json.dumps(self.message).encode()

    def all_gather(self, data: bytes) -> list[bytes]:
        return [b"", data]


def test_ranks_that_see_different_checkpoints_do_not_go_on(runs):
    saved = Job.start(runs).save(snapshot(5), 5)
    plan = _core.SessionPlan.next_in(str(runs), "run", writers=2).to_json()
    told = {"plan": plan, "resume": {"name": saved.name, "digest": saved.digest}, "skipped": []}
    assert Job.start(runs, group=Told(told), resume="latest").resume_from.step == 5
    told["resume"]["digest"] = "0" * 64
    with pytest.raises(Error, match="that rank 0 resumes from") as caught:
        Job.start(runs, group=Told(told), resume="latest")
    assert caught.value.code == "digest-mismatch"


def test_what_keeps_rank_0_from_starting_is_told_to_all(runs):
    runs.write_text("a file")
    texts = [end(process, 1) for process in ranks(runs, 2, 4)]
    codes = [text.split("waystation.errors.")[-1].split(": ")[1] for text in texts]
    assert codes[0] == codes[1] and "rank 0 could not start the job" in texts[1]


def test_where_one_rank_cannot_open_the_checkpoint_none_goes_on(runs):
    Job.start(runs).save(snapshot(5), 5)
    talk = runs.parent / "talk"
    talk.mkdir()
    script = """
    import sys
    import waystation.checkpoint
    from processes import FileGroup
    from waystation.errors import Error, error
    from waystation.job import Job

    def refuse(*given, **more):
        raise error("io-denied", "not mounted here")

    if sys.argv[3] == "1":
        waystation.checkpoint.open = refuse
    try:
        Job.start(sys.argv[1], group=FileGroup(sys.argv[2], int(sys.argv[3]), 3), resume="latest")
    except Error as failed:
        print(failed.code, failed.message)
    """
    texts = [end(process) for process in [start(script, runs, talk, rank) for rank in range(3)]]
    assert texts[1] == "io-denied not mounted here\n"
    assert texts[0] == texts[2] == "io-denied rank 1 could not start the job: not mounted here\n"


def test_a_run_whose_checkpoints_are_all_lost_is_no_fresh_start(runs):
    saved = Job.start(runs).save(snapshot(5), 5)
    next(Path(saved.path).glob("model-*")).unlink()
    with pytest.raises(Error, match="none of the 1 in the run can be") as caught:
        Job.start(runs, resume="latest")
    assert caught.value.code == "none-resumable" and saved.name in caught.value.message
    assert Job.start(runs).resume_from is None


def test_an_attempt_that_needs_a_newer_reader_is_not_passed_over(runs, monkeypatch):
    def refuse(path: str, **more: object) -> None:
        raise error("unsupported-version", "from the future")

    Job.start(runs).save(snapshot(4), 4)
    parts_without_commit(runs, 5)
    monkeypatch.setattr(_core, "commit", refuse)
    with pytest.raises(Error, match="from the future"):
        Job.start(runs, resume="latest")


def test_an_attempt_that_only_lacks_its_commit_is_rolled_forward(runs):
    Job.start(runs).save(snapshot(4), 4)
    path = parts_without_commit(runs, 5, writers=3)
    assert states(runs) == {4: "complete", 5: "uncommitted"}
    job = Job.start(runs, resume="latest")
    assert job.resume_from.step == 5 and job.resume_from.path == path and job.skipped == []
    assert job.resume_from["w"].numpy().tolist() == [5] * 12
    whole(path)


def test_the_first_attempt_of_a_run_is_rolled_forward(runs):
    runs.mkdir()
    parts_without_commit(runs, 5)
    assert Job.start(runs, resume="latest").resume_from.step == 5


def test_it_is_rolled_forward_also_for_who_starts_elsewhere(runs):
    saved = Job.start(runs).save(snapshot(4), 4)
    for step, resume in ((5, None), (6, saved.path)):
        path = parts_without_commit(runs, step)
        job = Job.start(runs, resume=resume)
        assert states(runs)[step] == "complete" and job.skipped == []
        assert (None if job.resume_from is None else job.resume_from.step) == (4 if resume else None)
        whole(path)


def test_an_attempt_that_lacks_a_part_is_left(runs):
    Job.start(runs).save(snapshot(4), 4)
    parts_without_commit(runs, 5, writers=3, missing=1)
    job = Job.start(runs, resume="latest")
    assert job.resume_from.step == 4
    assert [(one.error.code, "1" in one.error.message) for one in job.skipped] == [("writer-missing", True)]
    assert states(runs) == {4: "complete", 5: "uncommitted"}


def test_a_whole_attempt_of_before_the_latest_checkpoint_is_left(runs):
    job = Job.start(runs)
    parts_without_commit(runs, 3, plan=job.plan)
    job.save(snapshot(4), 4)
    assert Job.start(runs, resume="latest").resume_from.step == 4
    assert states(runs) == {3: "uncommitted", 4: "complete"}


def test_of_two_whole_attempts_the_newer_is_rolled_forward(runs):
    job = Job.start(runs)
    parts_without_commit(runs, 5, plan=job.plan)
    parts_without_commit(runs, 6, plan=job.plan)
    assert Job.start(runs, resume="latest").resume_from.step == 6
    assert states(runs) == {5: "uncommitted", 6: "complete"}


def test_a_whole_attempt_that_may_not_be_committed_is_reported(runs):
    Job.start(runs).save(snapshot(4), 4)
    path = parts_without_commit(runs, 5)
    shard = next(Path(path).glob("model-*"))
    shard.chmod(0o644)
    with open(shard, "r+b") as file:
        file.truncate(100)
    job = Job.start(runs, resume="latest")
    assert job.resume_from.step == 4
    assert [(one.name, one.error.code) for one in job.skipped] == [(os.path.basename(path), "length-mismatch")]


def test_a_rejected_attempt_is_not_rolled_forward(runs):
    Job.start(runs).save(snapshot(4), 4)
    (Path(parts_without_commit(runs, 5)) / "rejected").write_text("no good")
    assert Job.start(runs, resume="latest").resume_from.step == 4
    assert states(runs)[5] == "uncommitted"


def test_rank_0_that_is_killed_before_its_commit_is_rolled_forward(runs):
    """Rank 0 waits for a part of rank 1, which is stopped; rank 0 is killed, rank 1 goes on: all parts, no commit."""
    zero, one = ranks(runs, 2, 5, "stops")
    try:
        wait_for(lambda: list(runs.glob("*/part-00000-*")), "rank 0's part", zero)
    finally:
        zero.kill()
    zero.wait()
    end(one, 1)
    if states(runs) == {5: "complete"}:
        pytest.skip("rank 0 was faster than the kill")
    assert len(list(runs.glob("*/part-0000?-*"))) == 2
    for process in ranks(runs, 2, 6):
        assert "resumed 5" in end(process)
