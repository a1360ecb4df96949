"""Saves a small training with PyTorch's own writer, on two ranks (`python save_dcp.py DIR`): what the tests import."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RANKS = 2


class Net(torch.nn.Module):
    """Rows that two ranks cannot share evenly, one row that only one can have, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 5)
        self.last = torch.nn.Linear(5, 1)
        self.register_buffer("seen", torch.tensor(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))  # type: ignore[no-any-return]


def state_of(net: Any, optimizer: Any) -> dict[str, Any]:
    """The state dict that is saved."""
    model, named = get_state_dict(net, optimizer)
    return {"model": model, "optim": named, "step": 2, "loss": 0.125, "betas": (0.9, [1, None])}


def trained(shard: bool) -> tuple[Any, Any]:
    """The model after two steps, the same on any number of ranks."""
    torch.manual_seed(11)
    net: Any = Net()
    if shard:
        fully_shard(net, mesh=init_device_mesh("cpu", (RANKS,)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.ones(2, 6)).sum().backward()
        optimizer.step()
    return net, optimizer


def _rank(rank: int, folder: str, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    dcp.save(state_of(*trained(shard=True)), checkpoint_id=folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        mp.spawn(_rank, args=(sys.argv[1], os.path.join(scratch, "store")), nprocs=RANKS)
