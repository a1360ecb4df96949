"""The worked example of appendix B, where this folder stands in the project."""

import tempfile
import shutil
import unittest
from pathlib import Path

from waystation_reader.checkpoint import open_checkpoint
from waystation_reader.run import latest
from waystation_reader.verify import verify

FOLDER = Path(__file__).resolve().parents[4] / "spec" / "example"


def stream(number, count):
    """The bytes without meaning that the appendix gives to tensor `number`."""
    out = bytearray()
    for _ in range(count):
        number = (6364136223846793005 * number + 1442695040888963407) % 2**64
        out.append(number >> 56)
    return bytes(out)


class Example(unittest.TestCase):
    def setUp(self):
        self.name, self.manifest, skipped = latest(str(FOLDER))
        self.assertEqual(skipped, [])
        self.directory = str(FOLDER / self.name)

    def test_verifies(self):
        self.assertEqual(verify(self.directory), ([], []))

    def test_elements(self):
        checkpoint = open_checkpoint(self.directory)
        self.addCleanup(checkpoint.directory.close)
        packed = bytearray(stream(5, 3))
        packed[-1] &= 0x0F
        expected = {
            '["main","buffer","steps_seen","","",[]]': (1000).to_bytes(8, "little"),
            '["main","param","embed.weight","","",[]]': stream(1, 128),
            '["main","param","lm_head.weight","","",[]]': stream(1, 128),
            '["main","param","block.0.weight","","",[]]': stream(2, 6144),
            '["main","optimizer","block.0.weight","adam.m","main",[]]': stream(4, 12288),
            '["main","param","packed","","",[]]': bytes(packed),
        }
        self.assertEqual(expected.keys(), checkpoint.tensors.keys() | checkpoint.aliases.keys())
        for key, data in expected.items():
            self.assertEqual(bytes(checkpoint.read(checkpoint.find(key))), data, key)

    def test_damage(self):
        with tempfile.TemporaryDirectory() as folder:
            for source in Path(self.directory).iterdir():
                copy = Path(folder, source.name)
                shutil.copy(source, copy)
            for copy in Path(folder).iterdir():
                data = copy.read_bytes()
                for spot in range(0, len(data), max(1, len(data) // 20)):
                    damaged = bytearray(data)
                    damaged[spot] ^= 1 << spot % 8
                    copy.write_bytes(damaged)
                    findings, _ = verify(folder)
                    self.assertTrue(findings, (copy.name, spot))
                copy.write_bytes(data)


if __name__ == "__main__":
    unittest.main()
