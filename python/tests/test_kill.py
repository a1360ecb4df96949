"""A trainer is killed at any moment of its saves; what is left is a whole checkpoint of one step, and it goes on from that."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
from processes import end, start

import waystation
from waystation import _core

# Saves after every step, with little time between; every tensor says its step throughout. Ends when it is killed.
TRAINER = """
    import sys
    import numpy as np
    import waystation
    from waystation.key import Key
    from waystation.manager import CheckpointManager
    from waystation.records import progress
    from waystation.snapshot import Piece, Snapshot

    sizes = [3, 1000, 70_001, 400_000, 0, 1]
    state = [np.zeros(size, np.int32) for size in sizes]
    with CheckpointManager(sys.argv[1], every=1, keep_last=2, pool_bytes="auto", on_busy=sys.argv[2]) as manager:
        checkpoint = manager.resume()
        step = 0
        if checkpoint is not None:
            step = checkpoint.step
            state = [checkpoint[f"t{at}"].numpy() for at in range(len(sizes))]
        assert all((tensor == step).all() for tensor in state)
        print("from", step, flush=True)
        while True:
            step += 1
            for tensor in state:
                tensor += 1
            if manager.should_save(step):
                pieces = [Piece.whole(Key.param(f"t{at}"), tensor) for at, tensor in enumerate(state)]
                manager.save(step, Snapshot(pieces=pieces, records=[progress(step)]))
"""


@pytest.mark.parametrize("on_busy", ["wait", "skip"])
def test_killed_at_any_moment(tmp_path: Path, on_busy: str) -> None:
    runs, last, states = tmp_path / "run", 0, set()
    for seed in range(10):
        print("seed", seed)
        process = start(TRAINER, runs, on_busy)
        begun = process.stdout.readline()
        assert begun == f"from {last}\n", (begun, process.communicate())
        time.sleep(random.Random(f"{on_busy} {seed}").uniform(0.0, 0.25))  # the moment, not a wait for anything
        process.kill()
        end(process, -9)
        states |= {one["state"] for one in json.loads(_core.list_json(str(runs)))}
        # What stands half committed, the next trainer would roll forward.
        with waystation.job.Job.start(runs, resume="latest").resume_from or no_checkpoint() as checkpoint:
            if checkpoint is None:
                continue
            assert checkpoint.step >= last, "a checkpoint that was there is lost"
            last = checkpoint.step
            for at, size in enumerate([3, 1000, 70_001, 400_000, 0, 1]):
                tensor = checkpoint[f"t{at}"].numpy()
                assert tensor.size == size and (tensor == last).all(), f"t{at} of step {last} holds {np.unique(tensor)}"
            report = json.loads(_core.verify_json(checkpoint.path))
            assert report["ok"], report
    assert last > 0 and "uncommitted" in states, f"no kill hit a save in {states}, step {last}"


class no_checkpoint:
    def __enter__(self):
        return None

    def __exit__(self, *raised):
        return None
