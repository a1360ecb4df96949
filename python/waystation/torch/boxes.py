"""Which boxes of a tensor lie on this rank, and which rank writes them: plain tensors and `DTensor`s.

A pure function of a tensor's placements and mesh: nothing is sent, and all ranks find the same writer for the same
elements. It knows neither names of parameters nor checkpoints.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import torch

from .. import arrays, dtypes
from ..errors import UsageError, usage
from ..key import Key
from ..snapshot import Declared, Piece, owner_rank

Scope = tuple[tuple[str, int], ...]
Run = tuple[int, int]
"""First index and length, along one axis."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a job that hold a model, seen from one of them.

    `rank` and `size` are those of the default process group, as device meshes have them. `holders` are the ranks that
    hold the very parameters of this model, None for all: a stage of a pipeline says which ranks have that stage.
    `scope` gives for the name of a parameter or buffer the coordinate that tells it from those of that name on other
    ranks, and `()` for all that ranks share. `first` names those of which the lowest rank's is meant, and the others
    may hold something else. `held` takes what is to be compared between ranks before one of them writes it for all.
    """

    rank: int = 0
    size: int = 1
    holders: tuple[int, ...] | None = None
    scope: Callable[[str], Scope] | None = None
    first: frozenset[str] = frozenset()
    held: list[Held] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise usage(f"rank {self.rank} of {self.size} ranks: ranks count from 0")
        holders = self.holders
        if holders is not None and (list(holders) != sorted(set(holders)) or self.rank not in holders):
            raise usage(f"holders are ascending ranks with this one, {self.rank}, among them, not {self.holders}")

    @property
    def holding(self) -> Sequence[int]:
        """The ranks that hold this model, ascending."""
        return range(self.size) if self.holders is None else self.holders

    def scope_of(self, name: str) -> Scope:
        """The scope of the tensors of this name."""
        return () if self.scope is None else self.scope(name)

    def share(self, holding: Sequence[int], found: Sequence[Piece], declared: Declared,
              ) -> tuple[list[Piece], list[Declared]]:
        """What this rank writes and declares of the boxes `found` of one tensor, which the ranks `holding` have too.

        One of these writes, `owner_rank`. Whether all of them have it is found out by comparing; where that is not
        done, each of them declares it, so that elements which their owner has not are missed at the commit.
        """
        first = declared.key.name in self.first
        if len(holding) > 1 and self.held is not None and not first:
            self.held.extend(Held(piece, tuple(holding)) for piece in found)
        if self.rank == (holding[0] if first else owner_rank(declared.key, holding)):
            return list(found), [] if found else [declared]
        compared = self.held is not None and not first
        return [], [declared] if not compared or holding[0] == self.rank else []


@dataclass(frozen=True, slots=True)
class Held:
    """A box that several ranks ought to have alike, as this one has it; `holders` are these ranks, ascending."""

    piece: Piece
    holders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a tensor's global shape, in elements, and its elements on this rank: a view, of any strides."""

    start: tuple[int, ...]
    extent: tuple[int, ...]
    data: torch.Tensor


# Of subclasses, those that are known to be no more than their elements. Any other may keep scales, codes or hooks
# beside them, and would be lost without a word.
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)})


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether this is a `DTensor`."""
    if type(tensor) in _PLAIN:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def plain(tensor: torch.Tensor, what: object) -> None:
    """Refuses what has no elements of its own here, or holds more than its elements; `what` names the tensor."""
    if torch.nn.parameter.is_lazy(tensor):
        raise usage(f"{what} is not initialised: run the model once, or make its shapes known, before saving or "
                    "loading")
    if type(tensor) not in _PLAIN and not is_distributed(tensor):
        kind = type(tensor)
        raise usage(f"{what} is a {kind.__module__}.{kind.__qualname__}, a tensor that may hold more than its elements",
                    remedy="Dequantise or unwrap it, or save its parts as tensors of their own.")
    try:
        arrays.plain_tensor(tensor if type(tensor) in _PLAIN else local(tensor))
    except UsageError as why:
        raise usage(f"{what}: {why.message}") from None


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What of a tensor lies on this rank, detached; it shares the tensor's memory."""
    if not is_distributed(tensor):
        return tensor.detach()
    with torch.no_grad():
        return tensor.to_local().detach()  # type: ignore[attr-defined, no-any-return]


