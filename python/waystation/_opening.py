"""How what a caller hands over becomes an open checkpoint, and what is said where it is none.

It knows paths and what directories of a run are called; what is in a checkpoint is the native half's business.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import Error, Location, NotCommittedError, usage

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

_ATTEMPT = re.compile(r"step-[0-9]{12}-[0-9a-f]{16}")
_OURS = re.compile(r"waystation\.commit|manifest\.json|part-[0-9]+-[0-9a-f]{16}\.json")


def open_core(path: str | os.PathLike[str], **how: Any) -> _core.Checkpoint:
    """`_core.Checkpoint.open`, whose errors name `path`. A run in a checkpoint's place is `bad-argument`, with advice.
    """
    where = _fspath(path)
    try:
        return _core.Checkpoint.open(where, **how)
    except NotCommittedError as why:
        refuse_run(where)
        raise _at(why, where) from None


def refuse_run(where: str) -> None:
    """Raises `bad-argument` where a run lies and a checkpoint is meant."""
    if _is_run(where):
        raise _of_run(where) from None


def checkpoint_of(given: Any) -> Checkpoint:
    """A checkpoint, or the one that a path, `waystation.latest(…)` or what a save answered names, opened."""
    from .checkpoint import Checkpoint, open as open_checkpoint

    if isinstance(given, Checkpoint):
        return given
    if isinstance(given, (str, os.PathLike)):
        return open_checkpoint(given)
    why = ": a run without checkpoints has none to resume from, start afresh" if given is None else ""
    raise usage(
        f"expected an open checkpoint, waystation.open(path), or its path, found {_what(given)}{why}",
        remedy="waystation.open(waystation.latest(run)) opens the newest checkpoint of a run.",
    )


def _fspath(path: Any) -> str:
    if isinstance(path, (str, os.PathLike)):
        return os.fspath(path)
    raise usage(f"expected the path of a checkpoint's directory, found {_what(path)}")


def _what(given: Any) -> str:
    return "None" if given is None else f"a {type(given).__name__}"


def _at(why: Error, where: str) -> Error:
    file = why.location.file
    return why.with_message(why.message, location=Location(file=where if file is None else os.path.join(where, file)))


def _of_run(where: str) -> Error:
    made = usage(
        "this is a run, not a checkpoint: waystation.latest(run) gives the newest checkpoint in it",
        remedy="Open waystation.latest(run), or one of waystation.list_checkpoints(run).",
    )
    return made.with_message(made.message, location=Location(file=where))


def _is_run(where: str) -> bool:
    """Whether a directory holds attempts and nothing that a checkpoint has."""
    try:
        with os.scandir(where) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        # The native half's own answer stands.
        return False
    return any(map(_ATTEMPT.fullmatch, names)) and not any(map(_OURS.fullmatch, names))
