"""A planner whose process is killed in the middle of writing: after the data, before the part."""

from __future__ import annotations

import os
import signal
from typing import Any

import waystation.dcp as ws
from waystation.dcp import writer


class KillingPlanner(ws.SavePlanner):
    def resolve_data(self, write_item: Any) -> Any:
        write = writer.write

        def write_and_die(*args: Any, **named: Any) -> None:
            write(*args, **named)
            os.kill(os.getpid(), signal.SIGKILL)

        writer.write = write_and_die
        return super().resolve_data(write_item)


def main(run: str) -> None:
    """Saves twice in the background; the second does not come to its end."""
    import torch
    import torch.distributed.checkpoint as dcp

    from waystation.job import Job

    job = Job.start(run)
    state = {"model": {"w": torch.arange(100_000.0)}}
    dcp.async_save(state, storage_writer=ws.Writer(job, 1), planner=ws.SavePlanner()).result()
    dcp.async_save(state, storage_writer=ws.Writer(job, 2), planner=KillingPlanner()).result()
