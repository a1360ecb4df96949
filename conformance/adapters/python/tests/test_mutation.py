"""The reader without a check answers otherwise exactly where that check stood."""

import copy
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import adapter
from tests import support
from tests.test_adapter import ask

FOLDER = Path(__file__).resolve().parents[1]
WITHOUT = FOLDER / "without.py"
SPEC = FOLDER.parents[2] / "spec"
EXAMPLE = SPEC / "example"


def lines(*words):
    done = subprocess.run([sys.executable, "-B", str(WITHOUT), *words], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def sound_answer(request):
    return json.loads(json.dumps(adapter.respond(json.dumps(request), "python")))


class Without(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def made(self, change=lambda files: None, checkpoint=None):
        path = self.folder / str(len(list(self.folder.iterdir())))
        (checkpoint or support.tiny()).write(path)
        change(path)
        return str(path)

    def read(self, path, *words, op="read"):
        return ask({"id": 1, "op": op, "path": path}, adapter=(WITHOUT, *words))[0]

    def test_a_check_that_is_off_lets_pass(self):
        def shard(path):
            return next(path.glob("model-00000-*"))

        def flip(path):
            data = bytearray(shard(path).read_bytes())
            data[4096] ^= 1
            shard(path).write_bytes(data)

        def link(path):
            moved = self.folder / "elsewhere"
            shard(path).rename(moved)
            shard_name = f"model-00000-{0xfeed0000:016x}-00000.safetensors"
            (path / shard_name).symlink_to(moved)

        def twice(path):
            manifest = (path / "manifest.json").read_bytes().replace(b'"step":1000,', b'"step":1000,"step":1001,')
            (path / "manifest.json").write_bytes(manifest)
            (path / "waystation.commit").write_text(f"{support.sha(manifest)}  manifest.json\n")

        def uncommit(path):
            (path / "waystation.commit").unlink()

        for rule, code, change in (("integrity.chunk", "crc-mismatch", flip), ("dir.regular", "not-regular", link),
                                   ("json.members", "not-canonical", twice), ("commit.absent", "not-committed", uncommit)):
            path = self.made(change)
            self.assertEqual(self.read(path, "open.find")["error"]["code"], code, rule)
            self.assertIn("ok", self.read(path, rule), rule)
        self.assertEqual(self.read(self.made(twice), "json.members")["ok"]["step"], 1001)

    def test_what_is_reported_instead_of_raised(self):
        def pad(path):
            shard = next(path.glob("state-00000-*"))
            data = bytearray(shard.read_bytes())
            data[-1] = 1
            shard.write_bytes(data)
        path = self.made(pad)
        self.assertEqual(len(self.read(path, "shard.header", op="validate")["ok"]["findings"]), 1)
        self.assertEqual(self.read(path, "shard.pads", op="validate")["ok"]["findings"], [])

    def test_the_form_of_a_record_by_any_of_its_rules(self):
        checkpoint = support.tiny()
        checkpoint.writers[0].records[0]["value"]["more"] = 1
        path = self.made(checkpoint=checkpoint)
        self.assertEqual(self.read(path, "scaler.form")["error"]["rule"], "json.unknown-member")
        self.assertIn("ok", self.read(path, "progress.form"))

    def test_several(self):
        said = ask({"id": 1, "op": "hello", "protocol": 1}, adapter=(WITHOUT, "chunk.bounds", "cover.gap"))[0]
        self.assertEqual(said["ok"]["implementation"]["name"], "python-without-chunk.bounds+cover.gap")

    def test_what_it_falls_over_is_internal(self):
        (self.folder / "m").mkdir()
        said = self.read(str(self.folder / "m"), "commit.absent", "dir.present")["error"]
        self.assertEqual(said["code"], "internal")

    def test_rules(self):
        status, rules = lines("--rules")
        self.assertEqual((status, rules), (0, sorted(set(rules))))
        stated = set(re.findall(r"^\*\*\[([a-z.-]+)\]\*\*", "".join(path.read_text() for path in SPEC.glob("*.md")), re.M))
        if stated:
            self.assertEqual(set(rules) - stated, set())
            self.assertEqual({line.split("\t")[1] for line in lines("--mutations")[1]} - stated, set())
        self.assertEqual(lines("no.rule")[0], 2)
        self.assertEqual(lines()[0], 2)
        self.assertEqual(lines("--mutation", "nothing")[0], 2)


class Faults(unittest.TestCase):
    """Each named fault, against what it is to spoil and what it is to leave."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "step-000000001000-00000001ab12cd34"
        base = support.tiny()
        base.writers[1].records.append({"kind": "vendor/x", "name": "n", "value": {"empty": [], "full": [1]}})
        base.writers[1].tensors.append((self.nan, support.whole([2]), [bytes.fromhex("0100a07f00000080")]))
        base.write(self.path)

    nan = {"dtype": "F32", "name": "nan", "role": "buffer", "shape": [2]}

    def both(self, name, request, path=None):
        request = {"id": 1, "path": str(path or self.path)} | request
        return sound_answer(request), ask(request, adapter=(WITHOUT, "--mutation", name))[0]

    def spoils(self, name, request, path=None):
        sound, spoilt = self.both(name, request, path)
        self.assertNotEqual(sound, spoilt, name)
        self.assertNotEqual(spoilt.get("error", {}).get("code"), "internal", spoilt)

    def test_reading(self):
        (self.path / "notes.txt").write_text("")
        for name in ("cleans-floats", "refuses-others", "refuses-unknown-slots", "drops-unknown-kinds", "sorts-values",
                     "looks-into-unknown", "most-significant-first", "ones-in-unused-bits", "column-major"):
            self.spoils(name, {"op": "read"})

    def test_gaps(self):
        def lose(value):
            value = copy.deepcopy(value)
            del value["entries"][next(i for i, e in enumerate(value["entries"]) if len(e.get("chunks", ())) > 1)]["chunks"][0]
            return value
        gap = support.tiny()
        gap.on_page = lambda page: lose(page) if page["kind"] == "tensors" else page
        gap.write(self.folder / "gap")
        self.spoils("fills-gaps", {"op": "read"}, self.folder / "gap")
        self.assertIn("ok", self.both("fills-gaps", {"op": "read"}, self.folder / "gap")[1])

    def test_names_and_versions(self):
        (self.path / "manifest.json").rename(self.path / "Manifest.json")
        self.spoils("folds-case", {"op": "read"})
        for number, (name, members) in enumerate((("refuses-minor", {"version": "1.7"}),
                                                  ("refuses-optional", {"features": {"optional": ["x/y"], "required": []}}))):
            path = self.folder / str(number)
            support.tiny(**members).write(path)
            self.spoils(name, {"op": "read"}, path)

    def test_regions(self):
        head = ["main", "param", "head \u00e9\U0001f600", "", "", []]
        self.spoils("alias-of-nothing", {"op": "slice", "tensor": head, "start": [0, 0], "extent": [2, 2]})
        self.spoils("alias-by-name", {"op": "slice", "tensor": head, "start": [0, 0], "extent": [2, 2]})
        shard = next(self.path.glob("model-00001-*"))
        data = shard.read_bytes()
        shard.write_bytes(data[:8] + data[8:4096].replace(b'"nan"', b'"six"', 1) + data[4096:])
        self.spoils("by-header", {"op": "read"})
        damaged = bytearray(data)
        damaged[-4096:] = bytes(byte ^ 1 for byte in damaged[-4096:])
        shard.write_bytes(damaged)
        self.spoils("reads-all-first", {"op": "slice", "tensor": ["main", "param", "big", "", "", []], "start": [0, 0], "extent": [1, 1]})

    def test_runs(self):
        def attempt(step, attempt):
            name = f"step-{step:012d}-{attempt}"
            support.tiny(step=step, attempt=attempt).write(self.folder / name)
            return self.folder / name
        lower = attempt(900, "00000002bbbbbbbb")
        self.spoils("latest-by-step", {"op": "latest"}, self.folder)
        attempt(900, "00000002aaaaaaaa")
        self.spoils("latest-by-name", {"op": "latest"}, self.folder)
        newest = attempt(901, "0000000200000000")
        self.spoils("latest-by-attempt", {"op": "latest"}, self.folder)
        next(newest.glob("model-*")).unlink()
        self.spoils("latest-incomplete", {"op": "latest"}, self.folder)
        support.tiny(step=902, attempt="0000000200000000", version="2.0").write(self.folder / "step-000000000902-0000000200000000")
        self.spoils("passes-over-errors", {"op": "latest"}, self.folder)
        (self.folder / "x").mkdir()
        (self.folder / "x" / "step-000000000900-00000002bbbbbbbb").symlink_to(lower)
        self.spoils("takes-run-others", {"op": "latest"}, self.folder / "x")


class State(unittest.TestCase):
    def test_faults(self):
        with tempfile.TemporaryDirectory() as folder:
            support.Checkpoint([support.Writer(0, records=self.records())], topology=[["dp", 2], ["tp", 2]]).write(folder)
            request = {"id": 1, "op": "state", "path": folder, "demand": "none", "sources": [["train", 10, "0" * 64]], "share": True}
            as_it_was = request | {"topology": [["dp", 2], ["tp", 2]], "coordinate": [["dp", 1], ["tp", 0]]}
            moved = request | {"topology": [["dp", 1], ["tp", 2]], "coordinate": [["dp", 0], ["tp", 0]]}
            for name, asked in (("forks-copy", moved), ("forks-alike", moved), ("forks-without-step", moved), ("grades-exact", moved),
                                ("no-canaries", as_it_was), ("refuses-unknown-streams", as_it_was), ("rounds-positions", moved),
                                ("shares-in-runs", as_it_was), ("shares-reversed", as_it_was)):
                if name == "no-canaries":
                    records = self.records()
                    records[1]["value"]["next_raw"][0] = "0" * 16
                    support.Checkpoint([support.Writer(0, records=records)], topology=[["dp", 2], ["tp", 2]]).write(folder + "/bad")
                    asked = asked | {"path": folder + "/bad"}
                sound, spoilt = sound_answer(asked), ask(asked, adapter=(WITHOUT, "--mutation", name))[0]
                self.assertNotEqual(sound, spoilt, name)
                self.assertNotEqual(spoilt.get("error", {}).get("code"), "internal", spoilt)

    @staticmethod
    def records():
        from waystation_reader import cursors, rng
        streams = []
        for dp in range(2):
            state = rng.forked("xoshiro256++", dp)
            streams.append({"coordinate": [["dp", dp]], "kind": "rng", "name": "drop", "value": {
                "algorithm": "xoshiro256++", "caches": [], "next_raw": rng.canary("xoshiro256++", state, 4), "on_reshape": "fork",
                "state": state.hex()}})
        strange = {"kind": "rng", "name": "new", "value": {
            "algorithm": "vendor/x", "caches": [], "next_raw": [], "on_reshape": "fork", "state": "00"}}
        value = {"consumed": 3, "epoch": 0, "epoch_end": {"rule": "wrap"}, "kind": "permuted-index",
                 "order": {"algorithm": "identity", "n": 10}, "position": 3, "source": {"records": 10, "sha256": "0" * 64},
                 "partition": {"axes": ["dp", "tp"], "batch": 8, "rule": "round-robin"}}
        items = cursors.take(cursors.begin(value, None), 8)
        value["next"] = {"count": 8, "first": [cursors.written(item) for item in items[:4]], "sha256": support.sha(
            b"".join(number.to_bytes(8, "little") for item in items for number in item))}
        return [*streams, strange, {"kind": "cursor", "name": "train", "value": value}]


if __name__ == "__main__":
    unittest.main()
