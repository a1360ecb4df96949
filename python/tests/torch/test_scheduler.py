"""Schedules: every class of torch.optim.lr_scheduler goes on as it would have, and what the records claim of it
holds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as lr
from torch.optim.swa_utils import SWALR
from torch_states import same, save

from waystation import records
from waystation.errors import Error
from waystation.torch import scheduler as schedules
from waystation.torch.report import Refused

Make = Callable[[torch.optim.Optimizer], Any]


class _Ramp:
    """A callable whose state is in the state dict, unlike that of a function."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, epoch: int) -> float:
        return min(1.0, (epoch + 1) / self.steps)


ALL: dict[str, Make] = {
    "ChainedScheduler": lambda o: lr.ChainedScheduler(
        [lr.ConstantLR(o, 0.1, 5), lr.ExponentialLR(o, 0.9)], optimizer=o),
    "ConstantLR": lambda o: lr.ConstantLR(o, 0.3, 10),
    "CosineAnnealingLR": lambda o: lr.CosineAnnealingLR(o, 40, eta_min=1e-5),
    "CosineAnnealingWarmRestarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 7, 2),
    "CyclicLR": lambda o: lr.CyclicLR(o, 0.01, 0.1, step_size_up=6, mode="exp_range", gamma=0.99),
    "ExponentialLR": lambda o: lr.ExponentialLR(o, 0.95),
    "LambdaLR": lambda o: lr.LambdaLR(o, [lambda epoch: 0.9**epoch, _Ramp(20)]),
    "LinearLR": lambda o: lr.LinearLR(o, 0.1, 0.9, 23),
    "MultiStepLR": lambda o: lr.MultiStepLR(o, [4, 9, 9, 20], 0.5),
    "MultiplicativeLR": lambda o: lr.MultiplicativeLR(o, lambda epoch: 0.97),
    "OneCycleLR": lambda o: lr.OneCycleLR(o, [0.1, 0.2], total_steps=200, three_phase=True),
    "PolynomialLR": lambda o: lr.PolynomialLR(o, 40, 1.0),
    "PolynomialLR squared": lambda o: lr.PolynomialLR(o, 40, 2.0),
    "ReduceLROnPlateau": lambda o: lr.ReduceLROnPlateau(o, patience=2, cooldown=1, min_lr=[1e-4, 1e-3]),
    "SequentialLR": lambda o: lr.SequentialLR(o, [
        lr.LinearLR(o, 0.01, total_iters=5), lr.CosineAnnealingLR(o, 30), lr.ConstantLR(o, 0.5, 3)],
        milestones=[5, 35]),
    "StepLR": lambda o: lr.StepLR(o, 6, 0.7),
    "SWALR": lambda o: SWALR(o, swa_lr=0.02, anneal_epochs=12),
}


