"""Streams, orders, cursors and what a place gets of them, through `_core`."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waystation import _core
from waystation.errors import Error

SOURCE = hashlib.sha256(b"what the data are").hexdigest()


def code(call: Any) -> str:
    with pytest.raises(Error) as caught:
        call()
    return caught.value.code


def stream(form: str, native: bytes, **more: Any) -> dict[str, Any]:
    more = {"on_reshape": "require", "framework": "test", **more}
    value: dict[str, Any] = json.loads(_core.stream_from_native(form, native, **more))
    return value


def native(form: str, value: dict[str, Any]) -> bytes:
    return _core.stream_to_native(form, json.dumps(value))


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def listed(state: Any) -> bytes:
    return json.dumps(state, default=lambda array: array.tolist()).encode()


def test_python_goes_on_as_it_would_have() -> None:
    source = random.Random(5)
    source.gauss(0, 1)
    value = stream("python", listed(source.getstate()), on_reshape="fork", initial_seed=5)
    assert value["algorithm"] == "mt19937" and value["on_reshape"] == "fork"
    assert value["origin"] == {"framework": "test", "initial_seed": 5} and len(value["next_raw"]) == 4
    version, words, gauss = json.loads(native("python", value))
    other = random.Random()
    other.setstate((version, tuple(words), gauss))
    assert [other.gauss(0, 1) for _ in range(9)] == [source.gauss(0, 1) for _ in range(9)]


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"])
def test_numpy_goes_on_as_it_would_have(kind: str) -> None:
    source = np.random.Generator(getattr(np.random, kind)(3))
    source.integers(0, 2**31, dtype=np.int32)
    value = stream("numpy", listed(source.bit_generator.state))
    state = json.loads(native("numpy", value))
    for name, member in state["state"].items():
        if isinstance(member, list):
            state["state"][name] = np.array(member, np.uint32 if name == "key" and kind == "MT19937" else np.uint64)
    if "buffer" in state:
        state["buffer"] = np.array(state["buffer"], np.uint64)
    other = np.random.Generator(getattr(np.random, kind)(0))
    other.bit_generator.state = state
    assert other.standard_normal(20).tolist() == source.standard_normal(20).tolist()


def test_torch_goes_on_as_it_would_have() -> None:
    torch = pytest.importorskip("torch")
    source = torch.Generator().manual_seed(2**63 + 5)
    torch.randn(3, generator=source)
    bytes_ = source.get_state().numpy().tobytes()
    value = stream("torch-cpu", bytes_)
    assert native("torch-cpu", value) == bytes_
    assert value["origin"]["initial_seed"] == {"int": str(2**63 + 5)}


def test_what_a_form_leaves_unsaid_stands_beside_it() -> None:
    text = {"impl": "threefry2x32", "partitionable": True, "value": [0, 42]}
    value = stream("jax", json.dumps(text).encode())
    assert value["algorithm"].startswith("threefry2x32") and json.loads(native("jax", value)) == text
    del text["partitionable"]
    assert code(lambda: stream("jax", json.dumps(text).encode())) == "bad-argument"
    assert code(lambda: stream("jax", b"[0, 42]")) == "bad-argument"


def test_what_is_no_state_is_refused() -> None:
    assert code(lambda: stream("torch", b"")) == "bad-argument"
    assert code(lambda: stream("torch-cpu", b"short")) == "bad-rng-state"
    assert code(lambda: stream("python", b"(3, (1, 2), None)")) == "bad-rng-state"
    assert code(lambda: stream("mlx", b"[1, 2]", on_reshape="maybe")) == "bad-argument"
    value = stream("mlx", b"[1, 2]")
    assert code(lambda: native("torch-cpu", value)) == "bad-argument"
    assert code(lambda: native("mlx", {**value, "algorithm": "vendor/x"})) == "bad-argument"
    assert code(lambda: _core.stream_to_native("mlx", "{")) == "bad-argument"


def test_orders_are_those_of_the_frameworks() -> None:
    torch = pytest.importorskip("torch")
    order = json.dumps({"algorithm": "torch.randperm-cpu", "seed": 7, "seed_rule": "seed+epoch"})
    for epoch in (0, 3):
        expected = torch.randperm(1000, generator=torch.Generator().manual_seed(7 + epoch)).tolist()
        assert _core.order(order, 1000, epoch, 0, 1000) == expected
        assert _core.order(order, 1000, epoch, 990, 99) == expected[990:]
    assert _core.order('{"algorithm":"identity","n":9}', 9, 0, 4, 2) == [4, 5]
    assert code(lambda: _core.order('{"algorithm":"identity","n":9}', 8, 0, 4, 2)) == "bad-argument"
    assert code(lambda: _core.order('{"algorithm":"numpy.permutation"}', 8, 0, 0, 2)) == "not-exact"


def permuted(n: int, seed: int, position: int = 0) -> dict[str, Any]:
    order = {"algorithm": "torch.randperm-cpu", "n": n, "seed": seed, "seed_rule": "seed+epoch"}
    epoch_end = {"rule": "drop-last", "unit": 10}
    source = {"records": n, "sha256": SOURCE}
    return {
        "epoch": 0,
        "epoch_end": epoch_end,
        "kind": "permuted-index",
        "order": order,
        "position": position,
        "source": source,
    }


def cursor(root: dict[str, Any]) -> str:
    """A cursor at its beginning, whose canary nobody has taken yet: a walk makes it."""
    partition = {"axes": ["dp"], "batch": 10, "rule": "round-robin"}
    value = {"consumed": 0, "partition": partition, **root}
    return json.dumps(value)


def test_a_walk_gives_batches_shares_and_where_it_stands() -> None:
    order = json.dumps({"algorithm": "torch.randperm-cpu", "seed": 7, "seed_rule": "seed+epoch"})
    first, second = _core.order(order, 25, 0, 0, 25), _core.order(order, 25, 1, 0, 25)
    walk = _core.Walk(cursor(permuted(25, 7)))
    assert walk.take(3) == first[:3] and walk.skip(7) == 7
    assert walk.batch(10) == first[10:20]  # five are left and dropped
    stands = walk.cursor_json(10)
    assert walk.share(10, "round-robin", 1, 3) == second[1:10:3]
    again = _core.Walk(stands)
    assert again.share(10, "contiguous", 1, 2) == second[5:10]
    assert json.loads(stands)["consumed"] == 20 and json.loads(stands)["next"]["count"] == 10


def test_items_of_mixtures_say_of_which_child_they_are() -> None:
    root = {
        "children": [permuted(20, 1), permuted(30, 2)],
        "kind": "mixture",
        "selection": {"algorithm": "deficit", "end": "all", "taken": [0, 0], "weights": [1, 1]},
    }
    walk = _core.Walk(cursor(root))
    items = walk.take(4)
    assert {child for child, _ in items} == {0, 1} and all(isinstance(item, int) for _, item in items)


def test_a_walk_that_failed_is_not_walked_on(opened: _core.Checkpoint) -> None:
    walk = _core.Walk(cursor(permuted(10_000, 7)), budget=5)
    assert code(lambda: walk.take(20_000)) == "limit"
    assert code(lambda: walk.take(1)) == "bad-argument"
    # Only a walk does without a canary: a record does not.
    assert code(lambda: opened.walk(cursor(permuted(10, 7)))) == "bad-member"
    assert code(lambda: _core.Walk("{}")) == "bad-member"
    assert code(lambda: _core.Walk(cursor(permuted(10, 7))).share(10, "by-chance", 0, 2)) == "bad-argument"


@pytest.fixture
def opened(tmp_path: Path) -> _core.Checkpoint:
    """A save of two data-parallel ranks with a stream of each, a shared one, and a cursor."""
    plan = _core.SessionPlan.next_in(str(tmp_path), "job", writers=1, topology=[("dp", 2)])
    name = _core.make_attempt(str(tmp_path), plan, 20, 0)
    session = _core.Session.begin(str(tmp_path / name), plan, 20, 0, 0)

    def seeded(seed: int, on_reshape: str) -> str:
        state = listed(random.Random(seed).getstate())
        return _core.stream_from_native("python", state, on_reshape=on_reshape, framework="python")

    session.record("progress", "main", (), canonical({"optimizer_step": 20, "samples": 20}))
    session.record("rng", "shared", (), seeded(1, "require"))
    for rank in range(2):
        session.record("rng", "own", [("dp", rank)], seeded(2 + rank, "fork"))
    walk = _core.Walk(cursor(permuted(25, 7)))
    walk.batch(10)
    session.record("cursor", "train", (), walk.cursor_json(8))
    session.record("value", "note", (), canonical({"list": [1, {"int": str(2**70)}]}))
    session.lay_out().finish()
    _core.commit(str(tmp_path / name), run_path=str(tmp_path), name=name)
    return _core.Checkpoint.open(str(tmp_path / name))


def restored(opened: _core.Checkpoint, size: int, rank: int, **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(opened.restore_json([("dp", size)], [("dp", rank)], json.dumps(options)))
    return answer


def test_a_place_of_the_same_topology_gets_all_as_saved(opened: _core.Checkpoint) -> None:
    got = restored(opened, 2, 1, sources=[["train", 25, SOURCE]])
    assert got["refused"] is None and got["progress"] == {"optimizer_step": 20, "samples": 20}
    own, shared = got["streams"]
    assert (own["name"], own["grade"], own["coordinate"], own["forked"]) == ("own", "exact", [["dp", 1]], False)
    assert (shared["name"], shared["reason"], shared["coordinate"]) == ("shared", None, [])
    version, words, gauss = json.loads(native("python", own["value"]))
    other = random.Random()
    other.setstate((version, tuple(words), gauss))
    assert other.random() == random.Random(3).random()
    (train,) = got["cursors"]
    assert (train["grade"], train["rank"], train["wanted"]) == ("exact", [1, 2], [])
    walk = opened.walk(json.dumps(train["cursor"]))
    order = json.dumps({"algorithm": "torch.randperm-cpu", "seed": 7, "seed_rule": "seed+epoch"})
    assert walk.batch(10) == _core.order(order, 25, 0, 10, 10)
    assert [(one["kind"], one["name"], one["grade"]) for one in got["report"]] == [
        ("cursor", "train", "exact"),
        ("progress", "main", "exact"),
        ("rng", "own", "exact"),
        ("rng", "shared", "exact"),
        ("value", "note", "exact"),
    ]


def test_another_topology_is_refused_until_it_is_asked_for(opened: _core.Checkpoint) -> None:
    got = restored(opened, 3, 2, sources=[["train", 25, SOURCE]])
    assert got["refused"]["code"] == "not-exact" and '"own"' in got["refused"]["record"]
    got = restored(opened, 3, 2, sources=[["train", 25, SOURCE]], streams="fork")
    assert got["refused"] is None
    own = got["streams"][0]
    assert (own["grade"], own["forked"], own["coordinate"]) == ("fork", True, [["dp", 2]])
    assert own["value"]["fork"]["coordinate"] == [["dp", 2]] and own["value"]["fork"]["manifest"] == opened.digest
    assert own["value"] != restored(opened, 3, 1, streams="fork")["streams"][0]["value"]


def test_what_is_not_offered_is_wanted(opened: _core.Checkpoint) -> None:
    got = restored(opened, 2, 0)
    (train,) = got["cursors"]
    assert train["cursor"] is None and train["wanted"] == [[25, SOURCE]] and train["reason"]
    assert got["refused"]["record"] == '["cursor","train",[]]'
    assert restored(opened, 2, 0, leave_out=["train"])["refused"] is None
    assert restored(opened, 2, 0, cursors="none")["refused"] is None
    assert code(lambda: restored(opened, 2, 0, sources=[["train", 26, SOURCE]])) == "source-changed"
    assert code(lambda: restored(opened, 2, 0, leave_out=["trains"])) == "bad-argument"


def test_options_and_places_of_another_form_are_refused(opened: _core.Checkpoint) -> None:
    for options in ({"stream": "fork"}, {"streams": "good"}, {"sources": [["train", 25]]}, {"budget_steps": -1}):
        assert code(lambda: restored(opened, 2, 0, **options)) == "bad-argument"
    assert code(lambda: restored(opened, 2, 2)) == "bad-argument"
    assert code(lambda: opened.restore_json([("dp", 2)], [], "{}")) == "bad-argument"
    assert code(lambda: opened.restore_json([("dp", 2)], [("dp", 0)], "[]")) == "bad-argument"


def test_grades_without_a_place(opened: _core.Checkpoint) -> None:
    grades = {(one["kind"], one["name"]): one["grade"] for one in json.loads(opened.grades_json())}
    assert grades == {
        ("cursor", "train"): "exact",
        ("progress", "main"): "exact",
        ("rng", "own"): "exact-if-axes-unchanged",
        ("rng", "shared"): "exact",
        ("value", "note"): "exact",
    }
