"""Each rule that a bent writer or committer can break: the code that opening answers with, or that verifying reports."""

import copy
import json
import os
import tempfile
import unittest
from unittest import mock

from tests import support
from waystation_reader import derive, entries
from waystation_reader.checkpoint import open_checkpoint
from waystation_reader.refusal import Refusal
from waystation_reader.registry import LIMITS
from waystation_reader.verify import verify

GONE = object()


def put(value, path, new):
    """Sets, or with GONE removes, what a path of members and positions leads to."""
    for step in path[:-1]:
        value = value[step]
    if new is GONE:
        del value[path[-1]]
    else:
        value[path[-1]] = new(value[path[-1]]) if callable(new) else new


def bend(checkpoint, hook, path, new, accept=lambda value: True):
    """Makes the hook change its value before it is written."""
    def bent(value):
        value = copy.deepcopy(value)
        if accept(value):
            put(value, path, new)
        return value
    setattr(checkpoint, hook, bent)
    return checkpoint


def entry_at(name, role="param", alias=False):
    def position(entries):
        return next(i for i, e in enumerate(entries) if e["name"] == name and e["role"] == role and ("of" in e) == alias)
    return position


# Of the manifest: (path, new value, code, rule). The order is that of the chapters.
MANIFEST = [
    (["format"], "other", "bad-format", "common.format"),
    (["format"], GONE, "bad-format", "common.format"),
    (["kind"], "part", "bad-format", "common.format"),
    (["version"], GONE, "bad-member", "json.unknown-member"),
    (["version"], 1, "bad-member", "json.types"),
    (["version"], "1", "bad-member", "version.form"),
    (["version"], "1.00", "bad-member", "version.form"),
    (["version"], "1.10000", "bad-member", "version.form"),
    (["version"], "2.0", "unsupported-version", "version.major"),
    (["features", "required"], ["x/y"], "unsupported-feature", "feature.required"),
    (["features", "required"], ["shard-sha256"], "unsupported-feature", "feature.required"),
    (["features", "optional"], ["b", "a"], "bad-member", "feature.form"),
    (["features", "optional"], ["A"], "bad-member", "feature.form"),
    (["features"], {"optional": ["a"], "required": ["a"]}, "bad-member", "feature.form"),
    (["features", "more"], [], "bad-member", "json.unknown-member"),
    (["features"], GONE, "bad-member", "json.unknown-member"),
    (["extra"], None, "bad-member", "json.unknown-member"),
    (["step"], GONE, "bad-member", "json.unknown-member"),
    (["step"], True, "bad-member", "json.types"),
    (["step"], -1, "bad-member", "json.types"),
    (["step"], 10**12, "limit", "limit.value"),
    (["attempt"], "00000001AB12CD34", "bad-member", "json.types"),
    (["block_bytes"], 4097, "bad-member", "common.block-bytes"),
    (["block_bytes"], 2048, "bad-member", "common.block-bytes"),
    (["block_bytes"], 1 << 25, "bad-member", "common.block-bytes"),
    (["parent"], "00", "bad-member", "json.types"),
    (["run"], "", "bad-name", "identity.name"),
    (["run"], "a\u202eb", "bad-name", "identity.name"),
    (["run"], "\u00e9" * 513, "bad-name", "identity.name"),
    (["topology"], [["dp", 2], ["dp", 2]], "bad-member", "common.topology"),
    (["topology"], ["dp"], "bad-member", "json.types"),
    (["topology"], [["dp", 0]], "bad-member", "common.topology"),
    (["topology"], [[f"a{i:02}", 1] for i in range(17)], "limit", "limit.value"),
    (["writers"], 0, "bad-member", "json.types"),
    (["writers"], 65537, "limit", "limit.value"),
    (["writers"], 3, "bad-member", "manifest.parts"),
    (["parts", 0, "bytes"], 268435457, "limit", "limit.value"),
    (["parts", 0, "inc"], "0", "bad-member", "json.types"),
    (["parts", 0, "shards", 0, "class"], "other", "bad-member", "json.types"),
    (["parts", 0, "shards", 0, "crc_table", "count"], "1", "bad-member", "json.types"),
    (["parts", 0, "shards", 0, "crc_table", "count"], 0, "bad-member", "part.table"),
    (["parts", 0, "shards", 0, "crc_table", "count"], 1 << 50, "bad-member", "part.table"),
    (["parts", 0, "shards", 0, "crc_table", "offset"], 1 << 50, "bad-member", "part.table"),
    (["parts", 0, "shards", 0, "crc_table", "offset"], 16384 - 4 * 3 + 1, "bad-member", "part.table"),
    (["parts", 0, "shards", 0, "crc_table", "offset"], 16384 - 4 * 3, "derive-mismatch", "derive.function"),
    (["parts", 0, "attachments", 0, "path"], "/a", "bad-path", "attachment.path"),
    (["parts", 0, "attachments", 0, "path"], "a/../b", "bad-path", "attachment.path"),
    (["parts", 0, "attachments", 0, "path"], "a//b", "bad-path", "attachment.path"),
    (["parts", 0, "attachments", 0, "path"], "a\\b", "bad-path", "attachment.path"),
    (["parts", 0, "attachments", 0, "path"], "x" * 256, "bad-path", "attachment.path"),
    (["parts", 0, "attachments", 0, "path"], "/".join(["x" * 200] * 6), "bad-path", "attachment.path"),
    (["parts", 0, "attachments", 0, "path"], "TOK/B", "bad-path", "attachment.unique"),
    (["parts", 0, "attachments", 0, "path"], "tok", "bad-path", "attachment.unique"),
    (["parts", 0, "extensions"], {"x/y": {"on_rewrite": "keep", "value": 1}}, "bad-member", "part.extensions"),
    (["parts", 0, "extensions"], [], "bad-member", "json.types"),
    (["parts", 0, "shards"], {}, "bad-member", "json.types"),
    (["parts", 0, "shards", 0], [], "bad-member", "json.types"),
    (["omitted", 0, "names"], [], "bad-member", "part.omitted"),
    (["omitted", 0, "reason"], "why", "bad-member", "json.types"),
    (["omitted"], lambda entries: entries * 2, "bad-member", "part.omitted"),
    (["contents"], [["main", [["nothing", 1]]]], "unsupported-role", "identity.role"),
    (["contents"], ["main"], "bad-member", "json.types"),
    (["contents", 0, 1], lambda roles: roles * 2, "bad-member", "json.types"),
    (["contents"], lambda contents: contents[::-1], "bad-member", "json.types"),
    (["contents", 0, 1, 0, 1], 7, "derive-mismatch", "derive.function"),
    (["tensors"], lambda pages: pages * 2, "bad-order", "manifest.firsts"),
    (["tensors", 0, "first"], "key", "bad-member", "json.types"),
    (["records", 0, "first"], [], "bad-member", "json.types"),
    (["tensors", 0, "first", 1], "weight", "unsupported-role", "identity.role"),
    (["tensors", 0, "first", 2], "", "bad-name", "identity.name"),
    (["tensors", 0, "first"], ["main", "param", "w", "adam.m", "", []], "bad-identity", "identity.slot"),
    (["tensors", 0, "first"], ["main", "ema", "w", "", "", []], "bad-identity", "identity.owner"),
    (["tensors", 0, "first", 5], [["zz", 0]], "bad-identity", "identity.scope"),
    (["tensors", 0, "first", 5], [["dp", 2]], "bad-identity", "identity.scope"),
    (["records", 0, "first", 1], "a\x85", "bad-name", "identity.name"),
    (["records", 0, "first", 2], [["tp", 0], ["dp", 0]], "bad-identity", "record.coordinate"),
    (["tensors", 0, "first", 2], "aaa", "bad-order", "page.order"),
    (["tensors", 0, "sha256"], "0" * 64, "digest-mismatch", "page.digest"),
    (["tensors", 0, "bytes"], lambda size: size + 1, "length-mismatch", "dir.length"),
    (["step"], 1001, "derive-mismatch", "derive.function"),
]

