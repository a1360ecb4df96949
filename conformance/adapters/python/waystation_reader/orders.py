"""Orders (18.4): which ordinal stands where in an epoch."""

from array import array

from . import rng, values
from .refusal import Refusal


class Budget:
    """The steps that a walk may take (18.3 and 18.4)."""

    def __init__(self, steps):
        self.left = steps

    def spend(self, steps):
        self.left -= steps
        if self.left < 0:
            raise Refusal("limit", "cursor.canary-steps", "more steps than canary-steps")


class Order:
    """A computed order. `ordinals` are those of an explicit order that stand in a tensor."""

    def __init__(self, value, budget, ordinals=None):
        self.value = value
        self.budget = budget
        self.ordinals = value.get("ordinals") if ordinals is None else ordinals
        self.epoch = None, None

    def at(self, epoch, n, place):
        """The ordinal at a place of an epoch of n ordinals."""
        if self.epoch != (epoch, n):
            # What it takes to find the ordinals of one epoch serves as long as nobody asks for another.
            self.epoch, self.found = (epoch, n), _ALGORITHMS[self.value["algorithm"]](self, epoch, n)
        return self.found(place)

    def seed(self, epoch):
        seed = values.whole(self.value["seed"])
        return seed + epoch if self.value["seed_rule"] == "seed+epoch" else seed


# From so many on, PyTorch draws otherwise.
_WIDE = 214748364


def _randperm(order, epoch, n):
    state = rng.mt_of_word(order.seed(epoch))
    drawn = array("I")
    if n >= _WIDE:
        order.budget.spend(n)
        for i in range(n):
            high, low = rng.draw("mt19937", state, 2)
            j = (high << 32 | low) % (i + 1)
            drawn.append(drawn[j] if j < i else i)
            drawn[j] = i
        return drawn.__getitem__
    moved = {}

    def found(place):
        # An element is settled by the step of its place; of those after it only what was swapped there is kept.
        if place >= len(drawn):
            order.budget.spend(place + 1 - len(drawn))
        for i in range(len(drawn), place + 1):
            j = i + rng.draw("mt19937", state, 1)[0] % (n - i) if i < n - 1 else i
            mine = moved.pop(i, i)
            drawn.append(mine if j == i else moved.get(j, j))
            if j != i:
                moved[j] = mine
        return drawn[place]
    return found


_U32 = (1 << 32) - 1


def _index_shuffle(order, epoch, n):
    rounds, last = order.value["rounds"], n - 1
    half = max(16, (max(last - 1, 0)).bit_length() + 1 & ~1) // 2
    mask = (1 << half) - 1
    keys = [key & mask for key in seed_sequence(order.seed(epoch) & _U32, rounds)]

    def turned(value, count):
        count %= half
        return (value << count | value >> half - count) & mask

    def mixed(value):
        return turned(value, 1) & turned(value, 8) ^ turned(value, 2)

    def found(place):
        x = place
        while last:
            order.budget.spend(-(-rounds // 4))
            high, low = x >> half & mask, x & mask
            for j in range(0, rounds, 2):
                high ^= mixed(low) ^ keys[j]
                low ^= mixed(high) ^ keys[j + 1]
            x = high << half | low
            if x <= last:
                break
        return x
    return found


def seed_sequence(seed, count):
    """So many words of C++'s `std::seed_seq` of one number."""
    keys = [0x8B8B8B8B] * count
    t = next((t for least, t in ((623, 11), (68, 7), (39, 5), (7, 3)) if count >= least), (count - 1) // 2)
    p = (count - t) // 2

    def folded(x):
        return x ^ x >> 27

    for k in range(2 * count):
        own, near, far, before = (index % count for index in (k, k + p, k + p + t, k - 1))
        if k < count:
            u = 1664525 * folded(keys[own] ^ keys[near] ^ keys[before])
            v = u + (1 + seed if k == 1 else k or 1)
            keys[near], keys[far] = keys[near] + u & _U32, keys[far] + v & _U32
        else:
            u = 1566083941 * folded(keys[own] + keys[near] + keys[before] & _U32)
            v = u - own
            keys[near], keys[far] = keys[near] ^ u & _U32, keys[far] ^ v & _U32
        keys[own] = v & _U32
    return keys


# algorithm -> a function of order, epoch and n, which gives a function of a place
_ALGORITHMS = {
    "identity": lambda order, epoch, n: lambda place: place,
    "explicit": lambda order, epoch, n: order.ordinals.__getitem__,
    "torch.randperm-cpu": _randperm,
    "grain.index_shuffle": _index_shuffle,
}
