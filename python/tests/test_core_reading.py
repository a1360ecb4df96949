"""The reading half of `_core` against small checkpoints whose contents are known."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from pathlib import Path

import made
import numpy as np
import pytest
from waystation import _core
from waystation.errors import Error


@pytest.fixture
def tensors() -> dict[made.Key, np.ndarray]:
    rng = np.random.default_rng(11)
    return {
        made.param("w"): rng.standard_normal((40, 30)).astype("f4"),
        made.param("deep"): rng.integers(0, 1 << 16, (5, 4, 3, 2)).astype("u2"),
        made.param("scalar"): np.array(3.5, "f8"),
        made.param("é \U0001f98a"): np.arange(6, dtype="i4"),
        made.buffer("count"): np.arange(7, dtype="u8"),
        ("critic", "param", "w", None, None, ()): np.ones((2, 2), "f4"),
    }


@pytest.fixture
def opened(tmp_path: Path, tensors: dict[made.Key, np.ndarray]) -> _core.Checkpoint:
    path = made.checkpoint(
        tmp_path / "c",
        tensors,
        rows=3,
        aliases=[("main", "param", "tied", made.param("w"))],
        records=[
            ("progress", "main", {"optimizer_step": 7}),
            ("value", "note", {"tree": "hello"}),
        ],
        attachments={"config.json": b"{}", "a/b.bin": bytes(range(256))},
    )
    return _core.Checkpoint.open(path)


def code(call: object) -> str:
    with pytest.raises(Error) as caught:
        call()  # type: ignore[operator]
    return caught.value.code


def test_the_root_says_what_was_saved(opened: _core.Checkpoint, tmp_path: Path) -> None:
    assert (opened.run, opened.step, opened.writers, opened.topology, opened.parent) == ("made", 7, 1, [], None)
    assert opened.path == str(tmp_path / "c") and opened.timeline == 1 and len(opened.attempt) == 16
    manifest = Path(opened.path, "manifest.json").read_bytes()
    assert opened.manifest_json().encode() == manifest
    assert opened.digest == hashlib.sha256(manifest).hexdigest()


def test_entries_come_in_order_with_all_that_the_metadata_say(
    opened: _core.Checkpoint, tensors: dict[made.Key, np.ndarray]
) -> None:
    entries = {entry.key: entry for entry in opened.entries()}

    def identity(key: made.Key) -> str:
        component, role, name, slot, owner, scope = key
        members = [component, role, name, slot or "", owner or "", scope]
        return json.dumps(members, ensure_ascii=False, separators=(",", ":"))

    assert list(entries) == sorted(entries, key=lambda key: identity(key).encode())
    assert set(entries) == {*tensors, made.param("tied")}
    for key, array in tensors.items():
        entry = entries[key]
        assert (entry.dtype, entry.shape, entry.nbytes) == (made.dtype_of(array), array.shape, array.nbytes)
        assert (entry.of, entry.valid, entry.axes, entry.block, entry.native) == (None, None, None, None, [])
        assert sum(np.prod(extent, dtype=int) for _, extent in entry.chunks) == array.size
    tied = entries[made.param("tied")]
    assert tied.of == made.param("w") and tied.shape == (40, 30)
    assert len(tied.chunks) == 14 and tied.chunks[1] == ((3, 0), (3, 30))


def test_what_is_not_there_is_none_and_names_are_found_by_role(opened: _core.Checkpoint) -> None:
    for name, key in [("w", made.param("w")), ("count", made.buffer("count")), ("tied", made.param("tied"))]:
        found = opened.find_named("main", name)
        assert found is not None and found.key == key
    assert opened.find_named("main", "none") is None and opened.find_named("actor", "w") is None
    assert opened.find(made.buffer("w")) is None
    assert opened.find(("main", "param", "", None, None, ())) is None


def test_whole_tensors_and_random_regions(opened: _core.Checkpoint, tensors: dict[made.Key, np.ndarray]) -> None:
    draw = random.Random(3)
    for key, array in tensors.items():
        assert made.read(opened, key) == array.tobytes()
        for _ in range(20):
            start = [draw.randrange(n) for n in array.shape]
            extent = [draw.randint(0, n - at) for n, at in zip(array.shape, start)]
            cut = array[tuple(slice(at, at + n) for at, n in zip(start, extent))]
            assert made.read(opened, key, (start, extent), cut.nbytes) == cut.tobytes()
    assert made.read(opened, made.param("tied")) == tensors[made.param("w")].tobytes()


def test_many_wants_are_one_plan(opened: _core.Checkpoint, tensors: dict[made.Key, np.ndarray]) -> None:
    pool = np.zeros(sum(array.nbytes for array in tensors.values()), np.uint8)
    wants, at = [], 0
    for key, array in tensors.items():
        wants.append((key, None, pool[at : at + array.nbytes]))
        at += array.nbytes
    told: list[tuple[str, int, int]] = []
    opened.read(wants, progress=lambda what, done, total: told.append((what, done, total)))
    assert pool.tobytes() == b"".join(array.tobytes() for array in tensors.values())
    what, done, total = told[-1]
    assert (what, done) == ("read", total) and total >= pool.size
    opened.read([])


def test_what_cannot_be_asked_for_is_refused(opened: _core.Checkpoint) -> None:
    out = np.zeros(40 * 30 * 4, np.uint8)
    w = made.param("w")
    assert code(lambda: opened.read([(w, None, out[:-1])])) == "bad-argument"
    assert code(lambda: opened.read([(made.param("none"), None, out)])) == "not-found"
    assert code(lambda: opened.read([(w, ((39, 0), (2, 30)), out)])) == "bad-region"
    assert code(lambda: opened.read([(w, ((0,), (2,)), out)])) == "bad-region"
    assert code(lambda: opened.read([(w, ((-1, 0), (2, 30)), out)])) == "bad-argument"
    assert code(lambda: opened.read([(("main", "weights", "w", None, None, ()), None, out)])) == "bad-argument"
    assert code(lambda: opened.find(("main", "param", "w"))) == "bad-argument"  # type: ignore[arg-type]
    assert code(lambda: opened.read([(w, None, out), (w, None, out)])) == "bad-argument"
    assert code(lambda: opened.attachment("config")) == "not-found"


def test_the_tensor_is_named_where_its_destination_is_wrong(opened: _core.Checkpoint) -> None:
    with pytest.raises(Error, match="expected 4800 bytes to read into, found 3") as caught:
        opened.read([(made.param("w"), None, np.zeros(3, np.uint8))])
    assert caught.value.location.tensor == '["main","param","w","","",[]]'


def test_damage_is_found_unless_nobody_wants_to_know(tmp_path: Path) -> None:
    path = made.checkpoint(tmp_path / "c", {made.param("w"): np.arange(4096, dtype="f4")})
    header = 8 + int.from_bytes(next(Path(path).glob("model-*")).read_bytes()[:8], "little")
    made.damage(path, "model-", header + 4097)
    assert code(lambda: made.read(_core.Checkpoint.open(path), made.param("w"))) == "crc-mismatch"
    assert code(lambda: _core.Checkpoint.open(path).map(made.param("w"))) == "crc-mismatch"
    unchecked = _core.Checkpoint.open(path, verify_reads=False)
    assert made.read(unchecked, made.param("w")) != np.arange(4096, dtype="f4").tobytes()


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    assert code(lambda: _core.Checkpoint.open(str(tmp_path / "none"))) == "not-found"
    assert code(lambda: _core.Checkpoint.open(str(tmp_path))) == "not-committed"
    path = made.checkpoint(tmp_path / "c", {made.param("w"): np.zeros(8, "f4")})
    assert code(lambda: _core.Checkpoint.open(path, memory_budget=1)) == "limit"
    made.damage(path, "manifest.json", 5)
    assert code(lambda: _core.Checkpoint.open(path)) == "digest-mismatch"


def test_mapped_memory_is_private_and_outlives_the_checkpoint(tmp_path: Path) -> None:
    array = np.arange(3000, dtype="f4").reshape(30, 100)
    path = made.checkpoint(tmp_path / "c", {made.param("w"): array, made.param("v"): array + 1})
    opened = _core.Checkpoint.open(path)
    first = np.from_dlpack(opened.map(made.param("w")))
    second = np.from_dlpack(opened.map(made.param("w")))
    del opened
    assert first.flags.writeable and first.tobytes() == array.tobytes()
    first[:] = 0
    assert second.tobytes() == array.tobytes()
    again = _core.Checkpoint.open(path)
    assert made.read(again, made.param("w")) == array.tobytes()
    assert np.from_dlpack(again.map(made.param("v"))).tobytes() == (array + 1).tobytes()


def test_only_one_run_is_mapped(tmp_path: Path) -> None:
    array = np.arange(24, dtype="f4").reshape(4, 6)
    session = _core.Session.standing_alone(str(tmp_path / "c"), run="made", step=1)
    left = session.chunk(made.param("w"), "F32", (4, 6), (0, 0), (4, 3))
    right = session.chunk(made.param("w"), "F32", (4, 6), (0, 3), (4, 3))
    session.declare(made.param("empty"), "F32", (0, 6))
    writing = session.lay_out()
    writing.write([(left, made.raw(array[:, :3])), (right, made.raw(array[:, 3:]))])
    writing.finish()
    _core.commit(str(tmp_path / "c"))
    opened = _core.Checkpoint.open(str(tmp_path / "c"))
    assert code(lambda: opened.map(made.param("w"))) == "not-one-run"
    assert made.read(opened, made.param("w")) == array.tobytes()
    empty = opened.map(made.param("empty"))
    assert empty.nbytes == 0 and np.from_dlpack(empty).size == 0


def test_records_and_attachments(opened: _core.Checkpoint) -> None:
    assert opened.records() == [
        ("progress", "main", [], '{"optimizer_step":7}'),
        ("value", "note", [], '{"tree":"hello"}'),
    ]
    a = bytes(range(256))
    assert opened.attachments() == [
        ("a/b.bin", 256, hashlib.sha256(a).hexdigest()),
        ("config.json", 2, hashlib.sha256(b"{}").hexdigest()),
    ]
    assert opened.attachment("a/b.bin") == a


def test_many_threads_share_a_checkpoint_and_an_iterator(
    opened: _core.Checkpoint, tensors: dict[made.Key, np.ndarray]
) -> None:
    entries, seen, wrong = opened.entries(), [], []

    def work() -> None:
        for entry in entries:
            seen.append(entry.key)
            if entry.of is None and made.read(opened, entry.key) != tensors[entry.key].tobytes():
                wrong.append(entry.key)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and sorted(map(str, seen)) == sorted(map(str, [*tensors, made.param("tied")]))
