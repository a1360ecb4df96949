"""`torch.distributed.checkpoint` into and out of checkpoints of Waystation.

    job = waystation.Job.start("runs/demo", group=TorchGroup())
    dcp.save(state_dict, storage_writer=waystation.dcp.Writer(job, step=100), planner=waystation.dcp.SavePlanner())
    dcp.load(state_dict, storage_reader=waystation.dcp.Reader(path))

Values that are no tensors are stored as typed trees, never as pickles; what has no typed form is refused by its key. How
tensors are called in the checkpoint is told in `waystation.dcp.naming`.
"""

from .planner import LoadPlanner, SavePlanner
from .reader import Reader
from .writer import Writer

__all__ = ["LoadPlanner", "Reader", "SavePlanner", "Writer"]