# Of an entry of a page, found by (name, role): (entry, path, new value, code, rule).
W, FOUR, SIX, SCALE, M = ("w", "param"), ("four", "param"), ("six", "buffer"), ("four", "quant"), ("w", "optimizer")
RANK, HEAD, BIG, NONE = ("rank", "extension"), ("head \u00e9\U0001f600", "param", True), ("big", "param"), ("none", "param")
ENTRIES = [
    (W, ["role"], "weight", "unsupported-role", "identity.role"),
    (W, ["component"], "main", "bad-member", "identity.left-out"),
    (W, ["slot"], "", "bad-member", "identity.left-out"),
    (W, ["scope"], [], "bad-member", "identity.left-out"),
    (W, ["name"], "a\x85", "bad-name", "identity.name"),
    (W, ["name"], 1, "bad-member", "json.types"),
    (W, ["slot"], "adam.m", "bad-identity", "identity.slot"),
    (M, ["slot"], GONE, "bad-identity", "identity.slot"),
    (M, ["owner"], GONE, "bad-identity", "identity.owner"),
    (W, ["owner"], "adam", "bad-identity", "identity.owner"),
    (W, ["scope"], [["pp", 0]], "bad-identity", "identity.scope"),
    (W, ["scope"], [["tp", 0], ["dp", 0]], "bad-identity", "identity.scope"),
    (W, ["scope"], [["dp", 0], ["dp", 1]], "bad-identity", "identity.scope"),
    (W, ["scope"], [["dp", 2]], "bad-identity", "identity.scope"),
    (W, ["scope"], [["dp", -1]], "bad-member", "json.types"),
    (W, ["unknown"], 1, "bad-member", "json.unknown-member"),
    (W, ["dtype"], GONE, "bad-member", "json.unknown-member"),
    (W, ["dtype"], "F7", "unsupported-dtype", "tensor.dtype"),
    (W, ["shape"], [1] * 17, "bad-shape", "tensor.rank"),
    (FOUR, ["valid"], [3], "bad-shape", "tensor.rank"),
    (M, ["axes"], [0], "bad-shape", "tensor.rank"),
    (FOUR, ["valid"], [3, 5], "bad-shape", "tensor.valid"),
    (FOUR, ["valid"], [4, 4], "bad-shape", "tensor.valid"),
    (W, ["axes"], [0, 1], "bad-identity", "tensor.axes"),
    (M, ["axes"], [0, "1"], "bad-member", "json.types"),
    (M, ["axes"], [1, 1], "bad-identity", "tensor.axes"),
    (M, ["axes"], [16, None], "bad-identity", "tensor.axes"),
    (M, ["axes"], [None, None], "bad-identity", "tensor.axes"),
    (NONE, ["shape"], [0, 1 << 52], "limit", "tensor.size"),
    (BIG, ["native"], [], "bad-member", "tensor.native"),
    (BIG, ["native", 0], "torch", "bad-member", "json.types"),
    (BIG, ["native", 0, 1], [], "bad-member", "tensor.native"),
    (BIG, ["native", 0, 1], [-1], "bad-member", "json.types"),
    (BIG, ["native", 0, 0], "", "bad-name", "identity.name"),
    (BIG, ["native"], lambda native: native * 2, "bad-member", "tensor.native"),
    (FOUR, ["block"], 4, "bad-identity", "companion.role"),
    (SCALE, ["block"], 0, "bad-member", "json.types"),
    (HEAD, ["native"], [], "bad-member", "tensor.native"),
    (HEAD, ["native"], lambda native: native * 2, "bad-member", "tensor.native"),
    (HEAD, ["native", 0, 1], [-1], "bad-member", "json.types"),
    (HEAD, ["of"], "w", "bad-member", "alias.form"),
    (HEAD, ["of", 5], [["zz", 0]], "bad-identity", "identity.scope"),
    (HEAD, ["of", 3], "adam.m", "bad-identity", "identity.slot"),
    (HEAD, ["of", 1], "buffer", "bad-alias", "alias.role"),
    (HEAD, ["of", 1], "weight", "unsupported-role", "identity.role"),
    (HEAD, ["of", 2], "nowhere", "bad-alias", "alias.target"),
    (HEAD, ["of", 2], "head \u00e9\U0001f600", "bad-alias", "alias.target"),
    (HEAD, ["of", 2], "none", "bad-alias", "alias.elements"),
    (W, ["chunks", 0], [0], "bad-member", "json.types"),
    (W, ["chunks", 0, 2], -1, "bad-member", "json.types"),
    (W, ["chunks", 0, 5], "ABCDEF00", "bad-member", "json.types"),
    (W, ["chunks", 0, 3], [0], "bad-chunk", "chunk.rank"),
    (W, ["chunks", 0, 4], [0, 3], "bad-chunk", "chunk.nonempty"),
    (W, ["chunks", 0, 4], [4, 7], "bad-chunk", "chunk.bounds"),
    (W, ["chunks", 0, 0], 2, "bad-chunk", "chunk.shard"),
    (W, ["chunks", 0, 1], 2, "bad-chunk", "chunk.shard"),
    (W, ["chunks", 0, 1], 1, "bad-chunk", "shard.class"),
    (W, ["chunks", 0, 2], 1 << 40, "bad-chunk", "chunk.shard"),
    (W, ["chunks"], lambda chunks: chunks[::-1], "bad-order", "chunk.order"),
    (W, ["chunks", 1, 3], [0, 0], "cover-overlap", "cover.exact"),
    (W, ["chunks"], lambda chunks: [chunks[0], chunks[0][:3] + chunks[1][3:]], "bad-chunk", "chunk.apart"),
    (W, ["chunks", 0], lambda chunk: chunk + [0], "bad-chunk", "chunk.table-index"),
    (BIG, ["chunks", 0], lambda chunk: chunk[:6], "bad-chunk", "chunk.table-index"),
    (BIG, ["chunks", 0, 6], 1, "bad-chunk", "chunk.table-index"),
    (W, ["chunks"], lambda chunks: chunks[:1], "cover-gap", "cover.gap"),
    (W, ["chunks", 1, 4], [4, 2], "cover-gap", "cover.gap"),
    (SIX, ["chunks", 0, 4], [6], "cover-gap", "cover.gap"),
    (SIX, ["chunks", 0, 5], "00000000", "derive-mismatch", "derive.function"),
]

