"""Reading: what comes out is what went in, by every way, and nothing damaged or out of bounds comes out at all."""

from __future__ import annotations

import os
import pathlib
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import waystation
from waystation import Checkpoint, Error, Key, arrays, dtypes, records
from waystation._registry import DTYPES

W = np.arange(6 * 5 * 4, dtype=np.float32).reshape(6, 5, 4)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, dict[str, Any]]:
    """A checkpoint with a tensor of each element type, and their raw bytes."""
    rng = np.random.default_rng(0)
    tensors: dict[str, Any] = {}
    for row in DTYPES.values():
        raw = rng.integers(0, 256, (4, 6, row.bits // 8 or 1), dtype=np.uint8)
        if row.id == "BOOL":
            raw &= 1
        if row.bits < 8:
            tensors[row.id] = dtypes.unpack(row.id, raw.reshape(-1), 24).reshape(4, 6)
        else:
            tensors[row.id] = raw.view(dtypes.numpy_dtype(row.id)).reshape(4, 6)
    path = tmp_path_factory.mktemp("every") / "ckpt"
    waystation.save(path, tensors)
    return waystation.open(path), tensors


@pytest.fixture(scope="module")
def ckpt(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("one") / "ckpt"
    optimizer = {"algorithm": "adamw", "groups": [{"hyper": [], "name": "g", "params": [["main", "w"]]}], "steps": []}
    waystation.save(
        path,
        {
            "w": W,
            "b": np.arange(3),
            "scalar": np.float64(2.5),
            "none": np.zeros((3, 0), np.int8),
            Key.optimizer("w", "adam.m", "main"): W + 1,
            Key.param("w", component="critic"): W + 2,
            Key(role="extension", name="e"): np.arange(7, dtype=np.uint8),
        },
        step=12,
        run="demo",
        aliases={"tied": "w"},
        buffers=["b"],
        attachments={"a/config.json": b"{}", "b.txt": b"text"},
        records=[records.progress(12), records.Record("optimizer", "main", optimizer), records.value("v", [1, (2.5,)])],
    )
    return waystation.open(path)


def test_what_it_is(ckpt: Checkpoint) -> None:
    assert (ckpt.step, ckpt.run, ckpt.writers, ckpt.topology, ckpt.parent, ckpt.timeline) == (
        12,
        "demo",
        1,
        (),
        None,
        1,
    )
    assert len(ckpt.digest) == 64 and ckpt.digest[:12] in repr(ckpt) and os.path.isdir(ckpt.path)
    assert ckpt.manifest["run"] == "demo" and ckpt.omitted == []


def test_it_is_a_mapping_of_names(ckpt: Checkpoint) -> None:
    assert list(ckpt) == ["b", "none", "scalar", "tied", "w"] and len(ckpt) == 5
    assert "w" in ckpt and "x" not in ckpt and ckpt.get("x") is None and 3 not in ckpt
    assert {name: tensor.shape for name, tensor in ckpt.items()}["tied"] == (6, 5, 4)
    assert list(ckpt.component("critic")) == ["w"] and ckpt.components() == ["critic", "main"]
    np.testing.assert_array_equal(ckpt.component("critic")["w"], W + 2)
    assert bool(ckpt.component("nobody")) and len(ckpt.component("nobody")) == 0


def test_what_is_not_there_is_a_key_error_with_what_is(ckpt: Checkpoint) -> None:
    with pytest.raises(KeyError, match="'tie' in component 'main'; there is 'tied'"):
        ckpt["tie"]
    with pytest.raises(waystation.NotFoundError, match="no tensor"):
        ckpt.tensor(Key.param("e"))
    with pytest.raises(KeyError, match="no attachment 'config.json'; there is 'a/config.json'"):
        ckpt.attachments["config.json"]
    with pytest.raises(KeyError, match=r"no record 'value' 'v' at \[\('dp', 0\)\]; there is one at \[\]"):
        ckpt.record("value", "v", (("dp", 0),))


def test_asking_for_what_is_not_there_lists_nothing(ckpt: Checkpoint) -> None:
    fresh = waystation.open(ckpt.path)
    assert "tie" not in fresh and fresh.get("tie") is None and fresh.get("tie", 3) == 3 and fresh._listed is None
    assert fresh["w"].shape == (6, 5, 4) and fresh._listed is None
    assert fresh != ckpt and fresh == fresh and len({fresh, ckpt}) == 2


def test_tensors_by_what_they_are(ckpt: Checkpoint) -> None:
    assert [tensor.key.text for tensor in ckpt.tensors(role="optimizer")] == [
        '["main","optimizer","w","adam.m","main",[]]'
    ]
    assert {tensor.key.component for tensor in ckpt.tensors(name="w")} == {"critic", "main"}
    assert len(list(ckpt.tensors())) == 8 and list(ckpt.tensors(owner="nobody")) == []
    assert [tensor.key.slot for tensor in ckpt.tensors(slot="adam.m", component="main")] == ["adam.m"]
    moment = ckpt.tensor(Key.optimizer("w", "adam.m", "main"))
    np.testing.assert_array_equal(moment.numpy(), W + 1)
    texts = [tensor.key.text.encode() for tensor in ckpt.tensors()]
    assert texts == sorted(texts)


def test_what_a_tensor_says_of_itself(ckpt: Checkpoint) -> None:
    w, tied, none = ckpt["w"], ckpt["tied"], ckpt["none"]
    assert (w.name, w.dtype, w.shape, w.ndim, w.size, w.nbytes) == ("w", "F32", (6, 5, 4), 3, 120, 480)
    assert w.alias_of is None and w.axes is None and w.valid is None and w.block is None and w.native == ()
    assert w.chunks == [((0, 0, 0), (6, 5, 4))] and len(w) == 6
    assert tied.alias_of == Key.param("w") and tied.key == Key.param("tied") and "alias of" in repr(tied)
    assert none.size == 0 and none.chunks == [] and none.numpy().shape == (3, 0)
    with pytest.raises(TypeError):
        len(ckpt["scalar"])


def test_records_and_attachments(ckpt: Checkpoint) -> None:
    assert [record.kind for record in ckpt.records()] == ["optimizer", "progress", "value"]
    assert ckpt.record("progress", "main").value == {"optimizer_step": 12} and ckpt.records("value")[0].name == "v"
    assert ckpt.value("v") == [1, (2.5,)]
    files = ckpt.attachments
    assert dict(files) == {"a/config.json": b"{}", "b.txt": b"text"} and "b.txt" in files and len(files) == 2
    assert files.info("b.txt").nbytes == 4 and len(files.info("b.txt").sha256) == 64


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_by_every_way(every: tuple[Checkpoint, dict[str, Any]], dtype: str) -> None:
    checkpoint, tensors = every
    tensor, saved = checkpoint[dtype], tensors[dtype]
    raw = arrays.as_bytes(saved)
    assert tensor.dtype == dtype and tensor.raw().tobytes() == raw.tobytes()
    read = tensor.numpy()
    assert read.dtype == saved.dtype and read.shape == (4, 6) and read.tobytes() == saved.tobytes()
    assert tensor[1:3, 2].tobytes() == saved[1:3, 2].tobytes()
    assert tensor.raw(((1, 2), (2, 3))).tobytes() == arrays.as_bytes(saved[1:3, 2:5]).tobytes()
    out = np.empty_like(saved)
    tensor.read_into(out)
    assert out.tobytes() == saved.tobytes()
    buffer = bytearray(tensor.nbytes)
    tensor.read_into(buffer)
    assert bytes(buffer) == raw.tobytes()
    if DTYPES[dtype].torch is not None:
        made = tensor.torch()
        assert made.dtype == dtypes.torch_dtype(dtype) and arrays.shape_of(made) == (4, 6)
        assert arrays.as_bytes(made).tobytes() == raw.tobytes()
        assert arrays.as_bytes(tensor.map("torch")).tobytes() == raw.tobytes()
        assert arrays.as_bytes(checkpoint.load([dtype], framework="torch")[dtype]).tobytes() == raw.tobytes()
        into = torch.empty_like(made)
        tensor.read_into(into)
        assert arrays.as_bytes(into).tobytes() == raw.tobytes()
    if DTYPES[dtype].bits >= 8:
        assert tensor.map().tobytes() == saved.tobytes() and tensor.map().dtype == saved.dtype
    else:
        with pytest.raises(Error, match="one a byte"):
            tensor.map()


INDICES: list[Any] = [
    ...,
    (),
    0,
    -1,
    slice(None),
    slice(2, 4),
    slice(-2, None),
    slice(4, 2),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(5, 1, -2),
    slice(1, None, 3),
    slice(100, 200),
    (0, 1, 2),
    (slice(None), 3),
    (..., 1),
    (1, ...),
    (slice(1, 5, 2), ..., -1),
    (None, 0),
    (..., None),
    (0, None, slice(1, 3)),
    (slice(None, None, -3), slice(4, 0, -2), slice(None, 2)),
    (np.int64(2), ...),
    (slice(0, 0), 1),
    (slice(-100, 100),),
    (slice(3, 3), slice(None, None, -1)),
    (0, 0, slice(None, None, -1)),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_indices_are_those_of_numpy(ckpt: Checkpoint, index: Any) -> None:
    expected, found = W[index], ckpt["w"][index]
    assert type(found) is type(expected) and found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert ckpt["w"].numpy(index).shape == expected.shape
    np.testing.assert_array_equal(ckpt["w"].torch(index=index).numpy(), expected)


@pytest.mark.parametrize("seed", range(30))
def test_random_indices(ckpt: Checkpoint, every: tuple[Checkpoint, dict[str, Any]], seed: int) -> None:
    rng = random.Random(seed)

    def one(size: int) -> Any:
        bound = [None, *range(-size - 2, size + 3)]
        return rng.choice(
            [
                lambda: rng.randrange(-size, size),
                lambda: ...,
                lambda: slice(rng.choice(bound), rng.choice(bound), rng.choice([None, 1, 2, 3, -1, -2, -7])),
            ]
        )()

    for _ in range(20):
        index = tuple(one(size) for size in W.shape[: rng.randrange(4)])
        if sum(item is ... for item in index) < 2 and ... not in index:
            np.testing.assert_array_equal(ckpt["w"][index], W[index], str(index))
            np.testing.assert_array_equal(ckpt["w"].torch(index=index), W[index], str(index))
            short = index[:2]
            for dtype in ("I4", "F6_E2M3", "BF16", "C128", "U1"):
                found, expected = every[0][dtype][fit(short)], every[1][dtype][fit(short)]
                assert found.tobytes() == expected.tobytes() and found.shape == expected.shape, (dtype, short)


def fit(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(item % 4 if isinstance(item, int) else item for item in index)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (6, "index 6 is out of bounds for axis 0 with size 6"),
        ((0, -6), "axis 1"),
        ((0, 0, 0, 0), "4 indices"),
        ((..., ...), "one '...'"),
    ],
)
def test_beyond_the_shape_is_an_index_error(ckpt: Checkpoint, index: Any, said: str) -> None:
    with pytest.raises(IndexError):
        W[index]
    with pytest.raises(IndexError, match=said) as refused:
        ckpt["w"][index]
    assert isinstance(refused.value, Error) and refused.value.code == "bad-region"


@pytest.mark.parametrize(
    "index", [[0, 1], np.array([0]), True, np.bool_(True), W > 3, "a", 1.5, slice(None, None, 0), slice("a")]
)
def test_what_is_no_basic_index_is_refused(ckpt: Checkpoint, index: Any) -> None:
    with pytest.raises(Error) as refused:
        ckpt["w"][index]
    assert refused.value.code == "bad-argument"


@pytest.mark.parametrize(
    "region",
    [
        ((0,), (1,)),
        ((0, 0, 0), (7, 5, 4)),
        ((-1, 0, 0), (1, 1, 1)),
        ((6, 0, 0), (1, 1, 1)),
        ((0, 0, 0, 0), (1, 1, 1, 1)),
    ],
)
def test_a_region_beyond_the_shape_is_refused(ckpt: Checkpoint, region: Any) -> None:
    with pytest.raises(waystation.RegionError):
        ckpt["w"].raw(region)


def test_protocols(ckpt: Checkpoint) -> None:
    w = ckpt["w"]
    np.testing.assert_array_equal(np.asarray(w), W)
    assert np.asarray(w, dtype=np.float64).dtype == np.float64 and np.array(w).flags.writeable
    with pytest.raises(ValueError):
        w.__array__(copy=False)
    np.testing.assert_array_equal(np.from_dlpack(w), W)
    assert torch.equal(torch.from_dlpack(w), torch.from_numpy(W))
    with pytest.raises(BufferError):
        w.__dlpack__(copy=False)
    np.testing.assert_array_equal(np.concatenate([w, w]), np.concatenate([W, W]))
    assert [row.sum() for row in w] == [row.sum() for row in W]


def test_bf16_by_dlpack(every: tuple[Checkpoint, dict[str, Any]]) -> None:
    assert torch.from_dlpack(every[0]["BF16"]).dtype == torch.bfloat16


def test_a_mapping_is_private_and_outlives_the_checkpoint(tmp_path: pathlib.Path) -> None:
    waystation.save(tmp_path / "c", {"w": W})
    with waystation.open(tmp_path / "c") as checkpoint:
        mapped, again = checkpoint["w"].map(), checkpoint["w"].map("torch")
    mapped[0] = -1
    again[1] = -2
    assert mapped[0, 0, 0] == -1 and mapped[2, 0, 0] == W[2, 0, 0]
    np.testing.assert_array_equal(waystation.open(tmp_path / "c")["w"], W)


def test_many_at_once(ckpt: Checkpoint) -> None:
    loaded = ckpt.load()
    assert list(loaded) == list(ckpt) and loaded["w"] is loaded["tied"]
    np.testing.assert_array_equal(loaded["w"], W)
    moment = Key.optimizer("w", "adam.m", "main")
    some = ckpt.load([moment, "b", "b"], framework="torch")
    assert list(some) == [moment, "b"] and some["b"].tolist() == [0, 1, 2] and some[moment].dtype == torch.float32
    assert ckpt.load([]) == {}


def test_into_arrays_of_the_caller(ckpt: Checkpoint) -> None:
    model = {
        "w": torch.zeros(6, 5, 4),
        "b": torch.zeros(6, dtype=torch.int64)[::2],
        "scalar": torch.zeros((), dtype=torch.float64),
    }
    model["tied"] = model["w"]
    loaded = ckpt.load(out=model)
    assert all(loaded[name] is model[name] for name in model) and list(loaded) == list(model)
    assert torch.equal(model["w"], torch.from_numpy(W)) and model["b"].tolist() == [0, 1, 2] and model["scalar"] == 2.5
    apart = {"w": np.zeros_like(W), "tied": np.zeros(W.shape, np.float32, order="F")}
    ckpt.load(out=apart)
    np.testing.assert_array_equal(apart["w"], W)
    np.testing.assert_array_equal(apart["tied"], W)
    mixed = ckpt.load(["w", "b"], out={"w": apart["w"]})
    assert mixed["w"] is apart["w"] and mixed["b"].tolist() == [0, 1, 2]
    parameter = torch.nn.Parameter(torch.zeros(6, 5, 4))
    ckpt["w"].read_into(parameter)
    assert torch.equal(parameter.detach(), torch.from_numpy(W)) and parameter.requires_grad


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ({"w": np.zeros((6, 5, 4))}, "F64"),
        ({"w": np.zeros((6, 20), np.float32)}, r"\[6, 20\]"),
        ({"w": [0]}, "list is no destination"),
        ({"w": torch.zeros(6, 5, 4, device="meta")}, "meta"),
        ({"w": bytearray(3)}, "takes 480 bytes"),
        ({"w": b"x" * 480}, "bytes is no destination"),
        ({"w": np.broadcast_to(np.float32(0), (6, 5, 4))}, "read-only"),
    ],
)
def test_an_array_of_another_kind_is_refused_before_anything_is_read(
    ckpt: Checkpoint, out: dict[str, Any], said: str
) -> None:
    b = np.full(3, 9)
    with pytest.raises(Error, match=said) as refused:
        ckpt.load(out={"b": b, **out})
    assert refused.value.location.tensor == Key.param("w").text and b.tolist() == [9, 9, 9]


def test_what_load_refuses(ckpt: Checkpoint) -> None:
    with pytest.raises(Error, match="framework is 'numpy' or 'torch', not 'jax'"):
        ckpt.load(framework="jax")  # type: ignore[arg-type]
    with pytest.raises(Error, match="NumPy has no device"):
        ckpt.load(device="cuda")
    with pytest.raises(Error, match="'x', which is not asked for"):
        ckpt.load(["w"], out={"x": W})
    with pytest.raises(KeyError):
        ckpt.load(["w", "x"])
    shared = np.zeros((2, 6, 5, 4), np.float32).reshape(-1)
    with pytest.raises(Error) as refused:
        ckpt.load(
            ["w", Key.param("w", component="critic")],
            out={
                "w": shared[:120].reshape(6, 5, 4),
                Key.param("w", component="critic"): shared[60:180].reshape(6, 5, 4),
            },
        )
    assert refused.value.code == "bad-argument"


def test_to_a_device_in_portions(ckpt: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    from waystation import _loading

    monkeypatch.setattr(_loading, "_PORTION", 500)
    plans = []
    read_all = _loading.Source.read_all

    def watched(self: Any, wants: Any, progress: Any = None) -> None:
        plans.append(sum(want.made.bytes.nbytes for want in wants))
        read_all(self, wants, progress)

    monkeypatch.setattr(_loading.Source, "read_all", watched)
    seen: list[tuple[int, int]] = []
    names = ["w", "tied", "b", Key.param("w", component="critic"), "scalar"]
    loaded = ckpt.load(
        names, framework="torch", device="cpu", progress=lambda what, done, total: seen.append((done, total))
    )
    assert plans == [480, 24, 488]
    assert loaded["w"] is loaded["tied"] and torch.equal(loaded["w"], torch.from_numpy(W))
    assert seen[-1] == (992, 992) and seen == sorted(seen)


def test_progress_ends_with_everything(ckpt: Checkpoint) -> None:
    seen: list[tuple[str, int, int]] = []
    ckpt.load(progress=lambda *said: seen.append(said))
    assert seen[-1][1] == seen[-1][2] > 0


def test_the_memory_budget_is_kept(tmp_path: pathlib.Path) -> None:
    big = np.arange(300_000, dtype=np.float64).reshape(300, 1000)
    waystation.save(tmp_path / "c", {"big": big, "small": np.arange(5)})
    checkpoint = waystation.open(tmp_path / "c", memory_budget=1_000_000)
    for ask in (lambda: checkpoint["big"].numpy(), lambda: checkpoint.load(), lambda: checkpoint["big"].torch()):
        with pytest.raises(waystation.LimitError, match="memory_budget"):
            ask()
    np.testing.assert_array_equal(checkpoint["big"][:100], big[:100])
    # The caller's memory is not ours: it is filled part by part.
    out = np.zeros_like(big)
    checkpoint["big"].read_into(out)
    np.testing.assert_array_equal(out, big)
    out[:] = 0
    checkpoint.load(out={"big": out, "small": np.zeros(5, np.int64)})
    np.testing.assert_array_equal(out, big)
    part = np.zeros((1, 1000 * 150)).reshape(150, 1000)
    checkpoint["big"].read_into(part, ((100, 0), (150, 1000)))
    np.testing.assert_array_equal(part, big[100:250])


def damage(path: pathlib.Path) -> None:
    shard = next(path.glob("model-*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[4096 + 17] ^= 4
    shard.write_bytes(data)


@pytest.mark.parametrize(
    "read",
    [
        lambda c: c["w"].numpy(),
        lambda c: c["w"].torch(),
        lambda c: c["w"].raw(),
        lambda c: c["w"][2:3],
        lambda c: c.load(),
        lambda c: c["w"].map(),
        lambda c: c["w"].read_into(np.zeros_like(W)),
        lambda c: np.asarray(c["w"]),
        lambda c: c["tied"][0],
    ],
)
def test_damage_is_never_handed_out(tmp_path: pathlib.Path, read: Callable[[Checkpoint], Any]) -> None:
    waystation.save(tmp_path / "c", {"w": W}, aliases={"tied": "w"})
    damage(tmp_path / "c")
    with pytest.raises(waystation.CorruptError) as found:
        read(waystation.open(tmp_path / "c"))
    assert found.value.code == "crc-mismatch" and found.value.location.file is not None
    assert waystation.open(tmp_path / "c", verify=False)["w"].shape == (6, 5, 4)


def test_several_writers(tmp_path: pathlib.Path) -> None:
    from waystation import _core

    plan = _core.SessionPlan.next_in(str(tmp_path), "demo", writers=3, topology=[("dp", 3)])
    path = tmp_path / _core.make_attempt(str(tmp_path), plan, 5, 0)
    for writer in range(3):
        session = _core.Session.begin(str(path), plan, 5, 0, writer)
        piece = np.ascontiguousarray(W[2 * writer : 2 * writer + 2])
        place = session.chunk(
            Key.param("w"), "F32", (6, 5, 4), (2 * writer, 0, 0), (2, 5, 4), native=[("torch.dcp", ["model", 3])]
        )
        session.chunk(Key.param("mine", scope=[("dp", writer)]), "F32", (2, 5, 4), (0, 0, 0), (2, 5, 4))
        record = records.value("at", writer, coordinate=[("dp", writer)])
        session.record(record.kind, record.name, record.coordinate, record.value_json)
        session.omit("main", ["frozen.w"], "frozen")
        writing = session.lay_out()
        writing.write([(place, arrays.as_bytes(piece)), (1 - place, arrays.as_bytes(piece))])
        writing.finish()
    _core.commit(str(path))
    checkpoint = waystation.open(path)
    w = checkpoint["w"]
    assert checkpoint.writers == 3 and checkpoint.topology == (("dp", 3),) and len(w.chunks) == 3
    assert w.native == (("torch.dcp", ("model", 3)),)
    np.testing.assert_array_equal(w[1:5, ::2], W[1:5, ::2])
    with pytest.raises(Error) as refused:
        w.map()
    assert refused.value.code == "not-one-run"
    assert list(checkpoint) == ["w"]  # what ranks have each for themselves has no plain name
    np.testing.assert_array_equal(checkpoint.tensor(Key.param("mine", scope=[("dp", 1)])), W[2:4])
    assert [checkpoint.value("at", (("dp", rank),)) for rank in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match=r"there is one at \[\('dp', 0\)\] and "):
        checkpoint.value("at")
    assert checkpoint.omitted == [waystation.Omitted("main", ("frozen.w",), "frozen")]


def test_closed_is_closed(tmp_path: pathlib.Path) -> None:
    waystation.save(tmp_path / "c", {"w": W})
    with waystation.open(tmp_path / "c") as checkpoint:
        tensor, read = checkpoint["w"], checkpoint["w"].numpy()
    for ask in (lambda: checkpoint["w"], tensor.numpy, checkpoint.records, lambda: checkpoint.core):
        with pytest.raises(Error, match="closed"):
            ask()
    np.testing.assert_array_equal(read, W)
    assert tensor.shape == (6, 5, 4) and checkpoint.step == 0


def test_pickled_it_is_opened_again_and_must_be_the_same(tmp_path: pathlib.Path) -> None:
    waystation.save(tmp_path / "c", {"w": W})
    checkpoint = waystation.open(tmp_path / "c", memory_budget=10_000)
    data = pickle.dumps(checkpoint)
    again = pickle.loads(data)
    assert again.digest == checkpoint.digest and again._source.memory_budget == 10_000
    np.testing.assert_array_equal(again["w"], W)
    (tmp_path / "c").rename(tmp_path / "old")
    waystation.save(tmp_path / "c", {"w": W + 1})
    with pytest.raises(Error) as refused:
        pickle.loads(data)
    assert refused.value.code == "source-changed"


def test_threads_and_a_forked_child_read_it_too(ckpt: Checkpoint) -> None:
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: ckpt.load(["w", "b"]), range(64)):
            np.testing.assert_array_equal(found["w"], W)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(ckpt["w"].numpy(), W) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_no_checkpoint(tmp_path: pathlib.Path) -> None:
    with pytest.raises(waystation.NotFoundError):
        waystation.open(tmp_path / "nowhere")
    with pytest.raises(waystation.NotCommittedError):
        waystation.open(tmp_path)


def test_without_torch_and_ml_dtypes_the_rest_works(tmp_path: pathlib.Path) -> None:
    waystation.save(tmp_path / "c", {"w": W, "b": np.ones(3, ml_dtypes.bfloat16)})
    code = """
import sys
sys.modules.update(torch=None, ml_dtypes=None, tqdm=None)
import numpy as np, waystation
c = waystation.open(sys.argv[1])
assert c["w"].numpy().sum() == 7140 and c["b"].raw().tobytes().hex() == "803f" * 3
for ask, said in ((c["b"].numpy, "waystation[dtypes]"), (c["b"].torch, "waystation[torch]"), (c.load, "ml_dtypes")):
    try:
        ask()
    except waystation.Error as why:
        assert said in str(why), why
    else:
        raise SystemExit("no error")
waystation.save(sys.argv[1] + "2", {"w": np.ones(3)}, progress=True)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "c")], check=True)
