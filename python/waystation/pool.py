"""Memory of the host that takes a copy of a snapshot, so that training goes on while the copy is written.

It knows pages, offsets and who copies what; it must not know runs or files. The memory is taken once and every page of
it is touched then, so that staging is one copy at the memory's speed and never waits for the kernel to find pages. A
snapshot is laid one piece after another, each at a multiple of 64 bytes; there is room for one snapshot at a time.

The mapping is private and anonymous, asks for huge pages, stays out of core dumps, and is empty in a child of a fork: a
data loader's workers neither copy nor share it, and the parent's pages do not become copy-on-write under its feet.
"""

from __future__ import annotations

import contextlib
import copy
import mmap
import os
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from . import _core, arrays, dtypes
from .arrays import Bytes
from .errors import error, usage
from .records import Record
from .snapshot import Piece, Snapshot

__all__ = ["Pool"]

_ALIGN = 64  # a cache line: no two threads write to one
_TOUCH = 1 << 20  # bytes written at once to have their pages, from a source that stays in the cache
_WIPE_ON_FORK = 18  # MADV_WIPEONFORK, Linux 4.14, which the standard library does not name
_PLAIN = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


class Pool:
    """Prefaulted, page-aligned memory for one snapshot at a time.

    Making it takes about as long as writing to all of it once. With `grow` a snapshot that does not fit makes it
    larger, which takes as long again; without, that is an error of code `limit`. `threads` is how many copy (None: all
    cores).
    """

    def __init__(self, nbytes: int, *, grow: bool = False, threads: int | None = None) -> None:
        if nbytes < 0:
            raise usage(f"expected a pool of 0 bytes or more, found {nbytes}")
        self.grow = grow
        self.threads = threads
        self._memory = _map(nbytes)
        self._lain: Snapshot | None = None
        self._pinned: weakref.finalize[Any, Any] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the pool."""
        return self._memory.nbytes

    @property
    def held(self) -> bool:
        """Whether a snapshot lies in it that has not been released."""
        return self._lain is not None

    @staticmethod
    def required(snapshot: Snapshot) -> int:
        """Bytes of a pool that takes `snapshot`."""
        return sum(_aligned(piece.nbytes) for piece in snapshot.pieces)

    def stage(self, snapshot: Snapshot) -> Snapshot:
        """The same snapshot with data, records and attachments of its own, until `release()`.

        What of it lies contiguous in host memory is copied at once, on many threads; other arrays by their own library.
        Tensors of a device are copied after all work submitted to it is done, and have arrived when this returns.
        Attachments that are paths stay paths: their files must not change before the snapshot is written.

        Raises `limit` for a snapshot that does not fit; `bad-argument` while an earlier one is held, and for data of
        another length than their box.
        """
        if self.held:
            raise usage("the pool holds an earlier snapshot: release() it when that is written")
        sizes = [piece.nbytes for piece in snapshot.pieces]
        self._make_room(sum(map(_aligned, sizes)))
        lain = Snapshot(
            pieces=self._lay(snapshot.pieces, sizes),
            declared=list(snapshot.declared),
            aliases=list(snapshot.aliases),
            records=[Record(one.kind, one.name, copy.deepcopy(one.value), one.coordinate) for one in snapshot.records],
            omitted=list(snapshot.omitted),
            attachments={path: what if isinstance(what, os.PathLike) else bytes(what)
                         for path, what in snapshot.attachments.items()},
            inventory=None if snapshot.inventory is None else list(snapshot.inventory),
        )  # fmt: skip
        self._lain = lain
        return lain

    def release(self, staged: Snapshot | None = None) -> None:
        """Says that the staged snapshot is of no use any more; nothing where `staged` is another than it holds."""
        if staged is None or staged is self._lain:
            self._lain = None

    def _make_room(self, need: int) -> None:
        if need <= self.nbytes:
            return
        if not self.grow:
            message = f"expected a snapshot of at most {self.nbytes} bytes, the size of the pool, found one of {need}"
            remedy = f"Make the pool of {need} bytes or more, let it grow, or save without a pool."
            raise error("limit", message, remedy=remedy)
        self._unpin()
        self._memory = _map(0)  # the old one goes before the new one comes
        self._memory = _map(need)

    def _lay(self, pieces: Iterable[Piece], sizes: Iterable[int]) -> list[Piece]:
        """Copies the data of all pieces, and gives the pieces with the copies."""
        laid: list[Piece] = []
        arriving: list[Any] = []
        try:
            # The first are copied while the next are looked at.
            _core.copy_bytes(self._memory, self._sources(pieces, sizes, laid, arriving), threads=self.threads)
        finally:
            _wait_for(arriving)  # even where it fails: the memory is free then
        return laid

    def _sources(
        self, pieces: Iterable[Piece], sizes: Iterable[int], laid: list[Piece], arriving: list[Any]
    ) -> Iterator[tuple[Any, int, int]]:
        """What lies contiguous in host memory, its place, and its bytes. The rest is copied here: at the end, where it
        takes long, and what is still `arriving` then is waited for."""
        memory, at = self._memory, 0
        devices: dict[Any, list[tuple[Bytes, Any]]] = {}
        for piece, size in zip(pieces, sizes):
            data: Any = piece.data
            source, found = _at_hand(data)
            if found != size:
                raise usage(f"the box of {piece.dtype} {list(piece.extent)} has {size} bytes, its data {found}",
                            tensor=piece.key.text)
            place = memory[at:at + size]
            if source is not None:
                yield source, at, size
            elif arrays.is_torch(data):
                devices.setdefault(data.device, []).append((place, data))
            else:
                place.view(data.dtype.newbyteorder("<")).reshape(data.shape)[...] = data
            laid.append(piece.holding(place))
            at += _aligned(size)
        if any(device.type == "cuda" for device in devices):
            self._pin()
        _send(devices, arriving)

    def _pin(self) -> None:
        """Tells CUDA of the memory, which makes copies from devices several times as fast; without it they only are
        slower."""
        if self._pinned is None and self.nbytes:
            runtime = sys.modules["torch"].cuda.cudart()
            start = self._memory.ctypes.data
            if int(runtime.cudaHostRegister(start, self.nbytes, 0)) == 0:
                # Before the mapping goes; `_map` keeps that alive for as long as any array of it.
                self._pinned = weakref.finalize(self, _unregister, runtime, start, os.getpid())
                self._pinned.atexit = False

    def _unpin(self) -> None:
        if self._pinned is not None:
            self._pinned()
            self._pinned = None


def _at_hand(data: Any) -> tuple[Any, int]:
    """What `_core` copies of `data`, and its bytes; None of an array that is better copied by its own library, strided
    or from a device."""
    torch = sys.modules.get("torch")
    kind = type(data)
    if torch is not None and (kind is torch.Tensor or kind is torch.nn.Parameter):
        # The tensor itself, for its bytes as an array take ten times as long: there may be many thousands of them.
        if (data.is_cpu and data.layout is torch.strided and data.is_contiguous()
                and not (data.is_conj() or data.is_neg() or data.is_quantized)):  # fmt: skip
            return arrays.lender(data.dtype)(data), data.nbytes
    if torch is not None and isinstance(data, torch.Tensor):
        arrays.plain_tensor(data)
        return None, data.nbytes
    if isinstance(data, np.ndarray) and not data.flags.c_contiguous and dtypes.bits(arrays.dtype_of(data)) >= 8:
        return None, data.nbytes
    source = arrays.as_bytes(data)
    return source, source.nbytes


def _send(devices: dict[Any, list[tuple[Bytes, Any]]], arriving: list[Any]) -> None:
    """Copies tensors that do not lie contiguous in host memory. From the devices `arriving` they only have begun to."""
    if not devices:
        return
    torch = sys.modules["torch"]
    with torch.no_grad():
        for device, copies in devices.items():
            if device.type == "cuda":
                torch.cuda.synchronize(device)
                arriving.append(device)
            for place, tensor in copies:
                # As integers of the same size: not every type of PyTorch knows how to copy itself.
                plain = getattr(torch, _PLAIN[tensor.element_size()])
                source = tensor.detach().resolve_conj().resolve_neg().view(plain)
                into = torch.from_numpy(place).view(plain).view(source.shape)
                into.copy_(source, non_blocking=device.type == "cuda")


def _wait_for(devices: list[Any]) -> None:
    for device in devices:
        sys.modules["torch"].cuda.synchronize(device)


def _unregister(runtime: Any, start: int, process: int) -> None:
    if os.getpid() == process:  # CUDA does not live on in a child of a fork
        runtime.cudaHostUnregister(start)


def _aligned(nbytes: int) -> int:
    return (nbytes + _ALIGN - 1) & -_ALIGN


def _map(nbytes: int) -> Bytes:
    """Anonymous memory whose pages are all there; it lives as long as an array of it."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    try:
        mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as refused:
        message = f"expected to get {nbytes} bytes of memory for the pool, found {refused}"
        raise error("limit", message, remedy="Make the pool smaller, or save without one.") from refused
    for advice in (mmap.MADV_HUGEPAGE, mmap.MADV_DONTDUMP, _WIPE_ON_FORK):
        # Advice that a kernel does not know makes the pool slower, not wrong.
        with contextlib.suppress(OSError):
            mapping.madvise(advice)
    memory = np.frombuffer(mapping, np.uint8)
    zeros = np.zeros(min(_TOUCH, nbytes), np.uint8)
    # In pieces, so that several threads touch pages.
    _core.copy_bytes(memory, ((zeros[:nbytes - at], at, min(_TOUCH, nbytes - at)) for at in range(0, nbytes, _TOUCH)))
    return memory
