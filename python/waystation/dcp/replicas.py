"""Whether what several ranks hold alike is alike.

DCP stores one of several tensors of one name and drops the others unseen. Each rank digests what others may hold too
and sends the digests along with the results of its writing; the coordinator compares them before it commits. It knows
tensors and trees; it must not know files, nor which copy is stored.

A digest finds copies that drifted apart. It is no proof against whoever wants two tensors to look alike.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor, Replicate

from .. import arrays
from .._json import canonical
from ..errors import Error, error

Place = tuple[str, tuple[int, ...]]
"""A flat key and the start of the box; `()` of what is no distributed tensor."""

_ON_DEVICE = 1 << 31
"""Set in digests that were taken on a device, in another way than on the host."""

_Ids = np.ndarray[Any, np.dtype[np.uint64]]
_Sums = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(frozen=True, eq=False)
class Digests:
    """What one rank holds that others may hold too; travels with the results of its writing.

    Twelve bytes for each, whatever it is called: of a thousand ranks all come to one.
    """

    rank: int
    ids: _Ids
    sums: _Sums

    @staticmethod
    def of(rank: int, digests: Mapping[Place, int]) -> Digests:
        ids = np.fromiter((_id(place) for place in digests), np.uint64, len(digests))
        order = np.argsort(ids)
        return Digests(rank, ids[order], np.fromiter(digests.values(), np.uint32, len(digests))[order])


def is_shared(tensor: torch.Tensor, size: int) -> bool:
    """Whether other ranks should have the very same elements under this name."""
    if isinstance(tensor, DTensor):
        mesh = tensor.device_mesh
        # On a slice of a larger mesh it is the same along the other axes of that.
        return mesh.size() < size or any(
            isinstance(how, Replicate) and mesh.size(axis) > 1 for axis, how in enumerate(tensor.placements)
        )
    return size > 1


def of_tensors(tensors: Iterable[tuple[Place, torch.Tensor]]) -> dict[Place, int]:
    """Digests of tensors as they are here; those of host memory are taken on a few threads."""
    named = list(tensors)
    with ThreadPoolExecutor(max_workers=4) as threads:  # crc32 works without the interpreter's lock
        return dict(zip((place for place, _ in named), threads.map(of_tensor, (tensor for _, tensor in named))))


def of_tensor(tensor: torch.Tensor) -> int:
    """Of dtype, shape and elements; of one on a device taken there, so that of all its bytes only a sum travels."""
    head = zlib.crc32(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    if tensor.device.type == "cpu":
        return zlib.crc32(arrays.as_bytes(tensor).data, head) & ~_ON_DEVICE
    arrays.plain_tensor(tensor)
    return zlib.crc32(sum_of(tensor.detach().resolve_conj().resolve_neg().contiguous()), head) | _ON_DEVICE


def of_array(data: Any) -> int:
    """Of dtype, shape and elements of what `waystation.arrays` takes."""
    head = zlib.crc32(f"{arrays.dtype_of(data)} {arrays.shape_of(data)}".encode())
    return zlib.crc32(arrays.as_bytes(data).data, head) & ~_ON_DEVICE


def of_value(value: object) -> int | None:
    """Of a plain value; None for one that is not plain."""
    kind = type(value)
    if kind is float:
        return zlib.crc32(struct.pack("<d", value), 1) & ~_ON_DEVICE
    if kind in (bool, int, str) or value is None:
        return zlib.crc32(f"{kind.__name__} {value}".encode("utf-8", "surrogatepass")) & ~_ON_DEVICE
    return None


def of_tree(value: Any) -> int:
    """Of a value tree."""
    return zlib.crc32(canonical(value).encode(), 2) & ~_ON_DEVICE


def compare(ranks: Iterable[Digests], places: Callable[[], Iterable[Place]]) -> None:
    """Raises `state-disagree` with keys and ranks where two ranks hold different things under one name.

    What one has in the host's memory and another on a device cannot be told apart, and passes.

    `places` are all that the checkpoint has; they are asked for only to say what was found.
    """
    ids, sums, first = np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.int64)
    apart: dict[int, set[int]] = {}
    for one in ranks:
        at = np.minimum(np.searchsorted(ids, one.ids), max(len(ids) - 1, 0))
        known = ids[at] == one.ids if len(ids) else np.zeros(len(one.ids), bool)
        changed = sums[at[known]] ^ one.sums[known]
        for number in np.flatnonzero(known)[(changed != 0) & (changed < _ON_DEVICE)]:
            apart.setdefault(int(one.ids[number]), {int(first[at[number]])}).add(one.rank)
        if not known.all():
            ids, sums = np.concatenate([ids, one.ids[~known]]), np.concatenate([sums, one.sums[~known]])
            first = np.concatenate([first, np.full(int((~known).sum()), one.rank)])
            order = np.argsort(ids)
            ids, sums, first = ids[order], sums[order], first[order]
    if apart:
        names = {found: place[0] for place in places() if (found := _id(place)) in apart}
        told: dict[str, set[int]] = {}
        for found, of_ranks in apart.items():
            told.setdefault(names.get(found, "?"), set()).update(of_ranks)
        raise differ(told)


def differ(apart: Mapping[str, Iterable[int]], remedy: str | None = None) -> Error:
    """The refusal, for key -> the ranks that have it and not alike."""
    told = []
    for key, ranks in sorted(apart.items())[:8]:
        ordered = sorted(ranks)
        told.append(
            f"{key!r} (rank {ordered[0]} and {'ranks' if len(ordered) > 2 else 'rank'} "
            f"{', '.join(map(str, ordered[1:9]))}{', …' if len(ordered) > 9 else ''})"
        )
    more = f" and {len(apart) - 8} more" if len(apart) > 8 else ""
    return error(
        "state-disagree",
        f"ranks hold different things under one name, of which one only would be stored: {'; '.join(told)}{more}",
        remedy=remedy
        or "Name them in SavePlanner(per_rank=[…]) if each rank has its own, or in SavePlanner(first_rank=[…]) if the "
        "lowest rank's is meant; otherwise the ranks have drifted apart, and no checkpoint can be right.",
    )


def _id(place: Place) -> int:
    text = f"{place[0]}\0{','.join(map(str, place[1]))}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def sum_of(tensor: torch.Tensor) -> bytes:
    """A sum over the bytes of a contiguous tensor as integers of 64 bits, each mixed with its place, and what is left.

    Of equal bytes it is equal, wherever in memory they begin. Works on some tens of megabytes at a time.
    """
    flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    whole = flat.numel() // 8 * 8
    step = _WORDS * 8
    places = torch.arange(min(_WORDS, whole // 8), device=tensor.device) * _signed(_ODD[0])
    sums = []
    for at in range(0, whole, step):
        here = flat[at : min(at + step, whole)]
        # Integers lie at multiples of their size.
        words = (here.clone() if here.data_ptr() % 8 else here).view(torch.int64)
        mixed = (words + places[: words.numel()]).add_(_signed(at // 8 * _ODD[0]))
        # The highest bits reach all others, in a way that hangs on the place: else changes could cancel one another.
        for odd in _ODD[1:]:
            mixed.bitwise_xor_((mixed >> 32).bitwise_and_(0xFFFFFFFF)).mul_(_signed(odd))
        sums.append(mixed.sum())
    found = sum(torch.stack(sums).tolist()) if sums else 0
    return int(found % 2**64).to_bytes(8, "little") + bytes(flat[whole:].tolist())


_WORDS = 1 << 22
_ODD = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB)


def _signed(number: int) -> int:
    """The integer of 64 bits that a tensor would have."""
    return (number + 2**63) % 2**64 - 2**63
