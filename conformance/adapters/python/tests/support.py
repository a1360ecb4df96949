"""A small writer and committer, written from the specification apart from the reader, that tests can bend at every step.

`build` makes a checkpoint; its hooks see each value just before its bytes and digests are made, so that one rule can be broken
while everything above it stays consistent.
"""

import hashlib
import json
import os
import struct
import tomllib
from math import prod
from pathlib import Path

BITS = {"F32": 32, "BF16": 16, "U8": 8, "I64": 64, "U64": 64, "F4_E2M1": 4, "F6_E2M3": 6, "U1": 1, "F8_E8M0": 8, "F8_E3M4": 8}
OWN_NAME = {"F32", "BF16", "U8", "I64", "U64"}
MODEL = {"param", "buffer"}


REGISTRY = Path(__file__).resolve().parents[4] / "spec" / "registry"


def registry(name, key):
    """A table of the registry, where this folder stands in the project; empty where it does not."""
    if not REGISTRY.is_dir():
        return []
    with open(REGISTRY / f"{name}.toml", "rb") as file:
        return tomllib.load(file)[key]


def canon(value):
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


_CACHE = {}


def crc_hex(data):
    data = bytes(data)
    if data not in _CACHE:
        _CACHE[data] = f"{crc32c(data):08x}"
    return _CACHE[data]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def filler(count, seed):
    """Bytes that look like nothing, the same for a seed each time."""
    out = b""
    number = 0
    while len(out) < count:
        out += hashlib.sha256(f"{seed}/{number}".encode()).digest()
        number += 1
    return out[:count]


