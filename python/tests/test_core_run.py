"""A run and its checkpoints through the native module: marks, keeping, and checkpoints made of others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from core_saves import Saved, flat, param, read, refused
from waystation import _core


def test_marks(tmp_path: Path) -> None:
    saved = Saved(tmp_path, writers=1)
    with refused("not-committed"):
        _core.pin(saved.path, "best")
    first = saved.path
    saved.commit()
    saved.save(20, 1)
    saved.commit()
    _core.pin(first, "best")
    _core.pin(first, "best")
    _core.reject(saved.path, "loss went up")
    with refused("exists"):
        _core.reject(saved.path, "another reason")
    listed = json.loads(_core.list_json(saved.run))
    assert [(one["step"], one["pins"], one["rejected"]) for one in listed] == [(10, ["best"], None),
                                                                              (20, [], "loss went up")]
    found = json.loads(_core.latest_json(saved.run))
    assert found["step"] == 10 and found["skipped"][0]["error"]["code"] == "rejected"
    _core.unpin(first, "best")
    with refused("not-found"):
        _core.unpin(first, "best")
    with refused("bad-argument"):
        _core.pin(first, "not/a/name")


def test_gc(tmp_path: Path) -> None:
    saved = Saved(tmp_path, writers=1)
    saved.commit()
    for counter, step in enumerate([20, 30, 40], 1):
        saved.save(step, counter)
        saved.commit()
    dry = json.loads(_core.gc_json(saved.run, keep_last=2, keep_every=20, dry_run=True))
    assert dry["dry_run"] and [item["fate"] for item in dry["items"]] == ["removed", "kept", "kept", "kept"]
    assert len(json.loads(_core.list_json(saved.run))) == 4
    report = json.loads(_core.gc_json(saved.run, keep_last=1))
    assert [item["fate"] for item in report["items"]] == ["removed", "removed", "removed", "kept"]
    assert [one["step"] for one in json.loads(_core.list_json(saved.run))] == [40]
    with refused("bad-argument"):
        _core.gc_json(saved.run, keep_last=0)
    with refused("bad-argument", "run"):
        _core.gc_json(saved.path, keep_last=1)


def test_gc_of_what_nobody_writes_any_more(tmp_path: Path) -> None:
    saved = Saved(tmp_path, writers=1)
    saved.commit()
    saved.save(20, 1)
    report = json.loads(_core.gc_json(saved.run, keep_last=1))
    assert [item["fate"] for item in report["items"]] == ["kept", "kept"]
    report = json.loads(_core.gc_json(saved.run, keep_last=1, uncommitted_older_than=0.0))
    assert [item["fate"] for item in report["items"]] == ["kept", "removed"]


def test_copy_reshard_salvage(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    digest = saved.commit()
    assert _core.copy(saved.path, str(tmp_path / "copy")) == digest
    with refused("exists"):
        _core.copy(saved.path, str(tmp_path / "copy"))
    calls: list[Any] = []
    resharded = _core.reshard(saved.path, str(tmp_path / "three"), writers=3, progress=lambda *call: calls.append(call))
    assert calls
    three = _core.Checkpoint.open(str(tmp_path / "three"))
    assert (three.writers, three.parent, three.digest) == (3, digest, resharded)
    assert (read(three.path, "w", np.float32) == read(saved.path, "w", np.float32)).all()
    with refused("bad-argument"):
        _core.reshard(saved.path, str(tmp_path / "none"), writers=0)
    (tmp_path / "copy" / "waystation.commit").unlink()
    with refused("not-committed"):
        _core.Checkpoint.open(str(tmp_path / "copy"))
    assert _core.salvage(str(tmp_path / "copy")) == digest


def test_export_and_import(tmp_path: Path) -> None:
    path = str(tmp_path / "ckpt")
    session = _core.Session.standing_alone(path, run="demo", step=3)
    critic = ("critic", "param", "w", None, None, ())
    chunks = [session.chunk(key, "F32", (4,), (0,), (4,)) for key in (param("w"), param("v"), critic)]
    session.alias("main", "param", "tied", param("w"))
    session.attach("config.json", b"{}")
    writing = session.lay_out()
    writing.write([(chunk, flat(np.full(4, chunk, np.float32))) for chunk in chunks])
    writing.finish()
    _core.commit(path)
    done = json.loads(_core.export(path, str(tmp_path / "hf")))
    assert (done["files"], done["attachments"], done["tied"], done["bytes"]) == (1, 1, {"tied": "w"}, 32)
    assert sorted(os.listdir(tmp_path / "hf")) == ["config.json", "model.safetensors"]
    done = json.loads(_core.export(path, str(tmp_path / "one"), single=True))
    assert os.listdir(tmp_path / "one") == ["model.safetensors"] and done["bytes"] == 48
    done = json.loads(_core.export(path, str(tmp_path / "critic"), component="critic", single=True))
    header = (tmp_path / "critic" / "model.safetensors").read_bytes()
    assert b'"w"' in header and header.endswith(np.full(4, 2, np.float32).tobytes())
    done = json.loads(_core.export(path, str(tmp_path / "split"), max_shard_bytes=16))
    assert done["files"] == 2 and (tmp_path / "split" / "model.safetensors.index.json").is_file()
    with refused("not-found"):
        _core.export(path, str(tmp_path / "none"), component="actor")
    with refused("bad-argument", "weights"):
        _core.export(path, str(tmp_path / "none"), roles=["weights"])
    with refused("exists"):
        _core.export(path, str(tmp_path / "hf"))

    done = json.loads(_core.import_json(str(tmp_path / "hf"), run_path=str(tmp_path / "run"), step=5, writers=2,
                                        attach=[__file__]))
    assert done["attachments"] == ["config.json", os.path.basename(__file__)] and done["tensors"] == 2
    assert json.loads(_core.latest_json(str(tmp_path / "run")))["path"] == done["path"]
    assert read(done["path"], "v", np.float32).tolist() == [1, 1, 1, 1]
    for wrong in [{}, {"out": "a", "run_path": "b"}]:
        with refused("bad-argument"):
            _core.import_json(str(tmp_path / "hf"), **wrong)  # type: ignore[arg-type]