def _optimizer(tensors: bool = False) -> torch.optim.Optimizer:
    def rate(number: float) -> Any:
        return torch.tensor(number) if tensors else number

    return torch.optim.SGD([{"params": [torch.nn.Parameter(torch.ones(2))], "lr": rate(0.1)},
                            {"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate(0.03)}],
                           momentum=0.9, lr=rate(1.0))


def _advance(optimizer: torch.optim.Optimizer, scheduler: Any, first: int, steps: int) -> list[list[Any]]:
    rates = []
    for number in range(first, first + steps):
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecated arguments inside PyTorch
            if isinstance(scheduler, lr.ReduceLROnPlateau):
                scheduler.step(1.0 / (1 + number % 7))
            else:
                scheduler.step()
        rates.append([(float(group["lr"]), group["momentum"]) for group in optimizer.param_groups])
    return rates


def test_no_class_of_lr_scheduler_is_forgotten() -> None:
    classes = {name for name, kind in vars(lr).items() if isinstance(kind, type) and issubclass(kind, lr.LRScheduler)}
    assert classes - {"LRScheduler", "_LRScheduler"} <= {name.split()[0] for name in ALL}


@pytest.mark.parametrize("done", [0, 1, 17])
@pytest.mark.parametrize("name", ALL)
def test_a_schedule_goes_on_as_it_would_have(tmp_path: Path, name: str, done: int) -> None:
    optimizer, fresh = _optimizer(), _optimizer()
    scheduler, resumed = ALL[name](optimizer), ALL[name](fresh)
    _advance(optimizer, scheduler, 0, done)
    ckpt = save(tmp_path, schedules.capture(scheduler))
    for mine, theirs in zip(fresh.param_groups, optimizer.param_groups):  # the optimizer comes first
        mine.update({key: value for key, value in theirs.items() if key != "params"})
    assert schedules.restore(ckpt, resumed).ok
    same(resumed.state_dict(), scheduler.state_dict())
    assert schedules.capture(resumed).records == schedules.capture(scheduler).records
    assert _advance(fresh, resumed, done, 50) == _advance(optimizer, scheduler, done, 50)
    same(resumed.state_dict(), scheduler.state_dict())


@pytest.mark.parametrize("name", ["CosineAnnealingLR", "ExponentialLR", "LinearLR", "SequentialLR", "StepLR"])
def test_rates_that_are_tensors(tmp_path: Path, name: str) -> None:
    optimizer, fresh = _optimizer(True), _optimizer(True)
    scheduler, resumed = ALL[name](optimizer), ALL[name](fresh)
    _advance(optimizer, scheduler, 0, 9)
    ckpt = save(tmp_path, schedules.capture(scheduler))
    assert all("f32" in value for value in ckpt.record("schedule", "main").value["last_value"])
    for mine, theirs in zip(fresh.param_groups, optimizer.param_groups):
        mine["lr"].copy_(theirs["lr"])
    assert schedules.restore(ckpt, resumed).ok
    assert _advance(fresh, resumed, 9, 20) == _advance(optimizer, scheduler, 9, 20)


@pytest.mark.parametrize("name", ALL)
def test_the_record_says_the_rates_in_force(tmp_path: Path, name: str) -> None:
    optimizer = _optimizer()
    scheduler = ALL[name](optimizer)
    for number in range(60):
        snapshot = schedules.capture(scheduler, unit="epochs")
        (record,) = [each for each in snapshot.records if each.kind == "schedule"]
        assert record.value["position"] == {"unit": "epochs", "value": number}
        rates = [records.float_of(value) for value in record.value["last_value"]]
        assert rates == [group["lr"] for group in optimizer.param_groups]
        expected = {"CosineAnnealingLR": "linear-warmup+cosine" if number <= 40 else None,
                    "LinearLR": "linear-warmup+linear", "PolynomialLR": "linear-warmup+linear"}.get(name)
        assert record.value["algorithm"] == (expected or f"torch.{name.split()[0]}"), number
        if number in (0, 13, 39, 40, 59):
            at = tmp_path / str(number)
            at.mkdir()
            save(at, snapshot)  # verified: the canary agrees with what the specification computes
        _advance(optimizer, scheduler, number, 1)


def test_a_rate_that_the_loop_set_is_not_claimed_to_be_computed() -> None:
    optimizer = _optimizer()
    scheduler = ALL["CosineAnnealingLR"](optimizer)
    _advance(optimizer, scheduler, 0, 3)
    scheduler._last_lr = [rate * 1.001 for rate in scheduler._last_lr]
    (record,) = [each for each in schedules.capture(scheduler).records if each.kind == "schedule"]
    assert record.value["algorithm"] == "torch.CosineAnnealingLR"


def test_another_schedule_is_refused(tmp_path: Path) -> None:
    ckpt = save(tmp_path, schedules.capture(ALL["StepLR"](_optimizer())))
    for name in ("ExponentialLR", "SequentialLR"):
        with pytest.raises(Refused, match="StepLR in the checkpoint"):
            schedules.restore(ckpt, ALL[name](_optimizer()), strict=False)
    nested = tmp_path / "nested"
    nested.mkdir()
    ckpt_of_several = save(nested, schedules.capture(ALL["SequentialLR"](_optimizer())))
    optimizer = _optimizer()
    inner = [lr.LinearLR(optimizer), lr.ExponentialLR(optimizer, 0.9), lr.ConstantLR(optimizer)]
    other = lr.SequentialLR(optimizer, inner, milestones=[5, 35])
    with pytest.raises(Refused, match=r"CosineAnnealingLR, ConstantLR\) in the checkpoint"):
        schedules.restore(ckpt_of_several, other, strict=False)
    with pytest.raises(Refused, match="no state of such"):
        schedules.restore(ckpt, ALL["StepLR"](_optimizer()), name="warm")
    one = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(Refused, match="made of 2"):
        schedules.restore(ckpt, lr.StepLR(one, 6), strict=False)
    report = schedules.restore(ckpt, lr.StepLR(_optimizer(), 8, 0.7))
    assert report.ok and "step_size was 8 here and is 6" in str(report)


def test_anything_with_a_state_dict_is_a_schedule(tmp_path: Path) -> None:
    class Warm:
        def __init__(self) -> None:
            self.now = 0

        def state_dict(self) -> dict[str, int]:
            return {"now": self.now}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.now = state["now"]

    warm, fresh = Warm(), Warm()
    warm.now = 5
    snapshot = schedules.capture(warm)
    assert [record.kind for record in snapshot.records] == ["value"]
    schedules.restore(save(tmp_path, snapshot), fresh)
    assert fresh.now == 5
    with pytest.raises(Error, match="no state_dict"):
        schedules.capture(object())
    with pytest.raises(Error, match="optimizer_steps"):
        schedules.capture(warm, unit="rounds")


def test_a_place_never_gets_what_another_one_saved(tmp_path: Path) -> None:
    made = lr.StepLR(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.5), 3)
    first, second = (("pp", 0),), (("pp", 1),)
    ckpt = save(tmp_path, schedules.capture(made, coordinate=first), topology=[("pp", 1)])
    assert schedules.plan(ckpt, made, coordinate=first).report.ok
    assert schedules.plan(ckpt, made).report.ok  # one process that stands nowhere takes the only one
    assert [line.finding for line in schedules.plan(ckpt, made, coordinate=second).report] == ["missing"]
