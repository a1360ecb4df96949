"""Tensors, aliases and their chunks (chapters 4 and 5), and records (chapter 9), as they stand in pages and parts."""

from dataclasses import dataclass
from math import prod

from . import canonical, forms, records, region
from .forms import above, array, bad, elements, integer, not_said, nullable, within
from .refusal import Refusal
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
    """A second name of the tensor with the key `target`. `file` is the page that it stands in, if in one."""

    identity: list
    key: str
    raw: dict
    target: str
    file: str | None = None


# --- members


def _dtype(value):
    forms.string(value)
    if value not in BITS:
        raise bad(f"dtype {value!r} is not in the registry", "tensor.dtype", "unsupported-dtype")


def _native(value):
    def in_order(pairs, position):
        above(lambda pair: pair[0], "tensor.native")(pairs, position)
        if not 1 <= len(pairs[position][1]) <= 64:
            raise bad(f"a path of {len(pairs[position][1])} elements", "tensor.native")

    def step(element):
        if not isinstance(element, str) and not forms.is_count(element):
            raise bad("expected a string or an integer of at least 0")

    elements(array("[framework, path]", forms.name, elements(step)), follows=in_order)(value)
    if not value:
        raise bad("expected at least one framework", "tensor.native")


def _of(value):
    try:
        forms.tensor_identity(value)
    except Refusal as refusal:
        # Other values than the six of an identity are a matter of this rule.
        if refusal.rule == "json.types":
            refusal.rule = "alias.form"
        raise


def _record_value(value):
    if not isinstance(value, dict):
        raise bad("expected an object", "record.value")


_NUMBERS = elements(integer())
# A chunk, whose last element may be a table index; in a page the writer comes first.
_IN_PART = (integer(), integer(), _NUMBERS, _NUMBERS, forms.hexadecimal(8))
_IN_PAGE = (integer(), *_IN_PART)
_COMPONENT = not_said("main", forms.name)
_TENSOR = {
    "axes?": elements(nullable(integer())),
    "block?": integer(1),
    "chunks": elements(array("a chunk", *_IN_PAGE, optional=integer())),
    "component?": _COMPONENT,
    "dtype": _dtype,
    "name": forms.name,
    "native?": _native,
    "owner?": not_said("", forms.name),
    "role": forms.role,
    "scope?": not_said([], forms.coordinate),
    "shape": _NUMBERS,
    "slot?": not_said("", forms.name),
    "valid?": _NUMBERS,
}
IN_PART = _TENSOR | {"chunks": elements(array("a chunk", *_IN_PART, optional=integer()))}
_ALIAS = {"component?": _COMPONENT, "name": forms.name, "native?": _native, "of": _of, "role": forms.role}
_RECORD = {
    "coordinate?": not_said([], forms.coordinate, "record.coordinate"),
    "kind": forms.name,
    "name": forms.name,
    "value": _record_value,
}


# --- lists of entries


def check_list(kind, raws, session, rule, first=None, writer=None):
    """What a list holds by key: tensors and aliases, or records as they stand.

    The list is that of a page, whose `first` key the manifest states, or that of the part of a writer. A part's tensors are not
    whole, so they are not checked for cover.
    """
    found = {}

    def add(raw, before):
        if kind == "records":
            entry, key = raw, record(raw, session)
        else:
            # The first member tells which it is: `chunks`, or one before it, is none of an alias's.
            is_alias = isinstance(raw, dict) and min(raw, default=None) in ("component", "name", "native", "of", "role")
            entry = alias(raw, session) if is_alias else tensor(raw, session, _TENSOR if writer is None else IN_PART)
            key = entry.key
        if before is None and first not in (None, key):
            raise bad("the first key is not the one that the manifest states", rule, "bad-order")
        if before is not None and before >= key:
            raise bad("keys are not strictly ascending", rule, "bad-order")
        if isinstance(entry, Tensor):
            chunks(entry, session, writer)
            if writer is None:
                cover(entry)
        found[key] = entry
        return key

    key = None
    for position, raw in enumerate(raws):
        key = within(f"/{kind}/{position}", add, raw, key)
    return found


