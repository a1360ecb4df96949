"""What comes next in cursors, worked out by hand or by other means, and who takes it."""

import hashlib
import unittest
from unittest import mock

from waystation_reader import cursors, nodes, orders, rng
from waystation_reader.refusal import Refusal

SOURCE = {"records": 10, "sha256": "0" * 64}


def permuted(n=10, rule="wrap", position=0, epoch=0, order=None, **unit):
    order = order or {"algorithm": "identity", "n": n}
    return {"epoch": epoch, "epoch_end": {"rule": rule, **unit}, "kind": "permuted-index", "order": order, "position": position,
            "source": SOURCE | {"records": max(n, 10)}}


def laned(shards, lanes, next_lane=0, rule="wrap", order=None, epoch=0):
    source = SOURCE | {"shards": shards, "records": sum(shards)}
    return {"epoch": epoch, "epoch_end": {"rule": rule}, "kind": "sharded-lanes", "lanes": lanes, "next_lane": next_lane,
            "order": order or {"algorithm": "identity", "n": len(shards)}, "source": source}


def mixed(children, weights, end="all", taken=None):
    selection = {"algorithm": "deficit", "end": end, "taken": taken or [0] * len(weights), "weights": weights}
    return {"children": children, "kind": "mixture", "selection": selection}


def windowed(anchor, window, index=0, replay=0, reverse=False, order=None):
    order = order or {"algorithm": "identity"}
    return {"anchor": anchor, "index": index, "kind": "window-shuffle", "order": order, "replay": replay, "reverse": reverse,
            "window": window}


def rooted(node, consumed, items, **members):
    """A root whose canary is of these items."""
    sha256 = hashlib.sha256(b"".join(number.to_bytes(8, "little") for item in items for number in item)).hexdigest()
    canary = {"count": len(items), "first": [item[0] if len(item) == 1 else item for item in items[:4]], "sha256": sha256}
    return node | {"consumed": consumed, "next": canary} | members


def no_tensors(identity, count):
    raise AssertionError(identity)


def following(node, count=64):
    nodes.root(rooted(node, 100, []), [])
    return [cursors.written(item) for item in cursors.take(cursors.begin(node, no_tensors), count)]


class Orders(unittest.TestCase):
    def order(self, algorithm, n, epoch=0, budget=10**6, **members):
        order = orders.Order({"algorithm": algorithm} | members, orders.Budget(budget))
        return [order.at(epoch, n, place) for place in range(n)]

    def test_torch(self):
        """What torch.randperm gave."""
        self.assertEqual(self.order("torch.randperm-cpu", 10, seed=0, seed_rule="seed"), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2])
        forty_two = [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]
        self.assertEqual(self.order("torch.randperm-cpu", 10, epoch=7, seed=42, seed_rule="seed"), forty_two)
        self.assertEqual(self.order("torch.randperm-cpu", 10, epoch=7, seed=35, seed_rule="seed+epoch"), forty_two)
        wide = {"int": str((5 << 32) + 42)}
        self.assertEqual(self.order("torch.randperm-cpu", 10, seed=wide, seed_rule="seed"), forty_two)
        self.assertEqual(self.order("torch.randperm-cpu", 1, seed=1, seed_rule="seed"), [0])
        large = self.order("torch.randperm-cpu", 5000, seed=3, seed_rule="seed")
        self.assertEqual(sorted(large), list(range(5000)))

    def test_torch_from_anywhere(self):
        whole = self.order("torch.randperm-cpu", 100, seed=9, seed_rule="seed")
        order = orders.Order({"algorithm": "torch.randperm-cpu", "seed": 9, "seed_rule": "seed"}, orders.Budget(100))
        self.assertEqual([order.at(0, 100, place) for place in (50, 3, 99)], [whole[50], whole[3], whole[99]])
        with self.assertRaises(Refusal):
            self.order("torch.randperm-cpu", 100, budget=99, seed=9, seed_rule="seed")
        with self.assertRaises(Refusal):
            orders.Order(order.value, orders.Budget(10**6)).at(0, 214748364, 0)

    def test_torch_beyond_32_bits(self):
        """Each element goes to where the draw says, and what stood there to the end."""
        with mock.patch("waystation_reader.orders._WIDE", 50):
            found = self.order("torch.randperm-cpu", 50, seed=9, seed_rule="seed")
        outputs, expected = rng.draw("mt19937", rng.mt_of_word(9), 100), []
        for high, low in zip(outputs[::2], outputs[1::2]):
            place = (high * 2**32 + low) % (len(expected) + 1)
            expected.insert(place, len(expected))
            expected.append(expected.pop(place + 1) if place + 1 < len(expected) else expected.pop())
        self.assertEqual(found, expected)

    def test_grain(self):
        """What Grain's index_shuffle gave, and what std::seed_seq did."""
        self.assertEqual(orders.seed_sequence(7, 6), [0xF46A4240, 0x738C7738, 0x66C5A1E1, 0xD746C8B6, 0xC45D5A2B, 0x3AAE35BE])
        value = {"algorithm": "grain.index_shuffle", "rounds": 4, "seed": 42, "seed_rule": "seed"}
        order = orders.Order(value, orders.Budget(10**6))
        self.assertEqual([order.at(5, 1000, place) for place in range(8)], [394, 591, 809, 524, 88, 975, 241, 664])
        for n in (1, 2, 3, 1000):
            found = self.order("grain.index_shuffle", n, rounds=6, seed=2**32 - 1, seed_rule="seed+epoch")
            self.assertEqual(sorted(found), list(range(n)))
        self.assertEqual(order.at(0, 2**16 + 1, 2**16), order.at(0, 2**16 + 1, 0))


