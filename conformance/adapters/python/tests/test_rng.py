"""Random engines against answers that their authors published, or that the frameworks that have them gave."""

import hashlib
import itertools
import random
import struct
import unittest

from tests import support
from waystation_reader import rng
from waystation_reader.refusal import Refusal

# Of the algorithm: (fields, the next outputs). NumPy's bit generators are those seeded with 12345, Philox after two outputs.
NUMPY = [10491611216877039061, 1803093737001096756, 9040447581203200743, 14539648464241499944]
KNOWN = [
    ("mt19937", rng.mt_of_word(5489), [3499211612, 581869302, 3890346734, 3586334585]),
    ("mt19937", rng.mt_of_word(42), [1608637542, 3421126067, 4083286876]),
    ("mt19937", rng.mt_of_words([0x123, 0x234, 0x345, 0x456]), [1067595299, 955945823, 477289528, 4107218783]),
    ("pcg64-xsl-rr", NUMPY, [0x3A32B18DB2FFC19D, 0x51171315C9E4C4DE, 0xCC2024823444EFD9, 0xAD1F06AEA486E910]),
    ("pcg64-dxsm", NUMPY, [0xEE9CE7D91FD0146F, 0x5666C45F046A0883, 0x378C2161CF28E2BD, 0x5A4AF4EFD795681E]),
    ("philox4x64-10/numpy", [1, 0, 0, 0, 13091511679009522556, 13538552136045918767, 7761547988346370368, 12048877680314648833,
                             7990457742470656338, 9941379523396432859, 2, 0],
     [0x6EE3CEFB44BBB152, 0x89F6E0013D62F3DB, 0xB43096C46A56B28E, 0x34708A31087F4EE4]),
    ("sfc64", [10064541703870941362, 11909270464136410499, 15701026424580518604, 13],
     [0x30F2A9BE9B3BFE42, 0x4E61D5C0F7DFB297, 0x7DC9A4F0ED93A006, 0x92CF1CDCE503DDAA]),
    ("xoshiro256++", [1, 2, 3, 4], [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205]),
    ("philox4x32-10/torch-cuda", [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ("threefry2x32-20/jax-split", [0, 0], [4146024105, 967050713, 2718843009, 1272950319]),
    ("threefry2x32-20/jax-partitionable", [0, 0], [0x6B200159 ^ 0x99BA4EFE]),
    ("chacha20/rand", [bytes(32), 0, 0, 0], [0xADE0B876, 0x903DF1A0, 0xE56A5D40, 0x28BD8653]),
    ("chacha12/rand", [bytes(32), 0, 0, 0], struct.unpack("<4I", bytes.fromhex("9bf49a6a0755f953811fce125f2683d5"))),
    ("chacha8/rand", [bytes(32), 0, 0, 0], struct.unpack("<4I", bytes.fromhex("3e00ef2f895f40d67f5bb8e81f09a5a1"))),
]


class Known(unittest.TestCase):
    def test_outputs(self):
        for algorithm, fields, expected in KNOWN:
            with self.subTest(algorithm=algorithm):
                self.assertEqual(rng.draw(algorithm, list(fields), len(expected)), list(expected))

    def test_ten_thousandth(self):
        self.assertEqual(rng.draw("mt19937", rng.mt_of_word(5489), 10000)[-1], 4123659995)

    def test_pcg_demos(self):
        """The first round of the programs that came with PCG: seed 42, stream 54."""
        for algorithm, fields, expected in (
            ("pcg32-xsh-rr", [0, 109], [0xA15C02B7, 0x7B47F409, 0xBA1D3330, 0x83D2F293, 0xBFA4784B, 0xCBED606E]),
            ("pcg64-xsl-rr", [0, 0, 109, 0], [0x86B1DA1D72062B68, 0x1304AA46C9853D39, 0xA3670E9E0DD50358, 0xF9090E529A7DAE00]),
        ):
            rng.draw(algorithm, fields, 1)
            fields[0] += 42
            rng.draw(algorithm, fields, 1)
            self.assertEqual(rng.draw(algorithm, fields, len(expected)), expected)

    def test_blocks(self):
        """The known answers of Random123."""
        ones, pi = [2**32 - 1] * 4, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
        self.assertEqual(rng.philox4x10(32, ones, ones[:2]), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD])
        self.assertEqual(rng.philox4x10(32, pi, [0xA4093822, 0x299F31D0]), [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1])
        wide = [2**64 - 1] * 4
        self.assertEqual(rng.philox4x10(64, wide, wide[:2]),
                         [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0])
        self.assertEqual(rng.threefry2x32(ones[:2], *ones[:2]), (0x1CB996FC, 0xBB002BE7))
        self.assertEqual(rng.threefry2x32(pi[2:], *pi[:2]), (0xC4923A9C, 0x483DF7A0))

    def test_splitmix64(self):
        self.assertEqual(list(itertools.islice(rng.splitmix64(1234567), 3)),
                         [6457827717110365317, 3203168211198807973, 9817491932198370423])

    def test_python_has_the_same(self):
        seed = 0xFEDCBA9876543210
        python = random.Random(seed)
        fields = list(struct.unpack("<625I", rng.forked("mt19937", seed)))
        self.assertEqual(tuple(fields), python.getstate()[1])
        self.assertEqual(rng.draw("mt19937", fields, 1500), [python.getrandbits(32) for _ in range(1500)])
        self.assertEqual(tuple(fields), python.getstate()[1])


class States(unittest.TestCase):
    def test_going_on(self):
        """What is drawn at once is what is drawn in two, with the state written between."""
        for algorithm, known in rng.ALGORITHMS.items():
            state = rng.forked(algorithm, 0x0123456789ABCDEF)
            with self.subTest(algorithm=algorithm):
                self.assertEqual(len(state), known.size)
                self.assertEqual(rng.encode(algorithm, rng.decode(algorithm, state)), state)
                if known.draw is None:
                    self.assertEqual(rng.canary(algorithm, state, 4), [])
                    continue
                outputs = rng.draw(algorithm, rng.decode(algorithm, state), 700)
                fields = rng.decode(algorithm, state)
                first = rng.draw(algorithm, fields, 20)
                middle = rng.encode(algorithm, fields)
                if "torch-key" in algorithm or "jax" in algorithm:
                    self.assertEqual(middle, state)
                else:
                    self.assertEqual(first + rng.draw(algorithm, rng.decode(algorithm, middle), 680), outputs)

    def test_edges(self):
        outputs = rng.draw("philox4x64-10/numpy", [2**64 - 1] * 4 + [7, 0] + [0] * 4 + [4, 0], 1)
        self.assertEqual(outputs, rng.philox4x10(64, [0] * 4, [7, 0])[:1])
        mps = rng.draw("philox4x32-10/torch-mps", [1 << 32 | 5, 2**64 - 1] + [0] * 7, 5)
        after, first = rng.philox4x10(32, [2**32 - 1] * 2 + [0, 0], [5, 1]), rng.philox4x10(32, [0] * 4, [5, 1])
        self.assertEqual(mps, after + first[:1])
        cuda = rng.draw("philox4x32-10/torch-cuda", [1 << 32 | 5, 2**64 - 4], 8)
        self.assertEqual(cuda, rng.philox4x10(32, [2**32 - 1, 2**30 - 1, 0, 0], [5, 1]) + first)
        fields = [bytes(32), 9, 2**64 - 1, 15]
        last, first = rng.draw("chacha8/rand", fields, 2)
        self.assertEqual((last, first), (rng.chacha(8, bytes(32), 2**64 - 1, 9)[15], rng.chacha(8, bytes(32), 0, 9)[0]))
        self.assertEqual(fields[2:], [1, 0])
        pair = rng.threefry2x32([3, 4], 0, 2), rng.threefry2x32([3, 4], 1, 0)
        self.assertEqual(rng.draw("threefry2x32-20/jax-split", [3, 4], 3), [pair[0][0], pair[1][0], pair[0][1]])

    def test_illegal(self):
        for algorithm, state in (
            ("mt19937", struct.pack("<625I", *[1] * 624, 625)),
            ("mt19937", struct.pack("<625I", 0x7FFFFFFF, *[0] * 623, 624)),
            ("pcg64-xsl-rr", bytes(32)),
            ("pcg64-dxsm", bytes(8) + b"\1" * 8 + bytes(16)),
            ("pcg32-xsh-rr", b"\1" * 8 + bytes(8)),
            ("philox4x64-10/numpy", bytes(80) + struct.pack("<2I", 5, 0)),
            ("philox4x64-10/numpy", bytes(80) + struct.pack("<2I", 4, 1)),
            ("philox4x32-10/torch-cuda", struct.pack("<2Q", 1, 6)),
            ("chacha20/rand", bytes(48) + struct.pack("<Q", 16)),
            ("xoshiro256++", bytes(32)),
            ("sfc64", bytes(33)),
        ):
            with self.subTest(algorithm=algorithm), self.assertRaises(Refusal) as caught:
                rng.decode(algorithm, state)
            self.assertEqual((caught.exception.code, caught.exception.rule), ("bad-rng-state", "rng.state"))

    def test_forks(self):
        text = b'resume-fork/1' + "l\u00e4uf".encode() + (7).to_bytes(8, "little") + b"dropout" + b'[["dp",3]]'
        seed = int.from_bytes(hashlib.sha256(text).digest()[:8], "little")
        self.assertEqual(rng.fork_seed("l\u00e4uf", 7, "dropout", [["dp", 3]]), seed)
        words, low, high = list(itertools.islice(rng.splitmix64(seed), 4)), seed & 0xFFFFFFFF, seed >> 32
        for algorithm, state in (
            ("pcg64-xsl-rr", struct.pack("<4Q", *words[:2], words[2] | 1, words[3])),
            ("pcg32-xsh-rr", struct.pack("<2Q", words[0], words[1] | 1)),
            ("philox4x64-10/numpy", bytes(32) + struct.pack("<2Q", *words[:2]) + bytes(32) + struct.pack("<2I", 4, 0)),
            ("philox4x32-10/torch-mps", struct.pack("<2Q7I", seed, 0, 1, 1, 1, 1, 1, low, high)),
            ("sfc64", struct.pack("<4Q", *words[:3], 1)),
            ("threefry2x32-20/jax-split", struct.pack("<2I", high, low)),
            ("jax-rbg", struct.pack("<4I", high, low, high, low)),
            ("chacha8/rand", struct.pack("<4Q", *words) + bytes(24)),
            ("xoshiro256++", struct.pack("<4Q", *words)),
        ):
            self.assertEqual(rng.forked(algorithm, seed), state, algorithm)


class Table(unittest.TestCase):
    def test_registry(self):
        for algorithm in support.registry("rng-algorithms", "algorithm"):
            known = rng.ALGORITHMS[algorithm["id"]]
            self.assertEqual((known.size, known.width, known.draw is not None),
                             (algorithm["bytes"], algorithm["width"], algorithm["canary"]), algorithm["id"])
        listed = [algorithm["id"] for algorithm in support.registry("rng-algorithms", "algorithm")]
        self.assertEqual(list(rng.ALGORITHMS), listed or list(rng.ALGORITHMS))


if __name__ == "__main__":
    unittest.main()
