"""Canonical JSON (chapter 2): one value, one byte string.

`parse` first takes the fast way - parse leniently, write canonically, compare. Where that fails, a strict scanner finds the
first byte at which no valid text goes on, and which rule it breaks.
"""

import json
import re

from .refusal import Refusal
from .registry import LIMITS

MAX = LIMITS["max-integer"]
DEPTH = LIMITS["json-depth"]


def dump(value):
    """The canonical bytes of a value."""
    return text(value).encode("utf-8")


def text(value):
    """The canonical form of a value, as a string."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def parse(data):
    """The object that the canonical bytes hold."""
    try:
        value = _DECODER.decode(data.decode("utf-8"))
        _walk(value, 1)
        if isinstance(value, dict) and dump(value) == data:
            return value
    except (ValueError, RecursionError):
        pass
    _Scanner(data).document()
    raise Refusal("not-canonical", "json.canonical", "the text is not the canonical form of its value", offset=0)


def _refuse_number(found):
    raise ValueError(found)


_DECODER = json.JSONDecoder(parse_float=_refuse_number, parse_constant=_refuse_number)


def _walk(value, depth):
    if isinstance(value, dict):
        if depth > DEPTH:
            raise ValueError("depth")
        for name, member in value.items():
            if not _ASCII.fullmatch(name):
                raise ValueError("member name")
            _walk(member, depth + 1)
    elif isinstance(value, list):
        if depth > DEPTH:
            raise ValueError("depth")
        for element in value:
            _walk(element, depth + 1)
    elif isinstance(value, int) and not -MAX <= value <= MAX:
        raise ValueError("integer")


def parse_key(key):
    """The array whose canonical form `text` gave."""
    return json.loads(key)


_ASCII = re.compile("[ -~]*")
_PLAIN = re.compile(rb'[ !#-\[\]-\x7f]*')
_SHORT_ESCAPES = frozenset(b'"\\bfnrt')
_LOW_DIGITS = {0x30: frozenset(b"01234567bef"), 0x31: frozenset(b"0123456789abcdef")}
_DIGITS = re.compile(rb"[0-9]*")
# Lead byte range -> how many bytes follow, and the range of the first of those.
_UTF8 = (
    (0xC2, 0xDF, 1, 0x80, 0xBF), (0xE0, 0xE0, 2, 0xA0, 0xBF), (0xE1, 0xEC, 2, 0x80, 0xBF), (0xED, 0xED, 2, 0x80, 0x9F),
    (0xEE, 0xEF, 2, 0x80, 0xBF), (0xF0, 0xF0, 3, 0x90, 0xBF), (0xF1, 0xF3, 3, 0x80, 0xBF), (0xF4, 0xF4, 3, 0x80, 0x8F),
)


class _Scanner:
    """Goes through a text byte by byte and stops at the first that no valid text has there."""

    def __init__(self, data):
        self.data = data
        self.pos = 0

    def document(self):
        if self.peek() != 0x7B:
            self.fail("json.one-value", "expected an object")
        self.value(1)
        if self.pos < len(self.data):
            self.fail("json.one-value", "the file goes on after its object")

    def peek(self):
        return self.data[self.pos] if self.pos < len(self.data) else -1

    def fail(self, rule, message, code="not-canonical"):
        if self.pos >= len(self.data):
            message = "the text ends early"
        elif rule == "json.canonical" and self.data[self.pos] in b" \t\n\r":
            rule = "json.one-value"
        raise Refusal(code, rule, message, offset=self.pos)

    def expect(self, literal, rule="json.canonical"):
        for byte in literal:
            if self.peek() != byte:
                self.fail(rule, f"expected {literal.decode()}")
            self.pos += 1

    def value(self, depth):
        first = self.peek()
        if first in (0x7B, 0x5B):
            if depth > DEPTH:
                self.fail("json.depth", f"objects and arrays nest deeper than {DEPTH} (json-depth)", "limit")
            self.pos += 1
            self.object(depth) if first == 0x7B else self.array(depth)
        elif first == 0x22:
            self.pos += 1
            self.string()
        elif first == 0x2D or 0x30 <= first <= 0x39:
            self.integer()
        elif first in (0x74, 0x66, 0x6E):
            self.expect({0x74: b"true", 0x66: b"false", 0x6E: b"null"}[first], "json.literals")
        else:
            self.fail("json.literals" if first in (0x4E, 0x49, 0x2F) else "json.canonical", "expected a value")

    def array(self, depth):
        if self.peek() == 0x5D:
            self.pos += 1
            return
        while True:
            self.value(depth + 1)
            if self.peek() != 0x2C:
                break
            self.pos += 1
        self.expect(b"]")

    def object(self, depth):
        if self.peek() == 0x7D:
            self.pos += 1
            return
        before = None
        while True:
            self.expect(b'"')
            before = self.member_name(before)
            self.expect(b":")
            self.value(depth + 1)
            if self.peek() != 0x2C:
                break
            self.pos += 1
        self.expect(b"}")

    def member_name(self, before):
        """Reads a name that has to come after `before`, and stops at the first byte with which it no longer can."""
        name = ""
        above = before is None
        while True:
            byte = self.peek()
            if byte == 0x22:
                if not above:
                    self.fail("json.members", "member names are not strictly ascending")
                self.pos += 1
                return name
            if not 0x20 <= byte <= 0x7E:
                self.fail("json.ascii-members", "a member name has a character outside U+0020 to U+007E")
            # The least that this character has to be; None when any will do.
            least = None if above or len(name) >= len(before) else before[len(name)]
            if byte == 0x5C:
                if least is not None and least > "\\":
                    self.fail("json.members", "member names are not strictly ascending")
                self.pos += 1
                byte = self.peek()
                if byte not in (0x22, 0x5C):
                    self.fail("json.strings", "an escape that a member name cannot have")
            if least is None:
                above = True
            elif chr(byte) < least:
                self.fail("json.members", "member names are not strictly ascending")
            elif chr(byte) > least:
                above = True
            name += chr(byte)
            self.pos += 1

    def integer(self):
        if self.peek() == 0x2D:
            self.pos += 1
            if not 0x31 <= self.peek() <= 0x39:
                self.fail("json.integers", "expected a digit 1 to 9 after the minus sign")
        start = self.pos
        if self.peek() == 0x30:
            self.pos += 1
        else:
            end = _DIGITS.match(self.data, start).end()
            if end - start >= 16:
                over = int(self.data[start:start + 16]) > MAX
                if over or end - start > 16:
                    self.pos = start + (15 if over else 16)
                    self.fail("json.integers", "an integer beyond 2^53 - 1")
            self.pos = end
        if 0x30 <= self.peek() <= 0x39 or self.peek() in (0x2E, 0x65, 0x45):
            self.fail("json.integers", "a number that is not an integer in its one form")

    def string(self):
        while True:
            self.pos = _PLAIN.match(self.data, self.pos).end()
            byte = self.peek()
            if byte == 0x22:
                self.pos += 1
                return
            if byte == 0x5C:
                self.pos += 1
                self.escape()
            elif byte < 0x20:
                self.fail("json.strings", "a control character that is not escaped")
            else:
                self.multibyte(byte)

    def escape(self):
        byte = self.peek()
        if byte != 0x75:
            if byte not in _SHORT_ESCAPES:
                self.fail("json.strings", "an escape that is not canonical")
            self.pos += 1
            return
        self.pos += 1
        self.expect(b"00", "json.strings")
        high = self.peek()
        if high not in (0x30, 0x31):
            self.fail("json.strings", "an escape that is not canonical")
        self.pos += 1
        if self.peek() not in _LOW_DIGITS[high]:
            self.fail("json.strings", "an escape that is not canonical")
        self.pos += 1

    def multibyte(self, lead):
        for low, high, count, first, last in _UTF8:
            if low <= lead <= high:
                break
        else:
            self.fail("json.encoding", "not UTF-8")
        for _ in range(count):
            self.pos += 1
            if not first <= self.peek() <= last:
                self.fail("json.encoding", "not UTF-8")
            first, last = 0x80, 0xBF
        self.pos += 1
