"""Canonical JSON (chapter 2): one value, one byte string. The parser takes no other, so nothing is left to compare."""

import json
import re

from .refusal import Refusal
from .registry import LIMITS

_NAME = re.compile(r'(?:[ !#-\[\]-~]|\\["\\])*')
_PLAIN = r'[^"\\\x00-\x1f]*'
_STRING = re.compile(rf'{_PLAIN}(?:\\(?:["\\bfnrt]|u00(?:0[0-7bef]|1[0-9a-f])){_PLAIN})*')
_INTEGER = re.compile("(?:0|-?[1-9][0-9]*)(?![0-9.eE])")
_LITERALS = {"n": ("null", None), "t": ("true", True), "f": ("false", False)}


def dump(value):
    """The canonical bytes of a value."""
    return text(value).encode("utf-8")


def text(value):
    """The canonical form of a value, as a string."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def parse(data):
    """The object that the canonical bytes hold."""
    sound = len(data)
    try:
        decoded = data.decode("utf-8")
    except UnicodeDecodeError as error:
        sound = error.start
        decoded = data[:sound].decode("utf-8")
    try:
        value = _Parser(decoded).document()
    except Refusal as refusal:
        if refusal.offset < sound or sound == len(data):
            raise
    if sound < len(data):
        raise Refusal("not-canonical", "json.encoding", "not UTF-8", offset=sound)
    return value


class _Parser:
    def __init__(self, source):
        self.text = source
        self.pos = 0

    def document(self):
        if self.peek() != "{":
            self.fail("json.one-value", "expected an object")
        value = self.value(1)
        if self.pos < len(self.text):
            self.fail("json.one-value", "the file goes on after its object")
        return value

    def peek(self):
        return self.text[self.pos:self.pos + 1]

    def fail(self, rule, message, code="not-canonical"):
        if self.pos >= len(self.text):
            message = "the text ends early"
        elif rule == "json.canonical" and self.peek() in " \t\n\r":
            rule = "json.one-value"
        raise Refusal(code, rule, message, offset=len(self.text[:self.pos].encode("utf-8")))

    def takes(self, character):
        if self.peek() != character:
            return False
        self.pos += 1
        return True

    def expect(self, character):
        if not self.takes(character):
            self.fail("json.canonical", f"expected {character}")

    def value(self, depth):
        first = self.peek()
        if first in ("{", "["):
            if depth > LIMITS["json-depth"]:
                self.fail("json.depth", "objects and arrays nest deeper than json-depth", "limit")
            self.pos += 1
            return self.object(depth) if first == "{" else self.array(depth)
        if self.takes('"'):
            return self.string(_STRING, "json.strings")
        if first in _LITERALS:
            literal, value = _LITERALS[first]
            if not self.text.startswith(literal, self.pos):
                self.fail("json.literals", f"expected {literal}")
            self.pos += len(literal)
            return value
        if first and first in "-0123456789":
            return self.integer()
        self.fail("json.literals" if first and first in "NI/" else "json.canonical", "expected a value")

    def array(self, depth):
        found = []
        if self.takes("]"):
            return found
        while True:
            found.append(self.value(depth + 1))
            if not self.takes(","):
                break
        self.expect("]")
        return found

    def object(self, depth):
        found = {}
        if self.takes("}"):
            return found
        before = None
        while True:
            self.expect('"')
            start = self.pos
            name = self.string(_NAME, "json.ascii-members")
            if before is not None and before >= name:
                self.pos = start
                self.fail("json.members", "member names are not strictly ascending")
            self.expect(":")
            found[name] = self.value(depth + 1)
            before = name
            if not self.takes(","):
                break
        self.expect("}")
        return found

    def string(self, form, rule):
        start, self.pos = self.pos, form.match(self.text, self.pos).end()
        if not self.takes('"'):
            self.fail("json.strings" if self.peek() == "\\" else rule, "a character or escape that cannot stand here")
        content = self.text[start:self.pos - 1]
        return json.loads(f'"{content}"') if "\\" in content else content

    def integer(self):
        found = _INTEGER.match(self.text, self.pos)
        digits = found[0].lstrip("-") if found else ""
        # Told by the number of digits first, which may be any.
        if not digits or len(digits) > 16 or int(digits) > LIMITS["max-integer"]:
            self.fail("json.integers", "not an integer in its one form within 2^53 - 1")
        self.pos = found.end()
        return int(found[0])
