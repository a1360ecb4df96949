"""Identities of tensors (chapter 4 of the specification): six things, never a joined string."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._json import canonical
from ._registry import ROLES
from .errors import error, usage

NAME_BYTES = 1024
UNNAMEABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no name has in it: control characters, marks of direction, halves of surrogate pairs."""


def check_name(name: Any, what: str) -> None:
    """Refuses what is no name of the format: `bad-argument` for another type, `bad-name` for its text."""
    if type(name) is str and name.isascii() and name.isprintable() and 0 < len(name) <= NAME_BYTES:
        return  # nearly all, in a fraction of the time: a save makes many thousands of keys
    if not isinstance(name, str):
        raise usage(f"{what} is a string, not {name!r}")
    found = UNNAMEABLE.search(name)
    if found is not None:
        said = f"{what} {_short(name)} has U+{ord(found[0]):04X} in it, which no name may have"
    elif not name or len(name) > NAME_BYTES // 4 and len(name.encode()) > NAME_BYTES:
        said = f"{what} {_short(name)} has {len(name.encode())} bytes, and names have 1 to {NAME_BYTES}"
    else:
        return
    raise error("bad-name", said, rule="identity.name", remedy="Give it another name.")


def _short(name: str) -> str:
    return ascii(name if len(name) <= 80 else f"{name[:77]}...")


def _pairs(scope: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    # Most have none, and a job makes many thousands of keys.
    return () if scope == () else tuple((axis, index) for axis, index in scope)


def _fits(said: str | None, rule: str) -> bool:
    return rule != "required" if said is None else rule != "forbidden" and said != ""


class _Six(NamedTuple):
    component: str
    role: str
    name: str
    slot: str | None
    owner: str | None
    scope: tuple[tuple[str, int], ...]


class Key(_Six):
    """The identity of a tensor: a tuple `(component, role, name, slot, owner, scope)`.

    `component` is a model of the job, `role` one of the registry, `name` the parameter's or buffer's own name; `slot`
    says what the tensor is for that parameter (`adam.m`), `owner` is the name of the optimizer or average that it
    belongs to, `scope` tells apart tensors of several ranks that share a name. Raises `bad-argument` for an unknown
    role and for a slot or owner that the role forbids or lacks, `bad-name` for what no name may be.
    """

    __slots__ = ()

    def __new__(
        cls,
        component: str = "main",
        role: str = "param",
        name: str = "",
        slot: str | None = None,
        owner: str | None = None,
        scope: Iterable[tuple[str, int]] = (),
    ) -> Key:
        key = tuple.__new__(cls, (component, role, name, slot, owner, _pairs(scope)))
        known = ROLES.get(role)
        if known is None:
            raise usage(f"role {role!r} is none of {', '.join(ROLES)}", tensor=key.text)
        if not name:
            raise usage("a tensor needs a name", tensor=key.text)
        check_name(name, "the name")
        check_name(component, "the component")
        if slot:
            check_name(slot, "the slot")
        if owner:
            check_name(owner, "the owner")
        for axis, _ in key[5]:
            check_name(axis, "the axis of a scope")
        if not _fits(slot, known.slot):
            raise usage(f"role {role!r} takes slot as {known.slot}, and it is {slot!r}", tensor=key.text)
        if not _fits(owner, known.owner):
            raise usage(f"role {role!r} takes owner as {known.owner}, and it is {owner!r}", tensor=key.text)
        return key

    @classmethod
    def param(cls, name: str, *, component: str = "main", scope: Iterable[tuple[str, int]] = ()) -> Key:
        """A parameter of the model, trained or frozen."""
        return cls(component, "param", name, scope=scope)

    @classmethod
    def buffer(cls, name: str, *, component: str = "main", scope: Iterable[tuple[str, int]] = ()) -> Key:
        """A tensor of the model that no optimizer updates."""
        return cls(component, "buffer", name, scope=scope)

    @classmethod
    def optimizer(
        cls, name: str, slot: str, owner: str, *, component: str = "main", scope: Iterable[tuple[str, int]] = ()
    ) -> Key:
        """State of the optimizer `owner` for the parameter `name`."""
        return cls(component, "optimizer", name, slot, owner, scope)

    @classmethod
    def of(cls, six: tuple[str, str, str, str | None, str | None, Iterable[tuple[str, int]]]) -> Key:
        """The key that the native half says, which has checked it."""
        component, role, name, slot, owner, scope = six
        return tuple.__new__(cls, (component, role, name, slot, owner, tuple(scope)))

    @classmethod
    def from_identity(cls, identity: list[Any]) -> Key:
        """The key of an identity as metadata and value trees write it: what is not there is `""` or `[]`."""
        try:
            component, role, name, slot, owner, scope = identity
            return cls(component, role, name, slot or None, owner or None, [(axis, index) for axis, index in scope])
        except (TypeError, ValueError) as why:
            raise usage(f"{identity!r} is not an identity: {why}") from None

    @classmethod
    def from_text(cls, text: str) -> Key:
        """The key of an identity key."""
        try:
            return cls.from_identity(json.loads(text))
        except json.JSONDecodeError as why:
            raise usage(f"{text!r} is not an identity key: {why}") from None

    @property
    def identity(self) -> list[Any]:
        """As metadata and value trees write it."""
        return [
            self.component,
            self.role,
            self.name,
            self.slot or "",
            self.owner or "",
            [list(at) for at in self.scope],
        ]

    @property
    def text(self) -> str:
        """The identity key: canonical JSON. Keys are sorted by its UTF-8 bytes."""
        return canonical(self.identity)

    def __str__(self) -> str:
        return self.text