def global_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The global shape, in elements of the registry's type."""
    return tuple(tensor.shape) if not _pairs(tensor.dtype) or is_distributed(tensor) else arrays.shape_of(tensor)


def boxes(tensor: torch.Tensor, what: object = "a tensor") -> list[Box]:
    """The boxes of `tensor` on this rank, ascending; none where it holds no element. Raises `bad-argument` for a
    placement that is no share of the elements (`Partial`) or that is unknown."""
    here = local(tensor)
    if not is_distributed(tensor):
        shape = global_shape(here)
        return [] if 0 in shape else [Box((0,) * len(shape), shape, here)]
    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    at = mesh.get_coordinate()
    if at is None:
        return []
    placements: Sequence[Any] = tensor.placements  # type: ignore[attr-defined]
    axes = runs(global_shape(tensor), tuple(mesh.shape), at, placements, what)
    extents = tuple(sum(length for _, length in axis) for axis in axes)
    if extents != tuple(here.shape):
        raise usage(f"{what}: its placements {tuple(placements)} give this rank {extents}, and it holds "
                    f"{tuple(here.shape)}")
    return [] if 0 in extents else list(_cut(here, axes))


def runs(shape: Sequence[int], mesh: Sequence[int], at: Sequence[int], placements: Sequence[Any],
         what: object = "a tensor") -> list[list[Run]]:
    """For each axis of `shape` the runs of indices that the rank at `at` of a mesh holds, in the order in which it
    does."""
    from torch.distributed.tensor import Replicate, Shard

    axes: list[list[Run]] = [[(0, size)] for size in shape]
    for dim, placement in enumerate(placements):
        if isinstance(placement, Replicate):
            continue
        # A strided shard was a subclass of Shard in some versions of PyTorch and is none in others.
        factor = getattr(placement, "split_factor", None)
        if factor is None and type(placement) is not Shard:
            raise usage(f"{what} has the placement {placement}, which is not a share of its elements",
                        remedy="Redistribute it to Shard or Replicate placements before saving.")
        axes[placement.dim] = _share(axes[placement.dim], mesh[dim], at[dim], 1 if factor is None else int(factor))
    return [_joined(axis) for axis in axes]


def pieces(key: Key, tensor: torch.Tensor, ranks: Ranks, *,
           axes: tuple[int | None, ...] | None = None) -> tuple[list[Piece], list[Declared]]:
    """What this rank writes of a tensor, and whether it declares it (`Ranks.share`)."""
    plain(tensor, key)
    shape, dtype = global_shape(tensor), dtypes.of_torch(tensor.dtype)
    if 0 in shape:
        return [], [Declared(key, dtype, shape, axes)]
    holding = [ranks.rank] if key.scope else replicas(tensor, ranks, key)
    if not holding:
        return [], []
    if type(tensor) in _PLAIN:
        found = [Piece.box(key, dtype, shape, (0,) * len(shape), shape, tensor.detach(), axes)]
    else:
        found = [Piece.box(key, dtype, shape, box.start, box.extent, box.data, axes) for box in boxes(tensor, key)]
    if found and len(holding) == 1 and holding[0] == ranks.rank:
        return found, []  # nobody else has it
    return ranks.share(holding, found, Declared(key, dtype, shape, axes))


def replicas(tensor: torch.Tensor, ranks: Ranks, what: object = "a tensor") -> list[int]:
    """The ranks that hold the elements that this one holds, ascending; none where this one is not of the tensor's mesh.

    A mesh that is a slice of a larger one says nothing of the other axes of that: the tensor is the same along them,
    among `ranks.holders`. Raises `bad-argument` where the mesh does not reach all of these.
    """
    if not is_distributed(tensor):
        return list(ranks.holding)
    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    at = mesh.get_coordinate()
    if at is None:
        return []
    placements: Sequence[Any] = tensor.placements  # type: ignore[attr-defined]
    sharded = tuple(type(placement).__name__ != "Replicate" for placement in placements)
    try:
        return list(_same(mesh, tuple(at), sharded, ranks.holding))
    except UsageError as why:
        raise usage(f"{what} is on {why.message}", remedy=why.remedy) from None


