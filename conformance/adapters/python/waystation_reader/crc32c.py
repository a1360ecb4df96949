"""CRC-32C as fast as the standard library allows.

A CRC is the remainder of a polynomial over GF(2), and Python's long integers do XOR and shifts at memory speed. So a long
message is first made short by long-integer arithmetic, and only what is left goes through a table byte by byte.

The step: let x^a = x^b + x^c + ... + 1 modulo the CRC polynomial. Then the terms of degree a and more may be replaced by XORing
them in further down. Squaring both sides gives the same relation with all exponents doubled, so one sparse relation serves for
every length. The two relations below were found by search over multiples of the polynomial, and the tests prove them.
"""

_POLY_REFLECTED = 0x82F63B78
_MASK = 0xFFFFFFFF

# x^5685 = x^1362 + x^426 + 1, and x^266 = x^143 + x^121 + x^88 + x^71 + 1, modulo x^32 + ... (0x11EDC6F41).
SPARSE = ((5685, (1362, 426, 0)), (266, (143, 121, 88, 71, 0)))


def _make_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLY_REFLECTED if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _make_table()


def _fold(value, bits):
    """Shortens a message of `bits` bits, first bit least significant, to an equivalent one; gives both back."""
    for top, rest in SPARSE:
        level = max((bits // top).bit_length() - 2, 0)
        while level >= 0:
            degree = top << level
            gaps = [(top - low) << level for low in rest]
            # Each round moves the first `step` bits down; `step` is a multiple of 8 so that bytes stay bytes.
            while (step := min(gaps[0], bits - degree) & ~7) > 0:
                head = value & ((1 << step) - 1)
                value >>= step
                bits -= step
                for gap in gaps:
                    value ^= head << (gap - step)
            level -= 1
    return value, bits


def crc32c(data, crc=0):
    """The CRC-32C of what gave `crc` followed by `data`; `crc` is 0 for the start."""
    state = crc ^ _MASK
    if len(data) > 128:
        value, bits = _fold(int.from_bytes(data, "little") ^ state, 8 * len(data))
        data = value.to_bytes(bits // 8, "little")
        state = 0
    return _through_table(state, data) ^ _MASK


def _through_table(state, data):
    table = _TABLE
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state
