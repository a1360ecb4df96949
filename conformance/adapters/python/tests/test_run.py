"""`latest`: which checkpoint it answers with, what it passes over, and when it answers with an error."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path

from tests import support
from waystation_reader import registry
from waystation_reader.__main__ import main


def called(*words):
    """(exit status, JSON answer) of a command line."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = main([str(word) for word in words])
        except SystemExit as left:
            status = left.code
    text = output.getvalue()
    return status, json.loads(text) if text else None


class Latest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_directory = folder.name

    def save(self, step, attempt, name=None, **members):
        name = name or f"step-{step:012}-{attempt}"
        checkpoint = support.Checkpoint(support.tiny().writers, step=step, attempt=attempt, **members)
        checkpoint.write(os.path.join(self.run_directory, name))
        return name

    def path(self, *names):
        return os.path.join(self.run_directory, *names)

    def test_order(self):
        self.assertEqual(called("latest", self.run_directory)[1]["error"]["code"], "no-checkpoint")
        self.save(900, "0000000100000000")
        newest = self.save(600, "0000000200000001")
        self.save(600, "0000000200000000")
        self.save(500, "00000002ffffffff")
        os.mkdir(self.path("other"))
        Path(self.path("step-000000009999-0000000300000000")).touch()
        os.symlink(newest, self.path("step-000000009998-0000000300000000"))
        os.symlink("nowhere", self.path("step-000000009997-0000000300000000"))
        os.mkfifo(self.path("step-000000009996-0000000300000000"))
        status, answer = called("latest", self.run_directory)
        self.assertEqual((status, answer["directory"], answer["step"], answer["skipped"]), (0, newest, 600, []))

    def test_skipped(self):
        old = self.save(1, "0000000100000000")
        expected = {}
        cut = self.save(2, "0000000100000000")
        os.remove(self.path(cut, "tensors-00000.json"))
        expected[cut] = "file-missing"
        bare = "step-000000000003-0000000100000000"
        os.mkdir(self.path(bare))
        expected[bare] = "not-committed"
        gone = self.save(4, "0000000100000000")
        Path(self.path(gone, "deleted")).touch()
        expected[gone] = "deleted"
        bad = self.save(5, "0000000100000000")
        Path(self.path(bad, "rejected")).write_text("loss is NaN")
        expected[bad] = "rejected"
        renamed = self.save(6, "0000000100000000", "step-000000000007-0000000100000000")
        expected[renamed] = "name-disagrees"
        damaged = self.save(8, "0000000100000000")
        Path(self.path(damaged, "manifest.json")).write_text("{}")
        expected[damaged] = "digest-mismatch"
        status, answer = called("latest", self.run_directory)
        self.assertEqual((status, answer["directory"]), (0, old))
        self.assertEqual({skipped["directory"]: skipped["code"] for skipped in answer["skipped"]}, expected)
        self.assertEqual(called("read", self.path(bad))[0], 0)
        self.assertEqual(called("read", self.path(renamed))[0], 0)

    def test_lost_is_no_fresh_start(self):
        os.mkdir(self.path("step-000000000003-0000000100000000"))
        gone = self.save(4, "0000000100000000")
        Path(self.path(gone, "deleted")).touch()
        status, answer = called("latest", self.run_directory)
        self.assertEqual((status, answer["error"]["code"], answer["error"]["rule"]), (1, "no-checkpoint", "run.latest"))
        bad = self.save(2, "0000000100000000")
        Path(self.path(bad, "rejected")).write_text("loss is NaN")
        status, answer = called("latest", self.run_directory)
        self.assertEqual((status, answer["error"]["code"], answer["error"]["rule"]), (1, "none-resumable", "run.none"))
        self.assertEqual(len(answer["skipped"]), 3)

    def test_no_run(self):
        status, answer = called("latest", self.path("nowhere"))
        self.assertEqual((status, answer["error"]["code"]), (1, "not-found"))

    def test_unsupported_is_an_answer(self):
        self.save(1, "0000000100000000")
        self.save(2, "0000000100000000", version="2.0")
        status, answer = called("latest", self.run_directory)
        self.assertEqual((status, answer["error"]["code"]), (1, "unsupported-version"))

    @unittest.skipIf(os.geteuid() == 0, "the superuser may read everything")
    def test_denied_is_an_answer(self):
        self.save(1, "0000000100000000")
        name = self.save(2, "0000000100000000")
        os.chmod(self.path(name), 0)
        status, answer = called("latest", self.run_directory)
        os.chmod(self.path(name), 0o700)
        self.assertEqual((status, answer["error"]["code"]), (3, "io-denied"))


