"""What a recipe of the line protocol says: whole tensors, and which boxes of them each writer has.

Knows the recipe's form. What the format says of tensors, records and boxes is left to the reader's checks of a part.
"""

import hashlib
from math import prod

from waystation_reader import entries, region
from waystation_reader.forms import bad
from waystation_reader.refusal import Refusal

_MEMBERS = ("attempt", "block_bytes", "parent", "run", "step", "topology")


class Recipe:
    """A recipe whose own form is sound. `common` has the members that are those of parts, unchecked."""

    def __init__(self, value):
        self.common = {member: need(value, member, object) for member in _MEMBERS}
        self.writers = [Writer(writer) for writer in need(value, "writers", list)]
        if not self.writers:
            raise wrong("a recipe has writers")
        self._tensors = need(value, "tensors", list)
        boxed = {box[0] for writer in self.writers for box in writer.boxes}
        if not boxed <= set(range(len(self._tensors))):
            raise wrong("a box of a tensor that is not in the recipe")
        # What has no box still has to be said: an empty tensor by someone, and one that nobody has is a gap.
        self.unboxed = [number for number in range(len(self._tensors)) if number not in boxed]

    def entry(self, number):
        """The members of a tensor as they stand in a part, without chunks."""
        tensor = self._tensors[number]
        if not isinstance(tensor, dict):
            raise wrong("a tensor is an object")
        return {member: value for member, value in tensor.items() if member not in ("data", "chunks")}

    def data(self, number, tensor):
        """The whole tensor, packed."""
        given, size = need(self._tensors[number], "data", dict), tensor.bytes_of(tensor.shape)
        if "seed" in given:
            return _stream(need(given, "seed", int), size)
        data = unhex(need(given, "hex", str))
        if len(data) != size:
            raise wrong(f"{len(data)} bytes of data for a tensor of {size}")
        return data


class Writer:
    """What one of the writers writes; entries are unchecked."""

    def __init__(self, value):
        self.boxes = [_box(box) for box in need(value, "boxes", list)]
        self.aliases, self.records, self.omitted = (value.get(member, []) for member in ("aliases", "records", "omitted"))
        if not all(isinstance(listed, list) for listed in (self.aliases, self.records, self.omitted)):
            raise wrong("aliases, records and omitted are lists")
        self.attachments = [(need(attachment, "path", str), unhex(need(attachment, "hex", str)))
                            for attachment in need({"attachments": []} | value, "attachments", list)]


def cut(tensor, data, at, extent):
    """One box of a whole packed tensor, packed by itself."""
    if tensor.block is None:
        width = region.width_of(tensor.bits)
        box = bytearray(prod(extent) * width)
        whole = region.spread(data, prod(tensor.shape), tensor.bits)
        region.copy_box(box, at, extent, whole, [0] * len(at), tensor.shape, at, extent, width)
        return region.pack(box, tensor.bits)
    run = region.run_of(tensor.shape, at, extent)
    if run is None or run[0] % tensor.block or run[1] % tensor.block and run[1] != prod(tensor.shape):
        raise Refusal("block-boundary", "companion.region", f"{at}, {extent} is not a run of whole blocks")
    first, end = (-(-place // tensor.block) for place in run)
    width = region.width_of(tensor.bits)
    return region.pack(region.spread(data, tensor.elements_of(tensor.shape), tensor.bits)[first * width:end * width], tensor.bits)


def check_box(tensor, at, extent):
    """That a box may be cut from a tensor."""
    if len(at) != len(tensor.shape) or len(extent) != len(tensor.shape):
        raise bad("another rank than the tensor", "chunk.rank", "bad-chunk")
    if 0 in extent:
        raise bad("an extent of zero", "chunk.nonempty", "bad-chunk")
    if any(a + e > size for a, e, size in zip(at, extent, tensor.shape)):
        raise bad("leaves the shape", "chunk.bounds", "bad-chunk")


def whole(entry, topology):
    """The tensor of an entry's members, checked but for its chunks."""
    return entries.tensor(entry | {"chunks": []}, entries.Session(topology, 0, {}), entries.IN_PART)


def _box(value):
    if not isinstance(value, list) or len(value) != 3 or not _is_count(value[0]) or not all(
            isinstance(numbers, list) and all(map(_is_count, numbers)) for numbers in value[1:]):
        raise wrong("a box is [tensor, at, extent]")
    return value


def _is_count(value):
    return type(value) is int and value >= 0


def _stream(seed, size):
    """The bytes without meaning that a seed stands for."""
    blocks = (hashlib.sha256(f"{seed}/{number}".encode()).digest() for number in range(-(-size // 32)))
    return b"".join(blocks)[:size]


def unhex(text):
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise wrong("expected hex") from None


def need(value, member, kind):
    """A member that has to be there, of its JSON type."""
    if not isinstance(value, dict) or member not in value or not isinstance(value[member], kind) or kind is int and value[member] is True:
        raise wrong(f"expected {member!r} of its type")
    return value[member]


def wrong(message):
    return Refusal("bad-argument", None, message)
