"""How a foreign file is refused: with a code of the registry and the place in the file. Knows no format."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Error, Location, error

UNTRUSTED = "The file is damaged, hostile, or of a kind that is not read here; nothing in it was run."


class Place(NamedTuple):
    """A file, and where within it the thing begins that is being read."""

    file: str
    base: int | None = 0
    """Bytes from the start of the file; None where offsets in the thing are none of the file."""
    what: str | None = None
    """The thing, for people: `archive/data.pkl`, the key of a state."""

    def at(self, offset: int) -> Place:
        """The place so many bytes further on."""
        return self._replace(base=None if self.base is None else self.base + offset)


def refuse(message: str, place: Place, *, code: str = "bad-argument", remedy: str | None = None) -> Error:
    """The error for a file that is not taken; `bad-argument` advises that it is damaged or hostile."""
    if remedy is None and code == "bad-argument":
        remedy = UNTRUSTED
    said = message if place.what is None else f"{place.what}: {message}"
    return error(code, said, location=Location(file=place.file, offset=place.base), remedy=remedy)
