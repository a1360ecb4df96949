"""Training that saves and resumes through torch.distributed.checkpoint, alone or on several ranks.

python examples/torch_dcp.py [RUN]                       # twice: the second start goes on where the first ended
torchrun --nproc-per-node 2 examples/torch_dcp.py [RUN]  # the same run, on two ranks
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import waystation.dcp
from waystation.job import Job
from waystation.torch import TorchGroup

STEPS = 10


def main(run: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    group = None
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        group = TorchGroup()
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    job = Job.start(run, group=group, resume="latest")
    first = 0
    if job.resume_from is not None:
        of_model, of_optimizer = get_state_dict(model, optimizer)
        state = {"model": of_model, "optim": of_optimizer, "step": None}
        dcp.load(state, storage_reader=waystation.dcp.Reader(job.resume_from.path))
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        first = state["step"]

    for step in range(first, first + STEPS):
        torch.manual_seed(step)
        loss = model(torch.randn(32, 16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    done = first + STEPS

    of_model, of_optimizer = get_state_dict(model, optimizer)
    writer = waystation.dcp.Writer(job, step=done)
    dcp.save(
        {"model": of_model, "optim": of_optimizer, "step": done},
        storage_writer=writer,
        planner=waystation.dcp.SavePlanner(),
    )
    if job.rank == 0:
        print(f"steps {first} to {done}, loss {loss.item():.6f}, saved as {writer.path}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(tempfile.mkdtemp(), "run"))
