"""`python -m waystation.interop` and the example, as they are started from a shell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from interop import hostile as h

import waystation
from waystation.interop.__main__ import main

torch = pytest.importorskip("torch")
_ROOT = Path(__file__).parents[2]


class Shell:
    """Runs commands as the shell would, in this process: starting one costs seconds."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        said = list(map(str, arguments))
        try:
            status = main(said)
        except SystemExit as end:
            status = int(end.code or 0)
        return subprocess.CompletedProcess(said, status, *self._captured.readouterr())


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "waystation.interop", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)


def test_a_file_goes_in_and_a_model_comes_out(shell: Shell, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    torch.save({"model": {"w": torch.ones(3)}, "odd": torch.nn.Linear(1, 1)}, tmp_path / "a.pt")
    refused = shell("import-torch", tmp_path / "a.pt", "--out", tmp_path / "c")
    assert refused.returncode == 2 and "`--trust-pickle` says" in refused.stderr and not refused.stdout
    refused = shell("import-torch", tmp_path / "a.pt", "--out", tmp_path / "c", "--trust-pickle")
    assert refused.returncode == 1 and "odd is an object of torch.nn.modules.linear.Linear" in refused.stderr
    assert "import with --skip-unreadable, which" in refused.stderr and "=True" not in refused.stderr
    done = shell(
        "import-torch", tmp_path / "a.pt", "--run", tmp_path / "run", "--step", 5, "--trust-pickle", "--skip-unreadable"
    )
    assert done.returncode == 0 and "left out: odd is an object" in done.stderr
    path = done.stdout.strip()
    assert waystation.latest(tmp_path / "run").path == path and waystation.open(path).step == 5
    done = shell("export-hf", path, "--out", tmp_path / "hf", "--rename", "w=v", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["files"] == 1
    bare = shell("export-hf", path, "--out", tmp_path / "bare")
    assert bare.returncode == 0 and "no config.json" in bare.stderr and "--config FILE" in bare.stderr
    (tmp_path / "c.json").write_text('{"model_type": "mine"}')
    told = shell("export-hf", path, "--out", tmp_path / "told", "--config", tmp_path / "c.json")
    assert told.returncode == 0 and not told.stderr and (tmp_path / "told/config.json").is_file()
    assert load_file(tmp_path / "hf/model.safetensors")["v"].tolist() == [1, 1, 1]
    done = shell("import-hf", tmp_path / "hf", "--out", tmp_path / "d", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["tensors"] == 1


def test_a_directory_of_dcp_goes_in(shell: Shell, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    dcp.save({"model": {"w": torch.ones(3)}}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    done = shell("import-dcp", tmp_path / "dcp", "--out", tmp_path / "c", "--trust-pickle")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'c'}\n")
    dcp.save({"w": torch.ones(3), "progress": {"step": 7}}, checkpoint_id=tmp_path / "dcp7", no_dist=True)
    done = shell("import-dcp", tmp_path / "dcp7", "--out", tmp_path / "e", "--trust-pickle")
    assert done.returncode == 0 and "note: the step 7 is that of progress.step" in done.stderr
    assert waystation.open(tmp_path / "e").step == 7
    done = shell("import-dcp", tmp_path / "dcp7", "--out", tmp_path / "f", "--trust-pickle", "--step", 5)
    assert done.returncode == 0 and "note" not in done.stderr and waystation.open(tmp_path / "f").step == 5


def test_a_hostile_file_ends_with_one_line(tmp_path: Path) -> None:
    path = h.archive(
        tmp_path / "a.pt", h.pickle_of(h.mapping(w=h.global_("os", "system") + h.text("echo run") + b"\x85R"))
    )
    refused = _run("import-torch", path, "--out", tmp_path / "c", "--trust-pickle")
    assert refused.returncode == 1 and not refused.stdout
    assert refused.stderr.count("\n") == 1 and "Traceback" not in refused.stderr


@pytest.mark.parametrize("command", [(), ("import-dcp",), ("import-torch",), ("import-hf",), ("export-hf",)])
def test_every_command_explains_itself(shell: Shell, command: tuple[str, ...]) -> None:
    done = shell(*command, "--help")
    assert done.returncode == 0 and "example" in done.stdout
    assert shell(*command, "--nonsense").returncode == 2


def test_the_example_runs_as_it_stands() -> None:
    answers = []
    for more in ((), ("--map",)):
        command = [sys.executable, "-W", "ignore", str(_ROOT / "examples/inference.py"), *more]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=_ROOT, env={"PYTHONPATH": str(_ROOT)}
        )
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout.splitlines()[-1])
    assert answers[0] == answers[1] and answers[0].startswith("answer:")


def test_the_example_says_that_it_has_a_model_of_its_own(tmp_path: Path) -> None:
    waystation.save(tmp_path / "c", {"other": torch.ones(3)})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(_ROOT / "examples/inference.py"), str(tmp_path / "c")],
        capture_output=True,
        text=True,
        check=False,
        cwd=_ROOT,
        env={"PYTHONPATH": str(_ROOT)},
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "with other, …: this example loads its own toy model only" in done.stderr
