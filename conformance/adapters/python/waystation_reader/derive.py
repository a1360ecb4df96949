"""Pages and manifest as a function of the parts (chapter 8)."""

import hashlib
from dataclasses import dataclass
from math import prod

from . import canonical, entries, metadata
from .refusal import Refusal, attempt
from .registry import LIMITS

_SHARED = ("attempt", "block_bytes", "parent", "run", "step", "topology", "version", "writers")


@dataclass(slots=True)
class Part:
    """A checked part: the name, length and digest of its file, its value, its entries, and its records by key."""

    file: str
    size: int
    sha256: str
    value: dict
    entries: list
    records: dict


def derive(parts, report):
    """(manifest bytes, [pages of tensors], [pages of records]) of one part of each writer in order.

    Every breach goes to `report`, in the order of 8.1; after one there is no root, and the answer is None. That there is one
    part of each writer is known before: the manifest names them by position.
    """
    found = []

    def breach(refusal):
        # Where a breach between parts is in one file, it is that of the part; a pointer alone would lead nowhere.
        if refusal.file is None:
            refusal.pointer = None
        found.append(refusal)
        report(refusal)

    _session(parts, breach)
    if found:
        # Parts of several sessions have no topology in common that more could be checked against.
        return None
    attempt(breach, metadata.unique_paths, [stated["path"] for part in parts for stated in part.value["attachments"]])
    _keep(parts, breach)
    tensors, aliases = _merge_entries(parts, breach)
    _targets(tensors, aliases, breach)
    _one_name(tensors, aliases, breach)
    _inventory(parts, sorted([*tensors, *aliases]), breach)
    records = _merge_records(parts, breach)
    _grid(records, dict(parts[0].value["topology"]), breach)
    if found:
        return None
    version = parts[0].value["version"]
    merged = tensors | aliases
    entry_pages = _pages("tensors", [(merged[key].identity, merged[key].raw) for key in sorted(merged)], version)
    record_pages = _pages("records", [(entries.record_key(raw), raw) for _, raw in sorted(records.items())], version)
    manifest = canonical.dump({member: parts[0].value[member] for member in _SHARED} | {
        "contents": _contents(tensors.values()),
        "features": _features(parts),
        "format": "waystation",
        "kind": "manifest",
        "omitted": _omitted(parts),
        "parts": [
            {"bytes": part.size, "sha256": part.sha256} | {m: part.value[m] for m in ("attachments", "extensions", "inc", "shards")}
            for part in parts
        ],
        "records": [listed for _, listed in record_pages],
        "tensors": [listed for _, listed in entry_pages],
    })
    for limit, made in (("manifest-bytes", [(manifest, None)]), ("page-bytes", entry_pages + record_pages)):
        if any(len(data) > LIMITS[limit] for data, _ in made):
            breach(Refusal("limit", "derive.sizes", f"the parts derive a file of more than {limit}"))
    return None if found else (manifest, [data for data, _ in entry_pages], [data for data, _ in record_pages])


# --- what parts have to agree on


def _session(parts, breach):
    first = parts[0].value
    inventory = None
    for part in parts:
        for member in _SHARED:
            if part.value[member] != first[member]:
                breach(_disagree(part, member))
        stated = part.value["inventory"]
        if stated is not None:
            if inventory not in (None, stated):
                breach(_disagree(part, "inventory"))
            inventory = stated


def _disagree(part, member):
    return Refusal("part-disagree", "part.session", f"another {member} than a writer before", part.file, pointer=f"/{member}")


def _keep(parts, breach):
    first = {}
    for part in parts:
        for feature, data in part.value["extensions"].items():
            before = first.setdefault(feature, data)
            same = before["on_rewrite"] == data["on_rewrite"]
            if not same or data["on_rewrite"] == "keep" and canonical.text(before) != canonical.text(data):
                breach(Refusal("part-disagree", "derive.keep", f"extension data of {feature} differs", part.file))


