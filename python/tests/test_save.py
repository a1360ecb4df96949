"""Saving alone: what is there afterwards, what is refused before anything is, and what an error leaves behind."""

from __future__ import annotations

import io
import pathlib
import signal
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import waystation
from waystation import Error, Key, Piece, Snapshot, arrays, records, snapshot


def test_what_is_saved_is_valid_and_comes_back(tmp_path: pathlib.Path) -> None:
    tensors = {
        "w": np.arange(12.0).reshape(3, 4),
        "t": torch.arange(3),
        "s": np.float32(1),
        "none": np.zeros((0, 2)),
        "bytes": b"xy",
    }
    where = waystation.save(tmp_path / "ckpt", tensors, step=3)
    assert where == str(tmp_path / "ckpt")
    report = waystation.verify(where)
    assert report.ok and not report.notes, report
    checkpoint = waystation.open(where)
    assert checkpoint.run == "ckpt" and checkpoint.step == 3 and set(checkpoint) == set(tensors)
    for name, data in tensors.items():
        assert checkpoint[name].raw().tobytes() == arrays.as_bytes(data).tobytes()
        assert checkpoint[name].shape == arrays.shape_of(data)


def test_a_shard_is_a_safetensors_file(tmp_path: pathlib.Path) -> None:
    waystation.save(tmp_path / "c", {"w": np.arange(6.0)})
    with safe_open(next((tmp_path / "c").glob("model-*.safetensors")), "np") as shard:  # type: ignore[no-untyped-call]
        found = {key: shard.get_tensor(key) for key in shard.keys()}
    assert [array.tolist() for array in found.values() if array.dtype == np.float64] == [[0, 1, 2, 3, 4, 5]]


def test_tied_arrays_are_stored_once(tmp_path: pathlib.Path) -> None:
    w, n = torch.randn(8, 4), np.arange(10.0)
    tensors = {
        "embed": w,
        "head": w,
        "parameter": torch.nn.Parameter(w),
        "again": n,
        "and": n[:],
        "transposed": w.T,
        "part": w[1:],
        "reshaped": w.reshape(4, 8),
        "as bytes": w.view(torch.int32),
        "buffer": w,
        "half": n[:5],
        "copy": w.clone(),
        "one": torch.zeros(1),
        "zero a": torch.empty(0),
        "zero b": torch.empty(0),
        "reversed": n[::-1],
        "conj": torch.ones(2) + 0j,
    }
    tensors["neg"] = tensors["conj"].conj()
    waystation.save(tmp_path / "c", tensors, buffers={"buffer"})
    waystation.verify(tmp_path / "c").raise_if_bad()
    checkpoint = waystation.open(tmp_path / "c")
    tied = {name: tensor.alias_of.name for name, tensor in checkpoint.items() if tensor.alias_of is not None}
    assert tied == {"head": "embed", "parameter": "embed", "and": "again"}
    assert checkpoint["buffer"].key.role == "buffer"
    for name, data in tensors.items():
        assert checkpoint[name].raw().tobytes() == arrays.as_bytes(data).tobytes(), name


def test_arrays_that_go_away_are_not_taken_for_one(tmp_path: pathlib.Path) -> None:
    class Fresh:
        """Makes an array each time that it is asked, all perhaps at one address."""

        def __init__(self, value: float) -> None:
            self.value = value

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.full(1000, self.value)

    waystation.save(tmp_path / "c", {str(value): Fresh(value) for value in range(5)})
    checkpoint = waystation.open(tmp_path / "c")
    assert all(checkpoint[str(value)][0] == value and checkpoint[str(value)].alias_of is None for value in range(5))


