"""Groups of an optimizer that stand in another order, or are other ones: each keeps its own rate, or it is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as lr
from torch_states import joined, save

from waystation.snapshot import Snapshot
from waystation.torch import TrainingState
from waystation.torch import model as models
from waystation.torch import optimizer as optimizers
from waystation.torch import optimizer_load as loads
from waystation.torch import scheduler as schedules
from waystation.torch.report import Refused

Make = Callable[[torch.optim.Optimizer, bool], Any]


class _Doubling(lr.LRScheduler):
    """A user's own, of which nobody knows what it has for each group."""

    def get_lr(self) -> list[Any]:
        return [2 * base for base in self.base_lrs]


def _two(o: torch.optim.Optimizer, turned: bool, a: Any, b: Any) -> list[Any]:
    return [b, a] if turned else [a, b]


ALL: dict[str, Make] = {
    "StepLR": lambda o, t: lr.StepLR(o, 3, 0.5),
    "CosineAnnealingLR": lambda o, t: lr.CosineAnnealingLR(o, 40, eta_min=1e-5),
    "LambdaLR": lambda o, t: lr.LambdaLR(o, _two(o, t, lambda n: 0.9**n, lambda n: 0.5**n)),
    "OneCycleLR": lambda o, t: lr.OneCycleLR(o, _two(o, t, 0.1, 0.2), total_steps=200),
    "CyclicLR": lambda o, t: lr.CyclicLR(o, _two(o, t, 0.01, 0.02), _two(o, t, 0.1, 0.3), step_size_up=6),
    "ReduceLROnPlateau": lambda o, t: lr.ReduceLROnPlateau(o, patience=0, min_lr=_two(o, t, 1e-1, 1e-3)),
    "SequentialLR": lambda o, t: lr.SequentialLR(o, [lr.LinearLR(o, 0.01, total_iters=5), lr.ExponentialLR(o, 0.9)],
                                                 milestones=[5]),
}


def _made(turned: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(2, 3)
    groups = [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.01}]
    return model, torch.optim.SGD(groups[::-1] if turned else groups, lr=1.0, momentum=0.9)


def _captured(model: nn.Module, optimizer: torch.optim.Optimizer) -> Snapshot:
    return joined(models.capture(model), optimizers.capture(optimizer, model))


def _advance(optimizer: torch.optim.Optimizer, scheduler: Any, steps: int) -> list[dict[int, Any]]:
    """The rates and momenta by the number of axes of the parameters that have them."""
    seen = []
    for _ in range(steps):
        for group in optimizer.param_groups:
            for each in group["params"]:
                each.grad = torch.ones_like(each)
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scheduler.step(*([1.0] if isinstance(scheduler, lr.ReduceLROnPlateau) else []))
        seen.append({group["params"][0].ndim: (group["lr"], group["momentum"]) for group in optimizer.param_groups})
    return seen


@pytest.mark.parametrize("whole", [True, False], ids=["state", "parts"])
@pytest.mark.parametrize("name", ALL)
def test_rates_follow_their_groups(tmp_path: Path, name: str, whole: bool) -> None:
    model, optimizer = _made(False)
    scheduler = ALL[name](optimizer, False)
    _advance(optimizer, scheduler, 4)
    fresh, turned = _made(True)
    again = ALL[name](turned, True)
    if whole:
        ckpt = save(tmp_path, TrainingState(model, optimizer, schedulers=scheduler).snapshot(), step=0)
        assert TrainingState(fresh, turned, schedulers=again).restore(ckpt).ok
    else:
        ckpt = save(tmp_path, joined(_captured(model, optimizer), schedules.capture(scheduler)))
        assert loads.restore(ckpt, turned, fresh).ok
        assert schedules.restore(ckpt, again).ok
    assert _advance(turned, again, 12) == _advance(optimizer, scheduler, 12)


def test_a_schedule_that_is_not_known_is_refused(tmp_path: Path) -> None:
    model, optimizer = _made(False)
    ckpt = save(tmp_path, TrainingState(model, optimizer, schedulers=_Doubling(optimizer)).snapshot(),
                step=0)
    fresh, turned = _made(True)
    state = TrainingState(fresh, turned, schedulers=_Doubling(turned))
    for strict in (True, False):
        with pytest.raises(Refused, match=r"schedule main: form .*numbers \[1, 0\].*_Doubling"):
            state.restore(ckpt, strict=strict)
    straight, same_order = _made(False)
    assert TrainingState(straight, same_order, schedulers=_Doubling(same_order)).restore(ckpt).ok


def test_groups_that_were_one_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(2, 3)
    ckpt = save(tmp_path, _captured(model, torch.optim.SGD(model.parameters(), lr=0.1)))
    fresh, split = _made(False)
    with pytest.raises(Refused, match="were the one group 'group0'"):
        loads.restore(ckpt, split, fresh)
    assert [group["lr"] for group in split.param_groups] == [0.5, 0.01]
    report = loads.restore(ckpt, split, fresh, strict=False)
    assert [line.finding for line in report.findings] == ["hyper", "hyper"]
    assert [group["lr"] for group in split.param_groups] == [0.1, 0.1]


@pytest.mark.parametrize("stepped", [False, True])
def test_a_class_that_has_another_ones_name(tmp_path: Path, stepped: bool) -> None:
    class Adam(torch.optim.SGD):
        pass

    model, fresh = nn.Linear(2, 3), nn.Linear(2, 3)
    real, named = torch.optim.Adam(model.parameters(), lr=0.1), Adam(fresh.parameters(), lr=0.1, momentum=0.9)
    for net, optimizer in ((model, real), (fresh, named)):
        if stepped:
            net(torch.ones(2)).sum().backward()
            optimizer.step()
    (tmp_path / "other").mkdir()
    ckpt = save(tmp_path, _captured(model, real))
    other = save(tmp_path / "other", _captured(fresh, named))
    assert other.record("optimizer", "main").value["algorithm"] == "sgd.adam"
    with pytest.raises(Refused, match="adam in the checkpoint, sgd.adam here"):
        loads.restore(ckpt, named, fresh, strict=False)
    with pytest.raises(Refused, match="sgd.adam in the checkpoint, adam here"):
        loads.restore(other, real, model, strict=False)
    assert loads.restore(other, Adam(model.parameters(), lr=0.2), model).ok
