"""Value trees: what goes in comes back in type, order and bits, and what cannot is refused with its place."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import json
import pathlib
import random
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from waystation import arrays, dtypes, records, tree
from waystation._json import canonical
from waystation.errors import Error
from waystation.key import Key

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "conformance" / "vectors" / "state-dicts"


class Held:
    """A stored tensor that lies in memory."""

    def __init__(self, dtype: str, shape: tuple[int, ...], data: bytes) -> None:
        self.dtype, self.shape, self.data = dtype, shape, data

    def raw(self) -> Any:
        return np.frombuffer(self.data, np.uint8).copy()

    def numpy(self) -> Any:
        return self.raw().view(dtypes.numpy_dtype(self.dtype)).reshape(self.shape)

    def torch(self) -> Any:
        raw = (
            torch.frombuffer(bytearray(self.data), dtype=torch.uint8)
            if self.data
            else torch.empty(0, dtype=torch.uint8)
        )
        return raw.view(dtypes.torch_dtype(self.dtype)).reshape(self.shape)


class Store(tree.TreeTensors):
    """Keeps tensors and gives them back."""

    def get(self, key: Key) -> Held:
        piece = next(piece for piece in self.pieces if piece.key == key)
        return Held(piece.dtype, piece.shape, arrays.as_bytes(piece.data).tobytes())


def round_trip(obj: Any) -> Any:
    store = Store("x")
    written = tree.to_tree(obj, store)
    text = canonical(written)
    read = json.loads(text)
    back = tree.from_tree(read, store.get)
    assert canonical(tree.to_tree(back, Store("x"))) == text
    assert [key.text for key in tree.keys_in(read)] == sorted(
        (p.key.text for p in store.pieces), key=[k.text for k in tree.keys_in(read)].index
    )
    return back


def same(one: Any, two: Any) -> bool:
    if type(one) is not type(two):
        return False
    if isinstance(one, torch.Tensor):
        return (
            one.dtype == two.dtype
            and one.shape == two.shape
            and one.requires_grad == two.requires_grad
            and bytes(arrays.as_bytes(one)) == bytes(arrays.as_bytes(two))
        )
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    if isinstance(one, dict):
        return (
            list(map(type, one)) == list(map(type, two))
            and list(one) == list(two)
            and all(same(one[key], two[key]) for key in one)
            and vars_of(one) == vars_of(two)
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, (set, frozenset)):
        return one == two and {type(item) for item in one} == {type(item) for item in two}
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", two)
    if isinstance(one, complex):
        return same(one.real, two.real) and same(one.imag, two.imag)
    return bool(one == two)


def vars_of(obj: Any) -> Any:
    return getattr(obj, "__dict__", None)


def bits(pattern: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", pattern))[0])


ODD: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "one": 1,
    "empty": "",
    "text": 'a"\\\n\x00\x7fé\u2028🎈',
    "edge": 2**53 - 1,
    "beyond": 2**53,
    "below": -(2**53),
    "big": 2**200,
    "small": -(10**400),
    "minus zero": -0.0,
    "inf": float("inf"),
    "-inf": float("-inf"),
    "nan": bits(0x7FF8000000000000),
    "payload": bits(0xFFF8000DEADBEEF1),
    "signalling": bits(0x7FF0000000000001),
    "subnormal": 5e-324,
    "bytes": b"\x00\xff",
    "no bytes": b"",
    "bytearray": bytearray(b"ab"),
    "most": bytes(8192),
    "long": bytes(range(256)) * 33,
    "long array": bytearray(9000),
    "list": [1, [2, []], ()],
    "tuple": (1, (2,), [], ()),
    "dict": {"b": 1, "a": 2, 1: "int", -5: 0, 2**70: 1},
    "order": {"z": 0, "y": {"x": 1}},
    "both": {1: "int", "1": "text"},
    "set": {1, "a", (2, 3), None, 2.5},
    "frozen": frozenset({frozenset(), 1}),
    "empty set": set(),
    "ordered": collections.OrderedDict(z=1, a=[2]),
    "counter": collections.Counter("hello"),
    "default": collections.defaultdict(None, a=1),
    "complex": complex(-0.0, float("nan")),
    "size": torch.Size([3, 0, 2]),
    "torch dtype": [torch.bfloat16, torch.int64, torch.uint4, torch.complex32],
    "device": [torch.device("cpu"), torch.device("cuda:3"), torch.device("meta")],
    "numpy dtype": [
        np.dtype("f4"),
        np.dtype(">i8"),
        np.dtype("U7"),
        np.dtype("M8[ns]"),
        np.dtype(ml_dtypes.bfloat16),
        np.dtype(ml_dtypes.int4),
        np.dtype(bool),
    ],
    "scalars": [
        kind(1)
        for kind in (
            np.bool_,
            np.int8,
            np.uint8,
            np.int16,
            np.uint16,
            np.int32,
            np.uint32,
            np.int64,
            np.uint64,
            np.float16,
            np.float32,
            np.float64,
            np.complex64,
            np.complex128,
            ml_dtypes.bfloat16,
            ml_dtypes.float8_e4m3fn,
            ml_dtypes.int4,
        )
    ],
    "extremes": [np.int8(-128), np.uint64(2**64 - 1), np.int64(-(2**63)), np.float32(float("-inf"))],
    "float32 nan": np.frombuffer(bytes.fromhex("010080ff"), np.float32)[0],
    "float16": np.frombuffer(b"\x01\x7c", np.float16)[0],
    "tensor": torch.arange(6).reshape(2, 3),
    "0-d": torch.tensor(1.5),
    "no elements": torch.empty(0, 4),
    "bf16": torch.tensor([1.0, float("nan")], dtype=torch.bfloat16),
    "bool tensor": torch.tensor([True, False]),
    "fp8": torch.ones(3).to(torch.float8_e5m2),
    "array": np.arange(6, dtype=np.float16).reshape(3, 2),
    "0-d array": np.array(7),
    "strided": np.arange(10)[::3],
    "ml array": np.ones(3, ml_dtypes.float8_e4m3fn),
    "parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "paths": {"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}, "1": torch.ones(2), 1: torch.zeros(2)},
    "names": {"\n": torch.ones(1), "x" * 2000: torch.zeros(1)},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_come_back(name: str) -> None:
    assert same(round_trip(ODD[name]), ODD[name])


def test_all_odd_values_in_one(tmp_path: pathlib.Path) -> None:
    assert same(round_trip(ODD), ODD)


def test_metadata_of_a_modules_state_are_kept() -> None:
    state = torch.nn.BatchNorm1d(2).state_dict()
    back = round_trip(state)
    assert same(back, state) and back._metadata == state._metadata and back._metadata[""]["version"] == 2


@pytest.mark.parametrize("seed", range(40))
def test_random_values_come_back(seed: int) -> None:
    value = Generator(random.Random(seed)).value(5)
    assert same(round_trip(value), value), value


class Generator:
    """Random values of all types, nested."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def value(self, depth: int) -> Any:
        rng = self.rng
        if depth == 0 or rng.random() < 0.3:
            return self.leaf()
        size = rng.randrange(5)
        items = [self.value(depth - 1) for _ in range(size)]
        keys: list[Any] = [rng.choice([rng.getrandbits(rng.choice([3, 60, 90])) - 4, self.text()]) for _ in range(size)]
        pairs = dict(zip(keys, items))
        return rng.choice(
            [
                lambda: items,
                lambda: tuple(items),
                lambda: pairs,
                lambda: collections.OrderedDict(pairs),
                lambda: collections.Counter(pairs),
                lambda: {self.hashable(2) for _ in range(size)},
                lambda: frozenset(self.hashable(2) for _ in range(size)),
            ]
        )()

    def hashable(self, depth: int) -> Any:
        # No numbers that equal others of another type: a set keeps one of them only.
        choices = [self.text, lambda: self.rng.randbytes(5), lambda: self.rng.getrandbits(80) + 2]
        if depth:
            choices.append(lambda: tuple(self.hashable(depth - 1) for _ in range(self.rng.randrange(3))))
        return self.rng.choice(choices)()

    def text(self) -> str:
        return "".join(
            chr(self.rng.choice([65, 34, 92, 10, 0x7F, 0xE9, 0x2028, 0x1F388])) for _ in range(self.rng.randrange(6))
        )

    def leaf(self) -> Any:
        rng = self.rng
        return rng.choice(
            [
                lambda: None,
                lambda: rng.random() < 0.5,
                lambda: rng.getrandbits(rng.choice([1, 52, 54, 300])) * rng.choice([1, -1]),
                lambda: bits(rng.getrandbits(64)),
                lambda: complex(bits(rng.getrandbits(64)), rng.random()),
                self.text,
                lambda: rng.randbytes(rng.choice([0, 3, 8193])),
                lambda: bytearray(rng.randbytes(4)),
                lambda: np.frombuffer(rng.randbytes(4), np.float32)[0],
                lambda: np.frombuffer(rng.randbytes(8), np.int64)[0],
                lambda: np.frombuffer(rng.randbytes(2), ml_dtypes.bfloat16)[0],
                lambda: np.frombuffer(rng.randbytes(24), np.float64).reshape(rng.choice([(3,), (1, 3), (3, 1)])),
                lambda: torch.frombuffer(bytearray(rng.randbytes(12)), dtype=torch.bfloat16).reshape(2, 3),
                lambda: torch.Size([rng.randrange(9), 1]),
            ]
        )()


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    """A string, and more."""


