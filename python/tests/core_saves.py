"""What tests of the native module share: saves made with it alone, and refusals."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waystation import _core
from waystation.errors import Error

BLOCK = 4096


def param(name: str) -> _core.KeyTuple:
    return ("main", "param", name, None, None, ())


def flat(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)


@contextlib.contextmanager
def refused(code: str, *words: str) -> Iterator[None]:
    with pytest.raises(Error) as raised:
        yield
    assert raised.value.code == code, raised.value
    for word in words:
        assert word in str(raised.value)


class Saved:
    """A run with one attempt that no writer has begun."""

    def __init__(self, tmp_path: Path, writers: int = 2, step: int = 10) -> None:
        self.run = str(tmp_path / "run")
        self.plan = _core.SessionPlan.next_in(self.run, "demo", writers=writers, topology=[("dp", writers)],
                                              block_bytes=BLOCK)
        self.step, self.name, self.path = step, "", ""
        self.save(step, 0)

    def save(self, step: int, counter: int) -> None:
        self.step, self.counter = step, counter
        self.name = _core.make_attempt(self.run, self.plan, step, counter)
        self.path = f"{self.run}/{self.name}"

    def begin(self, writer: int, **options: Any) -> _core.Session:
        return _core.Session.begin(self.path, self.plan, self.step, self.counter, writer, **options)

    def write(self, writer: int) -> None:
        """Writer w has rows 2w and 2w + 1 of `w`, which is its number everywhere."""
        rows = np.full((2, 3000), writer, np.float32)
        session = self.begin(writer)
        chunk = session.chunk(param("w"), "F32", (2 * self.plan.writers, 3000), (2 * writer, 0), (2, 3000))
        session.record("progress", "main", (), json.dumps({"optimizer_step": self.step}, separators=(",", ":")))
        writing = session.lay_out()
        writing.write([(chunk, flat(rows))])
        writing.finish()

    def commit(self) -> str:
        for writer in range(self.plan.writers):
            self.write(writer)
        return _core.commit(self.path)[0]


def read(path: str, name: str, dtype: Any) -> np.ndarray[Any, Any]:
    checkpoint = _core.Checkpoint.open(path)
    entry = checkpoint.find(param(name))
    assert entry is not None
    out = np.empty(entry.nbytes, np.uint8)
    checkpoint.read([(param(name), None, out)])
    return out.view(dtype).reshape(entry.shape)
