"""A machine for pickles that cannot run anything.

It knows the opcodes of protocols 2 to 5 and what they do to a stack. What a pickle calls a global is looked up in a
table of the caller's and nowhere else: nothing is imported, and a global that the table lacks becomes an `Unknown`,
inert, that stands in the result where its value would. Calls (REDUCE, NEWOBJ) reach the makers of that table only,
BUILD reaches objects that say they can be built only. Time and memory are bounded by the length of the pickle:
lengths are checked before anything is taken, memo indices allocate nothing, and keys whose hashes a file could choose
are not hashed.

What the result holds is a graph: a container may stand in two places, or in itself. `waystation.interop.walk` unfolds
it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from .refusal import Place, refuse

MAX_OBJECTS: Final = 64_000_000
"""Objects that one pickle may make: some gigabytes at the worst."""
MAX_INT_BYTES: Final = 128
"""Length of an integer: no state has longer ones, and text of long integers takes quadratic time."""
SAFE_KEY: Final = 1 << 60
"""Integers below this hash to themselves; a table of greater ones can be made to collide."""


class Inert:
    """The base of what stands for an object of a foreign class."""

    __slots__ = ()

    def build(self, state: object) -> None:
        """Takes the state of a BUILD; most objects have none."""
        raise ValueError("this object takes no state")


class Unknown(Inert):
    """Something of a class that is not in the table: what it would have been, and nothing of what it says."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def build(self, state: object) -> None:
        """Its state is not looked at."""


class Global(Inert):
    """A class or function of the table. `make` gets the arguments of a call; without it, a call is refused."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Callable[[tuple[object, ...]], object] | None = None) -> None:
        self.name = name
        self.make = make


class OddKey(Inert):
    """A key of a mapping that is neither text nor a small integer; apart, so that it is not hashed by value."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class SetOf(Inert):
    """The elements of a `set` or `frozenset`, in the order of the pickle."""

    __slots__ = ("frozen", "items")

    def __init__(self, items: list[object], *, frozen: bool) -> None:
        self.items = items
        self.frozen = frozen


class _Mark:
    __slots__ = ()


_MARK: Final = _Mark()
_Find = Callable[[str, str], "Global | Inert | None"]


def load(
    data: bytes,
    find: _Find,
    *,
    place: Place,
    persistent: Callable[[object], object] | None = None,
    max_objects: int = MAX_OBJECTS,
) -> tuple[object, tuple[str, ...]]:
    """What a pickle says, and the names of globals that `find` does not know, each once.

    `find(module, name)` answers None for those. Raises `bad-argument` for what is no well-formed pickle of protocols
    2 to 5 or calls what cannot be called, `limit` for one that makes too much.
    """
    machine = _Machine(data, find, place, persistent, max_objects)
    return machine.run(), tuple(machine.unknown)


class _Stop(Exception):
    """The opcode STOP."""


