"""Each broken adapter is broken where it says, and the template answers."""

import json
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import adapter
from tests import support
from tests.test_adapter import ask

FOLDER = Path(__file__).resolve().parents[2]
BROKEN = FOLDER / "broken" / "adapter.py"
TEMPLATE = FOLDER / "template" / "adapter.py"
HELLO = {"id": 1, "op": "hello", "protocol": 1, "spec": "1.0"}


class Broken(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "given"

    def read(self, name, code):
        """What the broken one answers, where the sound one answers with a code, or with none."""
        request = {"id": 2, "op": "read", "path": str(self.path)}
        sound = json.loads(json.dumps(adapter.respond(json.dumps(request), "python")))
        self.assertEqual(sound.get("error", {}).get("code"), code, name)
        hello, said = ask(HELLO, request, adapter=(BROKEN, name))
        self.assertEqual(hello["ok"]["implementation"]["name"], f"broken-{name}")
        self.assertNotEqual(said, sound)
        return said

    def tiny(self, **members):
        support.tiny(**members).write(self.path)
        return self.path

    def commit(self, edit):
        """Edits the manifest and names its new digest in the commit file."""
        manifest = edit((self.path / "manifest.json").read_bytes())
        (self.path / "manifest.json").write_bytes(manifest)
        (self.path / "waystation.commit").write_text(f"{support.sha(manifest)}  manifest.json\n")

    def shard(self):
        return next(self.path.glob("model-00000-*"))

    def test_ignores_checksums(self):
        self.tiny()
        data = bytearray(self.shard().read_bytes())
        data[4096] ^= 1
        self.shard().write_bytes(data)
        self.assertIn("ok", self.read("ignores-checksums", "crc-mismatch"))

    def test_takes_last_duplicate(self):
        self.tiny()
        self.commit(lambda manifest: manifest.replace(b'"step":1000,', b'"step":1000,"step":7,'))
        self.assertEqual(self.read("takes-last-duplicate", "not-canonical")["ok"]["step"], 7)

    def test_fills_gaps(self):
        self.tiny()
        self.shard().unlink()
        self.assertIn("ok", self.read("fills-gaps", "file-missing"))

    def test_follows_links(self):
        self.tiny()
        name = self.shard().name
        self.shard().rename(self.folder / "elsewhere")
        (self.path / name).symlink_to(self.folder / "elsewhere")
        self.assertIn("ok", self.read("follows-links", "not-regular"))

    def test_follows_dots(self):
        self.tiny()
        (self.folder / "secret").write_bytes(b"hello")
        self.commit(lambda manifest: manifest.replace(b'"tok/a.txt"', b'"../secret"'))
        said = self.read("follows-dots", "bad-path")
        self.assertIn("ok", said, said)
        self.assertEqual(said["ok"]["attachments"][0]["path"], "../secret")

    def test_trusts_lengths(self):
        self.tiny()
        self.commit(lambda manifest: manifest.replace(b'"bytes":5,', b'"bytes":50000000,'))
        self.assertEqual(self.read("trusts-lengths", "length-mismatch")["ok"]["attachments"][0]["bytes"], 50000000)

    def test_takes_uncommitted(self):
        (self.tiny() / "waystation.commit").unlink()
        self.assertIn("ok", self.read("takes-uncommitted", "not-committed"))

    def test_ignores_features(self):
        self.tiny(features={"optional": [], "required": ["x/y"]})
        self.assertIn("ok", self.read("ignores-features", "unsupported-feature"))

    def test_ignores_markers(self):
        (self.tiny() / "deleted").touch()
        self.assertIn("ok", self.read("ignores-markers", "deleted"))

    def test_swaps_tensors(self):
        self.tiny()
        self.assertIn("ok", self.read("swaps-tensors", None))

    def test_says_the_same_to_all(self):
        self.tiny()
        self.assertEqual(self.read("says-ok", None)["ok"], {})
        self.assertEqual(self.read("refuses-everything", None)["error"]["code"], "bad-format")

    def test_writes_something_else(self):
        case = json.loads((FOLDER.parent / "cases/writer/topology-and-parent/expect.json").read_text())
        recipe = case["request"]["recipe"]

        def written(name):
            out = self.folder / name / f"step-{recipe['step']:012}-{recipe['attempt']}"
            out.parent.mkdir()
            said = ask(HELLO, {"id": 2, "op": "write", "out": str(out), "recipe": recipe}, adapter=(BROKEN, name))
            self.assertEqual(said[1], {"id": 2, "ok": {}})
            self.assertEqual((out / "waystation.commit").exists(), name != "never-commits")
            return json.loads((out / "manifest.json").read_text())
        sound = written("never-commits")
        for name, member in [("forgets-parent", "parent"), ("forgets-topology", "topology"), ("changes-block", "block_bytes")]:
            wrong = written(name)
            self.assertEqual(sound[member], recipe[member])
            self.assertNotEqual(wrong[member], recipe[member])
        for name in ("writes-stale-bytes", "loses-records"):
            written(name)

    def test_does_not_answer(self):
        lines = f"{json.dumps(HELLO)}\n" + json.dumps({"id": 2, "op": "read", "path": "/"}) + "\n"
        command = [sys.executable, "-B", str(BROKEN)]
        done = subprocess.run([*command, "crashes"], input=lines, capture_output=True, text=True)
        self.assertEqual(done.returncode, -signal.SIGABRT)
        self.assertRaises(ValueError, json.loads, done.stdout.splitlines()[1])
        with subprocess.Popen([*command, "hangs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hanging:
            hanging.stdin.write(lines)
            hanging.stdin.flush()
            self.assertIn("broken-hangs", hanging.stdout.readline())
            with self.assertRaises(subprocess.TimeoutExpired):
                hanging.wait(0.5)
            hanging.kill()

    def test_all_are_listed(self):
        done = subprocess.run([sys.executable, "-B", str(BROKEN), "--list"], capture_output=True, text=True)
        self.assertEqual(len(done.stdout.splitlines()), 20)
        self.assertNotIn("None", done.stdout)
        self.assertEqual(subprocess.run([sys.executable, "-B", str(BROKEN), "x"], capture_output=True).returncode, 2)


class Template(unittest.TestCase):
    def test_answers(self):
        said = ask(HELLO, {"id": 2, "op": "read", "path": "/x"}, {"id": 3, "op": "write"}, adapter=(TEMPLATE,))
        self.assertEqual(said[0]["ok"]["profiles"], ["core"])
        self.assertEqual(said[1]["error"]["code"], "not-implemented")
        self.assertIn("skip", said[2])
        self.assertLess(len(TEMPLATE.read_text().splitlines()), 50)


if __name__ == "__main__":
    unittest.main()