class Pair(collections.namedtuple("Pair", "a b")):
    """A tuple with names."""


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("bad", "code", "said"),
    [
        ({True: 1}, "bad-argument", "True"),
        ({"a": {None: 1}}, "bad-argument", "['a']"),
        ({1.5: 1}, "bad-argument", "1.5"),
        ({(1, 2): 1}, "bad-argument", "tuple"),
        ({"a": [0, {2, Colour.RED}]}, "bad-argument", "['a'][1]["),
        (Colour.RED, "bad-argument", "Colour"),
        (Text("x"), "bad-argument", "Text"),
        (Pair(1, 2), "bad-argument", "Pair"),
        (datetime.date(2020, 1, 1), "bad-argument", "datetime.date"),
        (decimal.Decimal(1), "bad-argument", "Decimal"),
        (object(), "bad-argument", "builtins.object"),
        (len, "bad-argument", "builtin_function"),
        (range(3), "bad-argument", "range"),
        ("\ud800", "bad-argument", "surrogate"),
        ({"\ud800": 1}, "bad-argument", "surrogate"),
        (CYCLE, "limit", "contains itself"),
        ({"seed": [-(10**4300)]}, "limit", "['seed'][0]: an integer of 14285 bits has more than 4300 digits"),
        ({10**5000: 1}, "limit", "4300 digits"),
        (np.array([object()]), "unsupported-dtype", "object"),
        (np.array(["a"]), "unsupported-dtype", "<U1"),
        (np.zeros(2, "i4,f4"), "unsupported-dtype", "NumPy"),
        (np.dtype("i4,f4"), "bad-argument", "plain"),
        (np.datetime64("2020"), "bad-argument", "datetime64"),
        (np.longdouble(1), "bad-argument", "longdouble"),
        (np.ma.masked_array([1], [True]), "bad-argument", "MaskedArray"),
        (torch.ones(2, requires_grad=True), "bad-argument", "detach"),
        (torch.ones(2).to_sparse(), "bad-argument", "sparse"),
        (torch.ones(2, device="meta"), "bad-argument", "meta"),
        (torch.ones(2, dtype=torch.complex32), "unsupported-dtype", "complex32"),
        (collections.defaultdict(list), "bad-argument", "defaultdict"),
        (memoryview(b""), "bad-argument", "memoryview"),
        (torch.nn.Linear(1, 1), "bad-argument", "Linear"),
        (torch.strided, "bad-argument", "layout"),
    ],
)
def test_what_would_lose_something_is_refused(bad: Any, code: str, said: str) -> None:
    with pytest.raises(Error) as refused:
        tree.to_tree({"deep": [bad]}, Store("x"))
    assert refused.value.code == code
    assert said in str(refused.value) and "the value['deep'][0]" in str(refused.value)


