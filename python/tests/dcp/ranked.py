"""What ranks do in tests. Functions here are called in other processes, by their names."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from dcp.same import blank, bits, same
from torch import nn
from torch.distributed.checkpoint.planner import SavePlanner as TorchSavePlanner
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import waystation.dcp as ws
from waystation.job import Job
from waystation.torch.group import TorchGroup


class Net(nn.Module):
    """Dimensions that do not divide: shards are uneven, and some ranks have none."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(5, 8)
        self.down = nn.Linear(8, 3)
        self.tiny = nn.Linear(3, 1)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.tensor(0, dtype=torch.int64))
        self.register_buffer("nothing", torch.zeros(0, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tiny(self.down(self.up(x).relu()) * self.scale)


def build(layout: str, optimizer: str = "adamw", seed: int = 5) -> tuple[nn.Module, torch.optim.Optimizer]:
    """`plain`, `fsdp` over all ranks, `tp+fsdp` or `hsdp` on a 2x2 mesh."""
    torch.manual_seed(seed)
    model: Any = Net()
    size = dist.get_world_size() if dist.is_initialized() else 1
    if layout == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    elif layout == "hsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("rep", "shard")))
    elif layout == "tp+fsdp":
        mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    made = (
        torch.optim.AdamW(model.parameters(), lr=0.01)
        if optimizer == "adamw"
        else torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    )
    return model, made


def train(model: nn.Module, made: torch.optim.Optimizer, steps: int = 2, seed: int = 1) -> None:
    torch.manual_seed(seed)  # the same data on all ranks: what is replicated stays the same
    for _ in range(steps):
        made.zero_grad()
        model(torch.randn(4, 5)).square().sum().backward()
        made.step()


def state_of(model: nn.Module, made: torch.optim.Optimizer, flatten: bool = False, **more: Any) -> dict[str, Any]:
    options = StateDictOptions(flatten_optimizer_state_dict=flatten)
    of_model, of_optimizer = get_state_dict(model, made, options=options)
    return {"model": of_model, "optim": of_optimizer, **more}


def whole(value: Any) -> Any:
    """A state dict with every distributed tensor whole."""
    if isinstance(value, DTensor):
        return value.full_tensor().detach().clone()
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value


def start(run: str, **job: Any) -> Job:
    return Job.start(run, group=TorchGroup(), **job)


def save_and_load(run: str, layout: str, optimizer: str, flatten: bool, **saving: Any) -> tuple[str, dict[str, Any]]:
    """Saves with both, loads with both into blanks; gives the checkpoint and the whole state."""
    model, made = build(layout, optimizer)
    train(model, made)
    state = state_of(model, made, flatten, epoch=3, extra={"list": [1, (2.5, None)]})
    writer = ws.Writer(start(run), 10)
    dcp.save(state, storage_writer=writer, planner=ws.SavePlanner(**saving))
    theirs = os.path.join(run, "..", "theirs")
    dcp.save(state, checkpoint_id=theirs)
    ours, other = blank(state), blank(state)
    dcp.load(ours, storage_reader=ws.Reader(writer.path))
    dcp.load(other, checkpoint_id=theirs)
    same(ours, other)
    same(ours, state)
    return writer.path, whole(state)


def load(path: str, layout: str, optimizer: str, flatten: bool, expected: dict[str, Any], own_planner: bool) -> None:
    """Loads on whatever ranks there are, and compares the whole."""
    model, made = build(layout, optimizer, seed=99)
    train(model, made, 1, seed=98)
    state = state_of(model, made, flatten, epoch=None, extra={"list": None})
    dcp.load(state, storage_reader=ws.Reader(path), planner=ws.LoadPlanner() if own_planner else None)
    found = whole(state)
    same(found["model"], expected["model"])
    same(found["optim"], expected["optim"])
    assert found["epoch"] == 3 and type(found["extra"]["list"][1]) is tuple


def save_state(
    run: str, state: dict[Any, Any], planner: dict[str, Any], job: dict[str, Any], step: int = 1, no_dist: bool = False
) -> str:
    """Saves what this rank has: `state[rank]`, or one state for all."""
    rank = dist.get_rank()
    writer = ws.Writer(start(run, **{name: of[rank] if name == "coordinate" else of for name, of in job.items()}), step)
    dcp.save(state.get(rank, state), storage_writer=writer, planner=ws.SavePlanner(**planner), no_dist=no_dist)
    return writer.path


def saves_with_cached_plans(run: str, layout: str) -> list[str]:
    """Four saves: two with one plan, one after a learning rate changed, one after the model did."""
    for cache in (
        TorchSavePlanner._cached_save_plan,
        TorchSavePlanner._cached_final_save_plan,
        TorchSavePlanner._cached_all_plans,
        TorchSavePlanner._cached_global_plan,
        TorchSavePlanner._cached_metadata,
    ):
        cache.clear()
    job, paths = start(run), []
    model, made = build(layout)
    train(model, made)
    for step in range(1, 5):
        if step == 3:
            made.param_groups[0]["lr"] = 0.5
        if step == 4:
            model, made = build(layout, "sgd")
        train(model, made, seed=step)
        state = state_of(model, made, epoch=step)
        writer = ws.Writer(job, step)
        dcp.save(state, storage_writer=writer, planner=ws.SavePlanner(enable_plan_caching=True))
        read = blank(state)
        dcp.load(read, storage_reader=ws.Reader(writer.path))
        same(read, state)
        paths.append(writer.path)
    return paths


def saves_without_collectives(run: str, layout: str, differ: bool) -> str:
    model, made = build(layout)
    train(model, made)
    rank = dist.get_rank()
    state = state_of(model, made, mine={"rank": rank if differ else 7})
    writer = ws.Writer(start(run), 1)
    dcp.save(state, storage_writer=writer, planner=ws.SavePlanner(), use_collectives=False)
    read = blank(state)
    dcp.load(read, storage_reader=ws.Reader(writer.path))
    same(read, state)
    return writer.path


def saves_in_the_background(run: str, kind: str) -> list[str]:
    """Three saves while training goes on."""
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    job = start(run)
    # Of its own: on the group of the training, collectives of two threads would meet one another.
    group = dist.new_group(backend="gloo")
    model, made = build("fsdp")
    paths = []
    for step in range(1, 4):
        train(model, made, seed=step)
        state = state_of(model, made, epoch=step)
        expected = whole(state)
        writer = ws.Writer(job, step)
        future: Any = dcp.async_save(
            state,
            storage_writer=writer,
            planner=ws.SavePlanner(),
            process_group=group,
            async_checkpointer_type=AsyncCheckpointerType[kind],
        )
        train(model, made, seed=step + 100)  # what is saved must not move
        metadata = getattr(future, "upload_completion", future).result()
        assert metadata.storage_meta.checkpoint_id == writer.path
        read = blank(state_of(model, made, epoch=None))
        dcp.load(read, storage_reader=ws.Reader(writer.path))
        same(whole(read), expected)
        paths.append(writer.path)
    return paths


def placements(run: str) -> str:
    """Distributed tensors by hand, each laid out in its own way; a row for some ranks only."""
    size = dist.get_world_size()
    line, grid = init_device_mesh("cpu", (size,)), init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("a", "b"))
    given = {
        name: torch.arange(1.0, 1 + count).reshape(shape)
        for name, count, shape in (
            ("rows", 21, (7, 3)),
            ("columns", 21, (3, 7)),
            ("one", 5, (1, 5)),
            ("deep", 60, (3, 4, 5)),
            ("grid", 35, (5, 7)),
            ("both", 40, (8, 5)),
            ("same", 4, (4,)),
            ("scalar", 1, ()),
            ("none", 0, (0, 3)),
        )
    }
    how = {
        "rows": (line, [Shard(0)]),
        "columns": (line, [Shard(1)]),
        "one": (line, [Shard(0)]),
        "deep": (line, [Shard(2)]),
        "grid": (grid, [Shard(0), Shard(1)]),
        "both": (grid, [Replicate(), Shard(0)]),
        "same": (line, [Replicate()]),
        "scalar": (line, [Replicate()]),
        "none": (line, [Shard(0)]),
    }
    state = {name: distribute_tensor(tensor, *how[name]) for name, tensor in given.items()}
    writer = ws.Writer(start(run), 1)
    dcp.save(state, storage_writer=writer, planner=ws.SavePlanner())
    read = blank(state)
    dcp.load(read, storage_reader=ws.Reader(writer.path))
    same(read, state)
    turned = {
        name: distribute_tensor(
            torch.zeros_like(tensor), line, [Shard(tensor.dim() - 1)] if tensor.dim() else [Replicate()]
        )
        for name, tensor in given.items()
    }
    dcp.load(turned, storage_reader=ws.Reader(writer.path))
    for name, tensor in given.items():
        assert bits(turned[name].full_tensor()) == bits(tensor), name
    return writer.path


def load_mine(path: str, states: dict[int, dict[str, Any]]) -> dict[str, Any]:
    state = states[dist.get_rank()]
    dcp.load(state, storage_reader=ws.Reader(path))
    return state


def stage(number: int, flatten: bool = True) -> dict[str, Any]:
    """A stage of a pipeline: parameters `<stage>.w` and `<stage>.b`."""
    torch.manual_seed(number)
    model = nn.ModuleDict({str(number): nn.Linear(2 + number, 3)})
    made = torch.optim.AdamW(model.parameters(), lr=0.01)
    model[str(number)](torch.randn(4, 2 + number)).sum().backward()
    made.step()
    return state_of(model, made, flatten)


def saves_and_is_killed(run: str) -> str:
    """A save in another process that is killed, which the trainer hears of; then one in this process."""
    from dcp.killing import KillingPlanner
    from torch.distributed.checkpoint import _async_process_executor as executor
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    # One tensor for each of two ranks to write: both processes are killed.
    job, state = start(run), {"model": {"w": torch.arange(1000.0), "v": torch.ones(1000)}}
    dcp.save(state, storage_writer=ws.Writer(job, 1), planner=ws.SavePlanner())
    future: Any = dcp.async_save(
        state,
        storage_writer=ws.Writer(job, 2),
        planner=KillingPlanner(),
        async_checkpointer_type=AsyncCheckpointerType.PROCESS,
    )
    try:
        getattr(future, "upload_completion", future).result(150)
    except RuntimeError as why:
        assert "dead" in str(why), why
    else:
        raise AssertionError("nobody heard of the kill")
    executor._CHECKPOINT_PROCESS = None  # DCP keeps the dead process
    writer = ws.Writer(job, 3)
    dcp.save(state, storage_writer=writer, planner=ws.SavePlanner())
    return writer.path


def load_strided(path: str, save_to: str) -> tuple[str, str]:
    """A tensor of which each rank holds every other quarter, which DCP takes for a half: what load and save say."""
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensor = DTensor.from_local(
        torch.zeros(4), mesh, [_StridedShard(0, split_factor=2)], run_check=False, shape=torch.Size([8]), stride=(1,)
    )
    said = []
    for what in (
        lambda: dcp.load({"w": tensor}, storage_reader=ws.Reader(path)),
        lambda: dcp.save({"w": tensor}, storage_writer=ws.Writer(start(save_to), 1), planner=ws.SavePlanner()),
    ):
        try:
            what()
        except BaseException as why:  # noqa: BLE001  DCP's exception is not an Exception
            said.append(str(why))
    return said[0], said[1]


def saves_or_says(
    run: str, states: dict[int, dict[str, Any]], collective: bool, planner: dict[str, Any]
) -> tuple[str, str]:
    """The path of a save, and what was raised if it was refused."""
    writer = ws.Writer(start(run), 1)
    try:
        dcp.save(
            states[dist.get_rank()],
            storage_writer=writer,
            planner=ws.SavePlanner(**planner),
            use_collectives=collective,
        )
    except BaseException as why:  # noqa: BLE001  DCP's exception is not an Exception
        return writer.path, str(why)
    return writer.path, ""
