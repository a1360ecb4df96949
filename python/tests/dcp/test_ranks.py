"""Several ranks: FSDP2, with replicas, with tensor parallelism; loaded on one, two and four."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp import ranked
from dcp.ranks import Ranks
from dcp.same import bits

import waystation.dcp as ws
from waystation import _core
from waystation.job import Job


def contents(path: str) -> dict[str, Any]:
    return json.loads(_core.Checkpoint.open(path).manifest_json())


@pytest.mark.parametrize(
    "layout, optimizer, flatten", [("fsdp", "adamw", False), ("fsdp", "sgd", True), ("plain", "adamw", True)]
)
def test_two_ranks(run: Path, two: Ranks, four: Ranks, layout: str, optimizer: str, flatten: bool) -> None:
    (path, expected), (other, _) = two.run(ranked.save_and_load, str(run), layout, optimizer, flatten)
    assert path == other
    found = _core.Checkpoint.open(path)
    entry = found.find(("main", "param", "up.weight", None, None, ()))
    assert entry is not None and len(entry.chunks) == (2 if layout == "fsdp" else 1)
    (record,) = [record for record in found.records() if record[0] == "optimizer"]
    assert record[1:3] == ("optim", [])
    ranked.load(path, "plain", optimizer, flatten, expected, own_planner=True)
    two.run(ranked.load, path, "fsdp", optimizer, flatten, expected, False)
    four.run(ranked.load, path, "fsdp", optimizer, flatten, expected, True)
    four.run(ranked.load, path, "tp+fsdp", optimizer, flatten, expected, False)


@pytest.mark.parametrize("layout, flatten", [("tp+fsdp", False), ("hsdp", True)])
def test_four_ranks(run: Path, two: Ranks, four: Ranks, layout: str, flatten: bool) -> None:
    (path, expected), *_ = four.run(ranked.save_and_load, str(run), layout, "adamw", flatten)
    ranked.load(path, "plain", "adamw", flatten, expected, own_planner=False)
    two.run(ranked.load, path, "fsdp", "adamw", flatten, expected, True)
    four.run(ranked.load, path, "hsdp" if layout == "tp+fsdp" else "tp+fsdp", "adamw", flatten, expected, False)


def test_every_placement(run: Path, two: Ranks, four: Ranks) -> None:
    two.run(ranked.placements, str(run / "two"))
    path, *_ = four.run(ranked.placements, str(run))
    read = {"grid": torch.zeros(5, 7), "scalar": torch.zeros(()), "none": torch.zeros(0, 3)}
    dcp.load(read, storage_reader=ws.Reader(path))
    assert bits(read["grid"]) == bits(torch.arange(1.0, 36.0)) and read["scalar"].item() == 1.0


def test_plans_that_dcp_replays(run: Path, two: Ranks) -> None:
    for layout in ("fsdp", "plain"):
        paths, _ = two.run(ranked.saves_with_cached_plans, str(run / layout), layout)
        assert len(set(paths)) == 4
        values = [
            record[3] for path in paths for record in _core.Checkpoint.open(path).records() if record[0] == "optimizer"
        ]
        assert len(values) == 4 and '"adamw"' in values[0] and '"sgd"' in values[3]
        assert values[1] != values[2]  # the learning rate is that of now, not of the plan
        for path in paths:
            assert json.loads(_core.verify_json(path))["ok"]


def test_without_collectives(run: Path, two: Ranks, four: Ranks) -> None:
    for name, layout, differ in (("a", "fsdp", False), ("b", "plain", True)):
        path, _ = two.run(ranked.saves_without_collectives, str(run / name), layout, differ)
        assert json.loads(_core.verify_json(path))["ok"]
        state = {"model": {"up.weight": torch.zeros(8, 5)}, "mine": {"rank": None}}
        if differ:
            # Each rank of two gets its own back; one rank cannot be told which.
            with pytest.raises(BaseException, match="not the same for the ranks"):
                dcp.load(state, storage_reader=ws.Reader(path))
        else:
            dcp.load(state, storage_reader=ws.Reader(path))
            assert state["mine"]["rank"] == 7
    path, *_ = four.run(ranked.saves_without_collectives, str(run / "c"), "tp+fsdp", False)
    assert json.loads(_core.verify_json(path))["ok"]


@pytest.mark.parametrize("collective", [True, False])
def test_what_was_refused_is_never_committed(run: Path, two: Ranks, collective: bool) -> None:
    """All parts were there when rank 0 finds that ranks differ: a later start would take them for a whole save."""
    states = {rank: {"model": {"w": torch.full((4,), float(rank)), "v": torch.ones(2)}} for rank in range(2)}
    answers = two.run(ranked.saves_or_says, str(run), states, collective, {})
    for path, said in answers:
        assert "state-disagree" in said and "'model.w' (rank 0 and rank 1)" in said and "model.v" not in said
        assert len(list(Path(path).glob("part-00001-*"))) == 1
    assert Job.start(run, resume="latest").plan.parent is None
    assert not list(run.glob("*/waystation.commit"))


def test_without_collectives_the_lowest_rank_is_meant_where_it_is_said(run: Path, two: Ranks) -> None:
    states = {rank: {f"stats{n}": torch.full((2,), float(rank)) for n in range(8)} for rank in range(2)}
    planner = {"first_rank": [f"stats{n}" for n in range(8)]}
    (path, said), _ = two.run(ranked.saves_or_says, str(run), states, False, planner)
    assert not said and not list(Path(path).glob("tmp-*"))
    read = {name: torch.ones(2) for name in states[0]}
    dcp.load(read, storage_reader=ws.Reader(path))
    assert not any(tensor.any() for tensor in read.values())
