"""SIGTERM: noted, passed on, given back; and a loop that it stops loses nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from processes import end, run, start, wait_for

from waystation.preempt import Preemption

EXAMPLE = Path(__file__).parent.parent / "examples" / "spot_loop.py"


@pytest.fixture(autouse=True)
def handler_as_it_was():
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is before


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_the_signal_is_noted_by_all_that_watch():
    one, two = Preemption(), Preemption()
    one.watch()
    two.watch()
    assert not one.noted
    terminate()
    assert one.noted and two.noted
    one.release()
    two.release()


def test_a_handler_that_was_there_is_called_and_put_back():
    calls = []

    def before(number, frame):
        calls.append(number)

    default = signal.signal(signal.SIGTERM, before)
    watching = Preemption()
    watching.watch()
    terminate()
    assert watching.noted and calls == [signal.SIGTERM]
    watching.release()
    assert signal.getsignal(signal.SIGTERM) is before
    signal.signal(signal.SIGTERM, default)


def test_a_handler_put_over_ours_stays():
    watching = Preemption()
    default = signal.getsignal(signal.SIGTERM)
    watching.watch()
    ours, calls = signal.getsignal(signal.SIGTERM), []

    def over(number, frame):
        calls.append(number)
        if calls == [signal.SIGTERM]:
            ours(number, frame)

    signal.signal(signal.SIGTERM, over)
    watching.release()
    assert signal.getsignal(signal.SIGTERM) is over
    signal.signal(signal.SIGTERM, ours)
    watching.watch()
    watching.release()
    assert signal.getsignal(signal.SIGTERM) is default


def test_another_thread_warns_and_watches_nothing():
    watching, warned = Preemption(), []

    def elsewhere():
        with pytest.warns(UserWarning, match="only the main thread"):
            watching.watch()
        warned.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert warned and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    watching.note()
    assert watching.noted


def test_a_child_of_a_fork_dies_of_it():
    watching = Preemption()
    watching.watch()
    child = os.fork()
    if child == 0:
        terminate()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
    assert not watching.noted
    watching.release()


def test_who_is_dropped_without_a_release_does_not_make_the_process_deaf():
    run(
        """
        import gc, signal
        from waystation.preempt import Preemption
        Preemption().watch()
        gc.collect()
        signal.raise_signal(signal.SIGTERM)
        """,
        status=-signal.SIGTERM,
    )


def loop(run_path: Path, *more: object) -> subprocess.Popen[str]:
    script = f"import sys, runpy; sys.argv[0] = {str(EXAMPLE)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    return start(script, "--run", run_path, "--steps", 60, "--every", 7, *more)


def outcome(text: str) -> str:
    found = re.search(r"end after step 60, weights ([0-9a-f]{16})", text)
    assert found, text
    return found[1]


def test_a_loop_told_to_stop_saves_and_goes_on_bit_for_bit(tmp_path):
    expected = outcome(end(loop(tmp_path / "whole")))
    for how in (signal.SIGTERM, signal.SIGKILL):
        path = tmp_path / how.name
        process = loop(path, "--pause", 0.02)
        # After a few saves, between two of them.
        wait_for(lambda: path.exists() and len(list(path.glob("*/waystation.commit"))) >= 2, "a second save", process)
        process.send_signal(how)
        text = end(process, 0 if how == signal.SIGTERM else -how)
        again = end(loop(path))
        first = int(re.search(r"begin after step (\d+)", again)[1])
        assert 7 < first < 60
        if how == signal.SIGTERM:
            # Not a step is lost.
            assert f"end after step {first}," in text
        else:
            assert first % 7 == 0
        assert outcome(again) == expected


def test_the_example_needs_no_torch():
    text = run("import sys; sys.modules['torch'] = None; import runpy; sys.argv[1:] = ['--help']\n"
               f"try: runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')\nexcept SystemExit as e: assert not e.code")
    assert "--every" in text


assert sys.platform == "linux"
