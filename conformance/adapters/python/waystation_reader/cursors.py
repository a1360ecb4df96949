"""What comes next in a computed cursor (18.1 to 18.3), and which of it is a rank's (18.5).

A node here stands before an item; `ended` tells whether there is none, `item` gives it, and `step` goes past it.
"""

import hashlib
from array import array
from itertools import accumulate

from .forms import within
from .nodes import epoch_items, in_domain, is_computed_order, walk
from .orders import Budget, Order
from .refusal import Refusal
from .registry import LIMITS

def begin(cursor, tensors, steps=LIMITS["canary-steps"]):
    """The root of a computed cursor. `tensors` gives the numbers that a tensor holds, of an identity and how many."""
    return _node(cursor, tensors, Budget(steps))


def take(node, count):
    """The next items, as many as there are up to the count; each a list of integers."""
    items = []
    while len(items) < count and not node.ended():
        node.budget.spend(1)
        items.append(node.item())
        node.step()
    return items


def written(item):
    """An item as it stands in a record."""
    return item[0] if len(item) == 1 else item


def check_numbers(cursor, tensors):
    """What the numbers that tensors hold have to do with others, and the records of lanes."""
    for pointer, node in walk(cursor):
        within(pointer, _numbers, node, tensors)


def _numbers(node, tensors):
    source, order = node.get("source", {}), node.get("order", {})
    counts = source.get("shards")
    if isinstance(counts, dict):
        counts = within("/source/shards", tensors, counts["tensor"], order["n"])
        if sum(counts) != source["records"]:
            raise Refusal("bad-position", "cursor.lane-record", "not the sum of the shards", pointer="/source/records")
    if order.get("algorithm") == "explicit" and isinstance(order["ordinals"], dict):
        ordinals = within("/order/ordinals", tensors, order["ordinals"]["tensor"], order["n"])
        within("/order", in_domain, ordinals, order["n"], source["records"] if counts is None else order["n"])
    if counts is not None and is_computed_order(order):
        there = _order(order, tensors, Budget(LIMITS["canary-steps"]))
        for lane, (place, record) in enumerate(node["lanes"]):
            if place < order["n"] and record >= counts[there.at(node["epoch"], order["n"], place)]:
                raise Refusal("bad-position", "cursor.lane-record", f"record {record} of its shard", pointer=f"/lanes/{lane}/1")


def check_canary(cursor, tensors):
    """Compares the next items with those of `next`, and gives them."""
    node, stated = begin(cursor, tensors), cursor["next"]
    ended = node.ended()
    items = take(node, stated["count"])
    sha256 = hashlib.sha256(b"".join(number.to_bytes(8, "little") for item in items for number in item)).hexdigest()
    if not stated["count"] and not ended:
        raise Refusal("canary-mismatch", "cursor.canary", "no items of a cursor that goes on", pointer="/next/count")
    if len(items) < stated["count"]:
        raise Refusal("canary-mismatch", "cursor.canary", f"it ends after {len(items)} items", pointer="/next/count")
    if [written(item) for item in items[:4]] != stated["first"]:
        raise Refusal("canary-mismatch", "cursor.canary", f"{items[:4]} come next", pointer="/next/first")
    if sha256 != stated["sha256"]:
        raise Refusal("canary-mismatch", "cursor.canary", f"the items have {sha256}", pointer="/next/sha256")
    return items


def share(cursor, tensors, sizes, place):
    """The items of the next batch that are a place's; `sizes` and `place` give a number for each axis."""
    rule, batch = cursor["partition"]["rule"], cursor["partition"]["batch"]
    rank, ranks = 0, 1
    for axis in cursor["partition"]["axes"]:
        if axis not in sizes:
            raise Refusal("not-exact", "cursor.share", f"there is no axis {axis!r}")
        rank, ranks = rank * sizes[axis] + place[axis], ranks * sizes[axis]
    whole = {"contiguous": batch, "by-lane": len(cursor.get("lanes", ()))}.get(rule, 0)
    if whole % ranks:
        raise Refusal("not-exact", "cursor.share", f"{rule} of {whole} over {ranks} ranks")
    node, mine = begin(cursor, tensors), []
    for number in range(batch):
        if node.ended():
            break
        node.budget.spend(1)
        of = {"round-robin": lambda: number % ranks, "contiguous": lambda: number * ranks // batch,
              "by-lane": lambda: node.lane() % ranks}[rule]()
        if of == rank:
            mine.append(node.item())
        node.step()
    return mine


# --- nodes


def _node(value, tensors, budget):
    return _KINDS[value["kind"]](value, tensors, budget)


def _order(value, tensors, budget):
    ordinals = value.get("ordinals")
    return Order(value, budget, tensors(ordinals["tensor"], value["n"]) if isinstance(ordinals, dict) else None)


