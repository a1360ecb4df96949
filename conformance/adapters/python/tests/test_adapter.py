"""The line protocol: every operation on the example, and every way to ask for nothing that there is."""

import hashlib
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tests import support

ADAPTER = Path(__file__).resolve().parents[1] / "adapter.py"
EXAMPLE = Path(__file__).resolve().parents[4] / "spec" / "example"


def ask(*lines, adapter=(ADAPTER,)):
    """The answers to lines, each an object or a text as it is."""
    given = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    done = subprocess.run([sys.executable, "-B", *map(str, adapter)], input=given, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def one(op, adapter=(ADAPTER,), **members):
    return ask({"id": 1, "op": op} | members, adapter=adapter)[0]


class Example(unittest.TestCase):
    def setUp(self):
        self.path = str(next(EXAMPLE.glob("step-*")))

    def test_hello(self):
        said = one("hello", protocol=1, spec="1.0")["ok"]
        self.assertEqual(said["protocol"], 1)
        self.assertEqual(said["profiles"], ["core", "reshard", "resume", "writer", "durability", "extended"])
        self.assertEqual(one("hello", protocol=2)["error"]["code"], "bad-argument")

    def test_read(self):
        said = one("read", path=self.path)["ok"]
        self.assertEqual((said["run"], said["step"]), ("example", 1000))
        self.assertEqual([tensor["name"] for tensor in said["tensors"]],
                         ["steps_seen", "block.0.weight", "block.0.weight", "embed.weight", "packed"])
        packed = said["tensors"][4]
        self.assertEqual(packed, {
            "component": "main", "role": "param", "name": "packed", "slot": "", "owner": "", "scope": [], "dtype": "F4_E2M1",
            "shape": [5], "bytes": 3, "sha256": hashlib.sha256(bytes.fromhex(packed["hex"])).hexdigest(), "hex": "cd2302"})
        self.assertEqual(said["aliases"], [{
            "component": "main", "role": "param", "name": "lm_head.weight", "slot": "", "owner": "", "scope": [],
            "of": ["main", "param", "embed.weight", "", "", []]}])
        self.assertEqual([attachment["path"] for attachment in said["attachments"]], ["config.json"])
        self.assertIn("progress", [record["kind"] for record in said["records"]])

    def test_slice(self):
        def of(name, start, extent, role="param"):
            return one("slice", path=self.path, tensor=["main", role, name, "", "", []], start=start, extent=extent)
        self.assertEqual(of("packed", [1], [3])["ok"],
                         {"dtype": "F4_E2M1", "extent": [3], "bytes": 2, "hex": "3c02",
                          "sha256": hashlib.sha256(bytes.fromhex("3c02")).hexdigest()})
        self.assertEqual(of("lm_head.weight", [1, 2], [1, 1]), of("embed.weight", [1, 2], [1, 1]))
        self.assertEqual(of("packed", [1], [5])["error"]["code"], "bad-region")
        self.assertEqual(of("nowhere", [1], [5])["error"]["code"], "not-found")
        self.assertEqual(of("packed", [1], [5], "poet")["error"]["code"], "bad-argument")
        self.assertEqual(of("packed", ["1"], [5])["error"]["code"], "bad-argument")

    def test_validate_and_latest(self):
        self.assertEqual(one("validate", path=self.path)["ok"], {"findings": []})
        self.assertEqual(one("validate", path=str(EXAMPLE))["ok"]["findings"][0]["code"], "not-committed")
        self.assertEqual(one("latest", path=str(EXAMPLE))["ok"], {"name": Path(self.path).name})
        self.assertEqual(one("latest", path=self.path)["ok"], {"name": None})
        self.assertEqual(one("latest", path=self.path + "x")["error"]["code"], "not-found")

    def test_state(self):
        graded = one("state", path=self.path, topology=None)["ok"]
        self.assertEqual([(stream["name"], stream["coordinate"], stream["grade"]) for stream in graded["rng"]],
                         [("dropout", [["dp", n]], "exact-if-axes-unchanged") for n in range(2)])
        source = next(record["value"]["source"] for record in one("read", path=self.path)["ok"]["records"]
                      if record["kind"] == "cursor")
        place = {"path": self.path, "topology": [["dp", 2]], "coordinate": [["dp", 1]]}
        self.assertEqual(one("state", **place)["error"]["code"], "not-exact")
        offered = {"sources": [["train", source["records"], source["sha256"]]]}
        said = one("state", **place, **offered)["ok"]
        self.assertEqual(said["rng"], [{
            "name": "dropout", "grade": "exact", "algorithm": graded["rng"][1]["algorithm"], "state": "2b00000000000000a00f000000000000",
            "next_raw": ["6ec7056b", "62129d9b", "ebdefcb0", "0fabee5b", "c39c0677"]}])
        self.assertEqual([(cursor["name"], cursor["grade"], cursor["position"]) for cursor in said["cursors"]], [("train", "exact", 32000)])
        self.assertNotIn("share", said["cursors"][0])
        moved = {"topology": [["dp", 3]], "coordinate": [["dp", 2]], "demand": "fork", "share": True}
        forked = one("state", **(place | moved), **offered)["ok"]
        self.assertEqual(forked["rng"][0]["grade"], "fork")
        self.assertEqual(len(forked["rng"][0]["next_raw"]), 4)
        requests = [{"id": 1, "op": "state"} | place | members for members in (
            {"coordinate": []}, {"coordinate": [["dp", 2]]}, {"demand": "some"}, {"sources": [["train", -1, ""]]},
            {"topology": [["dp", 2], ["dp", 2]]}, {"topology": 3}, {"share": 1}, {"leave_out": "x"}, {"leave_out": ["x"]},
            {"sources": [["x", 1, "0" * 64]]}, {"fingerprints": [["x", 1]]})]
        for request, said in zip(requests, ask(*requests), strict=True):
            self.assertEqual(said["error"]["code"], "bad-argument", request)


class Malformed(unittest.TestCase):
    def test_lines(self):
        lines = ["nonsense", "[]", "{}", '{"id":"1","op":"hello"}', '{"id":true}', "[" * 100000, '{"id":1,"op":"read","path":"\\ud800"}',
                 '{"id":' + "9" * 5000 + "}"]
        for said in ask(*lines):
            self.assertEqual((said["id"], said["error"]["code"]), (None, "bad-argument"))

    def test_requests(self):
        requests = [{"id": 1, "op": op} | members
                    for members in ({}, {"path": 3}, {"path": "relative"}, {"path": "/\0"}, {"path": None})
                    for op in ("read", "slice", "validate", "latest", "state")]
        for request, said in zip(requests, ask(*requests), strict=True):
            self.assertEqual(said["error"]["code"], "bad-argument", request)
        self.assertIn("skip", one("paint", path="/"))
        self.assertEqual(one("read", path="/dev/null")["error"]["code"], "not-regular")
        self.assertEqual(one("read", path="/nowhere/at/all")["error"]["code"], "not-found")

    def test_a_refusal_says_where(self):
        with tempfile.TemporaryDirectory() as folder:
            support.tiny(step=-1).write(folder)
            said = one("read", path=folder)["error"]
        self.assertEqual((said["code"], said["file"], said["pointer"], said["rule"]),
                         ("bad-member", "manifest.json", "/step", "json.types"))


if __name__ == "__main__":
    unittest.main()
