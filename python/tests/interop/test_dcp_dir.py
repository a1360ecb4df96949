"""Directories of `torch.distributed.checkpoint`, imported and loaded again, against what DCP itself loads."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from waystation import _core
from waystation.errors import Error
from waystation.interop import dcp_metadata, import_dcp
from waystation.key import Key

if TYPE_CHECKING:
    from dcp.ranks import Ranks

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _load(path: str | Path, state: dict[str, Any]) -> None:
    import waystation.dcp

    dcp.load(state, storage_reader=waystation.dcp.Reader(path), planner=waystation.dcp.LoadPlanner(), no_dist=True)


def _zeroed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: _zeroed(inner) for key, inner in value.items()}
    if isinstance(value, list) and any(isinstance(inner, (torch.Tensor, dict)) for inner in value):
        return [_zeroed(inner) for inner in value]
    return "nothing"


def _bits(value: Any) -> Any:
    """What two states are compared by: types, and tensors as bytes."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().contiguous().reshape(-1)
        return (str(value.dtype), tuple(value.shape), bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b"")
    if isinstance(value, dict):
        return {key: _bits(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [_bits(inner) for inner in value])
    if isinstance(value, float):
        return struct.pack(">d", value)
    return (type(value).__name__, value)


def _boxes(path: str, key: Key) -> list[Any]:
    entry = _core.Checkpoint.open(path).find(key)
    assert entry is not None
    return sorted((tuple(start), tuple(extent)) for start, extent in entry.chunks)


def _verified(path: str) -> None:
    said = json.loads(_core.verify_json(path))
    assert said.get("ok", True) and not said.get("errors") and not said.get("findings"), said


@pytest.fixture(scope="session")
def of_two(two: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that two ranks of FSDP2 saved with DCP's own writer."""
    from interop import save_dcp

    folder = tmp_path_factory.mktemp("dcp") / "saved"
    two.run(save_dcp.save, str(folder))
    return folder


def _copy(of_two: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(of_two, tmp_path / "copy"))


def _blank() -> dict[str, Any]:
    from interop.save_dcp import state_of, trained

    return dict(_zeroed(state_of(*trained(shard=False))))


def test_what_two_ranks_saved_comes_back_as_dcp_gives_it(of_two: Path, tmp_path: Path) -> None:
    made = import_dcp(of_two, run=tmp_path / "run", step=2, trust_pickle=True)
    _verified(made.path)
    ours, theirs = _blank(), _blank()
    _load(made.path, ours)
    dcp.load(theirs, checkpoint_id=of_two, no_dist=True)
    assert _bits(ours) == _bits(theirs)
    assert ours["betas"] == (0.9, [1, None]) and float(ours["model"]["first.weight"].abs().sum()) > 0


def test_boxes_stay_boxes_and_names_are_those_of_a_save(of_two: Path, tmp_path: Path) -> None:
    made = import_dcp(of_two, out=tmp_path / "c", trust_pickle=True, buffers=["seen"])
    assert _boxes(made.path, Key.param("first.weight")) == [((0, 0), (3, 6)), ((3, 0), (2, 6))]
    assert _boxes(made.path, Key.param("last.weight")) == [((0, 0), (1, 5))]
    assert _boxes(made.path, Key.optimizer("first.weight", "adam.m", "optim")) == [((0, 0), (3, 6)), ((3, 0), (2, 6))]
    assert _boxes(made.path, Key.buffer("seen")) == [((), ())]
    records = {(kind, name): json.loads(value) for kind, name, _, value in _core.Checkpoint.open(made.path).records()}
    optimizer = records["optimizer", "optim"]
    assert optimizer["algorithm"] == "adamw"
    assert [step["step"] for step in optimizer["steps"]] == [2]


def test_pytorch_is_not_needed(of_two: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['torch'] = None\n"
        "from waystation.interop import import_dcp\n"
        f"print(import_dcp({str(of_two)!r}, out={str(tmp_path / 'c')!r}, trust_pickle=True).tensors)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and int(done.stdout) > 10, done.stderr


def _saved(state: dict[str, Any], folder: Path) -> Path:
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    return folder


def _everything() -> dict[str, Any]:
    dtypes = (
        "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128 "
        "float8_e4m3fn float8_e5m2 float8_e8m0fnu float4_e2m1fn_x2"
    )
    raw = np.random.default_rng(5)
    model = {}
    for name in dtypes.split():
        dtype = getattr(torch, name, None)
        if dtype is not None:
            data = raw.integers(0, 2 if name == "bool" else 256, 48, dtype=np.uint8)
            model[name] = torch.from_numpy(data).view(dtype).reshape(3, -1)
    return {
        "model": {
            **model,
            "scalar": torch.tensor(4.6052),
            "count": torch.tensor(7),
            "empty": torch.zeros(0, 4),
            "turned": torch.arange(12.0).reshape(3, 4).t(),
            "nan": torch.tensor([float("nan"), -0.0, float("inf")]),
        },
        "list": [torch.ones(2), {"deep": torch.zeros(3)}, 5],
        "plain": [1, 2, (3, "a")],
        "lr": 1e-3,
        "none": None,
        "size": torch.Size([1, 2]),
        "dtype": torch.bfloat16,
        "device": torch.device("cuda:1"),
        "big": 2**80,
        "bytes": b"abc",
        "long": bytes(range(256)) * 50,
        "numpy": np.random.get_state(),
        "tensors": (torch.ones(2), [torch.zeros(1)]),
        "flag": True,
        "f32": np.float32(0.1),
        "nan": float("nan"),
        "text": "é\u4e2d",
        "set": {1, 2},
        "rng": torch.get_rng_state(),
    }


def test_every_kind_of_entry_comes_back(tmp_path: Path) -> None:
    state = _everything()
    made = import_dcp(_saved(state, tmp_path / "dcp"), out=tmp_path / "c", trust_pickle=True)
    _verified(made.path)
    ours, theirs = _zeroed(state), _zeroed(state)
    _load(made.path, ours)
    dcp.load(theirs, checkpoint_id=tmp_path / "dcp", no_dist=True)
    for name in state:
        if name == "numpy":
            assert ours[name][1].tobytes() == state[name][1].tobytes() and ours[name][0] == "MT19937"
        else:
            assert _bits(ours[name]) == _bits(theirs[name]), name


def _metadata(folder: Path, change: Callable[[Any], None]) -> None:
    """Writes the metadata anew, as a faulty writer would have."""
    path = folder / ".metadata"
    said = pickle.loads(path.read_bytes())  # our own file
    change(said)
    path.write_bytes(pickle.dumps(said))


def _key_of(said: Any, name: str, at: int) -> Any:
    return sorted((index for index in said.storage_data if index.fqn == name), key=lambda index: tuple(index.offset))[
        at
    ]


def _chunks(said: Any) -> Any:
    return said.state_dict_metadata["model.first.weight"].chunks


def _drop_box(said: Any) -> None:
    del _chunks(said)[1]


def _shift_box(said: Any) -> None:
    _chunks(said)[1].offsets = torch.Size([2, 0])
    key = _key_of(said, "model.first.weight", 1)
    said.storage_data[type(key)("model.first.weight", (2, 0))] = said.storage_data.pop(key)


def _double_box(said: Any) -> None:
    _chunks(said).append(_chunks(said)[0])


def _drop_place(said: Any) -> None:
    del said.storage_data[_key_of(said, "model.first.weight", 1)]


def _out_of_shape(said: Any) -> None:
    said.state_dict_metadata["model.first.weight"].size = torch.Size([4, 6])


def _swap_places(said: Any) -> None:
    one, two = (_key_of(said, "model.first.weight", at) for at in (0, 1))
    places = said.storage_data
    places[one], places[two] = places[two], places[one]


def _other_dtype(said: Any) -> None:
    said.state_dict_metadata["model.first.weight"].properties.dtype = torch.bfloat16


def _place(**members: Any) -> Callable[[Any], None]:
    def change(said: Any) -> None:
        place = said.storage_data[_key_of(said, "model.first.weight", 0)]
        for name, value in members.items():
            setattr(place, name, value)

    return change


def _same_bytes(said: Any) -> None:
    one, two = (_key_of(said, "model.first.weight", at) for at in (0, 1))
    said.storage_data[one] = said.storage_data[two]


_FAULTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "a box less": (_drop_box, "cover-gap"),
    "a box that overlaps": (_shift_box, "cover-overlap"),
    "a box twice": (_double_box, "cover-overlap"),
    "a box without a place": (_drop_place, "file-missing"),
    "a smaller shape": (_out_of_shape, "bad-argument"),
    "boxes in each other's place": (_swap_places, "bad-argument"),
    "one place for two boxes": (_same_bytes, "bad-argument"),
    "another dtype": (_other_dtype, "bad-argument"),
    "a file above": (_place(relative_path="../secret"), "bad-argument"),
    "a file anywhere": (_place(relative_path="/etc/passwd"), "bad-argument"),
    "a file that is not there": (_place(relative_path="__9_0.distcp"), "file-missing"),
    "bytes of others, too": (_place(length=1 << 40), "bad-argument"),
    "an offset past the end": (_place(offset=1 << 40), "length-mismatch"),
    "an offset within": (_place(offset=3), "bad-argument"),
    "a negative offset": (_place(offset=-5), "bad-argument"),
    "compressed bytes": (_place(transform_descriptors=["stream.zstd/1"]), "bad-argument"),
}


@pytest.mark.parametrize("name", _FAULTS)
def test_a_fault_is_an_error_and_never_zeros(name: str, of_two: Path, tmp_path: Path) -> None:
    change, code = _FAULTS[name]
    folder = _copy(of_two, tmp_path)
    _metadata(folder, change)
    with pytest.raises(Error) as refused:
        import_dcp(folder, out=tmp_path / "c", trust_pickle=True)
    assert refused.value.code == code, refused.value
    assert not (tmp_path / "c").exists()


def test_a_missing_file_is_named(of_two: Path, tmp_path: Path) -> None:
    folder = _copy(of_two, tmp_path)
    lost = sorted(folder.glob("*.distcp"))[-1]
    lost.unlink()
    with pytest.raises(Error, match=lost.name) as refused:
        import_dcp(folder, out=tmp_path / "c", trust_pickle=True)
    assert refused.value.code == "file-missing"


def test_a_file_cut_short_and_one_of_zeros_are_errors(of_two: Path, tmp_path: Path) -> None:
    for fault in ("cut", "zeros"):
        folder = Path(shutil.copytree(of_two, tmp_path / fault))
        file = max(folder.glob("*.distcp"))
        size = file.stat().st_size
        os.truncate(file, size // 2)
        if fault == "zeros":
            os.truncate(file, size)
        with pytest.raises(Error):
            import_dcp(folder, out=tmp_path / "c", trust_pickle=True)
        assert not (tmp_path / "c").exists()


def test_a_flipped_bit_is_an_error(of_two: Path, tmp_path: Path) -> None:
    folder = _copy(of_two, tmp_path)
    from interop.save_dcp import trained

    weight = trained(shard=False)[0].first.weight.detach()[:3].contiguous().numpy().tobytes()
    file = next(file for file in folder.glob("*.distcp") if weight in file.read_bytes())
    data = bytearray(file.read_bytes())
    data[data.find(weight) + 10] ^= 4
    file.write_bytes(data)
    with pytest.raises(Error) as refused:
        import_dcp(folder, out=tmp_path / "c", trust_pickle=True)
    assert refused.value.code == "crc-mismatch"
    assert not (tmp_path / "c" / "waystation.commit").exists()
    assert import_dcp(folder, out=tmp_path / "d", trust_pickle=True, verify_crc=False).tensors > 0


class _Runs:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.path}",)


def test_nothing_of_the_metadata_is_run(of_two: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for member in ("planner_data", "storage_meta", "version"):
        folder = Path(shutil.copytree(of_two, tmp_path / member))
        _metadata(folder, lambda said, member=member: setattr(said, member, _Runs(str(canary))))  # type: ignore[misc]
        with pytest.raises(Error, match=r"it names \w+\.system"):
            import_dcp(folder, out=tmp_path / "c", trust_pickle=True, skip_unreadable=True)
    assert not canary.exists()


def test_nothing_of_a_value_is_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    folder = _saved({"model": {"w": torch.ones(2)}, "evil": _Runs(str(canary))}, tmp_path / "dcp")
    with pytest.raises(Error, match=r"evil is an object of \w+\.system"):
        import_dcp(folder, out=tmp_path / "c", trust_pickle=True)
    made = import_dcp(folder, out=tmp_path / "d", trust_pickle=True, skip_unreadable=True)
    assert len(made.skipped) == 1 and not canary.exists()


def test_a_box_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    folder = _saved({"model": {"w": torch.ones(2)}, "x": 5}, tmp_path / "dcp")

    def change(said: Any) -> None:
        tensor = next(index for index in said.storage_data if index.fqn == "model.w")
        value = next(index for index in said.storage_data if index.fqn == "x")
        places = said.storage_data
        places[tensor], places[value] = places[value], places[tensor]

    _metadata(folder, change)
    with pytest.raises(Error, match="stored as something else"):
        import_dcp(folder, out=tmp_path / "c", trust_pickle=True)


def test_directories_of_other_kinds_are_told_apart(tmp_path: Path) -> None:
    cases = {
        "none": (None, "not-found"),
        "empty": ([], "not-found"),
        "ranks": (["__0.metadata"], "bad-argument"),
        "unended": (["__0_0.distcp"], "file-missing"),
        "hf": (["model.safetensors"], "bad-argument"),
    }
    for name, (files, code) in cases.items():
        folder = tmp_path / name
        if files is not None:
            folder.mkdir()
            for file in files:
                (folder / file).write_bytes(b"")
        with pytest.raises(Error) as refused:
            import_dcp(folder, out=tmp_path / "c", trust_pickle=True)
        assert refused.value.code == code, name


def test_trust_must_be_said_and_links_are_not_followed(of_two: Path, tmp_path: Path) -> None:
    with pytest.raises(Error, match="trust_pickle=True"):
        import_dcp(of_two, out=tmp_path / "c")
    folder = _copy(of_two, tmp_path)
    file = sorted(folder.glob("*.distcp"))[0]
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Error) as refused:
        import_dcp(folder, out=tmp_path / "c", trust_pickle=True)
    assert refused.value.code == "not-regular"
    assert import_dcp(folder, out=tmp_path / "c", trust_pickle=True, trust_links=True).tensors > 0


def test_keys_without_paths_are_imported_under_themselves(tmp_path: Path) -> None:
    from torch.distributed.checkpoint import DefaultSavePlanner

    state = {"a.b": torch.arange(3.0), "c": torch.ones(2)}
    planner = DefaultSavePlanner(flatten_state_dict=False)
    dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True, planner=planner)
    made = import_dcp(tmp_path / "dcp", out=tmp_path / "c", trust_pickle=True)
    assert _boxes(made.path, Key.param("a.b")) == [((0,), (3,))]
    wanted = _zeroed(state)
    _load(made.path, wanted)
    assert _bits(wanted) == _bits(state)


def test_the_test_of_cover_is_that_of_counting(seed: int = 20) -> None:
    """Against an array in which every element is counted."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    verdicts = set()
    for _ in range(3000):
        size = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 3)))
        boxes = _tiles(size, rng)
        for _ in range(rng.choice((0, 0, 1, 2))):
            boxes = _spoil(boxes, size, rng)
        counted = np.zeros(size, int)
        for start, extent in boxes:
            counted[tuple(slice(at, at + length) for at, length in zip(start, extent))] += 1
        fault = dcp_metadata.cover_fault(size, boxes)
        verdicts.add(fault and fault[0])
        assert (fault is None) == bool((counted == 1).all()), (size, boxes)
    assert verdicts == {None, "cover-gap", "cover-overlap"}


def _tiles(size: tuple[int, ...], rng: random.Random) -> list[Any]:
    boxes = [((0,) * len(size), size)]
    for _ in range(rng.randint(0, 5)):
        start, extent = boxes.pop(rng.randrange(len(boxes)))
        axes = [axis for axis, length in enumerate(extent) if length > 1]
        if not axes:
            boxes.append((start, extent))
            continue
        axis = rng.choice(axes)
        cut = rng.randint(1, extent[axis] - 1)
        boxes.append((start, (*extent[:axis], cut, *extent[axis + 1 :])))
        rest = (*extent[:axis], extent[axis] - cut, *extent[axis + 1 :])
        boxes.append(((*start[:axis], start[axis] + cut, *start[axis + 1 :]), rest))
    return boxes


def _spoil(boxes: list[Any], size: tuple[int, ...], rng: random.Random) -> list[Any]:
    if not boxes:
        return boxes
    boxes = list(boxes)
    start, extent = boxes.pop(rng.randrange(len(boxes)))
    how = rng.randrange(3)
    if how == 1:
        boxes += [(start, extent)] * 2
    elif how == 2 and size:
        moved = tuple(rng.randint(0, whole - length) for length, whole in zip(extent, size))
        boxes.append((moved, extent))
    return boxes
