"""`python -m waystation` is the program `waystation`: the same bytes, the same exit status, the same way to stop."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waystation import _core

MODULE = [sys.executable, "-m", "waystation"]
"""How the program is started in a process of Python's."""


def _program() -> str | None:
    return os.environ.get("WAYSTATION_PROGRAM")


@pytest.fixture(scope="module")
def program() -> list[str]:
    """The program as Rust builds it."""
    path = _program()
    if path is None or shutil.which(path) is None:
        pytest.skip("the environment variable WAYSTATION_PROGRAM does not name the Rust program: nothing to compare with")
    return [path]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ckpt`, `bad` (one byte changed), `model` (safetensors), and `run` with one checkpoint."""
    place = tmp_path_factory.mktemp("program")
    key = ("main", "param", "w", None, None, ())
    session = _core.Session.standing_alone(str(place / "ckpt"), run="demo", step=7)
    chunk = session.chunk(key, "F32", (1000, 300), (0, 0), (1000, 300))
    session.record("progress", "main", (), '{"optimizer_step":7}')
    session.attach("words.txt", b"hello")
    writing = session.lay_out()
    writing.write([(chunk, np.arange(300_000, dtype=np.float32).view(np.uint8))])
    writing.finish()
    _core.commit(str(place / "ckpt"))
    _core.export(str(place / "ckpt"), str(place / "model"))
    shutil.copytree(place / "ckpt", place / "bad")
    shard = next(path for path in (place / "bad").iterdir() if path.suffix == ".safetensors")
    with shard.open("r+b") as file:
        file.seek(700_000)
        file.write(b"\x01\x02\x03\x04")
    _core.import_json(str(place / "model"), run_path=str(place / "run"), step=20)
    return place


def ran(command: list[str], place: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "100"}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, timeout=120, check=False, **options)


@pytest.mark.parametrize(("line", "status"), [
    ("--version", 0),
    ("--help", 0),
    ("verify --help", 0),
    ("", 2),
    ("verify", 2),
    ("verifi ckpt", 2),
    ("verify ckpt --threads 0", 2),
    ("verify ckpt", 0),
    ("verify ckpt --json", 0),
    ("verify ckpt --quick --json", 0),
    ("verify bad", 1),
    ("verify bad --json", 1),
    ("verify none", 1),
    ("verify none --json", 1),
    ("verify run", 2),
    ("inspect ckpt", 0),
    ("inspect ckpt --tensors --json", 0),
    ("inspect ckpt --state", 0),
    ("cat ckpt w --region 0:2,:4", 0),
    ("cat ckpt w --region 0:2,:4 --json", 0),
    ("cat ckpt w --format raw", 0),
    ("cat ckpt v", 1),
    ("cat ckpt w --region 0:2", 2),
    ("list run", 0),
    ("list run --json", 0),
    ("latest run", 0),
    ("latest run --verify --json", 0),
    ("latest ckpt", 2),
    ("gc run --keep-last 1 --dry-run", 0),
    ("diff ckpt ckpt", 0),
    ("diff ckpt bad", 1),
    ("order permutation-none", 2),
    ("export ckpt --out model", 1),
    ("reject none --reason x", 1),
])
def test_the_same_answer(program: list[str], place: Path, line: str, status: int) -> None:
    theirs, ours = ran(program + line.split(), place), ran(MODULE + line.split(), place)
    assert ours.stdout == theirs.stdout
    assert ours.stderr == theirs.stderr
    assert (ours.returncode, theirs.returncode) == (status, status)


def test_names_that_are_no_text(program: list[str], place: Path) -> None:
    for arguments in [["verify", os.fsdecode(b"\xff\xfe")], ["cat", "ckpt", "é"], ["verify", "ckpt", "--out=\n"]]:
        theirs, ours = ran(program + arguments, place), ran(MODULE + arguments, place)
        assert (ours.stdout, ours.stderr, ours.returncode) == (theirs.stdout, theirs.stderr, theirs.returncode)


def test_what_changes_things(program: list[str], place: Path, tmp_path: Path) -> None:
    """The same commands on two copies; what is drawn at random is taken out."""
    answers = []
    for number, command in enumerate([program, MODULE]):
        own = tmp_path / str(number)
        own.mkdir()
        shutil.copytree(place / "model", own / "model")
        said = b""
        for line in ["import model --run run --step 5 --writers 2", "import model --out alone --json", "copy alone two",
                     "reshard two --out three --writers 3 --json", "export three --out out --json", "list run",
                     "reject alone --reason why --json", "reject alone --reason because", "verify three --json"]:
            done = ran(command + line.split(), own)
            said += done.stdout + done.stderr + b"%d\n" % done.returncode
        answers.append(re.sub(rb"[0-9a-f]{64}|-0000000[0-9a-f]{9}", b"*", said))
    assert answers[0] == answers[1]
    assert answers[0].count(b"*") > 3


def test_a_reader_that_goes_away(program: list[str], place: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for command in [program, MODULE]:
        with subprocess.Popen([*command, "cat", "ckpt", "w"], cwd=place, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.read(100)
            process.stdout.close()
            assert (process.wait(60), process.stderr.read()) == (0, b"")


def test_a_full_disk_is_told(program: list[str], place: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for command in [program, MODULE]:
        with open("/dev/full", "wb") as full:
            done = subprocess.run([*command, "verify", "ckpt"], cwd=place, env=environment, stdout=full,
                                  stderr=subprocess.PIPE, timeout=60, check=False)
        assert done.returncode == 3 and done.stderr.startswith(b"waystation: io-full"), done.stderr


def test_verify_json_is_what_verify_prints(place: Path) -> None:
    for path in ["ckpt", "bad"]:
        for quick in [False, True]:
            printed = ran([*MODULE, "verify", path, "--json", *["--quick"] * quick], place).stdout
            assert json.loads(printed) == json.loads(_core.verify_json(str(place / path), quick=quick))
    listed = json.loads(ran([*MODULE, "list", "run", "--json"], place).stdout)["attempts"]
    assert listed == json.loads(_core.list_json(str(place / "run")))
    latest = json.loads(ran([*MODULE, "latest", str(place / "run"), "--json"], place).stdout)
    assert latest == json.loads(_core.latest_json(str(place / "run")))


def test_processes_that_the_program_starts(place: Path) -> None:
    """`tour` starts more of the program, in Python's process as in its own."""
    done = ran([*MODULE, "tour", "--json"], place)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["equal"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("rust", [False, True])
def test_a_signal_stops_a_verification(request: pytest.FixtureRequest, tmp_path: Path, number: int, rust: bool) -> None:
    command = request.getfixturevalue("program") if rust else MODULE
    path = tmp_path / "large"
    session = _core.Session.standing_alone(str(path), run="demo", step=0)
    size = 512 << 20
    session.chunk(("main", "param", "w", None, None, ()), "U8", (size,), (0,), (size,))
    writing = session.lay_out()
    writing.write([(0, np.zeros(size, np.uint8))])
    writing.finish()
    _core.commit(str(path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(20):
        with subprocess.Popen([*command, "--threads", "1", "verify", str(path)], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            # Once it is at the bytes it watches for signals.
            while not reads(process.pid, ".safetensors") and process.poll() is None:
                pass
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        if process.returncode != 0:
            break  # else it was done before the signal came
    assert (process.returncode, out) == (130, b"")
    assert err.startswith(b"waystation: interrupted") and b"Traceback" not in err


def reads(process: int, suffix: str) -> bool:
    """Whether a process has a file open whose name ends so."""
    try:
        for link in Path(f"/proc/{process}/fd").iterdir():
            try:
                if os.readlink(link).endswith(suffix):
                    return True
            except FileNotFoundError:
                continue
    except FileNotFoundError:
        pass
    return False
