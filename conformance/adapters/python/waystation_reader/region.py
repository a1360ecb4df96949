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


def spread(data, count, bits):
    """Packed elements with width_of(bits) bytes each."""
    if bits % 8 == 0:
        return data
    out = bytearray(count)
    for index in range(count):
        byte, shift = divmod(index * bits, 8)
        out[index] = int.from_bytes(data[byte:byte + 2], "little") >> shift & ((1 << bits) - 1)
    return out


def pack(elements, bits):
    """The inverse of spread; unused bits are zero."""
    if bits % 8 == 0:
        return elements
    out = bytearray(packed_bytes(len(elements), bits) + 1)
    for index, element in enumerate(elements):
        byte, shift = divmod(index * bits, 8)
        out[byte] |= element << shift & 0xFF
        out[byte + 1] |= element << shift >> 8
    return out[:-1]
