"""Saves within saves, interrupted ones, and waits that would never end."""

from __future__ import annotations

from pathlib import Path

import pytest

from managing import snapshot, steps
from waystation.errors import Error
from waystation.manager import CheckpointManager


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_save_within_a_save_is_refused(runs):
    """A handler of a signal that saves would write one state under two steps."""
    with CheckpointManager(runs, pool_bytes="auto") as manager:
        manager.start_over()
        met = []

        def taken():
            with pytest.raises(Error, match="one call of save") as refused:
                manager.save(2, snapshot(2))
            met.append(refused.value.code)
            return snapshot(1)

        manager.save(1, taken)
        assert met == ["bad-argument"]
        manager.save(2, snapshot(2))
    assert steps(runs) == [1, 2]


@pytest.mark.parametrize("method", ["stage", "_submit"])
def test_an_interrupted_save_leaves_the_manager_as_it_was(runs, monkeypatch, method):
    with CheckpointManager(runs, pool_bytes="auto") as manager:
        manager.save(1, snapshot(1))
        manager.wait()
        owner = manager._pool if method == "stage" else manager
        whole = getattr(type(owner), method)

        def interrupted(self, *arguments):
            if method == "stage":
                whole(self, *arguments)  # the memory is held already
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(type(owner), method, interrupted)
            with pytest.raises(KeyboardInterrupt):
                manager.save(2, snapshot(2))
        manager.save(3, snapshot(3))
    assert steps(runs) == [1, 3]


def test_nobody_waits_for_a_save_within_itself(runs):
    met = []

    def progress(*_):
        try:
            manager.wait()
        except Error as refused:
            met.append(refused.code)

    with CheckpointManager(runs, pool_bytes="auto", progress=progress) as manager:
        manager.save(1, snapshot(1))
    assert set(met) == {"bad-argument"} and steps(runs) == [1]
