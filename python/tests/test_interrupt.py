"""Ctrl-C and callbacks that raise, in the midst of long work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import made
import numpy as np
import pytest
from waystation import _core

MIB = 1 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint whose reading takes a while: a quarter of a gibibyte, checked on one thread."""
    array = np.arange(256 * MIB // 8, dtype="u8")
    return made.checkpoint(tmp_path_factory.mktemp("large") / "c", {made.param("w"): array})


def test_a_callback_that_raises_stops_the_read_and_its_exception_is_raised(large: str) -> None:
    opened = _core.Checkpoint.open(large, threads=1)
    out = np.zeros(256 * MIB, np.uint8)
    calls: list[tuple[str, int, int]] = []

    class Enough(Exception):
        pass

    def stop(what: str, done: int, total: int) -> None:
        calls.append((what, done, total))
        raise Enough

    with pytest.raises(Enough):
        opened.read([(made.param("w"), None, out)], progress=stop)
    ((_, done, total),) = calls
    # Where it was told early enough, it has not gone on to the end.
    assert done > total - 64 * MIB or not out[-MIB:].any()
    opened.read([(made.param("w"), ((0,), (8,)), out[:64])])
    assert out[:64].tobytes() == np.arange(8, dtype="u8").tobytes()


def test_progress_only_grows_and_ends_at_all(large: str) -> None:
    opened = _core.Checkpoint.open(large, threads=1)
    told: list[tuple[str, int, int]] = []
    out = np.zeros(256 * MIB, np.uint8)
    opened.read([(made.param("w"), None, out)], progress=lambda *now: told.append(now))
    done = [done for what, done, _ in told if what == "read"]
    assert done == sorted(done) and told[-1][1] == told[-1][2] >= 256 * MIB
    assert np.array_equal(out.view("u8"), np.arange(256 * MIB // 8, dtype="u8"))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("read", "opened.read([(w, None, out)], progress=told)"),
        ("verify", "_core.verify_json(path, threads=1, progress=told)"),
    ],
)
def test_ctrl_c_raises_promptly_in_the_midst_of_work(large: str, name: str, call: str) -> None:
    program = textwrap.dedent(f"""
        import sys
        import numpy as np
        from waystation import _core

        path = sys.argv[1]
        w = ("main", "param", "w", None, None, ())
        opened = _core.Checkpoint.open(path, threads=1)
        out = np.zeros({256 * MIB}, np.uint8)
        first = True

        def told(what, done, total):
            global first
            if first:
                first = False
                print("working", flush=True)

        try:
            while True:
                {call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen([sys.executable, "-c", program, large], stdout=subprocess.PIPE, env=environment, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert rest == "interrupted\n" and child.returncode == 0, name
    # A fortieth of a second on an idle machine; what a busy one needs is not ours to say.
    assert time.monotonic() - begun < 20


def test_other_threads_run_while_bytes_are_read(large: str) -> None:
    import threading

    opened = _core.Checkpoint.open(large, threads=1)
    turns, over = 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1

    counter = threading.Thread(target=count)
    counter.start()
    before = turns
    opened.read([(made.param("w"), None, np.zeros(256 * MIB, np.uint8))])
    during = turns - before
    over.set()
    counter.join()
    assert during > 1000


def test_signal_handlers_run_during_work(large: str, tmp_path: Path) -> None:
    opened = _core.Checkpoint.open(large, threads=1)
    handled: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: handled.append(number))
    sent = False

    def told(what: str, done: int, total: int) -> None:
        nonlocal sent
        if not sent:
            sent = True
            os.kill(os.getpid(), signal.SIGUSR1)

    try:
        opened.read([(made.param("w"), None, np.zeros(256 * MIB, np.uint8))], progress=told)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [signal.SIGUSR1]
