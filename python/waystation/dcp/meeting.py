"""How ranks that save without collectives let rank 0 compare what they hold alike: by files beside their parts.

Each rank puts its digests into the directory of the save before its part; rank 0 reads them all before it commits, and
takes them away. Where they differ it leaves a file that says so, for whoever waits for the commit. All have names of
temporary files, which no reader looks at. Knows files and digests; it must not know plans or tensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from ..errors import Error, error, usage
from ..progress import Report
from ..waiting import until
from .replicas import Digests, Place

_REFUSED = "tmp-digests-differ"


def _file(path: str, rank: int) -> str:
    return os.path.join(path, f"tmp-digests-{rank:05d}")


def say(path: str, rank: int, digests: Mapping[Place, int]) -> None:
    """Puts what this rank holds where rank 0 looks for it."""
    _put(_file(path, rank), json.dumps([[key, start, found] for (key, start), found in digests.items()]))


def hear(path: str, ranks: int, deadline: float, progress: Report | None) -> tuple[list[Digests], list[Place]]:
    """What all ranks hold, once all have said it. Raises `not-committed` after `deadline` seconds."""

    def missing() -> list[int]:
        return [rank for rank in range(ranks) if not os.path.exists(_file(path, rank))]

    if until(lambda: None if missing() else True, deadline, "waiting for the other ranks", progress) is None:
        raise usage(
            f"of the ranks that save {path}, {missing()[:8]} said nothing within {deadline:g} s", "not-committed"
        )
    heard: list[Digests] = []
    places: dict[Place, None] = {}
    for rank in range(ranks):
        with open(_file(path, rank), encoding="utf-8") as file:
            said = {(key, tuple(start)): found for key, start, found in json.load(file)}
        heard.append(Digests.of(rank, said))
        places.update(dict.fromkeys(said))
    return heard, list(places)


def clear(path: str, ranks: int) -> None:
    """Takes the digests away."""
    for rank in range(ranks):
        os.unlink(_file(path, rank))


def take_back(path: str, part: str) -> None:
    """Removes a part for good: without it the attempt is one that was cut short, for everybody."""
    os.unlink(os.path.join(path, part))
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def refuse(path: str, why: Error) -> None:
    """Leaves word for the other ranks that there will be no commit."""
    _put(os.path.join(path, _REFUSED), why.message)


def refused(path: str) -> Error | None:
    """What rank 0 has left, if it has."""
    try:
        with open(os.path.join(path, _REFUSED), encoding="utf-8") as file:
            return error("state-disagree", file.read())
    except FileNotFoundError:
        return None


def _put(path: str, text: str) -> None:
    """Whole or not at all, as far as other ranks see. Nobody needs it after a crash."""
    with open(f"{path}-unfinished", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}-unfinished", path)
