"""Whatever is done to the files of a checkpoint is found, and answered with a code."""

import errno
import os
import random
import re
import tempfile
import unittest
from unittest import mock

from tests import support
from waystation_reader.checkpoint import open_checkpoint
from waystation_reader.refusal import Refusal
from waystation_reader.verify import verify


def small():
    tensor = {"dtype": "F32", "name": "w", "role": "param", "shape": [2, 3]}
    moment = {"dtype": "F4_E2M1", "name": "w", "owner": "a", "role": "optimizer", "shape": [3], "slot": "adam.m"}
    groups = [{"hyper": [], "name": "g", "params": [["main", "w"]]}]
    record = {"kind": "optimizer", "name": "a", "value": {"algorithm": "adam", "groups": groups, "steps": []}}
    return support.Checkpoint([support.Writer(0, [(tensor, support.whole([2, 3])), (moment, support.whole([3]))], [], [record])])


class Damage(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.directory = self.folder.name
        self.addCleanup(self.folder.cleanup)

    def put(self, name, data):
        with open(os.path.join(self.directory, name), "wb") as file:
            file.write(data)

    def found(self):
        return {(refusal.code, refusal.file) for refusal in verify(self.directory)[0]}

    def test_every_bit_of_metadata(self):
        files = small().write(self.directory)
        self.assertEqual(self.found(), set())
        for name, data in files.items():
            if name.endswith(".safetensors"):
                continue
            for spot in range(len(data)):
                # All bits of the root; of the files below it, which their digests cover, one bit of each byte.
                for bit in range(8) if name == "waystation.commit" else [spot % 8]:
                    damaged = bytearray(data)
                    damaged[spot] ^= 1 << bit
                    self.put(name, damaged)
                    self.assertTrue(self.found(), (name, spot, bit))
            self.put(name, data)

    def test_every_byte_of_small_shards(self):
        files = small().write(self.directory)
        choice = random.Random(7)
        for name, data in files.items():
            if not name.endswith(".safetensors"):
                continue
            header = 8 + int.from_bytes(data[:8], "little")
            spots = {*range(0, header, 61), *range(header, header + 280), *choice.sample(range(len(data)), 60)}
            for spot in sorted(spots):
                damaged = bytearray(data)
                damaged[spot] ^= 1 << choice.randrange(8)
                self.put(name, damaged)
                self.assertEqual({file for _, file in self.found()}, {name}, (name, spot))
            self.put(name, data)

    def test_sampled_bits_of_everything(self):
        files = support.tiny().write(self.directory)
        choice = random.Random(8)
        for name, data in files.items():
            for _ in range(15 if data else 0):
                damaged = bytearray(data)
                damaged[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
                self.put(name, damaged)
                self.assertTrue(self.found(), name)
            self.put(name, data)

    def test_lengths_and_presence(self):
        files = support.tiny().write(self.directory)
        for name, data in files.items():
            code = {"waystation.commit": "commit-grammar", "manifest.json": "digest-mismatch"}.get(name, "length-mismatch")
            for other in (data[:-1], data[:len(data) // 2], b"", data + b"\0", data + data):
                if other != data:
                    self.put(name, other)
                    self.assertIn((code, name), self.found())
            os.remove(os.path.join(self.directory, name))
            missing = "not-committed" if name == "waystation.commit" else "file-missing"
            self.assertIn((missing, name), self.found())
            os.mkdir(os.path.join(self.directory, name))
            self.assertIn(("not-regular", name), self.found())
            os.rmdir(os.path.join(self.directory, name))
            self.put("elsewhere", data)
            os.symlink("elsewhere", os.path.join(self.directory, name))
            self.assertIn(("not-regular", name), self.found())
            os.remove(os.path.join(self.directory, name))
            os.mkfifo(os.path.join(self.directory, name))
            self.assertIn(("not-regular", name), self.found())
            os.remove(os.path.join(self.directory, name))
            self.put(name.swapcase(), data)
            self.assertIn((missing, name), self.found())
            os.remove(os.path.join(self.directory, name.swapcase()))
            self.put(name, data)
        self.assertEqual(self.found(), set())

    def test_beside(self):
        support.tiny().write(self.directory)
        for name in ("tmp-x", "notes.txt", "rejected", "pin-a", "pin-"):
            self.put(name, b"")
        findings, notes = verify(self.directory)
        self.assertEqual(findings, [])
        self.assertEqual({note["file"]: note["note"] for note in notes},
                         {"tmp-x": "temporary", "notes.txt": "unnamed", "rejected": "marker", "pin-a": "marker", "pin-": "unnamed"})
        os.symlink("nowhere", os.path.join(self.directory, "deleted"))
        self.assertEqual(self.found(), {("deleted", "deleted")})

    def test_a_manifest_beyond_its_limit(self):
        support.tiny().write(self.directory)
        os.truncate(os.path.join(self.directory, "manifest.json"), 67108865)
        self.assertEqual(self.found(), {("limit", "manifest.json")})

    def test_failing_disk(self):
        support.tiny().write(self.directory)
        with mock.patch("os.pread", side_effect=OSError(errno.EIO, "I/O error")):
            self.assertEqual({code for code, _ in self.found()}, {"io"})
        with mock.patch("os.open", side_effect=PermissionError(errno.EACCES, "denied")):
            self.assertEqual({code for code, _ in self.found()}, {"io-denied"})

    def test_swapped_shards(self):
        """Two shards of one length change places."""
        tensors = [{"dtype": "U8", "name": name, "role": "param", "shape": [5]} for name in "ab"]
        writers = [support.Writer(number, [(tensor, support.whole([5]))]) for number, tensor in enumerate(tensors)]
        files = support.Checkpoint(writers).write(self.directory)
        one, other = (name for name in files if name.endswith(".safetensors"))
        self.put(one, files[other])
        self.put(other, files[one])
        self.assertEqual({code for code, _ in self.found()}, {"header-mismatch", "crc-mismatch"})

    def test_reading_checks(self):
        files = support.tiny().write(self.directory)
        name = next(name for name in files if name.startswith("model-00001"))
        data = bytearray(files[name])
        data[4096] ^= 1
        self.put(name, data)
        checkpoint = open_checkpoint(self.directory)
        self.addCleanup(checkpoint.directory.close)
        w = checkpoint.find('["main","param","w","","",[]]')
        with self.assertRaises(Refusal) as caught:
            checkpoint.read(w)
        self.assertEqual((caught.exception.code, caught.exception.file, caught.exception.offset), ("crc-mismatch", name, 4096))
        # The other writer's half is untouched and still readable.
        self.assertEqual(len(checkpoint.read(w, [0, 0], [4, 3])), 48)

    def test_nonsense_under_right_digests(self):
        """Any change of a metadata file, with every digest above it made right, is answered without an exception."""
        choice = random.Random(9)
        values = [b"[]", b"{}", b"null", b"0", b"-1", b'""', b"9007199254740991", b"true", b'"x"', b"[[]]", b"[1,[2]]"]
        token = re.compile(rb'"[^"]*"|[0-9]+|\[\]|\{\}|null')
        for number in range(500):
            hook = choice.choice(["part", "page", "manifest"])
            files = _with_nonsense(hook, choice, values, token)
            if files is None:
                continue
            with tempfile.TemporaryDirectory() as directory:
                for name, data in files.items():
                    with open(os.path.join(directory, name), "wb") as file:
                        file.write(data)
                findings, _ = verify(directory)
                for refusal in findings:
                    self.assertTrue(refusal.code and refusal.rule, number)
                try:
                    checkpoint = open_checkpoint(directory)
                except Refusal:
                    continue
                for tensor in checkpoint.tensors.values():
                    try:
                        checkpoint.read(tensor)
                    except Refusal:
                        pass
                checkpoint.directory.close()


def _with_nonsense(hook, choice, values, token):
    files = dict(_TINY_FILES)
    if hook == "part":
        name = choice.choice([name for name in files if name.startswith("part-")])
    elif hook == "page":
        name = choice.choice([name for name in files if name.startswith(("tensors-", "records-"))])
    else:
        name = "manifest.json"
    data = files.pop(name)
    spots = list(token.finditer(data))
    spot = choice.choice(spots)
    if choice.random() < 0.2:
        new = bytearray(data)
        new[choice.randrange(len(new))] ^= 1 << choice.randrange(8)
        new = bytes(new)
    else:
        new = data[:spot.start()] + choice.choice(values) + data[spot.end():]
    if new == data:
        return None
    old, digest = support.sha(data).encode(), support.sha(new).encode()
    if hook == "part":
        files[f"{name[:11]}{digest[:16].decode()}.json"] = new
    else:
        files[name] = new
    if hook != "manifest":
        manifest = files["manifest.json"].replace(b'"bytes":%d' % len(data), b'"bytes":%d' % len(new)).replace(old, digest)
        files["manifest.json"] = manifest
    files["waystation.commit"] = f"{support.sha(files['manifest.json'])}  manifest.json\n".encode()
    return files


_TINY_FILES = support.tiny().files()


if __name__ == "__main__":
    unittest.main()
