"""One process: everything that a state dict can hold, against DCP's own files."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp.same import blank, bits, same
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

import waystation.dcp as ws
from waystation import _core
from waystation.errors import Error
from waystation.job import Job


def save(run: Path, state: dict[str, Any], step: int = 1, **planner: Any) -> str:
    writer = ws.Writer(Job.start(run), step)
    dcp.save(state, storage_writer=writer, planner=ws.SavePlanner(**planner))
    return writer.path


def entries(path: str) -> dict[str, Any]:
    return {str(entry.key): entry for entry in _core.Checkpoint.open(path).entries()}


def keys(path: str) -> set[tuple[Any, ...]]:
    return {tuple(entry.key) for entry in _core.Checkpoint.open(path).entries()}


def trained(optimizer: Any = torch.optim.AdamW, **settings: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    made = optimizer(model.parameters(), **settings)
    for _ in range(2):
        made.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        made.step()
    return model, made


def both_ways(run: Path, tmp: Path, state: dict[str, Any], **planner: Any) -> str:
    """Saves with both, loads with both into blanks and from nothing; all must be the same. Gives our checkpoint."""
    path = save(run, state, **planner)
    dcp.save(state, checkpoint_id=tmp / "theirs")
    ours, theirs = blank(state), blank(state)
    dcp.load(ours, storage_reader=ws.Reader(path))
    dcp.load(theirs, checkpoint_id=tmp / "theirs")
    same(ours, theirs)
    same(ours, state)
    again = blank(state)
    dcp.load(again, storage_reader=ws.Reader(path), planner=ws.LoadPlanner())
    same(again, state)
    same(
        _load_state_dict_from_keys(storage_reader=ws.Reader(path)),
        _load_state_dict_from_keys(checkpoint_id=tmp / "theirs"),
    )
    return path


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize(
    "optimizer, settings",
    [
        (torch.optim.AdamW, {}),
        (torch.optim.Adam, {"amsgrad": True, "lr": torch.tensor(0.01), "foreach": False}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.Adafactor, {}),
        (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (torch.optim.NAdam, {}),
        (torch.optim.Rprop, {}),
    ],
)
def test_models_and_optimizers(
    run: Path, tmp_path: Path, optimizer: Any, settings: dict[str, Any], flatten: bool
) -> None:
    model, made = trained(optimizer, **settings)
    options = StateDictOptions(flatten_optimizer_state_dict=flatten)
    of_model, of_optimizer = get_state_dict(model, made, options=options)
    path = both_ways(run, tmp_path, {"model": of_model, "optim": of_optimizer})
    found = keys(path)
    assert ("main", "param", "0.weight", None, None, ()) in found
    records = [record for record in _core.Checkpoint.open(path).records() if record[0] == "optimizer"]
    assert [record[1] for record in records] == ["optim"]
    if optimizer is torch.optim.AdamW:
        assert ("main", "optimizer", "0.weight", "adam.m", "optim", ()) in found
        assert '"algorithm":"adamw"' in records[0][3] and '"step":2' in records[0][3]
        # A step count stands once, in the record, and comes back as the tensor that it was.
        assert not any("step" in (key[3] or "") for key in found)
    if settings.get("momentum") and optimizer is torch.optim.SGD:
        assert ("main", "optimizer", "0.weight", "sgd.momentum", "optim", ()) in found


def test_training_goes_on_as_if_nothing_had_been(run: Path) -> None:
    from torch.distributed.checkpoint.state_dict import set_state_dict

    model, made = trained()
    state = dict(zip(("model", "optim"), get_state_dict(model, made)))
    path = save(run, state)
    other, theirs = trained(lr=0.5)
    blank_state = dict(zip(("model", "optim"), get_state_dict(other, theirs)))
    dcp.load(blank_state, storage_reader=ws.Reader(path))
    set_state_dict(other, theirs, model_state_dict=blank_state["model"], optim_state_dict=blank_state["optim"])
    for one, optimizer in ((model, made), (other, theirs)):
        torch.manual_seed(9)
        for _ in range(3):
            optimizer.zero_grad()
            one(torch.randn(4, 3)).sum().backward()
            optimizer.step()
    same(dict(model.state_dict()), dict(other.state_dict()))


def test_raw_and_foreign_optimizer_states(run: Path, tmp_path: Path) -> None:
    model, made = trained()
    state = {"model": model.state_dict(), "optimizer": made.state_dict()}
    path = save(run, state)
    dcp.save(state, checkpoint_id=tmp_path / "theirs")
    same(
        _load_state_dict_from_keys(storage_reader=ws.Reader(path)),
        _load_state_dict_from_keys(checkpoint_id=tmp_path / "theirs"),
    )
    assert {key[1] for key in keys(path)} == {"param", "extension"}  # numbers name no parameter
    quantised = {
        "model": {"w": torch.randn(4, 4)},
        "optim": {
            "state": {
                "w": {
                    "exp_avg": torch.randint(0, 255, (4, 4), dtype=torch.uint8),
                    "absmax": torch.rand(2),
                    "count": torch.tensor([3], dtype=torch.int32),
                    "step": 5,
                }
            },
            "param_groups": [
                {"params": ["w"], "lr": 1e-3, "betas": (0.9, 0.999)},
                {"params": [], "lr": 2.0, "betas": (0.5, 1.0)},
            ],
        },
    }
    path = both_ways(run, tmp_path, quantised)
    assert ("main", "optimizer", "w", "torch/absmax", "optim", ()) in keys(path)

def test_what_stands_under_whole_numbers_comes_back_under_them(run: Path) -> None:
    """DCP's planner puts values under the text of the number, and leaves what was under the number as it is."""
    state = {"epochs": {3: {"seed": 7, "mean": torch.ones(2)}, 4: [5, {6: "x", "y": torch.ones(1)}]}, "plain": {"a": 1}}
    path = save(run, state)
    same_keys = {"epochs": {3: {"seed": 0, "mean": torch.zeros(2)}, 4: [0, {6: "", "y": torch.zeros(1)}]}, "plain": {"a": 0}}
    dcp.load(same_keys, storage_reader=ws.Reader(path), planner=ws.LoadPlanner())
    same(same_keys, state)