def test_aliases_by_name(tmp_path: pathlib.Path) -> None:
    w = torch.ones(2)
    waystation.save(tmp_path / "c", {"w": w, "tied": w}, aliases={"x": "w", "y": "tied"})
    aliases = {name: tensor.alias_of for name, tensor in waystation.open(tmp_path / "c").items()}
    assert aliases == {"w": None, "tied": Key.param("w"), "x": Key.param("w"), "y": Key.param("w")}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"aliases": {"x": "v"}}, "is of 'v'"),
        ({"aliases": {"w": "w"}}, "a tensor's name already"),
        ({"buffers": ["v"]}, "'buffers' names 'v'"),
        ({"buffers": "w"}, "collection of names"),
        ({"tensors": {3: W} if (W := np.ones(2)) is not None else {}}, "named by a string or a Key"),
        ({"tensors": {"w": "text"}}, "is no array"),
        ({"tensors": {"w": np.array([object()])}}, "no element type"),
        ({"tensors": {"w": torch.ones(2, dtype=torch.complex32)}}, "complex32"),
        ({"tensors": {"w": torch.ones(2, device="meta")}}, "meta"),
        ({"tensors": {"w": torch.ones(2).to_sparse()}}, "sparse"),
        ({"tensors": {"": W}}, "needs a name"),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_written(
    tmp_path: pathlib.Path, how: dict[str, Any], said: str
) -> None:
    with pytest.raises(Error, match=said):
        waystation.save(tmp_path / "c", how.pop("tensors", {"w": np.ones(2)}), **how)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_type_is_refused_with_the_tensors_name(tmp_path: pathlib.Path) -> None:
    with pytest.raises(waystation.UnsupportedError) as refused:
        waystation.save(tmp_path / "c", {"fine": np.ones(1), "bad one": np.array(["a"])})
    assert refused.value.location.tensor == Key.param("bad one").text


def test_nothing_is_replaced(tmp_path: pathlib.Path) -> None:
    waystation.save(tmp_path / "c", {"w": np.ones(2)})
    with pytest.raises(FileExistsError) as refused:
        waystation.save(tmp_path / "c", {"w": np.zeros(2)})
    assert isinstance(refused.value, waystation.ExistsError)
    np.testing.assert_array_equal(waystation.open(tmp_path / "c")["w"], np.ones(2))


def test_after_an_error_the_attempt_is_no_checkpoint_and_the_error_says_so(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Error, match="left uncommitted") as refused:
        waystation.save(tmp_path / "c", {"w": np.ones(2)}, step=5, records=[records.progress(6)])
    assert refused.value.code == "state-disagree" and refused.value.__cause__ is not None
    with pytest.raises(waystation.NotCommittedError):
        waystation.open(tmp_path / "c")
    waystation.save(tmp_path / "d", {"w": np.ones(2)}, step=5, records=[records.progress(6)], check=False)
    assert not waystation.verify(tmp_path / "d").ok


def test_data_of_another_length_are_refused(tmp_path: pathlib.Path) -> None:
    wrong = Piece(Key.param("w"), "F32", (4,), (0,), (4,), b"\0" * 15)
    with pytest.raises(Error, match="has 16 bytes, its data 15"):
        waystation.save_snapshot(tmp_path / "c", Snapshot(pieces=[wrong]))


def test_what_is_not_contiguous_is_copied_in_portions(tmp_path: pathlib.Path) -> None:
    class Writing:
        nbytes = 32 * 5
        calls: list[list[int]] = []

        def write(self, chunks: Any, threads: Any = None, progress: Any = None) -> None:
            self.calls.append([place for place, _ in chunks])
            progress("writing", sum(data.nbytes for _, data in chunks), 0)

    base = np.arange(8.0)
    odd = [Piece.whole(Key.param(str(at)), base[::2] if at != 2 else base[:4]) for at in range(5)]
    seen: list[tuple[int, int]] = []
    snapshot.write(
        Writing(), list(enumerate(odd)), memory=64, progress=lambda what, done, total: seen.append((done, total))
    )  # type: ignore[arg-type]
    assert Writing.calls == [[0, 1, 2], [3, 4]] and seen == [(96, 160), (160, 160)]


def test_attachments_and_records(tmp_path: pathlib.Path) -> None:
    (tmp_path / "vocab.txt").write_text("a b")
    waystation.save(
        tmp_path / "c",
        {},
        attachments={"x/vocab.txt": tmp_path / "vocab.txt", "config.json": b"{}"},
        records=[records.value("v", {"lr": 0.1})],
        topology=[("dp", 1)],
        parent="ab" * 32,
        block_bytes=4096,
    )
    checkpoint = waystation.open(tmp_path / "c")
    assert dict(checkpoint.attachments) == {"x/vocab.txt": b"a b", "config.json": b"{}"} and checkpoint.value("v") == {
        "lr": 0.1
    }
    assert checkpoint.topology == (("dp", 1),) and checkpoint.parent == "ab" * 32 and checkpoint.block_bytes == 4096


def test_progress_reaches_the_end(tmp_path: pathlib.Path) -> None:
    seen: list[tuple[str, int, int]] = []
    waystation.save(tmp_path / "c", {"w": np.ones(1000)}, progress=lambda *said: seen.append(said))
    assert any(done == total == 8000 for _, done, total in seen)


