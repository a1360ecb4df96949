"""What a place gets, how it is graded, and what is refused."""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

import numpy as np
import pytest

import waystation
from waystation import Checkpoint, Error, Record, _core, arrays, records, resume, tree
from waystation._json import canonical
from waystation.key import Key

DATA = "ab" * 32


def stream(seed: int, on_reshape: str = "require") -> dict[str, Any]:
    state = np.random.PCG64(seed).state
    return json.loads(
        _core.stream_from_native("numpy", json.dumps(state).encode(), on_reshape=on_reshape, framework="numpy")
    )  # type: ignore[no-any-return]


ORDER = {"algorithm": "torch.randperm-cpu", "n": 100, "seed": 7, "seed_rule": "seed+epoch"}


def cursor(position: int) -> dict[str, Any]:
    value = {
        "consumed": position,
        "epoch": 0,
        "epoch_end": {"rule": "drop-last", "unit": 4},
        "kind": "permuted-index",
        "order": ORDER,
        "partition": {"axes": ["dp"], "batch": 4, "rule": "round-robin"},
        "position": position,
        "source": {"records": 100, "sha256": DATA},
    }
    return json.loads(_core.Walk(canonical(value)).cursor_json(8))  # type: ignore[no-any-return]


def saved(path: pathlib.Path, more: list[Record], ranks: int = 2) -> Checkpoint:
    plan = _core.SessionPlan.next_in(str(path), "demo", writers=1, topology=[("dp", ranks)])
    where = path / _core.make_attempt(str(path), plan, 10, 0)
    session = _core.Session.begin(str(where), plan, 10, 0, 0)
    w = np.ones(4, np.float32)
    session.chunk(Key.param("w"), "F32", (4,), (0,), (4,))
    optimizer = {
        "algorithm": "sgd",
        "groups": [{"hyper": [["lr", records.f64(0.1)]], "name": "g", "params": [["main", "w"]]}],
        "steps": [{"params": "all", "step": 10, "stored_as": "int"}],
    }
    for record in [records.progress(10, samples=40), Record("optimizer", "main", optimizer), *more]:
        session.record(record.kind, record.name, record.coordinate, record.value_json)
    writing = session.lay_out()
    writing.write([(0, arrays.as_bytes(w))])
    writing.finish()
    _core.commit(str(where))
    return waystation.open(where)


@pytest.fixture
def ckpt(tmp_path: pathlib.Path) -> Checkpoint:
    per_rank = [Record("rng", "dropout", stream(rank, "fork"), (("dp", rank),)) for rank in range(2)]
    schedule = records.schedule(
        "lr",
        "constant",
        unit="optimizer_steps",
        position=10,
        last_value=[0.1],
        parameters={"map": [["base", records.f64(0.1)]]},
    )
    return saved(
        tmp_path,
        [
            *per_rank,
            Record("rng", "shared", stream(9)),
            Record("cursor", "train", cursor(40)),
            schedule,
            records.ema("avg", decay=0.99, updates=10),
            records.value("extra", {"a": (1, 2.5)}),
            records.scaler("amp", scale=2.0, growth=2.0, backoff=0.5, interval=10, good_steps=1),
        ],
    )


SOURCES: dict[str, Any] = {"train": (100, DATA)}


def test_all_of_a_place_as_it_was_saved(ckpt: Checkpoint) -> None:
    restored = waystation.restore(ckpt, coordinate=[("dp", 1)], sources=SOURCES)
    assert restored.topology == (("dp", 2),) and restored.coordinate == (("dp", 1),) and restored.step == 10
    assert restored.progress == resume.Progress(10, samples=40) and restored.refused is None
    assert restored.optimizers["main"].value["algorithm"] == "sgd" and restored.averages["avg"].value["updates"] == 10
    assert (
        restored.schedules["lr"].value["algorithm"] == "constant"
        and records.float_of(restored.scalers["amp"].value["scale"]) == 2
    )
    assert restored.value("extra") == {"a": (1, 2.5)}
    assert restored.streams["dropout"].value == stream(1, "fork") and restored.streams["dropout"].coordinate == (
        ("dp", 1),
    )
    assert restored.streams["shared"].value == stream(9) and not restored.streams["shared"].forked
    train = restored.cursors["train"]
    assert (train.grade, train.rank, train.ranks, train.wanted) == ("exact", 1, 2, ())
    assert train.value == cursor(40)
    assert restored.walk("train").take(8) == _core.order(canonical(ORDER), 100, 0, 40, 8)
    assert restored.report.exact and restored.report.worst() == "exact" and len(restored.report) == 9
    native = _core.stream_to_native("numpy", canonical(restored.streams["shared"].value))
    generator = np.random.PCG64()
    generator.state = json.loads(native)
    assert np.random.Generator(generator).random() == np.random.Generator(np.random.PCG64(9)).random()


def test_on_another_topology_a_fork_must_be_put_up_with(ckpt: Checkpoint) -> None:
    place: dict[str, Any] = {"topology": [("dp", 3)], "coordinate": [("dp", 2)], "sources": SOURCES}
    with pytest.raises(waystation.NotExactError, match="dropout"):
        waystation.restore(ckpt, **place)
    seen = waystation.appraise(ckpt, **place)
    assert (
        isinstance(seen.refused, waystation.NotExactError) and seen.report.worst() == "fork" and not seen.report.exact
    )
    restored = waystation.restore(ckpt, streams="fork", **place)
    forked = restored.streams["dropout"]
    assert forked.forked and forked.grade == "fork" and forked.value is not None and "fork" in forked.value
    assert restored.cursors["train"].rank == 2 and restored.cursors["train"].ranks == 3
    again = waystation.restore(ckpt, streams="fork", **place)
    assert again.streams["dropout"] == forked


