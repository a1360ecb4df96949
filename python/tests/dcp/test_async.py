"""Saving while training goes on, on a thread and in another process, and what a kill leaves."""

from __future__ import annotations

import json
import pickle
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp import killing, ranked
from dcp.ranks import Ranks, context
from dcp.same import same

import waystation.dcp as ws
from waystation import _core
from waystation.job import Job


@pytest.mark.parametrize("kind", ["THREAD", "PROCESS"])
def test_in_the_background(run: Path, two: Ranks, kind: str) -> None:
    paths, _ = two.run(ranked.saves_in_the_background, str(run), kind, seconds=200)
    assert len(set(paths)) == 3 and json.loads(_core.latest_json(str(run)))["path"] == paths[-1]


def test_a_writer_goes_to_another_process(run: Path) -> None:
    writer = ws.Writer(Job.start(run), 1, progress=lambda what, done, whole: None)
    other = pickle.loads(pickle.dumps(writer))
    assert other.path == writer.path and other.storage_meta() == writer.storage_meta()
    assert pickle.loads(pickle.dumps(ws.SavePlanner(per_rank=["a"]))).per_rank == ("a",)


def test_killed_while_it_writes(run: Path) -> None:
    died = context().Process(target=killing.main, args=(str(run),))
    died.start()
    died.join(200)
    assert died.exitcode == -signal.SIGKILL
    assert len(list(run.glob("step-*"))) == 2
    latest = json.loads(_core.latest_json(str(run)))
    assert latest["step"] == 1
    job = Job.start(run, resume="latest")
    read = {"model": {"w": torch.zeros(100_000)}}
    dcp.load(read, storage_reader=ws.Reader(latest["path"]))
    same(read["model"]["w"], torch.arange(100_000.0))
    again = ws.Writer(job, 2)
    dcp.save(read, storage_writer=again, planner=ws.SavePlanner())
    assert json.loads(_core.latest_json(str(run)))["path"] == again.path


def test_the_other_process_killed_while_it_writes(run: Path, two: Ranks) -> None:
    path, _ = two.run(ranked.saves_and_is_killed, str(run), seconds=200)
    assert json.loads(_core.latest_json(str(run)))["path"] == path