def test_a_progress_that_raises_stops_the_save(tmp_path: pathlib.Path) -> None:
    class Stop(Exception):
        pass

    def stop(what: str, done: int, total: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        waystation.save(tmp_path / "c", {"w": np.ones(1000)}, progress=stop)
    with pytest.raises(Error):
        waystation.open(tmp_path / "c")


def test_an_interrupted_save_is_no_checkpoint(tmp_path: pathlib.Path) -> None:
    code = """
    import os, signal, sys, numpy as np, waystation
    def progress(what, done, total):
        os.kill(os.getpid(), signal.SIGINT)
    waystation.save(sys.argv[1], {"w": np.ones(1 << 22)}, progress=progress)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "c")], stderr=subprocess.PIPE, text=True
    )
    assert "KeyboardInterrupt" in ran.stderr and ran.returncode in (-signal.SIGINT, 130, 1)
    with pytest.raises(Error):
        waystation.open(tmp_path / "c")


def test_bars() -> None:
    from waystation.progress import Bar, beyond, make_bar, reporting, size

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    now = [0.0]
    stream = Terminal()
    bar = Bar(stream, clock=lambda: now[0])
    for done in range(0, 101, 10):
        now[0] += 0.05
        bar("writing", done << 20, 100 << 20)
    now[0] += 1
    bar("commit", 5, 0)
    bar.close()
    lines = stream.getvalue().split("\n")
    assert "writing" in lines[0] and "100.0 MiB/100.0 MiB" in lines[0] and "[####" in lines[0] and "commit" in lines[1]
    assert lines[0].count("\r") < 11 and lines[-1] == ""
    made = make_bar(stream)
    made("reading", 1, 10)
    made("reading", 10, 10)
    made.close()
    assert "reading" in stream.getvalue()
    assert [size(1), size(1536), size(3 << 40)] == ["1 B", "1.5 KiB", "3.0 TiB"]
    with reporting(True) as quiet:  # standard error is no terminal here
        assert quiet is None
    for off in (None, False):
        with reporting(off) as quiet:
            assert quiet is None
    seen: list[Any] = []
    report = beyond(lambda *said: seen.append(said), 10, 100)
    assert report is not None and beyond(None, 0, 0) is None
    report("x", 5, 6)
    assert seen == [("x", 15, 100)]


def test_a_bar_is_shown_at_a_terminal_only(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    waystation.save(tmp_path / "a", {"w": np.ones(1000)}, progress=True)
    assert "%" in shown.getvalue()
    quiet = io.StringIO()
    monkeypatch.setattr(sys, "stderr", quiet)
    waystation.save(tmp_path / "b", {"w": np.ones(1000)}, progress=True)
    assert quiet.getvalue() == ""


def test_other_bits_of_one_memory_are_not_tied(tmp_path: pathlib.Path) -> None:
    little = np.arange(4, dtype="<f4")
    tensors = {"a": little, "b": little.view(">f4"), "c": little.view(">f4")[:]}
    waystation.save(tmp_path / "c", tensors)
    checkpoint = waystation.open(tmp_path / "c")
    assert checkpoint["b"].alias_of is None and checkpoint["c"].alias_of == Key.param("b")
    for name, data in tensors.items():
        np.testing.assert_array_equal(checkpoint[name], data)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "n" * 1025])
def test_what_is_no_name_is_refused_before_the_directory_is_made(tmp_path: pathlib.Path, name: str) -> None:
    w = np.ones(2)
    wrong: list[dict[str, Any]] = [
        {"tensors": {name: w}},
        {"tensors": {"w": w}, "aliases": {name: "w"}},
        {"tensors": {"w": w}, "run": name},
        {"tensors": {"w": w}, "records": [records.Record("k", name, {})]},
    ]
    for how in wrong:
        with pytest.raises(Error) as refused:
            waystation.save(tmp_path / "c", **how)
        assert refused.value.code == "bad-name"
    assert list(tmp_path.iterdir()) == []


def test_a_nested_tensor_is_refused(tmp_path: pathlib.Path) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for refuse in (lambda: waystation.save(tmp_path / "c", {"n": nested}), lambda: arrays.shape_of(nested)):
        with pytest.raises(Error, match="nested") as refused:
            refuse()
        assert refused.value.code == "bad-argument"