def test_the_longest_integers() -> None:
    longest = 10**4300 - 1
    assert tree.to_tree(-longest) == {"int": "-" + "9" * 4300} and tree.from_tree({"int": "9" * 4300}) == longest
    assert tree.to_tree(10**1024) == {"int": "1" + "0" * 1024}
    with pytest.raises(Error) as refused:
        tree.from_tree({"int": "-" + "9" * 4301})
    assert refused.value.code == "limit"


def test_attributes_of_an_ordered_dict_are_refused() -> None:
    state: Any = collections.OrderedDict(a=1)
    state.extra = 1
    with pytest.raises(Error, match="extra"):
        tree.to_tree(state)


def test_without_a_store_tensors_are_refused() -> None:
    with pytest.raises(Error, match=r"the value\['w'\].*put_tensor"):
        tree.to_tree({"w": torch.ones(1)})
    with pytest.raises(Error, match="get_tensor"):
        tree.from_tree({"tensor": Key.param("w").identity})


@pytest.mark.parametrize(
    "bad",
    [
        [],
        {},
        1.5,
        {"list": 1},
        {"tuple": {}},
        {"map": [["a"]]},
        {"map": [["a", 1], ["a", 2]]},
        {"map": [[True, 1]]},
        {"map": [[{"int": "5"}, 1]]},
        {"map": {}},
        {"f64": "00"},
        {"f64": "zz00000000000000"},
        {"f64": "3FF0000000000000"},
        {"f64": 1},
        {"f32": "0"},
        {"bytes": "0"},
        {"bytes": "0G"},
        {"bytes": " 00"},
        {"int": 5},
        {"int": "5"},
        {"int": "-0"},
        {"int": "1_0" * 20},
        {"int": " 9007199254740993"},
        {"int": "٣" * 20},
        {"type": ["set", {"list": [{"list": []}]}]},
        {"type": ["set", {"list": [1, 1]}]},
        {"type": ["complex", {"tuple": [1, 2]}]},
        {"type": ["complex", {"list": []}]},
        {"type": ["torch.Size", {"tuple": [True]}]},
        {"type": ["torch.Size", {"tuple": [-1]}]},
        {"type": ["torch.Size", {"tuple": [{"int": str(2**63)}]}]},
        {"type": ["collections.Counter", {"list": []}]},
        {"type": ["bytearray", {"list": []}]},
        {"type": ["numpy.ndarray", 1]},
        {"type": ["numpy.int8", 128]},
        {"type": ["numpy.uint8", -1]},
        {"type": ["numpy.int8", True]},
        {"type": ["numpy.bool", 1]},
        {"type": ["numpy.float32", {"f64": "0000000000000000"}]},
        {"type": ["numpy.float32", 1]},
        {"type": ["numpy.int64", {"f": 1}]},
        {"type": ["numpy.dtype", "i4,f4"]},
        {"type": ["numpy.dtype", "object"]},
        {"type": ["numpy.dtype", "O"]},
        {"type": ["numpy.dtype", 1]},
        {"type": ["torch.device", "cpu; x"]},
        {"type": ["torch.device", 0]},
        {"type": ["torch.dtype", 0]},
        {"type": [1, 2]},
        {"type": []},
        {"tensor": 1, "x": 2},
        {"type": ["ml_dtypes.bfloat16", {"bytes": "00"}]},
        {"type": ["ml_dtypes.bfloat16", {"bytes": "zzzz"}]},
        {"type": ["torch.nn.Module.state_dict", {"map": []}]},
        {"type": ["torch.nn.Parameter", {"map": [["data", 1], ["requires_grad", True]]}]},
    ],
)
def test_what_is_no_tree_is_malformed(bad: Any) -> None:
    with pytest.raises(Error) as refused:
        tree.from_tree({"list": [0, bad]}, Store("x").get)
    assert refused.value.code == "bad-member" and "the value[1]" in str(refused.value)


