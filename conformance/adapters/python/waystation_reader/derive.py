"""Pages and manifest as a function of the parts (chapter 8)."""

import hashlib
from dataclasses import dataclass
from math import prod

from . import canonical
from .refusal import Refusal
from .registry import LIMITS

TARGET = LIMITS["page-target-bytes"]
_SHARED = ("attempt", "block_bytes", "parent", "run", "step", "topology", "version", "writers")


@dataclass(slots=True)
class Part:
    """A checked part: its value and the length and digest of its file, its entries, and its records by key."""

    value: dict
    size: int
    sha256: str
    entries: list
    records: dict


def derive(parts, report):
    """(manifest bytes, [pages of tensors], [pages of records]) of one part of each writer in order.

    Every breach goes to `report`; after one there is no root, and the answer is None.
    """
    found = []

    def breach(code, rule, message, writer=None):
        refusal = Refusal(code, rule, message, pointer=None if writer is None else f"/parts/{writer}")
        found.append(refusal)
        report(refusal)

    _session(parts, breach)
    tensors, aliases = _merge_entries(parts, breach)
    records = _merge_records(parts, breach)
    _targets(tensors, aliases, breach)
    _one_name(tensors, aliases, breach)
    _grid(records, parts[0].value["topology"], breach)
    _inventory(parts, sorted([*tensors, *aliases]), breach)
    _keep(parts, breach)
    if found:
        return None
    merged = [(key, _merged_tensor(tensors[key]) if key in tensors else aliases[key].raw) for key in [*tensors, *aliases]]
    merged.sort(key=lambda pair: pair[0])
    version = parts[0].value["version"]
    tensor_pages, tensor_list = _pages("tensors", merged, version)
    record_pages, record_list = _pages("records", sorted(records.items()), version)
    manifest = {member: parts[0].value[member] for member in _SHARED}
    manifest |= {
        "contents": _contents(tensors),
        "features": _features(parts),
        "format": "waystation",
        "kind": "manifest",
        "omitted": _omitted(parts),
        "parts": [
            {"bytes": part.size, "sha256": part.sha256} | {m: part.value[m] for m in ("attachments", "extensions", "inc", "shards")}
            for part in parts
        ],
        "records": record_list,
        "tensors": tensor_list,
    }
    return canonical.dump(manifest), tensor_pages, record_pages


def _session(parts, breach):
    first = parts[0].value
    inventory = None
    for writer, part in enumerate(parts):
        for member in _SHARED:
            if part.value[member] != first[member]:
                breach("part-disagree", "part.session", f"writers 0 and {writer} disagree on {member}", writer)
        stated = part.value["inventory"]
        if stated is not None:
            if inventory is not None and stated != inventory:
                breach("part-disagree", "part.session", f"writer {writer} states another inventory", writer)
            inventory = stated


def _merge_entries(parts, breach):
    """Tensors by key as [raw members without chunks, [(at, chunk of a page)], identity], and aliases by key."""
    tensors, aliases = {}, {}
    for writer, part in enumerate(parts):
        for entry in part.entries:
            if "of" in entry.raw:
                before = aliases.setdefault(entry.key, entry)
                if before.raw != entry.raw:
                    breach("alias-conflict", "derive.aliases", f"alias {entry.key} differs", writer)
                continue
            rest = {member: value for member, value in entry.raw.items() if member != "chunks"}
            merged = tensors.setdefault(entry.key, [rest, [], entry.identity])
            if canonical.text(merged[0]) != canonical.text(rest):
                breach("tensor-conflict", "derive.tensors", f"tensor {entry.key} differs", writer)
            merged[1] += [(chunk[2], [writer, *chunk]) for chunk in entry.raw["chunks"]]
    for key in sorted(tensors.keys() & aliases.keys()):
        breach("alias-conflict", "derive.aliases", f"{key} is both a tensor and an alias")
    return tensors, aliases


def _merged_tensor(merged):
    rest, chunks, _ = merged
    return rest | {"chunks": [chunk for _, chunk in sorted(chunks)]}


def _targets(tensors, aliases, breach):
    for key, alias in aliases.items():
        if alias.target not in tensors:
            breach("bad-alias", "alias.target", f"the target of {key} is not a tensor of the checkpoint")
        elif not tensors[alias.target][1]:
            breach("bad-alias", "alias.elements", f"the target of {key} has no chunks")


