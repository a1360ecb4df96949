"""Boxes: cover and copying against counting every element."""

import random
import unittest
from itertools import product

from waystation_reader import region


def points(at, extent):
    return product(*(range(a, a + e) for a, e in zip(at, extent)))


class Cover(unittest.TestCase):
    def test_against_counting(self):
        choice = random.Random(4)
        seen = {True: 0, False: 0}
        for _ in range(3000):
            shape = [choice.randint(1, 3) for _ in range(choice.randint(0, 3))]
            boxes = self.split(shape, choice)
            if choice.random() < 0.6:
                at = [choice.randrange(size) for size in shape]
                box = (at, [choice.randint(1, size - a) for a, size in zip(at, shape)])
                boxes[choice.randrange(len(boxes))] = box
            counts = {}
            for box in boxes:
                for point in points(*box):
                    counts[point] = counts.get(point, 0) + 1
            exact = all(counts.get(point) == 1 for point in points([0] * len(shape), shape))
            seen[exact] += 1
            self.assertEqual(region.covers_exactly(shape, boxes), exact, (shape, boxes))
        self.assertGreater(min(seen.values()), 300)

    def split(self, shape, choice):
        boxes = [([0] * len(shape), list(shape))]
        for _ in range(choice.randint(0, 4)):
            at, extent = boxes.pop(choice.randrange(len(boxes)))
            wide = [axis for axis, size in enumerate(extent) if size > 1]
            if not wide:
                boxes.append((at, extent))
                continue
            axis = choice.choice(wide)
            cut = choice.randint(1, extent[axis] - 1)
            boxes.append((at, extent[:axis] + [cut] + extent[axis + 1:]))
            far = at[:axis] + [at[axis] + cut] + at[axis + 1:]
            boxes.append((far, extent[:axis] + [extent[axis] - cut] + extent[axis + 1:]))
        return boxes

    def test_nothing_to_cover(self):
        self.assertTrue(region.covers_exactly([0, 3], []))
        self.assertFalse(region.covers_exactly([2], []))


class Elements(unittest.TestCase):
    def test_spread_and_pack(self):
        choice = random.Random(5)
        for bits in (1, 2, 4, 6, 8, 16):
            for count in range(0, 20):
                values = [choice.randrange(1 << bits) for _ in range(count)]
                number = sum(value << (position * bits) for position, value in enumerate(values))
                data = number.to_bytes(region.packed_bytes(count, bits), "little")
                spread = region.spread(data, count, bits)
                width = region.width_of(bits)
                self.assertEqual([int.from_bytes(spread[i * width:(i + 1) * width], "little") for i in range(count)], values)
                self.assertEqual(bytes(region.pack(spread, bits)), data)

    def test_copy(self):
        choice = random.Random(6)
        for _ in range(500):
            rank = choice.randint(0, 4)
            boxes = []
            for _ in range(2):
                at = [choice.randint(0, 2) for _ in range(rank)]
                boxes.append((at, [choice.randint(1, 3) for _ in range(rank)]))
            shared = region.meet(*boxes[0], *boxes[1])
            common = set(points(*boxes[0])) & set(points(*boxes[1]))
            self.assertEqual(shared is None, not common)
            if shared is None:
                continue
            self.assertEqual(set(points(*shared)), common)
            spots = [{point: i for i, point in enumerate(points(*box))} for box in boxes]
            source = bytes(range(1, 2 * len(spots[1]) + 1))
            target = bytearray(2 * len(spots[0]))
            region.copy_box(target, *boxes[0], source, *boxes[1], *shared, 2)
            for point, spot in spots[0].items():
                there = bytes(target[2 * spot:2 * spot + 2])
                expected = source[2 * spots[1][point]:2 * spots[1][point] + 2] if point in common else b"\0\0"
                self.assertEqual(there, expected)

    def test_runs(self):
        shape = [3, 2, 4]
        flat = {point: i for i, point in enumerate(points([0, 0, 0], shape))}
        for at in points([0, 0, 0], shape):
            for extent in points([1, 1, 1], [size - a for a, size in zip(at, shape)]):
                numbers = sorted(flat[point] for point in points(at, extent))
                is_run = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                found = region.run_of(shape, list(at), list(extent))
                self.assertEqual(found, (numbers[0], numbers[-1] + 1) if is_run else None)


if __name__ == "__main__":
    unittest.main()