def test_every_dtype_and_shape(run: Path, tmp_path: Path) -> None:
    state: dict[str, Any] = {"model": {}}
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.bool,
        torch.complex64,
        torch.complex128,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e8m0fnu,
    ):
        size = dtype.itemsize
        raw = torch.randint(0, 2 if dtype is torch.bool else 255, (6 * size,), dtype=torch.uint8)
        state["model"][str(dtype)] = raw.view(dtype).reshape(2, 3)
    state["model"] |= {
        "scalar": torch.tensor(4.6052),
        "counter": torch.tensor(2**60, dtype=torch.int64),
        "none": torch.zeros(2, 0, 3),
        "transposed": torch.arange(12.0).reshape(3, 4).t(),
        "expanded": torch.ones(1, 3).expand(4, 3),
        "step": torch.arange(20)[3::4],
        "conj": torch.randn(3, dtype=torch.complex64).conj(),
        "nan": torch.tensor([-0.0, float("nan")]),
        "last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }
    path = save(run, state)
    read = blank({"model": {name: value.contiguous() for name, value in state["model"].items()}})
    dcp.load(read, storage_reader=ws.Reader(path))
    for name, value in state["model"].items():
        assert bits(read["model"][name]) == bits(value), name
    strided = {
        "model": {
            name: torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
            for name, value in state["model"].items()
            if name != "expanded"
        }
    }
    dcp.load(strided, storage_reader=ws.Reader(path))
    for name, value in strided["model"].items():
        assert bits(value) == bits(state["model"][name]), name


def test_pairs_of_four_bits(run: Path) -> None:
    packed = torch.arange(12, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(3, 4)
    path = save(run, {"model": {"w": packed}})
    (entry,) = _core.Checkpoint.open(path).entries()
    assert (entry.dtype, entry.shape) == ("F4_E2M1", (3, 8))
    read = {"model": {"w": torch.zeros(12, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(3, 4)}}
    dcp.load(read, storage_reader=ws.Reader(path))
    assert bits(read["model"]["w"]) == bits(packed)


def test_values_of_all_kinds(run: Path, tmp_path: Path) -> None:
    state = {
        "step": 7,
        "lr": 1e-300,
        "inf": float("inf"),
        "zero": -0.0,
        "flag": True,
        "none": None,
        "text": "ä\n",
        "big": -(2**80),
        "tuple": (1, (2.5, "x"), [3]),
        "list": [1, [2, (3,)]],
        "nested": {"deep": {"er": b"\x00\xff", "empty": {}}},
        "with_tensor": (torch.arange(3), 1),
        "mixed": [torch.ones(2), {"z": torch.zeros(0, 3)}, 5],
        "bytes": bytes(range(256)) * 40,
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "ordered": collections.OrderedDict(a=1),
        "numpy": np.float64(2.5),
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "rng": torch.get_rng_state(),
        "keys": ({3: "three", "a.b": "dots"},),  # beneath a tuple; DCP itself makes 3 to "3" elsewhere
    }
    both_ways(run, tmp_path, state)


def test_without_flattening(run: Path, tmp_path: Path) -> None:
    state = {"model.w": torch.randn(3), "settings": {"a": [1, 2], 3: (torch.ones(2),)}}
    path = save(run, state, flatten_state_dict=False, flatten_sharded_tensors=False)
    read: dict[str, Any] = {"model.w": torch.zeros(3), "settings": None}
    planner = dcp.DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    dcp.load(read, storage_reader=ws.Reader(path), planner=planner)
    same(read, state)


def test_with_planners_of_dcp(run: Path, tmp_path: Path) -> None:
    model, made = trained()
    state = dict(zip(("model", "optim"), get_state_dict(model, made))) | {"epoch": 3}
    writer = ws.Writer(Job.start(run), 1)
    dcp.save(state, storage_writer=writer)
    read = blank(state)
    dcp.load(read, storage_reader=ws.Reader(writer.path))
    same(read, state)


def test_a_conjugate_or_a_negation_is_not_the_same_tensor(run: Path, tmp_path: Path) -> None:
    whole = torch.randn(3, dtype=torch.complex64)
    negated = torch._neg_view(whole)
    state = {"model": {"a": whole, "b": whole.conj(), "c": negated, "d": whole}}
    path = both_ways(run, tmp_path, state)
    aliases = {entry.key[2] for entry in entries(path).values() if entry.of is not None}
    assert aliases == {"d"}


def test_tied_weights_are_one_tensor(run: Path, tmp_path: Path) -> None:
    model = nn.ModuleDict({"tok": nn.Embedding(7, 3), "head": nn.Linear(3, 7, bias=False)})
    model["head"].weight = model["tok"].weight
    path = both_ways(run, tmp_path, {"model": model.state_dict()})
    found = {entry.key[2]: entry.of for entry in _core.Checkpoint.open(path).entries()}
    assert found["tok.weight"] is None and found["head.weight"][2] == "tok.weight"
    # The second name keeps its own path, whatever the first's is.
    tok = model["tok"].weight.detach()
    path = both_ways(run, tmp_path, {"model": {"tok.weight": tok, "out": {"head": {"w": tok}}}})
    ((tied, native),) = [(e.of, e.native) for e in _core.Checkpoint.open(path).entries() if e.key[2] != "tok.weight"]
    assert tied is not None and tied[2] == "tok.weight" and native == [("torch.dcp", ["model", "out", "head", "w"])]
    # Views of one storage that are not the same elements are two tensors.
    whole = torch.arange(6.0)
    path = both_ways(run, tmp_path, {"model": {"a": whole[:3], "b": whole[3:], "c": whole.view(2, 3)}})
    assert all(entry.of is None for entry in _core.Checkpoint.open(path).entries())


def test_a_bare_model(run: Path, tmp_path: Path) -> None:
    model, _ = trained()
    path = both_ways(run, tmp_path, dict(model.state_dict()))
    assert ("main", "param", "0.weight", None, None, ()) in keys(path)


def test_two_models_and_what_an_optimizer_lacks(run: Path, tmp_path: Path) -> None:
    one, first = trained()
    two, second = trained(torch.optim.SGD, lr=0.1, momentum=0.5)
    state = {
        name: dict(zip(("model", "optim"), get_state_dict(model, made)))
        for name, model, made in (("gen", one, first), ("disc", two, second))
    }
    path = both_ways(run, tmp_path, state)
    assert ("gen", "param", "0.weight", None, None, ()) in keys(path)
    assert ("disc", "optimizer", "0.weight", "sgd.momentum", "disc.optim", ()) in keys(path)
    alone = {"optim": state["gen"]["optim"]}
    path = both_ways(run, tmp_path, alone)  # its parameters are named as omitted, and all rules hold
    assert "omitted" in _core.Checkpoint.open(path).manifest_json()
    both_ways(run, tmp_path, get_state_dict(one, first, options=StateDictOptions(flatten_optimizer_state_dict=True))[1])


def test_a_hundred_thousand_tensors_are_not_listed_for_a_few(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from waystation.dcp import index

    state = {"model": {f"layer.{number}.w": torch.tensor([float(number)]) for number in range(3000)}, "step": 5}
    path = save(run, state)

    def listed(_: Any) -> Any:
        raise AssertionError("all entries were listed")

    monkeypatch.setattr(index.Index, "_all", listed)
    few = {"model": {"layer.7.w": torch.zeros(1), "layer.2999.w": torch.zeros(1)}, "step": None}
    dcp.load(few, storage_reader=ws.Reader(path), planner=ws.LoadPlanner())
    assert few["model"]["layer.2999.w"].item() == 2999.0 and few["step"] == 5
    metadata = ws.Reader(path).read_metadata()
    assert metadata.state_dict_metadata["model.layer.3.w"].size == torch.Size([1])
    with pytest.raises(AssertionError):
        len(metadata.state_dict_metadata)


def test_names_that_cannot_be_names(run: Path, tmp_path: Path) -> None:
    state = {"model": {"a\nb": torch.ones(1), "x" * 2000: torch.ones(2), "": torch.ones(3), "ä.ö": torch.ones(4)}}
    both_ways(run, tmp_path, state)


def test_own_names(run: Path, tmp_path: Path) -> None:
    from waystation.key import Key

    state = {"model": {"w": torch.ones(2)}, "average": {"w": torch.zeros(2)}}
    path = both_ways(
        run,
        tmp_path,
        state,
        buffers=["w"],
        naming=lambda path: (
            Key(role="extension", name=str(path[1]), slot="me/average") if path[0] == "average" else None
        ),
    )
    assert keys(path) == {("main", "buffer", "w", None, None, ()), ("main", "extension", "w", "me/average", None, ())}
    with pytest.raises(CheckpointException, match="would both be"):
        save(run, state, naming=lambda path: Key.param(str(path[1])))


def test_records_and_attachments(run: Path) -> None:
    from waystation import records

    writer = ws.Writer(Job.start(run), 40, records=[records.progress(40, epoch=2)], attachments={"config.json": b"{}"})
    dcp.save({"model": {"w": torch.ones(2)}}, storage_writer=writer, planner=ws.SavePlanner())
    checkpoint = _core.Checkpoint.open(writer.path)
    assert checkpoint.attachment("config.json") == b"{}" and checkpoint.step == 40
    kinds = [(kind, name) for kind, name, _, _ in checkpoint.records()]
    assert kinds.count(("progress", "main")) == 1 and ("uncaptured", "torch.dcp/rng") in kinds


def test_errors_of_the_package_can_be_caught(run: Path) -> None:
    with pytest.raises(Error) as caught:
        ws.Reader(run / "nothing")
    assert caught.value.code in ("not-found", "not-committed")
