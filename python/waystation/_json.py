"""Canonical JSON (chapter 2 of the specification): one text for one value, integers only."""

from __future__ import annotations

import json
from typing import Any

from .errors import usage

_EXACT = 2**53 - 1


def canonical(value: Any) -> str:
    """The canonical text of a value: None, booleans, integers within ±(2^53 − 1), strings, lists, tuples, and dicts
    whose keys are strings.

    Raises `bad-argument` for anything else, with the place.
    """
    _check(value, "")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _check(value: Any, at: str) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        if not -_EXACT <= value <= _EXACT:
            raise usage(f"at {at or '/'}: {value} is beyond the integers that metadata hold, ±(2^53 − 1)")
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            _check(item, f"{at}/{index}")
    elif kind is dict:
        for name, item in value.items():
            if type(name) is not str:
                raise usage(f"at {at or '/'}: a member's name is a string, not {name!r}")
            _check(item, f"{at}/{name}")
    else:
        raise usage(f"at {at or '/'}: {kind.__name__} is no type of metadata; floats stand as their bits")
