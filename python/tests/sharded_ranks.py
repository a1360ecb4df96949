"""What each rank does that trains a model sharded by FSDP2 and tensor parallelism: processes import it by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch_states import joined, same

import waystation
from waystation import _core
from waystation.snapshot import write
from waystation.torch import model as models, optimizer as optimizers, optimizer_load as loads
from waystation.torch.boxes import Ranks


class Net(nn.Module):
    """Uneven rows, one row only (empty on some ranks), a tied weight and a buffer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(7, 6)
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)
        self.gate = nn.Linear(6, 1)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("shift", torch.arange(6.0) + seed)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        hidden = hidden + self.down(self.up(hidden).tanh()) * self.gate(hidden).sigmoid() + 0.01 * self.shift
        return self.head(hidden)


def build(seed: int, mesh: DeviceMesh | None) -> tuple[nn.Module, dict[str, torch.optim.Optimizer]]:
    model = Net(seed)
    if mesh is not None:
        if mesh.ndim == 2:
            parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    return model, {"adam": torch.optim.AdamW(matrices, lr=0.05), "nadam": torch.optim.NAdam(others, lr=0.05)}


def train(model: nn.Module, made: dict[str, torch.optim.Optimizer], first: int, steps: int) -> None:
    for number in range(first, first + steps):
        ids = torch.randint(0, 7, (4,), generator=torch.Generator().manual_seed(number))
        model(ids).log_softmax(-1)[:, 0].mean().backward()
        for optimizer in made.values():
            optimizer.step()
            optimizer.zero_grad()


def restore(at: str, model: nn.Module, made: dict[str, torch.optim.Optimizer]) -> None:
    ckpt = waystation.open(at)
    assert models.restore(ckpt, model).ok
    for name, optimizer in made.items():
        assert loads.restore(ckpt, optimizer, model, name=name).ok


def whole(model: nn.Module, made: dict[str, torch.optim.Optimizer], *, local: bool = False) -> dict[str, Any]:
    """All state by name: of this rank, or gathered from all."""
    def gathered(value: Any) -> Any:
        if isinstance(value, DTensor):
            value = value.to_local() if local else value.full_tensor()
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    state = {name: gathered(tensor) for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for owner, optimizer in made.items():
            for slot, value in optimizer.state.get(parameter, {}).items():
                state[f"{owner} {name} {slot}"] = gathered(value)
    return state


def join(path: str, rank: int, size: int) -> DeviceMesh:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}/rendezvous{size}", rank=rank, world_size=size)
    if size == 4:
        return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))


def save(path: str, rank: int, size: int, model: nn.Module, made: dict[str, torch.optim.Optimizer]) -> str:
    ranks = Ranks(rank, size)
    snapshot = joined(models.capture(model, ranks=ranks),
                      *(optimizers.capture(each, model, name=name, ranks=ranks) for name, each in made.items()))
    run = Path(path) / "run"
    if rank == 0:
        run.mkdir()
        plan = _core.SessionPlan.next_in(str(run), "test", writers=size)
        _core.make_attempt(str(run), plan, 2, 0)
        (Path(path) / "plan").write_text(plan.to_json())
    dist.barrier()
    plan = _core.SessionPlan.from_json((Path(path) / "plan").read_text())
    at = str(run / plan.attempt_name(2, 0))
    session = _core.Session.begin(at, plan, 2, 0, rank)
    placed = snapshot.declare(session)
    writing = session.lay_out()
    write(writing, placed)
    writing.finish()
    dist.barrier()
    if rank == 0:
        _core.commit(at, run_path=str(run), name=plan.attempt_name(2, 0))
        assert not json.loads(_core.verify_json(at)).get("findings")
    dist.barrier()
    return at


def on_four(rank: int, path: str) -> None:
    mesh = join(path, rank, 4)
    model, made = build(0, mesh)
    train(model, made, 0, 2)
    at = save(path, rank, 4, model, made)
    saved = whole(model, made)
    if rank == 0:
        torch.save((at, saved), f"{path}/saved")
    train(model, made, 2, 2)
    fresh, again = build(1, mesh)
    restore(at, fresh, again)
    same(whole(fresh, again), saved)
    train(fresh, again, 2, 2)
    same(whole(fresh, again, local=True), whole(model, made, local=True))
    dist.destroy_process_group()


def on_two(rank: int, path: str) -> None:
    mesh = join(path, rank, 2)
    at, saved = torch.load(f"{path}/saved")
    model, made = build(2, mesh)
    train(model, made, 5, 1)  # state that is there before gives way
    restore(at, model, made)
    same(whole(model, made), saved)
    train(model, made, 2, 1)
    dist.destroy_process_group()
