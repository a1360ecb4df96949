"""Trains a model sharded by FSDP2, is killed, and goes on, on as many processes or on others.

    torchrun --nproc-per-node 2 examples/fsdp2.py runs/fsdp2 --steps 40 --die-at 25
    torchrun --nproc-per-node 2 examples/fsdp2.py runs/fsdp2 --steps 40
    torchrun --nproc-per-node 4 examples/fsdp2.py runs/fsdp2 --steps 60 --streams fork

The second goes on bit for bit. The third is another job: weights, optimizer and data go on exactly, and each rank's
random streams are new ones that follow from the checkpoint, which has to be asked for. Needs torch; runs on the CPU
over gloo.
"""

from __future__ import annotations

import argparse
import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from waystation import CheckpointManager
from waystation.torch import Progress, ResumableSampler, TrainingState, digest_of_dataset, place

RECORDS, BATCH, WIDTH = 512, 32, 64


def make_model() -> nn.Module:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(WIDTH)) for _ in range(3)]
    model = nn.Sequential(nn.Linear(16, WIDTH), *layers, nn.Linear(WIDTH, 1))
    for layer in layers:
        fully_shard(layer)
    return fully_shard(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="runs/fsdp2",
                        help="where checkpoints go; all processes see it (%(default)s)")
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps in all (%(default)s)")
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints (%(default)s)")
    parser.add_argument("--die-at", type=int, help="end all processes with SIGKILL after so many steps")
    parser.add_argument("--streams", default="exact", help="worst grade of random streams to go on with (%(default)s)")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    here = place(mesh)  # <- where this process stands
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + dist.get_rank())  # dropout differs between ranks

    inputs = torch.randn(RECORDS, 16, generator=torch.Generator().manual_seed(3))
    dataset = TensorDataset(inputs, inputs.square().sum(1, keepdim=True))
    source = digest_of_dataset("squares", 3, RECORDS)
    data = ResumableSampler(RECORDS, BATCH, seed=1, source=source)  # <- rank and ranks are those of the job
    loader = data.loader(dataset)
    progress = Progress(samples=0)
    state = TrainingState(model, optimizer, data={"train": data}, progress=progress, place=here)  # <-

    with CheckpointManager(arguments.run, every=arguments.every, keep_last=3, pool_bytes="auto", group=here.group,
                           topology=here.topology, coordinate=here.coordinate) as manager:  # <-
        checkpoint = manager.resume()  # <-
        if checkpoint is not None:  # <-
            report = state.restore(checkpoint, streams=arguments.streams)  # <-
            if here.group.rank == 0:
                print(f"resumed from step {checkpoint.step}: {report}", flush=True)
        while progress.optimizer_step < arguments.steps:
            for given, wanted in loader:
                loss = nn.functional.mse_loss(model(given), wanted)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                state.step()  # <- counts the step, and the data that it consumed
                mean = loss.detach()
                dist.all_reduce(mean)
                if here.group.rank == 0:
                    print(f"step {progress.optimizer_step} loss {mean.item() / here.group.size:.9f}", flush=True)
                stop = manager.sync_preempted()  # <- a signal reaches ranks at different steps: they agree
                if manager.should_save(progress.optimizer_step):  # <-
                    state.save(manager)  # <- each rank writes its own part; no collective while it does
                if progress.optimizer_step == arguments.die_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if stop or progress.optimizer_step == arguments.steps:
                    break
            else:
                continue
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
