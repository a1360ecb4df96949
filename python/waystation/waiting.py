"""Waiting for what another rank puts into a shared directory, without a word to it.

It knows a clock and a file's form; it must not know who writes it. Looking again is done ever more seldom, up to twice
a second: thousands of ranks may be looking at one file server.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import TypeVar

from .progress import Report

__all__ = ["commit_file", "until"]

_Found = TypeVar("_Found")
_FIRST, _LAST, _GROWTH = 0.005, 0.5, 1.5
_COMMIT = re.compile(rb"([0-9a-f]{64})  manifest\.json\n")


def until(
    look: Callable[[], _Found | None], deadline: float, what: str, progress: Report | None = None
) -> _Found | None:
    """What `look` gives as soon as it gives anything; None when `deadline` seconds have passed.

    `progress(what, 0, 0)` is called between two looks; what it raises ends the waiting.
    """
    end = time.monotonic() + deadline
    pause = _FIRST
    while True:
        found = look()
        if found is not None:
            return found
        left = end - time.monotonic()
        if left <= 0:
            return None
        if progress is not None:
            progress(what, 0, 0)
        time.sleep(min(pause, left))
        pause = min(pause * _GROWTH, _LAST)


def commit_file(path: str) -> str | None:
    """The digest in the commit file of the attempt at `path`; None while there is none.

    The file comes into being whole. One of another form is left to whoever opens the checkpoint, and waited out here.
    """
    try:
        with open(os.path.join(path, "waystation.commit"), "rb") as file:
            found = _COMMIT.fullmatch(file.read(81))
    except FileNotFoundError:
        return None
    return None if found is None else found[1].decode("ascii")
