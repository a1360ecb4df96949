"""What is refused, and that it says which key, which ranks and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp import ranked
from dcp.ranks import RankFailed, Ranks
from dcp.same import same
from torch.distributed.checkpoint.api import CheckpointException

import waystation.dcp as ws
from waystation import _core
from waystation.errors import Error
from waystation.job import Job


def save(run: Path, state: dict[str, Any], **planner: Any) -> str:
    writer = ws.Writer(Job.start(run), 1)
    dcp.save(state, storage_writer=writer, planner=ws.SavePlanner(**planner))
    return writer.path


class Thing:
    """Something that only a pickle could hold."""


@pytest.mark.parametrize(
    "state, words",
    [
        ({"a": {"b": Thing()}}, ["'a.b'", "Thing", "no typed form"]),
        ({"a": [1, (2, lambda: 0)]}, ["'a'", "function"]),
        ({"a": ({1.5: 2},)}, ["'a'", "1.5"]),
        ({"model": {"w": torch.ones(3).to_sparse()}}, ["'model.w'", "sparse"]),
        ({"model": {"w": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}}, ["'model.w'"]),
        ({"model": {"w": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}}, []),
    ],
)
def test_what_has_no_form_here(run: Path, state: dict[str, Any], words: list[str]) -> None:
    if callable(state.get("model", {}).get("w")):
        state = {"model": {"w": state["model"]["w"]()}}  # making these warns
    with pytest.raises((CheckpointException, Error)) as caught:
        save(run, state)
    for word in words:
        assert word in str(caught.value)
    assert not list(run.glob("*/waystation.commit"))


def test_writing_over_and_writing_twice(run: Path) -> None:
    job = Job.start(run)
    with pytest.raises(Error, match="never written over"):
        ws.Writer(job, 1, overwrite=True)
    writer = ws.Writer(job, 1)
    state = {"model": {"w": torch.ones(2)}}
    dcp.save(state, storage_writer=writer)
    with pytest.raises(CheckpointException, match="make a new Writer|Make a new Writer"):
        dcp.save(state, storage_writer=writer)
    with pytest.raises(Error, match="checkpoint_id"):
        dcp.save(state, storage_writer=ws.Writer(job, 1), checkpoint_id=run / "elsewhere")
    # The same step once more is another directory; nothing is lost.
    again = ws.Writer(job, 1)
    dcp.save(state, storage_writer=again)
    assert again.path != writer.path and len(list(run.glob("*/waystation.commit"))) == 2


def test_missing_wrong_and_cast(run: Path) -> None:
    path = save(run, {"model": {"w": torch.ones(2, 3), "v": torch.ones(2)}})
    with pytest.raises(CheckpointException, match="lacks 2 entries \\('model.x', 'more'\\)"):
        dcp.load(
            {"model": {"w": torch.zeros(2, 3), "x": torch.zeros(1)}, "more": 1},
            storage_reader=ws.Reader(path),
            planner=ws.LoadPlanner(),
        )
    with pytest.raises(CheckpointException, match="Missing key in checkpoint state_dict: model.x"):
        dcp.load({"model": {"x": torch.zeros(1)}}, storage_reader=ws.Reader(path))
    with pytest.raises(CheckpointException, match=r"model.w: \[2, 3\] in the checkpoint, \[3, 2\] here"):
        dcp.load({"model": {"w": torch.zeros(3, 2)}}, storage_reader=ws.Reader(path), planner=ws.LoadPlanner())
    for planner in (ws.LoadPlanner(allow_partial_load=True), dcp.DefaultLoadPlanner(allow_partial_load=True)):
        state = {"model": {"w": torch.zeros(2, 3), "x": torch.full((1,), 9.0)}}
        dcp.load(state, storage_reader=ws.Reader(path), planner=planner)
        assert state["model"]["w"].sum() == 6 and state["model"]["x"].item() == 9.0
    half = {"model": {"w": torch.zeros(2, 3, dtype=torch.bfloat16)}}
    with pytest.raises(CheckpointException, match="'model.w' is torch.float32 in the checkpoint and torch.bfloat16"):
        dcp.load(half, storage_reader=ws.Reader(path))
    dcp.load(half, storage_reader=ws.Reader(path, cast=True))
    assert half["model"]["w"].float().sum() == 6


def test_damage_and_holes_are_errors(run: Path) -> None:
    """DCP's own reader, and its consolidation for Hugging Face, make zeros of missing files and 0.0 of scalars."""
    state = {"model": {"scalar": torch.tensor(4.6052), "count": torch.arange(7), "w": torch.randn(40, 40)}}
    path = Path(save(run, state))
    read = {
        "model": {"scalar": torch.tensor(0.0), "count": torch.zeros(7, dtype=torch.int64), "w": torch.zeros(40, 40)}
    }
    dcp.load(read, storage_reader=ws.Reader(path))
    same(read, state)
    (path / "damaged").touch()
    (shard,) = path.glob("model-*.safetensors")
    whole = shard.read_bytes()
    at = whole.rfind(state["model"]["w"].numpy().tobytes()[:16])
    shard.write_bytes(whole[: at + 3] + bytes([whole[at + 3] ^ 1]) + whole[at + 4 :])
    with pytest.raises(CheckpointException, match="checksum|crc"):
        dcp.load(read, storage_reader=ws.Reader(path))
    shard.unlink()
    with pytest.raises((CheckpointException, Error)):
        dcp.load(read, storage_reader=ws.Reader(path))
    (path / "waystation.commit").unlink()
    with pytest.raises(Error) as caught:
        ws.Reader(path)
    assert caught.value.code == "not-committed"


