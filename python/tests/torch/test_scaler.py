"""Loss scalers, before and after their first scale, and disabled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.amp import GradScaler
from torch_states import same, save

from waystation.errors import Error
from waystation.torch import scaler as scalers
from waystation.torch.report import Refused


def _step(scaler: GradScaler, value: float) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale((parameter * value).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def _make(scale: float = 2.0**10) -> GradScaler:
    return GradScaler("cpu", init_scale=scale, growth_factor=1.9, backoff_factor=0.45, growth_interval=3)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0, 1.0, 1.0], [1.0, float("inf"), 1.0, 1.0]],
                         ids=["before the first", "one", "grown", "backed off"])
@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
def test_a_scaler_goes_on_as_it_would_have(tmp_path: Path, values: list[float], used: bool) -> None:
    scaler, fresh = _make(0.1 if not values else 1024.0), _make(77.0)
    for value in values:
        _step(scaler, value)
    if used:
        _step(fresh, 1.0)
    ckpt = save(tmp_path, scalers.capture(scaler, skipped=1))
    (form,) = ckpt.record("scaler", "main").value["scale"]
    assert form == ("f32" if values else "f64")
    assert scalers.restore(ckpt, fresh).ok
    if not (used and not values):  # a scaler that has scaled holds its number in binary32
        same(fresh.state_dict(), scaler.state_dict())
    for value in (1.0, 1.0, float("nan"), 1.0, 1.0, 1.0, 1.0):
        _step(scaler, value)
        _step(fresh, value)
        same(fresh.state_dict(), scaler.state_dict())


def test_a_disabled_scaler_has_no_record(tmp_path: Path) -> None:
    off = GradScaler("cpu", enabled=False)
    nothing, some = tmp_path / "nothing", tmp_path / "some"
    nothing.mkdir()
    some.mkdir()
    empty, full = save(nothing, scalers.capture(off)), save(some, scalers.capture(_make()))
    assert scalers.restore(empty, GradScaler("cpu", enabled=False)).ok
    with pytest.raises(Refused, match="disabled"):
        scalers.restore(full, off)
    with pytest.raises(Refused, match="no such scaler"):
        scalers.restore(empty, _make())


def test_settings_that_change_are_told(tmp_path: Path) -> None:
    ckpt = save(tmp_path, scalers.capture(_make()))
    report = scalers.restore(ckpt, GradScaler("cpu"))
    assert "growth_interval was 2000 here and is 3" in str(report)


def test_a_scaler_with_more_state_is_refused() -> None:
    class More(GradScaler):
        def state_dict(self) -> dict[str, object]:
            return super().state_dict() | {"hysteresis_tracker": 2}

    with pytest.raises(Error, match="hysteresis_tracker"):
        scalers.capture(More("cpu"))
