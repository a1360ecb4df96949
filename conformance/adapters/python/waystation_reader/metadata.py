"""The outer objects: parts, manifests and pages (chapters 7 and 8), without their entries and records."""

from . import canonical, forms
from .forms import above, anything, array, bad, elements, hexadecimal, integer, members, nullable, within
from .refusal import Refusal
from .registry import KNOWN_FEATURES, LIMITS


def preamble(value, kind, rule="common.format"):
    """What is checked first in every file: format, kind, version, and features where the kind has them."""
    for member, expected in (("format", "waystation"), ("kind", kind)):
        if value.get(member) != expected:
            raise bad(f"expected {member} {expected}", rule if member == "kind" else "common.format", "bad-format").at(
                prefix=f"/{member}")
    _required(value, "version", forms.version)
    if kind in ("part", "manifest"):
        _required(value, "features", forms.features)
        for feature in value["features"]["required"]:
            if feature not in KNOWN_FEATURES:
                raise Refusal("unsupported-feature", "feature.required", f"feature {feature} is required and not known",
                              pointer="/features/required")


def _required(value, member, check):
    if member not in value:
        raise bad(f"member {member!r} is missing", "json.unknown-member")
    within(f"/{member}", check, value[member])


def manifest(value):
    """Checks a manifest whose preamble has passed."""
    members(value, _MANIFEST)
    # From here on what several members have to do with each other, in the order of the chapters.
    for number, listed in enumerate(value["tensors"]):
        within(f"/tensors/{number}/first/5", forms.on_topology, listed["first"][5], value["topology"], "identity.scope")
    for position, stated in enumerate(value["parts"]):
        within(f"/parts/{position}", _features_named, stated["extensions"], value["features"])
    within("/parts", unique_paths, [attachment["path"] for stated in value["parts"] for attachment in stated["attachments"]])
    if len(value["parts"]) != value["writers"]:
        raise bad(f"{len(value['parts'])} parts of {value['writers']} writers", "manifest.parts").at(prefix="/parts")
    for number, listed in enumerate(value["records"]):
        within(f"/records/{number}/first/2", forms.on_topology, listed["first"][2], value["topology"], "record.coordinate")


def part(value):
    """Checks a part whose preamble has passed; entries and records are only known to be lists."""
    members(value, _PART)
    if value["writer"] >= value["writers"]:
        raise bad(f"writer {value['writer']} of {value['writers']}", "part.writer").at(prefix="/writer")
    _features_named(value["extensions"], value["features"])
    within("/attachments", unique_paths, [attachment["path"] for attachment in value["attachments"]])


def page(value, kind, number, version):
    """Checks a page's own members; `kind` is tensors or records."""
    preamble(value, kind, "page.number")
    if value["version"] != version:
        raise bad(f"version {value['version']}, that of the manifest is {version}", "open.page-version").at(prefix="/version")
    _required(value, "page", integer())
    if value["page"] != number:
        raise bad(f"expected page {number}", "page.number", "bad-format").at(prefix="/page")
    listed = "entries" if kind == "tensors" else "records"
    members(value, {listed: elements(anything), "format": anything, "kind": anything, "page": anything, "version": anything})


def _block_bytes(value):
    low, high = LIMITS["block-bytes-min"], LIMITS["block-bytes-max"]
    integer()(value)
    if not low <= value <= high or value & (value - 1):
        raise bad(f"expected a power of two from {low} to {high}", "common.block-bytes")


def _topology(value):
    def once(axes, position):
        if any(axes[position][0] == axis for axis, _ in axes[:position]):
            raise bad("an axis is named twice", "common.topology")
    elements(array("[axis, size]", forms.name, integer(1, rule="common.topology")), "topology-axes", once)(value)


def _attachment(value):
    members(value, {"bytes": integer(), "path": forms.path, "sha256": hexadecimal(64)})


