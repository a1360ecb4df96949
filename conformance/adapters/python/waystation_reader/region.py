"""Boxes of elements: exact cover, and moving elements from chunks to a region (5.2, 5.4, 5.5, 12.2).

A box is (at, extent). Elements of less than a byte, or of six bits, are spread out to one byte each, moved, and packed again.
"""

from math import prod


def split_axes(shape, boxes):
    """The axes along which some box is shorter than the shape."""
    return [axis for axis, size in enumerate(shape) if any(extent[axis] < size for _, extent in boxes)]


def covers_exactly(shape, boxes):
    """Whether boxes that lie within the shape cover every element of it once.

    Each corner of each box counts +1 or -1 by the number of its upper sides. The sum over all boxes determines how often each
    element is covered, so it is that of the whole shape exactly when the cover is exact. Unsplit axes add nothing.
    """
    if 0 in shape:
        return not boxes
    axes = split_axes(shape, boxes)
    corners = {}
    for at, extent in boxes:
        _add_corners(corners, [(at[axis], at[axis] + extent[axis]) for axis in axes], 1)
    _add_corners(corners, [(0, shape[axis]) for axis in axes], -1)
    return not corners


def _add_corners(corners, sides, sign):
    points = [((), sign)]
    for low, high in sides:
        points = [(point + (side,), signed) for point, value in points for side, signed in ((low, value), (high, -value))]
    for point, value in points:
        total = corners.get(point, 0) + value
        if total:
            corners[point] = total
        else:
            del corners[point]


def meet(at, extent, start, size):
    """The box that two boxes share, or None."""
    low = [max(a, s) for a, s in zip(at, start)]
    high = [min(a + e, s + z) for a, e, s, z in zip(at, extent, start, size)]
    if any(a >= b for a, b in zip(low, high)):
        return None
    return low, [b - a for a, b in zip(low, high)]


def run_of(shape, at, extent):
    """The half-open run of the flattened shape that a non-empty box is, or None where it is not one."""
    wide = next((axis for axis, size in enumerate(extent) if size > 1), len(shape))
    if any(extent[axis] != shape[axis] for axis in range(wide + 1, len(shape))):
        return None
    start = 0
    for size, first in zip(shape, at):
        start = start * size + first
    return start, start + prod(extent)


def copy_box(target, target_at, target_extent, source, source_at, source_extent, low, extent, width):
    """Copies the box (low, extent), given in the tensor's coordinates, between two packed boxes of elements of `width` bytes."""
    rank = len(extent)
    # Trailing axes that both boxes hold whole make one run.
    inner = rank
    run = width
    while inner > 0:
        inner -= 1
        run *= extent[inner]
        if not extent[inner] == target_extent[inner] == source_extent[inner]:
            break
    target_steps = _steps(target_extent, width)
    source_steps = _steps(source_extent, width)
    target_base = sum((a - b) * step for a, b, step in zip(low, target_at, target_steps))
    source_base = sum((a - b) * step for a, b, step in zip(low, source_at, source_steps))

    def walk(axis, to, come):
        if axis == inner:
            target[to:to + run] = source[come:come + run]
            return
        for _ in range(extent[axis]):
            walk(axis + 1, to, come)
            to += target_steps[axis]
            come += source_steps[axis]

    walk(0, target_base, source_base)


def _steps(extent, width):
    steps = []
    for size in reversed(extent):
        steps.append(width)
        width *= size
    return steps[::-1]


def packed_bytes(elements, bits):
    """The bytes that a chunk of so many elements has."""
    return -(-elements * bits // 8)


def width_of(bits):
    """The bytes that one element has while it is moved."""
    return bits // 8 if bits % 8 == 0 else 1


def _plane(data, shift, mask):
    """Each byte of data, shifted left (or right, if negative), and masked."""
    if shift >= 0:
        return bytes(data).translate(bytes((value << shift) & mask for value in range(256)))
    return bytes(data).translate(bytes((value >> -shift) & mask for value in range(256)))


def _merge(planes):
    total = 0
    for plane in planes:
        total |= int.from_bytes(plane, "little")
    return total.to_bytes(len(planes[0]), "little")


def _group(bits):
    """The least group of elements of so many bits that is whole bytes: (elements, bytes)."""
    elements = 1
    while elements * bits % 8:
        elements += 1
    return elements, elements * bits // 8


def spread(data, count, bits):
    """Packed elements with width_of(bits) bytes each."""
    if bits % 8 == 0:
        return data
    per_group, group = _group(bits)
    data = bytes(data) + bytes(-len(data) % group)
    out = bytearray(len(data) // group * per_group)
    for index in range(per_group):
        first, last = index * bits // 8, ((index + 1) * bits - 1) // 8
        planes = [_plane(data[byte::group], 8 * byte - index * bits, (1 << bits) - 1) for byte in range(first, last + 1)]
        out[index::per_group] = _merge(planes)
    return out[:count]


def pack(elements, bits):
    """The inverse of spread; unused bits are zero."""
    if bits % 8 == 0:
        return elements
    count = len(elements)
    per_group, group = _group(bits)
    elements = bytes(elements) + bytes(-count % per_group)
    out = bytearray(len(elements) // per_group * group)
    for byte in range(group):
        first, last = byte * 8 // bits, (byte * 8 + 7) // bits
        planes = [_plane(elements[index::per_group], index * bits - 8 * byte, 0xFF) for index in range(first, last + 1)]
        out[byte::group] = _merge(planes)
    return out[:packed_bytes(count, bits)]
