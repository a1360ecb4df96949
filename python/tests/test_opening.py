"""What may be handed over as a checkpoint, what is said where it is none, and how what is there is shown."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest

import waystation
from waystation import Job, Key, Piece, Snapshot
from waystation.job import Saved

W = np.zeros((4, 3), np.float32)


@pytest.fixture
def saved(tmp_path: pathlib.Path) -> Saved:
    snapshot = Snapshot([Piece.whole(Key.param("net.w"), W), Piece.whole(Key("main", "extension", "net.w", "exp_avg"), W)])
    return Job.start(tmp_path / "run").save(snapshot, 3)


def test_what_latest_and_a_save_answer_are_paths(saved: Saved, tmp_path: pathlib.Path) -> None:
    latest = waystation.latest(tmp_path / "run")
    for path in (saved, latest, waystation.list_checkpoints(tmp_path / "run")[0]):
        assert os.fspath(path) == saved.path
        assert waystation.open(path).step == waystation.restore(path).step == waystation.appraise(path).step == 3
    assert waystation.verify(latest).ok and waystation.inspect(latest).step == 3


@pytest.mark.parametrize("given", [None, 3, {}])
def test_what_is_no_checkpoint_at_all(given: object) -> None:
    for call in (waystation.restore, waystation.appraise):
        with pytest.raises(waystation.UsageError, match=r"waystation\.open"):
            call(given)  # type: ignore[operator]
    with pytest.raises(waystation.UsageError, match="expected the path"):
        waystation.open(given)  # type: ignore[arg-type]


def test_a_run_is_told_from_a_checkpoint(saved: Saved, tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    for call in (waystation.open, waystation.verify, waystation.inspect, waystation.restore):
        with pytest.raises(waystation.UsageError, match=r"run: this is a run.*waystation\.latest\(run\)") as caught:
            call(run)
        assert caught.value.location.file == str(run)
    with pytest.raises(waystation.NotCommittedError) as missing:
        waystation.open(tmp_path)
    assert str(tmp_path) in str(missing.value)
    os.remove(os.path.join(saved.path, "waystation.commit"))
    with pytest.raises(waystation.NotCommittedError, match="waystation commit"):
        waystation.open(saved)


def test_the_reader_of_dcp_tells_it_too(saved: Saved, tmp_path: pathlib.Path) -> None:
    dcp = pytest.importorskip("waystation.dcp")
    assert dcp.Reader(saved).path == saved.path
    with pytest.raises(waystation.UsageError, match="this is a run"):
        dcp.Reader(tmp_path / "run")


def test_what_is_there_already_is_said(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c"
    waystation.save(path, {"w": W})
    with pytest.raises(waystation.ExistsError, match="a finished checkpoint is there.*never overwrites.*another path"):
        waystation.save(path, {"w": W})
    (tmp_path / "d").mkdir()
    with pytest.raises(waystation.ExistsError, match="never overwrites") as caught:
        waystation.save(tmp_path / "d", {"w": W})
    assert "finished" not in str(caught.value)


def test_close_names(saved: Saved) -> None:
    with waystation.open(saved) as ckpt:
        for name in ("w", "module.net.w", "nte.w"):
            with pytest.raises(waystation.NotFoundError, match=r"; there is 'net\.w'"):
                ckpt[name]
        with pytest.raises(waystation.NotFoundError, match='there is .*"exp_avg"'):
            ckpt.tensor(Key("main", "extension", "net.w", "exp_avgs"))
        with pytest.raises(waystation.NotFoundError) as caught:
            ckpt["something else"]
        assert "there is" not in str(caught.value)


def test_what_notebooks_show(saved: Saved, tmp_path: pathlib.Path) -> None:
    with waystation.open(saved) as ckpt:
        assert repr(ckpt["net.w"]) == "<Tensor net.w: F32 [4, 3]>"
        slot = ckpt.tensor(Key("main", "extension", "net.w", "exp_avg"))
        assert repr(slot) == "<Tensor net.w (extension exp_avg): F32 [4, 3]>"
        assert ckpt._ipython_key_completions_() == ["net.w"]
    report, inspection = waystation.verify(saved), waystation.inspect(saved)
    assert repr(report) == str(report) == f"{saved.path}: ok" and repr(inspection) == str(inspection)
    (listed,) = waystation.list_checkpoints(tmp_path / "run")
    assert repr(listed).startswith(f"<Listed {saved.name}: step 3, complete, ") and "digest" not in repr(listed)
