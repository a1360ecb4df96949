"""Arrays of the caller that are read into: which lose something, and are refused, and what PyTorch is told."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import torch

import waystation
from waystation import Error
from waystation import _overlap as overlap

W = np.arange(12, dtype="<f4").reshape(3, 4)


@pytest.fixture()
def ckpt(tmp_path: pathlib.Path) -> waystation.Checkpoint:
    flags = np.array([[0, 2], [1, 255]], np.uint8).view(bool)
    waystation.save(tmp_path / "c", {"w": W, "v": W + 1, "flags": flags}, aliases={"tied": "w"})
    return waystation.open(tmp_path / "c")


@pytest.mark.parametrize(
    "out",
    [
        np.lib.stride_tricks.as_strided(np.zeros(4, "<f4"), (3, 4), (0, 4)),
        np.lib.stride_tricks.sliding_window_view(np.zeros(6, "<f4"), 4, writeable=True),
        torch.zeros(1).expand(3, 4),
        torch.zeros(6).as_strided((3, 4), (1, 1)),
    ],
)
def test_what_lies_over_itself_is_refused(ckpt: waystation.Checkpoint, out: Any) -> None:
    for read in (lambda: ckpt.load(out={"w": out}), lambda: ckpt["w"].read_into(out)):
        with pytest.raises(Error, match="over each other") as refused:
            read()
        assert refused.value.code == "bad-argument"
    assert not np.asarray(out).any()


def test_arrays_that_lie_over_each_other_are_refused(ckpt: waystation.Checkpoint) -> None:
    little, tensor = np.zeros((3, 4), "<f4"), torch.zeros(3, 4)
    wide = np.zeros(16, "<f4")
    for out in (
        {"w": little, "tied": little.view(">f4")},
        {"w": little, "v": little},
        {"w": tensor, "v": tensor.view(3, 4)},
        {"w": wide[:12].reshape(3, 4), "v": wide[4:].reshape(3, 4)},
    ):
        with pytest.raises(Error, match="over each other") as refused:
            ckpt.load(out=out)
        assert refused.value.code == "bad-argument"
    assert not little.any() and not tensor.any() and not wide.any()


def test_arrays_that_are_one_or_lie_side_by_side_are_read(ckpt: waystation.Checkpoint) -> None:
    both = np.zeros((3, 8), "<f4")
    ckpt.load(out={"w": both[:, 1::2], "v": both[:, ::2], "tied": both[:, 1::2]})
    np.testing.assert_array_equal(both[:, 1::2], W)
    np.testing.assert_array_equal(both[:, ::2], W + 1)
    columns = torch.zeros(4, 6)
    ckpt.load(out={"w": columns.T[:3], "v": columns.T[3:]})
    assert torch.equal(columns.T, torch.tensor(np.concatenate([W, W + 1])))
    swapped = np.zeros((3, 4), ">f4")
    np.testing.assert_array_equal(ckpt.load(out={"w": swapped})["w"], W)


def test_whether_elements_lie_over_each_other() -> None:
    array = np.zeros((2, 3, 4))
    for view in (array, array.T, array[::-1, ::2], array[:, :, 1], array[None], np.broadcast_to(array[:0], (0, 3, 4))):
        assert not overlap.within(view)
    assert overlap.within(np.broadcast_to(array, (5, 2, 3, 4)))
    assert overlap.among({"a": array[0], "b": array[1], "c": array[:, :, :0]}.items()) is None
    assert overlap.among({"a": array[0], "b": array[::-1, 2]}.items()) == ("a", "b")
    assert overlap.among({"a": bytearray(3), "b": array}.items()) is None


def test_pytorch_is_told_that_a_tensor_was_written_to(ckpt: waystation.Checkpoint) -> None:
    parameter = torch.nn.Parameter(torch.ones(3, 4))
    loss = (parameter * parameter).sum()
    ckpt.load(out={"w": parameter})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        assert torch.equal(ckpt.load(out={"w": torch.zeros(3, 4)})["w"], torch.tensor(W))


def test_bytes_of_bools_are_carried_as_they_are(ckpt: waystation.Checkpoint) -> None:
    out = torch.zeros(2, 2, dtype=torch.bool).t()
    ckpt.load(out={"flags": out})
    assert out.view(torch.uint8).tolist() == [[0, 2], [1, 255]]
    assert waystation.arrays.as_bytes(out).tolist() == [0, 2, 1, 255]