def test_ranks_that_drifted_apart(run: Path, two: Ranks) -> None:
    good = {"model": {"w": torch.ones(3)}, "epoch": 1}
    for name, other, words in (
        (
            "tensor",
            {"model": {"w": torch.tensor([1.0, 1.0, 2.0])}, "epoch": 1},
            ["'model.w' (rank 0 and rank 1)", "state-disagree"],
        ),
        ("value", {"model": {"w": torch.ones(3)}, "epoch": 2}, ["'epoch' (rank 0 and rank 1)"]),
        ("shape", {"model": {"w": torch.ones(4)}, "epoch": 1}, ["'model.w' (rank 0 and rank 1)"]),
        ("dtype", {"model": {"w": torch.ones(3).double()}, "epoch": 1}, ["'model.w' (rank 0 and rank 1)"]),
        ("kind", {"model": {"w": 3}, "epoch": 1}, ["'model.w' (rank 0 and rank 1)"]),
    ):
        with pytest.raises(RankFailed) as caught:
            two.run(ranked.save_state, str(run / name), {0: good, 1: other}, {}, {})
        assert set(caught.value.failures) == {0, 1}
        for word in words:
            assert word in caught.value.failures[1], name
        assert not list((run / name).glob("*/waystation.commit"))
    # Negative zero is not zero, though it compares equal.
    with pytest.raises(RankFailed):
        two.run(
            ranked.save_state,
            str(run / "zero"),
            {0: {"a": torch.tensor([0.0])}, 1: {"a": torch.tensor([-0.0])}},
            {},
            {},
        )


def test_what_each_rank_has_for_its_own(run: Path, two: Ranks, four: Ranks) -> None:
    states = {
        rank: {
            "model": {"w": torch.ones(3)},
            "loader": {"seen": rank * 10, "order": torch.arange(rank, rank + 4 + rank)},
            "stats": torch.tensor([float(rank)]),
        }
        for rank in range(2)
    }
    planner = {"per_rank": ["loader"], "first_rank": ["stats"]}
    with pytest.raises(RankFailed, match="Start the job with a topology"):
        two.run(ranked.save_state, str(run / "none"), states, planner, {})
    place = {"topology": [("dp", 2)], "coordinate": [[("dp", 0)], [("dp", 1)]]}
    path, _ = two.run(ranked.save_state, str(run), states, planner, place)
    assert json.loads(_core.verify_json(path))["ok"]
    blank = {
        rank: {
            "model": {"w": torch.zeros(3)},
            "loader": {"seen": None, "order": torch.zeros(4 + rank, dtype=torch.int64)},
            "stats": torch.zeros(1),
        }
        for rank in range(2)
    }
    back = two.run(ranked.load_mine, path, blank)
    for rank in range(2):
        same(back[rank]["loader"], states[rank]["loader"])
        assert back[rank]["stats"].item() == 0.0  # the lowest rank's
    # On another number of ranks nobody can say whose it is, unless the caller does.
    with pytest.raises(CheckpointException, match="saved by each of 2 ranks for itself"):
        dcp.load({"loader": {"seen": None}}, storage_reader=ws.Reader(path))
    with pytest.raises(CheckpointException, match="saved by each of 2 ranks for itself"):
        dcp.load({"loader": {"order": torch.zeros(4, dtype=torch.int64)}}, storage_reader=ws.Reader(path))
    dcp.load(blank[1], storage_reader=ws.Reader(path, place=[("dp", 1)]))
    same(blank[1]["loader"], states[1]["loader"])
    dcp.load({"model": {"w": torch.zeros(3)}}, storage_reader=ws.Reader(path))
    # Values alone need no topology.
    values = {rank: {"loader": {"seen": rank}} for rank in range(2)}
    path, _ = two.run(ranked.save_state, str(run / "values"), values, planner, {})
    back = two.run(ranked.load_mine, path, {rank: {"loader": {"seen": None}} for rank in range(2)})
    assert [one["loader"]["seen"] for one in back] == [0, 1]


