"""Checkpoints that DCP did not write, read by the keys that DCP would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp.same import same
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

import waystation.dcp as ws
from waystation import _core, records
from waystation.job import Job
from waystation.key import Key
from waystation.snapshot import Alias, Piece, Snapshot


def test_by_model_and_name_or_by_name(run: Path) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    key, count = Key.param("layers.0.w"), Key.buffer("count")
    saved = Job.start(run).save(
        Snapshot(
            pieces=[
                Piece.whole(key, weight),
                Piece.whole(count, np.array(7)),
                Piece.whole(Key.param("w", component="critic"), weight[0]),
            ],
            aliases=[Alias("main", "param", "head.w", key)],
        ),
        1,
    )
    for wrap in (lambda state: {"model": state}, lambda state: state):
        state = {
            "layers.0.w": torch.zeros(3, 4),
            "count": torch.zeros((), dtype=torch.int64),
            "head.w": torch.zeros(3, 4),
        }
        dcp.load(wrap(state), storage_reader=ws.Reader(saved.path))
        assert torch.equal(state["layers.0.w"], torch.from_numpy(weight)) and torch.equal(
            state["head.w"], state["layers.0.w"]
        )
        assert state["count"].item() == 7
    critic = {"critic": {"model": {"w": torch.zeros(4)}}}
    dcp.load(critic, storage_reader=ws.Reader(saved.path))
    assert critic["critic"]["model"]["w"].tolist() == [0, 1, 2, 3]
    found = _load_state_dict_from_keys(storage_reader=ws.Reader(saved.path))
    assert set(found) == {"model", "critic"} and set(found["model"]) == {"layers.0.w", "count", "head.w"}
    with pytest.raises(CheckpointException, match="'model.other'"):
        dcp.load({"model": {"other": torch.zeros(1)}}, storage_reader=ws.Reader(saved.path), planner=ws.LoadPlanner())


def test_an_optimizer_of_another_writer(run: Path) -> None:
    """What `waystation.torch` writes: DCP's state dict of it is made from the optimizer's record."""
    from waystation.torch import model as of_model, optimizer as of_optimizer

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    made = torch.optim.AdamW(model.parameters(), lr=0.02)
    model(torch.randn(5, 3)).sum().backward()
    made.step()
    snapshot = capture(of_model, of_optimizer, model, made)
    saved = Job.start(run).save(snapshot, 1)
    assert json.loads(_core.verify_json(saved.path))["ok"]
    expected = dict(zip(("model", "optim"), get_state_dict(model, made)))
    other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    theirs = torch.optim.AdamW(other.parameters(), lr=0.5)
    read = dict(zip(("model", "optim"), get_state_dict(other, theirs)))
    dcp.load(read, storage_reader=ws.Reader(saved.path))
    same(read, expected)


def capture(of_model: Any, of_optimizer: Any, model: nn.Module, made: torch.optim.Optimizer) -> Snapshot:
    snapshot = of_model.capture(model)
    snapshot.merge(of_optimizer.capture(made, model))
    return snapshot


def test_records_stay_what_they_are(run: Path) -> None:
    job = Job.start(run)
    saved = job.save(Snapshot(records=[records.value("torch.dcp/x", {"a": 1})]), 1)
    assert _load_state_dict_from_keys(storage_reader=ws.Reader(saved.path)) == {}
    saved = job.save(Snapshot(records=[records.value("torch.dcp/0", {"a": 1})]), 2)
    with pytest.raises(BaseException, match="bad-member"):
        _load_state_dict_from_keys(storage_reader=ws.Reader(saved.path))