def tensor(raw, session, table):
    """Checks a tensor's members and how they go together; its chunks are checked for their form alone."""
    forms.members(raw, table)
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
    if raw["role"] == "blob" and (raw["dtype"] not in ("U8", "U64") or len(shape) != 1):
        raise bad("a blob is U8 or U64 with one axis", "tensor.blob", "bad-identity")
    if "block" in raw and raw["role"] != "quant":
        raise bad("only a companion has a block", "companion.role", "bad-identity").at(prefix="/block")
    who = [raw.get("component", "main"), raw["role"], raw["name"], raw.get("slot", ""), raw.get("owner", ""), raw.get("scope", [])]
    return Tensor(who, canonical.text(who), raw, bits, shape, raw.get("block"), [])


def alias(raw, session):
    """Checks an alias but for whether its target is there."""
    forms.members(raw, _ALIAS)
    target = raw["of"]
    within("/of/5", forms.on_topology, target[5], session.topology, "identity.scope")
    if raw["role"] not in ("param", "buffer") or target[1] != raw["role"]:
        raise bad("an alias is a param or buffer, and so is its target", "alias.role", "bad-alias").at(prefix="/role")
    who = [raw.get("component", "main"), raw["role"], raw["name"], "", "", target[5]]
    return Alias(who, canonical.text(who), raw, canonical.text(target))


def check_target(alias_entry, target):
    """Checks what an alias names: `target` is that tensor, or None where there is none."""
    message, rule = f"the target of {alias_entry.key} has no chunks", "alias.elements"
    if target is None:
        message, rule = f"the target of {alias_entry.key} is not a tensor of the checkpoint", "alias.target"
    if target is None or not target.chunks:
        raise bad(message, rule, "bad-alias").at(file=alias_entry.file)


# --- chunks


def chunks(entry, session, writer=None):
    """Checks the chunks of a tensor and keeps them in it. `writer` is given for a part, where chunks do not name it."""
    found = entry.chunks
    for position, raw in enumerate(entry.raw["chunks"]):
        found.append(within(f"/chunks/{position}", _chunk, raw, entry, session, writer))
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


def _chunk(raw, entry, session, writer):
    writer, shard_number, offset, at, extent, crc, *index = raw if writer is None else [writer, *raw]
    if len(at) != len(entry.shape) or len(extent) != len(entry.shape):
        raise bad("another rank than the tensor", "chunk.rank", "bad-chunk")
    if 0 in extent:
        raise bad("an extent of zero", "chunk.nonempty", "bad-chunk")
    if any(a + e > size for a, e, size in zip(at, extent, entry.shape)):
        raise bad("leaves the shape", "chunk.bounds", "bad-chunk")
    shards = session.shards.get(writer)
    if shards is None or shard_number >= len(shards):
        raise bad(f"no shard {shard_number} of writer {writer}", "chunk.shard", "bad-chunk")
    shard = shards[shard_number]
    if shard["class"] != ROLES[entry.identity[1]][0]:
        raise bad(f"role {entry.identity[1]} in a shard of class {shard['class']}", "shard.class", "bad-chunk")
    length = entry.bytes_of(extent)
    if offset + length > shard["bytes"]:
        raise bad("leaves its shard", "chunk.shard", "bad-chunk")
    index = index[0] if index else None
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


def record_key(raw):
    """The array that a record is referred to by."""
    return [raw["kind"], raw["name"], raw.get("coordinate", [])]


def record(raw, session):
    """Checks a record; gives its key."""
    forms.members(raw, _RECORD)
    within("/coordinate", forms.on_topology, raw.get("coordinate", []), session.topology, "record.coordinate")
    records.check(raw, session.topology)
    return canonical.text(record_key(raw))
