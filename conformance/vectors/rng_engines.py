"""The engines of chapter 17, written from its definitions and nothing else.

An engine is made of a canonical state. `draw` gives raw outputs; `state` says where the engine
then stands, or None where there is no state.
"""

import hashlib
import json
import struct

W32, W64, W128 = 2**32 - 1, 2**64 - 1, 2**128 - 1


def rotated_right(value, by, width):
    return (value >> by | value << (width - by) % width) & 2**width - 1 if by else value


def rotated_left(value, by, width):
    return rotated_right(value, (width - by) % width, width)


class Engine:
    width = 64

    def __init__(self, state):
        self.fields = list(struct.unpack(self.form, state))

    def state(self):
        return struct.pack(self.form, *self.fields)

    def draw(self, count):
        return [self.next() for _ in range(count)]


class Twister(Engine):
    width = 32
    form = "<625I"

    @classmethod
    def of_word(cls, seed):
        key = [seed & W32]
        for i in range(1, 624):
            key.append(1812433253 * (key[-1] ^ key[-1] >> 30) + i & W32)
        return cls(struct.pack(cls.form, *key, 624))

    @classmethod
    def of_words(cls, words):
        key = cls.of_word(19650218).fields[:624]
        i = 1
        for k in range(max(624, len(words))):
            j = k % len(words)
            key[i] = (key[i] ^ 1664525 * (key[i - 1] ^ key[i - 1] >> 30)) + words[j] + j & W32
            i += 1
            if i == 624:
                key[0], i = key[623], 1
        for _ in range(623):
            key[i] = (key[i] ^ 1566083941 * (key[i - 1] ^ key[i - 1] >> 30)) - i & W32
            i += 1
            if i == 624:
                key[0], i = key[623], 1
        key[0] = 2**31
        return cls(struct.pack(cls.form, *key, 624))

    def next(self):
        key = self.fields
        if key[624] == 624:
            for i in range(624):
                y = key[i] & 2**31 | key[(i + 1) % 624] & 2**31 - 1
                key[i] = key[(i + 397) % 624] ^ y >> 1 ^ (0x9908B0DF if y % 2 else 0)
            key[624] = 0
        y = key[key[624]]
        key[624] += 1
        y ^= y >> 11
        y ^= y << 7 & 0x9D2C5680
        y ^= y << 15 & 0xEFC60000
        return y ^ y >> 18


class Pcg128(Engine):
    def __init__(self, state):
        self.s, self.inc = (int.from_bytes(state[at : at + 16], "little") for at in (0, 16))

    def state(self):
        return self.s.to_bytes(16, "little") + self.inc.to_bytes(16, "little")


class Pcg64XslRr(Pcg128):
    def next(self):
        self.s = self.s * 0x2360ED051FC65DA44385DF649FCCF645 + self.inc & W128
        return rotated_right(self.s >> 64 ^ self.s & W64, self.s >> 122, 64)


class Pcg64Dxsm(Pcg128):
    def next(self):
        high, low = self.s >> 64, self.s & W64 | 1
        high = (high ^ high >> 32) * 0xDA942042E4DD58B5 & W64
        self.s = self.s * 0xDA942042E4DD58B5 + self.inc & W128
        return (high ^ high >> 48) * low & W64


class Pcg32(Engine):
    width = 32
    form = "<2Q"

    def next(self):
        state, inc = self.fields
        self.fields[0] = state * 0x5851F42D4C957F2D + inc & W64
        return rotated_right((state >> 18 ^ state) >> 27 & W32, state >> 59, 32)


