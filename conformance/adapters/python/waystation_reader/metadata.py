"""The outer objects: parts, manifests and pages (chapters 7 and 8), without their entries and records."""

from . import canonical, forms
from .forms import bad, elements, hexadecimal, integer, members, within
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
    members(value, _COMMON | {
        "contents": (True, _contents),
        "omitted": (True, _omitted),
        "parts": (True, elements(_manifest_part, "writers")),
        "records": (True, elements(_page_of(forms.record_key))),
        "tensors": (True, elements(_page_of(forms.tensor_identity))),
    })
    # From here on what several members have to do with each other, in the order of the chapters.
    for number, listed in enumerate(value["tensors"]):
        within(f"/tensors/{number}/first/5", forms.on_topology, listed["first"][5], value["topology"], "identity.scope")
    for position, stated in enumerate(value["parts"]):
        within(f"/parts/{position}", _features_named, stated["extensions"], value["features"])
    within("/parts", unique_paths, [attachment["path"] for stated in value["parts"] for attachment in stated["attachments"]])
    if len(value["parts"]) != value["writers"]:
        raise bad(f"{len(value['parts'])} parts of {value['writers']} writers", "manifest.parts").at(prefix="/parts")
    for kind in ("tensors", "records"):
        if not forms.ascending([canonical.text(listed["first"]) for listed in value[kind]]):
            raise bad("first keys are not strictly ascending", "manifest.firsts", "bad-order").at(prefix=f"/{kind}")
    for number, listed in enumerate(value["records"]):
        within(f"/records/{number}/first/2", forms.on_topology, listed["first"][2], value["topology"], "record.coordinate")


def part(value):
    """Checks a part whose preamble has passed; entries and records are only known to be lists of objects."""
    members(value, _COMMON | {
        "attachments": (True, _ATTACHMENTS),
        "entries": (True, elements(forms.anything)),
        "extensions": (True, _extensions),
        "inc": (True, hexadecimal(16)),
        "inventory": (True, _inventory),
        "omitted": (True, _omitted),
        "producer": (True, _producer),
        "records": (True, elements(forms.anything)),
        "shards": (True, _SHARDS),
        "writer": (True, integer()),
    })
    if value["writer"] >= value["writers"]:
        raise bad(f"writer {value['writer']} of {value['writers']}", "part.writer").at(prefix="/writer")
    _features_named(value["extensions"], value["features"])


def page(value, kind, number, version):
    """Checks a page's own members; `kind` is tensors or records."""
    preamble(value, kind, "page.number")
    if value["version"] != version:
        raise bad(f"version {value['version']}, that of the manifest is {version}", "open.page-version").at(prefix="/version")
    _required(value, "page", integer())
    if value["page"] != number:
        raise bad(f"expected page {number}", "page.number", "bad-format").at(prefix="/page")
    members(value, {
        "entries" if kind == "tensors" else "records": (True, elements(forms.anything)),
        "format": (True, forms.anything),
        "kind": (True, forms.anything),
        "page": (True, forms.anything),
        "version": (True, forms.anything),
    })


def _block_bytes(value):
    low, high = LIMITS["block-bytes-min"], LIMITS["block-bytes-max"]
    if not forms.is_count(value) or not low <= value <= high or value & (value - 1):
        raise bad(f"expected a power of two from {low} to {high}", "common.block-bytes")


def _parent(value):
    if value is not None:
        hexadecimal(64)(value)


def _topology(value):
    def axis(element):
        if not isinstance(element, list) or len(element) != 2:
            raise bad("expected [axis, size]")
        within("/0", forms.name, element[0])
        if type(element[1]) is not int or element[1] < 1:
            raise bad("an axis has a size of at least 1", "common.topology")
    elements(axis, "topology-axes")(value)
    if len({axis for axis, _ in value}) != len(value):
        raise bad("an axis is named twice", "common.topology")


_COMMON = {
    "attempt": (True, hexadecimal(16)),
    "block_bytes": (True, _block_bytes),
    "features": (True, forms.features),
    "format": (True, forms.anything),
    "kind": (True, forms.anything),
    "parent": (True, _parent),
    "run": (True, forms.name),
    "step": (True, integer(0, "step")),
    "topology": (True, _topology),
    "version": (True, forms.anything),
    "writers": (True, integer(1, "writers")),
}