@lru_cache(maxsize=256)  # one mesh and few placements serve all tensors of a model, on meshes of thousands of ranks
def _same(mesh: Any, at: tuple[int, ...], sharded: tuple[bool, ...], holding: Sequence[int]) -> tuple[int, ...]:
    whole: torch.Tensor = (mesh._get_root_mesh() if hasattr(mesh, "_get_root_mesh") else mesh).mesh
    beyond = set(holding) - set(whole.flatten().tolist())
    if beyond:
        raise usage(f"a mesh of the ranks {whole.flatten().tolist()}, and {sorted(beyond)} hold the model too",
                    remedy="Slice all meshes from one over all ranks, or say in Ranks.holders which hold this model.")
    same = mesh.mesh
    for dim in reversed(range(same.ndim)):
        if sharded[dim]:
            same = same.select(dim, at[dim])
    # Along the axes of the whole mesh in which this slice does not extend, each place has the same.
    where = {rank: place for place, rank in zip(product(*map(range, whole.shape)), whole.flatten().tolist())}
    places = [where[rank] for rank in mesh.mesh.flatten().tolist()]
    spanned = [len({place[axis] for place in places}) for axis in range(whole.ndim)]
    if prod(spanned) != len(places) or any(n not in (1, size) for n, size in zip(spanned, whole.shape)):
        raise usage(f"a mesh that is no slice of whole axes of its root mesh {tuple(whole.shape)}")
    found: set[int] = set()
    for rank in same.flatten().tolist():
        cut = tuple(slice(None) if n == 1 else index for n, index in zip(spanned, where[rank]))
        found.update(whole[cut].flatten().tolist())
    return tuple(sorted(found & set(holding)))


def _share(runs: list[Run], count: int, index: int, factor: int) -> list[Run]:
    """Of indices in `factor` parts, of which each is cut in `count`, the pieces number `index`: as `torch.chunk`
    cuts."""
    size = sum(length for _, length in runs)
    part = -(-size // factor)
    taken: list[Run] = []
    for number in range(factor):
        first, end = min(part * number, size), min(part * (number + 1), size)
        step = -(-(end - first) // count)
        low, high = min(first + step * index, end), min(first + step * (index + 1), end)
        taken += _taken(runs, low, high)
    return taken


def _taken(runs: list[Run], low: int, high: int) -> Iterator[Run]:
    """The elements `low` to `high` of all runs one after the other."""
    at = 0
    for start, length in runs:
        first, end = max(low, at), min(high, at + length)
        if first < end:
            yield start + first - at, end - first
        at += length


def _joined(runs: list[Run]) -> list[Run]:
    joined: list[Run] = []
    for start, length in runs:
        if joined and joined[-1][0] + joined[-1][1] == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + length)
        else:
            joined.append((start, length))
    return joined


def _cut(here: torch.Tensor, axes: list[list[Run]]) -> Iterator[Box]:
    """The boxes of all combinations of runs, with their views of the local tensor."""
    placed: list[list[tuple[Run, int]]] = []
    for axis in axes:
        at, each = 0, []
        for run in axis:
            each.append((run, at))
            at += run[1]
        placed.append(each)
    for combination in product(*placed):
        view = here
        for dim, ((_, length), at) in enumerate(combination):
            if length != view.shape[dim]:
                view = view.narrow(dim, at, length)
        yield Box(tuple(run[0] for run, _ in combination), tuple(run[1] for run, _ in combination), view)


@lru_cache(maxsize=None)
def _pairs(dtype: torch.dtype) -> bool:
    """Whether an element of PyTorch's type is several of the registry's."""
    return dtypes.per_element(dtypes.of_torch(dtype)) > 1
