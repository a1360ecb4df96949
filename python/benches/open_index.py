"""Opening a checkpoint of many tensors and indexing one, beside safetensors' `safe_open` on the same content.

    python benches/open_index.py --tensors 10000 --rounds 15

Prints the median of the ratios of pairs that were measured one right after the other. Needs safetensors.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import waystation


def ours(path: Path, name: str) -> float:
    start = time.perf_counter()
    with waystation.open(path) as checkpoint:
        array = checkpoint[name].numpy()
    seconds = time.perf_counter() - start
    assert array.shape == (64,)
    return seconds


def theirs(path: Path, name: str) -> float:
    start = time.perf_counter()
    with safe_open(path, framework="np") as file:
        array = file.get_tensor(name)
    seconds = time.perf_counter() - start
    assert array.shape == (64,)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    tensors = {
        f"model.layers.{number // 8}.block.{number % 8}.weight": random.standard_normal(64).astype(np.float32)
        for number in range(options.tensors)
    }
    names = list(tensors)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint, file = Path(scratch) / "checkpoint", Path(scratch) / "model.safetensors"
        waystation.save(checkpoint, tensors)
        save_file(tensors, file)
        ratios = []
        for round_ in range(options.rounds + 2):
            name = names[random.integers(len(names))]
            pair = {}
            order = [("ours", ours, checkpoint), ("theirs", theirs, file)]
            for who, measure, path in order if round_ % 2 else reversed(order):
                pair[who] = measure(path, name)
            if round_ >= 2:  # the first two warm the page cache
                ratios.append(pair["ours"] / pair["theirs"])
    print(f"{options.tensors} tensors, {options.rounds} pairs")
    print(f"open and index one, to safe_open: {statistics.median(ratios):.2f}  (goal 2)  "
          f"[{min(ratios):.2f} – {max(ratios):.2f}]")


if __name__ == "__main__":
    main()