def _attachment(value):
    members(value, {"bytes": (True, integer()), "path": (True, forms.path), "sha256": (True, hexadecimal(64))})


def _shard(value):
    members(value, {"bytes": (True, integer()), "class": (True, forms.one_of("model", "state")), "crc_table": (True, _crc_table)})
    table = value["crc_table"]
    if table is not None and (table["count"] < 1 or table["offset"] + 4 * table["count"] > value["bytes"]):
        raise bad("a table of no blocks, or one that leaves its shard", "part.table").at(prefix="/crc_table")


def _crc_table(value):
    if value is not None:
        members(value, {"count": (True, integer()), "crc32c": (True, hexadecimal(8)), "offset": (True, integer())})


_ATTACHMENTS = elements(_attachment, "attachments-per-writer")
_SHARDS = elements(_shard, "shards-per-writer")


def _extensions(value):
    if not isinstance(value, dict):
        raise bad("expected an object")
    members(value, {feature: (True, _extension) for feature in value})


def _extension(value):
    members(value, {"on_rewrite": (True, forms.one_of("keep", "drop")), "value": (True, forms.anything)})


def _features_named(extensions, features):
    named = {*features["optional"], *features["required"]}
    for feature in sorted(extensions):
        if feature not in named:
            raise bad(f"extension {feature!r} is not named in features", "part.extensions").at(prefix="/extensions")


def _inventory(value):
    if value is not None:
        members(value, {"count": (True, integer()), "sha256": (True, hexadecimal(64))})


def _omitted(value):
    def entry(element):
        members(element, {
            "component": (True, forms.name),
            "names": (True, elements(forms.name)),
            "reason": (True, forms.one_of("frozen", "base", "other")),
        })
        if not element["names"] or not forms.ascending(element["names"]):
            raise bad("names are not at least one and strictly ascending", "part.omitted").at(prefix="/names")
    elements(entry)(value)
    if not forms.ascending([(element["component"], element["reason"]) for element in value]):
        raise bad("entries are not strictly ascending by component and reason", "part.omitted")


def _producer(value):
    def text(element):
        forms.string(element)
        if len(element.encode("utf-8")) > LIMITS["name-bytes"]:
            raise bad("a string of more than name-bytes", "limit.value", "limit")
    members(value, {"name": (True, text), "version": (True, text)})


def _manifest_part(value):
    members(value, {
        "attachments": (True, _ATTACHMENTS),
        "bytes": (True, integer(0, "part-bytes")),
        "extensions": (True, _extensions),
        "inc": (True, hexadecimal(16)),
        "sha256": (True, hexadecimal(64)),
        "shards": (True, _SHARDS),
    })


def _page_of(key):
    def checked(value):
        members(value, {"bytes": (True, integer(0, "page-bytes")), "first": (True, key), "sha256": (True, hexadecimal(64))})
    return checked


def _contents(value):
    def pair(check):
        def checked(element):
            if not isinstance(element, list) or len(element) != 2:
                raise bad("expected a pair")
            within("/0", forms.name if check is counts else forms.role, element[0])
            within("/1", check, element[1])
        return checked

    def counts(inner):
        elements(pair(integer(1)))(inner)
        if not forms.ascending([element[0] for element in inner]):
            raise bad("roles are not strictly ascending")

    elements(pair(counts))(value)
    if not forms.ascending([element[0] for element in value]):
        raise bad("components are not strictly ascending")


def unique_paths(paths):
    """No two logical paths that differ only in case, and none a directory of another."""
    # With "/" before every other character, what lies under a path follows it directly.
    folded = sorted(path.lower().replace("/", "\0") for path in paths)
    for one, next_one in zip(folded, folded[1:]):
        if one == next_one or next_one.startswith(one + "\0"):
            shown = one.replace("\0", "/")
            raise bad(f"logical path {shown!r} collides with another", "attachment.unique", "bad-path")
