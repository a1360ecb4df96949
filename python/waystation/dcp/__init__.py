"""`torch.distributed.checkpoint` into and out of checkpoints of Waystation.

    job = waystation.Job.start("runs/demo", group=TorchGroup())
    dcp.save(state_dict, storage_writer=waystation.dcp.Writer(job, step=100), planner=waystation.dcp.SavePlanner())
    dcp.load(state_dict, storage_reader=waystation.dcp.Reader(path))

Values that are no tensors are stored as typed trees, never as pickles; what has no typed form is refused by its key.
How tensors are called in the checkpoint is told in `waystation.dcp.naming`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .planner import LoadPlanner, SavePlanner
    from .reader import Reader
    from .writer import Writer

__all__ = ["LoadPlanner", "Reader", "SavePlanner", "Writer"]

_WHERE = {"LoadPlanner": "planner", "SavePlanner": "planner", "Reader": "reader", "Writer": "writer"}


def __getattr__(name: str) -> Any:
    # Late: what DCP calls things is known without PyTorch, and importers of its files need no more.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
