"""Random engines (17.2 and 17.5): what states there are, what they give next, and how they are seeded for a fork.

A state is decoded to the list of its numbers, in order; one of 128 bits is two of 64, the low half first. Nothing here knows
records or files.
"""

import hashlib
import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass

from . import canonical
from .refusal import Refusal

_MASK = {bits: (1 << bits) - 1 for bits in (32, 64, 68, 128)}


@dataclass(frozen=True)
class Algorithm:
    """`draw` gives the next raw outputs of the fields and moves them; None where the table gives no output."""

    layout: str
    width: int
    legal: Callable
    draw: Callable | None
    seed: Callable

    @property
    def size(self):
        return struct.calcsize(self.layout)


def decode(algorithm, state):
    """The fields of a canonical state."""
    known = ALGORITHMS[algorithm]
    if len(state) != known.size:
        raise Refusal("bad-rng-state", "rng.state", f"{len(state)} bytes, a state of {algorithm} has {known.size}")
    fields = list(struct.unpack(known.layout, state))
    if not known.legal(fields):
        raise Refusal("bad-rng-state", "rng.state", f"a state that {algorithm} cannot be in")
    return fields


def encode(algorithm, fields):
    return struct.pack(ALGORITHMS[algorithm].layout, *fields)


def draw(algorithm, fields, count):
    """The next raw outputs, which moves the fields on; where a key is not moved by drawing, those for a draw of so many."""
    return ALGORITHMS[algorithm].draw(fields, count)


def canary(algorithm, state, count):
    """The next raw outputs of a canonical state, as `next_raw` has them."""
    outputs = draw(algorithm, decode(algorithm, state), count) if ALGORITHMS[algorithm].draw else []
    return [f"{output:0{ALGORITHMS[algorithm].width // 4}x}" for output in outputs]


def fork_seed(run, step, name, coordinate):
    """s of 17.5."""
    hashed = b"resume-fork/1" + run.encode() + step.to_bytes(8, "little") + name.encode() + canonical.dump(coordinate)
    return int.from_bytes(hashlib.sha256(hashed).digest()[:8], "little")


def forked(algorithm, seed):
    """The canonical state that a fork with this seed begins in."""
    return encode(algorithm, ALGORITHMS[algorithm].seed(seed))


def splitmix64(state):
    while True:
        state = state + 0x9E3779B97F4A7C15 & _MASK[64]
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK[64]
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK[64]
        yield z ^ z >> 31


def _words(seed, count):
    return list(itertools.islice(splitmix64(seed), count))


def _rotl(value, count, bits):
    return (value << count | value >> (bits - count)) & _MASK[bits]


def _rotr(value, count, bits):
    return _rotl(value, -count % bits, bits)


def _each(step):
    return lambda fields, count: [step(fields) for _ in range(count)]


def _any(_fields):
    return True


# --- Mersenne Twister

_N, _M = 624, 397


def _mt_legal(fields):
    return fields[_N] <= _N and bool(fields[0] >> 31 or any(fields[1:_N]))


def _mt(fields):
    if fields[_N] == _N:
        for i in range(_N):
            y = fields[i] & 0x80000000 | fields[(i + 1) % _N] & 0x7FFFFFFF
            fields[i] = fields[(i + _M) % _N] ^ y >> 1 ^ (0x9908B0DF if y & 1 else 0)
        fields[_N] = 0
    y = fields[fields[_N]]
    fields[_N] += 1
    y ^= y >> 11
    y ^= y << 7 & 0x9D2C5680
    y ^= y << 15 & 0xEFC60000
    return y ^ y >> 18


def mt_of_word(word):
    """The fields of mt19937 seeded with a word."""
    key = [word & _MASK[32]]
    for i in range(1, _N):
        key.append(1812433253 * (key[-1] ^ key[-1] >> 30) + i & _MASK[32])
    return key + [_N]


def mt_of_words(words):
    """The fields of mt19937 seeded with words: `init_by_array`."""
    key, i = mt_of_word(19650218)[:_N], 1

    def mix(factor, add):
        nonlocal i
        key[i] = (key[i] ^ (key[i - 1] ^ key[i - 1] >> 30) * factor) + add(i) & _MASK[32]
        i += 1
        if i == _N:
            key[0] = key[_N - 1]
            i = 1

    for j in range(max(_N, len(words))):
        mix(1664525, lambda _, j=j % len(words): words[j] + j)
    for _ in range(_N - 1):
        mix(1566083941, lambda i: -i)
    key[0] = 0x80000000
    return key + [_N]


