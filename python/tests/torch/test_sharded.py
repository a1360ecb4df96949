"""Models and optimizers sharded by FSDP2 and tensor parallelism: saved on four ranks, resumed on four, two and one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
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


class _Net(nn.Module):
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


def _made(seed: int, mesh: DeviceMesh | None) -> tuple[nn.Module, dict[str, torch.optim.Optimizer]]:
    model = _Net(seed)
    if mesh is not None:
        if mesh.ndim == 2:
            parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    return model, {"adam": torch.optim.AdamW(matrices, lr=0.05), "nadam": torch.optim.NAdam(others, lr=0.05)}


def _train(model: nn.Module, made: dict[str, torch.optim.Optimizer], first: int, steps: int) -> None:
    for number in range(first, first + steps):
        ids = torch.randint(0, 7, (4,), generator=torch.Generator().manual_seed(number))
        model(ids).log_softmax(-1)[:, 0].mean().backward()
        for optimizer in made.values():
            optimizer.step()
            optimizer.zero_grad()


def _restore(at: str, model: nn.Module, made: dict[str, torch.optim.Optimizer]) -> None:
    ckpt = waystation.open(at)
    assert models.restore(ckpt, model).ok
    for name, optimizer in made.items():
        assert loads.restore(ckpt, optimizer, model, name=name).ok


def _whole(model: nn.Module, made: dict[str, torch.optim.Optimizer], *, local: bool = False) -> dict[str, Any]:
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


def _ranks(path: str, rank: int, size: int) -> DeviceMesh:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}/rendezvous{size}", rank=rank, world_size=size)
    if size == 4:
        return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))


def _save(path: str, rank: int, size: int, model: nn.Module, made: dict[str, torch.optim.Optimizer]) -> str:
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


def _on_four(rank: int, path: str) -> None:
    mesh = _ranks(path, rank, 4)
    model, made = _made(0, mesh)
    _train(model, made, 0, 2)
    at = _save(path, rank, 4, model, made)
    saved = _whole(model, made)
    if rank == 0:
        torch.save((at, saved), f"{path}/saved")
    _train(model, made, 2, 2)
    fresh, again = _made(1, mesh)
    _restore(at, fresh, again)
    same(_whole(fresh, again), saved)
    _train(fresh, again, 2, 2)
    same(_whole(fresh, again, local=True), _whole(model, made, local=True))
    dist.destroy_process_group()


def _on_two(rank: int, path: str) -> None:
    mesh = _ranks(path, rank, 2)
    at, saved = torch.load(f"{path}/saved")
    model, made = _made(2, mesh)
    _train(model, made, 5, 1)  # state that is there before gives way
    _restore(at, model, made)
    same(_whole(model, made), saved)
    _train(model, made, 2, 1)
    dist.destroy_process_group()


def test_what_four_ranks_saved_resumes_on_four_two_and_one(tmp_path: Path) -> None:
    mp.spawn(_on_four, (str(tmp_path),), nprocs=4)
    at, saved = torch.load(tmp_path / "saved")
    model, made = _made(3, None)
    _restore(at, model, made)
    same(_whole(model, made), saved)
    strided = [entry for entry in waystation.open(at)._source.core.entries() if entry.key[2] == "up.weight"]
    assert strided and all(len(entry.chunks) == 4 for entry in strided)
    mp.spawn(_on_two, (str(tmp_path),), nprocs=2)
