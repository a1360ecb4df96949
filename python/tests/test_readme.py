"""The code of the READMEs does what they say: it is taken out of them and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waystation

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python/README.md"


def blocks(readme: Path) -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```", readme.read_text(), re.DOTALL | re.MULTILINE)
    assert found, f"{readme} shows no Python"
    return found


def the_one_with(text: str, readme: Path = PACKAGE) -> str:
    (found,) = [block for block in blocks(readme) if text in block]
    return found


@pytest.mark.parametrize("readme", [PACKAGE, ROOT / "README.md"])
def test_save_and_load(readme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(the_one_with('waystation.save("ckpt"', readme), str(readme), "exec"), {})
    assert waystation.verify("ckpt").ok
    assert np.array_equal(waystation.open("ckpt")["w"].numpy(), np.zeros((4, 3), np.float32))


@pytest.mark.parametrize("readme", [PACKAGE, ROOT / "README.md"])
def test_train_and_resume(readme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it stands; and ended after two epochs and started again it comes to what one start comes to."""
    torch = pytest.importorskip("torch")
    code = the_one_with("manager.preempted", readme)
    short = code.replace("epochs = 4", "epochs = 2").replace("data.epoch < 4", "data.epoch < 2")
    assert short != code

    def train(folder: str, code: str) -> tuple[int, list[torch.Tensor]]:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        monkeypatch.chdir(place)
        names: dict[str, Any] = {}
        exec(compile(code, str(readme), "exec"), names)
        return names["state"].progress.optimizer_step, [each.detach().clone() for each in names["model"].parameters()]

    steps, whole = train("whole", code)
    assert steps == 12
    # Two epochs of three steps end with a save; the second start goes on from there.
    assert train("parts", short)[0] == 6
    steps, parts = train("parts", code)
    assert steps == 12
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))


@pytest.mark.parametrize("mark, ranks, steps", [("sync_preempted", (2, 3), [30]), ("dcp.load", (2, 1), [10, 20])])
def test_many_ranks(mark: str, ranks: tuple[int, int], steps: list[int], tmp_path: Path) -> None:
    """Under torchrun, and again on another number of ranks, as the comment at its top says."""
    pytest.importorskip("torch")
    code = the_one_with(mark)
    run = re.search(r'"(runs/[a-z]+)"', code)
    assert run is not None and code.startswith("# torchrun --nproc-per-node 2 ")
    (tmp_path / "program.py").write_text(code)
    for _ in range(4):
        told = started_on(ranks, tmp_path)
        if told is not None:
            break
        print("begun anew: a thread of gloo dropped a tensor of Python's while the interpreter ended")
        shutil.rmtree(tmp_path / "runs")
    assert told is not None
    found = [one.step for one in waystation.list_checkpoints(tmp_path / run[1]) if one.state == "complete"]
    assert found[-len(steps) :] == steps
    assert not told[0]
    if mark == "sync_preempted":
        assert told[1].count("rng  torch") == 1 and "new stream" in told[1]


def started_on(ranks: tuple[int, ...], tmp_path: Path) -> list[str] | None:
    """What each start says. None where PyTorch aborted a process that had done all: `ProcessGroupGloo`'s thread lets go of
    the tensors of a broadcast after it has answered, and where the interpreter is gone by then, it has no right to."""
    told = []
    for number in ranks:
        command = ["-W", "ignore", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={number}", "program.py"]
        ran = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"},
        )
        if ran.returncode and "terminate called without an active exception" in ran.stderr and "SIGABRT" in ran.stderr:
            return None
        assert ran.returncode == 0, ran.stderr
        told.append(ran.stdout)
    return told


def test_export_for_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(the_one_with("export_hf"), str(PACKAGE), "exec"), names)
    mine, again = names["model"].state_dict(), names["again"].state_dict()
    assert mine.keys() == again.keys() and all(bool((mine[name] == again[name]).all()) for name in mine)


@pytest.mark.parametrize("readme", [PACKAGE, ROOT / "README.md"])
def test_every_block_of_python_is_run_here(readme: Path) -> None:
    marks = ("waystation.save(\"ckpt\"", "manager.preempted", "sync_preempted", "dcp.load", "export_hf")
    assert all(sum(mark in block for mark in marks) == 1 for block in blocks(readme))