class CommandLine(unittest.TestCase):
    def test_no_control_characters(self):
        record = {"kind": "note", "name": "n", "value": {"text": "\x1b[31m\x7f\x9b\u202e"}}
        with tempfile.TemporaryDirectory() as directory:
            support.Checkpoint([support.Writer(0, records=[record])]).write(directory)
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                self.assertEqual(main(["read", directory]), 0)
        self.assertTrue(all(" " <= character <= "~" for character in output.getvalue().rstrip("\n")))
        self.assertEqual(json.loads(output.getvalue())["records"], [record])

    def test_a_companion_that_cannot_be_read_whole(self):
        scale = {"block": 4, "dtype": "U8", "name": "c", "role": "quant", "shape": [4, 6], "slot": "scale"}
        with tempfile.TemporaryDirectory() as directory:
            support.Checkpoint([support.Writer(0, [(scale, support.halves([4, 6], 1))])]).write(directory)
            status, answer = called("read", directory)
            self.assertEqual((status, called("verify", directory)[0]), (0, 0))
        tensor, = answer["tensors"]
        self.assertEqual((tensor["bytes"], tensor["sha256"], tensor["refused"]), (None, None, "block-boundary"))

    def test_answers(self):
        with tempfile.TemporaryDirectory() as directory:
            support.tiny().write(directory)
            status, answer = called("verify", directory, "--json")
            self.assertEqual((status, answer), (0, {"ok": True, "findings": [], "notes": []}))
            status, answer = called("read", directory, "--json")
            self.assertEqual(status, 0)
            params = [tensor["name"] for tensor in answer["tensors"] if tensor["role"] == "param"]
            self.assertEqual(params, ["big", "four", "none", "w"])
            self.assertEqual([attachment["path"] for attachment in answer["attachments"]], ["tok/a.txt", "tok/b"])
            self.assertEqual(len(answer["records"]), 5)
            key = '["main","param","w","","",[]]'
            whole = next(tensor for tensor in answer["tensors"] if tensor["name"] == "w" and tensor["role"] == "param")
            status, answer = called("slice", directory, key, "[0,0]", "[4,6]")
            self.assertEqual((status, answer["sha256"]), (0, whole["sha256"]))
            self.assertEqual(called("slice", directory, key, "[0,0]", "[5,6]")[1]["error"]["code"], "bad-region")
            absent = '["main","param","x","","",[]]'
            self.assertEqual(called("slice", directory, absent, "[]", "[]")[1]["error"]["code"], "not-found")
            for identity, start, extent in (
                (key, "[0,0", "[1,1]"),
                (key, "[0.5,0]", "[1,1]"),
                ('["main","param","\\ud800","","",[]]', "[]", "[]"),
                ('"w"', "[0]", "[1]"),
                ("[" * 100000, "[]", "[]"),
            ):
                self.assertEqual(called("slice", directory, identity, start, extent)[0], 2)
            os.remove(os.path.join(directory, "waystation.commit"))
            status, answer = called("verify", directory)
            self.assertEqual((status, answer["ok"], answer["findings"][0]["code"]), (1, False, "not-committed"))
        self.assertEqual(called("verify", directory)[1]["findings"][0]["code"], "not-found")
        self.assertEqual(called("read", directory)[1]["error"]["code"], "not-found")
        self.assertEqual(called("nothing")[0], 2)


class Registry(unittest.TestCase):
    """The constants here against the registry, where this folder stands in the project."""

    def setUp(self):
        self.table = support.registry
        if not self.table("limits", "limit"):
            self.skipTest("the specification is not here")

    def test_tables(self):
        limits = {limit["id"]: limit["value"] for limit in self.table("limits", "limit")}
        self.assertEqual(registry.LIMITS, {name: limits[name] for name in registry.LIMITS})
        dtypes = self.table("dtypes", "dtype")
        self.assertEqual(registry.BITS, {dtype["id"]: dtype["bits"] for dtype in dtypes})
        self.assertEqual(registry.SELF, {dtype["id"] for dtype in dtypes if dtype["header"] == "self"})
        said = {"required": True, "forbidden": False, "optional": None}
        roles = {role["id"]: (role["class"], said[role["slot"]], said[role["owner"]]) for role in self.table("roles", "role")}
        self.assertEqual(registry.ROLES, roles)
        caches = {cache["id"]: cache["bits"] for cache in self.table("rng-caches", "cache")}
        self.assertEqual(registry.CACHES, caches)
        schedules = {schedule["id"]: tuple(schedule["parameters"].split(", ")) for schedule in self.table("schedules", "schedule")}
        self.assertEqual(registry.SCHEDULES, schedules)
        self.assertEqual(registry.GRADES, tuple(grade["id"] for grade in self.table("grades", "grade")))
        exits = {entry["id"]: entry["exit"] for entry in self.table("classes", "class")}
        for code in self.table("codes", "code"):
            self.assertEqual(registry.exit_status(code["id"]), exits[code["class"]], code["id"])


if __name__ == "__main__":
    unittest.main()
