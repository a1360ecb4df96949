"""CRC-32C against its check value and a bit-by-bit computation."""

import random
import time
import unittest

from tests import support
from waystation_reader import crc32c


class Crc32c(unittest.TestCase):
    def test_check_value(self):
        self.assertEqual(crc32c.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc32c.crc32c(b""), 0)

    def test_sparse_relations_hold(self):
        def power(exponent):
            value = 1
            for _ in range(exponent):
                value <<= 1
                if value >> 32:
                    value ^= 0x11EDC6F41
            return value

        for top, rest in crc32c.SPARSE:
            total = power(top)
            for low in rest:
                total ^= power(low)
            self.assertEqual(total, 0)

    def test_lengths(self):
        choice = random.Random(2)
        for length in [*range(0, 300), 1023, 4096, 5000, 65537]:
            data = choice.randbytes(length)
            self.assertEqual(crc32c.crc32c(data), support.crc32c(data), length)

    def test_in_pieces(self):
        data = random.Random(3).randbytes(30000)
        for cut in (0, 1, 127, 128, 129, 4096, 29999):
            self.assertEqual(crc32c.crc32c(data[cut:], crc32c.crc32c(data[:cut])), crc32c.crc32c(data))

    def test_speed_is_not_that_of_a_byte_loop(self):
        data = bytes(1 << 22)
        start = time.monotonic()
        crc32c.crc32c(data)
        self.assertLess(time.monotonic() - start, 0.4)


if __name__ == "__main__":
    unittest.main()