class _Machine:
    def __init__(
        self, data: bytes, find: _Find, place: Place, persistent: Callable[[object], object] | None, max_objects: int
    ) -> None:
        self.data = data
        self.find = find
        self.place = place
        self.persistent = persistent
        self.room = max_objects
        self.at = 0
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}
        self.unknown: dict[str, None] = {}

    def run(self) -> object:
        data, stack, memo = self.data, self.stack, self.memo
        push = stack.append
        end = len(data)
        at = start = 0
        try:
            if end < 2 or data[0] != 0x80:
                raise ValueError("it does not begin as a pickle of protocol 2 or newer does")
            while True:
                start = at
                if at >= end:
                    raise ValueError("it ends without a STOP")
                op = data[at]
                # What most of a pickle is made of, without a call.
                if op == 0x68 and at + 1 < end:  # BINGET
                    push(memo[data[at + 1]])
                    at += 2
                elif op == 0x94:  # MEMOIZE
                    value = stack[-1] if stack else _MARK
                    if value is _MARK:
                        raise ValueError("an opcode needs a value that is not there")
                    memo[len(memo)] = value
                    at += 1
                elif op == 0x6A and at + 4 < end:  # LONG_BINGET
                    push(memo[int.from_bytes(data[at + 1 : at + 5], "little")])
                    at += 5
                elif op == 0x29:  # EMPTY_TUPLE
                    push(())
                    at += 1
                elif op == 0x4B and at + 1 < end:  # BININT1
                    push(data[at + 1])
                    at += 2
                else:
                    method = _OPS.get(op)
                    if method is None:
                        raise ValueError(_why_not(op))
                    self.at = at + 1
                    method(self)
                    at = self.at
        except _Stop:
            pass
        except KeyError:
            raise refuse("a pickle reads a memo that it never wrote", self.place.at(start)) from None
        except (ValueError, UnicodeError) as e:
            raise refuse(f"not a pickle that can be read: {e}", self.place.at(start)) from None
        if self.at != end:
            raise refuse("bytes follow the end of the pickle", self.place.at(self.at))
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise refuse("the pickle does not leave one value", self.place.at(start))
        return self.stack[0]

    # What opcodes are made of.

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise ValueError(f"{count} bytes are stated, {len(self.data) - self.at} are left")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 1024)
        if end < 0:
            raise ValueError("a name does not end")
        return self.take(end + 1 - self.at)[:-1].decode("utf-8")

    def made(self, value: object, count: int = 1) -> None:
        self.room -= count
        if self.room < 0:
            raise refuse(
                "the pickle makes more objects than allowed",
                self.place.at(self.at),
                code="limit",
                remedy="Raise `max_objects` if the file is trusted and memory allows.",
            )
        self.stack.append(value)

    def top(self) -> object:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("an opcode needs a value that is not there")
        return self.stack[-1]

    def pop(self) -> object:
        value = self.top()
        del self.stack[-1]
        return value

    def pop_mark(self) -> list[object]:
        stack = self.stack
        for index in range(len(stack) - 1, -1, -1):
            if stack[index] is _MARK:
                items = stack[index + 1 :]
                del stack[index:]
                return items
        raise ValueError("an opcode needs a MARK that is not there")

    def arguments(self) -> tuple[object, ...]:
        arguments = self.pop()
        if not isinstance(arguments, tuple):
            raise ValueError("the arguments of a call are no tuple")
        return arguments

    def call(self, function: object, arguments: tuple[object, ...]) -> object:
        if isinstance(function, Unknown):
            return Unknown(function.name)
        if not isinstance(function, Global):
            raise ValueError("a call of something that is no class and no function")
        if function.make is None:
            raise ValueError(f"{function.name} cannot be called")
        try:
            return function.make(arguments)
        except (TypeError, ValueError, OverflowError) as e:
            raise ValueError(f"{function.name}: {e}") from None

    # Opcodes.

    def op_proto(self) -> None:
        version = self.number(1)
        if not 2 <= version <= 5:
            raise ValueError(f"protocol {version}, expected 2 to 5")

    def op_frame(self) -> None:
        length = self.number(8)
        if length > len(self.data) - self.at:
            raise ValueError(f"a frame of {length} bytes where {len(self.data) - self.at} are left")

    def op_stop(self) -> None:
        raise _Stop

    def op_mark(self) -> None:
        self.made(_MARK)

    def op_pop(self) -> None:
        if not self.stack:
            raise ValueError("an opcode needs a value that is not there")
        del self.stack[-1]

    def op_pop_mark(self) -> None:
        self.pop_mark()

    def op_dup(self) -> None:
        self.made(self.top())

    def op_none(self) -> None:
        self.stack.append(None)

    def op_true(self) -> None:
        self.stack.append(True)

    def op_false(self) -> None:
        self.stack.append(False)

    def op_binint(self) -> None:
        self.made(int.from_bytes(self.take(4), "little", signed=True))

    def op_binint1(self) -> None:
        self.made(self.number(1))

    def op_binint2(self) -> None:
        self.made(self.number(2))

    def op_long1(self) -> None:
        self.long(self.number(1))

    def op_long4(self) -> None:
        self.long(self.number(4))

    def long(self, width: int) -> None:
        if width > MAX_INT_BYTES:
            raise ValueError(f"an integer of {width} bytes")
        self.made(int.from_bytes(self.take(width), "little", signed=True))

    def op_binfloat(self) -> None:
        self.made(struct.unpack(">d", self.take(8))[0])

    def op_short_text(self) -> None:
        self.text(self.number(1))

    def op_text(self) -> None:
        self.text(self.number(4))

    def op_text8(self) -> None:
        self.text(self.number(8))

    def text(self, length: int) -> None:
        # Lone surrogates are legal in Python's text and in its pickles; nothing here has a form for them.
        self.made(self.take(length).decode("utf-8"))

    def op_short_bytes(self) -> None:
        self.made(self.take(self.number(1)))

    def op_bytes(self) -> None:
        self.made(self.take(self.number(4)))

    def op_bytes8(self) -> None:
        self.made(self.take(self.number(8)))

    def op_bytearray8(self) -> None:
        self.made(bytearray(self.take(self.number(8))))

    def op_empty_tuple(self) -> None:
        self.stack.append(())

    def op_tuple1(self) -> None:
        self.made((self.pop(),))

    def op_tuple2(self) -> None:
        last = self.pop()
        self.made((self.pop(), last))

    def op_tuple3(self) -> None:
        last = self.pop()
        middle = self.pop()
        self.made((self.pop(), middle, last))

    def op_tuple(self) -> None:
        self.made(tuple(self.pop_mark()))

    def op_empty_list(self) -> None:
        self.made([])

    def op_list(self) -> None:
        self.made(self.pop_mark())

    def op_empty_dict(self) -> None:
        self.made({})

    def op_dict(self) -> None:
        items = self.pop_mark()
        made: dict[object, object] = {}
        self.put(made, items)
        self.made(made)

    def op_empty_set(self) -> None:
        self.made(SetOf([], frozen=False))

    def op_frozenset(self) -> None:
        self.made(SetOf(self.pop_mark(), frozen=True))

    def op_additems(self) -> None:
        items = self.pop_mark()
        target = self.top()
        if isinstance(target, Unknown):
            return
        if not isinstance(target, SetOf) or target.frozen:
            raise ValueError("elements for something that is no set")
        target.items.extend(items)

    def op_append(self) -> None:
        value = self.pop()
        self.extend([value])

    def op_appends(self) -> None:
        self.extend(self.pop_mark())

    def extend(self, items: list[object]) -> None:
        target = self.top()
        if isinstance(target, Unknown):
            return
        if not isinstance(target, list):
            raise ValueError("elements for something that is no list")
        target.extend(items)

    def op_setitem(self) -> None:
        value = self.pop()
        key = self.pop()
        self.put(self.top(), [key, value])

    def op_setitems(self) -> None:
        items = self.pop_mark()
        self.put(self.top(), items)

    def put(self, target: object, items: list[object]) -> None:
        if isinstance(target, Unknown):
            return
        if not isinstance(target, dict):
            raise ValueError("items for something that is no mapping")
        if len(items) % 2:
            raise ValueError("a key without a value")
        for index in range(0, len(items), 2):
            target[_key(items[index])] = items[index + 1]

    def op_binput(self) -> None:
        self.memo[self.number(1)] = self.top()

    def op_long_binput(self) -> None:
        self.memo[self.number(4)] = self.top()

    def op_memoize(self) -> None:
        self.memo[len(self.memo)] = self.top()

    def op_binget(self) -> None:
        self.stack.append(self.memo[self.number(1)])

    def op_long_binget(self) -> None:
        self.stack.append(self.memo[self.number(4)])

    def op_global(self) -> None:
        module = self.line()
        self.global_(module, self.line())

    def op_stack_global(self) -> None:
        name = self.pop()
        module = self.pop()
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("the name of a global is no text")
        self.global_(module, name)

    def global_(self, module: str, name: str) -> None:
        found = self.find(module, name)
        if found is None:
            # Escaped, for it goes into messages and onto terminals.
            shown = f"{module}.{name}"[:200].encode("unicode_escape").decode("ascii")
            self.unknown[shown] = None
            found = Unknown(shown)
        self.made(found)

    def op_reduce(self) -> None:
        arguments = self.arguments()
        self.made(self.call(self.pop(), arguments))

    def op_newobj(self) -> None:
        arguments = self.arguments()
        self.made(self.call(self.pop(), arguments))

    def op_newobj_ex(self) -> None:
        named = self.pop()
        arguments = self.arguments()
        function = self.pop()
        if named and not isinstance(function, Unknown):
            raise ValueError("a call with named arguments")
        self.made(self.call(function, arguments))

    def op_build(self) -> None:
        state = self.pop()
        target = self.top()
        build = getattr(target, "build", None) if isinstance(target, (Inert, Odict)) else None
        if build is None:
            raise ValueError("state for something that takes none")
        build(state)

    def op_binpersid(self) -> None:
        if self.persistent is None:
            raise ValueError("it refers to something outside of it")
        self.made(self.persistent(self.pop()))


