"""The processes of a PyTorch job, and where this one stands among them.

It knows `torch.distributed` and device meshes. What is sent through a group is not its business; nothing here is
pickled, so only bytes of a length travel. Every collective of this module is one of the whole group: all its ranks call
it, in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy
import torch
import torch.distributed as dist

from ..errors import usage
from ..group import Group, Solo

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["Place", "TorchGroup", "place"]


class TorchGroup:
    """A `waystation.Group` over `torch.distributed`: the default process group, or the one that is given.

    Bytes travel as tensors of the CPU where the group's backend takes them (gloo), else of the current device (NCCL).
    Raises `bad-argument` when `torch.distributed` was not initialised.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise usage("a TorchGroup needs torch.distributed.init_process_group() before it; one process needs no "
                        "group")
        self._group = process_group
        self.rank: int = dist.get_rank(process_group)
        self.size: int = dist.get_world_size(process_group)
        self._first = 0 if process_group is None else dist.get_global_rank(process_group, 0)
        backend = str(dist.get_backend_config(process_group))
        self._device = _device_of(backend)

    def __repr__(self) -> str:
        return f"TorchGroup(rank={self.rank}, size={self.size})"

    def broadcast(self, data: bytes | None) -> bytes:
        """What rank 0 gives, on all ranks: two collectives, one for the length."""
        if (data is None) != (self.rank != 0):
            raise usage(f"rank 0 gives the bytes of a broadcast and the others None; rank {self.rank} did otherwise")
        length = torch.tensor([0 if data is None else len(data)], dtype=torch.int64, device=self._device)
        dist.broadcast(length, self._first, group=self._group)
        count = int(length.item())
        sent = self._bytes(data, count)
        if count:
            dist.broadcast(sent, self._first, group=self._group)
        return data if data is not None else sent.cpu().numpy().tobytes()

    def all_gather(self, data: bytes) -> list[bytes]:
        """What every rank gives, in the order of the ranks: two collectives, one for the lengths."""
        length = torch.tensor([len(data)], dtype=torch.int64, device=self._device)
        lengths = [torch.zeros_like(length) for _ in range(self.size)]
        dist.all_gather(lengths, length, group=self._group)
        counts = [int(each.item()) for each in lengths]
        longest = max(counts)
        if longest == 0:
            return [b""] * self.size
        mine = self._bytes(data, longest)
        theirs = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(theirs, mine, group=self._group)
        return [each[:count].cpu().numpy().tobytes() for each, count in zip(theirs, counts)]

    def _bytes(self, data: bytes | None, length: int) -> torch.Tensor:
        """A byte tensor of `length` that begins with `data`."""
        padded = numpy.zeros(length, numpy.uint8)
        if data:
            padded[: len(data)] = numpy.frombuffer(data, numpy.uint8)
        return torch.from_numpy(padded).to(self._device)


def _device_of(backend: str) -> torch.device:
    """The device whose tensors a backend takes, from what `get_backend_config` says: "cpu:gloo,cuda:nccl"."""
    devices = [pair.partition(":")[0] for pair in backend.split(",")]
    if "cpu" in devices:
        return torch.device("cpu")
    device = torch.device(devices[0])
    module = torch.get_device_module(device)
    return torch.device(device.type, module.current_device())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands: the axes of the job with their sizes, its index along each, and the group of all."""

    topology: tuple[tuple[str, int], ...] = ()
    coordinate: tuple[tuple[str, int], ...] = ()
    group: Group = Solo()

    def __post_init__(self) -> None:
        axes = [axis for axis, _ in self.topology]
        if axes != [axis for axis, _ in self.coordinate]:
            raise usage(f"a coordinate has the axes of the topology, in its order; the topology is {self.topology}, "
                        f"the coordinate {self.coordinate}")
        for (axis, size), (_, index) in zip(self.topology, self.coordinate):
            if not 0 <= index < size:
                raise usage(f"axis {axis!r} has the places 0 to {size - 1}, and the coordinate says {index}")
        places = 1
        for _, size in self.topology:
            places *= size
        if places != self.group.size:
            raise usage(f"the topology {self.topology} has {places} places and the group {self.group.size} ranks; "
                        "name an axis for every dimension along which processes differ")

    def along(self, axes: tuple[str, ...] | None) -> tuple[tuple[str, int], ...]:
        """The coordinate restricted to some axes of the topology, in its order; None: to all."""
        if axes is None:
            return self.coordinate
        unknown = set(axes) - {axis for axis, _ in self.topology}
        if unknown:
            raise usage(f"expected axes of the topology {self.topology}, found {sorted(unknown)}")
        return tuple(at for at in self.coordinate if at[0] in axes)


def place(mesh: DeviceMesh | None = None) -> Place:
    """The place of this process in a mesh of all ranks, whose dimensions must have names.

    Without a mesh: one axis "dp" of the size of the default process group, or no axes in a job of one process.
    Raises `bad-argument` for a mesh that is not over all ranks or has no names.
    """
    if mesh is None:
        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
            return Place()
        everyone = TorchGroup()
        return Place((("dp", everyone.size),), (("dp", everyone.rank),), everyone)
    names, at = mesh.mesh_dim_names, mesh.get_coordinate()
    if names is None:
        raise usage("a mesh needs names of its dimensions: init_device_mesh(..., mesh_dim_names=(\"dp\", \"tp\"))")
    if at is None:
        raise usage("this process is not in the mesh; the mesh of a save has all ranks")
    topology = tuple(zip(names, (int(size) for size in mesh.mesh.shape)))
    group: Group = TorchGroup() if dist.get_world_size() > 1 else Solo()
    return Place(topology, tuple(zip(names, at)), group)
