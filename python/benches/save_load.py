"""Saving and loading through Python beside the Rust program on the same bytes, as whole calls in one minute.

    python benches/save_load.py --bytes 1G --rounds 7 --program target/release/waystation

Writing: `waystation bench io` writes and reads the same tensors from Rust and says how long it took; here the package writes
them out of NumPy arrays and reads them back into arrays that are there already. Prints the median of the ratios of pairs.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import waystation
from waystation import _core

TENSOR = 64 << 20


def size(text: str) -> int:
    units = {"M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def rust(program: str, count: int, scratch: Path) -> tuple[float, float]:
    """Seconds that the Rust program takes to write and to read."""
    command = [program, "bench", "io", "--bytes", str(count), "--rounds", "1", "--dir", str(scratch), "--json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return answer["write_seconds"][0], answer["read_seconds"][0]


def python(arrays: dict[str, np.ndarray], outs: dict[str, np.ndarray], path: Path) -> tuple[float, float]:
    """Seconds that the package takes to write into the page cache and to read, warm, every byte checked."""
    session = _core.Session.standing_alone(str(path), run="bench", step=0)
    keys = {name: waystation.Key.param(name) for name in arrays}
    chunks = [
        (session.chunk(keys[name], "U8", array.shape, (0,), array.shape), array) for name, array in arrays.items()
    ]
    writing = session.lay_out()
    start = time.perf_counter()
    writing.write(chunks)
    wrote = time.perf_counter() - start
    writing.finish()
    _core.commit(str(path))
    with waystation.open(path) as checkpoint:
        checkpoint.load(out=outs)
        start = time.perf_counter()
        checkpoint.load(out=outs)
        read = time.perf_counter() - start
    return wrote, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=size, default=size("1G"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--program", required=True, help="the Rust program, built with --release")
    parser.add_argument("--dir", help="where to write; removed at the end")
    options = parser.parse_args()
    count = max(1, options.bytes // TENSOR)
    one = np.random.default_rng(0).integers(0, 256, TENSOR, dtype=np.uint8)
    # One buffer for all, as the Rust program has it: what is measured is writing, not memory.
    arrays = {f"tensor.{number:04}": one for number in range(count)}
    outs = {name: np.ones(TENSOR, np.uint8) for name in arrays}
    writes, reads = [], []
    with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
        for round_ in range(options.rounds):
            path = Path(scratch) / f"round-{round_}"
            if round_ % 2:
                theirs = rust(options.program, count * TENSOR, Path(scratch))
                ours = python(arrays, outs, path)
            else:
                ours = python(arrays, outs, path)
                theirs = rust(options.program, count * TENSOR, Path(scratch))
            writes.append(ours[0] / theirs[0])
            reads.append(ours[1] / theirs[1])
            subprocess.run(["rm", "-r", str(path)], check=True)
    print(f"{count * TENSOR >> 20} MiB, {options.rounds} pairs; time to that of the Rust program")
    for what, ratios in [("writing", writes), ("loading", reads)]:
        print(f"{what}: {statistics.median(ratios):.2f}  (goal 1.1)  [{min(ratios):.2f} – {max(ratios):.2f}]")


if __name__ == "__main__":
    main()
