"""SIGTERM as a wish to stop soon: noted when it comes, answered when training is at a step's end.

It knows one signal, who handled it before, and forks; it must not know what is saved. One handler serves all managers
of a process. A child of a fork gets back what was there before: a data loader's worker must die of SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["Preemption"]


class Preemption:
    """Whether this process was told to stop, from `watch()` to `release()`.

    Where something else handled SIGTERM in Python before, that is called after the note is taken, and put back at the
    end. Only the main thread can watch, and only a signal that no library handles beneath Python: elsewhere `watch`
    warns and changes nothing, and `note()` is for the caller's own handler.
    """

    __slots__ = ("_noted", "__weakref__")

    def __init__(self) -> None:
        self._noted = False

    @property
    def noted(self) -> bool:
        return self._noted

    def note(self) -> None:
        """Takes the note as if the signal had come."""
        self._noted = True

    def watch(self) -> None:
        """Begins to watch for the signal."""
        if self in _watching:
            return
        reason = _why_not()
        if reason is not None:
            warnings.warn(f"SIGTERM is not watched: {reason}; call preempt() from a handler of your own", stacklevel=3)
            return
        _watching.add(self)
        _install()

    def release(self) -> None:
        """Ends watching; after the last one the handler before is back."""
        if self in _watching:
            _watching.discard(self)
            if not _watching:
                _uninstall()


# Weak: a manager that is dropped without close() must not leave a process that SIGTERM does not end.
_watching: weakref.WeakSet[Preemption] = weakref.WeakSet()
_before: Callable[[int, FrameType | None], Any] | int | None = None
_installed = False


def _why_not() -> str | None:
    if threading.current_thread() is not threading.main_thread():
        return "only the main thread can handle signals"
    if signal.getsignal(signal.SIGTERM) is None:
        return "a library handles it beneath Python, and would not be told any more"
    return None


def _install() -> None:
    global _before, _installed
    if not _installed:
        _before = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, _on_signal)
        _installed = True


def _uninstall() -> None:
    """Puts back what was there, unless somebody has put a handler over ours: it may call ours, which then only passes
    on."""
    global _before, _installed
    if not _installed or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is _on_signal:
        signal.signal(signal.SIGTERM, _before)
        _before, _installed = None, False


def _on_signal(number: int, frame: FrameType | None) -> None:
    watching = list(_watching)
    for each in watching:
        each.note()
    if callable(_before):
        _before(number, frame)
    elif not watching and _before == signal.SIG_DFL:
        # Nobody is left to act on a note: the signal ends the process, as it would have.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _in_child() -> None:
    _watching.clear()
    _uninstall()


os.register_at_fork(after_in_child=_in_child)
