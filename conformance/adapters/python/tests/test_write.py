"""What the writer saves is what it was told, and what a crash leaves is no checkpoint or the whole one."""

import copy
import os
import tempfile
import unittest
from unittest import mock

from tests import support
from tests.test_read import packed
from waystation_reader import content
from waystation_reader.checkpoint import open_checkpoint
from waystation_reader.refusal import Refusal
from waystation_reader.verify import verify
from waystation_writer.save import save

ADAM = {"algorithm": "adam", "groups": [{"hyper": [], "name": "all", "params": [["main", "w"]]}], "steps": []}
RECIPE = {
    "run": "r", "step": 7, "attempt": "000000030000abcd", "block_bytes": 4096, "parent": "ab" * 32, "topology": [["dp", 2]],
    "tensors": [
        {"role": "param", "name": "w", "dtype": "F32", "shape": [200, 128], "data": {"seed": 7}},
        {"role": "param", "name": "six", "dtype": "F6_E2M3", "shape": [3, 5], "valid": [3, 4],
         "data": {"hex": packed(range(15), 6).hex()}},
        {"role": "buffer", "name": "empty", "dtype": "F32", "shape": [0, 3], "data": {"hex": ""}},
        {"role": "buffer", "name": "count", "component": "critic", "dtype": "I64", "shape": [], "data": {"hex": "0102030405060708"}},
        {"role": "quant", "name": "w", "slot": "scale", "dtype": "F32", "block": 64, "shape": [200, 128], "data": {"seed": 3}},
        {"role": "optimizer", "name": "w", "slot": "adam.m", "owner": "main", "dtype": "U1", "shape": [3, 7], "axes": [0, None],
         "native": [["torch", ["m", 3]]], "data": {"seed": 12}},
        {"role": "extension", "name": "e", "scope": [["dp", 1]], "dtype": "U8", "shape": [5], "data": {"seed": 0}},
    ],
    "writers": [
        {"boxes": [[1, [0, 0], [3, 2]], [0, [0, 0], [150, 128]], [4, [0, 0], [100, 128]], [5, [0, 0], [1, 7]], [3, [], []]],
         "aliases": [{"name": "tied", "of": ["main", "param", "w", "", "", []], "role": "param"}],
         "attachments": [{"path": "a/b", "hex": "0102"}, {"path": "c", "hex": ""}],
         "records": [{"kind": "optimizer", "name": "main", "value": ADAM},
                     {"coordinate": [["dp", 0]], "kind": "x/y", "name": "n", "value": {"a": [1, None, "\u00e9\U0001f600\n"]}}],
         "omitted": [{"component": "main", "names": ["frozen"], "reason": "frozen"}]},
        {"boxes": [[0, [150, 0], [50, 128]], [1, [0, 2], [3, 3]], [4, [100, 0], [100, 128]], [5, [1, 0], [2, 7]], [6, [0], [5]]],
         "records": [{"coordinate": [["dp", 1]], "kind": "x/y", "name": "n", "value": {}},
                     {"kind": "progress", "name": "main", "value": {"optimizer_step": 7}}]},
    ],
}


class Killed(BaseException):
    pass


