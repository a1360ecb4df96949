"""Files of `torch.save`, imported and read back, against what PyTorch itself loads."""

from __future__ import annotations

import collections
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waystation
from waystation import _core
from waystation.errors import Error
from waystation.interop import import_torch_file
from waystation.key import Key

torch = pytest.importorskip("torch")


def _entries(path: str | Path) -> dict[Key, Any]:
    checkpoint = _core.Checkpoint.open(str(path))
    return {Key.of(entry.key): entry for entry in checkpoint.entries()}


def _bytes(path: str | Path, key: Key) -> bytes:
    checkpoint = _core.Checkpoint.open(str(path))
    entry = checkpoint.find(key)
    assert entry is not None
    out = np.empty(entry.nbytes, np.uint8)
    checkpoint.read([(key, None, out)])
    return bytes(out)


def _of(tensor: Any) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


def _verified(path: str | Path) -> None:
    import json

    said = json.loads(_core.verify_json(str(path)))
    assert said.get("ok", True) and not said.get("errors") and not said.get("findings"), said


def _load(path: str | Path, state: dict[str, Any]) -> None:
    import torch.distributed.checkpoint as dcp

    import waystation.dcp

    dcp.load(state, storage_reader=waystation.dcp.Reader(path), planner=waystation.dcp.LoadPlanner(), no_dist=True)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and _of(one) == _of(other)
        )
    if isinstance(one, dict):
        return type(one) is type(other) and list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    return type(one) is type(other) and (one == other or one != one and other != other)


def _dtypes() -> list[Any]:
    names = (
        "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128 "
        "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
    )
    return [getattr(torch, name) for name in names.split() if hasattr(torch, name)]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_dtype_comes_through_to_the_bit(protocol: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    state = {}
    for dtype in _dtypes():
        raw = generator.integers(0, 2 if dtype == torch.bool else 256, 48, dtype=np.uint8)
        state[str(dtype).removeprefix("torch.")] = torch.from_numpy(raw).view(dtype).reshape(3, -1)
    torch.save(state, tmp_path / "a.pt", pickle_protocol=protocol)
    made = import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    _verified(made.path)
    for name, tensor in state.items():
        assert _bytes(made.path, Key.param(name)) == _of(tensor), name
    pairs = _entries(made.path)[Key.param("float4_e2m1fn_x2")]
    assert (pairs.dtype, pairs.shape) == ("F4_E2M1", (3, 32))


def test_views_are_stored_as_their_elements(tmp_path: Path) -> None:
    base = torch.arange(120, dtype=torch.float32).reshape(4, 5, 6)
    views = {
        "transposed": base.transpose(0, 2),
        "sliced": base[1:3, ::2, 1:-1],
        "expanded": base[:, :1, :1].expand(4, 7, 3),
        "scalar": base[1, 2, 3],
        "zero": base[:0],
        "channels_last": base[None].contiguous(memory_format=torch.channels_last),
        "one": base[:1, :, :1],
        "wide": torch.arange(12.0).to(torch.complex128).reshape(3, 4).t(),
    }
    torch.save(views, tmp_path / "a.pt")
    made = import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    _verified(made.path)
    for name, tensor in views.items():
        assert _entries(made.path)[Key.param(name)].shape == tuple(tensor.shape)
        assert _bytes(made.path, Key.param(name)) == _of(tensor), name


def test_tied_weights_become_an_alias_and_parts_of_one_storage_do_not(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(4, 3))
    state = {"wte": weight, "lm_head": weight, "row": weight[0], "turned": weight.t()}
    torch.save(state, tmp_path / "a.pt")
    made = import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    entries = _entries(made.path)
    assert Key.of(entries[Key.param("lm_head")].of) == Key.param("wte")
    assert entries[Key.param("row")].of is None and entries[Key.param("turned")].of is None
    for name, tensor in state.items():
        assert _bytes(made.path, Key.param(name)) == _of(tensor)
    _verified(made.path)
    # Each name has the path that the file has it under.
    torch.save({"model": {"wte": weight, "out": {"head": weight}}}, tmp_path / "b.pt")
    made = import_torch_file(tmp_path / "b.pt", out=tmp_path / "d", trust_pickle=True)
    assert {key.name: (entry.of is None, entry.native) for key, entry in _entries(made.path).items()} == {
        "wte": (True, [("torch.dcp", ["model", "wte"])]),
        "out.head": (False, [("torch.dcp", ["model", "out", "head"])]),
    }


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)


def _trained() -> tuple[Any, Any]:
    torch.manual_seed(3)
    net = _Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, amsgrad=True)
    for _ in range(3):
        optimizer.zero_grad()
        net.norm(net.one(torch.randn(5, 3))).square().sum().backward()
        optimizer.step()
    return net, optimizer