# --- permuted congruential generators


def _pcg_legal(fields):
    return bool(fields[-1 if len(fields) == 2 else -2] & 1)


def _wide(fields, factor):
    """The state of 128 bits before a step, and after it."""
    before, inc = fields[0] | fields[1] << 64, fields[2] | fields[3] << 64
    after = before * factor + inc & _MASK[128]
    fields[:2] = after & _MASK[64], after >> 64
    return before, after


def _pcg64_xsl_rr(fields):
    _, state = _wide(fields, 0x2360ED051FC65DA44385DF649FCCF645)
    return _rotr(state >> 64 ^ state & _MASK[64], state >> 122, 64)


def _pcg64_dxsm(fields):
    factor = 0xDA942042E4DD58B5
    state, _ = _wide(fields, factor)
    high, low = state >> 64, state & _MASK[64] | 1
    high ^= high >> 32
    high = high * factor & _MASK[64]
    high ^= high >> 48
    return high * low & _MASK[64]


def _pcg32(fields):
    state = fields[0]
    fields[0] = state * 0x5851F42D4C957F2D + fields[1] & _MASK[64]
    return _rotr((state >> 18 ^ state) >> 27 & _MASK[32], state >> 59, 32)


def _pcg64_seed(seed):
    words = _words(seed, 4)
    words[2] |= 1
    return words


def _pcg32_seed(seed):
    state, inc = _words(seed, 2)
    return [state, inc | 1]


# --- counters: Philox, Threefry, ChaCha

_PHILOX = {
    32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
    64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
}


def philox4x10(bits, counter, key):
    """The four words of a block."""
    m0, m1, w0, w1 = _PHILOX[bits]
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        one, two = m1 * x2, m0 * x0
        x0, x1, x2, x3 = one >> bits ^ x1 ^ k0, one & _MASK[bits], two >> bits ^ x3 ^ k1, two & _MASK[bits]
        k0, k1 = k0 + w0 & _MASK[bits], k1 + w1 & _MASK[bits]
    return [x0, x1, x2, x3]


def _philox_numpy(fields):
    # Fields: counter 0 to 3, key 4 and 5, buffer 6 to 9, buffer_pos 10.
    if fields[10] == 4:
        for word in range(4):
            fields[word] = fields[word] + 1 & _MASK[64]
            if fields[word]:
                break
        fields[6:10] = philox4x10(64, fields[:4], fields[4:6])
        fields[10] = 0
    fields[10] += 1
    return fields[5 + fields[10]]


def _philox_torch(per_block, moves=True):
    """Blocks in order from where `offset` stands, which is raised by so much for each."""
    def drawn(fields, count):
        seed, offset = fields[:2]
        key, outputs = (seed & _MASK[32], seed >> 32), []
        for _ in range(0, count, 4):
            block = offset // per_block
            outputs += philox4x10(32, [block & _MASK[32], block >> 32, 0, 0], key)
            offset = offset + per_block & _MASK[64]
        fields[1] = offset if moves else fields[1]
        return outputs[:count]
    return drawn


def _mps_seed(seed):
    return [seed, 0, 1, 1, 1, 1, 1, seed & _MASK[32], seed >> 32]


