"""Boxes go to where they belong, through copies where they must, in plans of bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch_states import same, save

from waystation.errors import Error
from waystation.key import Key
from waystation.snapshot import Piece, Snapshot
from waystation.torch import model as models
from waystation.torch.loading import Pending, Read, load


def _ckpt(tmp_path: Path) -> tuple[object, dict[str, torch.Tensor]]:
    tensors = {f"t{number}": torch.arange(24, dtype=torch.int32).reshape(4, 6) + 100 * number for number in range(5)}
    return save(tmp_path, Snapshot([Piece.whole(Key.param(name), data) for name, data in tensors.items()])), tensors


def _whole(name: str, into: torch.Tensor) -> Read:
    return Read(Key.param(name), (0, 0), (4, 6), into)


@pytest.mark.parametrize("memory", [1, 100, 1 << 30])
def test_copies_are_made_a_few_at_a_time(tmp_path: Path, memory: int) -> None:
    ckpt, tensors = _ckpt(tmp_path)
    into = {name: torch.zeros(4, 6, dtype=torch.int32) if number % 2 else torch.zeros(6, 4, dtype=torch.int32).t()
            for number, name in enumerate(tensors)}
    calls: list[tuple[int, int]] = []
    load(ckpt, [_whole(name, tensor) for name, tensor in into.items()], memory=memory,
         progress=lambda what, done, total: calls.append((done, total)))
    same({name: tensor.contiguous() for name, tensor in into.items()}, tensors)
    assert calls[-1] == (5 * 96, 5 * 96) and [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_regions_views_and_shared_memory(tmp_path: Path) -> None:
    ckpt, tensors = _ckpt(tmp_path)
    rows, columns, twice = torch.zeros(2, 6).int(), torch.zeros(4, 6).int(), torch.zeros(4, 6).int()
    load(ckpt, [Read(Key.param("t1"), (1, 0), (2, 6), rows), Read(Key.param("t2"), (0, 2), (4, 2), columns[:, 4:]),
                _whole("t3", twice), _whole("t3", twice), Read(Key.param("t3"), (0, 0), (1, 6), twice[:1])])
    assert torch.equal(rows, tensors["t1"][1:3]) and torch.equal(twice, tensors["t3"])
    assert torch.equal(columns[:, 4:], tensors["t2"][:, 2:4]) and not columns[:, :4].any()


def test_a_report_that_is_not_fine_stops_everything(tmp_path: Path) -> None:
    ckpt, _ = _ckpt(tmp_path)
    into, done = torch.zeros(4, 6, dtype=torch.int32), []
    pending = Pending(reads=[_whole("t1", into)], finish=[lambda: done.append(1)])
    pending.report.add("param", "t9", "none", None, "missing")
    with pytest.raises(Error, match="t9"):
        pending.run(ckpt)
    assert not into.any() and not done
    assert pending.run(ckpt, strict=False) == pending.report.lines and into.any() and done


def test_damage_is_an_error(tmp_path: Path) -> None:
    ckpt, _ = _ckpt(tmp_path)
    (shard,) = (tmp_path / "run").rglob("model-*")
    data = bytearray(shard.read_bytes())
    at = data.find(torch.arange(24, dtype=torch.int32).numpy().tobytes())
    data[at + 5] ^= 1
    shard.write_bytes(data)
    with pytest.raises(Error, match="crc-mismatch"):
        load(ckpt, [_whole("t0", torch.zeros(4, 6, dtype=torch.int32))])


def test_tensors_of_one_memory_are_refused_where_other_elements_are_stored(tmp_path: Path) -> None:
    class Pair(nn.Module):
        def __init__(self, second: float, how: str = "apart") -> None:
            super().__init__()
            self.a = nn.Parameter(torch.full((4, 3), 1.0))
            shared = {"apart": torch.full((4, 3), second), "same": self.a.data,
                      "row": self.a.data[2], "column": self.a.data[:, 1]}[how]
            self.b = nn.Parameter(torch.full(shared.shape, second) if how == "apart" else shared)

    ckpt = save(tmp_path, models.capture(Pair(2.0)))
    live = Pair(0.0, "same")
    for strict in (True, False):
        with pytest.raises(Error, match="param a: memory .shares memory with b here") as caught:
            models.restore(ckpt, live, strict=strict)
        assert caught.value.code == "not-exact" and live.a.eq(1).all()
    # Those that hold what was stored of them, all alike or a part of one another, are restored.
    for how in ("same", "row", "column"):
        saved, fresh = Pair(1.0, how), Pair(0.0, how)
        with torch.no_grad():
            saved.a.copy_(torch.arange(12.0).view(4, 3))
        ckpt = save(tmp_path, models.capture(saved))
        assert models.restore(ckpt, fresh).ok
        same(dict(fresh.state_dict()), dict(saved.state_dict()))
    # Nor are those that only lie between one another.
    both = torch.arange(24.0).view(4, 6)
    ckpt = save(tmp_path, Snapshot([Piece.whole(Key.param(name), both[:, at::2].contiguous())
                                    for at, name in enumerate("ab")]))
    woven = torch.zeros(4, 6)
    pending = Pending(reads=[Read(Key.param(name), (0, 0), (4, 3), woven[:, at::2]) for at, name in enumerate("ab")])
    pending.run(ckpt)
    assert woven.equal(both)
