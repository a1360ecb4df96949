"""A run and whole checkpoints: each function against the program of the same name."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import waystation
from waystation import Key, _core, arrays, records


def saved(run: pathlib.Path, step: int, *, commit: bool = True, timeline: Any = None) -> pathlib.Path:
    plan = timeline or _core.SessionPlan.next_in(str(run), "demo", writers=1, topology=[("dp", 1)])
    path = run / _core.make_attempt(str(run), plan, step, 0)
    session = _core.Session.begin(str(path), plan, step, 0, 0)
    place = session.chunk(Key.param("w"), "F32", (1024,), (0,), (1024,))
    session.alias("main", "param", "tied", Key.param("w"))
    session.attach("config.json", b"{}")
    record = records.progress(step)
    session.record(record.kind, record.name, record.coordinate, record.value_json)
    writing = session.lay_out()
    writing.write([(place, arrays.as_bytes(np.full(1024, step, np.float32)))])
    writing.finish()
    if commit:
        waystation.commit(path)
    return path


def program(*arguments: object) -> Any:
    ran = subprocess.run([sys.executable, "-m", "waystation", *map(str, arguments), "--json"], stdout=subprocess.PIPE)
    return json.loads(ran.stdout)


def flip(path: pathlib.Path) -> None:
    shard = next(path.glob("model-*"))
    data = bytearray(shard.read_bytes())
    data[4100] ^= 1
    shard.write_bytes(data)


def test_latest_and_list(tmp_path: pathlib.Path) -> None:
    with pytest.raises(waystation.NoCheckpointError):
        waystation.latest(tmp_path)
    first, second = saved(tmp_path, 1), saved(tmp_path, 2)
    third = saved(tmp_path, 3, commit=False)
    found = waystation.latest(tmp_path)
    assert (found.path, found.name, found.step) == (str(second), second.name, 2)
    assert [(one.name, one.error.code) for one in found.skipped] == [(third.name, "not-committed")]
    assert (
        waystation.open(found.path).digest == found.digest and found.attempt == program("latest", tmp_path)["attempt"]
    )
    waystation.reject(second, "diverged")
    waystation.pin(first, "good")
    listed = waystation.list_checkpoints(tmp_path)
    assert [(one.step, one.state, one.rejected, one.pins) for one in listed] == [
        (1, "complete", None, ("good",)),
        (2, "complete", "diverged", ()),
        (3, "uncommitted", None, ()),
    ]
    assert listed[0].path == str(first) and listed[0].nbytes and listed[2].digest is None
    assert waystation.latest(tmp_path).step == 1
    waystation.unpin(first, "good")
    assert waystation.list_checkpoints(tmp_path)[0].pins == ()


def test_gc(tmp_path: pathlib.Path) -> None:
    paths = [saved(tmp_path, step) for step in range(1, 5)]
    plan = waystation.gc(tmp_path, keep_last=1, keep_every=2, dry_run=True)
    assert [(fate.name, fate.fate) for fate in plan] == list(
        zip([path.name for path in paths], ["removed", "kept", "removed", "kept"])
    )
    assert all(path.exists() for path in paths) and all(fate.error is None and fate.why for fate in plan)
    assert waystation.gc(tmp_path, keep_last=1, keep_every=2) == plan
    assert [path.exists() for path in paths] == [False, True, False, True]


def test_verify(tmp_path: pathlib.Path) -> None:
    path = saved(tmp_path, 1)
    report = waystation.verify(path)
    assert report.ok and str(report) == f"{path}: ok" and report.findings == ()
    report.raise_if_bad()
    flip(path)
    report = waystation.verify(path)
    assert (
        not report.ok and report.findings[0].code == "crc-mismatch" and report.findings[0].tensor == Key.param("w").text
    )
    assert str(report.findings[0]) in str(report) and report.findings[0].file is not None
    with pytest.raises(waystation.CorruptError, match="crc-mismatch: model-"):
        report.raise_if_bad()
    assert waystation.verify(path, quick=True).ok and "was not read" in str(waystation.verify(path, quick=True))
    assert len(program("verify", path)["findings"]) == len(report.findings)
    next(path.glob("attachment-*")).unlink()
    with pytest.raises(waystation.Error, match="and 1 more"):
        waystation.verify(path).raise_if_bad()


def test_inspect(tmp_path: pathlib.Path) -> None:
    path = saved(tmp_path, 7)
    seen = waystation.inspect(path)
    assert (seen.run, seen.step, seen.writers, seen.topology, seen.tensors, seen.aliases, seen.nbytes) == (
        "demo",
        7,
        1,
        (("dp", 1),),
        1,
        1,
        4096,
    )
    assert seen.by_role() == {"param": 4096} and seen.by_dtype() == {"F32": 4096}
    assert seen.records == (("progress", "main", ()),) and [one.path for one in seen.attachments] == ["config.json"]
    said = program("inspect", path)
    assert said["digest"] == seen.digest and said["timeline"] == seen.timeline
    assert "step 7, 1 writers, dp=1" in str(seen)


def test_copy_reshard_and_salvage(tmp_path: pathlib.Path) -> None:
    path = saved(tmp_path / "run", 1) if (tmp_path / "run").mkdir() is None else tmp_path
    digest = waystation.open(path).digest
    seen: list[Any] = []
    assert waystation.copy(path, tmp_path / "copy", progress=lambda *said: seen.append(said)) == digest and seen
    assert waystation.reshard(path, tmp_path / "four", writers=4) == waystation.open(tmp_path / "four").digest != digest
    np.testing.assert_array_equal(waystation.open(tmp_path / "four")["w"], np.full(1024, 1))
    (tmp_path / "copy" / "waystation.commit").unlink()
    assert waystation.salvage(tmp_path / "copy") == digest
    assert waystation.commit(tmp_path / "copy") == waystation.run.Committed(str(tmp_path / "copy"), digest, True)


def test_a_fenced_attempt_is_not_committed(tmp_path: pathlib.Path) -> None:
    old = saved(tmp_path, 5, commit=False)
    saved(tmp_path, 1)
    with pytest.raises(waystation.UsageError) as refused:
        waystation.commit(old)
    assert refused.value.code == "fenced"


def test_export_and_import(tmp_path: pathlib.Path) -> None:
    (tmp_path / "run").mkdir()
    path = saved(tmp_path / "run", 1)
    done = waystation.export(path, tmp_path / "out")
    assert (done.files, done.attachments, done.nbytes, done.tied) == (1, 1, 4096, {"tied": "w"})
    assert list(load_file(next((tmp_path / "out").glob("*.safetensors")))) == ["w"]
    save_file({"a": np.arange(6.0).reshape(2, 3)}, tmp_path / "m.safetensors")
    made = waystation.import_safetensors(tmp_path / "m.safetensors", run=tmp_path / "run", step=4, writers=2)
    assert (made.step, made.writers, made.tensors, made.nbytes) == (4, 2, 1, 48) and waystation.latest(
        tmp_path / "run"
    ).path == made.path
    np.testing.assert_array_equal(waystation.open(made.path)["a"], np.arange(6.0).reshape(2, 3))
    waystation.import_safetensors(tmp_path / "m.safetensors", out=tmp_path / "alone")
    assert waystation.verify(tmp_path / "alone").ok


def test_errors_of_a_run_that_is_not_there(tmp_path: pathlib.Path) -> None:
    for ask in (
        waystation.latest,
        waystation.list_checkpoints,
        waystation.verify,
        waystation.inspect,
        waystation.salvage,
    ):
        with pytest.raises(waystation.Error) as refused:
            ask(tmp_path / "nowhere")  # type: ignore[operator]
        assert refused.value.code == "not-found", ask
