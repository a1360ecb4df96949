"""Arguments of another form: each call says which argument it was, what was expected and what was found, and never panics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from waystation import _core
from waystation.errors import Error

KEY = made.param("w")
IDENTITY = '{"algorithm":"identity"}'

#: Values of which no argument takes all. Which of them one takes is not the matter here.
WRONG = [object(), -1, 2**70, 1.5, float("nan"), None, "x", b"x", True, [1], [-1], [2**70], [("a", -1)], [(1,)], (1, 2, 3), {}]

#: What is said of a value of another type: ours, or what Python says of its own types.
SENSE = re.compile(
    r"^expected |is not an instance of '(str|bytes|bool|tuple|list|SessionPlan)'$|^must be real number, not |"
    r"os\.PathLike object, not |embedded null"
)


def walk() -> _core.Walk:
    source = {"records": 5, "sha256": "ab" * 32}
    order = {"algorithm": "identity", "n": 5}
    leaf = {"epoch": 0, "epoch_end": {"rule": "stop"}, "kind": "permuted-index", "order": order, "position": 0}
    return _core.Walk(json.dumps({"consumed": 0, **leaf, "source": source}))


class Made:
    """What calls are about, each new where it can be used up."""

    def __init__(self, root: Path) -> None:
        self.root, self.count = root, 0
        self.path = made.checkpoint(root / "c", {KEY: np.arange(8, dtype="f4")})
        self.run = str(root / "run")
        self.plan = _core.SessionPlan.next_in(self.run, "demo", writers=1)
        self.opened = _core.Checkpoint.open(self.path)

    def new(self) -> str:
        self.count += 1
        return str(self.root / f"new-{self.count}")

    def session(self) -> _core.Session:
        return _core.Session.standing_alone(self.new(), run="r", step=1)


def zeros() -> Any:
    return np.zeros(32, "u1")


#: Every function, and good arguments.
CALLS: dict[str, Callable[[Made], tuple[Callable[..., Any], dict[str, Any]]]] = {
    "Checkpoint.open": lambda m: (
        _core.Checkpoint.open,
        {"path": m.path, "verify_reads": True, "threads": 1, "memory_budget": 1 << 30, "trust_links": False},
    ),
    "find": lambda m: (m.opened.find, {"key": KEY}),
    "find_named": lambda m: (m.opened.find_named, {"component": "main", "name": "w"}),
    "read": lambda m: (m.opened.read, {"wants": [(KEY, None, zeros())], "progress": None}),
    "map": lambda m: (m.opened.map, {"key": KEY}),
    "attachment": lambda m: (m.opened.attachment, {"path": "x"}),
    "restore_json": lambda m: (m.opened.restore_json, {"topology": (), "coordinate": (), "options_json": "{}"}),
    "Checkpoint.walk": lambda m: (m.opened.walk, {"cursor_json": "{}", "budget": 1}),
    "Walk": lambda m: (_core.Walk, {"cursor_json": "{}", "budget": 1}),
    "take": lambda m: (walk().take, {"count": 1}),
    "batch": lambda m: (walk().batch, {"count": 1}),
    "share": lambda m: (walk().share, {"batch": 2, "rule": "round-robin", "rank": 0, "ranks": 1}),
    "skip": lambda m: (walk().skip, {"count": 1}),
    "cursor_json": lambda m: (walk().cursor_json, {"canary": 1}),
    "order": lambda m: (_core.order, {"order_json": IDENTITY, "n": 3, "epoch": 0, "first": 0, "count": 1}),
    "stream_from_native": lambda m: (
        _core.stream_from_native,
        {"form": "numpy", "native": b"{}", "on_reshape": "fork", "framework": "x", "initial_seed": 1},
    ),
    "stream_to_native": lambda m: (_core.stream_to_native, {"form": "numpy", "value_json": "{}"}),
    "next_in": lambda m: (
        _core.SessionPlan.next_in,
        {"run_path": m.new(), "name": "x", "writers": 1, "topology": (), "parent": None, "block_bytes": 1 << 20},
    ),
    "from_json": lambda m: (_core.SessionPlan.from_json, {"json": "{}"}),
    "attempt_name": lambda m: (m.plan.attempt_name, {"step": 1, "counter": 0}),
    "make_attempt": lambda m: (_core.make_attempt, {"run_path": m.run, "plan": m.plan, "step": 1, "counter": m.count}),
    "begin": lambda m: (
        _core.Session.begin,
        {"path": m.new(), "plan": m.plan, "step": 1, "counter": 0, "writer": 0, "threads": 1, "shard_bytes": None},
    ),
    "standing_alone": lambda m: (
        _core.Session.standing_alone,
        {"path": m.new(), "run": "r", "step": 1, "topology": (), "parent": None, "block_bytes": 1 << 20, "threads": 1},
    ),
    "declare": lambda m: (
        m.session().declare,
        {"key": KEY, "dtype": "F32", "shape": (1,), "axes": None, "valid": None, "block": None, "native": ()},
    ),
    "chunk": lambda m: (
        m.session().chunk,
        {"key": KEY, "dtype": "F32", "shape": (1,), "start": (0,), "extent": (1,), "axes": None, "block": None},
    ),
    "alias": lambda m: (m.session().alias, {"component": "main", "role": "param", "name": "v", "of": KEY, "native": ()}),
    "record": lambda m: (m.session().record, {"kind": "value", "name": "x", "coordinate": (), "value_json": "{}"}),
    "omit": lambda m: (m.session().omit, {"component": "main", "names": ["a"], "reason": "frozen"}),
    "inventory": lambda m: (m.session().inventory, {"keys": [KEY]}),
    "attach": lambda m: (m.session().attach, {"path": "a", "data": b""}),
    "attach_file": lambda m: (m.session().attach_file, {"path": "a", "source": m.new()}),
    "producer": lambda m: (m.session().producer, {"name": "a", "version": "1"}),
    "write": lambda m: (m.session().lay_out().write, {"chunks": [(0, zeros())], "threads": 1, "progress": None}),
    "commit": lambda m: (
        _core.commit,
        {"path": m.new(), "run_path": None, "name": None, "deadline": 0.01, "poll": 0.01, "progress": None},
    ),
    "verify_json": lambda m: (_core.verify_json, {"path": m.path, "quick": True, "threads": 1, "progress": None}),
    "latest_json": lambda m: (_core.latest_json, {"run_path": m.run}),
    "list_json": lambda m: (_core.list_json, {"run_path": m.run}),
    "gc_json": lambda m: (
        _core.gc_json,
        {"run_path": m.new(), "keep_last": 1, "keep_every": None, "uncommitted_older_than": None, "dry_run": True},
    ),
    "abandon": lambda m: (_core.abandon, {"run_path": m.run, "name": "x"}),
    "reject": lambda m: (_core.reject, {"path": m.new(), "reason": "x"}),
    "pin": lambda m: (_core.pin, {"path": m.new(), "name": "x"}),
    "unpin": lambda m: (_core.unpin, {"path": m.new(), "name": "x"}),
    "salvage": lambda m: (_core.salvage, {"path": m.new(), "progress": None}),
    "copy": lambda m: (_core.copy, {"source": m.new(), "out": m.new(), "progress": None}),
    "reshard": lambda m: (_core.reshard, {"source": m.new(), "out": m.new(), "writers": 1, "progress": None}),
    "copy_bytes": lambda m: (_core.copy_bytes, {"memory": zeros(), "sources": [(zeros(), 0, 32)], "threads": 1}),
    "export": lambda m: (
        _core.export,
        {"path": m.path, "out": m.new(), "roles": ["param"], "component": "main", "max_shard_bytes": None, "single": False},
    ),
    "import_json": lambda m: (
        _core.import_json,
        {"source": m.new(), "out": m.new(), "run_path": None, "step": 0, "writers": 1, "attach": ()},
    ),
}


def said(error: BaseException) -> str:
    return " ".join([str(error), *getattr(error, "__notes__", [])])


@pytest.fixture(scope="module")
def about(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("arguments"))


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_such_argument_is_said(about: Made, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is relative is made here.
    monkeypatch.chdir(about.root)
    refused = 0
    for argument in CALLS[name](about)[1]:
        for wrong in WRONG:
            function, good = CALLS[name](about)
            try:
                function(**{**good, argument: wrong})
            except Error as error:
                assert "expected" in str(error) or error.code in ("exists", "io", "not-found"), f"{argument}={wrong!r}: {error}"
                refused += 1
            except (TypeError, ValueError) as error:
                assert type(error) in (TypeError, ValueError), f"{argument}={wrong!r}: {error!r}"
                assert SENSE.search(str(error)), f"{argument}={wrong!r}: {error!r}"
                assert f"'{argument}'" in said(error), f"{argument}={wrong!r}: {said(error)}"
                refused += 1
    assert refused >= len(CALLS[name](about)[1]) * 3


def test_every_function_is_asked() -> None:
    def functions(of: Any) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_") and callable(getattr(of, name))}

    asked = {name.rpartition(".")[2] for name in CALLS}
    all_ = functions(_core) | {name for of in (_core.Checkpoint, _core.Walk, _core.Session, _core.SessionPlan, _core.Writing) for name in functions(of)}
    without = {"manifest_json", "entries", "records", "attachments", "grades_json", "to_json", "lay_out", "finish", "close"}
    classes = {"Checkpoint", "Entry", "Mapped", "Session", "SessionPlan", "Walk", "Writing"}
    # `main` is the program: its process is the program's from then on.
    assert all_ - asked - without - (classes - {"Walk"}) == {"main"}


def test_what_is_used_up_says_so(about: Made) -> None:
    session = about.session()
    writing = session.lay_out()
    writing.finish()
    for call in (
        lambda: session.declare(KEY, "F32", (1,)),
        lambda: session.alias("main", "param", "v", KEY),
        lambda: session.attach("a", b""),
        session.lay_out,
        lambda: writing.write([]),
        writing.finish,
    ):
        with pytest.raises(Error, match="expected") as caught:
            call()
        assert caught.value.code == "bad-argument"