class Odict(dict[object, object]):
    """A mapping of a class of `collections`; `kind` is the class's name there."""

    __slots__ = ("attributes", "kind")

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.attributes: dict[object, object] = {}

    def build(self, state: object) -> None:
        """Attributes that were set on the mapping, such as `_metadata` of a module's state."""
        if not isinstance(state, dict):
            raise ValueError("state that is no mapping")
        self.attributes.update(state)


def put_pairs(target: dict[object, object], pairs: object) -> None:
    """Puts `(key, value)` pairs, or those of a mapping, as the machine puts items."""
    for pair in list(pairs.items()) if isinstance(pairs, dict) else pairs if isinstance(pairs, list) else [None]:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError("expected pairs of a key and a value")
        target[_key(pair[0])] = pair[1]


def _key(key: object) -> object:
    """The key itself where its hash cannot be chosen by a file, else a stand-in that equals only itself."""
    kind = type(key)
    if kind is str or kind is bytes or isinstance(key, Inert):
        return key
    if kind is int and -SAFE_KEY < key < SAFE_KEY:  # type: ignore[operator]
        return key
    return OddKey(key)


_OPS: Final[dict[int, Callable[[_Machine], None]]] = {
    0x80: _Machine.op_proto,
    0x95: _Machine.op_frame,
    0x2E: _Machine.op_stop,
    0x28: _Machine.op_mark,
    0x30: _Machine.op_pop,
    0x31: _Machine.op_pop_mark,
    0x32: _Machine.op_dup,
    0x4E: _Machine.op_none,
    0x88: _Machine.op_true,
    0x89: _Machine.op_false,
    0x4A: _Machine.op_binint,
    0x4B: _Machine.op_binint1,
    0x4D: _Machine.op_binint2,
    0x8A: _Machine.op_long1,
    0x8B: _Machine.op_long4,
    0x47: _Machine.op_binfloat,
    0x8C: _Machine.op_short_text,
    0x58: _Machine.op_text,
    0x8D: _Machine.op_text8,
    0x43: _Machine.op_short_bytes,
    0x42: _Machine.op_bytes,
    0x8E: _Machine.op_bytes8,
    0x96: _Machine.op_bytearray8,
    0x29: _Machine.op_empty_tuple,
    0x85: _Machine.op_tuple1,
    0x86: _Machine.op_tuple2,
    0x87: _Machine.op_tuple3,
    0x74: _Machine.op_tuple,
    0x5D: _Machine.op_empty_list,
    0x6C: _Machine.op_list,
    0x7D: _Machine.op_empty_dict,
    0x64: _Machine.op_dict,
    0x8F: _Machine.op_empty_set,
    0x91: _Machine.op_frozenset,
    0x90: _Machine.op_additems,
    0x61: _Machine.op_append,
    0x65: _Machine.op_appends,
    0x73: _Machine.op_setitem,
    0x75: _Machine.op_setitems,
    0x71: _Machine.op_binput,
    0x72: _Machine.op_long_binput,
    0x94: _Machine.op_memoize,
    0x68: _Machine.op_binget,
    0x6A: _Machine.op_long_binget,
    0x63: _Machine.op_global,
    0x93: _Machine.op_stack_global,
    0x52: _Machine.op_reduce,
    0x81: _Machine.op_newobj,
    0x92: _Machine.op_newobj_ex,
    0x62: _Machine.op_build,
    0x51: _Machine.op_binpersid,
}

_REFUSED: Final = {
    0x69: "INST",
    0x6F: "OBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x50: "PERSID",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
    0x49: "INT",
    0x4C: "LONG",
    0x53: "STRING",
    0x54: "BINSTRING",
    0x55: "SHORT_BINSTRING",
    0x56: "UNICODE",
    0x46: "FLOAT",
    0x70: "PUT",
    0x67: "GET",
}


def _why_not(op: int) -> str:
    name = _REFUSED.get(op)
    if name is None:
        return f"{op:#04x} is no opcode"
    return f"the opcode {name} is never run here: no file that PyTorch writes by protocol 2 or newer has it"
