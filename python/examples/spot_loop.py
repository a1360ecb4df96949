"""Training on a machine that may go away at any moment.

    python examples/spot_loop.py --run runs/spot --steps 2000

Send it SIGTERM: it finishes the step, saves, and exits with status 0. Kill it: at most the steps since the last save are
lost. Start it again in either case: it goes on, and ends with the very bits that it would have had without a pause.
Needs NumPy only. What a step draws is a function of the step's number, so there is no generator to save; see
`waystation.torch` for streams, data loaders and whole models.
"""

from __future__ import annotations

import argparse
import hashlib
import time

import numpy as np

from waystation.key import Key
from waystation.manager import CheckpointManager
from waystation.records import Record, f64, progress
from waystation.snapshot import Piece, Snapshot

RATE, MOMENTUM = 0.05, 0.9
WEIGHTS = Key.param("weights")
VELOCITY = Key.optimizer("weights", "sgd.momentum", "sgd")


def main() -> None:
    parser = argparse.ArgumentParser(description="A training loop that survives preemption.")
    parser.add_argument("--run", required=True, help="directory of the run")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=100, help="steps between saves")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each step takes longer")
    args = parser.parse_args()

    with CheckpointManager(args.run, every=args.every, keep_last=3, pool_bytes="auto") as manager:
        step, weights, velocity = 0, np.zeros(10_000, np.float32), np.zeros(10_000, np.float32)
        checkpoint = manager.resume()
        if checkpoint is not None:
            step = checkpoint.step
            weights, velocity = checkpoint.tensor(WEIGHTS).numpy(), checkpoint.tensor(VELOCITY).numpy()
        print(f"begin after step {step}", flush=True)

        while step < args.steps and not manager.preempted:
            step += 1
            train(step, weights, velocity)
            time.sleep(args.pause)
            if manager.should_save(step) or step == args.steps:
                manager.save(step, snapshot(step, weights, velocity))
    print(f"end after step {step}, weights {hashlib.sha256(weights.tobytes()).hexdigest()[:16]}", flush=True)


def train(step: int, weights: np.ndarray, velocity: np.ndarray) -> None:
    """One step of SGD, in place, towards the sine of an element's number."""
    noise = np.random.default_rng([7, step]).standard_normal(weights.size).astype(np.float32)
    gradient = weights - np.sin(np.arange(weights.size, dtype=np.float32)) + 0.1 * noise
    velocity *= np.float32(MOMENTUM)
    velocity += gradient
    weights -= np.float32(RATE) * velocity


def snapshot(step: int, weights: np.ndarray, velocity: np.ndarray) -> Snapshot:
    """All that the loop needs to go on."""
    optimizer = {
        "algorithm": "sgd",
        "groups": [{"name": "0", "params": [["main", "weights"]],
                    "hyper": [["lr", f64(RATE)], ["momentum", f64(MOMENTUM)]]}],
        "steps": [{"params": "all", "step": step, "stored_as": "int"}],
    }
    pieces = [Piece.whole(WEIGHTS, weights), Piece.whole(VELOCITY, velocity, axes=(0,))]
    return Snapshot(pieces=pieces, records=[progress(step), Record("optimizer", "sgd", optimizer)])


if __name__ == "__main__":
    main()