def test_a_nest_of_a_training_comes_back_through_dcp(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    net, optimizer = _trained()
    model, named = get_state_dict(net, optimizer)
    state = {
        "model": model,
        "optim": named,
        "step": 7,
        "loss": 0.1,
        "best": float("nan"),
        "tag": "run é",
        "big": -(2**90),
        "betas": (0.9, [0.99, None, True]),
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "where": torch.device("cuda", 1),
        "numpy": np.random.get_state(),
        "f16": np.float16(1.5),
        "u64": np.uint64(2**64 - 1),
        "set": {3, 1, 2},
        "z": 1 - 2j,
        "bytes": b"\x00\xff" * 9,
        "long": bytes(range(256)) * 64,
        "array": bytearray(b"abc"),
        "within": (torch.ones(2), [1]),
        "list": [{"w": torch.full((2,), 3.0)}],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    }
    torch.save(state, tmp_path / "a.pt")
    made = import_torch_file(tmp_path / "a.pt", run=tmp_path / "run", step=7, trust_pickle=True)
    _verified(made.path)
    assert json_latest(tmp_path / "run") == made.path
    key = Key.optimizer("one.weight", "adam.m", "optim")
    assert _bytes(made.path, key) == _of(named["state"]["one.weight"]["exp_avg"])
    assert _entries(made.path)[key].native == [("torch.dcp", ["optim", "state", "one.weight", "exp_avg"])]

    wanted = {**state, "model": _zeroed(model), "optim": _zeroed(named), "list": _zeroed(state["list"])}
    for name in state:
        if not isinstance(state[name], (dict, list)):
            wanted[name] = None
    _load(made.path, wanted)
    for name in state:
        assert _same(_plain(wanted[name]), _plain(state[name])), name


def test_an_optimizer_of_very_many_parameters_is_one(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(100_001)]
    state = {
        "model": {"w0": torch.ones(2)},
        "optim": {
            "state": {"w0": {"momentum_buffer": torch.ones(2)}},
            "param_groups": [
                {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": False, "params": names},
            ],
        },
    }
    torch.save(state, tmp_path / "a.pt")
    made = import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    assert [record[:2] for record in _core.Checkpoint.open(made.path).records() if record[0] == "optimizer"]
    assert _bytes(made.path, Key.optimizer("w0", "sgd.momentum", "optim")) == _of(torch.ones(2))


def json_latest(run: Path) -> str:
    import json

    return str(json.loads(_core.latest_json(str(run)))["path"])


def _zeroed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: _zeroed(inner) for key, inner in value.items()}
    return [_zeroed(inner) for inner in value] if isinstance(value, list) and any(map(_deep, value)) else value


def _deep(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, dict))


