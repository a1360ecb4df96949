"""Reading boxes of a checkpoint straight into live tensors, as one plan.

Nothing is cast: the bytes of a box go to the memory of the tensor that they are for, or, where that is not one run of
host memory, through a copy. Which box goes where was found and checked before; damage is found while reading, so after
an error here what was being loaded is not to be trained with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from .. import arrays
from ..errors import usage
from ..key import Key
from .boxes import boxes, plain
from .report import Line, Report

if TYPE_CHECKING:
    from .. import _core
    from ..checkpoint import Checkpoint

MEMORY = 1 << 30
"""Bytes of copies that one plan takes at a time; a single larger box is copied whole."""


@dataclass(frozen=True, slots=True)
class Read:
    """A box of a stored tensor and where it goes: `into` has its extent, any strides, on any device."""

    key: Key
    start: tuple[int, ...]
    extent: tuple[int, ...]
    into: torch.Tensor


@dataclass(slots=True)
class Pending:
    """What a restore found and will do, before it touches anything.

    `report` says how well each thing fits, `reads` which elements go where, `finish` what is done once they are there,
    in order. `orders` says for each optimizer, by `id`, which group of the checkpoint each of its groups is.
    """

    report: Report = field(default_factory=Report)
    reads: list[Read] = field(default_factory=list)
    finish: list[Callable[[], None]] = field(default_factory=list)
    orders: dict[int, list[int | None]] = field(default_factory=dict)

    def merge(self, other: Pending) -> None:
        """Takes all of `other` in, after what is here."""
        self.report.extend(other.report)
        self.reads += other.reads
        self.finish += other.finish
        self.orders |= other.orders

    def hold_shared(self, ckpt: Checkpoint) -> None:
        """Adds a finding for live tensors that share memory and of which the checkpoint has other elements: the last
        one read would be what all of them hold. Only the elements of such tensors are read here."""
        for reads in sharing(self.reads):
            for read in _unlike(ckpt, reads):
                others = ", ".join(sorted({other.key.name for other in reads} - {read.key.name}))
                line = Line(read.key.role, read.key.name, "none", f"shares memory with {others} here, and they differ "
                            "in the checkpoint", "memory")
                if line not in self.report.lines:
                    self.report.lines.append(line)

    def run(self, ckpt: Checkpoint, *, strict: bool = True, progress: _core.Progress | None = None,
            memory: int = MEMORY) -> list[Line]:
        """Refuses with `not-exact` where the report stands against it; else reads all, finishes and gives the lines."""
        self.hold_shared(ckpt)
        self.report.raise_if_bad(strict)
        load(ckpt, self.reads, progress=progress, memory=memory)
        for step in self.finish:
            step()
        return self.report.lines


def reads_of(key: Key, tensor: torch.Tensor) -> list[Read]:
    """The reads that fill the elements of `tensor` on this rank with those of the stored tensor of its shape and
    dtype."""
    plain(tensor, key)
    return [Read(key, box.start, box.extent, box.data) for box in boxes(tensor, key)]


def load(ckpt: Checkpoint, reads: Iterable[Read], *, progress: _core.Progress | None = None,
         memory: int = MEMORY) -> None:
    """Reads every box into its place: those that are one run of host memory in one plan with as many others as fit into
    `memory` bytes of copies, the rest in further plans. Boxes that several tensors of one memory share are read
    once."""
    source = ckpt._source
    memory = memory if source.memory_budget is None else min(memory, source.memory_budget)
    direct, copied = _sorted_out(list(reads))
    plans: list[list[tuple[Read, torch.Tensor]]] = [[]]
    held = 0
    for read in copied:
        size = _nbytes(read)
        if plans[-1] and held + size > memory:
            plans.append([])
            held = 0
        held += size
        plans[-1].append((read, read.into))
    total = sum(map(_nbytes, direct)) + sum(map(_nbytes, copied))
    done = 0
    for number, plan in enumerate(plans):
        through = [(read, torch.empty(into.shape, dtype=into.dtype)) for read, into in plan]
        wants = [_want(read, read.into) for read in (direct if number == 0 else ())]
        wants += [_want(read, copy) for read, copy in through]
        if wants:
            source.core.read(wants, progress=None if progress is None else _from(progress, done, total))
            done += sum(len(want[2]) for want in wants)
        for read, copy in through:
            _put(read, copy)


def sharing(reads: Iterable[Read]) -> list[list[Read]]:
    """Reads of several tensors whose places overlap, or lie between one another, by the memory that they share."""
    held = list(reads)
    spans = sorted(((str(read.into.device), *_span(read.into)), number) for number, read in enumerate(held))
    runs: list[list[Read]] = []
    device, end = "", 0
    for (where, first, last), number in spans:
        if where != device or first >= end:
            runs.append([])
            end = last
        device, end = where, max(end, last)
        runs[-1].append(held[number])
    # Boxes of one tensor do not overlap.
    return [run for run in runs if len({read.key for read in run}) > 1]


def _unlike(ckpt: Checkpoint, reads: list[Read]) -> list[Read]:
    """Which of reads of one memory would not leave there what they read: all are put into a copy of it, in order."""
    low = min(_span(read.into)[0] for read in reads)
    memory = torch.zeros(max(_span(read.into)[1] for read in reads) - low, dtype=torch.uint8)
    copies = [torch.empty(read.into.shape, dtype=read.into.dtype) for read in reads]
    load(ckpt, [Read(read.key, read.start, read.extent, copy) for read, copy in zip(reads, copies)])
    placed: list[tuple[Read, torch.Tensor, torch.Tensor]] = []
    for read, copy in zip(reads, copies):
        size, (first, _) = read.into.element_size(), _span(read.into)
        sizes, strides = list(read.into.shape), [stride * size for stride in read.into.stride()]
        stored = copy.reshape(-1).view(torch.uint8).view(*sizes, size)
        for dim, stride in enumerate(strides):
            if stride == 0:  # expanded: one place, of which `load` sees that its elements are equal
                sizes[dim], stored = 1, stored.narrow(dim, 0, 1)
        there = memory.as_strided((*sizes, size), (*strides, 1), first - low)
        there.copy_(stored)
        placed.append((read, there, stored))
    return [read for read, there, stored in placed if not torch.equal(there, stored)]


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First address of the elements of a tensor, and that after the last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _want(read: Read, into: torch.Tensor) -> tuple[Key, tuple[Sequence[int], Sequence[int]], arrays.Bytes]:
    return read.key, (read.start, read.extent), arrays.writable_bytes(into)


def _put(read: Read, copy: torch.Tensor) -> None:
    into = read.into
    with torch.no_grad():
        # Elements of an expanded tensor lie in one place: it is written once, and all must be equal.
        for dim, (stride, size) in enumerate(zip(into.stride(), into.shape)):
            if stride == 0 and size > 1:
                first = copy.narrow(dim, 0, 1)
                if not _same_bytes(copy, first.expand_as(copy)):
                    raise usage(f"the live tensor is expanded along axis {dim}, and the stored elements differ "
                                "along it",
                                tensor=read.key.text)
                into, copy = into.narrow(dim, 0, 1), first
        into.copy_(copy)


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((arrays.as_bytes(a) == arrays.as_bytes(b)).all())


def _sorted_out(reads: list[Read]) -> tuple[list[Read], list[Read]]:
    """Those that are read straight into their memory, which do not overlap, and those that go through a copy."""
    direct: list[Read] = []
    copied: list[Read] = []
    seen: set[tuple[object, ...]] = set()
    spans: list[tuple[int, int, Read]] = []
    for read in reads:
        into = read.into
        same = (read.key, read.start, read.extent, into.data_ptr(), into.stride(), into.device)
        if same in seen:
            continue
        seen.add(same)
        if arrays.is_contiguous(into):
            spans.append((into.data_ptr(), into.data_ptr() + _nbytes(read), read))
        else:
            copied.append(read)
    end = 0
    for first, last, read in sorted(spans, key=lambda span: span[:2]):
        if first < end:
            copied.append(read)
        else:
            direct.append(read)
        end = max(end, last)
    return direct, copied


def _nbytes(read: Read) -> int:
    return read.into.numel() * read.into.element_size()


def _from(progress: _core.Progress, before: int, total: int) -> _core.Progress:
    return lambda what, done, _: progress(what, before + done, total)
