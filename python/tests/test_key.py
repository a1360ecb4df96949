"""Identities, as the specification writes them."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from waystation import Error, Key
from waystation._json import canonical


def test_the_text_is_the_identity_key_of_the_specification() -> None:
    key = Key.optimizer("model.w", "adam.m", "main")
    assert key.text == '["main","optimizer","model.w","adam.m","main",[]]'
    assert str(key) == key.text
    assert Key.param("w", component="critic", scope=[("tp", 1)]).text == '["critic","param","w","","",[["tp",1]]]'


def test_strings_are_escaped_canonically() -> None:
    assert Key.param('q"\\é🎈').text == '["main","param","q\\"\\\\é🎈","","",[]]'


def test_a_key_is_the_tuple_of_the_native_half() -> None:
    key = Key.buffer("b")
    assert tuple(key) == ("main", "buffer", "b", None, None, ())
    assert key == ("main", "buffer", "b", None, None, ()) and hash(key) == hash(tuple(key))
    assert Key(role="param", name="w") == Key.param("w") == Key("main", "param", "w")


@pytest.mark.parametrize(
    "key",
    [
        Key.param("w"),
        Key.buffer("b", component="x"),
        Key.optimizer("w", "adam.v", "o", scope=[("dp", 2), ("tp", 0)]),
        Key(role="extension", name="e"),
        Key(role="extension", name="e", slot="torch/x"),
        Key(role="quant", name="w", slot="scale"),
    ],
)
def test_there_and_back(key: Key) -> None:
    assert Key.from_text(key.text) == key and Key.from_identity(key.identity) == key and Key.of(tuple(key)) == key
    assert pickle.loads(pickle.dumps(key)) == key and type(copy.deepcopy(key)) is Key


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "weights", "name": "w"},
        {"name": ""},
        {"name": "w", "slot": "adam.m"},
        {"name": "w", "owner": "o"},
        {"role": "optimizer", "name": "w"},
        {"role": "optimizer", "name": "w", "slot": "adam.m"},
        {"role": "optimizer", "name": "w", "slot": "", "owner": "o"},
        {"role": "ema", "name": "w"},
        {"role": "quant", "name": "w"},
        {"role": "blob", "name": "w", "slot": "s"},
    ],
)
def test_what_goes_not_together_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(Error) as refused:
        Key(**bad)
    assert refused.value.code == "bad-argument"


@pytest.mark.parametrize(
    "bad", ["", "{}", "[1]", '["main","param","w"]', '["main","param","w","","",[["a"]]]', '["main","x","w","","",[]]']
)
def test_what_is_no_identity_key_is_refused(bad: str) -> None:
    with pytest.raises(Error) as refused:
        Key.from_text(bad)
    assert refused.value.code == "bad-argument"


def test_canonical_json() -> None:
    value = {"b": [1, None, True], "a": {"é": "\x00\n\x1f\x7f/"}}
    assert canonical(value) == '{"a":{"é":"\\u0000\\n\\u001f\x7f/"},"b":[1,null,true]}'
    assert json.loads(canonical(value)) == value


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        (1.5, "/"),
        ({"a": [0, float("nan")]}, "/a/1"),
        ({1: 2}, "/"),
        ([2**53], "/0"),
        ({"x": {"y": b""}}, "/x/y"),
        ({"a": {1}}, "/a"),
    ],
)
def test_what_has_no_canonical_json_is_refused_with_its_place(bad: Any, place: str) -> None:
    with pytest.raises(Error, match=f"at {place}:"):
        canonical(bad)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x\u202e", "é" * 513, "line\n"])
def test_what_is_no_name_is_refused(name: str) -> None:
    for make in (
        lambda: Key.param(name),
        lambda: Key.param("w", component=name),
        lambda: Key.param("w", scope=[(name, 0)]),
        lambda: Key.optimizer("w", name, "main"),
        lambda: Key.optimizer("w", "adam.m", name),
    ):
        with pytest.raises(Error) as refused:
            make()
        assert refused.value.code == "bad-name" and str(refused.value).encode()
    assert Key.param("é" * 512).name