class Items(unittest.TestCase):
    def test_permuted(self):
        self.assertEqual(following(permuted(3, position=2), 5), [2, 0, 1, 2, 0])
        self.assertEqual(following(permuted(3, position=3), 2), [0, 1])
        self.assertEqual(following(permuted(5, "drop-last", unit=2), 6), [0, 1, 2, 3, 0, 1])
        self.assertEqual(following(permuted(5, "pad", unit=4), 9), [0, 1, 2, 3, 4, 0, 1, 2, 0])
        self.assertEqual(following(permuted(2, "pad", unit=5), 6), [0, 1, 0, 1, 0, 0])
        self.assertEqual(following(permuted(4, "stop", position=2)), [2, 3])
        self.assertEqual(following(permuted(4, "stop", position=4)), [])
        shuffled = {"algorithm": "torch.randperm-cpu", "n": 10, "seed": 35, "seed_rule": "seed+epoch"}
        self.assertEqual(following(permuted(10, position=8, epoch=6, order=shuffled), 12)[2:], [2, 6, 1, 8, 4, 5, 0, 9, 3, 7])
        explicit = {"algorithm": "explicit", "n": 3, "ordinals": [7, 7, 1]}
        self.assertEqual(following(permuted(10, order=explicit), 4), [7, 7, 1, 7])

    def test_lanes(self):
        # Shards of 2, 0, 1, 3 records: lane 0 reads places 0 and 2, lane 1 places 1, which is empty, and 3.
        begun = laned([2, 0, 1, 3], [[0, 0], [3, 0]])
        self.assertEqual(following(begun, 8), [0, 3, 1, 4, 2, 5, 0, 3])
        self.assertEqual(following(laned([2, 0, 1, 3], [[4, 0], [3, 1]], 0), 3), [4, 5, 0])
        self.assertEqual(following(laned([2, 0, 1, 3], [[0, 1], [3, 0]], 1, "stop")), [3, 1, 4, 2, 5])
        self.assertEqual(following(laned([2, 0, 1, 3], [[4, 0], [5, 0]], 1, "stop")), [])
        swapped = {"algorithm": "explicit", "n": 2, "ordinals": [1, 0]}
        self.assertEqual(following(laned([2, 1], [[0, 0]], order=swapped), 4), [2, 0, 1, 2])
        nothing = {"algorithm": "explicit", "n": 2, "ordinals": [1, 1]}
        self.assertEqual(following(laned([2, 0], [[2, 0]], order=nothing)), [])

    def test_mixture(self):
        both = [permuted(10), permuted(3, "stop")]
        self.assertEqual(following(mixed(both, [2, 1]), 7), [[0, 0], [1, 0], [0, 1], [0, 2], [1, 1], [0, 3], [0, 4]])
        self.assertEqual(following(mixed(both, [1, 1], "first")), [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]])
        self.assertEqual(following(mixed(both, [1, 3], "all"), 7), [[1, 0], [0, 0], [1, 1], [1, 2], [0, 1], [0, 2], [0, 3]])
        ends = [permuted(1, "stop"), mixed([permuted(2, "stop")], [9])]
        self.assertEqual(following(mixed(ends, [1, 1])), [[0, 0], [1, 0, 0], [1, 0, 1]])
        self.assertEqual(following(mixed(both, [1, 1], taken=[0, 4]), 5), [[0, 0], [0, 1], [0, 2], [0, 3], [0, 4]])

    def test_window(self):
        shuffled = {"algorithm": "torch.randperm-cpu", "seed": 0, "seed_rule": "seed"}
        ten = [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
        self.assertEqual(following(windowed(permuted(25), 10, order=shuffled), 20), ten + [10 + n for n in ten])
        self.assertEqual(following(windowed(permuted(25), 10, replay=8, reverse=True, order=shuffled), 4), [1, 4, 12, 16])
        self.assertEqual(following(windowed(permuted(10, "stop", position=5), 3, replay=1, reverse=True)), [6, 5, 9, 8])
        self.assertEqual(following(windowed(permuted(10, "stop", position=8), 3, replay=2)), [])
        by_index = shuffled | {"seed": 35, "seed_rule": "seed+epoch"}
        self.assertEqual(following(windowed(permuted(10), 10, index=7, order=by_index), 10), [2, 6, 1, 8, 4, 5, 0, 9, 3, 7])
        nested = windowed(mixed([permuted(4, "stop"), permuted(4)], [1, 1]), 3, reverse=True)
        self.assertEqual(following(nested, 6), [[0, 1], [1, 0], [0, 0], [1, 2], [0, 2], [1, 1]])
        with self.assertRaises(Refusal) as caught:
            following(mixed([windowed(permuted(10, "stop", position=8), 3, replay=3)], [1]))
        self.assertEqual((caught.exception.rule, caught.exception.pointer), ("cursor.replay", "/children/0/replay"))


class Canary(unittest.TestCase):
    def mismatch(self, cursor):
        with self.assertRaises(Refusal) as caught:
            cursors.check_canary(cursor, no_tensors)
        self.assertEqual((caught.exception.code, caught.exception.rule), ("canary-mismatch", "cursor.canary"))
        return caught.exception.pointer

    def test_canary(self):
        items = [[n % 10] for n in range(8, 20)]
        sound = rooted(permuted(10, position=8), 8, items)
        self.assertEqual(cursors.check_canary(sound, no_tensors), items)
        self.assertEqual(self.mismatch(sound | {"position": 7}), "/next/first")
        late = rooted(permuted(10, position=8), 8, items[:-1] + [[0]])
        self.assertEqual(self.mismatch(late), "/next/sha256")
        self.assertEqual(self.mismatch(rooted(permuted(10, position=8), 8, [])), "/next/count")
        ends = rooted(permuted(10, "stop", position=8), 8, items[:2])
        cursors.check_canary(ends, no_tensors)
        self.assertEqual(self.mismatch(rooted(permuted(10, "stop", position=8), 8, items[:3])), "/next/count")
        cursors.check_canary(rooted(permuted(10, "stop", position=10), 10, []), no_tensors)


class Shares(unittest.TestCase):
    def shares(self, cursor, axes, sizes, batch, rule):
        cursor = cursor | {"partition": {"axes": axes, "batch": batch, "rule": rule}}
        found = []
        for dp in range(sizes["dp"]):
            for ep in range(sizes["ep"]):
                mine = cursors.share(cursor, no_tensors, sizes, {"dp": dp, "ep": ep})
                found.append([cursors.written(item) for item in mine])
        return found

    def test_rules(self):
        ten, sizes = permuted(10), {"dp": 2, "ep": 2}
        self.assertEqual(self.shares(ten, ["dp"], sizes, 5, "round-robin"), [[0, 2, 4]] * 2 + [[1, 3]] * 2)
        self.assertEqual(self.shares(ten, ["ep", "dp"], sizes, 8, "contiguous"), [[0, 1], [4, 5], [2, 3], [6, 7]])
        lanes = laned([4, 4, 4, 4], [[0, 0], [1, 0], [2, 0], [3, 0]], 3)
        self.assertEqual(self.shares(lanes, ["dp"], sizes, 4, "by-lane"), [[0, 8]] * 2 + [[12, 4]] * 2)
        self.assertEqual(self.shares(permuted(10, "stop", position=7), ["dp"], sizes, 6, "contiguous"), [[7, 8, 9]] * 2 + [[]] * 2)
        self.assertEqual(self.shares(ten, [], sizes, 2, "contiguous"), [[0, 1]] * 4)
        for cursor, axes, batch, rule in ((ten, ["dp"], 5, "contiguous"), (ten, ["pp"], 4, "round-robin"),
                                          (laned([4], [[0, 0]]), ["dp"], 4, "by-lane")):
            with self.subTest(rule=rule), self.assertRaises(Refusal) as caught:
                self.shares(cursor, axes, sizes, batch, rule)
            self.assertEqual((caught.exception.code, caught.exception.rule), ("not-exact", "cursor.share"))


if __name__ == "__main__":
    unittest.main()