class _Permuted:
    def __init__(self, value, tensors, budget):
        self.epoch, self.position = value["epoch"], value["position"]
        self.items, self.n = epoch_items(value), value["order"]["n"]
        self.stops = value["epoch_end"]["rule"] == "stop"
        self.order, self.budget = _order(value["order"], tensors, budget), budget

    def ended(self):
        if self.position == self.items and not self.stops:
            self.epoch, self.position = self.epoch + 1, 0
        return self.position == self.items

    def item(self):
        return [self.order.at(self.epoch, self.n, self.position % self.n)]

    def step(self):
        self.position += 1


class _Lanes:
    def __init__(self, value, tensors, budget):
        self.n, shards = value["order"]["n"], value["source"]["shards"]
        self.counts = tensors(shards["tensor"], self.n) if isinstance(shards, dict) else shards
        self.firsts = [0, *accumulate(self.counts)]
        self.epoch, self.lanes, self.turn = value["epoch"], [tuple(lane) for lane in value["lanes"]], value["next_lane"]
        self.stops = value["epoch_end"]["rule"] == "stop"
        self.order, self.budget = _order(value["order"], tensors, budget), budget

    def lane(self):
        """The lane that gives the next item; None when none has one in this epoch."""
        count = len(self.lanes)
        return next((lane % count for lane in range(self.turn, self.turn + count) if self.lanes[lane % count][0] < self.n), None)

    def shard(self, place):
        return self.order.at(self.epoch, self.n, place)

    def read_on(self, place):
        """Where a lane stands when it comes to a place: at the first of its own from there that is not empty."""
        while place < self.n and not self.counts[self.shard(place)]:
            self.budget.spend(1)
            place += len(self.lanes)
        return place, 0

    def ended(self):
        if self.lane() is None and not self.stops:
            self.budget.spend(len(self.lanes))
            self.epoch, self.turn = self.epoch + 1, 0
            self.lanes = [self.read_on(lane) for lane in range(len(self.lanes))]
        return self.lane() is None

    def item(self):
        place, record = self.lanes[self.lane()]
        return [self.firsts[self.shard(place)] + record]

    def step(self):
        lane = self.lane()
        self.budget.spend((lane - self.turn) % len(self.lanes))
        place, record = self.lanes[lane]
        more = record + 1 < self.counts[self.shard(place)]
        self.lanes[lane] = (place, record + 1) if more else self.read_on(place + len(self.lanes))
        self.turn = (lane + 1) % len(self.lanes)


class _Mixture:
    def __init__(self, value, tensors, budget):
        self.children = [within(f"/children/{number}", _node, child, tensors, budget)
                         for number, child in enumerate(value["children"])]
        self.weights, self.taken = value["selection"]["weights"], list(value["selection"]["taken"])
        self.ends_first, self.budget = value["selection"]["end"] == "first", budget

    def ended(self):
        return (any if self.ends_first else all)(child.ended() for child in self.children)

    def chosen(self):
        going = [number for number, child in enumerate(self.children) if not child.ended()]
        taken, weight = sum(self.taken[number] for number in going), sum(self.weights[number] for number in going)
        return max(going, key=lambda number: self.weights[number] * (taken + 1) - self.taken[number] * weight)

    def item(self):
        chosen = self.chosen()
        return [chosen, *self.children[chosen].item()]

    def step(self):
        self.budget.spend(len(self.children))
        chosen = self.chosen()
        self.children[chosen].step()
        self.taken[chosen] += 1


class _Window:
    def __init__(self, value, tensors, budget):
        self.child = within("/anchor", _node, value["anchor"], tensors, budget)
        self.index, self.size = value["index"], value["window"]
        self.order, self.budget, self.reverse = _order(value["order"], tensors, budget), budget, value["reverse"]
        self.fill()
        self.given = value["replay"]
        if self.given > self.count:
            raise Refusal("bad-position", "cursor.replay", f"{self.given} of {self.count} items", pointer="/replay")

    def fill(self):
        """Reads a window ahead; the child then stands behind it."""
        self.numbers, self.ends, self.given = array("Q"), array("Q", [0]), 0
        while len(self.ends) <= self.size and (one := take(self.child, 1)):
            self.numbers.extend(one[0])
            self.ends.append(len(self.numbers))
        self.count = len(self.ends) - 1

    def ended(self):
        if self.count and self.given == self.count:
            self.index += 1
            self.fill()
        return not self.count

    def item(self):
        place = self.order.at(self.index, self.count, self.count - 1 - self.given if self.reverse else self.given)
        return self.numbers[self.ends[place]:self.ends[place + 1]].tolist()

    def step(self):
        self.given += 1


_KINDS = {"permuted-index": _Permuted, "sharded-lanes": _Lanes, "mixture": _Mixture, "window-shuffle": _Window}
