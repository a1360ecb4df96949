"""The loss scaler of mixed precision (`torch.amp.GradScaler`) into a record and back."""

from __future__ import annotations

from functools import partial as bound
from typing import TYPE_CHECKING, Any

from .. import records
from ..errors import usage
from ..records import Coordinate, float_of
from ..snapshot import Snapshot
from .loading import Pending
from .report import Report
from .stored import Stored

if TYPE_CHECKING:
    from .. import _core
    from ..checkpoint import Checkpoint

_KIND = "scaler"
_MEMBERS = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}


def capture(scaler: Any, *, name: str = "main", skipped: int | None = None, coordinate: Coordinate = ()) -> Snapshot:
    """The record of a scaler; nothing for one that is disabled. `skipped` is how many steps it skipped, where that is
    counted. Taken after `update()`. Raises `bad-argument` for a scaler that has more state than the format says."""
    state = _state(scaler, name)
    if state is None:
        return Snapshot()
    made = records.scaler(
        name, scale=_scale(scaler, state), growth=float(state["growth_factor"]), backoff=float(state["backoff_factor"]),
        interval=int(state["growth_interval"]), good_steps=int(state["_growth_tracker"]), skipped=skipped)
    return Snapshot(records=[records.Record(_KIND, name, made.value, coordinate)])


def plan(ckpt: Checkpoint | Stored, scaler: Any, *, name: str = "main", coordinate: Coordinate = ()) -> Pending:
    """What loading into `scaler` would do, and what stands against it; nothing is touched."""
    stored = Stored.of(ckpt)
    pending = Pending()
    record = stored.record(_KIND, name, coordinate)
    now = _state(scaler, name)
    if record is None and now is None:
        pending.report.add(_KIND, name, reason="disabled, as it was")
    elif record is None:
        pending.report.add(_KIND, name, "none", "the checkpoint has no such scaler", "missing")
    elif now is None:
        pending.report.add(_KIND, name, "none", "in the checkpoint; the scaler here is disabled", "unexpected")
    else:
        value = record.value
        more = f"hysteresis {value['hysteresis']} is not kept by this scaler" if "hysteresis" in value else None
        state = {"scale": float_of(value["scale"]), "growth_factor": float_of(value["growth"]),
                 "backoff_factor": float_of(value["backoff"]), "growth_interval": value["interval"],
                 "_growth_tracker": value["good_steps"]}
        changed = "; ".join(f"{member} was {now[member]!r} here and is {state[member]!r} as saved"
                            for member in ("growth_factor", "backoff_factor", "growth_interval")
                            if now[member] != state[member])
        if more is not None:
            pending.report.add(_KIND, name, "none", more, "form")
        else:
            pending.report.add(_KIND, name, reason=changed or None)
            pending.finish.append(bound(_load, scaler, state))
    return pending


def restore(ckpt: Checkpoint | Stored, scaler: Any, *, name: str = "main", strict: bool = True,
            coordinate: Coordinate = (), progress: _core.Progress | None = None) -> Report:
    """Loads a scaler. Raises `not-exact` before it touches anything."""
    stored = Stored.of(ckpt)
    pending = plan(stored, scaler, name=name, coordinate=coordinate)
    pending.run(stored.ckpt, strict=strict, progress=progress)
    return pending.report


def _state(scaler: Any, name: str) -> dict[str, Any] | None:
    """The state dict, None of a disabled scaler."""
    if not callable(getattr(scaler, "state_dict", None)) or not callable(getattr(scaler, "load_state_dict", None)):
        raise usage(f"scaler {name!r} is a {type(scaler).__name__}, which has no state_dict and load_state_dict")
    state = dict(scaler.state_dict())
    if not state:
        return None
    if set(state) != _MEMBERS:
        raise usage(f"scaler {name!r} has the state {sorted(state)}; what a record says is {sorted(_MEMBERS)}",
                    remedy="Save its state_dict as a value of your own.")
    return state


def _scale(scaler: Any, state: dict[str, Any]) -> dict[str, str]:
    # Before the first loss was scaled there is no tensor yet, and the number is one of Python's.
    if getattr(scaler, "_scale", None) is None:
        return records.f64(float(state["scale"]))
    return records.f32(float(state["scale"]))


def _load(scaler: Any, state: dict[str, Any]) -> None:
    scaler.load_state_dict(state)