def _plain(value: Any) -> Any:
    """Mappings as plain ones: a state dict has no classes of mappings."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "module"])
def test_the_model_is_found_under_its_usual_names(key: str, tmp_path: Path) -> None:
    net, optimizer = _trained()
    torch.save({key: net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2}, tmp_path / "a.pt")
    made = import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True, buffers=["norm.running_mean"])
    _verified(made.path)
    assert _bytes(made.path, Key.param("one.weight")) == _of(net.one.weight)
    assert _bytes(made.path, Key.buffer("norm.running_mean")) == _of(net.norm.running_mean)
    # Numbered parameters: nobody can say which they are.
    assert Key("main", "extension", "optimizer.state.0.exp_avg", "torch.dcp/tensor") in _entries(made.path)


def test_a_bare_state_is_weights_and_nothing_else(tmp_path: Path) -> None:
    net, _ = _trained()
    torch.save(net.state_dict(), tmp_path / "a.pt")
    made = import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    assert {key.role for key in _entries(made.path)} == {"param"}
    assert _core.Checkpoint.open(made.path).records() == []
    net.load_state_dict({name: torch.zeros_like(value) for name, value in net.state_dict().items()})
    wanted = net.state_dict()
    _load(made.path, wanted)
    assert _same(dict(wanted), dict(torch.load(tmp_path / "a.pt")))


def test_a_damaged_tensor_is_an_error(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(1000.0)}, tmp_path / "a.pt")
    data = bytearray((tmp_path / "a.pt").read_bytes())
    at = data.find(struct.pack("<3f", 500.0, 501.0, 502.0))
    data[at + 5] ^= 1
    (tmp_path / "a.pt").write_bytes(data)
    torch.load(tmp_path / "a.pt")  # takes it without a word
    with pytest.raises(Error) as refused:
        import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    assert refused.value.code == "crc-mismatch"
    assert not (tmp_path / "c/waystation.commit").exists()
    import_torch_file(tmp_path / "a.pt", out=tmp_path / "d", trust_pickle=True, verify_crc=False)


def test_a_file_without_checksums_says_how_it_is_imported(tmp_path: Path) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.arange(10.0)}, tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    with pytest.raises(Error, match="verify_crc=False"):
        import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    made = import_torch_file(tmp_path / "a.pt", out=tmp_path / "d", trust_pickle=True, verify_crc=False)
    assert _bytes(made.path, Key.param("w")) == _of(torch.arange(10.0))


@pytest.mark.parametrize(
    ("what", "found"),
    [
        (torch.sparse_coo_tensor([[0]], [1.0], (2,)), "torch._utils._rebuild_sparse_tensor"),
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "torch._utils._rebuild_qtensor"),
        (torch.ones(2, dtype=torch.complex64).conj(), "conjugated"),
        (np.array([None]), "no plain number"),
        (collections.defaultdict(list), "defaultdict"),
        ({1.5: 2}, "only text and integers"),
        ((1, {(1, 2): 3}), "mapping with a key"),
        (torch.float32.to_complex, ".getattr"),
        (Path("x"), "pathlib"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_what_has_no_form_is_refused_by_name(what: Any, found: str, tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(1)}, "odd": what}, tmp_path / "a.pt")
    with pytest.raises(Error) as refused:
        import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    assert found in str(refused.value)
    assert not (tmp_path / "c").exists()


def test_what_is_skipped_is_recorded(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(1)}, "odd": torch.nn.Linear(2, 2), "step": 1}, tmp_path / "a.pt")
    made = import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True, skip_unreadable=True)
    assert len(made.skipped) == 1 and "odd is an object of torch.nn.modules.linear.Linear" in made.skipped[0]
    kinds = {(kind, name) for kind, name, _, _ in _core.Checkpoint.open(made.path).records()}
    assert ("uncaptured", "odd") in kinds and ("value", "torch.dcp/0") in kinds


def test_text_and_number_that_are_one_key_are_refused(tmp_path: Path) -> None:
    torch.save({"a": {1: torch.ones(1), "1": torch.zeros(1)}}, tmp_path / "a.pt")
    with pytest.raises(Error, match="both as text and as a number"):
        import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    torch.save({"a": {"b": torch.ones(1)}, "a.b": torch.zeros(1)}, tmp_path / "a.pt")
    with pytest.raises(Error, match=r"flat key a\.b"):
        import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)


def test_where_it_goes_is_checked_first(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "a.pt")
    (tmp_path / "c").mkdir()
    with pytest.raises(waystation.errors.ExistsError):
        import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True)
    for where in ({}, {"out": tmp_path / "d", "run": tmp_path / "r"}):
        with pytest.raises(Error, match="either"):
            import_torch_file(tmp_path / "a.pt", trust_pickle=True, **where)
    with pytest.raises(Error) as missing:
        import_torch_file(tmp_path / "none.pt", out=tmp_path / "d", trust_pickle=True)
    assert missing.value.code == "not-found"


def test_pytorch_is_not_needed(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(3)}, "lr": 0.1, "size": torch.Size([1])}, tmp_path / "a.pt")
    code = (
        "import sys\nsys.modules['torch'] = None\n"
        "from waystation.interop import import_torch_file\n"
        f"made = import_torch_file({str(tmp_path / 'a.pt')!r}, out={str(tmp_path / 'c')!r}, trust_pickle=True)\n"
        "print(made.tensors)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_memory_is_bounded_by_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from waystation.interop import intake

    sizes: list[int] = []
    read = intake._read

    def watched(batch: Any, room: Any) -> Any:
        sizes.append(sum(piece.nbytes for _, piece in batch))
        assert room.nbytes == 4096
        return read(batch, room)

    monkeypatch.setattr(intake, "_read", watched)
    state = {f"w{index}": torch.full((256,), float(index)) for index in range(20)} | {"large": torch.arange(5000.0)}
    torch.save(state, tmp_path / "a.pt")
    made = import_torch_file(tmp_path / "a.pt", out=tmp_path / "c", trust_pickle=True, memory=4096)
    assert sizes[:5] == [4096] * 5 and sum(sizes) == 20 * 1024 + 20_000
    assert all(_bytes(made.path, Key.param(name)) == _of(tensor) for name, tensor in state.items())


def test_storages_are_read_where_pytorch_put_them(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "with space=1.pt")
    assert import_torch_file(tmp_path / "with space=1.pt", out=tmp_path / "c", trust_pickle=True).nbytes == 12
    with zipfile.ZipFile(tmp_path / "with space=1.pt") as made:
        assert any(name.startswith("with space=") for name in made.namelist())