def test_a_required_stream_is_never_let_go_of_silently(tmp_path: pathlib.Path) -> None:
    checkpoint = saved(tmp_path, [Record("rng", "r", stream(rank), (("dp", rank),)) for rank in range(2)])
    for streams in ("exact", "fork", "none"):
        with pytest.raises(waystation.NotExactError):
            waystation.restore(checkpoint, topology=[("dp", 1)], coordinate=[("dp", 0)], streams=streams)
    restored = waystation.restore(checkpoint, topology=[("dp", 1)], coordinate=[("dp", 0)], leave_out=["r"])
    assert all(stream.value is None for stream in restored.streams.values()) and restored.report.worst() == "none"


def test_other_data_are_refused(ckpt: Checkpoint) -> None:
    with pytest.raises(Error) as refused:
        waystation.restore(ckpt, coordinate=[("dp", 0)], sources={"train": (100, "cd" * 32)})
    assert refused.value.code == "source-changed"
    with pytest.raises(waystation.NotExactError, match="train"):
        waystation.restore(ckpt, coordinate=[("dp", 0)])
    assert waystation.appraise(ckpt, coordinate=[("dp", 0)]).cursors["train"].wanted == ((100, DATA),)
    without = waystation.restore(ckpt, coordinate=[("dp", 0)], cursors="none")
    assert without.cursors["train"].value is None
    with pytest.raises(KeyError, match="no cursor 'train' is restored: none"):
        without.walk("train")
    with pytest.raises(KeyError, match="no cursor 'other'"):
        without.walk("other")
    with pytest.raises(KeyError, match="no value 'other'"):
        without.value("other")


def test_a_place_that_is_none(ckpt: Checkpoint) -> None:
    for place in (
        {"coordinate": []},
        {"coordinate": [("dp", 2)]},
        {"coordinate": [("tp", 0)]},
        {"topology": [("dp", 0)]},
    ):
        with pytest.raises(Error) as refused:
            waystation.appraise(ckpt, sources=SOURCES, **place)  # type: ignore[arg-type]
        assert refused.value.code == "bad-argument"
    for bad in ({"leave_out": "train"}, {"sources": {"train": DATA}}, {"streams": "perfect"}, {"budget_steps": -1}):
        with pytest.raises(Error) as refused:
            waystation.appraise(ckpt, coordinate=[("dp", 0)], **bad)  # type: ignore[arg-type]
        assert refused.value.code == "bad-argument"


def test_an_opaque_cursor_needs_its_fingerprint(tmp_path: pathlib.Path) -> None:
    fingerprint = {"workers": 2, "version": "0.11"}
    value = {
        "fingerprint": tree.to_tree(fingerprint),
        "kind": "opaque",
        "media_type": "torchdata",
        "state": tree.to_tree(b"s"),
    }
    checkpoint = saved(tmp_path, [Record("cursor", "train", value)])
    at: dict[str, Any] = {"coordinate": [("dp", 0)], "cursors": "opaque-same-topology"}
    restored = waystation.restore(checkpoint, fingerprints={"train": fingerprint}, **at)
    assert restored.cursors["train"].grade == "opaque-same-topology" and restored.cursors["train"].value == value
    for offered in ({}, {"train": {"workers": 3, "version": "0.11"}}):
        with pytest.raises(Error):
            waystation.restore(checkpoint, fingerprints=offered, **at)


def test_a_budget_keeps_a_long_canary_from_being_computed(ckpt: Checkpoint) -> None:
    with pytest.raises(waystation.NotExactError):
        waystation.restore(ckpt, coordinate=[("dp", 0)], sources=SOURCES, budget_steps=1)


def test_a_damaged_stream_is_found_before_anything_is_handed_out(tmp_path: pathlib.Path) -> None:
    value = stream(1)
    value["next_raw"] = list(reversed(value["next_raw"]))
    with pytest.raises(Error) as refused:
        saved(tmp_path, [Record("rng", "r", value)])
    assert refused.value.code == "canary-mismatch"


def test_the_report_is_a_table(ckpt: Checkpoint) -> None:
    seen = waystation.appraise(ckpt, topology=[("dp", 3)], coordinate=[("dp", 0)])
    lines = str(seen.report).splitlines()
    assert lines[0].split() == ["kind", "name", "at", "grade", "why"] and len(lines) == len(seen.report) + 1
    assert any(line.startswith("rng") and "dropout" in line and "fork" in line for line in lines)
    assert str(resume.GradedReport()) == "no records"
    assert all(len(line) == len(line.rstrip()) for line in lines)
    whole = resume.grades(ckpt)
    assert {graded.grade for graded in whole if graded.name == "dropout"} == {"exact-if-axes-unchanged"}


def test_random_places_say_what_the_program_says(ckpt: Checkpoint) -> None:
    rng = random.Random(4)
    for _ in range(5):
        size = rng.randrange(1, 6)
        seen = waystation.appraise(
            ckpt, topology=[("dp", size)], coordinate=[("dp", rng.randrange(size))], sources=SOURCES
        )
        assert (seen.refused is None) == (size == 2 and seen.report.exact)
