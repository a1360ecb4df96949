"""Everything that can go wrong, as exceptions with a stable code.

The code comes from the registry of the specification and is the same in every language; its class decides how a caller
reacts, and each class is an exception here. Knows no files and no checkpoints: those who raise say where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._registry import CODES, REMEDIES


@dataclass(frozen=True)
class Location:
    """Where in a checkpoint something is wrong: as much of it as is known."""

    file: str | None = None
    """Name within the checkpoint's directory, or a path."""
    offset: int | None = None
    """Bytes from the start of the file."""
    pointer: str | None = None
    """JSON pointer into the file."""
    record: str | None = None
    """Record key, canonical JSON."""
    tensor: str | None = None
    """Identity key, canonical JSON."""

    def __str__(self) -> str:
        said = [
            self.file,
            None if self.offset is None else f"@{self.offset}",
            None if self.pointer is None else f"#{self.pointer}",
            None if self.record is None else f"record {self.record}",
            None if self.tensor is None else f"tensor {self.tensor}",
        ]
        return " ".join(word for word in said if word is not None)


class Error(Exception):
    """Base of all errors of this package.

    `code` is permanent, `message` is for people and may change. `rule` is the id of the broken rule of the
    specification, if one is; `remedy` says what to do.
    """

    code: str
    class_: str
    message: str
    location: Location
    rule: str | None
    remedy: str

    def __init__(
        self,
        code: str,
        message: str,
        *,
        location: Location | None = None,
        rule: str | None = None,
        remedy: str | None = None,
        class_: str | None = None,
    ) -> None:
        Exception.__init__(self, code, message)
        self.code = code
        self.class_ = class_ if class_ is not None else CODES[code]
        self.message = message
        self.location = location if location is not None else Location()
        self.rule = rule
        self.remedy = remedy if remedy is not None else REMEDIES.get(code, "")

    def __str__(self) -> str:
        """One line: `code: place: message [rule] (advice)`, as the program prints it."""
        place = str(self.location)
        text = f"{self.code}: {place}: {self.message}" if place else f"{self.code}: {self.message}"
        if self.rule is not None:
            text += f" [{self.rule}]"
        return f"{text} ({self.remedy})" if self.remedy else text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code!r}, {self.message!r})"

    def with_message(self, message: str, *, location: Location | None = None, remedy: str | None = None) -> Error:
        """The same error in other words, and where given at another place or with other advice."""
        return type(self)(
            self.code,
            message,
            location=self.location if location is None else location,
            rule=self.rule,
            remedy=self.remedy if remedy is None else remedy,
            class_=self.class_,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return from_parts, tuple(to_parts(self)), self.__dict__


class MalformedError(Error):
    """The bytes break a rule of the format. No retry helps; the writer is at fault."""


class CorruptError(Error):
    """The bytes are not those that were written. Another copy helps."""


class IncompleteError(Error):
    """Something is not there, or not yet."""


class UnsupportedError(Error):
    """A newer or richer reader may accept it."""


class LimitError(Error):
    """Too large for the format or for a budget that the caller gave."""


class StorageError(Error, OSError):
    """The environment failed: disk, permissions, memory of the system. Nothing is said about the checkpoint."""


class UsageError(Error, ValueError):
    """The caller asked for something that cannot be, given what is there."""


class NoCheckpointError(IncompleteError):
    """`no-checkpoint`: nothing was ever committed in the run: a fresh start."""


class NoneResumableError(IncompleteError):
    """`none-resumable`: the run has checkpoints, and all are damaged or rejected. No fresh start, and so no
    `NoCheckpointError`."""


class NotCommittedError(IncompleteError):
    """`not-committed`: an attempt that never became a checkpoint, or no checkpoint at all."""


class NotExactError(UnsupportedError):
    """`not-exact`: something would not resume as it was demanded."""


class NotFoundError(UsageError, KeyError):
    """`not-found`: no tensor, record, attachment or file of that name."""


class RegionError(UsageError, IndexError):
    """`bad-region`: indices beyond the shape, or of another rank."""


class ExistsError(UsageError, FileExistsError):
    """`exists`: something is there already; nothing is ever overwritten."""


_CLASSES: dict[str, type[Error]] = {
    "malformed": MalformedError,
    "corrupt": CorruptError,
    "incomplete": IncompleteError,
    "unsupported": UnsupportedError,
    "limit": LimitError,
    "io": StorageError,
    "usage": UsageError,
}
_NAMED: dict[str, type[Error]] = {
    "no-checkpoint": NoCheckpointError,
    "none-resumable": NoneResumableError,
    "not-committed": NotCommittedError,
    "not-exact": NotExactError,
    "not-found": NotFoundError,
    "bad-region": RegionError,
    "exists": ExistsError,
}


def error(
    code: str, message: str, *, location: Location | None = None, rule: str | None = None, remedy: str | None = None
) -> Error:
    """The exception for a registered code, of the most exact class there is."""
    kind = _NAMED.get(code) or _CLASSES[CODES[code]]
    return kind(code, message, location=location, rule=rule, remedy=remedy)


def usage(message: str, code: str = "bad-argument", *, tensor: str | None = None, remedy: str | None = None) -> Error:
    """What Python code raises: says what was expected and what was found; `tensor` is an identity key."""
    return error(code, message, location=Location(tensor=tensor), remedy=remedy)


def to_parts(failed: Error) -> list[Any]:
    """An error as `from_parts` takes it; JSON."""
    at = failed.location
    said = [failed.code, failed.class_, failed.message, failed.remedy]
    return [*said, at.file, at.offset, at.pointer, at.record, at.tensor, failed.rule]


def from_parts(
    code: str,
    class_: str,
    message: str,
    remedy: str,
    file: str | None,
    offset: int | None,
    pointer: str | None,
    record: str | None,
    tensor: str | None,
    rule: str | None,
) -> Error:
    """The exception for an error of the native half, or of another process."""
    # A code that this file does not know is one of a newer native half: its class still says how to react.
    kind = _NAMED.get(code) or _CLASSES.get(class_, Error)
    return kind(
        code, message, location=Location(file, offset, pointer, record, tensor), rule=rule, remedy=remedy, class_=class_
    )
