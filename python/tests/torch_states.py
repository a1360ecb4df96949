"""What tests of PyTorch's state share: saving snapshots of one or several ranks, comparing to the bit, small models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import waystation
from waystation import _core
from waystation.key import Key
from waystation.snapshot import Snapshot, write


def save(path: Path, *snapshots: Snapshot, step: int = 1,
         topology: Sequence[tuple[str, int]] = ()) -> waystation.Checkpoint:
    """One checkpoint of what each rank has, verified, and open."""
    run = path / "run"
    run.mkdir(exist_ok=True)
    plan = _core.SessionPlan.next_in(str(run), "test", writers=len(snapshots), topology=topology)
    name = _core.make_attempt(str(run), plan, step, 0)
    at = str(run / name)
    for writer, snapshot in enumerate(snapshots):
        session = _core.Session.begin(at, plan, step, 0, writer)
        placed = snapshot.declare(session)
        writing = session.lay_out()
        write(writing, placed)
        writing.finish()
    _core.commit(at, run_path=str(run), name=name)
    verified = json.loads(_core.verify_json(at))
    assert not verified.get("findings"), verified
    return waystation.open(at)


def joined(*snapshots: Snapshot) -> Snapshot:
    """All parts of one rank's snapshot."""
    whole = Snapshot()
    for snapshot in snapshots:
        whole.merge(snapshot)
    return whole


def bits(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Type, shape, device and bytes of a tensor."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return str(tensor.dtype), tuple(tensor.shape), str(tensor.device), plain.reshape(-1).view(torch.uint8).tolist()


def same(a: Any, b: Any, at: str = "") -> None:
    """Asserts that two nests of state are equal in types, order of lists and bits."""
    assert type(a) is type(b), (at, type(a), type(b))
    if isinstance(a, torch.Tensor):
        assert bits(a) == bits(b), at
    elif isinstance(a, dict):
        assert set(a) == set(b), (at, set(a) ^ set(b))
        for key in a:
            same(a[key], b[key], f"{at}[{key!r}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), at
        for number, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{at}[{number}]")
    elif isinstance(a, float):
        assert a.hex() == b.hex(), (at, a, b)
    else:
        assert a == b, (at, a, b)


def param_keys(snapshot: Snapshot) -> list[Key]:
    """The identities of a snapshot's pieces."""
    return [piece.key for piece in snapshot.pieces]


class Net(nn.Module):
    """A model with a tied weight, a buffer, a batch norm, a frozen layer and one that gets no gradient."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(11, 6)
        self.norm = nn.BatchNorm1d(6)
        self.middle = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Sequential(nn.Linear(5, 6, bias=False)))
        self.unused = nn.Linear(2, 3)
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("seen", torch.tensor(3))
        self.register_buffer("cache", torch.ones(2), persistent=False)
        self.to(dtype)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.frozen(self.middle(self.norm(self.embed(ids)))))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    """One training step whose data depend on `number` alone."""
    ids = torch.randint(0, 11, (8,), generator=torch.Generator().manual_seed(number))

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        out = model(ids).float().log_softmax(-1).gather(1, ids[:, None].roll(1, 0)).mean().neg()
        out.backward()
        return out

    if isinstance(optimizer, torch.optim.LBFGS):
        optimizer.step(loss)
    else:
        loss()
        optimizer.step()
