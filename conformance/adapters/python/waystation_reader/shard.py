"""The layout of a shard as a function of its chunks, and the header that belongs to it (chapter 6)."""

from dataclasses import dataclass

from . import canonical
from .refusal import Refusal
from .registry import LIMITS, SELF

PAGE, SMALL, LARGE = LIMITS["page-align"], LIMITS["small-align"], LIMITS["large-chunk-bytes"]


def align_up(value, alignment):
    return -(-value // alignment) * alignment


@dataclass(slots=True)
class Layout:
    """Offsets count from the start of the file; `table` is (offset, count) or None; pads are (begin, end)."""

    header: bytes
    offsets: list
    indices: list
    pads: list
    table: tuple | None
    end: int


def layout(placed, block_bytes):
    """The layout of the (tensor, chunk) pairs of one shard, in the order in which they are to stand."""
    cursor = 0
    begins, indices, pads, members = [], [], [], []
    count = 0

    def place(length):
        nonlocal cursor
        begin = align_up(cursor, PAGE if length >= LARGE else SMALL)
        pad_to(begin)
        cursor = begin + length
        return begin

    def pad_to(end):
        nonlocal cursor
        if end > cursor:
            members.append((f"__pad__.{len(pads)}", cursor, end, "U8", [end - cursor]))
            pads.append((cursor, end))
            cursor = end

    for tensor, chunk in placed:
        begin = place(chunk.length)
        begins.append(begin)
        members.append((_key(tensor, chunk), begin, cursor, *_shown(tensor, chunk)))
        indices.append(None)
        if chunk.length > block_bytes:
            indices[-1] = count
            count += -(-chunk.length // block_bytes)
    table = None
    if count:
        begin = place(4 * count)
        members.append(("__crc__", begin, cursor, "U32", [count]))
        table = (begin, count)
    pad_to(align_up(cursor, PAGE))
    header = _header(members)
    data = len(header)
    return Layout(
        header,
        [data + begin for begin in begins],
        indices,
        [(data + begin, data + end) for begin, end in pads],
        table and (data + table[0], table[1]),
        data + cursor,
    )


def _header(members):
    text = ['{"__metadata__":{"format":"pt","waystation":"1.0"}']
    for key, begin, end, dtype, shape in members:
        entry = {"data_offsets": [begin, end], "dtype": dtype, "shape": shape}
        text.append(f"{canonical.text(key)}:{canonical.text(entry)}")
    body = (",".join(text) + "}").encode("utf-8")
    size = align_up(8 + len(body), PAGE) - 8
    if size > LIMITS["shard-header-bytes"]:
        raise Refusal("limit", "shard.header-size", f"a header of {size} bytes, more than shard-header-bytes")
    return size.to_bytes(8, "little") + body.ljust(size, b" ")


def _key(tensor, chunk):
    component, role, name, _, _, scope = tensor.identity
    whole = chunk.extent == tensor.shape
    plain = role in ("param", "buffer") and component == "main" and not scope and "valid" not in tensor.raw
    if whole and plain and tensor.raw["dtype"] in SELF and not name.startswith("__"):
        return name
    return "__ws__:" + canonical.text([tensor.identity, chunk.at])


def _shown(tensor, chunk):
    dtype = tensor.raw["dtype"]
    if dtype not in SELF:
        return "U8", [chunk.length]
    if tensor.block is not None:
        return dtype, [tensor.elements_of(chunk.extent)]
    return dtype, chunk.extent


def check(shard, placed, block_bytes):
    """The layout of a shard, which has to be the one that its part gives; `placed` is in the order of offsets."""
    if not placed:
        raise Refusal("layout-mismatch", "shard.chunks", "a shard without chunks")
    made = layout(placed, block_bytes)
    for (tensor, chunk), offset, index in zip(placed, made.offsets, made.indices):
        if (chunk.offset, chunk.index) != (offset, index):
            raise Refusal("layout-mismatch", "shard.layout",
                          f"chunk {chunk.at} of {tensor.key} at {chunk.offset}, table index {chunk.index}; "
                          f"the layout gives {offset}, {index}")
    given = shard["crc_table"] and (shard["crc_table"]["offset"], shard["crc_table"]["count"])
    if given != made.table:
        raise Refusal("layout-mismatch", "shard.layout", f"table (offset, count) {given}; the layout gives {made.table}")
    if shard["bytes"] != made.end:
        raise Refusal("layout-mismatch", "shard.layout", f"length {shard['bytes']}; the layout gives {made.end}")
    return made
