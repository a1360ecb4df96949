"""The training state of PyTorch: captured at the end of an optimizer step, and restored to the bit.

    from waystation import CheckpointManager
    from waystation.torch import ResumableSampler, TrainingState, digest_of_dataset

    data = ResumableSampler(len(dataset), batch=32, seed=7, source=digest_of_dataset("my data", 1))
    loader = data.loader(dataset, num_workers=2)
    state = TrainingState(model, optimizer, schedulers=scheduler, data={"train": data})
    with CheckpointManager("runs/demo", every=100) as manager:
        checkpoint = manager.resume()
        if checkpoint is not None:
            print(state.restore(checkpoint))
        while data.epoch < epochs and not manager.preempted:
            for batch in loader:
                ...  # forward, backward, optimizer.step(), scheduler.step()
                state.step()
                if manager.should_save(state.progress.optimizer_step):
                    state.save(manager)
                if manager.preempted:
                    break
"""

from __future__ import annotations

from .counters import Progress
from .data import CursorSource, DistributedSamplerCursor, ResumableSampler, digest_of_dataset, digest_of_files
from .group import Place, TorchGroup, place
from .opaque import StatefulLoaderCursor
from .report import Line, Report
from .rng import Off, PerRank, Shared, Streams
from .state import TrainingState

__all__ = [
    "CursorSource",
    "DistributedSamplerCursor",
    "Line",
    "Off",
    "PerRank",
    "Place",
    "Progress",
    "Report",
    "ResumableSampler",
    "Shared",
    "StatefulLoaderCursor",
    "Streams",
    "TorchGroup",
    "TrainingState",
    "digest_of_dataset",
    "digest_of_files",
    "place",
]
