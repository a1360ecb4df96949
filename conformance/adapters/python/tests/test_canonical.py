"""Canonical JSON: what is accepted, and the offset and rule of what is not."""

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
    (b'{"a":1,"a":2}', 9, "json.members"),
    (b'{"ab":1,"a":2}', 10, "json.members"),
    (b'{"abc":1,"abb":2}', 12, "json.members"),
    (b'{"a#":1,"a\\"":2}', 11, "json.members"),
    (b'{"a]":1,"a\\"":2}', 10, "json.members"),
    (b'{"\xc3\xa9":1}', 2, "json.ascii-members"),
    (b'{"\x7f":1}', 2, "json.ascii-members"),
    (b'{"\\n":1}', 3, "json.strings"),
    (b'{"a":01}', 6, "json.integers"),
    (b'{"a":-0}', 6, "json.integers"),
    (b'{"a":+1}', 5, "json.canonical"),
    (b'{"a":1.0}', 6, "json.integers"),
    (b'{"a":1e3}', 6, "json.integers"),
    (b'{"a":9007199254740992}', 20, "json.integers"),
    (b'{"a":-9007199254740992}', 21, "json.integers"),
    (b'{"a":10000000000000000}', 21, "json.integers"),
    (b'{"a":90071992547409910}', 21, "json.integers"),
    (b'{"a":' + b"1" * 5000 + b"}", 21, "json.integers"),
    (b'{"a":NaN}', 5, "json.literals"),
    (b'{"a":Infinity}', 5, "json.literals"),
    (b'{"a":tru}', 8, "json.literals"),
    (b'{"a":/**/1}', 5, "json.literals"),
    (b'{"a":"\\/"}', 7, "json.strings"),
    (b'{"a":"\\u0041"}', 10, "json.strings"),
    (b'{"a":"\\u001F"}', 11, "json.strings"),
    (b'{"a":"\\u000a"}', 11, "json.strings"),
    (b'{"a":"\\ud83d\\ude00"}', 8, "json.strings"),
    (b'{"a":"\n"}', 6, "json.strings"),
    (b'{"a":"\xc0\x80"}', 6, "json.encoding"),
    (b'{"a":"\xe0\x80\x80"}', 7, "json.encoding"),
    (b'{"a":"\xed\xa0\x80"}', 7, "json.encoding"),
    (b'{"a":"\xf4\x90\x80\x80"}', 7, "json.encoding"),
    (b'{"a":"\xf5\x80\x80\x80"}', 6, "json.encoding"),
    (b'{"a":"\xe2\x82"}', 8, "json.encoding"),
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
                canonical._Scanner(data).document()

    def test_depth(self):
        deepest = b'{"a":' + b"[" * 99 + b"]" * 99 + b"}"
        self.assertEqual(canonical.dump(canonical.parse(deepest)), deepest)
        refusal = self.refusal(b'{"a":' + b"[" * 100 + b"]" * 100 + b"}")
        self.assertEqual((refusal.code, refusal.rule, refusal.offset), ("limit", "json.depth", 104))
        self.assertEqual(self.refusal(b'{"a":' + b"[" * 100000).code, "limit")

    def test_both_ways_agree(self):
        """Whatever is changed, the fast way accepts exactly what the scanner accepts, and only what begins like a valid text."""
        seed = '{"a":[1,-20,"x\\"\\u001f\u00e9\U0001f600"],"ab":{"b":null,"c\\\\":true},"z":9007199254740991}'.encode()
        choice = random.Random(1)
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
            try:
                canonical._Scanner(data).document()
            except Refusal as refusal:
                self.assertEqual(self.refusal(data).offset, refusal.offset)
                self.assertLessEqual(refusal.offset, len(data))
            else:
                self.assertEqual(json.loads(data), canonical.parse(data))


if __name__ == "__main__":
    unittest.main()
