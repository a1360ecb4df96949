"""Records as the specification writes them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from waystation import Error, Record, records


def test_what_the_constructors_write() -> None:
    assert records.progress(7, samples=0, epoch=None) == Record("progress", "main", {"optimizer_step": 7, "samples": 0})
    assert records.value("x", {"a": 1.5}).value == {"map": [["a", {"f64": "3ff8000000000000"}]]}
    assert records.value("x", None).value == {"tree": None} and records.tree_of(records.value("x", 3)) == 3
    assert records.tree_of(records.value("x", [])) == {"list": []}
    assert records.ema("e", decay=None, updates=3).value == {"updates": 3}
    assert records.ema("e", decay=0.5, updates=3).value == {"decay": {"f64": "3fe0000000000000"}, "updates": 3}
    assert records.uncaptured("dropout", "rng", "not readable", coordinate=[("dp", 0)]) == Record(
        "uncaptured", "dropout", {"kind": "rng", "reason": "not readable"}, (("dp", 0),)
    )
    scaler = records.scaler("s", scale={"f32": "47800000"}, growth=2.0, backoff=0.5, interval=2000, good_steps=3)
    assert scaler.value["scale"] == {"f32": "47800000"} and "skipped" not in scaler.value
    assert records.schedule(
        "lr", "constant", unit="epochs", position=2, last_value=[0.1], parameters={"map": [["base", records.f64(0.1)]]}
    ).value == {
        "algorithm": "constant",
        "last_value": [{"f64": "3fb999999999999a"}],
        "position": {"unit": "epochs", "value": 2},
        "parameters": {"map": [["base", {"f64": "3fb999999999999a"}]]},
    }


def test_keys_and_json() -> None:
    record = Record("value", "x", {"b": 1, "a": "é"}, (("dp", 1),))
    assert record.text == '["value","x",[["dp",1]]]' and record.value_json == '{"a":"é","b":1}'


@pytest.mark.parametrize("bad", [True, -1, 1.0, 2**53, "1", None])
def test_counts_are_counts(bad: Any) -> None:
    with pytest.raises(Error, match="count"):
        records.progress(bad)


def test_floats_by_their_bits() -> None:
    for number in (0.0, -0.0, 1.5, math.inf, 5e-324, 0.1):
        assert math.copysign(1, records.float_of(records.f64(number))) == math.copysign(1, number)
        assert records.float_of(records.f64(number)) == number
    assert records.f32(0.5) == {"f32": "3f000000"} and records.float_of({"f32": "3f000000"}) == 0.5
    assert math.isnan(records.float_of(records.f32(math.nan)))
    for bad in (0.1, 1e300):
        with pytest.raises(Error, match="binary32"):
            records.f32(bad)
    for tree in (1.0, 1, None, {"f64": "0", "f32": "0"}, {"int": "5"}):
        with pytest.raises(Error, match="no float"):
            records.float_of(tree)


def test_a_value_without_json_is_refused_with_its_place() -> None:
    with pytest.raises(Error, match="at /a/0"):
        _ = Record("mine", "x", {"a": [1.5]}).value_json
