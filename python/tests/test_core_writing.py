"""The writing half of the native module: plans, sessions, the bytes of chunks, and how each is misused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_saves import BLOCK, Saved, flat, param, read, refused
from waystation import _core, records
from waystation.errors import Error

# The plan of a job.


def test_a_plan_survives_its_text(tmp_path: Path) -> None:
    parent = "ab" * 32
    plan = _core.SessionPlan.next_in(str(tmp_path / "run"), "größe", writers=3, topology=[("dp", 3), ("tp", 1)],
                                     parent=parent, block_bytes=1 << 20)
    again = _core.SessionPlan.from_json(plan.to_json())
    assert again.to_json() == plan.to_json()
    assert (again.run, again.timeline, again.writers, again.topology) == ("größe", 1, 3, [("dp", 3), ("tp", 1)])
    assert (again.parent, again.block_bytes) == (parent, 1 << 20)
    assert again.attempt_name(7, 2) == plan.attempt_name(7, 2) != plan.attempt_name(7, 3)
    assert len(json.loads(plan.to_json())["nonce"]) == 32


@pytest.mark.parametrize("change", [
    {"nonce": "0" * 31}, {"nonce": "G" * 32}, {"nonce": "A" * 32}, {"writers": 0}, {"writers": -1}, {"writers": 1 << 40},
    {"timeline": "1"}, {"timeline": 1 << 32}, {"block_bytes": 5000}, {"block_bytes": 0}, {"parent": "ab"}, {"parent": 1},
    {"topology": [["dp"]]}, {"topology": [["dp", 0]]}, {"topology": [["dp", 2], ["dp", 2]]}, {"run": ""}, {"run": "a\nb"},
    {"more": 1},
])
def test_a_plan_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    plan = _core.SessionPlan.next_in(str(tmp_path / "run"), "demo", writers=2)
    members = json.loads(plan.to_json()) | change
    with pytest.raises(Error):
        _core.SessionPlan.from_json(json.dumps(members, sort_keys=True, separators=(",", ":")))


def test_text_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    plan = _core.SessionPlan.next_in(str(tmp_path / "run"), "demo", writers=2).to_json()
    for text in ["", "[]", "null", plan[:-1], plan + " ", plan.replace(":2", ":2.0"), "[" * 10000]:
        with refused("not-canonical"):
            _core.SessionPlan.from_json(text)
    with refused("bad-member"):
        _core.SessionPlan.from_json("{}")


def test_what_no_save_could_say_makes_no_run(tmp_path: Path) -> None:
    for wrong in [{"writers": 0}, {"block_bytes": 3}, {"topology": [("dp", 0)]}, {"parent": "no"}]:
        with pytest.raises(Error):
            _core.SessionPlan.next_in(str(tmp_path / "run"), "demo", **{"writers": 1, **wrong})  # type: ignore[arg-type]
    with refused("bad-name"):
        _core.SessionPlan.next_in(str(tmp_path / "run"), "", writers=1)
    assert not (tmp_path / "run").exists()


# A save from begin to commit.


def test_two_writers_and_a_commit(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    digest = saved.commit()
    assert _core.commit(saved.path) == (digest, True)
    expected = np.repeat([0, 0, 1, 1], 3000).reshape(4, 3000).astype(np.float32)
    assert (read(saved.path, "w", np.float32) == expected).all()
    latest = json.loads(_core.latest_json(saved.run))
    assert (latest["name"], latest["path"], latest["digest"]) == (saved.name, saved.path, digest)
    assert latest["step"] == 10 and saved.name.endswith(latest["attempt"])
    assert json.loads(_core.verify_json(saved.path))["ok"]


def test_a_commit_names_the_writers_that_it_missed(tmp_path: Path) -> None:
    saved = Saved(tmp_path, writers=3)
    saved.write(1)
    with refused("writer-missing", "writers 0, 2"):
        _core.commit(saved.path, deadline=0.3, poll=0.05)
    with refused("writer-missing"):
        _core.commit(saved.path)
    listed = json.loads(_core.list_json(saved.run))
    assert [one["state"] for one in listed] == ["uncommitted"]
    with refused("no-checkpoint"):
        _core.latest_json(saved.run)


def test_a_commit_waits_for_a_writer(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    saved.write(0)
    looks: list[str] = []
    other = threading.Thread(target=saved.write, args=(1,))

    def late(what: str, done: int, total: int) -> None:
        looks.append(what)
        if len(looks) == 2:
            other.start()

    assert _core.commit(saved.path, deadline=60, poll=0.01, progress=late)[1] is False
    other.join()


@pytest.mark.parametrize("wrong", [{"deadline": -1}, {"deadline": float("nan")}, {"poll": -0.5}, {"deadline": 1e300}])
def test_a_deadline_that_is_none_is_refused(tmp_path: Path, wrong: dict[str, float]) -> None:
    with refused("bad-argument", "seconds"):
        _core.commit(Saved(tmp_path).path, **wrong)  # type: ignore[arg-type]


def test_a_commit_may_be_told_its_run(tmp_path: Path) -> None:
    saved = Saved(tmp_path, writers=1)
    saved.write(0)
    with refused("name-disagrees"):
        _core.commit(saved.path, run_path=saved.run, name="step-000000000010-0000000100000000")
    _core.commit(saved.path, run_path=saved.run, name=saved.name)


def test_a_directory_is_made_once(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    with refused("exists"):
        _core.make_attempt(saved.run, saved.plan, 10, 0)
    with refused("limit"):
        _core.make_attempt(saved.run, saved.plan, 10**12, 1)
    with refused("limit"):
        saved.plan.attempt_name(10**12, 0)


def test_a_job_that_another_succeeded_is_fenced(tmp_path: Path) -> None:
    old = Saved(tmp_path, writers=1)
    new = Saved(tmp_path, writers=1, step=20)
    assert new.plan.timeline == old.plan.timeline + 1
    with refused("fenced"):
        _core.make_attempt(old.run, old.plan, 30, 1)
    with refused("fenced"):
        old.commit()
    new.commit()


def test_a_writer_begins_once(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    saved.write(0)
    with refused("exists"):
        saved.begin(0)
    saved.write(1)
    _core.commit(saved.path)
    with refused("exists"):
        saved.begin(1)
    with refused("bad-argument"):
        saved.begin(2)


def test_a_writer_that_counts_otherwise_does_not_begin(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    with refused("name-disagrees", saved.name):
        _core.Session.begin(saved.path, saved.plan, 10, 1, 0)


def test_a_checkpoint_that_stands_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "alone")
    session = _core.Session.standing_alone(path, run="demo", step=3, topology=[("dp", 4)], block_bytes=BLOCK)
    chunk = session.chunk(param("w"), "I64", (5,), (0,), (5,))
    writing = session.lay_out()
    writing.write([(chunk, flat(np.arange(5)))])
    assert writing.finish().startswith("part-00000-")
    assert _core.commit(path)[1] is False
    checkpoint = _core.Checkpoint.open(path)
    assert (checkpoint.run, checkpoint.step, checkpoint.timeline, checkpoint.writers) == ("demo", 3, 1, 1)
    assert read(path, "w", np.int64).tolist() == [0, 1, 2, 3, 4]
    with refused("exists"):
        _core.Session.standing_alone(path, run="demo", step=3)
    with refused("bad-argument"):
        _core.Session.standing_alone(path + "/within", run="demo", step=3)
    with refused("limit"):
        _core.Session.standing_alone(str(tmp_path / "no"), run="demo", step=10**12)
    with refused("bad-member"):
        _core.Session.standing_alone(str(tmp_path / "no"), run="demo", step=1, block_bytes=5000)
    assert not (tmp_path / "no").exists()


# What a session is told.


def test_all_that_a_session_can_say(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3_000_000)
    path = str(tmp_path / "ckpt")
    session = _core.Session.standing_alone(path, run="demo", step=3, topology=[("dp", 2)])
    session.producer("a trainer", "1.2")
    session.declare(param("empty"), "F32", (0, 4))
    chunk = session.chunk(param("w"), "BF16", (4, 6), (0, 0), (4, 6), valid=(3, 6),
                          native=[("torch", ["model", "w", 0]), ("optax", ["w"])])
    average = ("main", "ema", "w", None, "slow", ())
    other = session.chunk(average, "F32", (4, 6), (0, 0), (4, 6), valid=(3, 6))
    session.record("ema", "slow", (), records.ema("slow", decay=0.99, updates=3).value_json)
    session.alias("main", "param", "tied", param("w"), native=[("torch", ["out", 1])])
    session.record("progress", "main", (), '{"optimizer_step":3}')
    session.record("vendor/x", "y", (("dp", 1),), '{"a":[1,"ü",null]}')
    session.record("vendor/x", "y", (("dp", 0),), "{}")
    session.omit("main", ["b", "a"], "frozen")
    session.attach("config.json", b"{}")
    session.attach_file("deep/file", str(tmp_path / "file"))
    session.inventory([param("w"), param("empty"), ("main", "param", "tied", None, None, ()), average])
    writing = session.lay_out()
    assert writing.nbytes == 4 * 6 * 2 + 4 * 6 * 4
    writing.write([(chunk, bytes(48)), (other, bytes(96))])
    writing.finish()
    _core.commit(path)

    checkpoint = _core.Checkpoint.open(path)
    entry = checkpoint.find(param("w"))
    assert entry is not None and entry.valid == (3, 6) and entry.shape == (4, 6)
    assert entry.native == [("optax", ["w"]), ("torch", ["model", "w", 0])]
    tied = checkpoint.find_named("main", "tied")
    assert tied is not None and tied.of == param("w") and tied.native == [("torch", ["out", 1])]
    assert sorted(record[:3] for record in checkpoint.records()) == [
        ("ema", "slow", []), ("progress", "main", []), ("vendor/x", "y", [("dp", 0)]), ("vendor/x", "y", [("dp", 1)])]
    assert [(one[0], one[1]) for one in checkpoint.attachments()] == [("config.json", 2), ("deep/file", 3_000_000)]
    assert checkpoint.attachment("deep/file") == b"x" * 3_000_000
    manifest = json.loads(checkpoint.manifest_json())
    assert manifest["omitted"] == [{"component": "main", "names": ["a", "b"], "reason": "frozen"}]
    assert json.loads(_core.verify_json(path))["findings"] == []


def test_what_a_session_refuses(tmp_path: Path) -> None:
    session = _core.Session.standing_alone(str(tmp_path / "ckpt"), run="demo", step=3, topology=[("dp", 2)])
    whole: Any = ((4,), (0,), (4,))
    session.chunk(param("w"), "F32", *whole)
    with refused("tensor-conflict", "main"):
        session.chunk(param("w"), "F16", *whole)
    with refused("unsupported-dtype", "F33"):
        session.chunk(param("v"), "F33", *whole)
    with refused("bad-chunk"):
        session.chunk(param("v"), "F32", (4,), (2,), (3,))
    with refused("bad-chunk"):
        session.chunk(param("v"), "F32", (4,), (0,), (0,))
    with refused("bad-argument", "shape"):
        session.chunk(param("v"), "F32", (-4,), (0,), (4,))
    with refused("bad-identity"):
        session.chunk(("main", "optimizer", "w", None, None, ()), "F32", *whole)
    with refused("bad-argument"):
        session.chunk(("main", "weights", "w", None, None, ()), "F32", *whole)
    with refused("bad-name"):
        session.chunk(param("a\nb"), "F32", *whole)
    with refused("bad-argument"):
        session.chunk("w", "F32", *whole)  # type: ignore[arg-type]
    with refused("not-canonical", "progress"):
        session.record("progress", "main", (), '{ "optimizer_step": 3 }')
    with refused("bad-member", "progress"):
        session.record("progress", "main", (), '{"optimiser_step":3}')
    with refused("bad-argument", "frozen"):
        session.omit("main", ["a"], "because")
    with refused("bad-argument", "twice"):
        session.inventory([param("a"), param("a")])
    with refused("bad-path"):
        session.attach("../a", b"")
    with refused("not-found"):
        session.attach_file("a", str(tmp_path / "none"))
    session.attach("a", b"1")
    with refused("bad-path"):
        session.attach("a", b"2")
    session.lay_out()


def test_state_that_nobody_could_resume_from_is_refused(tmp_path: Path) -> None:
    for check in (True, False):
        session = _core.Session.standing_alone(str(tmp_path / f"{check}"), run="demo", step=3, check_state=check)
        session.record("progress", "main", (), '{"optimizer_step":4}')
        with refused("state-disagree") if check else contextlib.nullcontext():
            session.lay_out()


def test_after_lay_out_a_session_is_spent(tmp_path: Path) -> None:
    session = Saved(tmp_path).begin(0)
    session.lay_out()
    for use in [session.lay_out, lambda: session.declare(param("w"), "F32", (1,)),
                lambda: session.chunk(param("w"), "F32", (1,), (0,), (1,)), lambda: session.attach("a", b""),
                lambda: session.alias("main", "param", "a", param("w")), lambda: session.omit("main", [], "other"),
                lambda: session.record("progress", "main", (), '{"optimizer_step":10}'),
                lambda: session.inventory([]), lambda: session.producer("a", "b"),
                lambda: session.attach_file("a", __file__)]:
        with refused("bad-argument", "lay_out"):
            use()


def test_a_layout_that_fails_spends_the_session(tmp_path: Path) -> None:
    session = Saved(tmp_path).begin(0)
    session.record("progress", "main", (), '{"optimizer_step":11}')
    with refused("state-disagree"):
        session.lay_out()
    with refused("bad-argument", "lay_out"):
        session.lay_out()


# Writing.


def writing_of(tmp_path: Path, count: int = 3) -> tuple[str, _core.Writing]:
    """Chunks 0 … count - 1, of 12 bytes each but the last of 10 blocks and a half."""
    path = str(tmp_path / "ckpt")
    session = _core.Session.standing_alone(path, run="demo", step=0, block_bytes=BLOCK)
    for number in range(count):
        size = 12 if number + 1 < count else BLOCK * 10 + BLOCK // 2
        session.chunk(param(f"w{number}"), "U8", (size,), (0,), (size,))
    return path, session.lay_out()


def test_misuse_of_a_writing(tmp_path: Path) -> None:
    path, writing = writing_of(tmp_path)
    with refused("bad-argument", "12 bytes", "13"):
        writing.write([(0, bytes(12)), (1, bytes(13))])
    with refused("bad-argument", "below 3"):
        writing.write([(3, bytes(12))])
    with pytest.raises(ValueError, match="from 0 to"):
        writing.write([(-1, bytes(12))])
    with refused("bad-argument", "uint8"):
        writing.write([(0, np.zeros(12, np.int8))])
    with refused("bad-argument", "one thread"):
        writing.write([(0, bytes(12))], threads=0)
    writing.write([(0, b"a" * 12)])
    with refused("bad-argument", "not yet written"):
        writing.write([(0, bytes(12))])
    with refused("bad-argument", "w1"):
        writing.finish()
    with refused("bad-argument", "finished"):
        writing.write([(1, bytes(12))])
    with refused("bad-argument", "finished"):
        writing.finish()
    with refused("writer-missing"):
        _core.commit(path)


@pytest.mark.parametrize("threads", [1, 2, 7, None])
def test_many_chunks_on_many_threads(tmp_path: Path, threads: int | None) -> None:
    path = str(tmp_path / "ckpt")
    random = np.random.default_rng(5)
    data = {f"w{n}": random.integers(0, 256, size, np.uint8)
            for n, size in enumerate([1, 3, BLOCK, BLOCK + 1, 5 * BLOCK, 9_000_001, 4 << 20, (4 << 20) - 1])}
    session = _core.Session.standing_alone(path, run="demo", step=0, block_bytes=BLOCK, shard_bytes=1 << 22)
    chunks = [(session.chunk(param(name), "U8", one.shape, (0,), one.shape), one) for name, one in data.items()]
    writing = session.lay_out()
    calls: list[tuple[str, int, int]] = []
    writing.write(chunks[::-1], threads=threads, progress=lambda *call: calls.append(call))
    assert calls[-1] == ("write", writing.nbytes, writing.nbytes)
    writing.finish()
    _core.commit(path)
    assert json.loads(_core.verify_json(path))["ok"]
    for name, one in data.items():
        assert (read(path, name, np.uint8) == one).all()


def test_writes_from_many_threads_of_python(tmp_path: Path) -> None:
    count = 40
    path, writing = writing_of(tmp_path, count)
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            size = 12 if number + 1 < count else BLOCK * 10 + BLOCK // 2
            writing.write([(number, bytes([number]) * size)])
        except BaseException as error:  # what a thread raises is raised below
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    writing.finish()
    _core.commit(path)
    assert read(path, "w7", np.uint8).tolist() == [7] * 12


def test_a_callback_that_raises_stops_the_write(tmp_path: Path) -> None:
    path, writing = writing_of(tmp_path)

    class Enough(Exception):
        pass

    def enough(*_: object) -> None:
        raise Enough

    with pytest.raises(Enough):
        writing.write([(0, bytes(12))], progress=enough)
    with refused("writer-missing"):
        _core.commit(path)


def test_an_interrupt_during_a_commit_that_waits(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    asked: list[int] = []

    def interrupt(*_: object) -> None:
        if not asked:
            asked.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        _core.commit(saved.path, deadline=600, poll=0.05, progress=interrupt)


def test_an_interrupt_during_a_write(tmp_path: Path) -> None:
    path, writing = writing_of(tmp_path)
    asked: list[int] = []

    def interrupt(*_: object) -> None:
        if not asked:
            asked.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        writing.write([(0, bytes(12)), (1, bytes(12)), (2, bytes(BLOCK * 10 + BLOCK // 2))], progress=interrupt)
    with refused("writer-missing"):
        _core.commit(path)


def test_unused_bits_must_be_zero(tmp_path: Path) -> None:
    session = _core.Session.standing_alone(str(tmp_path / "ckpt"), run="demo", step=0)
    chunk = session.chunk(param("w"), "U4", (3,), (0,), (3,))
    writing = session.lay_out()
    with refused("bad-argument", "bits"):
        writing.write([(chunk, b"\xff\xff")])
    writing.write([(chunk, b"\xff\x0f")])
    writing.finish()


def test_a_writing_that_is_dropped_leaves_no_part(tmp_path: Path) -> None:
    path, writing = writing_of(tmp_path)
    writing.write([(0, bytes(12))])
    del writing
    assert not [name for name in os.listdir(path) if name.startswith("part-")]


# In a process that forks, as loaders of data do.


def test_a_child_of_a_process_that_saves_can_save_and_end(tmp_path: Path) -> None:
    path, writing = writing_of(tmp_path, 1)
    writing.write([(0, bytes(BLOCK * 10 + BLOCK // 2))], threads=4)
    (tmp_path / "child").mkdir()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _, own = writing_of(tmp_path / "child", 1)
            own.write([(0, bytes(BLOCK * 10 + BLOCK // 2))], threads=4)
            own.finish()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writing.finish()
    _core.commit(path)
