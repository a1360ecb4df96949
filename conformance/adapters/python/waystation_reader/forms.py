"""Forms of members that several objects share: scalars, names, lists, coordinates, and how an object's members are gone through.

A check is a function of one value that raises Refusal. Pointers are put together while a Refusal travels outwards.
"""

import re

from .refusal import Refusal
from .registry import FORBIDDEN_IN_NAMES, LIMITS, ROLES

_HEX = re.compile("[0-9a-f]*")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})")
_FEATURE = re.compile("[a-z0-9./-]{1,64}")
_PATH = re.compile("[A-Za-z0-9. _-]{1,255}(?:/[A-Za-z0-9. _-]{1,255})*")


def bad(message, rule="json.types", code="bad-member"):
    return Refusal(code, rule, message)


# --- checks made of checks


def within(prefix, check, *values):
    """Runs a check, and puts the prefix before the pointer of what it refuses."""
    try:
        return check(*values)
    except Refusal as refusal:
        raise refusal.at(prefix=prefix) from None


def members(value, table):
    """Goes through an object's members in order; `table` has the check for each name, with a `?` after one that may be left out."""
    if not isinstance(value, dict):
        raise bad("expected an object")
    checks = {name.removesuffix("?"): check for name, check in table.items()}
    for name in sorted(checks.keys() | value.keys()):
        if name not in checks:
            raise bad(f"unknown member {name!r}", "json.unknown-member").at(prefix=step(name))
        if name in value:
            within(f"/{name}", checks[name], value[name])
        elif name in table:
            raise bad(f"member {name!r} is missing", "json.unknown-member")