def _merge_entries(parts, breach):
    """The merged tensors and aliases, by key; each is reported for its conflict, or else for its cover."""
    stated = {}
    for writer, part in enumerate(parts):
        for entry in part.entries:
            stated.setdefault(entry.key, []).append((writer, entry))
    tensors, aliases = {}, {}
    for key in sorted(stated):
        (_, first), *others = stated[key]
        conflict = next(((writer, entry) for writer, entry in others if _rest(entry) != _rest(first)), None)
        if conflict:
            writer, entry = conflict
            kind = "alias" if "of" in first.raw or "of" in entry.raw else "tensor"
            rule = "derive.aliases" if kind == "alias" else "derive.tensors"
            breach(Refusal(f"{kind}-conflict", rule, f"{key} differs from that of a writer before", parts[writer].file))
        if "of" in first.raw:
            aliases[key] = first
            continue
        tensors[key] = first if conflict else merge_chunks(stated[key])
        if not conflict:
            attempt(breach, entries.cover, tensors[key])
    return tensors, aliases


def _rest(entry):
    return {member: value for member, value in entry.raw.items() if member != "chunks"}


def merge_chunks(stated):
    """One tensor of the (writer, tensor) pairs that agree on all but their chunks."""
    first = stated[0][1]
    raw = [[writer, *chunk] for writer, entry in stated for chunk in entry.raw["chunks"]]
    raw.sort(key=lambda chunk: (chunk[3], chunk[:3]))
    found = [chunk for _, entry in stated for chunk in entry.chunks]
    return entries.Tensor(first.identity, first.key, first.raw | {"chunks": raw}, first.bits, first.shape, first.block, found)


def _targets(tensors, aliases, breach):
    for alias in aliases.values():
        attempt(breach, entries.check_target, alias, tensors.get(alias.target))


def _one_name(tensors, aliases, breach):
    seen = set()
    for entry in [*tensors.values(), *aliases.values()]:
        component, role, name, _, _, scope = entry.identity
        if role in ("param", "buffer"):
            key = canonical.text([component, name, scope])
            if key in seen:
                breach(Refusal("name-conflict", "identity.one-name", f"{key} is the name of two"))
            seen.add(key)


def _inventory(parts, keys, breach):
    stated = next((part.value["inventory"] for part in parts if part.value["inventory"] is not None), None)
    digest = hashlib.sha256("".join(key + "\n" for key in keys).encode("utf-8")).hexdigest()
    if stated not in (None, {"count": len(keys), "sha256": digest}):
        message = f"{stated['count']} identities stated, {len(keys)} found, or others"
        breach(Refusal("inventory-mismatch", "part.inventory", message))


def _merge_records(parts, breach):
    records = {}
    for part in parts:
        for key, raw in part.records.items():
            if canonical.text(records.setdefault(key, raw)) != canonical.text(raw):
                message = f"record {key} differs from that of a writer before"
                breach(Refusal("record-conflict", "derive.records", message, part.file))
    return records


def _grid(records, sizes, breach):
    groups = {}
    for raw in records.values():
        coordinate = raw.get("coordinate", [])
        groups.setdefault((raw["kind"], raw["name"]), []).append([axis for axis, _ in coordinate])
    for (kind, name), places in sorted(groups.items()):
        axes = places[0]
        # Places are distinct and each within the sizes, so their number tells whether one is missing.
        if any(other != axes for other in places) or len(places) != prod(sizes[axis] for axis in axes):
            breach(Refusal("record-grid", "record.grid", f"records {kind} {name} are not one at every place along the same axes"))


# --- what is made of them


def _pages(kind, keyed, version):
    """[(bytes of a page, what the manifest says of it)] of (identity or record key, value) pairs in order."""
    pages, texts, size = [], [], 0

    def close():
        before, after = _frame(kind, len(pages), version)
        data = b"".join((before, b",".join(texts), after))
        pages.append((data, {"bytes": len(data), "first": first, "sha256": hashlib.sha256(data).hexdigest()}))

    first = None
    for key, raw in keyed:
        text = canonical.dump(raw)
        if texts and sum(map(len, _frame(kind, len(pages), version))) + size + 1 + len(text) > LIMITS["page-target-bytes"]:
            close()
            texts, size = [], 0
        if not texts:
            first = key
        size += len(text) + bool(texts)
        texts.append(text)
    if texts:
        close()
    return pages


def _frame(kind, number, version):
    """What stands in a page before and after its entries."""
    member = "entries" if kind == "tensors" else "records"
    page = {"format": "waystation", "kind": kind, member: [], "page": number, "version": version}
    before, after = canonical.dump(page).split(b"[]")
    return before + b"[", b"]" + after


def _contents(tensors):
    counts = {}
    for tensor in tensors:
        component, role = tensor.identity[:2]
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
