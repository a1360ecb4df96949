"""What two readers once answered differently: several breaches at once, and which file a finding names."""

import copy
import json
import tempfile
import unittest

from tests import support
from tests.test_rules import bend, put
from waystation_reader.verify import verify


def bend_shards(manifest, shards):
    return manifest | {"parts": [manifest["parts"][0] | {"shards": shards}, *manifest["parts"][1:]]}


class Differences(unittest.TestCase):
    def found(self, checkpoint):
        with tempfile.TemporaryDirectory() as directory:
            checkpoint.write(directory)
            return verify(directory)[0]

    def test_several_rules_broken(self):
        """Each answer hides the breaches after it in the list."""
        def answers(hook, file, faults, accept=lambda value: True):
            for last in range(len(faults)):
                checkpoint = support.tiny(features={"optional": ["x/y"], "required": []})
                checkpoint.writers[0].members["extensions"] = {"x/y": {"on_rewrite": "keep", "value": 1}}

                def change(value, last=last):
                    value = copy.deepcopy(value)
                    if accept(value):
                        for path, new, _ in faults[last:]:
                            put(value, path, new)
                    return value

                setattr(checkpoint, hook, change)
                found = [refusal.rule for refusal in self.found(checkpoint) if refusal.file.startswith(file)]
                with self.subTest(hook=hook, path=faults[last][0]):
                    self.assertEqual(found[:1], [faults[last][2]])

        answers("on_manifest", "manifest", [
            (["block_bytes"], "x", "json.types"),
            (["contents", 0, 1, 0, 1], 4194305, "limit.value"),
            (["topology"], [["dp", 2]] * 17, "common.topology"),
        ])
        answers("on_manifest", "manifest", [
            (["tensors", 0, "first", 5], [["dp", 2]], "identity.scope"),
            (["features"], {"optional": [], "required": []}, "part.extensions"),
            (["parts", 1, "attachments"], [{"bytes": 0, "path": "TOK", "sha256": "0" * 64}], "attachment.unique"),
            (["writers"], 3, "manifest.parts"),
            (["records", 0, "first", 2], [["dp", 2]], "record.coordinate"),
        ])
        answers("on_manifest", "manifest", [
            (["tensors", 0, "first"], ["critic", "weird", "x", "", "", [], 1], "identity.role"),
            (["writers"], 1 << 24, "limit.value"),
        ])
        answers("on_part", "part-00001", [
            (["zz"], 1, "json.unknown-member"),
            (["writer"], 2, "part.writer"),
            (["entries", 2, "dtype"], "F99", "tensor.dtype"),
            (["records", 0, "value"], 1, "record.value"),
        ], lambda part: part["writer"] == 1)
        answers("on_page", "tensors", [
            (["zz"], 1, "json.unknown-member"),
            (["entries", 6, "chunks", 1, 0], None, "json.types"),
            (["entries", 6, "valid"], [3], "tensor.rank"),
        ], lambda page: "entries" in page)

    def test_alias_or_tensor(self):
        """Its first member tells what an entry is."""
        for new, code, rule in (
            ({"chunks": 1}, "bad-member", "json.types"),
            ({"dtype": "F32"}, "bad-member", "json.unknown-member"),
        ):
            bent = bend(support.tiny(), "on_page", ["entries", 7], lambda entry, new=new: entry | new, lambda page: "entries" in page)
            self.assertIn((code, rule, "tensors-00000.json"), [(f.code, f.rule, f.file) for f in self.found(bent)])

    def test_an_alias_names_its_page(self):
        def change(entries):
            return [entry | {"of": [*entry["of"][:2], "nowhere", "", "", []]} if "of" in entry else entry for entry in entries]
        bent = bend(support.tiny(), "on_page", ["entries"], change, lambda page: "entries" in page)
        self.assertEqual([f.file for f in self.found(bent) if f.rule == "alias.target"], ["tensors-00000.json"])

    def test_data_is_checked_against_the_part(self):
        """B, and a shard's length and table, when the manifest or the layout say otherwise."""
        data = {"crc-table-mismatch", "length-mismatch", "crc-mismatch"}
        for hook, path, new, expected in (
            ("on_manifest", ["block_bytes"], 8192, []),
            ("on_part", ["shards", 0, "crc_table", "offset"], 4096, ["crc-table-mismatch"]),
            ("on_part", ["shards", 0, "bytes"], 40960, ["length-mismatch"]),
        ):
            checkpoint = support.tiny()

            def change(value, path=path, new=new):
                value = copy.deepcopy(value)
                if value.get("writer", 0) == 0:
                    put(value, path, new)
                return value

            setattr(checkpoint, hook, change)
            if hook == "on_part":
                sound = json.loads(support.tiny().files()["manifest.json"])["parts"][0]["shards"]
                checkpoint.on_manifest = lambda manifest, sound=sound: bend_shards(manifest, sound)
            with self.subTest(path=path):
                self.assertEqual([f.code for f in self.found(checkpoint) if f.code in data], expected)
