"""What is read is what was written: tensors cut into boxes, regions, companions, aliases."""

import random
import tempfile
import unittest
from itertools import product
from math import prod

from tests import support
from waystation_reader.checkpoint import open_checkpoint
from waystation_reader.refusal import Refusal


def packed(values, bits):
    number = sum(value << (position * bits) for position, value in enumerate(values))
    return number.to_bytes((len(values) * bits + 7) // 8, "little")


def elements(shape, at, extent):
    strides = [prod(shape[axis + 1:]) for axis in range(len(shape))]
    return [sum(i * s for i, s in zip(point, strides)) for point in product(*(range(a, a + e) for a, e in zip(at, extent)))]


class Read(unittest.TestCase):
    def opened(self, checkpoint):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        checkpoint.write(folder.name)
        opened = open_checkpoint(folder.name)
        self.addCleanup(opened.directory.close)
        return opened

    def test_regions_of_every_width(self):
        choice = random.Random(10)
        shape = [3, 4, 5]
        cuts = [[0, 1, 3], [0, 4], [0, 2, 5]]
        boxes = []
        for corner in product(*(range(len(cut) - 1) for cut in cuts)):
            at = [cut[i] for cut, i in zip(cuts, corner)]
            boxes.append((at, [cut[i + 1] - cut[i] for cut, i in zip(cuts, corner)]))
        tensors, written = [], {}
        for dtype, bits in support.BITS.items():
            values = [choice.randrange(1 << bits) for _ in range(prod(shape))]
            entry = {"dtype": dtype, "name": dtype, "role": "param", "shape": shape}
            data = [packed([values[i] for i in elements(shape, *box)], bits) for box in boxes]
            tensors.append((entry, boxes, data))
            written[dtype] = values, bits
        checkpoint = self.opened(support.Checkpoint([support.Writer(0, tensors)]))
        for dtype, (values, bits) in written.items():
            tensor = checkpoint.find(support.canon(["main", "param", dtype, "", "", []]).decode())
            self.assertEqual(bytes(checkpoint.read(tensor)), packed(values, bits))
            for _ in range(20):
                start = [choice.randint(0, size) for size in shape]
                extent = [choice.randint(0, size - first) for first, size in zip(start, shape)]
                expected = packed([values[i] for i in elements(shape, start, extent)], bits)
                self.assertEqual(bytes(checkpoint.read(tensor, start, extent)), expected, (dtype, start, extent))
            for start, extent in (([0, 0], [1, 1]), ([0, 0, 0], [4, 1, 1]), ([3, 0, 0], [1, 1, 1]), ([-1, 0, 0], [1, 1, 1])):
                with self.assertRaises(Refusal) as caught:
                    checkpoint.read(tensor, start, extent)
                self.assertEqual((caught.exception.code, caught.exception.rule), ("bad-region", "read.region"))

    def test_flat_companion(self):
        rows = {"block": 4, "dtype": "U8", "name": "q", "role": "quant", "shape": [4, 6], "slot": "scale"}
        columns = rows | {"name": "c"}
        ragged = rows | {"name": "r", "shape": [9]}
        r0, r1 = support.halves([4, 6])
        checkpoint = self.opened(support.Checkpoint([support.Writer(0, [
            (rows, [r0, r1], [b"abc", b"def"]),
            (columns, support.halves([4, 6], 1), [b"xyz", b"uvw"]),
            (ragged, support.whole([9]), [b"123"]),
        ])]))

        def read(name, *region):
            key = support.canon(["main", "quant", name, "scale", "", []]).decode()
            return bytes(checkpoint.read(checkpoint.find(key), *region))

        self.assertEqual(read("q"), b"abcdef")
        self.assertEqual(read("q", [2, 0], [2, 6]), b"def")
        self.assertEqual(read("q", [0, 0], [1, 4]), b"a")
        self.assertEqual(read("r"), b"123")
        self.assertEqual(read("r", [4], [5]), b"23")
        self.assertEqual(read("q", [0, 0], [0, 6]), b"")
        for name, *region in (("q", [0, 0], [1, 6]), ("q", [0, 0], [4, 4]), ("q", [0, 2], [1, 4]), ("c",), ("r", [0], [3])):
            with self.assertRaises(Refusal) as caught:
                read(name, *region)
            self.assertEqual(caught.exception.code, "block-boundary")

    def test_alias(self):
        checkpoint = self.opened(support.tiny())
        alias = checkpoint.find(support.canon(["main", "param", "head \u00e9\U0001f600", "", "", []]).decode())
        self.assertIs(alias, checkpoint.find('["main","param","w","","",[]]'))
        with self.assertRaises(Refusal) as caught:
            checkpoint.find('["main","param","nowhere","","",[]]')
        self.assertEqual(caught.exception.code, "not-found")

    def test_alias_of_nothing(self):
        empty = {"dtype": "F32", "name": "none", "role": "param", "shape": [0]}
        aliases = [{"name": name, "of": ["main", "param", to, "", "", []], "role": "param"}
                   for name, to in (("a", "nowhere"), ("b", "none"), ("c", "a"))]
        checkpoint = self.opened(support.Checkpoint([support.Writer(0, [(empty, [])], aliases)]))
        for name, rule in (("a", "alias.target"), ("b", "alias.elements"), ("c", "alias.target")):
            with self.assertRaises(Refusal) as caught:
                checkpoint.find(f'["main","param","{name}","","",[]]')
            self.assertEqual((caught.exception.code, caught.exception.rule), ("bad-alias", rule))

    def test_chunks_longer_than_a_block(self):
        shape = [3, 40000]
        data = [support.filler(120000, "a"), support.filler(120000, "b")]
        tensor = {"dtype": "BF16", "name": "t", "role": "param", "shape": shape}
        checkpoint = self.opened(support.Checkpoint([support.Writer(0, [(tensor, support.halves(shape, 1), data)])]))
        found = checkpoint.find('["main","param","t","","",[]]')
        rows = [data[half][row * 40000:(row + 1) * 40000] for row in range(3) for half in range(2)]
        self.assertEqual(bytes(checkpoint.read(found)), b"".join(rows))
        self.assertEqual(bytes(checkpoint.read(found, [1, 19999], [1, 2])), data[0][79998:80000] + data[1][40000:40002])


if __name__ == "__main__":
    unittest.main()