def step(name):
    """A member's name as a step of a JSON pointer."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def elements(check, limit=None, follows=None):
    """A list, each element of which passes the check, of at most the number that the limit allows.

    `follows` is given the list and a position: it checks that element, whose form is known, against those before it.
    """
    def checked(value):
        if not isinstance(value, list):
            raise bad("expected a list")
        for position, element in enumerate(value):
            within(f"/{position}", check, element)
            if follows is not None:
                within(f"/{position}", follows, value, position)
            if limit is not None and position >= LIMITS[limit]:
                raise bad(f"{len(value)} elements, more than {limit}", "limit.value", "limit")
    return checked


def above(key=lambda element: element, rule="json.types", code="bad-member"):
    """For `elements`: that each is strictly above the one before it, by a key."""
    def checked(value, position):
        if position and key(value[position - 1]) >= key(value[position]):
            raise bad("not strictly ascending", rule, code)
    return checked


def unique(check, key, rule):
    """A list, each element of which passes the check and has a key of its own."""
    def checked(value):
        seen = set()

        def follows(listed, position):
            found = key(listed[position])
            if found in seen:
                raise bad(f"{found!r} stands twice", rule)
            seen.add(found)
        elements(check, follows=follows)(value)
    return checked


def array(what, *checks, optional=None):
    """A list of as many elements as there are checks, each of which passes its own; `optional` checks one that may follow."""
    def checked(value):
        if not isinstance(value, list):
            raise bad(f"expected {what}")
        for position, check in enumerate(checks + (optional,) * (optional is not None)):
            if position < len(value):
                within(f"/{position}", check, value[position])
            elif check is not optional:
                raise bad(f"expected {what}")
        if len(value) > len(checks) + (optional is not None):
            raise bad(f"expected {what}")
    return checked


def nullable(check):
    def checked(value):
        if value is not None:
            check(value)
    return checked


def not_said(nothing, check, rule="identity.left-out"):
    """A member that is left out when it says nothing."""
    def checked(value):
        if value == nothing:
            raise bad(f"left out when it is {nothing!r}", rule)
        check(value)
    return checked


# --- scalars


def anything(_value):
    pass


def integer(low=0, limit="max-integer", rule="json.types"):
    def checked(value):
        if not is_count(value):
            raise bad("expected an integer of at least 0")
        if value < low:
            raise bad(f"expected an integer of at least {low}", rule)
        if value > LIMITS[limit]:
            raise bad(f"{value} is more than {limit}", "limit.value", "limit")
    return checked


def is_count(value):
    return type(value) is int and value >= 0


def hexadecimal(digits, most=None, even=False):
    """So many digits, or from so many to the most."""
    most = digits if most is None else most

    def checked(value):
        if not isinstance(value, str) or not digits <= len(value) <= most or not _HEX.fullmatch(value) or even and len(value) % 2:
            raise bad(f"expected {digits if most == digits else f'{digits} to {most}'} lower-case hexadecimal digits")
    return checked


def object_of(table):
    return lambda value: members(value, table)


def tensor_or(check):
    """`{"tensor": identity}`, or what passes the check."""
    def checked(value):
        if isinstance(value, dict):
            members(value, {"tensor": tensor_identity})
        else:
            check(value)
    return checked


def one_of(*allowed):
    def checked(value):
        if not isinstance(value, str) or value not in allowed:
            raise bad(f"expected one of {', '.join(allowed)}")
    return checked


def boolean(value):
    if type(value) is not bool:
        raise bad("expected true or false")


def string(value):
    if not isinstance(value, str):
        raise bad("expected a string")


def name(value):
    """A name in the sense of identity.name."""
    string(value)
    size = len(value.encode("utf-8"))
    if not 1 <= size <= LIMITS["name-bytes"]:
        raise bad(f"a name of {size} bytes", "identity.name", "bad-name")
    if FORBIDDEN_IN_NAMES.search(value):
        raise bad("a name with a control or bidirectional character", "identity.name", "bad-name")


def _name_or_empty(value):
    if value != "":
        name(value)


def role(value):
    string(value)
    if value not in ROLES:
        raise bad(f"role {value!r} is not in the registry", "identity.role", "unsupported-role")


def version(value):
    string(value)
    matched = _VERSION.fullmatch(value)
    if not matched:
        raise bad("expected two integers below 10000 joined by a dot", "version.form")
    if matched[1] != "1":
        raise bad(f"version {value}, this reader knows 1.n", "version.major", "unsupported-version")


def path(value):
    """A logical path of an attachment."""
    string(value)
    if not _PATH.fullmatch(value) or len(value) > LIMITS["path-bytes"] or {".", ".."} & set(value.split("/")):
        raise bad("not a logical path", "attachment.path", "bad-path")


def features(value):
    def feature(element):
        string(element)
        if not _FEATURE.fullmatch(element):
            raise bad("not the name of a feature", "feature.form")

    names = elements(feature, follows=above(rule="feature.form"))
    members(value, {"optional": names, "required": names})
    if set(value["optional"]) & set(value["required"]):
        raise bad("a feature is both optional and required", "feature.form")


# --- coordinates and identities

coordinate = elements(array("[axis, index]", name, integer()))
record_key = array("[kind, name, coordinate]", name, name, coordinate)
identity = array("[component, role, name, slot, owner, scope]", name, role, name, _name_or_empty, _name_or_empty, coordinate)


def tensor_identity(value):
    """An identity whose slot and owner go with its role; its scope is still to be held against the topology."""
    identity(value)
    goes_with_role(value[1], value[3], value[4])


def goes_with_role(role_id, slot, owner):
    """Slot and owner stand where the role requires them, and do not where it forbids them."""
    for rule, value, needed in zip(("identity.slot", "identity.owner"), (slot, owner), ROLES[role_id][1:]):
        if needed is not None and needed != (value != ""):
            member = rule.removeprefix("identity.")
            raise bad(f"role {role_id} {'requires' if needed else 'forbids'} {member}", rule, "bad-identity")


def on_topology(value, topology, rule):
    """Axes of the topology, in its order, each once, each index below the size."""
    order = {axis: (position, size) for position, (axis, size) in enumerate(topology)}
    last = -1
    for axis, index in value:
        position, size = order.get(axis, (-1, 0))
        if position <= last:
            raise bad(f"axis {axis!r} is not of the topology or out of its order", rule, "bad-identity")
        if index >= size:
            raise bad(f"index {index} of axis {axis!r} is not below {size}", rule, "bad-identity")
        last = position
