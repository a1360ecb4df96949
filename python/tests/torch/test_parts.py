"""What cannot be a part of a state is refused when it is handed over; and what a state says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, lr_scheduler

import waystation
from waystation import CheckpointManager, Job, UsageError
from waystation.torch import ResumableSampler, TrainingState, digest_of_dataset
from waystation.torch.report import Report


def made(seed: int = 0, **more: Any) -> TrainingState:
    torch.manual_seed(seed)
    model = nn.Linear(2, 2)
    return TrainingState(model, AdamW(model.parameters()), **more)


NET = nn.Linear(2, 2)
SGDS = [SGD([NET.weight], 0.1), SGD([NET.bias], 0.1)]


@pytest.mark.parametrize(("how", "said"), [
    ({"optimizers": SGDS}, "optimizers is one, or a dict of several by name, .*found a list.*name them"),
    ({"optimizers": {"a": SGDS[0], "b": NET.weight}}, "optimizers: expected .*param_groups under 'b', found a Param"),
    ({"optimizers": SGD}, "found the class SGD"),
    ({"optimizers": {1: SGDS[0]}}, "found the name 1"),
    ({"schedulers": "x"}, "schedulers: expected something with state_dict, load_state_dict .*found 'x'"),
    ({"schedulers": (lr_scheduler.StepLR(SGDS[0], 1),)}, "found a tuple"),
    ({"scaler": 1.0}, "scaler: expected"),
    ({"ema": {"ema": 0.9}}, "ema: expected a torch.nn.Module"),
    ({"ema": [NET]}, "ema is one, or a dict"),
    ({"data": iter([])}, 'data is a dict of them by name, data={"train": …}'),
    ({"data": {"train": [1]}}, "data: expected something with capture"),
    ({"values": {"v": 3}}, "values: expected something with state_dict"),
    ({"model": NET.state_dict()}, "found a state dict: hand over the module"),
    ({"model": [NET]}, "model is one, or a dict"),
    ({"model": None}, "found none"),
])
def test_what_cannot_be_a_part(how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TrainingState(**{"model": NET, **how})


def test_what_can() -> None:
    state = TrainingState({"a": NET}, {"w": SGDS[0], "b": SGDS[1]}, schedulers=lr_scheduler.StepLR(SGDS[0], 1),
                          scaler=torch.amp.GradScaler("cpu"), ema=(NET, 0.5))
    assert list(state.optimizers) == ["w", "b"] and list(state.schedulers) == ["main"]
    assert state.averages["ema"][1] == 0.5


def test_restoring_from_a_path(tmp_path: Path) -> None:
    state = made()
    saved = state.save(Job.start(tmp_path / "run"))
    for path in (saved, saved.path, waystation.latest(tmp_path / "run"), waystation.open(saved)):
        other = made(1)
        assert other.appraise(path).ok and other.restore(path).ok
        assert torch.equal(other.models["main"].weight, state.models["main"].weight)
    with pytest.raises(UsageError, match=r"waystation\.open.*found None: a run without"):
        made().restore(None)  # type: ignore[arg-type]


def test_what_a_schedule_drives_is_no_note(tmp_path: Path) -> None:
    def cycled(lr: float = 1.0, beta: float = 0.99) -> TrainingState:
        state = made(1)
        adam = state.optimizers["main"]
        adam.param_groups[0]["betas"] = (0.9, beta)
        cycle = lr_scheduler.OneCycleLR(adam, lr, total_steps=10)
        return TrainingState(state.models["main"], adam, schedulers=cycle)

    state = cycled()
    for _ in range(3):
        state.models["main"](torch.ones(2)).sum().backward()
        state.optimizers["main"].step()
        state.schedulers["main"].step()
        state.step()
    saved = state.save(Job.start(tmp_path / "run"))
    report = cycled().restore(saved)
    assert not [line for line in report.notes if line.kind == "optimizer"], report
    (note,) = [line for line in cycled(beta=0.95).restore(saved).notes if line.kind == "optimizer"]
    assert "betas was" in (note.reason or "")


def test_a_note_is_no_stain() -> None:
    report = Report()
    report.add("optimizer", "main/group0", reason="weight_decay was 0.1 here")
    report.add("rng", "torch", "none", "left out")
    assert str(report).startswith("1 of 2 exact\n") and repr(report) == str(report)


def test_refusals_name_the_parameters(tmp_path: Path) -> None:
    def reading(source: str, **more: Any) -> TrainingState:
        return made(data={"train": ResumableSampler(8, 2, source=digest_of_dataset(source))}, **more)

    saved = reading("a").save(Job.start(tmp_path / "run"))
    with pytest.raises(waystation.Error, match=r"digest_of_dataset or digest_of_files.*leave_out=") as caught:
        reading("b").restore(saved)
    assert caught.value.code == "source-changed"
    with pytest.raises(waystation.Error, match=r"sources=\{name.*digest_of_dataset") as offered:
        waystation.restore(saved, sources={"train": (8, "0" * 64)})
    assert offered.value.code == "source-changed"
    with pytest.raises(waystation.NotExactError, match=r'streams="fork".*cursors=.*leave_out='):
        waystation.restore(saved)


def test_what_notebooks_show(tmp_path: Path) -> None:
    data = ResumableSampler(8, 2, source=digest_of_dataset("a"))
    assert repr(data) == "<ResumableSampler of 8 records: epoch 0, 0 of 8 items consumed, rank 0 of 1>"
    assert repr(made(data={"train": data}, rng=False)).startswith(
        "<TrainingState at step 0: models main; optimizers main; data train")
    with CheckpointManager(tmp_path / "run", save_on_sigterm=False) as manager:
        assert repr(manager) == f"<CheckpointManager of {tmp_path / 'run'}: no save yet>"
        made().save(manager)
        assert "last saved step-000000000000-" in repr(manager)
    assert "closed" in repr(manager)
