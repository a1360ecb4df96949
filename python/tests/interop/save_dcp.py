"""Saves a small training with PyTorch's own writer, on two ranks (`save`): what the tests import."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.checkpoint as dcp
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


def save(folder: str) -> None:
    """What each rank does."""
    dcp.save(state_of(*trained(shard=True)), checkpoint_id=folder)
