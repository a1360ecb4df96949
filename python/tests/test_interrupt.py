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


#: What computations are about: an order of thousands of millions of records, of which one place costs minutes, and
#: walks that never end.
MADE = """
import json, sys
import made
from waystation import _core

ORDER = {"algorithm": "torch.randperm-cpu", "seed": 1, "seed_rule": "seed"}
SOURCE = "ab" * 32
LONG = 2**31 - 1

def leaf(n, order, position=0):
    return {"epoch": 0, "epoch_end": {"rule": "wrap"}, "kind": "permuted-index", "order": {**order, "n": n}, "position": position,
            "source": {"records": n, "sha256": SOURCE}}

def cursor(root, **more):
    return {"consumed": 2**30, **root, **more}

far = cursor(leaf(LONG, ORDER, 2**30))
short = leaf(5, {"algorithm": "identity"})
mixed = cursor({"kind": "mixture", "children": [short, short],
                "selection": {"algorithm": "deficit", "end": "all", "taken": [0, 0], "weights": [1, 1]}})
canary = {"count": 1, "first": [0], "sha256": "cd" * 32}
"""

#: Minutes of work each.
COMPUTATIONS = {
    "order": "_core.order(json.dumps(ORDER), LONG, 0, 0, 1)",
    "take": "_core.Walk(json.dumps(far)).take(1)",
    "share": "_core.Walk(json.dumps(far)).share(8, 'round-robin', 0, 2)",
    "batch": "_core.Walk(json.dumps(mixed)).batch(2**50)",
    "skip": "_core.Walk(json.dumps(mixed)).skip(2**50)",
    "canary": "_core.Walk(json.dumps(far)).cursor_json(1)",
    "restore": """opened.restore_json((), (), json.dumps({"sources": [["data", LONG, SOURCE]], "budget_steps": 2**40, "budget_bytes": 2**40}))""",
}


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_ctrl_c_stops_a_computation(tmp_path: Path, name: str) -> None:
    path = made.checkpoint(tmp_path / "c", {})
    program = f"""{MADE}
import pathlib
opened = None
if {name == "restore"}:
    path = made.checkpoint(pathlib.Path(sys.argv[1] + "-far"), {{}}, records=[("cursor", "data", {{**far, "next": canary}})])
    opened = _core.Checkpoint.open(path)
print("working", flush=True)
try:
    {COMPUTATIONS[name]}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(made.__file__).parent), *sys.path])}
    child = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, env=environment, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        time.sleep(0.2)
        assert child.poll() is None, "it was over before it could be stopped"
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert rest == "interrupted\n" and child.returncode == 0
    # A twentieth of a second on an idle machine.
    assert time.monotonic() - begun < 20


def test_a_walk_that_another_thread_has_is_not_waited_for_beyond_ctrl_c() -> None:
    program = f"""{MADE}
import threading
walk = _core.Walk(json.dumps(mixed))
threading.Thread(target=walk.skip, args=(2**50,), daemon=True).start()
import time
time.sleep(0.1)
print("working", flush=True)
try:
    walk.take(1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
import os
os._exit(0)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(made.__file__).parent), *sys.path])}
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert rest == "interrupted\n"
