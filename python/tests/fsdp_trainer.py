"""A small training sharded by FSDP2, with or without tensor parallelism, over gloo: run in processes of its own.

Every rank tells its parent its losses, to the bit, and digests of everything that it holds, of sharded tensors those of
the whole tensor, so that jobs of any shape can be compared.
"""

import hashlib
import random

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import Dataset

import waystation
from waystation.errors import Error
from waystation.job import Job
from waystation.torch import PerRank, Progress, ResumableSampler, TrainingState, digest_of_dataset, place

RECORDS, BATCH = 100, 8
SOURCE = digest_of_dataset("points", RECORDS)


class Points(Dataset):
    def __init__(self):
        self.inputs = torch.randn(RECORDS, 10, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        return self.inputs[index]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(10, width), nn.Linear(width, 10)

    def forward(self, inputs):
        return self.down(nn.functional.gelu(self.up(inputs)))


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = Block(width), Block(width)
        self.norm, self.drop = nn.LayerNorm(10), nn.Dropout(0.2)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mine", torch.zeros(3))

    def forward(self, inputs):
        self.seen += 1
        self.mine += inputs.detach()[0, :3]
        return self.norm(self.second(self.drop(self.first(inputs))) + inputs)


class Trainer:
    """`axes` are the names of a mesh and `sizes` what it has along them; none: one process, nothing sharded."""

    def __init__(self, axes, sizes, width, **more):
        self.mesh = init_device_mesh("cpu", sizes, mesh_dim_names=axes) if axes else None
        self.place = place(self.mesh)
        along = dict(self.place.coordinate)
        dp, count = along.get("dp", 0), dict(self.place.topology).get("dp", 1)
        torch.manual_seed(5)
        self.model = Net(width)
        if "tp" in along:
            plan = {f"{block}.{layer}": how() for block in ("first", "second")
                    for layer, how in (("up", ColwiseParallel), ("down", RowwiseParallel))}
            parallelize_module(self.model, self.mesh["tp"], plan)
        if axes:
            for block in (self.model.first, self.model.second, self.model):
                fully_shard(block, mesh=self.mesh["dp"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        random.seed(dp), numpy.random.seed(dp), torch.manual_seed(100 + dp)
        self.data = ResumableSampler(RECORDS, BATCH, seed=3, source=SOURCE, rank=dp, ranks=count,
                                     axes=("dp",) if axes else None)
        drawn = PerRank(axes=("dp",)) if axes else True
        self.state = TrainingState(
            self.model, self.optimizer, schedulers=self.schedule, data={"train": self.data}, place=self.place,
            progress=Progress(samples=0), per_rank=["mine"] if axes else [],
            rng={"python": drawn, "numpy": drawn, "torch": drawn}, **more)
        self.loader = self.data.loader(Points())

    def steps(self):
        while True:
            for inputs in self.loader:
                loss = (self.model(inputs) - inputs.roll(1, 1) * random.uniform(0.9, 1.1)).square().mean()
                loss.backward()
                self.optimizer.step(), self.schedule.step()
                self.optimizer.zero_grad()
                self.state.step()
                yield loss.item()

    def tensors(self):
        """Digests of all tensors that all ranks share, whole."""
        held = {name: tensor for name, tensor in self.model.state_dict().items() if name != "mine"}
        named = dict(self.model.named_parameters())
        for name, parameter in named.items():
            for slot, tensor in self.optimizer.state[parameter].items():
                held[f"{name} {slot}"] = tensor
        return {name: _digest(tensor.full_tensor() if isinstance(tensor, DTensor) else tensor)
                for name, tensor in held.items()}

    def own(self):
        """Digests of what is this rank's."""
        local = {name: tensor.to_local() if isinstance(tensor, DTensor) else tensor
                 for name, tensor in self.model.state_dict().items()}
        held = {f"local {name}": _digest(tensor) for name, tensor in local.items()}
        return held | {"torch": _digest(torch.get_rng_state()), "python": repr(random.getstate())[-80:],
                       "numpy": repr(numpy.random.get_state()[2:]), "data": (self.data.epoch, self.data.position),
                       "rates": repr(self.schedule.state_dict())}


def _digest(tensor):
    return hashlib.sha256(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def job(pipe, store, rank, size, task, arguments):
    """One rank of a job of `size`: sends what `task` gives, or the error that it raised."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    try:
        pipe.send(TASKS[task](**arguments))
    except Error as error:
        pipe.send(error)
    dist.barrier()
    dist.destroy_process_group()


def train(run, axes, sizes, steps, save_at=None, width=14):
    """Trains from the beginning; saves after `save_at` steps and goes on."""
    trainer = Trainer(axes, sizes, width)
    losses, saved = [], None
    for loss in trainer.steps():
        losses.append(loss.hex())
        if len(losses) == save_at:
            session = Job.start(run, group=trainer.place.group, topology=trainer.place.topology,
                                coordinate=trainer.place.coordinate)
            saved = trainer.state.save(session).path, trainer.tensors(), trainer.own()
        if len(losses) == steps:
            return losses, trainer.tensors(), trainer.own(), saved


def resume(path, axes, sizes, steps, width=14, **how):
    """Goes on from a checkpoint: what it holds at once, and after so many steps."""
    trainer = Trainer(axes, sizes, width)
    report = trainer.state.restore(waystation.open(path), **how)
    grades = {(line.kind, line.name): line.grade for line in report}
    at_once = trainer.tensors(), trainer.own()
    losses = [loss.hex() for _, loss in zip(range(steps), trainer.steps())]
    return grades, at_once, losses, trainer.tensors(), trainer.own()


def disagree(run, axes, sizes, what, check_replicas=True):
    """Saves a state of which rank 1 has something else."""
    trainer = Trainer(axes, sizes, 14, check_replicas=check_replicas)
    at = trainer.place
    session = Job.start(run, group=at.group, topology=at.topology, coordinate=at.coordinate)
    next(trainer.steps())
    if dist.get_rank() == 1:
        if what == "buffer":
            trainer.model.seen += 1
        elif what == "rate":
            trainer.optimizer.param_groups[0]["lr"] *= 2
        elif what == "slot":
            parameter = trainer.model.norm.weight
            trainer.optimizer.state[parameter]["step"] += 1
    return trainer.state.save(session).path


TASKS = {"train": train, "resume": resume, "disagree": disagree}