@pytest.mark.parametrize(
    "name", ["torch.load", "os.system", "builtins.eval", "numpy.load", "torch.Generator", "int4", "numpy.str_"]
)
def test_types_that_are_not_listed_are_never_resolved(name: str) -> None:
    with pytest.raises(Error, match=r"the value\['k'\].*is not among"):
        tree.from_tree({"map": [["k", {"type": [name, {"list": []}]}]]})
    with pytest.raises(Error, match="is not among"):
        tree.from_tree({"type": ["torch.dtype", name]})
    assert tree.from_tree({"type": [name, {"list": []}]}, carry=True) == tree.Typed(name, {"list": []})


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.json")), ids=lambda path: path.stem)
def test_values_of_real_frameworks_come_back_the_same_text(path: pathlib.Path) -> None:
    vectors = json.loads(path.read_text())
    rows = {canonical(row["identity"]): row for row in vectors["tensors"]}
    assert vectors["records"]

    def get(key: Key) -> Held:
        row = rows[key.text]
        return Held(row["dtype"], tuple(row["shape"]), bytes.fromhex(row["bytes"]))

    for record in vectors["records"]:
        written = records.tree_of(records.Record("value", record["name"], record["value"]))
        value = tree.from_tree(written, get, carry=True)
        store = Store(record["name"])
        again = tree.to_tree(value, store)
        assert canonical(again) == canonical(written), record["name"]
        for piece in store.pieces:
            assert arrays.as_bytes(piece.data).tobytes() == get(piece.key).data, piece.key


def test_a_bytearray_is_of_the_moment() -> None:
    store, data = Store("x"), bytearray(9000)
    written = tree.to_tree(data, store)
    data[0] = 1
    assert tree.from_tree(written, store.get) == bytearray(9000)
    assert store.pieces[0].key.role == "blob" and store.pieces[0].dtype == "U8"


def test_the_deepest_value_still_has_metadata() -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = {"k": value}
        return value

    deepest = next(levels for levels in range(200) if refuses(nested(levels + 1)))
    written = canonical(tree.to_tree({"x": nested(deepest - 1)}))
    assert depth(json.loads(written)) + 3 in (98, 99, 100) and deepest == 32


def refuses(value: Any) -> bool:
    try:
        tree.to_tree(value)
    except Error as why:
        assert why.code == "limit"
        return True
    return False


def depth(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(depth, inside), default=0)


def test_what_many_places_hold_is_not_written_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "SIZE", 4000)
    assert tree.to_tree(list(range(3000)))
    for shared in ([1, 2], {"a": 1}, (), collections.OrderedDict(a=1)):
        held: Any = shared
        for _ in range(30):
            held = [held, held]
        with pytest.raises(Error, match="counting an object once for each place") as refused:
            tree.to_tree(held)
        assert refused.value.code == "limit"
