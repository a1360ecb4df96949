"""How long an asynchronous save keeps training waiting, beside one copy of the same state into the same kind of memory.

    python benches/async_block.py [--gib 2] [--pairs 9] [--tensors 16 1000 4000]

A save blocks for one copy of the state into a prefaulted pool. The limit is what a memcpy costs: `copy_` of PyTorch and
`copyto` of NumPy, tensor by tensor, into prefaulted memory. Save and copies are timed in turn, so that all meet the same
machine; what is printed are medians of the ratios of each pair. Goal: at most 1.1.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch

from waystation.key import Key
from waystation.manager import CheckpointManager
from waystation.pool import Pool
from waystation.records import progress
from waystation.snapshot import Piece, Snapshot



def main() -> None:
    parser = argparse.ArgumentParser(description="Blocking time of an asynchronous save against one memcpy.")
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--tensors", type=int, nargs="+", default=[16, 1000, 4000], help="into how many the state is split")
    parser.add_argument("--directory", help="where to save")
    args = parser.parse_args()
    for count in args.tensors:
        tensors = [torch.full((int(args.gib * 2**28) // count,), 1.5) for _ in range(count)]
        total = sum(tensor.nbytes for tensor in tensors)
        with tempfile.TemporaryDirectory(dir=args.directory) as run:
            save, by_torch, by_numpy = measure(run, tensors, total, args.pairs)
        print(f"{count} tensors: {total / 2**30:.2f} GiB; a save blocks {statistics.median(save):.3f} s, copy_ takes "
              f"{statistics.median(by_torch):.3f} s, copyto {statistics.median(by_numpy):.3f} s")
        for what, copies in (("copy_", by_torch), ("copyto", by_numpy)):
            ratios = sorted(blocked / copy for blocked, copy in zip(save, copies))
            print(f"    to {what}: {statistics.median(ratios):.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f}, "
                  f"{len(ratios)} pairs)", flush=True)


def measure(run: str, tensors: list[torch.Tensor], total: int, pairs: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of each save and each copy, in turn."""
    arrays = [tensor.numpy() for tensor in tensors]
    memory = Pool(total + 64 * len(tensors)).stage(Snapshot(pieces=pieces(tensors))).pieces
    into_numpy = [piece.data.view(np.float32) for piece in memory]
    into_torch = [torch.from_numpy(array) for array in into_numpy]
    save, by_torch, by_numpy = [], [], []
    with CheckpointManager(run, keep_last=1, pool_bytes=total + 64 * len(tensors)) as manager:
        for step in range(pairs + 1):
            gc.collect()
            turn = [
                (save, lambda: manager.save(step, Snapshot(pieces=pieces(tensors), records=[progress(step)]))),
                (by_torch, lambda: [into.copy_(tensor) for into, tensor in zip(into_torch, tensors)]),
                (by_numpy, lambda: [np.copyto(into, array) for into, array in zip(into_numpy, arrays)]),
            ]
            # Each comes first as often as the others.
            for seconds, work in turn[step % 3:] + turn[:step % 3]:
                manager.wait()  # nothing is written while something is timed
                seconds.append(timed(work))
                manager.wait()
    return save[1:], by_torch[1:], by_numpy[1:]  # the first ones warm up


def pieces(tensors: list[torch.Tensor]) -> list[Piece]:
    return [Piece.whole(Key.param(f"layers.{at}.weight"), tensor) for at, tensor in enumerate(tensors)]


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
