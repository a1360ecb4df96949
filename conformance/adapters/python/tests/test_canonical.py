"""Canonical JSON: what is accepted, and the offset and rule of what is not.

An offset within a wrong token is this parser's own choice.
"""

import json
import random
import unittest

from waystation_reader import canonical
from waystation_reader.refusal import Refusal

REFUSED = [
    # (text, offset, rule)
    (b"", 0, "json.one-value"),
    (b"[]", 0, "json.one-value"),
    (b"\xef\xbb\xbf{}", 0, "json.one-value"),
    (b" {}", 0, "json.one-value"),
    (b"{}\n", 2, "json.one-value"),
    (b"{}{}", 2, "json.one-value"),
    (b'{"a": 1}', 5, "json.one-value"),
    (b'{"a":1,}', 7, "json.canonical"),
    (b'{"a":1', 6, "json.canonical"),
    (b'{"a":[1,]}', 8, "json.canonical"),
    (b'{"a" :1}', 4, "json.one-value"),
    (b'{"b":1,"a":2}', 8, "json.members"),
    (b'{"a":1,"a":2}', 8, "json.members"),
    (b'{"ab":1,"a":2}', 9, "json.members"),
    (b'{"abc":1,"abb":2}', 10, "json.members"),
    (b'{"a#":1,"a\\"":2}', 9, "json.members"),
    (b'{"a]":1,"a\\"":2}', 9, "json.members"),
    (b'{"\xc3\xa9":1}', 2, "json.ascii-members"),
    (b'{"\x7f":1}', 2, "json.ascii-members"),
    (b'{"\\n":1}', 2, "json.strings"),
    (b'{"a":01}', 5, "json.integers"),
    (b'{"a":-0}', 5, "json.integers"),
    (b'{"a":+1}', 5, "json.canonical"),
    (b'{"a":1.0}', 5, "json.integers"),
    (b'{"a":1e3}', 5, "json.integers"),
    (b'{"a":9007199254740992}', 5, "json.integers"),
    (b'{"a":-9007199254740992}', 5, "json.integers"),
    (b'{"a":10000000000000000}', 5, "json.integers"),
    (b'{"a":90071992547409910}', 5, "json.integers"),
    (b'{"a":' + b"1" * 5000 + b"}", 5, "json.integers"),
    (b'{"a":NaN}', 5, "json.literals"),
    (b'{"a":Infinity}', 5, "json.literals"),
    (b'{"a":tru}', 5, "json.literals"),
    (b'{"a":/**/1}', 5, "json.literals"),
    (b'{"a":"\\/"}', 6, "json.strings"),
    (b'{"a":"\\u0041"}', 6, "json.strings"),
    (b'{"a":"\\u001F"}', 6, "json.strings"),
    (b'{"a":"\\u000a"}', 6, "json.strings"),
    (b'{"a":"\\ud83d\\ude00"}', 6, "json.strings"),
    (b'{"a":"\n"}', 6, "json.strings"),
    (b'{"a":"\xc0\x80"}', 6, "json.encoding"),
    (b'{"a":"\xe0\x80\x80"}', 6, "json.encoding"),
    (b'{"a":"\xed\xa0\x80"}', 6, "json.encoding"),
    (b'{"a":"\xf4\x90\x80\x80"}', 6, "json.encoding"),
    (b'{"a":"\xf5\x80\x80\x80"}', 6, "json.encoding"),
    (b'{"a":"\xe2\x82"}', 6, "json.encoding"),
    (b'{"a":"\xff"}', 6, "json.encoding"),
    (b'{"a":"', 6, "json.canonical"),
    (b"{'a':1}", 1, "json.canonical"),
    (b"[" * 100000, 0, "json.one-value"),
]


class Parse(unittest.TestCase):
    def refusal(self, data):
        with self.assertRaises(Refusal) as caught:
            canonical.parse(data)
        return caught.exception

    def test_refused(self):
        for data, offset, rule in REFUSED:
            with self.subTest(data=data[:40]):
                refusal = self.refusal(data)
                self.assertEqual(refusal.code, "not-canonical")
                self.assertEqual(refusal.offset, offset)
                if offset < len(data):
                    self.assertEqual(refusal.rule, rule)

    def test_accepted(self):
        for data in (
            b"{}",
            b'{"":null}',
            b'{"a":[true,false,null,0,-1,9007199254740991,-9007199254740991]}',
            '{"a":"\u00e9\u2028\U0001f600\u007f"}'.encode(),
            b'{"a":"\\"\\\\\\b\\t\\n\\f\\r\\u0000\\u000b\\u001f"}',
            b'{"\\"":1,"#":2,"\\\\":3}',
        ):
            with self.subTest(data=data):
                self.assertEqual(canonical.dump(canonical.parse(data)), data)

    def test_depth(self):
        deepest = b'{"a":' + b"[" * 99 + b"]" * 99 + b"}"
        self.assertEqual(canonical.dump(canonical.parse(deepest)), deepest)
        refusal = self.refusal(b'{"a":' + b"[" * 100 + b"]" * 100 + b"}")
        self.assertEqual((refusal.code, refusal.rule, refusal.offset), ("limit", "json.depth", 104))
        self.assertEqual(self.refusal(b'{"a":' + b"[" * 100000).code, "limit")

    def test_against_writing_again(self):
        """Whatever is changed, the parser takes exactly what is the same when it is parsed leniently and written again."""
        seed = '{"a":[1,-20,"x\\"\\u001f\u00e9\U0001f600"],"ab":{"b":null,"c\\\\":true},"z":9007199254740991}'.encode()
        choice = random.Random(1)
        accepted = 0
        for _ in range(20000):
            data = bytearray(seed)
            for _ in range(choice.randint(1, 2)):
                spot = choice.randrange(len(data))
                action = choice.randrange(3)
                if action == 0:
                    data[spot] = choice.choice(b'{}[]",:\\0129azn \x00\x7f\xc3\xe9\xf0\xff')
                elif action == 1:
                    del data[spot]
                else:
                    data.insert(spot, choice.choice(b'{}[]",:\\0129azu \x80'))
            data = bytes(data)
            expected = self.leniently(data)
            accepted += expected is not None
            try:
                self.assertEqual(canonical.parse(data), expected, data)
            except Refusal as refusal:
                self.assertIsNone(expected, data)
                self.assertLessEqual(refusal.offset, len(data))
        self.assertGreater(accepted, 1000)

    @staticmethod
    def leniently(data):
        """The value of the data where writing it again gives the data, else None."""
        def integer(digits):
            if abs(int(digits)) >= 1 << 53:
                raise ValueError(digits)
            return int(digits)

        def members(pairs):
            if not all(" " <= character <= "~" for name, _ in pairs for character in name):
                raise ValueError(pairs)
            return dict(pairs)

        try:
            value = json.loads(data.decode(), parse_int=integer, object_pairs_hook=members)
            return value if isinstance(value, dict) and canonical.dump(value) == data else None
        except ValueError:
            return None


if __name__ == "__main__":
    unittest.main()