def _shard(value):
    members(value, {"bytes": integer(), "class": forms.one_of("model", "state"), "crc_table": nullable(_crc_table)})
    table = value["crc_table"]
    if table is not None and table["offset"] + 4 * table["count"] > value["bytes"]:
        raise bad("the table leaves its shard", "part.table").at(prefix="/crc_table")


def _crc_table(value):
    members(value, {"count": integer(1, rule="part.table"), "crc32c": hexadecimal(8), "offset": integer()})


def _extensions(value):
    if not isinstance(value, dict):
        raise bad("expected an object")
    for feature in sorted(value):
        within(forms.step(feature), _extension, value[feature])


def _extension(value):
    members(value, {"on_rewrite": forms.one_of("keep", "drop"), "value": anything})


def _features_named(extensions, features):
    for feature in sorted(extensions):
        if feature not in features["optional"] + features["required"]:
            raise bad(f"extension {feature!r} is not named in features", "part.extensions").at(prefix="/extensions")


def _inventory(value):
    members(value, {"count": integer(), "sha256": hexadecimal(64)})


def _omitted(value):
    def entry(element):
        members(element, {"component": forms.name, "names": names, "reason": forms.one_of("frozen", "base", "other")})

    def names(listed):
        elements(forms.name, follows=above(rule="part.omitted"))(listed)
        if not listed:
            raise bad("expected at least one name", "part.omitted")

    elements(entry, follows=above(lambda element: (element["component"], element["reason"]), "part.omitted"))(value)


def _producer(value):
    def text(element):
        forms.string(element)
        if len(element.encode("utf-8")) > LIMITS["name-bytes"]:
            raise bad("a string of more than name-bytes", "limit.value", "limit")
    members(value, {"name": text, "version": text})


def _contents(value):
    in_order = above(lambda pair: pair[0])
    counts = elements(array("[role, count]", forms.role, integer(1, "tensors")), follows=in_order)
    elements(array("[component, roles]", forms.name, counts), follows=in_order)(value)


def unique_paths(paths):
    """No two logical paths that differ only in case, and none a directory of another."""
    # With "/" before every other character, what lies under a path follows it directly.
    folded = sorted(path.lower().replace("/", "\0") for path in paths)
    for one, next_one in zip(folded, folded[1:]):
        if one == next_one or next_one.startswith(one + "\0"):
            shown = one.replace("\0", "/")
            raise bad(f"logical path {shown!r} collides with another", "attachment.unique", "bad-path")


# --- tables of members

_COMMON = {
    "attempt": hexadecimal(16),
    "block_bytes": _block_bytes,
    "features": forms.features,
    "format": anything,
    "kind": anything,
    "parent": nullable(hexadecimal(64)),
    "run": forms.name,
    "step": integer(0, "step"),
    "topology": _topology,
    "version": anything,
    "writers": integer(1, "writers"),
}

# What a part says of its files, and the manifest repeats.
_FILES = {
    "attachments": elements(_attachment, "attachments-per-writer"),
    "extensions": _extensions,
    "inc": hexadecimal(16),
    "shards": elements(_shard, "shards-per-writer"),
}

_PART = _COMMON | _FILES | {
    "entries": elements(anything),
    "inventory": nullable(_inventory),
    "omitted": _omitted,
    "producer": _producer,
    "records": elements(anything),
    "writer": integer(),
}


def _manifest_part(value):
    members(value, _FILES | {"bytes": integer(0, "part-bytes"), "sha256": hexadecimal(64)})


def _pages_from(key):
    """The pages of one kind, whose first keys pass the check and ascend."""
    def page_of(value):
        members(value, {"bytes": integer(0, "page-bytes"), "first": key, "sha256": hexadecimal(64)})
    return elements(page_of, follows=above(lambda listed: canonical.text(listed["first"]), "manifest.firsts", "bad-order"))


_MANIFEST = _COMMON | {
    "contents": _contents,
    "omitted": _omitted,
    "parts": elements(_manifest_part, "writers"),
    "records": _pages_from(forms.record_key),
    "tensors": _pages_from(forms.tensor_identity),
}
