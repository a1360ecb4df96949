"""Saving from one process into a directory that stands alone, outside of any run."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from . import _core, arrays
from . import _destination as destination
from .errors import Error, ExistsError, Location, usage
from .key import Key, check_name
from .progress import Progress, reporting
from .records import Coordinate, Record
from .snapshot import Alias, Declared, Piece, Snapshot, write


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[Any, Any],
    *,
    step: int = 0,
    run: str | None = None,
    records: Iterable[Record] = (),
    attachments: Mapping[str, bytes | os.PathLike[str]] | None = None,
    aliases: Mapping[str, str] | None = None,
    buffers: Collection[str] = (),
    topology: Coordinate = (),
    parent: str | None = None,
    block_bytes: int | None = None,
    progress: Progress = None,
    threads: int | None = None,
    check: bool = True,
) -> str:
    """Saves arrays as a checkpoint of its own in the new directory `path`, and says where that is.

    `tensors` maps names, or `Key`s for what is neither param nor buffer, to arrays of NumPy or PyTorch, or any that
    speak their protocols; those named in `buffers` are buffers. Names whose arrays are one memory, of one shape,
    strides and role, are stored once, under the first, with the others as aliases; `aliases` gives more of them, new
    name to old. What is not contiguous is copied, one at a time beyond a gibibyte. Nothing is pickled: element types
    outside the registry are refused by name, before anything is written. The arrays must stay as they are until it
    returns: one that another thread changes meanwhile is stored with checksums that no longer fit, and fails to be read.

    `run` is the name written down for it, by default the directory's. `check` compares records with each other and with
    the tensors (chapters 16 to 19 of the specification). Raises `exists` where `path` is. After any other error the
    directory may be there, uncommitted: no reader takes it for a checkpoint, and it can be removed.
    """
    snapshot = collect(tensors, aliases=aliases or {}, buffers=buffers)
    snapshot.records.extend(records)
    snapshot.attachments.update(attachments or {})
    return save_snapshot(
        path,
        snapshot,
        step=step,
        run=run,
        topology=topology,
        parent=parent,
        block_bytes=block_bytes,
        progress=progress,
        threads=threads,
        check=check,
    )


def save_snapshot(
    path: str | os.PathLike[str],
    snapshot: Snapshot,
    *,
    step: int = 0,
    run: str | None = None,
    topology: Coordinate = (),
    parent: str | None = None,
    block_bytes: int | None = None,
    progress: Progress = None,
    threads: int | None = None,
    check: bool = True,
) -> str:
    """As `save`, of a snapshot that has everything."""
    where = os.fspath(path)
    name = run if run is not None else os.path.basename(os.path.abspath(where))
    # Before the directory is made; what remains, the native half refuses, and leaves an attempt.
    check_name(name, "the name of the run")
    for record in snapshot.records:
        check_name(record.kind, "the kind of a record")
        check_name(record.name, "the name of a record")
    for axis, _ in topology:
        check_name(axis, "the axis of the topology")
    try:
        session = _core.Session.standing_alone(
            where,
            run=name,
            step=step,
            topology=topology,
            parent=parent,
            block_bytes=block_bytes,
            threads=threads,
            check_state=check,
        )
    except ExistsError as why:
        raise _occupied(where, why) from None
    try:
        placed = snapshot.declare(session)
        writing = session.lay_out()
        with reporting(progress) as report:
            write(writing, placed, threads=threads, progress=report)
            writing.finish()
            _core.commit(where, check_state=check, progress=report)
    except Error as why:
        left = f"{where} is left uncommitted, which nothing takes for a checkpoint"
        raise why.with_message(f"{why.message}; {left}") from why
    return where


def _occupied(where: str, why: Error) -> Error:
    finished = os.path.isfile(os.path.join(where, "waystation.commit"))
    what = "a finished checkpoint is there already" if finished else why.message
    return why.with_message(
        f"{what}, and a save never overwrites anything",
        location=Location(file=where),
        remedy="Choose another path, or remove what is there yourself if it is of no use any more.",
    )


def collect(tensors: Mapping[Any, Any], *, aliases: Mapping[str, str], buffers: Collection[str]) -> Snapshot:
    """The snapshot of arrays by name or `Key`."""
    if isinstance(buffers, str):
        raise usage(f"'buffers' is a collection of names, not the string {buffers!r}")
    snapshot = Snapshot()
    stored: dict[Any, Key] = {}
    keys: dict[str, Key] = {}
    for name, data in tensors.items():
        key = _key(name, buffers)
        if isinstance(name, str):
            keys[name] = key
        piece = _piece(key, data)
        memory = _memory(key, data, piece)
        target = stored.setdefault(memory, key) if memory is not None else key
        if target is not key:
            snapshot.aliases.append(Alias(key.component, key.role, key.name, target))
            keys[key.name] = target
        elif 0 in piece.extent:
            snapshot.declared.append(Declared(key, piece.dtype, piece.shape))
        else:
            snapshot.pieces.append(piece)
    for name in buffers:
        if name not in keys:
            raise usage(f"'buffers' names {name!r}, which is not among the tensors")
    for new, old in aliases.items():
        if old not in keys:
            raise usage(f"the alias {new!r} is of {old!r}, which is not among the names of the tensors")
        if new in keys:
            raise usage(f"the alias {new!r} is a tensor's name already")
        check_name(new, "the alias")
        of = keys[old]
        snapshot.aliases.append(Alias(of.component, of.role, new, of))
    return snapshot


def _key(name: Any, buffers: Collection[str]) -> Key:
    if isinstance(name, Key):
        return name
    if not isinstance(name, str):
        raise usage(f"a tensor is named by a string or a Key, not {name!r}")
    return Key.buffer(name) if name in buffers else Key.param(name)


def _piece(key: Key, data: Any) -> Piece:
    try:
        if arrays.is_torch(data):
            arrays.plain_tensor(data)
        return Piece.whole(key, data)
    except Error as why:
        raise why.with_message(why.message, location=Location(tensor=key.text)) from None


def _memory(key: Key, data: Any, piece: Piece) -> tuple[Any, ...] | None:
    """What arrays that are stored once have in common; None for those that are stored in any case."""
    if key.role not in ("param", "buffer") or 0 in piece.extent:
        return None
    if not arrays.is_torch(data) and type(data) is not np.ndarray:
        return None
    return (*destination.memory(data), piece.dtype, piece.shape, key.component, key.role, key.scope)
