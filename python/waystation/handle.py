"""One save that goes on beside training, and what becomes of it.

It knows whether somebody has seen the outcome; it must not know how saving is done. A failure that nobody asked for is
reported on stderr when the interpreter exits.
"""

from __future__ import annotations

import atexit
import os
import sys
from concurrent.futures import Future
from concurrent.futures import TimeoutError as _TooEarly
from typing import TYPE_CHECKING

from .errors import usage

if TYPE_CHECKING:
    from .job import Saved

__all__ = ["SaveHandle"]


class SaveHandle:
    """A save that `CheckpointManager.save` began. `name` is that of its directory in the run."""

    __slots__ = ("_future", "_process", "name", "step")

    def __init__(self, step: int, name: str, future: Future[Saved]) -> None:
        self.step = step
        self.name = name
        self._future = future
        self._process = os.getpid()
        _unseen.add(self)

    @classmethod
    def done_already(cls, step: int, name: str, saved: Saved | None) -> SaveHandle:
        """That of a save which is over, and went well."""
        future: Future[Saved] = Future()
        if saved is not None:
            future.set_result(saved)
        handle = cls(step, name, future)
        _unseen.discard(handle)
        return handle

    def done(self) -> bool:
        """Whether it is over, well or not."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Saved:
        """Waits, and gives the checkpoint or raises what the save met. `TimeoutError` after `timeout` seconds."""
        self._check_process()
        try:
            saved = self._future.result(timeout)
        except _TooEarly:
            if self._future.done():
                raise
            raise TimeoutError(f"the save of step {self.step} is not over after {timeout:g} s") from None
        finally:
            if self._future.done():
                _unseen.discard(self)
        return saved

    def settle(self) -> BaseException | None:
        """Waits, and gives what the save met unless somebody has seen it already."""
        self._check_process()
        failed = self._future.exception()
        seen = self not in _unseen
        _unseen.discard(self)
        return None if seen else failed

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise usage("expected the process that began the save, found a child of it, in which it does not go on")

    def __repr__(self) -> str:
        state = "in flight" if not self.done() else "failed" if self._future.exception() is not None else "done"
        return f"<SaveHandle of step {self.step}: {state}>"


_unseen: set[SaveHandle] = set()


def _report() -> None:
    """Tells of failures that nobody has seen. Threads have ended by now, and every save with them."""
    for handle in sorted(_unseen, key=lambda handle: handle.step):
        ours = handle._process == os.getpid() and handle.done()
        failed = handle._future.exception() if ours else None
        if failed is not None:
            what = f"{type(failed).__name__}: {failed}"
            print(f"waystation: the save of step {handle.step} failed, and nobody asked: {what}", file=sys.stderr)


atexit.register(_report)