def test_a_text_is_no_sequence_of_patterns() -> None:
    for option in ("per_rank", "first_rank"):
        with pytest.raises(Error, match=f"{option} takes a sequence of patterns"):
            ws.SavePlanner(**{option: "loader"})


def test_a_key_that_is_called_as_a_ranks_own_would_be(run: Path) -> None:
    for key in ("loader@0", "loader@7"):
        with pytest.raises((CheckpointException, Error), match=f"'{key}' is shared, and called as rank"):
            save(run / key, {"loader": 1, key: 2}, per_rank=["loader"])
    save(run, {"loader": 1, "loader@0": 2, "other@0": 3}, per_rank=["loader", "loader@0"])
    save(run / "none", {"loader": 1, "loader@0": 2})


def test_stages_of_a_pipeline(run: Path, two: Ranks) -> None:
    """Each rank has parameters of its own, and its own part of one optimizer."""
    states = {stage: ranked.stage(stage) for stage in range(2)}
    with pytest.raises(RankFailed, match="the job has no topology"):
        two.run(ranked.save_state, str(run / "none"), states, {}, {})
    place = {"topology": [("pp", 2)], "coordinate": [[("pp", 0)], [("pp", 1)]]}
    path, _ = two.run(ranked.save_state, str(run), states, {}, place)
    records = [record for record in _core.Checkpoint.open(path).records() if record[0] == "optimizer"]
    assert [record[2] for record in records] == [[("pp", 0)], [("pp", 1)]]
    from dcp.same import blank

    whole: dict[str, Any] = {"model": {}, "optim": {}}
    for state in states.values():
        for part in whole:
            whole[part] |= state[part]
    read = blank(whole)
    dcp.load(read, storage_reader=ws.Reader(path))
    same(read, whole)
    nested = {stage: ranked.stage(stage, flatten=False) for stage in range(2)}
    with pytest.raises(RankFailed, match="flatten_optimizer_state_dict=True"):
        two.run(ranked.save_state, str(run / "nested"), nested, {}, place)


def test_jobs_and_groups_that_do_not_fit(run: Path, two: Ranks) -> None:
    with pytest.raises(RankFailed, match="DCP saves as rank 0, and the job knows this process as rank 1 of 2"):
        two.run(ranked.save_state, str(run), {"a": torch.ones(1)}, {}, {}, 1, True)


def test_shards_that_are_several_boxes(run: Path, two: Ranks) -> None:
    """DCP's own reader fills them with the wrong elements and says nothing."""
    path = save(run, {"w": torch.arange(8.0)})
    for loading, saving in two.run(ranked.load_strided, path, str(run / "other")):
        assert "holds [2] at [0] and [2] at [4], and DCP takes it for [4] at [0]" in loading
        assert "overlapping" in saving or "boxes" in saving


@pytest.mark.parametrize("key", [True, None, 1.5, (1, 2)])
def test_keys_that_would_come_back_as_text(run: Path, key: Any) -> None:
    with pytest.raises((CheckpointException, Error)) as caught:
        save(run, {"d": {"x": {key: 1}}})
    assert f"the key {key!r} ({type(key).__name__}) at d.x" in str(caught.value)


@pytest.mark.parametrize("planner", [None, ws.LoadPlanner()])
def test_a_value_takes_no_tensors_place_unsaid(run: Path, planner: Any) -> None:
    path = save(run, {"a": 1.5, "b": 2})
    held = torch.zeros(2)
    state: dict[str, Any] = {"a": held, "b": 0}
    with pytest.raises(CheckpointException) as caught:
        dcp.load(state, storage_reader=ws.Reader(path), planner=planner)
    assert "'a' is a value in the checkpoint and a tensor in the state dict" in str(caught.value)
    assert state["a"] is held
    dcp.load(state, storage_reader=ws.Reader(path, cast=True), planner=planner)
    assert state == {"a": 1.5, "b": 2}
