"""A training that is killed at any moment of a save, and goes on bit for bit as if it had not been."""

import json
import os
import random
import signal
import time

import pytest

import fork_server
import torch_trainer
from waystation import _core

PROCESSES = fork_server.processes("torch_trainer", "fsdp_trainer")
STEPS = 40


class Child:
    """A training in a process of its own; what it says, in order, until it ends or is killed."""

    def __init__(self, *arguments, **more):
        mine, its = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(target=torch_trainer.job, args=(its, arguments, more))
        self.process.start()
        its.close()
        self.pipe = mine

    def __iter__(self):
        while True:
            try:
                yield self.pipe.recv()
            except EOFError:
                self.process.join()
                return


def uninterrupted(run, seed, **more):
    said = list(Child(str(run), STEPS, seed, **{"every": 10**6} | more))
    return {line[1]: line[2] for line in said if line[0] == "loss"}, said[-1][1]


@pytest.mark.parametrize("seed,pool,workers", [(1, None, 0), (2, 1 << 20, 0), (3, "auto", 2), (4, 1 << 20, 2)])
def test_killed_while_it_saves(tmp_path, seed, pool, workers):
    losses, end = uninterrupted(tmp_path / "whole", seed, workers=workers)
    assert len(losses) == STEPS and len(set(losses.values())) == STEPS
    chance, run, kills, resumed = random.Random(seed), str(tmp_path / "run"), 0, []
    found = None
    while found is None:
        child, survive = Child(run, STEPS, seed, pool_bytes=pool, workers=workers), chance.randrange(1, 4)
        for line in child:
            if line[0] == "loss":
                assert line[2] == losses[line[1]], f"iteration {line[1]} after {kills} kills, resumed at {resumed}"
            elif line[0] == "resumed":
                resumed.append(line[1])
            elif line[0] == "saving":
                survive -= 1
                if survive == 0 and kills < 3:
                    # Some moment of it: a save takes about so long.
                    time.sleep(chance.uniform(0, 0.06))
                    os.killpg(child.process.pid, signal.SIGKILL)
                    kills += 1
            elif line[0] == "end":
                found = line[1]
        assert found is not None or child.process.exitcode == -signal.SIGKILL
    assert kills >= 2 and found == end
    assert json.loads(_core.verify_json(_latest(run)))["ok"]


def _latest(run):
    return json.loads(_core.latest_json(run))["path"]


@pytest.mark.parametrize("pool", [None, 1 << 20])
def test_told_to_stop(tmp_path, pool):
    losses, end = uninterrupted(tmp_path / "whole", 6)
    run, said = str(tmp_path / "run"), []
    child = Child(run, STEPS, 6, pool_bytes=pool, every=1000)
    for line in child:
        said.append(line)
        if line == ("loss", 11, losses[11]):
            os.kill(child.process.pid, signal.SIGTERM)
    assert child.process.exitcode == 0 and said[-1][0] == "preempted"
    stopped = said[-1][1]
    again = list(Child(run, STEPS, 6, pool_bytes=pool))
    assert again[0] == ("resumed", stopped)
    assert {line[1]: line[2] for line in again if line[0] == "loss"} == \
        {step: loss for step, loss in losses.items() if step > stopped}
    assert again[-1] == ("end", end)


def test_within_an_epoch_with_accumulation(tmp_path):
    losses, end = uninterrupted(tmp_path / "run", 7, accumulate=3, every=7)
    assert list(Child(str(tmp_path / "run"), STEPS + 12, 7, accumulate=3, every=1000))[0] == ("resumed", STEPS // 7 * 7)
    whole = list(Child(str(tmp_path / "other"), STEPS + 12, 7, accumulate=3, every=1000))
    again = list(Child(str(tmp_path / "run"), STEPS + 12, 7, accumulate=3, every=1000))
    assert whole[-1] == again[-1]