RECORDS = [
    (["records", 0], "record", "bad-member", "json.types"),
    (["records", 0, "coordinate"], [], "bad-member", "record.coordinate"),
    (["records", 0, "coordinate"], [["zz", 0]], "bad-identity", "record.coordinate"),
    (["records", 0, "kind"], "", "bad-name", "identity.name"),
    (["records", 0, "value"], [], "bad-member", "record.value"),
    (["records", 0, "other"], 1, "bad-member", "json.unknown-member"),
    (["records"], lambda records: records[:1] + records[:0:-1], "bad-order", "page.order"),
    (["records"], [], "bad-order", "page.order"),
    (["records"], lambda records: records[1:], "bad-order", "page.order"),
    (["page"], 1, "bad-format", "page.number"),
    (["page"], "0", "bad-member", "json.types"),
    (["page"], GONE, "bad-member", "json.unknown-member"),
    (["version"], "1", "bad-member", "version.form"),
    (["version"], "2.0", "unsupported-version", "version.major"),
    (["kind"], "tensors", "bad-format", "page.number"),
    (["version"], "1.1", "bad-member", "open.page-version"),
]

# Of the part of writer 1, with the root derived from what it then says: (path, new value, code, rule).
PARTS = [
    (["format"], "x", "bad-format", "common.format"),
    (["writer"], 0, "bad-format", "part.name"),
    (["writer"], 2, "bad-member", "part.writer"),
    (["attempt"], "0" * 16, "part-disagree", "part.session"),
    (["step"], 7, "part-disagree", "part.session"),
    (["inventory"], {"count": 1, "sha256": "0" * 64}, "inventory-mismatch", "part.inventory"),
    (["producer", "name"], 1, "bad-member", "json.types"),
    (["producer", "name"], "n" * 1025, "limit", "limit.value"),
    (["entries", 0, "chunks", 0, 1], lambda offset: offset + 256, "layout-mismatch", "shard.layout"),
    (["shards", 0, "crc_table"], {"count": 1, "crc32c": "00000000", "offset": 0}, "layout-mismatch", "shard.layout"),
    (["shards", 0, "crc_table"], {"count": 0, "crc32c": "00000000", "offset": 0}, "bad-member", "part.table"),
    (["shards", 0, "crc_table"], {"count": 1 << 50, "crc32c": "00000000", "offset": 0}, "bad-member", "part.table"),
    (["shards"], lambda shards: shards + [{"bytes": 0, "class": "model", "crc_table": None}], "layout-mismatch", "shard.chunks"),
    (["entries"], lambda entries: entries[::-1], "bad-order", "part.entries"),
    (["records"], lambda records: records[::-1], "bad-order", "part.records"),
    (["shards", 0, "bytes"], 12288, "layout-mismatch", "shard.layout"),
    (["records", 1, "value"], {"optimizer_step": 1}, "record-conflict", "derive.records"),
    (["records", 0, "coordinate"], [["tp", 1]], "record-grid", "record.grid"),
    (["records", 0, "coordinate"], [["dp", 0]], "record-conflict", "derive.records"),
    (["records", 2, "value"], {"tensor": ["main", "weird", "w", "", "", []]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"tensor": ["main", "param", "w", "x", "", []]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"f64": "3FF"}, "bad-member", "value.form"),
    (["records", 2, "value"], {"tree": []}, "bad-member", "value.form"),
    (["records", 2, "value"], {}, "bad-member", "value.form"),
    (["records", 2, "value"], {"int": "9007199254740991"}, "bad-member", "value.form"),
    (["records", 2, "value"], {"bytes": "abc"}, "bad-member", "value.form"),
    (["records", 2, "value"], {"bytes": "00" * 8193}, "bad-member", "value.form"),
    (["records", 2, "value"], {"bytes": "GG"}, "bad-member", "value.form"),
    (["records", 2, "value"], {"type": ["a"]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"type": [1, 2]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"type": ["a", []]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"map": [1]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"map": [[None, 1]]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"map": [[{"int": "9" * 4300}, 1], [{"int": "9" * 4300}, 2]]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"list": [{"int": "-" + "9" * 4301}]}, "limit", "value.integer"),
    (["records", 2, "value"], {"map": [[{"int": "9" * 4301}, 1]]}, "limit", "value.integer"),
    (["records", 2, "value"], {"map": [["a", 1], ["a", 2]]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"list": [[]]}, "bad-member", "value.form"),
    (["records", 2, "value"], {"tensor": ["main"]}, "bad-member", "value.form"),
]


