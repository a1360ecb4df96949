"""A tensor of a checkpoint where Python wants a number, a truth value, a sequence or a copy."""

from __future__ import annotations

import copy
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

import waystation
from waystation import Error, tensor

W = np.arange(24.0).reshape(6, 4)


@pytest.fixture()
def ckpt(tmp_path: pathlib.Path) -> waystation.Checkpoint:
    waystation.save(tmp_path / "c", {"w": W, "s": np.float32(2.5), "one": np.array([[0]]), "none": np.zeros((0, 3))})
    return waystation.open(tmp_path / "c")


def test_a_single_element_is_a_number(ckpt: waystation.Checkpoint) -> None:
    s, one = ckpt["s"], ckpt["one"]
    assert (float(s), int(s), complex(s), bool(s), bool(one)) == (2.5, 2, 2.5 + 0j, True, False)
    for name in ("w", "none"):
        for kind in (float, int, complex, bool):
            with pytest.raises(Error, match="neither a number nor") as refused:
                kind(ckpt[name])
            assert refused.value.code == "bad-argument"


def test_it_is_iterated_over_in_few_reads(ckpt: waystation.Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    read = tensor.Tensor._read
    monkeypatch.setattr(tensor.Tensor, "_read", lambda *asked: (reads.append(asked), read(*asked))[1])
    np.testing.assert_array_equal(np.stack(list(ckpt["w"])), W)
    assert 23.0 in ckpt["w"] and 24.0 not in ckpt["w"] and 2.5 in ckpt["s"] and list(ckpt["none"]) == []
    assert len(reads) == 5
    monkeypatch.setattr(tensor, "_PART", 64)
    reads.clear()
    np.testing.assert_array_equal(np.stack(list(ckpt["w"])), W)
    assert len(reads) == 3
    with pytest.raises(TypeError):
        iter(ckpt["s"])


def test_it_is_copied_as_itself_and_not_pickled(ckpt: waystation.Checkpoint) -> None:
    w = ckpt["w"]
    assert copy.copy(w) is w and copy.deepcopy({"w": w})["w"] is w
    with pytest.raises(Error, match="not pickled") as refused:
        pickle.dumps(w)
    assert refused.value.code == "bad-argument"


def test_a_closed_checkpoint_is_not_entered(ckpt: waystation.Checkpoint) -> None:
    with ckpt:
        pass
    with pytest.raises(Error, match="closed"), ckpt:
        pytest.fail("entered")


def test_no_tensor_has_half_a_surrogate_pair_in_its_name(ckpt: waystation.Checkpoint) -> None:
    assert "\ud800" not in ckpt and "w" not in ckpt.component("\ud800")
    with pytest.raises(waystation.NotFoundError):
        ckpt["\ud800"]
