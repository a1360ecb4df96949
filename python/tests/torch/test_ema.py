"""Averages of models, whatever function makes them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn, get_swa_multi_avg_fn
from torch_states import Net, joined, param_keys, same, save, step

from waystation import records
from waystation.errors import Error
from waystation.key import Key
from waystation.torch import ema as averages, model as models
from waystation.torch.report import Refused

KINDS: dict[str, tuple[dict[str, Any], float]] = {
    "swa": ({}, math.nan),
    "swa foreach": ({"multi_avg_fn": get_swa_multi_avg_fn()}, math.nan),
    "ema": ({"avg_fn": get_ema_avg_fn(0.9)}, 0.9),
    "ema foreach": ({"multi_avg_fn": get_ema_multi_avg_fn(0.99)}, 0.99),
    "ema with buffers": ({"multi_avg_fn": get_ema_multi_avg_fn(0.99), "use_buffers": True}, 0.99),
}


def _run(model: Net, average: AveragedModel, optimizer: torch.optim.Optimizer, first: int, steps: int) -> None:
    for number in range(first, first + steps):
        step(model, optimizer, number)
        average.update_parameters(model)


@pytest.mark.parametrize("kind", KINDS)
def test_an_average_goes_on_as_it_would_have(tmp_path: Path, kind: str) -> None:
    how, decay = KINDS[kind]
    model, fresh = Net(0), Net(1)
    average, resumed = AveragedModel(model, **how), AveragedModel(fresh, **how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    _run(model, average, optimizer, 0, 3)
    ckpt = save(tmp_path, joined(models.capture(model), averages.capture(average)))
    record = ckpt.record("ema", "ema").value
    assert record["updates"] == 3 and ("decay" in record) != math.isnan(decay)
    assert math.isnan(decay) or records.float_of(record["decay"]) == decay
    assert models.restore(ckpt, fresh).ok and averages.restore(ckpt, resumed).ok
    same(dict(resumed.state_dict()), dict(average.state_dict()))
    _run(model, average, optimizer, 3, 3)
    _run(fresh, resumed, torch.optim.SGD(fresh.parameters(), lr=0.1), 3, 3)
    same(dict(resumed.state_dict()), dict(average.state_dict()))


def test_an_average_goes_by_the_names_of_the_model() -> None:
    keys = param_keys(averages.capture(AveragedModel(Net())))
    assert Key("main", "ema", "embed.weight", None, "ema") in keys and len(keys) == len(set(keys))
    assert all(key.name not in ("head.weight", "n_averaged") for key in keys)


def test_more_bits_than_the_model_and_functions_of_one_s_own(tmp_path: Path) -> None:
    model = Net(0, torch.bfloat16)
    average = AveragedModel(model, avg_fn=lambda a, b, n: a * 0.5 + b * 0.5)
    average.module.float()
    with pytest.raises(Error, match="pass decay="):
        averages.capture(average)
    ckpt = save(tmp_path, joined(models.capture(model), averages.capture(average, decay=0.5)))
    resumed = AveragedModel(Net(1, torch.bfloat16))
    with pytest.raises(Refused, match="nothing is cast"):
        averages.restore(ckpt, resumed, strict=False)
    resumed.module.float()
    report = averages.restore(ckpt, resumed)
    same(dict(resumed.state_dict()), dict(average.state_dict()))
    assert "is not constant here and was 0.5" in str(report)


def test_any_copy_of_the_model_is_an_average(tmp_path: Path) -> None:
    model, shadow, fresh = Net(0), Net(1), Net(2)
    with pytest.raises(Error, match="pass updates="):
        averages.capture(shadow, decay=0.9)
    snapshot = averages.capture(shadow, name="shadow", decay=0.9, updates=12)
    ckpt = save(tmp_path, joined(models.capture(model), snapshot))
    assert averages.restore(ckpt, fresh, name="shadow").ok
    same(dict(fresh.state_dict()), dict(shadow.state_dict()))
    with pytest.raises(Refused, match="no such average"):
        averages.restore(ckpt, fresh)
