"""Tensors, aliases and their chunks (chapters 4 and 5), and records (chapter 9), as they stand in pages and parts."""

from dataclasses import dataclass
from math import prod

from . import canonical, forms, region
from .forms import bad, within
from .registry import BITS, LIMITS, ROLES


@dataclass(frozen=True)
class Session:
    """What entries are checked against: the job's axes, B, and the shards of each writer."""

    topology: list
    block_bytes: int
    shards: dict

    @staticmethod
    def of_manifest(manifest):
        shards = {writer: part["shards"] for writer, part in enumerate(manifest["parts"])}
        return Session(manifest["topology"], manifest["block_bytes"], shards)

    @staticmethod
    def of_part(part):
        return Session(part["topology"], part["block_bytes"], {part["writer"]: part["shards"]})


@dataclass(slots=True)
class Chunk:
    """A box of a tensor, and where its bytes are. `index` is its place in the shard's table of block CRCs, or None."""

    writer: int
    shard: int
    offset: int
    at: list
    extent: list
    crc: int
    index: int | None
    length: int


@dataclass(slots=True)
class Tensor:
    """A checked tensor. `elements` counts those that its chunks hold: for a flat companion, one for each block."""

    identity: list
    key: str
    raw: dict
    bits: int
    shape: list
    block: int | None
    chunks: list

    def elements_of(self, extent):
        count = prod(extent)
        return count if self.block is None else -(-count // self.block)

    def bytes_of(self, extent):
        return region.packed_bytes(self.elements_of(extent), self.bits)


@dataclass(slots=True)
class Alias:
    """A second name of the tensor with the key `target`."""

    identity: list
    key: str
    raw: dict
    target: str


def is_alias(raw):
    return isinstance(raw, dict) and "of" in raw


# --- identity and members


def _component(value):
    if value == "main":
        raise bad("component main is left out", "identity.left-out")
    forms.name(value)


def _said(value):
    if value == "":
        raise bad("left out when it says nothing", "identity.left-out")
    forms.name(value)


def _scope(value):
    if value == []:
        raise bad("left out when it says nothing", "identity.left-out")
    forms.coordinate(value)


def _axes(value):
    def axis(element):
        if element is not None and not forms.is_count(element):
            raise bad("expected an axis number or null")
    forms.elements(axis)(value)


def _dtype(value):
    forms.string(value)
    if value not in BITS:
        raise bad(f"dtype {value!r} is not in the registry", "tensor.dtype", "unsupported-dtype")


def _native(value):
    def step(element):
        if not isinstance(element, str) and not forms.is_count(element):
            raise bad("expected a string or an integer of at least 0")

    def entry(element):
        if not isinstance(element, list) or len(element) != 2:
            raise bad("expected [framework, path]")
        within("/0", forms.name, element[0])
        within("/1", forms.elements(step), element[1])
        if not 1 <= len(element[1]) <= 64:
            raise bad(f"a path of {len(element[1])} elements", "tensor.native")

    forms.elements(entry)(value)
    if not value or not forms.ascending([framework for framework, _ in value]):
        raise bad("frameworks are not at least one and strictly ascending", "tensor.native")


_NUMBERS = forms.elements(forms.integer())
_TENSOR = {
    "axes": (False, _axes),
    "block": (False, forms.integer(1)),
    "chunks": (True, forms.elements(forms.anything)),
    "component": (False, _component),
    "dtype": (True, _dtype),
    "name": (True, forms.name),
    "native": (False, _native),
    "owner": (False, _said),
    "role": (True, forms.role),
    "scope": (False, _scope),
    "shape": (True, _NUMBERS),
    "slot": (False, _said),
    "valid": (False, _NUMBERS),
}


def _of(value):
    if not isinstance(value, list) or len(value) != 6:
        raise bad("expected [component, role, name, slot, owner, scope]", "alias.form")
    forms.tensor_identity(value)


_ALIAS = {"component": (False, _component), "name": (True, forms.name), "of": (True, _of), "role": (True, forms.role)}


def tensor(raw, session):
    """Checks a tensor's members and how they go together; its chunks are still to be checked."""
    forms.members(raw, _TENSOR)
    forms.goes_with_role(raw["role"], raw.get("slot", ""), raw.get("owner", ""))
    within("/scope", forms.on_topology, raw.get("scope", []), session.topology, "identity.scope")
    shape, bits = raw["shape"], BITS[raw["dtype"]]
    if len(shape) > LIMITS["dimensions"]:
        raise bad(f"{len(shape)} axes", "tensor.rank", "bad-shape").at(prefix="/shape")
    for member in ("axes", "valid"):
        if member in raw and len(raw[member]) != len(shape):
            raise bad(f"{len(raw[member])} elements for {len(shape)} axes", "tensor.rank", "bad-shape").at(prefix=f"/{member}")
    if "valid" in raw and (raw["valid"] == shape or any(a > b for a, b in zip(raw["valid"], shape))):
        raise bad("not below the shape", "tensor.valid", "bad-shape").at(prefix="/valid")
    if "axes" in raw:
        numbers = [axis for axis in raw["axes"] if axis is not None]
        fit = len(set(numbers)) == len(numbers) and all(number < LIMITS["dimensions"] for number in numbers)
        if "slot" not in raw or not numbers or not fit:
            raise bad("axes without slot, all null, too large, or twice", "tensor.axes", "bad-identity").at(prefix="/axes")
    if prod(size for size in shape if size) * bits > LIMITS["tensor-bits"]:
        raise bad("more than tensor-bits", "tensor.size", "limit").at(prefix="/shape")
    if raw["role"] == "blob" and (raw["dtype"] != "U8" or len(shape) != 1):
        raise bad("a blob is U8 with one axis", "tensor.blob", "bad-identity")
    if "block" in raw and raw["role"] != "quant":
        raise bad("only a companion has a block", "companion.role", "bad-identity").at(prefix="/block")
    who = [raw.get("component", "main"), raw["role"], raw["name"], raw.get("slot", ""), raw.get("owner", ""), raw.get("scope", [])]
    return Tensor(who, canonical.text(who), raw, bits, shape, raw.get("block"), [])


def alias(raw, session):
    """Checks an alias but for whether its target is there."""
    forms.members(raw, _ALIAS)
    target = raw["of"]
    if raw["role"] not in ("param", "buffer") or target[1] != raw["role"]:
        raise bad("an alias is a param or buffer, and so is its target", "alias.role", "bad-alias").at(prefix="/role")
    within("/of", forms.on_topology, target[5], session.topology, "identity.scope")
    who = [raw.get("component", "main"), raw["role"], raw["name"], "", "", target[5]]
    return Alias(who, canonical.text(who), raw, canonical.text(target))


def check_target(alias_entry, target):
    """Checks what an alias names: `target` is that tensor, or None where there is none."""
    if target is None:
        raise bad(f"the target of {alias_entry.key} is not a tensor of the checkpoint", "alias.target", "bad-alias")
    if not target.chunks:
        raise bad(f"the target of {alias_entry.key} has no chunks", "alias.elements", "bad-alias")


# --- chunks


def chunks(entry, session, writer=None):
    """Checks the chunks of a tensor and keeps them in it. `writer` is given for a part, where chunks do not name it."""
    lead = 1 if writer is None else 0
    found = entry.chunks
    for position, raw in enumerate(entry.raw["chunks"]):
        found.append(within(f"/chunks/{position}", _chunk, raw, entry, session, writer, lead))
    for position, (one, other) in enumerate(zip(found, found[1:])):
        if one.at > other.at:
            raise bad("chunks are not ascending by at", "chunk.order", "bad-order").at(prefix=f"/chunks/{position + 1}")
    places = sorted((chunk.writer, chunk.shard, chunk.offset, chunk.length) for chunk in found)
    for one, other in zip(places, places[1:]):
        if one[:2] == other[:2] and one[2] + one[3] > other[2]:
            raise bad(f"two chunks share the bytes at {other[2]} of a shard", "chunk.apart", "bad-chunk").at(prefix="/chunks")
    _boxes(entry)


def _boxes(entry):
    """The boxes of a tensor's chunks, which do not split it along too many axes."""
    boxes = [(chunk.at, chunk.extent) for chunk in entry.chunks]
    split = region.split_axes(entry.shape, boxes)
    if len(split) > LIMITS["split-axes"]:
        raise bad(f"split along {len(split)} axes", "chunk.split", "limit").at(prefix="/chunks")
    return boxes


def _chunk(raw, entry, session, writer, lead):
    if not isinstance(raw, list) or not lead + 5 <= len(raw) <= lead + 6:
        raise bad("not a chunk")
    place, rest = raw[:lead + 2], raw[lead + 2:]
    for number in place + rest[3:]:
        if not forms.is_count(number):
            raise bad("expected an integer of at least 0")
    at, extent, crc = rest[0], rest[1], rest[2]
    _NUMBERS(at)
    _NUMBERS(extent)
    forms.hexadecimal(8)(crc)
    if len(at) != len(entry.shape) or len(extent) != len(entry.shape):
        raise bad("another rank than the tensor", "chunk.rank", "bad-chunk")
    if 0 in extent:
        raise bad("an extent of zero", "chunk.nonempty", "bad-chunk")
    if any(a + e > size for a, e, size in zip(at, extent, entry.shape)):
        raise bad("leaves the shape", "chunk.bounds", "bad-chunk")
    if lead:
        writer = place[0]
    shard_number, offset = place[lead:]
    shards = session.shards.get(writer)
    if shards is None or shard_number >= len(shards):
        raise bad(f"no shard {shard_number} of writer {writer}", "chunk.shard", "bad-chunk")
    shard = shards[shard_number]
    if shard["class"] != ROLES[entry.identity[1]][0]:
        raise bad(f"role {entry.identity[1]} in a shard of class {shard['class']}", "shard.class", "bad-chunk")
    length = entry.bytes_of(extent)
    if offset + length > shard["bytes"]:
        raise bad("leaves its shard", "chunk.shard", "bad-chunk")
    index = rest[3] if len(rest) > 3 else None
    if (index is not None) != (length > session.block_bytes):
        raise bad("a table index stands exactly with a chunk of more than B bytes", "chunk.table-index", "bad-chunk")
    if index is not None:
        count = shard["crc_table"]["count"] if shard["crc_table"] else 0
        if index + -(-length // session.block_bytes) > count:
            raise bad("its blocks leave the table", "chunk.table-index", "bad-chunk")
    return Chunk(writer, shard_number, offset, at, extent, int(crc, 16), index, length)


def cover(entry):
    """Checks that the chunks of a tensor, of one page or of all parts, hold every element once."""
    boxes = _boxes(entry)
    held, size = sum(prod(extent) for _, extent in boxes), prod(entry.shape)
    if held < size:
        raise bad(f"chunks of {entry.key} hold {held} of {size} elements", "cover.gap", "cover-gap").at(prefix="/chunks")
    if not region.covers_exactly(entry.shape, boxes):
        raise bad(f"chunks of {entry.key} do not cover its shape exactly once", "cover.exact", "cover-overlap").at(prefix="/chunks")


# --- records


def _record_coordinate(value):
    if value == []:
        raise bad("left out when empty", "record.coordinate")
    forms.coordinate(value)


def _record_value(value):
    if not isinstance(value, dict):
        raise bad("expected an object", "record.value")


_RECORD = {
    "coordinate": (False, _record_coordinate),
    "kind": (True, forms.name),
    "name": (True, forms.name),
    "value": (True, _record_value),
}


def record_key(raw):
    """The array that a record is referred to by."""
    return [raw["kind"], raw["name"], raw.get("coordinate", [])]


def record(raw, session):
    """Checks a record, whatever its value holds; gives its key."""
    forms.members(raw, _RECORD)
    within("/coordinate", forms.on_topology, raw.get("coordinate", []), session.topology, "record.coordinate")
    return canonical.text(record_key(raw))