def threefry2x32(key, x0, x1):
    """The two words of a block."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x0, x1 = x0 + keys[0] & _MASK[32], x1 + keys[1] & _MASK[32]
    for i in range(1, 6):
        for r in (13, 15, 26, 6) if i % 2 else (17, 29, 16, 24):
            x0 = x0 + x1 & _MASK[32]
            x1 = _rotl(x1, r, 32) ^ x0
        x0, x1 = x0 + keys[i % 3] & _MASK[32], x1 + keys[(i + 1) % 3] + i & _MASK[32]
    return x0, x1


def _threefry_partitionable(fields, count):
    pairs = (threefry2x32(fields, i >> 32, i & _MASK[32]) for i in range(count))
    return [x0 ^ x1 for x0, x1 in pairs]


def _threefry_split(fields, count):
    half = -(-count // 2)
    pairs = [threefry2x32(fields, i, half + i if half + i < count else 0) for i in range(half)]
    return ([x0 for x0, _ in pairs] + [x1 for _, x1 in pairs])[:count]


def chacha(rounds, key, block, stream):
    """The sixteen words of a block; the key is 32 bytes."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key)]
    start += [block & _MASK[32], block >> 32, stream & _MASK[32], stream >> 32]
    x = list(start)
    for _ in range(rounds // 2):
        for shift in range(2):
            for i in range(4):
                # First the columns, then the diagonals.
                a, b, c, d = i, 4 + (i + shift) % 4, 8 + (i + 2 * shift) % 4, 12 + (i + 3 * shift) % 4
                for to, add, turn, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                    x[to] = x[to] + x[add] & _MASK[32]
                    x[turn] = _rotl(x[turn] ^ x[to], by, 32)
    return [one + other & _MASK[32] for one, other in zip(x, start)]


def _chacha(rounds):
    def drawn(fields, count):
        key, stream, low, high = fields
        first, outputs, held = low | high << 64, [], None
        for position in range(first, first + count):
            block, word = divmod(position & _MASK[68], 16)
            if held is None or word == 0:
                held = chacha(rounds, key, block, stream)
            outputs.append(held[word])
        position = first + count & _MASK[68]
        fields[2:] = position & _MASK[64], position >> 64
        return outputs
    return drawn


# --- sfc64 and xoshiro256++


def _sfc64(fields):
    a, b, c, counter = fields
    t = a + b + counter & _MASK[64]
    fields[:] = b ^ b >> 11, c + (c << 3) & _MASK[64], _rotl(c, 24, 64) + t & _MASK[64], counter + 1 & _MASK[64]
    return t


def _xoshiro(fields):
    s0, s1, s2, s3 = fields
    output = _rotl(s0 + s3 & _MASK[64], 23, 64) + s0 & _MASK[64]
    t = s1 << 17 & _MASK[64]
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    fields[:] = s0, s1, s2 ^ t, _rotl(s3, 45, 64)
    return output


# --- the table


def _chacha_of(rounds):
    return Algorithm("<32s3Q", 32, lambda fields: fields[3] < 1 << 4, _chacha(rounds),
                     lambda seed: [struct.pack("<4Q", *_words(seed, 4)), 0, 0, 0])


def _halves(seed):
    return [seed >> 32, seed & _MASK[32]]


ALGORITHMS = {
    "mt19937": Algorithm("<625I", 32, _mt_legal, _each(_mt), lambda seed: mt_of_words([seed & _MASK[32], seed >> 32])),
    "pcg64-xsl-rr": Algorithm("<4Q", 64, _pcg_legal, _each(_pcg64_xsl_rr), _pcg64_seed),
    "pcg64-dxsm": Algorithm("<4Q", 64, _pcg_legal, _each(_pcg64_dxsm), _pcg64_seed),
    "pcg32-xsh-rr": Algorithm("<2Q", 32, _pcg_legal, _each(_pcg32), _pcg32_seed),
    "philox4x64-10/numpy": Algorithm("<10Q2I", 64, lambda fields: fields[10] <= 4 and not fields[11], _each(_philox_numpy),
                                     lambda seed: [0] * 4 + _words(seed, 2) + [0] * 4 + [4, 0]),
    "philox4x32-10/torch-cuda": Algorithm("<2Q", 32, lambda fields: fields[1] % 4 == 0, _philox_torch(4),
                                          lambda seed: [seed, 0]),
    "philox4x32-10/torch-key": Algorithm("<2Q", 32, _any, _philox_torch(1, moves=False), lambda seed: [seed, 0]),
    "philox4x32-10/torch-mps": Algorithm("<2Q7I", 32, _any, _philox_torch(1), _mps_seed),
    "sfc64": Algorithm("<4Q", 64, _any, _each(_sfc64), lambda seed: _words(seed, 3) + [1]),
    "threefry2x32-20/jax-partitionable": Algorithm("<2I", 32, _any, _threefry_partitionable, _halves),
    "threefry2x32-20/jax-split": Algorithm("<2I", 32, _any, _threefry_split, _halves),
    "jax-rbg": Algorithm("<4I", 32, _any, None, lambda seed: _halves(seed) * 2),
    "jax-unsafe-rbg": Algorithm("<4I", 32, _any, None, lambda seed: _halves(seed) * 2),
    "chacha8/rand": _chacha_of(8),
    "chacha12/rand": _chacha_of(12),
    "chacha20/rand": _chacha_of(20),
    "xoshiro256++": Algorithm("<4Q", 64, any, _each(_xoshiro), lambda seed: _words(seed, 4)),
}
