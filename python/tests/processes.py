"""Real processes for tests of jobs: scripts of this directory's own, and a group of ranks that talk through files."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

LIMIT = 120.0  # seconds after which a process that should have ended is a failure


class FileGroup:
    """Ranks that talk through the files of a directory of their own."""

    def __init__(self, directory: str | Path, rank: int, size: int) -> None:
        self.directory = Path(directory)
        self.rank = rank
        self.size = size
        self.calls = 0

    def broadcast(self, data: bytes | None) -> bytes:
        self.calls += 1
        if self.rank == 0:
            assert data is not None
            self._put(f"broadcast-{self.calls}", data)
        return self._get(f"broadcast-{self.calls}")

    def all_gather(self, data: bytes) -> list[bytes]:
        self.calls += 1
        self._put(f"gather-{self.calls}-{self.rank}", data)
        return [self._get(f"gather-{self.calls}-{rank}") for rank in range(self.size)]

    def _put(self, name: str, data: bytes) -> None:
        temporary = self.directory / f"{name}.{self.rank}.tmp"
        temporary.write_bytes(data)
        temporary.rename(self.directory / name)

    def _get(self, name: str) -> bytes:
        wait_for(lambda: (self.directory / name).exists(), name)
        return (self.directory / name).read_bytes()


def wait_for(holds, what: str, process: subprocess.Popen[str] | None = None) -> None:
    """Waits until `holds()`; fails after LIMIT, or when `process` has ended before."""
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, f"{what} did not come to pass"
        if process is not None and process.poll() is not None and not holds():
            raise AssertionError(f"ended with {process.returncode} before {what}: {process.communicate()}")
        time.sleep(0.002)


def start(script: str, *arguments: object, **more) -> subprocess.Popen[str]:
    """Starts Python on `script`, which finds this directory and the package."""
    here = Path(__file__).parent
    paths = [str(here.parent), str(here), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def end(process: subprocess.Popen[str], status: int = 0) -> str:
    """Waits for the end; what it printed. Fails when it ended otherwise than with `status`."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"did not end: {process.communicate()}") from None
    assert process.returncode == status, f"ended with {process.returncode}, not {status}:\n{out}\n{err}"
    return out + err


def run(script: str, *arguments: object, status: int = 0, **more) -> str:
    """Starts `script` and waits for its end; what it printed."""
    return end(start(script, *arguments, **more), status)