class Write(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder, self.out = folder.name, os.path.join(folder.name, "step-000000000007-000000030000abcd")

    def refused(self, *path, code):
        *path, new = path
        recipe = copy.deepcopy(RECIPE)
        place = recipe
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = new
        with self.assertRaises(Refusal) as refused:
            save(tempfile.mkdtemp(dir=self.run_folder) + "/out", recipe)
        self.assertEqual(refused.exception.code, code, refused.exception.message)

    def test_what_is_read(self):
        save(self.out, RECIPE)
        self.assertEqual(verify(self.out), ([], []))
        checkpoint = open_checkpoint(self.out)
        self.addCleanup(checkpoint.directory.close)
        said = content.everything(checkpoint)
        self.assertEqual((said["run"], said["step"], checkpoint.manifest["parent"]), ("r", 7, "ab" * 32))
        self.assertEqual([(tensor["role"], tensor["name"], tensor["bytes"]) for tensor in said["tensors"]], [
            ("buffer", "count", 8), ("buffer", "empty", 0), ("extension", "e", 5), ("optimizer", "w", 3), ("param", "six", 12),
            ("param", "w", 102400), ("quant", "w", 1600)])
        hexes = {tensor["name"]: tensor.get("hex") for tensor in said["tensors"]}
        self.assertEqual(hexes["six"], packed(range(15), 6).hex())
        self.assertEqual(hexes["count"], "0102030405060708")
        self.assertEqual(hexes["e"], support.filler(5, 0).hex())
        data = {tensor["name"]: tensor["sha256"] for tensor in said["tensors"] if tensor["role"] != "optimizer"}
        self.assertEqual((said["tensors"][5]["sha256"], data["w"]),
                         (support.sha(support.filler(102400, 7)), support.sha(support.filler(1600, 3))))
        bits = bytearray(support.filler(3, 12))
        bits[-1] &= 0x1F
        self.assertEqual(said["tensors"][3]["hex"], bits.hex())
        self.assertEqual([alias["name"] for alias in said["aliases"]], ["tied"])
        self.assertEqual([(one["path"], one["bytes"]) for one in said["attachments"]], [("a/b", 2), ("c", 0)])
        self.assertEqual(said["records"], sorted(
            (record for writer in RECIPE["writers"] for record in writer["records"]), key=support.record_key))
        self.assertEqual(checkpoint.manifest["omitted"], RECIPE["writers"][0]["omitted"])

    def test_refused(self):
        self.refused("run", "", code="bad-name")
        self.refused("block_bytes", 5000, code="bad-member")
        self.refused("writers", [], code="bad-argument")
        self.refused("tensors", {}, code="bad-argument")
        self.refused("tensors", 0, "data", {"hex": "00"}, code="bad-argument")
        self.refused("tensors", 0, "data", {"hex": "0x"}, code="bad-argument")
        self.refused("tensors", 0, "dtype", "F33", code="unsupported-dtype")
        self.refused("writers", 1, "boxes", [], code="cover-gap")
        self.refused("writers", 1, "boxes", 0, [0, [149, 0], [51, 128]], code="cover-overlap")
        self.refused("writers", 1, "boxes", 0, [0, [151, 0], [50, 128]], code="bad-chunk")
        self.refused("writers", 1, "boxes", 2, [4, [100, 1], [100, 127]], code="block-boundary")
        self.refused("writers", 1, "boxes", 0, [9, [], []], code="bad-argument")
        self.refused("writers", 1, "records", 0, {"kind": "progress", "name": "other", "value": {}}, code="bad-member")
        self.refused("writers", 1, "records", 0, "value", {"a": 0.5}, code="not-canonical")
        self.refused("writers", 1, "records", 0, "coordinate", [["dp", 2]], code="bad-identity")
        self.refused("writers", 0, "aliases", 0, "of", ["main", "param", "v", "", "", []], code="bad-alias")

    def test_exists_and_fence(self):
        save(self.out, RECIPE)
        with self.assertRaises(Refusal) as refused:
            save(self.out, RECIPE)
        self.assertEqual(refused.exception.code, "exists")
        self.assertEqual(verify(self.out), ([], []))
        with self.assertRaises(Refusal) as refused:
            save(os.path.join(self.run_folder, "step-000000000008-0000000200000000"), RECIPE | {"attempt": "0000000200000000"})
        self.assertEqual(refused.exception.code, "fenced")

    def test_without_hard_links(self):
        with mock.patch("os.link", side_effect=PermissionError(1, "not here")):
            save(self.out, RECIPE)
        self.assertEqual(verify(self.out), ([], []))

    def test_killed_anywhere(self):
        kept = {"fsync": os.fsync, "link": os.link, "unlink": os.unlink, "mkdir": os.mkdir}
        seen = set()
        for last in range(200):
            left = last
            order = []

            def counted(name):
                def call(*arguments, **members):
                    nonlocal left
                    if left == 0:
                        raise Killed
                    left -= 1
                    order.append((name, arguments))
                    return kept[name](*arguments, **members)
                return call

            out = f"{self.out}.{last}"
            try:
                with mock.patch.multiple(os, **{name: counted(name) for name in kept}):
                    save(out, RECIPE)
                whole = True
            except Killed:
                whole = False
            findings, _ = verify(out)
            seen.add((whole, findings[0].code if findings else None))
            if whole:
                break
        self.assertEqual(seen, {(False, "not-found"), (False, "not-committed"), (False, None), (True, None)})
        self.ordered(order)

    def ordered(self, order):
        """Directories are synced between the parts' files and the parts, the manifest and the commit file, and after it."""
        links = [position for position, (name, arguments) in enumerate(order) if name == "link"]
        names = [order[position][1][1] for position in links]
        self.assertEqual([name.partition("-")[0] for name in names],
                         ["part", "part", "tensors", "records", "manifest.json", "waystation.commit"])
        between = [sum(name == "fsync" for name, _ in order[one:other]) for one, other in zip([0, *links], [*links, len(order)])]
        # What stands between two names: the syncs of the next file itself, and of directories where the chapter asks for them.
        self.assertEqual(between, [7, 5, 2, 1, 1, 2, 2])


if __name__ == "__main__":
    unittest.main()