class Rules(unittest.TestCase):
    def codes(self, checkpoint):
        """((code, rule) of opening or None, [(code, rule) of verifying])."""
        with tempfile.TemporaryDirectory() as directory:
            checkpoint.write(directory)
            try:
                opened = open_checkpoint(directory)
                opened.directory.close()
                first = None
            except Refusal as refusal:
                first = refusal.code, refusal.rule
            return first, [(refusal.code, refusal.rule) for refusal in verify(directory)[0]]

    def check(self, checkpoint, code, rule, opened):
        first, found = self.codes(checkpoint)
        if opened:
            self.assertEqual(first, (code, rule))
        else:
            self.assertIsNone(first)
        self.assertIn((code, rule), found)

    def test_whole(self):
        self.assertEqual(self.codes(support.tiny()), (None, []))

    def test_manifest(self):
        for path, new, code, rule in MANIFEST:
            with self.subTest(path=path, new=str(new)[:60], rule=rule):
                self.check(bend(support.tiny(), "on_manifest", path, new), code, rule, rule != "derive.function")

    def test_entries(self):
        for who, path, new, code, rule in ENTRIES:
            with self.subTest(who=who, path=path, new=str(new)[:60], rule=rule):
                def change(entries):
                    entries = copy.deepcopy(entries)
                    put(entries[entry_at(*who)(entries)], path, new)
                    return entries
                checkpoint = bend(support.tiny(), "on_page", ["entries"], change, lambda page: "entries" in page)
                # A target is looked for when the alias is read, not when the checkpoint is opened.
                self.check(checkpoint, code, rule, rule not in ("derive.function", "alias.target", "alias.elements"))

    def test_records(self):
        for path, new, code, rule in RECORDS:
            with self.subTest(path=path, new=str(new)[:60], rule=rule):
                self.check(bend(support.tiny(), "on_page", path, new, lambda page: "records" in page), code, rule, True)

    def test_parts(self):
        for path, new, code, rule in PARTS:
            with self.subTest(path=path, new=str(new)[:60], rule=rule):
                checkpoint = bend(support.tiny(), "on_part", path, new, lambda part: part["writer"] == 1)
                _, found = self.codes(checkpoint)
                self.assertIn((code, rule), found)

    def test_value_trees(self):
        for value in (
            {"tree": None}, {"tree": -1}, {"tree": "x"}, {"int": "9007199254740992"}, {"int": "-" + "9" * 4300}, {"f32": "7fc00001"},
            {"bytes": ""}, {"bytes": "00" * 8192}, {"list": []}, {"tuple": [True, {"list": [{"f64": "0" * 16}]}]},
            {"map": [["1", 1], [1, {"map": []}], [{"int": "9007199254740992"}, None]]}, {"type": ["torch.Size", {"list": [1]}]},
            {"tensor": ["main", "param", "w", "", "", []]},
        ):
            with self.subTest(value=str(value)[:60]):
                checkpoint = bend(support.tiny(), "on_part", ["records", 2, "value"], value, lambda part: part["writer"] == 1)
                self.assertEqual(self.codes(checkpoint), (None, []))

    def test_pages_in_order(self):
        tensors = [({"dtype": "U8", "name": name, "role": "param", "shape": [0]}, []) for name in ("a1", "a2", "b1")]
        checkpoint = support.Checkpoint([support.Writer(0, tensors)])
        checkpoint.target = 230

        def change(page):
            return copy.deepcopy(page) if page["page"] else page | {"entries": [page["entries"][0], page["entries"][1] | {"name": "c"}]}

        checkpoint.on_page = change
        first, found = self.codes(checkpoint)
        self.assertEqual(first, ("bad-order", "page.order"))
        self.assertIn(("derive-mismatch", "derive.function"), found)

    def test_merging(self):
        def part_change(path, new):
            return bend(support.tiny(), "on_part", path, new, lambda part: part["writer"] == 1)

        def entry(who, path, new):
            def change(entries):
                put(entries[entry_at(*who)(entries)], path, new)
                return sorted(entries, key=support.key_of)
            return part_change(["entries"], change)

        def alias_as_tensor(entries):
            tensor = {"chunks": [], "dtype": "U8", "name": "head \u00e9\U0001f600", "role": "param", "shape": [0]}
            return [tensor if "of" in found else found for found in entries]

        def alias_to(name):
            alias = {"name": "zz", "of": ["main", "param", name, "", "", []], "role": "param"}
            return lambda entries: sorted([*entries, alias], key=support.key_of)

        keep = {"x/y": {"on_rewrite": "keep", "value": 1}}
        both = support.tiny(features={"optional": ["x/y"], "required": []})
        both.writers[0].members["extensions"] = keep
        both.writers[1].members["extensions"] = {"x/y": {"on_rewrite": "keep", "value": 2}}
        for checkpoint, code, rule in (
            (entry(W, ["native"], [["torch", ["w"]]]), "tensor-conflict", "derive.tensors"),
            (entry(HEAD, ["of", 2], "four"), "alias-conflict", "derive.aliases"),
            (entry(HEAD, ["native"], [["torch", ["out", 2]]]), "alias-conflict", "derive.aliases"),
            (entry(SIX, ["name"], "w"), "name-conflict", "identity.one-name"),
            (part_change(["entries"], alias_as_tensor), "alias-conflict", "derive.aliases"),
            (part_change(["entries"], alias_to("nowhere")), "bad-alias", "alias.target"),
            (part_change(["entries"], alias_to("none")), "bad-alias", "alias.elements"),
            (both, "part-disagree", "derive.keep"),
        ):
            with self.subTest(rule=rule):
                self.assertIn((code, rule), self.codes(checkpoint)[1])
        same = support.tiny(features={"optional": ["x/y"], "required": []})
        for writer in same.writers:
            writer.members["extensions"] = keep
        self.assertEqual(self.codes(same), (None, []))

    def found(self, checkpoint):
        with tempfile.TemporaryDirectory() as directory:
            checkpoint.write(directory)
            return verify(directory)[0]

    def test_order_while_deriving(self):
        """Parts that break every rule of 8.1 at once, each of them good by itself."""
        checkpoint = support.tiny(features={"optional": ["x/y"], "required": []})
        for number, writer in enumerate(checkpoint.writers):
            writer.members["inventory"] = {"count": 1, "sha256": "0" * 64}
            writer.members["extensions"] = {"x/y": {"on_rewrite": ["keep", "drop"][number], "value": 1}}

        def change(part):
            if part["writer"] == 0:
                return part
            part = copy.deepcopy(part)
            part["attachments"] = [{"bytes": 0, "path": "TOK", "sha256": support.sha(b"")}]
            entries = part["entries"]
            put(entries[entry_at(*FOUR)(entries)], ["native"], [["torch", ["x"]]])
            put(entries[entry_at(*HEAD)(entries)], ["of", 2], "four")
            put(entries[entry_at(*W)(entries)], ["chunks", 0, 2], [0, 0])
            put(entries[entry_at(*SIX)(entries)], ["name"], "w")
            entries.append({"chunks": [], "dtype": "U8", "name": "gap", "role": "param", "shape": [2]})
            entries += [{"name": f"zz{to}", "of": ["main", "param", to, "", "", []], "role": "param"} for to in ("none", "nowhere")]
            entries.sort(key=support.key_of)
            put(part["records"], [0, "coordinate"], [["tp", 1]])
            put(part["records"], [1, "value"], {"optimizer_step": 1})
            return part

        checkpoint.on_part = change
        bend(checkpoint, "on_manifest", ["parts", 1, "attachments"], [])
        found = [refusal for refusal in self.found(checkpoint) if (refusal.file or "part-00001").startswith("part-00001")]
        self.assertEqual([refusal.rule for refusal in found], [
            "attachment.unique", "derive.keep", "derive.tensors", "cover.gap", "derive.aliases", "cover.exact", "alias.elements",
            "alias.target", "identity.one-name", "part.inventory", "derive.records", "record.grid",
        ])
        checkpoint.on_part = lambda part: change(part) | ({"step": 7} if part["writer"] else {})
        found = self.found(checkpoint)
        self.assertEqual([refusal.rule for refusal in found if refusal.rule[:4] in ("part", "deri")], ["part.session"])

    def test_split_by_several_writers(self):
        tensor = {"dtype": "U8", "name": "t", "role": "param", "shape": [2] * 9}
        boxes = [([0] * 9, [1] + [2] * 8), ([0] * 9, [2] + [1] * 8)]
        writers = [support.Writer(number, [(tensor, [box])]) for number, box in enumerate(boxes)]
        found = self.found(support.Checkpoint(writers))
        self.assertEqual([(refusal.code, refusal.rule, refusal.file) for refusal in found],
                         [("limit", "chunk.split", "tensors-00000.json"), ("limit", "chunk.split", None)])

    def test_sizes_while_deriving(self):
        for limit, size in (("manifest-bytes", 1000), ("page-bytes", 100)):
            def small(*arguments, limit=limit, size=size):
                with mock.patch.dict(LIMITS, {limit: size}):
                    return derive.derive(*arguments)

            with mock.patch("waystation_reader.verify.derive", small):
                found = self.found(support.tiny())
            self.assertEqual([(refusal.code, refusal.rule) for refusal in found], [("limit", "derive.sizes")])

    def test_merged_chunks_that_begin_together(self):
        def part_of(*chunks):
            raw = {"chunks": [[shard, offset, [at], [1], ""] for shard, offset, at in chunks]}
            return entries.Tensor([], "", raw, 8, [3], None, [])

        merged = derive.merge_chunks([(1, part_of((0, 0, 0), (0, 256, 1))), (0, part_of((1, 0, 1), (0, 512, 1), (0, 256, 1)))])
        places = [chunk[:3] for chunk in merged.raw["chunks"]]
        self.assertEqual(places, [[1, 0, 0], [0, 0, 256], [0, 0, 512], [0, 1, 0], [1, 0, 256]])

    def test_order_in_a_page(self):
        for page, code, pointer in ((7, "bad-format", "/page"), ("0", "bad-member", "/page"), (0, "bad-member", "/entries")):
            checkpoint = support.tiny()
            checkpoint.on_page = lambda value, page=page: value | {"page": page, "entries": {}} if "entries" in value else value
            with tempfile.TemporaryDirectory() as directory:
                checkpoint.write(directory)
                with self.assertRaises(Refusal) as caught:
                    open_checkpoint(directory)
            self.assertEqual((caught.exception.code, caught.exception.pointer), (code, pointer))

    def test_what_data_is_checked_against(self):
        """A page that states another CRC than the part; what is right is the part, and the page when the part is lost."""
        def other_crc(entries):
            entries = copy.deepcopy(entries)
            put(entries[entry_at(*SIX)(entries)], ["chunks", 0, 5], "00000000")
            return entries

        checkpoint = bend(support.tiny(), "on_page", ["entries"], other_crc, lambda page: "entries" in page)
        files = checkpoint.files()
        names = {prefix: next(name for name in files if name.startswith(prefix)) for prefix in ("part-00001", "model-00001")}
        with tempfile.TemporaryDirectory() as directory:
            checkpoint.write(directory)
            found = [(refusal.rule, refusal.file) for refusal in verify(directory)[0]]
            self.assertEqual(found, [("derive.function", "tensors-00000.json"), ("derive.function", "manifest.json")])
            with open(os.path.join(directory, names["part-00001"]), "r+b") as file:
                file.write(b" ")
            found = [(refusal.rule, refusal.file) for refusal in verify(directory)[0]]
            self.assertEqual(found, [("integrity.part", names["part-00001"]), ("integrity.all", names["model-00001"])])

    def test_layout_names_the_part(self):
        checkpoint = bend(support.tiny(), "on_part", ["shards", 1, "bytes"], 12288, lambda part: part["writer"] == 1)
        part = next(name for name in checkpoint.files() if name.startswith("part-00001"))
        found = [(refusal.file, refusal.pointer) for refusal in self.found(checkpoint) if refusal.rule == "shard.layout"]
        self.assertEqual(found, [(part, "/shards/1")])

    def test_inventory(self):
        keys = []

        def see(value):
            keys.extend(support.key_of(entry) for entry in value.get("entries", ()))
            return value

        checkpoint = support.tiny()
        checkpoint.on_page = see
        checkpoint.files()
        inventory = {"count": len(keys), "sha256": support.sha(b"".join(key + b"\n" for key in keys))}
        checkpoint = support.tiny()
        for writer in checkpoint.writers:
            writer.members["inventory"] = inventory
        self.assertEqual(self.codes(checkpoint), (None, []))
        checkpoint.writers[0].members["inventory"] = inventory | {"count": 1}
        self.assertIn(("part-disagree", "part.session"), self.codes(checkpoint)[1])

    def test_pages_are_cut(self):
        tensor = {"dtype": "U8", "role": "param", "shape": [1]}
        tensors = [(tensor | {"name": f"{'n' * 1000}{i:04}"}, support.whole([1])) for i in range(2200)]
        checkpoint = support.Checkpoint([support.Writer(0, tensors)])
        files = checkpoint.files()
        self.assertEqual(sum(name.startswith("tensors-") for name in files), 3)
        self.assertEqual(self.codes(checkpoint), (None, []))
        checkpoint.target = 500000
        self.assertIn(("derive-mismatch", "derive.function"), self.codes(checkpoint)[1])

    def test_split_axes(self):
        shape = [2] * 9
        boxes = [([i >> axis & 1 for axis in range(9)], [1] * 9) for i in range(512)]
        tensor = {"dtype": "U8", "name": "t", "role": "param", "shape": shape}
        first, _ = self.codes(support.Checkpoint([support.Writer(0, [(tensor, sorted(boxes))])]))
        self.assertEqual(first, ("limit", "chunk.split"))
        boxes = [([i >> axis & 1 for axis in range(8)], [1] * 8) for i in range(256)]
        tensor = {"dtype": "U8", "name": "t", "role": "param", "shape": shape[:8]}
        self.assertEqual(self.codes(support.Checkpoint([support.Writer(0, [(tensor, sorted(boxes))])])), (None, []))

    def test_blob(self):
        tensor = {"dtype": "F32", "name": "b", "role": "blob", "shape": [1]}
        first, _ = self.codes(support.Checkpoint([support.Writer(0, [(tensor, support.whole([1]))])]))
        self.assertEqual(first, ("bad-identity", "tensor.blob"))

    def test_data(self):
        """Damage in shards, with everything that metadata says left as it was."""
        checkpoint = support.tiny()
        clean = checkpoint.files()
        model = next(name for name in clean if name.startswith("model-00000"))
        manifest = json.loads(clean["manifest.json"])
        table = manifest["parts"][0]["shards"][0]["crc_table"]["offset"]
        header = 8 + int.from_bytes(clean[model][:8], "little")
        for offset, code, rule in (
            (0, "header-mismatch", "shard.header"),
            (100, "header-mismatch", "shard.header"),
            (header - 1, "header-mismatch", "shard.header"),
            (header, "crc-mismatch", "integrity.all"),
            (header + 10800, "nonzero-pad", "shard.pads"),
            (table, "crc-table-mismatch", "integrity.table"),
            (len(clean[model]) - 1, "nonzero-pad", "shard.pads"),
        ):
            with self.subTest(offset=offset), tempfile.TemporaryDirectory() as directory:
                checkpoint.write(directory)
                data = bytearray(clean[model])
                data[offset] ^= 4
                with open(os.path.join(directory, model), "wb") as file:
                    file.write(data)
                found = [refusal for refusal in verify(directory)[0] if (refusal.code, refusal.rule) == (code, rule)]
                self.assertEqual(len(found), 1)
                self.assertEqual(found[0].file, model)

    def test_bits_that_writers_set(self):
        """A table and unused bits that are wrong though all CRCs fit them."""
        six = {"dtype": "F6_E2M3", "name": "six", "role": "buffer", "shape": [7]}
        data = support.Checkpoint.fill(six, [7], "x")
        checkpoint = support.Checkpoint([support.Writer(0, [(six, support.whole([7]), [data[:-1] + bytes([data[-1] | 0x80])])])])
        self.assertEqual(self.codes(checkpoint), (None, [("nonzero-pad", "tensor.unused-bits")]))
        checkpoint = support.tiny()

        def other_table(part):
            if part["writer"] == 0:
                part = copy.deepcopy(part)
                part["shards"][0]["crc_table"]["crc32c"] = support.crc_hex(bytes(12))
            return part

        def zero_table(raw, writer):
            if writer == 0 and len(raw) == 16384:
                start = len(raw) - 4096 + raw[-4096:].rstrip(b"\0").__len__() - 12
                raw = raw[:start] + bytes(12) + raw[start + 12:]
            return raw

        checkpoint.on_part, checkpoint.on_shard = other_table, zero_table
        _, found = self.codes(checkpoint)
        self.assertIn(("crc-table-mismatch", "integrity.blocks"), found)


if __name__ == "__main__":
    unittest.main()
