"""A few processes with torch.distributed between them, kept for many tests: starting them is most of what they cost."""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def context() -> multiprocessing.context.ForkServerContext:
    """Processes of one that has PyTorch and has not begun anything: importing it is most of what they would cost."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(
        [
            "torch.distributed.checkpoint.state_dict",
            "torch.distributed.fsdp",
            "torch.distributed.tensor.parallel",
            "torch._dynamo",  # which the first step of any optimizer imports
            "torch.distributed.checkpoint._async_process_executor",
        ]
    )
    return made


class RankFailed(Exception):
    """What the ranks raised: rank -> text of the traceback."""

    def __init__(self, failures: dict[int, str]) -> None:
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, text in failures.items()))
        self.failures = failures


class Ranks:
    """`size` processes. `run(function, …)` calls it in all of them and gives what each returned."""

    def __init__(self, size: int, meeting: str) -> None:
        self.size = size
        self._pipes, self._processes = [], []
        processes = context()
        for rank in range(size):
            here, there = processes.Pipe()
            # No daemons: they may have children, as DCP's own process is one.
            process = processes.Process(target=_serve, args=(there, rank, size, meeting))
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *args: Any, seconds: float = 150.0) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((function, args))
        answers = []
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(seconds):
                for process in self._processes:
                    process.kill()
                raise AssertionError(f"rank {rank} gave no answer within {seconds} s")
            answers.append(pipe.recv())
        failures = {rank: text for rank, (good, text) in enumerate(answers) if not good}
        if failures:
            raise RankFailed(failures)
        return [answer for _, answer in answers]

    def close(self) -> None:
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()


def _serve(pipe: Any, rank: int, size: int, meeting: str) -> None:
    import os
    import warnings

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    while (job := pipe.recv()) is not None:
        function, args = job
        try:
            answer = (True, function(*args))
        except BaseException:  # noqa: BLE001  whatever it is, the test shall see it
            answer = (False, traceback.format_exc())
        pipe.send(answer)
    from torch.distributed.checkpoint import _async_process_executor as executor

    executor._CHECKPOINT_PROCESS = None  # which ends it
    os._exit(0)  # everything is done; taking PyTorch down again takes seconds