def _one_name(tensors, aliases, breach):
    seen = set()
    for component, role, name, _, _, scope in [merged[2] for merged in tensors.values()] + [a.identity for a in aliases.values()]:
        if role in ("param", "buffer"):
            key = canonical.text([component, name, scope])
            if key in seen:
                breach("name-conflict", "identity.one-name", f"{key} is the name of two")
            seen.add(key)


def _merge_records(parts, breach):
    records = {}
    for writer, part in enumerate(parts):
        for key, raw in part.records.items():
            if canonical.text(records.setdefault(key, raw)) != canonical.text(raw):
                breach("record-conflict", "derive.records", f"record {key} differs", writer)
    return records


def _grid(records, topology, breach):
    sizes = dict(map(tuple, topology))
    groups = {}
    for raw in records.values():
        coordinate = raw.get("coordinate", [])
        axes = tuple(axis for axis, _ in coordinate)
        groups.setdefault((raw["kind"], raw["name"]), {}).setdefault(axes, set()).add(tuple(index for _, index in coordinate))
    for (kind, name), by_axes in groups.items():
        if len(by_axes) > 1:
            breach("record-grid", "record.grid", f"records {kind} {name} vary over different axes")
            continue
        (axes, places), = by_axes.items()
        # Places are distinct and each within the sizes, so their number tells whether one is missing.
        if len(places) != prod(sizes[axis] for axis in axes):
            breach("record-grid", "record.grid", f"records {kind} {name} are not at every place along {list(axes)}")


def _inventory(parts, keys, breach):
    for writer, part in enumerate(parts):
        stated = part.value["inventory"]
        if stated is None:
            continue
        digest = hashlib.sha256("".join(key + "\n" for key in keys).encode("utf-8")).hexdigest()
        if stated != {"count": len(keys), "sha256": digest}:
            breach("inventory-mismatch", "part.inventory",
                   f"{stated['count']} identities stated, {len(keys)} found, or others", writer)
        return


def _keep(parts, breach):
    first = {}
    for writer, part in enumerate(parts):
        for feature, data in part.value["extensions"].items():
            before = first.setdefault(feature, data)
            same = before["on_rewrite"] == data["on_rewrite"]
            if not same or data["on_rewrite"] == "keep" and canonical.text(before) != canonical.text(data):
                breach("part-disagree", "derive.keep", f"extension data of {feature} differs", writer)


def _pages(kind, keyed, version):
    """The bytes of each page, and what the manifest says of it."""
    member = "entries" if kind == "tensors" else "records"
    pages, listed = [], []
    texts, size, first = [], 0, None

    def ends(number):
        if kind == "tensors":
            return f'{{"{member}":[', f'],"format":"waystation","kind":"{kind}","page":{number},"version":"{version}"}}'
        return (f'{{"format":"waystation","kind":"{kind}","page":{number},"{member}":[', f'],"version":"{version}"}}')

    def close():
        before, after = ends(len(pages))
        data = b"".join((before.encode(), b",".join(texts), after.encode()))
        listed.append({"bytes": len(data), "first": first, "sha256": hashlib.sha256(data).hexdigest()})
        pages.append(data)

    for key, raw in keyed:
        text = canonical.dump(raw)
        frame = sum(map(len, ends(len(pages))))
        if texts and frame + size + 1 + len(text) > TARGET:
            close()
            texts, size = [], 0
        if not texts:
            first = canonical.parse_key(key)
        size += len(text) + bool(texts)
        texts.append(text)
    if texts:
        close()
    return pages, listed


def _contents(tensors):
    counts = {}
    for _, _, (component, role, *_rest) in tensors.values():
        roles = counts.setdefault(component, {})
        roles[role] = roles.get(role, 0) + 1
    return [[component, [[role, count] for role, count in sorted(roles.items())]] for component, roles in sorted(counts.items())]


def _features(parts):
    required = {feature for part in parts for feature in part.value["features"]["required"]}
    optional = {feature for part in parts for feature in part.value["features"]["optional"]}
    return {"optional": sorted(optional - required), "required": sorted(required)}


def _omitted(parts):
    names = {}
    for part in parts:
        for entry in part.value["omitted"]:
            names.setdefault((entry["component"], entry["reason"]), set()).update(entry["names"])
    return [
        {"component": component, "names": sorted(found), "reason": reason} for (component, reason), found in sorted(names.items())
    ]