def philox(counter, key, width):
    """Ten rounds of Philox on four words."""
    m0, m1, b0, b1 = {
        32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
        64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
    }[width]
    mask = 2**width - 1
    x, (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = m0 * x[0], m1 * x[2]
        x = (p1 >> width ^ x[1] ^ k0, p1 & mask, p0 >> width ^ x[3] ^ k1, p0 & mask)
        k0, k1 = k0 + b0 & mask, k1 + b1 & mask
    return list(x)


class PhiloxNumpy(Engine):
    form = "<10Q2I"

    def next(self):
        f = self.fields
        if f[10] == 4:
            counter = sum(word << 64 * i for i, word in enumerate(f[:4])) + 1
            f[:4] = [counter >> 64 * i & W64 for i in range(4)]
            f[6:10] = philox(f[:4], f[4:6], 64)
            f[10] = 0
        f[10] += 1
        return f[5 + f[10]]


class PhiloxTorch(Engine):
    """The blocks of a seed; `unit` is what a block adds to the offset, which is of 64 bits."""

    width = 32
    form = "<2Q"
    unit = 1

    def draw(self, count):
        seed, offset, *_ = self.fields
        blocks = 2**64 // self.unit
        outputs = []
        for i in range((count + 3) // 4):
            block = (offset // self.unit + i) % blocks
            outputs += philox((block & W32, block >> 32, 0, 0), (seed & W32, seed >> 32), 32)
        self.move(count)
        return outputs[:count]

    def move(self, count):
        if count % 4:
            self.fields = None  # It has states between blocks only.
        else:
            self.fields[1] = self.fields[1] + count // 4 * self.unit & W64

    def state(self):
        return self.fields and super().state()


class PhiloxCuda(PhiloxTorch):
    unit = 4


class PhiloxMps(PhiloxTorch):
    form = "<2Q7I"


class PhiloxKey(PhiloxTorch):
    def move(self, count):
        pass


class Sfc64(Engine):
    form = "<4Q"

    def next(self):
        a, b, c, counter = self.fields
        t = a + b + counter & W64
        self.fields = [b ^ b >> 11, c + (c << 3) & W64, rotated_left(c, 24, 64) + t & W64, counter + 1 & W64]
        return t


class Threefry(Engine):
    width = 32
    form = "<2I"

    def block(self, x0, x1):
        k = [*self.fields, self.fields[0] ^ self.fields[1] ^ 0x1BD11BDA]
        x0, x1 = x0 + k[0] & W32, x1 + k[1] & W32
        for i in range(1, 6):
            for r in (13, 15, 26, 6) if i % 2 else (17, 29, 16, 24):
                x0 = x0 + x1 & W32
                x1 = rotated_left(x1, r, 32) ^ x0
            x0, x1 = x0 + k[i % 3] & W32, x1 + k[(i + 1) % 3] + i & W32
        return x0, x1


class ThreefryPartitionable(Threefry):
    def draw(self, count):
        blocks = (self.block(i >> 32, i & W32) for i in range(count))
        return [x0 ^ x1 for x0, x1 in blocks]


class ThreefrySplit(Threefry):
    def draw(self, count):
        half = -(-count // 2)
        blocks = [self.block(i, 0 if half + i == count else half + i) for i in range(half)]
        return [word for half in zip(*blocks, strict=True) for word in half][:count]


class Rbg(Engine):
    form = "<4I"

    def draw(self, _count):
        return []


class ChaCha(Engine):
    width = 32

    def __init__(self, state):
        self.seed, self.stream = state[:32], int.from_bytes(state[32:40], "little")
        self.word_pos = int.from_bytes(state[40:], "little")

    def state(self):
        return self.seed + self.stream.to_bytes(8, "little") + self.word_pos.to_bytes(16, "little")

    def next(self):
        number = self.word_pos // 16
        begin = struct.unpack("<4I", b"expand 32-byte k")
        place = struct.pack("<2Q", number, self.stream)
        begin = [*begin, *struct.unpack("<12I", self.seed + place)]
        x = list(begin)

        def quarter(a, b, c, d):
            for to, add, turned, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[to] = x[to] + x[add] & W32
                x[turned] = rotated_left(x[turned] ^ x[to], by, 32)

        for _ in range(self.rounds // 2):
            for i in range(4):
                quarter(i, 4 + i, 8 + i, 12 + i)
            for i in range(4):
                quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        word = self.word_pos % 16
        self.word_pos = (self.word_pos + 1) % 2**68
        return x[word] + begin[word] & W32


class ChaCha8(ChaCha):
    rounds = 8


class ChaCha12(ChaCha):
    rounds = 12


class ChaCha20(ChaCha):
    rounds = 20


class Xoshiro256PlusPlus(Engine):
    form = "<4Q"

    def next(self):
        s0, s1, s2, s3 = self.fields
        output = rotated_left(s0 + s3 & W64, 23, 64) + s0 & W64
        t = s1 << 17 & W64
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        self.fields = [s0, s1, s2 ^ t, rotated_left(s3, 45, 64)]
        return output


ENGINES = {
    "mt19937": Twister,
    "pcg64-xsl-rr": Pcg64XslRr,
    "pcg64-dxsm": Pcg64Dxsm,
    "pcg32-xsh-rr": Pcg32,
    "philox4x64-10/numpy": PhiloxNumpy,
    "philox4x32-10/torch-cuda": PhiloxCuda,
    "philox4x32-10/torch-key": PhiloxKey,
    "philox4x32-10/torch-mps": PhiloxMps,
    "sfc64": Sfc64,
    "threefry2x32-20/jax-partitionable": ThreefryPartitionable,
    "threefry2x32-20/jax-split": ThreefrySplit,
    "jax-rbg": Rbg,
    "jax-unsafe-rbg": Rbg,
    "chacha8/rand": ChaCha8,
    "chacha12/rand": ChaCha12,
    "chacha20/rand": ChaCha20,
    "xoshiro256++": Xoshiro256PlusPlus,
}


def split_mix(state):
    while True:
        state = state + 0x9E3779B97F4A7C15 & W64
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & W64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & W64
        yield z ^ z >> 31


def fork_seed(run, step, stream, coordinate):
    place = json.dumps(coordinate, separators=(",", ":"), ensure_ascii=False)
    text = b"resume-fork/1" + run.encode() + struct.pack("<Q", step) + stream.encode() + place.encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def seeded(algorithm, seed):
    """The state of section 17.5."""
    words = split_mix(seed)
    low, high = seed & W32, seed >> 32
    family = algorithm.split("-")[0].split("/")[0]
    if algorithm == "philox4x32-10/torch-mps":
        return struct.pack("<2Q7I", seed, 0, 1, 1, 1, 1, 1, low, high)
    if family == "mt19937":
        return Twister.of_words([low, high]).state()
    if family in ("pcg64", "pcg32"):
        each = 2 if family == "pcg64" else 1
        state = [next(words) for _ in range(2 * each)]
        state[each] |= 1
        return struct.pack(f"<{2 * each}Q", *state)
    if family == "philox4x64":
        return struct.pack("<10Q2I", 0, 0, 0, 0, next(words), next(words), 0, 0, 0, 0, 4, 0)
    if family == "philox4x32":
        return struct.pack("<2Q", seed, 0)
    if family == "sfc64":
        return struct.pack("<4Q", next(words), next(words), next(words), 1)
    if family == "threefry2x32":
        return struct.pack("<2I", high, low)
    if family == "jax":
        return struct.pack("<4I", high, low, high, low)
    four = struct.pack("<4Q", *(next(words) for _ in range(4)))
    return four + bytes(24) if family.startswith("chacha") else four
