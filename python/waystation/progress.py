"""Bars for people at a terminal. Everything that moves many bytes takes `progress`: True for a bar on standard error
where that is a terminal, False for none, or a callable of (what, bytes done, bytes in all or 0).
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

Report = Callable[[str, int, int], None]
Progress = bool | Report | None

_EVERY = 0.1  # seconds between two looks of a bar


@contextmanager
def reporting(progress: Progress) -> Iterator[Report | None]:
    """What to hand to the native half; a bar is closed at the end, whatever that is."""
    if progress is None or progress is False or progress is True and not sys.stderr.isatty():
        yield None
    elif progress is True:
        bar = make_bar(sys.stderr)
        try:
            yield bar
        finally:
            bar.close()
    else:
        yield progress


def beyond(report: Report | None, done: int, total: int) -> Report | None:
    """`report` for one of several steps: what it does comes after `done` bytes, of `total` in all."""
    if report is None:
        return None
    whole = report
    return lambda what, now, _: whole(what, done + now, total)


def make_bar(stream: TextIO) -> Bar | TqdmBar:
    """A bar of tqdm where that is installed, else one of ours."""
    try:
        from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return Bar(stream)
    return TqdmBar(tqdm, stream)


class TqdmBar:
    """One bar of tqdm for each thing that is done."""

    def __init__(self, kind: Any, stream: TextIO) -> None:
        self._kind, self._stream = kind, stream
        self._what: str | None = None
        self._bar: Any = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self._what:
            self.close()
            self._what = what
            self._bar = self._kind(
                desc=what,
                total=total or None,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
                file=self._stream,
                mininterval=_EVERY,
            )
        if total and self._bar.total != total:
            self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Leaves the last state on the terminal."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Bar:
    """A line that is written again and again: what, how much, how fast, how long still."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._what: str | None = None
        self._began = self._shown = 0.0
        self._last = (0, 0)

    def __call__(self, what: str, done: int, total: int) -> None:
        now = self._clock()
        if what != self._what:
            self.close()
            self._what, self._began = what, now
        elif now - self._shown < _EVERY and done != total:
            self._last = (done, total)
            return
        self._last = (done, total)
        self._show(now)

    def close(self) -> None:
        """Leaves the last state on the terminal."""
        if self._what is not None:
            self._show(self._clock())
            self._stream.write("\n")
            self._stream.flush()
            self._what = None

    def _show(self, now: float) -> None:
        self._shown = now
        done, total = self._last
        took = now - self._began
        speed = done / took if took > 0 else 0.0
        said = f" {size(done)}/{size(total)}" if total else f" {size(done)}"
        if speed > 0:
            said += f" {size(int(speed))}/s"
            if total > done:
                said += f" {(total - done) / speed:.0f} s left"
        columns = shutil.get_terminal_size().columns - 1
        room = columns - len(f"{self._what} ") - len(said) - 2
        bar = ""
        if total and room >= 10:
            full = min(room, 40) * done // total
            bar = f"[{'#' * full}{' ' * (min(room, 40) - full)}]"
        line = f"{self._what} {bar}{said}"[:columns]
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()


def size(number: int) -> str:
    """Bytes for people: `1.5 GiB`."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{number} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
