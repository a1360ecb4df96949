"""Value trees (9.1): what a record of kind `value` may hold, and what others hold of a framework's own."""

import re
import struct

from . import forms
from .forms import bad, within
from .refusal import Refusal
from .registry import LIMITS

_INT = re.compile("-?[1-9][0-9]*")
_MAX = str(LIMITS["max-integer"])


def record_value(value):
    """Checks the value of a record of kind `value`."""
    if set(value) == {"tree"}:
        if isinstance(value["tree"], (dict, list)):
            raise bad("tree holds a bare value", "value.form").at(prefix="/tree")
        return
    _wrapped(value)


def tree(value):
    """Checks a value tree."""
    if isinstance(value, list):
        raise bad("a bare array is not a value tree", "value.form")
    if isinstance(value, dict):
        _wrapped(value)


def integer(value):
    """Checks an integer tree."""
    tree(value)
    if type(value) is not int and not (isinstance(value, dict) and "int" in value):
        raise bad("expected an integer tree")


def whole(value):
    """The integer of an integer tree; one beyond 30 digits is cut there, which leaves it beyond every bound."""
    return int(value["int"][:30]) if isinstance(value, dict) else value


def float_of(rule):
    """The check of a tree that is a float."""
    def checked(value):
        tree(value)
        if real(value) is None:
            raise bad("expected a tree that is a float", rule)
    return checked


def real(value):
    """The number of a tree that is a float; None of another one."""
    for member, layout in (("f64", ">d"), ("f32", ">f")):
        if isinstance(value, dict) and member in value:
            return struct.unpack(layout, bytes.fromhex(value[member]))[0]
    return None


def _wrapped(value):
    if len(value) != 1 or (member := next(iter(value))) not in _MEMBERS:
        raise bad("not a value tree", "value.form")
    try:
        within(f"/{member}", _MEMBERS[member], value[member])
    except Refusal as refusal:
        if refusal.rule == "value.integer":
            raise
        # Whatever else is wrong within a value tree is a breach of this one rule.
        raise Refusal("bad-member", "value.form", refusal.message, pointer=refusal.pointer) from None


def _int(value):
    if not isinstance(value, str) or not _INT.fullmatch(value) or not is_beyond(value.removeprefix("-")):
        raise bad("not an integer beyond 2^53 - 1")
    if len(value.removeprefix("-")) > LIMITS["integer-digits"]:
        raise bad("more than integer-digits digits", "value.integer", "limit")


def is_beyond(digits):
    """Whether the number is above 2^53 - 1; told by its text, which may be of any length."""
    return (len(digits), digits) > (len(_MAX), _MAX)


def _bytes(value):
    if not isinstance(value, str) or len(value) % 2 or len(value) > 2 * LIMITS["inline-bytes"]:
        raise bad("not the hex of at most inline-bytes bytes")
    forms.hexadecimal(len(value))(value)


def _map(value):
    forms.elements(forms.array("[key, value]", _key, tree))(value)
    # A string and an integer of the same digits are different keys; an integer is bare or `int`, never both.
    marks = [(type(key) is str, key["int"] if isinstance(key, dict) else str(key)) for key, _ in value]
    if len(set(marks)) != len(marks):
        raise bad("a key stands twice")


def _key(value):
    if isinstance(value, dict) and set(value) == {"int"}:
        _int(value["int"])
    elif not isinstance(value, str) and type(value) is not int:
        raise bad("a key is a string or an integer")


_MEMBERS = {
    "int": _int,
    "f64": forms.hexadecimal(16),
    "f32": forms.hexadecimal(8),
    "bytes": _bytes,
    "list": forms.elements(tree),
    "tuple": forms.elements(tree),
    "map": _map,
    "tensor": forms.tensor_identity,
    "type": forms.array("[name, value]", forms.string, tree),
}
