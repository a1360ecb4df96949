"""What work that fails leaves behind in the process and on the disk: nothing that nobody can take for what it is."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from waystation import _core
from waystation.errors import Error

KEY = made.param("w")


def open_files() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass  # the listing's own
    return sorted(path for path in found if path.startswith("/") and not path.startswith(("/dev", "/proc")))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.fixture(autouse=True)
def nothing_is_left_in_the_process() -> Iterator[None]:
    gc.collect()
    files, running = open_files(), threads()
    yield
    gc.collect()
    assert open_files() == files
    assert threads() <= running



def left(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


class Stop(Exception):
    pass


def raising(*_: object) -> None:
    raise Stop


@pytest.fixture
def large(tmp_path: Path) -> str:
    rows = np.arange(4 << 20, dtype="f4").reshape(64, -1)
    return made.checkpoint(tmp_path / "large", {KEY: rows, made.param("v"): rows}, rows=8)


def damaged(path: str) -> str:
    (shard,) = Path(path).glob("model-*")
    with open(shard, "r+b") as file:
        file.seek(os.path.getsize(shard) // 4)
        file.write(b"12345678")
    return path


FAILING: dict[str, Callable[[str, str], Any]] = {
    "copy damaged": lambda path, out: _core.copy(damaged(path), out),
    "copy stopped": lambda path, out: _core.copy(path, out, progress=raising),
    "reshard damaged": lambda path, out: _core.reshard(damaged(path), out, writers=3),
    "reshard stopped": lambda path, out: _core.reshard(path, out, writers=3, progress=raising),
    "export damaged": lambda path, out: _core.export(damaged(path), out),
    "export stopped": lambda path, out: _core.export(path, out, progress=raising),
    "import of nothing": lambda path, out: _core.import_json(path + "/none.safetensors", out=out),
    "salvage damaged": lambda path, out: _core.salvage(damaged(path)),
    "commit of nothing": lambda path, out: _core.commit(out, deadline=0.01),
}


@pytest.mark.parametrize("name", FAILING)
def test_failed_work_leaves_no_checkpoint_and_may_be_done_again(large: str, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    before = left(Path(large))
    with pytest.raises((Error, Stop)):
        FAILING[name](large, str(out))
    # Nothing that a reader would take for a checkpoint or a model, unless it was told only when all was done.
    whole = name.endswith("stopped") and ((out / "waystation.commit").exists() or list(out.rglob("*index.json")))
    if not whole:
        with pytest.raises(Error):
            _core.Checkpoint.open(str(out))
        assert not list(out.rglob("*index.json")) and not (out / "waystation.commit").exists()
    assert left(Path(large)) == before
    # And nothing beside it.
    assert {path.name for path in tmp_path.iterdir()} <= {"large", "out"}


@pytest.mark.parametrize("when", ["declared", "laid out", "written", "refused"])
def test_a_session_that_is_given_up_lets_go_of_its_files_and_of_what_it_was_given(tmp_path: Path, when: str) -> None:
    files = open_files()
    array = np.zeros(1 << 20, np.uint8)
    gone = weakref.ref(array)
    session = _core.Session.standing_alone(str(tmp_path / "c"), run="r", step=1)
    session.chunk(KEY, "U8", (1 << 20,), (0,), (1 << 20,))
    writing = None
    if when != "declared":
        writing = session.lay_out()
    if when == "written":
        assert writing is not None
        writing.write([(0, array)])
    if when == "refused":
        assert writing is not None
        with pytest.raises(Error):
            writing.write([(0, array[:-1])])
        with pytest.raises(Stop):
            writing.write([(0, array)], progress=raising)
    del session, writing, array
    gc.collect()
    assert gone() is None, "the array that was written is still held"
    assert open_files() == files
    assert not (tmp_path / "c" / "waystation.commit").exists()


def test_a_read_that_fails_lets_go_of_what_it_was_to_fill(large: str) -> None:
    opened = _core.Checkpoint.open(damaged(large), threads=4)
    out = np.zeros(16 << 20, np.uint8)
    gone = weakref.ref(out)
    for progress in (None, raising):
        with pytest.raises((Error, Stop)):
            opened.read([(KEY, None, out), (made.param("v"), None, out.copy())], progress=progress)
    del out
    gc.collect()
    assert gone() is None
    del opened
