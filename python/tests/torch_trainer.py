"""A small training with everything that has state, for tests that kill it: run in processes of their own.

What `train` does with a run that has a checkpoint must be what it would have done had it never been killed. It tells
its parent each loss, to the bit, and in the end everything that it holds.
"""

import hashlib
import math
import os
import random

import numpy
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import Dataset

from waystation.manager import CheckpointManager
from waystation.torch import Progress, ResumableSampler, TrainingState, digest_of_dataset

RECORDS, BATCH = 203, 12
SOURCE = digest_of_dataset("points", RECORDS)


class Points(Dataset):
    def __init__(self):
        made = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(RECORDS, 16, generator=made)
        self.labels = self.inputs.roll(1, 1).tanh()

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, width), nn.BatchNorm1d(width), nn.GELU(), nn.Dropout(0.2),
                                  nn.Linear(width, width), nn.Dropout(0.1))
        self.head = nn.Linear(width, 16)

    def forward(self, inputs):
        return self.head(self.body(inputs).relu())


class Trainer:
    """All that has state. `seed` is that of the whole run, `accumulate` how many micro-batches a step takes."""

    def __init__(self, seed, workers=0, accumulate=1, width=48):
        random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed)
        self.noise = numpy.random.Generator(numpy.random.PCG64(seed))
        self.dataset = Points()
        self.model = Net(width)
        self.adam = torch.optim.AdamW(self.model.body.parameters(), lr=3e-3)
        self.sgd = torch.optim.SGD(self.model.head.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        self.cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.adam, 60)
        self.warmup = torch.optim.lr_scheduler.SequentialLR(self.sgd, [
            torch.optim.lr_scheduler.LinearLR(self.sgd, 0.1, total_iters=5),
            torch.optim.lr_scheduler.StepLR(self.sgd, 7, 0.8)], [5])
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=6)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.95), use_buffers=True)
        self.data = ResumableSampler(RECORDS, BATCH, seed=seed, source=SOURCE, accumulate=accumulate)
        self.accumulate = accumulate
        fork = {"multiprocessing_context": "fork"} if workers else {}
        self.loader = self.data.loader(self.dataset, num_workers=workers, **fork)
        self.state = TrainingState(
            self.model, {"body": self.adam, "head": self.sgd}, schedulers={"body": self.cosine, "head": self.warmup},
            scaler=self.scaler, ema={"ema": (self.average, 0.95)}, data={"train": self.data}, rng={"noise": self.noise},
            progress=Progress(iteration=0, skipped=0, epoch=0, samples=0),
        )

    def step(self, batches):
        """One iteration over the micro-batches of a step; the loss."""
        total = 0.0
        for inputs, labels in batches:
            inputs = inputs + random.gauss(0, 0.01) + float(numpy.random.randn()) * 0.01
            inputs = inputs + torch.from_numpy(self.noise.standard_normal(inputs.shape, dtype=numpy.float32)) * 0.01
            loss = (self.model(inputs) - labels).square().mean() / self.accumulate
            self.scaler.scale(loss).backward()
            total += loss.item()
        overflows = self.state.progress.iteration % 9 == 4
        if overflows:
            self.model.head.weight.grad[0, 0] = math.inf
        for optimizer in (self.adam, self.sgd):
            self.scaler.step(optimizer)
            optimizer.zero_grad()
        self.scaler.update()
        # Of two optimizers one may have been skipped: the step counts as one that was done.
        self.cosine.step(), self.warmup.step()
        self.average.update_parameters(self.model)
        self.state.step()
        return total

    def steps(self):
        """Iterations from where training stands, for ever: their losses."""
        while True:
            batches = []
            for batch in self.loader:
                batches.append(batch)
                if len(batches) == self.accumulate:
                    yield self.step(batches)
                    batches = []

    def everything(self):
        """A digest of each thing that has state."""
        held = {f"model {name}": tensor for name, tensor in self.model.state_dict().items()}
        held |= {f"ema {name}": tensor for name, tensor in self.average.state_dict().items()}
        for name, optimizer in (("adam", self.adam), ("sgd", self.sgd)):
            for number, state in optimizer.state_dict()["state"].items():
                held |= {f"{name} {number} {slot}": tensor for slot, tensor in state.items()}
            held[name] = repr([{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups])
        held |= {"cosine": repr(self.cosine.state_dict()), "scaler": repr(self.scaler.state_dict())}
        held["warmup"] = repr([each.state_dict() for each in self.warmup._schedulers] + [self.warmup.last_epoch])
        noise = self.noise.bit_generator.state
        # NumPy keeps half a word that was drawn already.
        noise["uinteger"] *= noise["has_uint32"]
        held |= {"python": repr(random.getstate()), "numpy": repr(numpy.random.get_state()[1:]),
                 "torch": torch.get_rng_state(),
                 "noise": repr(noise), "progress": repr(self.state.progress),
                 "data": repr((self.data.epoch, self.data.position, self.data.consumed))}
        return {name: _digest(value) for name, value in held.items()}


def _digest(value):
    data = value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if isinstance(value, torch.Tensor) \
        else value.encode()
    return hashlib.sha256(data).hexdigest()[:16]


def job(pipe, arguments, more):
    """`train` in a process of its own, which tells what it says through the pipe."""
    os.setsid()  # what it starts dies with it
    train(pipe.send, *arguments, **more)


def train(say, run, steps, seed, pool_bytes=None, every=3, **more):
    """Trains up to `steps` iterations, resuming from what `run` has; `say` takes tuples."""
    torch.set_num_threads(1)
    trainer = Trainer(seed, **more)
    with CheckpointManager(run, every=every, keep_last=2, pool_bytes=pool_bytes) as manager:
        checkpoint = manager.resume()
        if checkpoint is not None:
            report = trainer.state.restore(checkpoint)
            assert report.ok, report
            say(("resumed", trainer.state.progress.iteration))
        for loss in trainer.steps():
            iteration = trainer.state.progress.iteration
            say(("loss", iteration, loss.hex()))
            if manager.should_save(trainer.state.progress.optimizer_step):
                say(("saving", iteration))
                trainer.state.save(manager)
                say(("went on", iteration))
            if manager.preempted:
                say(("preempted", iteration))
                return
            if iteration >= steps:
                break
    say(("end", trainer.everything()))