def size_of(entry, extent):
    count = prod(extent)
    if "block" in entry:
        count = -(-count // entry["block"])
    return (count * BITS[entry["dtype"]] + 7) // 8


class Writer:
    """What one writer puts into the attempt: tensors as (entry, [(at, extent)]), aliases, records, attachments."""

    def __init__(self, number, tensors=(), aliases=(), records=(), attachments=(), **members):
        self.number = number
        self.tensors = tensors
        self.aliases = aliases
        self.records = records
        self.attachments = attachments
        self.members = members


def identity(entry):
    return [entry.get("component", "main"), entry["role"], entry["name"], entry.get("slot", ""), entry.get("owner", ""),
            entry.get("scope", [])]


def key_of(entry):
    if "of" in entry:
        return canon([entry.get("component", "main"), entry["role"], entry["name"], "", "", entry["of"][5]])
    return canon(identity(entry))


def record_key(record):
    return canon([record["kind"], record["name"], record.get("coordinate", [])])


def shard_bytes(chunks, block):
    """(file, [(offset, index)], crc_table) of chunks given as (entry, at, extent, data)."""
    body, header, places, crcs, pads = b"", [], [], [], 0

    def pad(to):
        nonlocal body, pads
        gap = -len(body) % to
        if gap:
            header.append((f"__pad__.{pads}", len(body), len(body) + gap, "U8", [gap]))
            body += bytes(gap)
            pads += 1

    for entry, at, extent, data in chunks:
        pad(4096 if len(data) >= 65536 else 256)
        own = entry["dtype"] in OWN_NAME
        plain = (extent == entry["shape"] and entry["role"] in MODEL and "component" not in entry and "scope" not in entry
                 and "valid" not in entry and own and entry["name"][:2] != "__")
        name = entry["name"] if plain else "__ws__:" + canon([identity(entry), at]).decode()
        dtype, shape = ("U8", [len(data)]) if not own else (entry["dtype"], extent)
        if own and "block" in entry:
            shape = [-(-prod(extent) // entry["block"])]
        header.append((name, len(body), len(body) + len(data), dtype, shape))
        places.append([len(body), len(crcs) if len(data) > block else None])
        if len(data) > block:
            crcs += [int(crc_hex(data[i:i + block]), 16) for i in range(0, len(data), block)]
        body += data
    table = None
    if crcs:
        raw = struct.pack(f"<{len(crcs)}I", *crcs)
        pad(4096 if len(raw) >= 65536 else 256)
        header.append(("__crc__", len(body), len(body) + len(raw), "U32", [len(crcs)]))
        table = {"count": len(crcs), "crc32c": crc_hex(raw), "offset": len(body)}
        body += raw
    pad(4096)
    text = b'{"__metadata__":{"format":"pt","waystation":"1.0"}'
    for name, begin, end, dtype, shape in header:
        text += b"," + canon(name) + b":" + canon({"data_offsets": [begin, end], "dtype": dtype, "shape": shape})
    text += b"}"
    text += b" " * (-(8 + len(text)) % 4096)
    data_start = 8 + len(text)
    if table:
        table["offset"] += data_start
    return struct.pack("<Q", len(text)) + text + body, [(data_start + o, i) for o, i in places], table


def nothing(value, *_):
    return value


class Checkpoint:
    """A checkpoint to be built; override members and hooks, then `write`."""

    def __init__(self, writers, **members):
        self.writers = writers
        self.common = {
            "attempt": "00000001ab12cd34", "block_bytes": 4096, "features": {"optional": [], "required": []},
            "format": "waystation", "parent": None, "run": "tiny", "step": 1000, "topology": [["dp", 2], ["tp", 2]],
            "version": "1.0", "writers": len(writers),
        } | members
        self.on_shard = self.on_part = self.on_page = self.on_manifest = nothing
        self.target = 1048576

    def write(self, directory):
        os.makedirs(directory, exist_ok=True)
        files = self.files()
        for name, data in files.items():
            with open(os.path.join(directory, name), "wb") as file:
                file.write(data)
        return files

    def files(self):
        files, parts = {}, []
        for writer in self.writers:
            parts.append(self.part(writer, files))
        self.root(parts, files)
        return files

    def part(self, writer, files):
        inc = f"{0xfeed0000 + writer.number:016x}"
        shards, entries = [], {}
        for shard_class in ("model", "state"):
            chunks = []
            for entry, boxes, *data in writer.tensors:
                if (entry["role"] in MODEL) == (shard_class == "model"):
                    key = key_of(entry)
                    entries.setdefault(key, entry | {"chunks": []})
                    for number, (at, extent) in enumerate(boxes):
                        bits = data[0][number] if data else self.fill(entry, extent, key.decode() + str(at))
                        chunks.append((entry, at, extent, bits))
            if not chunks:
                continue
            raw, places, table = shard_bytes(chunks, self.common["block_bytes"])
            name = f"{shard_class}-{writer.number:05d}-{inc}-{len(shards):05d}.safetensors"
            for (entry, at, extent, bits), (offset, index) in zip(chunks, places):
                chunk = [len(shards), offset, at, extent, crc_hex(bits)] + ([] if index is None else [index])
                entries[key_of(entry)]["chunks"].append(chunk)
            shards.append({"bytes": len(raw), "class": shard_class, "crc_table": table})
            files[name] = self.on_shard(raw, writer.number)
        for entry in entries.values():
            entry["chunks"].sort(key=lambda chunk: chunk[2])
        for alias in writer.aliases:
            entries[key_of(alias)] = alias
        attachments = []
        for position, (path, data) in enumerate(writer.attachments):
            files[f"attachment-{writer.number:05d}-{inc}-{position:05d}"] = data
            attachments.append({"bytes": len(data), "path": path, "sha256": sha(data)})
        value = self.common | {
            "kind": "part", "attachments": attachments, "entries": [entries[key] for key in sorted(entries)], "extensions": {},
            "inc": inc, "inventory": None, "omitted": [], "producer": {"name": "test", "version": "0"},
            "records": sorted(writer.records, key=record_key), "shards": shards, "writer": writer.number,
        } | writer.members
        value = self.on_part(value)
        data = canon(value)
        files[f"part-{writer.number:05d}-{sha(data)[:16]}.json"] = data
        return json.loads(data), data

    @staticmethod
    def fill(entry, extent, seed):
        data = bytearray(filler(size_of(entry, extent), seed))
        count = prod(extent) if "block" not in entry else -(-prod(extent) // entry["block"])
        unused = -(count * BITS[entry["dtype"]]) % 8
        if unused:
            data[-1] &= 0xFF >> unused
        return bytes(data)

    def root(self, parts, files):
        merged, records = {}, {}
        for writer, (part, _) in enumerate(parts):
            for entry in part["entries"]:
                if "of" in entry:
                    merged[key_of(entry)] = entry
                    continue
                found = merged.setdefault(key_of(entry), entry | {"chunks": []})
                found.setdefault("chunks", []).extend([writer, *chunk] for chunk in entry["chunks"])
            records |= {record_key(record): record for record in part["records"]}
        counts, names = {}, {}
        for entry in merged.values():
            if "chunks" in entry:
                entry["chunks"].sort(key=lambda chunk: chunk[3])
                roles = counts.setdefault(entry.get("component", "main"), {})
                roles[entry["role"]] = roles.get(entry["role"], 0) + 1
        for part, _ in parts:
            for omitted in part["omitted"]:
                names.setdefault((omitted["component"], omitted["reason"]), set()).update(omitted["names"])
        required = {f for part, _ in parts for f in part["features"]["required"]}
        optional = {f for part, _ in parts for f in part["features"]["optional"]}
        manifest = self.common | {
            "kind": "manifest",
            "contents": [[component, sorted(map(list, roles.items()))] for component, roles in sorted(counts.items())],
            "features": {"optional": sorted(optional - required), "required": sorted(required)},
            "omitted": [{"component": c, "names": sorted(names[c, r]), "reason": r} for c, r in sorted(names)],
            "parts": [
                {"bytes": len(data), "sha256": sha(data)} | {m: part[m] for m in ("attachments", "extensions", "inc", "shards")}
                for part, data in parts
            ],
            "tensors": self.pages("tensors", "entries", sorted(merged.items()), files),
            "records": self.pages("records", "records", sorted(records.items()), files),
        }
        data = canon(self.on_manifest(manifest))
        files["manifest.json"] = data
        files["waystation.commit"] = f"{sha(data)}  manifest.json\n".encode()

    def pages(self, kind, member, keyed, files):
        pages, listed, size = [], [], 0
        for key, value in keyed:
            more = 1 + len(canon(value))
            if pages and size + more <= self.target:
                pages[-1][member].append(value)
                size += more
                continue
            listed.append({"first": json.loads(key)})
            frame = {"format": "waystation", "kind": kind, "page": len(pages), "version": self.common["version"]}
            pages.append(frame | {member: [value]})
            size = len(canon(pages[-1]))
        for number, page in enumerate(pages):
            data = canon(self.on_page(page))
            files[f"{kind}-{number:05d}.json"] = data
            listed[number] |= {"bytes": len(data), "sha256": sha(data)}
        return listed


def halves(shape, axis=0):
    """Two boxes that split a shape along one axis."""
    first = [size if i != axis else size // 2 for i, size in enumerate(shape)]
    second = [size if i != axis else size - size // 2 for i, size in enumerate(shape)]
    return ([0] * len(shape), first), ([size // 2 if i == axis else 0 for i, size in enumerate(shape)], second)


def whole(shape):
    return [([0] * len(shape), list(shape))]


def tiny(**members):
    """Two writers and something of everything: split tensors, slots, scopes, an alias, sub-byte types, blocks, records."""
    w = {"dtype": "F32", "name": "w", "role": "param", "shape": [4, 6]}
    big = {"dtype": "BF16", "name": "big", "native": [["torch", ["model", 3]]], "role": "param", "shape": [90, 60]}
    moment = w | {"axes": [0, None], "owner": "adam", "role": "optimizer", "slot": "adam.m"}
    four = {"dtype": "F4_E2M1", "name": "four", "role": "param", "shape": [3, 5], "valid": [3, 4]}
    six = {"dtype": "F6_E2M3", "name": "six", "role": "buffer", "shape": [7]}
    scale = {"block": 4, "dtype": "F32", "name": "four", "role": "quant", "shape": [4, 4], "slot": "scale"}
    scalar = {"component": "critic", "dtype": "I64", "name": "steps", "role": "buffer", "shape": []}
    empty = {"dtype": "F32", "name": "none", "role": "param", "shape": [0, 3]}
    near = {"dtype": "U8", "name": "rank", "role": "extension", "scope": [["dp", 0]], "shape": [5], "slot": "x/y"}
    far = near | {"scope": [["dp", 1]]}
    tied = {"name": "head \u00e9\U0001f600", "native": [["torch", ["out", 1]]], "of": ["main", "param", "w", "", "", []], "role": "param"}
    progress = {"kind": "progress", "name": "main", "value": {"optimizer_step": 1000}}
    groups = [{"hyper": [], "name": "all", "params": [["main", "w"]]}]
    adam = {"kind": "optimizer", "name": "adam", "value": {"algorithm": "adam", "groups": groups, "steps": []}}
    pairs = [["a", {"f64": "3ff0000000000000"}], [1, {"list": [None, {"int": "-9007199254740992"}]}]]
    tree = {"kind": "value", "name": "t", "value": {"map": pairs}}
    notes = [{"coordinate": [["dp", i]], "kind": "note", "name": "c", "value": {"at": i}} for i in range(2)]
    w0, w1 = halves([4, 6], 1)
    m0, m1 = halves([4, 6])
    f0, f1 = halves([3, 5], 1)
    s0, s1 = halves([4, 4])
    return Checkpoint([
        Writer(0, [(big, whole([90, 60])), (w, [w0]), (moment, [m0]), (four, [f0]), (scale, [s0]), (empty, []), (near, whole([5]))],
               [tied], [progress, notes[0], adam], [("tok/a.txt", b"hello"), ("tok/b", b"")],
               omitted=[{"component": "main", "names": ["frozen.w"], "reason": "frozen"}]),
        Writer(1, [(w, [w1]), (moment, [m1]), (four, [f1]), (scale, [s1]), (six, whole([7])), (scalar, whole([])),
                   (far, whole([5]))], [tied], [progress, notes[1], tree]),
    ], **members)
