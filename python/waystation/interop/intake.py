"""A checkpoint of what is read from a foreign one, piece by piece, in bounded memory; it is none before all is in.

Knows sessions and snapshots; the pieces' data are readers of some other format, of which it knows only that they fill
memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .. import _core
from ..errors import Error, error, usage
from ..progress import Progress, Report, beyond, reporting
from ..snapshot import Piece, Snapshot

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Fill = Callable[[Bytes], None]
"""The data of a piece: fills exactly its bytes."""
MEMORY: Final = 128 << 20
_PRODUCER: Final = "waystation.interop"


@dataclass(frozen=True)
class ImportedState:
    """What an import made, and what of the source is not in it."""

    path: str
    digest: str
    """SHA-256 of its manifest, 64 hex digits."""
    step: int
    tensors: int
    nbytes: int
    values: int
    """Entries of the source that are not tensors and have a typed form."""
    skipped: tuple[str, ...] = ()
    """Entries that have none, which `skip_unreadable` allowed to go on without: key and reason."""
    notes: tuple[str, ...] = ()
    """What a reader of the source would want to know."""


@dataclass(frozen=True)
class Target:
    """Where the checkpoint goes: a directory that is made for it, or the next attempt of a run."""

    out: str | os.PathLike[str] | None
    run: str | os.PathLike[str] | None
    name: str | None
    """The run's name; by default that of its directory, or of the source."""
    step: int

    def check(self) -> None:
        """Raises `bad-argument`, and `exists`, before anything is read."""
        if (self.out is None) == (self.run is None):
            raise usage("expected either `out`, a directory to make, or `run`, the run to add a checkpoint to")
        if type(self.step) is not int or not 0 <= self.step < 10**12:
            raise usage(f"expected a step from 0 to 999999999999, found {self.step!r}")
        if self.out is not None and os.path.lexists(self.out):
            raise error("exists", f"{os.fspath(self.out)} is there already")


def take_in(
    snapshot: Snapshot,
    target: Target,
    *,
    source: str,
    threads: int | None = None,
    memory: int = MEMORY,
    progress: Progress = None,
) -> tuple[str, str]:
    """Writes and commits a snapshot whose pieces' `data` are `Fill`s; the path and digest.

    At most about twice `memory` bytes are held, or one piece that is larger and the one after it. After an error no
    checkpoint is there: the directory is left uncommitted, and the error names it.
    """
    name = target.name or _default_name(target, source)
    if target.out is not None:
        path = os.fspath(target.out)
        session = _core.Session.standing_alone(path, run=name, step=target.step, threads=threads)
        run_path = attempt = None
    else:
        run_path = os.path.abspath(os.fspath(target.run or ""))
        os.makedirs(run_path, exist_ok=True)
        plan = _core.SessionPlan.next_in(run_path, name, writers=1)
        attempt = _core.make_attempt(run_path, plan, target.step, 0)
        path = os.path.join(run_path, attempt)
        session = _core.Session.begin(path, plan, target.step, 0, 0, threads=threads)
    try:
        session.producer(_PRODUCER, "1")
        placed = snapshot.declare(session)
        writing = session.lay_out()
        with reporting(progress) as report:
            _write(writing, placed, threads, memory, report)
            writing.finish()
            digest, _ = _core.commit(path, run_path=run_path, name=attempt, progress=report)
    except Error as why:
        left = f"{path} is left uncommitted, which nothing takes for a checkpoint"
        raise why.with_message(f"{why.message}; {left}") from why
    return path, digest


def _write(
    writing: _core.Writing, placed: Sequence[tuple[int, Piece]], threads: int | None, memory: int, report: Report | None
) -> None:
    """Reads one batch while the one before it is written."""
    batches = _batches(placed, memory)
    # Two rooms in turn, used again and again: fresh memory costs the system as much as a copy does.
    rooms = [np.empty(min(memory, writing.nbytes), np.uint8) for _ in range(2)]
    done = 0
    # The reader is a thread of its own: the caller's must stay free for Ctrl-C, which the native half looks for.
    with ThreadPoolExecutor(1, thread_name_prefix="waystation-import") as pool:
        ahead = pool.submit(_read, next(batches, []), rooms[0])
        for number, batch in enumerate(_then_nothing(batches), 1):
            filled = ahead.result()
            ahead = pool.submit(_read, batch, rooms[number % 2])
            writing.write(filled, threads=threads, progress=beyond(report, done, writing.nbytes))
            done += sum(data.nbytes for _, data in filled)


def _batches(placed: Sequence[tuple[int, Piece]], memory: int) -> Iterator[list[tuple[int, Piece]]]:
    batch: list[tuple[int, Piece]] = []
    held = 0
    for place, piece in placed:
        if batch and held + piece.nbytes > memory:
            yield batch
            batch, held = [], 0
        batch.append((place, piece))
        held += piece.nbytes
    if batch:
        yield batch


def _then_nothing(batches: Iterator[list[tuple[int, Piece]]]) -> Iterator[list[tuple[int, Piece]]]:
    yield from batches
    yield []


def _read(batch: list[tuple[int, Piece]], room: Bytes) -> list[tuple[int, Bytes]]:
    filled: list[tuple[int, Bytes]] = []
    at = 0
    for place, piece in batch:
        # A piece that is larger than all the room stands alone in its batch.
        data = room[at : at + piece.nbytes] if piece.nbytes <= room.nbytes else np.empty(piece.nbytes, np.uint8)
        at += piece.nbytes
        fill = piece.data
        if not callable(fill):
            raise usage("the data of a piece to import are nothing that fills memory", tensor=piece.key.text)
        fill(data)
        filled.append((place, data))
    return filled


def fill_from(data: Bytes) -> Fill:
    """The `Fill` of bytes that are in memory already."""

    def fill(out: Bytes) -> None:
        out[:] = data

    return fill


def _default_name(target: Target, source: str) -> str:
    """As the program names what it imports: the run's directory, or the source."""
    of = os.path.realpath(source if target.run is None else target.run)
    name = (
        os.path.basename(of)
        if target.run is not None or os.path.isdir(of)
        else os.path.splitext(os.path.basename(of))[0]
    )
    return name if name and name.isprintable() and len(name.encode("utf-8", "replace")) <= 1024 else "import"
