"""A storage reader of DCP that reads checkpoints of Waystation, whoever wrote them.

It knows plans, planners and tensors of PyTorch; what stands behind a key is `index`'s. Every byte that is read is
verified, and all that a rank needs is read as one plan.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.distributed.tensor import DTensor
from torch.futures import Future

from .. import _core, arrays, dtypes, tree
from .._opening import open_core
from ..errors import error, usage
from ..key import Key
from .boxes import check_box
from .index import Index, Seat, Source, Step, Value, key_of

_MEMORY = 1 << 30
"""Bytes of tensors that are read apart from where they go, at a time."""

_Item = TypeVar("_Item")


class Reader(StorageReader):
    """Reads a checkpoint into a state dict: `dcp.load(state_dict, storage_reader=Reader(path))`.

    `path` is the directory of a checkpoint; `waystation.latest(run)` says which of a run to take. It is opened at once,
    so what is wrong with it is raised here and not within DCP. `place` is this rank's coordinate in the topology with
    which the checkpoint was saved, for what each rank saved for itself; it is known by itself where as many ranks load
    as saved. `cast=True` allows tensors of the state dict to have another dtype than the checkpoint's, as DCP does
    unasked; without it they are refused, since moments or weights that were rounded make another run. `verify=False`
    does without checking what is read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        place: Any = None,
        cast: bool = False,
        verify: bool = True,
        threads: int | None = None,
        progress: _core.Progress | None = None,
    ) -> None:
        super().__init__()
        self._verify, self._threads, self._progress, self._cast = verify, threads, progress, cast
        self._seat = Seat(place=None if place is None else tuple((str(axis), int(index)) for axis, index in place))
        self._open(path)

    @property
    def path(self) -> str:
        """The directory of the checkpoint."""
        return self._checkpoint.path

    @property
    def checkpoint_id(self) -> str:
        """The same as `path`, as DCP calls it."""
        return self._checkpoint.path

    @property
    def step(self) -> int:
        """Optimizer steps completed when it was saved."""
        return self._checkpoint.step

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._open(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return os.path.isfile(os.path.join(checkpoint_id, "waystation.commit"))

    def read_metadata(self) -> Metadata:
        initialized = dist.is_available() and dist.is_initialized()
        self._sit(dist.get_rank() if initialized else 0)
        meta = StorageMeta(checkpoint_id=self.path, load_id=self._checkpoint.digest)
        found = _Lazy(self._index, lambda index, key: _metadata(key, index.find(key)))
        # Typed as a dict by DCP, and used as a mapping.
        return Metadata(found, _Lazy(self._index, Index.path), None, meta)  # type: ignore[arg-type]

    # DCP gives the rank to a method that has a parameter of just this name.
    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("rank", self._seat.rank) != self._seat.rank:
            self._sit(kwargs["rank"])

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        reading = _Reading(self._checkpoint, self._index[0], planner, self._cast, self._progress)
        for item in plan.items:
            reading.take(item)
        reading.flush()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _open(self, path: str | os.PathLike[str]) -> None:
        self._checkpoint = open_core(path, verify_reads=self._verify, threads=self._threads)
        self._index = [Index(self._checkpoint, self._seat)]

    def _sit(self, rank: int) -> None:
        size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        self._seat = replace(self._seat, rank=rank, size=max(size, rank + 1))
        # In place: the metadata that DCP holds already looks here.
        self._index[:] = [Index(self._checkpoint, self._seat)]


class _Lazy(Mapping[str, _Item]):
    """A mapping over all keys of a checkpoint that looks up what is asked for."""

    def __init__(self, index: list[Index], make: Callable[[Index, str], _Item | None]) -> None:
        self._index, self._make = index, make
        self._of, self._made = index[0], dict[str, "_Item | None"]()

    def __getitem__(self, key: str) -> _Item:
        if self._of is not self._index[0]:
            self._of, self._made = self._index[0], {}
        if key not in self._made:
            self._made[key] = self._make(self._of, key)
        found = self._made[key]
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        return self._index[0].keys()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Reading:
    """Reads for one rank: what fits where it goes is read there, the rest apart and copied."""

    def __init__(
        self,
        checkpoint: _core.Checkpoint,
        index: Index,
        planner: LoadPlanner,
        cast: bool,
        progress: _core.Progress | None,
    ) -> None:
        self._checkpoint, self._index, self._planner = checkpoint, index, planner
        self._cast, self._progress = cast, progress
        self._wants: list[tuple[Key, tuple[tuple[int, ...], tuple[int, ...]], Any]] = []
        self._after: list[tuple[ReadItem, torch.Tensor, torch.Tensor | None]] = []
        self._apart = 0

    def take(self, item: ReadItem) -> None:
        key = item.storage_index.fqn
        source = self._index.find(key)
        if item.type == LoadItemType.BYTE_IO:
            if not isinstance(source, Value):
                raise usage(f"{key!r} is a tensor in the checkpoint, and was asked for as a value")
            if isinstance(self._whole(item), torch.Tensor) and not self._cast:
                # DCP would put the value in its place, and who holds the tensor would never see it.
                raise error(
                    "not-exact",
                    f"{key!r} is a value in the checkpoint and a tensor in the state dict",
                    remedy="Make it a value in the state dict, or say Reader(path, cast=True) to have the tensor "
                    "replaced in it.",
                )
            # DCP unpickles what it is given; it is given a stream that is made here and now.
            stream = io.BytesIO()
            torch.save(tree.from_tree(source.tree, lambda of: _Stored(self._checkpoint, of)), stream)
            stream.seek(0)
            self._planner.load_bytes(item, stream)
            return
        self._check_box(item)
        target = self._planner.resolve_tensor(item).detach()
        if isinstance(source, Step):
            count = torch.tensor(source.count, dtype=dtypes.torch_dtype(source.stored_as.removesuffix("[]")))
            self._check(key, count.dtype, target)
            target.copy_(count)
            self._planner.commit_tensor(item, target)
            return
        if source is None or isinstance(source, Value):
            raise usage(f"{key!r} is no tensor in the checkpoint")
        stored = dtypes.torch_dtype(source.dtype)
        self._check(key, stored, target)
        if tuple(target.shape) != tuple(item.lengths):
            raise usage(
                f"{key!r}: the planner asks for a box of {list(item.lengths)} and gives room for {list(target.shape)}"
            )
        pair = dtypes.per_element(source.dtype)
        region = (_scaled(item.storage_offsets, pair), _scaled(item.lengths, pair))
        apart = None
        if stored != target.dtype or not arrays.is_contiguous(target):
            apart = torch.empty(tuple(item.lengths), dtype=stored)
            if self._apart and self._apart + apart.nbytes > _MEMORY:
                self.flush()
            self._apart += apart.nbytes
        self._wants.append((key_of(source), region, arrays.writable_bytes(target if apart is None else apart)))
        self._after.append((item, target, apart))

    def flush(self) -> None:
        """Reads what was taken."""
        if self._wants:
            self._checkpoint.read(self._wants, progress=self._progress)
        for item, target, apart in self._after:
            if apart is not None:
                target.copy_(apart)
            self._planner.commit_tensor(item, target)
        self._wants, self._after, self._apart = [], [], 0

    def _whole(self, item: ReadItem) -> object:
        return getattr(self._planner, "state_dict", {}).get(item.dest_index.fqn)

    def _check_box(self, item: ReadItem) -> None:
        whole = self._whole(item)
        if isinstance(whole, DTensor):
            check_box(whole, item.dest_index.offset or (), whole.to_local().shape, repr(item.dest_index.fqn))

    def _check(self, key: str, stored: torch.dtype, target: torch.Tensor) -> None:
        if stored != target.dtype and not self._cast:
            raise error(
                "not-exact",
                f"{key!r} is {stored} in the checkpoint and {target.dtype} in the state dict",
                remedy="Make the state dict in the checkpoint's dtype, or say Reader(path, cast=True) to convert.",
            )


class _Stored:
    """A tensor that a value names."""

    def __init__(self, checkpoint: _core.Checkpoint, key: Key) -> None:
        entry = checkpoint.find(key)
        if entry is None:
            raise error("dangling", f"a value names the tensor {key.text}, which is not there")
        self._entry = entry
        self._bytes = np.empty(entry.nbytes, np.uint8)
        if entry.nbytes:
            checkpoint.read([(key, None, self._bytes)])

    def raw(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return self._bytes

    def numpy(self) -> np.ndarray[Any, Any]:
        if dtypes.bits(self._entry.dtype) < 8:
            count = int(np.prod(self._entry.shape))
            return dtypes.unpack(self._entry.dtype, self._bytes, count).reshape(self._entry.shape)
        return self._bytes.view(dtypes.numpy_dtype(self._entry.dtype)).reshape(self._entry.shape)

    def torch(self) -> torch.Tensor:
        pair = dtypes.per_element(self._entry.dtype)
        shape = self._entry.shape if pair == 1 else (*self._entry.shape[:-1], self._entry.shape[-1] // pair)
        return torch.from_numpy(self._bytes).view(dtypes.torch_dtype(self._entry.dtype)).reshape(shape)


def _metadata(key: str, source: Source | None) -> STORAGE_TYPES | None:
    if source is None:
        return None
    if isinstance(source, Value):
        return BytesStorageMetadata()
    if isinstance(source, Step):
        size, dtype = torch.Size(()), source.stored_as.removesuffix("[]")
    else:
        pair = dtypes.per_element(source.dtype)
        size, dtype = (
            torch.Size(source.shape if pair == 1 else (*source.shape[:-1], source.shape[-1] // pair)),
            source.dtype,
        )
    # One chunk, whatever the files have: which bytes a region is made of, the native half knows best.
    whole = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
    return TensorStorageMetadata(TensorProperties(dtypes.torch_dtype(dtype)), size, [whole])


def _scaled(numbers: torch.Size, scale: int) -> tuple[int, ...]:
    return tuple(numbers) if scale == 1 or not numbers else (*numbers[:-1], numbers[-1] * scale)
