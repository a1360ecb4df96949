"""Schedules of learning rates: the whole state as a value, and what the format can say of it.

The value is what is restored, so every later rate is what it would have been. The record of kind `schedule` says to
others where the schedule stands and which rates are in force; where the specification computes that schedule to the
same numbers it has the parameters too, and its canary then catches a schedule that was put to another position.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial as bound
from typing import TYPE_CHECKING, Any

import torch

from .. import tree
from ..errors import Error, usage
from ..records import Coordinate, Record, f64, tree_of
from ..snapshot import Snapshot
from .boxes import Ranks
from .loading import Pending
from .optimizer_load import order_of
from .report import Report
from .stored import Stored, Values

if TYPE_CHECKING:
    from .. import _core
    from ..checkpoint import Checkpoint

_KIND = "schedule"
_BY_GROUP = frozenset({"base_lrs", "_last_lr", "lr_lambdas", "min_lrs", "max_lrs", "base_momentums", "max_momentums"})
"""Members of the state of PyTorch's schedulers that have one item for each group of the optimizer."""
UNITS = ("optimizer_steps", "samples", "tokens", "epochs")


def capture(scheduler: Any, *, name: str = "main", unit: str = "optimizer_steps", ranks: Ranks = Ranks(),
            coordinate: Coordinate = ()) -> Snapshot:
    """What this rank saves of a scheduler: `unit` is what one `step()` of it counts.

    Anything with `state_dict` and `load_state_dict` is taken; a record of kind `schedule` is made where it also has
    `last_epoch` and rates. Functions (`LambdaLR`) are not in a state dict and not saved: the live scheduler has its
    own. Raises `bad-argument` for state that has no tree, with its place.
    """
    if unit not in UNITS:
        raise usage(f"a schedule counts one of {', '.join(UNITS)}, not {unit!r}")
    snapshot = Snapshot()
    Values(snapshot, ranks).record(record_of(name), {"class": _classes(scheduler), "state": _state(scheduler, name)},
                                   coordinate)
    position = _position(scheduler)
    rates = _rates(scheduler)
    if rates is not None and type(position) is int and position >= 0:
        algorithm, parameters = _computed(scheduler, position, rates) or (f"torch.{_class(scheduler)}", None)
        snapshot.records.append(Record(_KIND, name, {
            "algorithm": algorithm,
            "last_value": [_float(rate) for rate in rates],
            "parameters": parameters,
            "position": {"unit": unit, "value": position},
        }, coordinate))
    return snapshot


def record_of(name: str) -> str:
    """The name of the record of kind `value` that holds the whole state of a schedule."""
    return f"torch.lr_scheduler/{name}"


def plan(ckpt: Checkpoint | Stored, scheduler: Any, *, name: str = "main", coordinate: Coordinate = (),
         orders: Mapping[int, list[int | None]] | None = None) -> Pending:
    """What loading into `scheduler` would do, and what stands against it; nothing is touched.

    A schedule has its rates by the numbers of groups, and optimizers are restored by name. `orders` says of optimizers
    that are going to be restored, by `id`, which saved group each group is; None: as it was when they were.
    """
    stored = Stored.of(ckpt)
    pending = Pending()
    record = stored.record("value", record_of(name), coordinate)
    if record is None:
        pending.report.add(_KIND, name, "none", "the checkpoint has no state of such a scheduler", "missing")
        return pending
    try:
        saved = tree.from_tree(tree_of(record), stored.ckpt.tensor)
    except Error as why:
        pending.report.add(_KIND, name, "none", why.message, "form")
        return pending
    if type(saved) is not dict or set(saved) != {"class", "state"}:
        pending.report.add(_KIND, name, "none", "the record has another form than a scheduler's", "form")
        return pending
    if saved["class"] != _classes(scheduler):
        reason = f"{_said(saved['class'])} in the checkpoint, {_said(_classes(scheduler))} here"
        pending.report.add(_KIND, name, "none", reason, "algorithm")
        return pending
    now, then = _shape(_state(scheduler, name)), _shape(saved["state"])
    if now != then:
        pending.report.add(_KIND, name, "none", f"made of {then} in the checkpoint, of {now} here", "form")
        return pending
    state, against = _turned(scheduler, saved["state"], _order(scheduler, stored, orders))
    if against is not None:
        pending.report.add(_KIND, name, "none", against, "form")
        return pending
    pending.report.add(_KIND, name, reason=_changed(_state(scheduler, name), state))
    pending.finish.append(bound(_load, scheduler, state))
    return pending


def restore(ckpt: Checkpoint | Stored, scheduler: Any, *, name: str = "main", strict: bool = True,
            coordinate: Coordinate = (), progress: _core.Progress | None = None) -> Report:
    """Loads a scheduler; its optimizer is loaded before it. Raises `not-exact` before it touches anything."""
    stored = Stored.of(ckpt)
    pending = plan(stored, scheduler, name=name, coordinate=coordinate)
    pending.run(stored.ckpt, strict=strict, progress=progress)
    return pending.report


def _load(scheduler: Any, state: dict[str, Any]) -> None:
    scheduler.load_state_dict(state)


def _order(scheduler: Any, stored: Stored, orders: Mapping[int, list[int | None]] | None) -> list[int | None] | None:
    """Which saved group each group is that a scheduler drives; None where that is not known, or as it was."""
    optimizer = getattr(scheduler, "optimizer", None)
    if orders is None:
        return order_of(optimizer, stored)
    if optimizer is not None:
        return orders.get(id(optimizer))
    # A class of the user's that does not say what it drives: one of them, and any that was turned counts.
    return next((order for order in orders.values() if not _straight(order)), None)


def _straight(order: list[int | None]) -> bool:
    return all(found is None or found == number for number, found in enumerate(order))


def _turned(scheduler: Any, state: dict[str, Any], order: list[int | None] | None) -> tuple[dict[str, Any], str | None]:
    """The state with what it has for each group in the order of the groups here, or why that cannot be had."""
    if order is None or _straight(order):
        return state, None
    said = f"the groups of its optimizer were numbers {order} when it was saved, and it knows them by number"
    if sorted(found for found in order if found is not None) != list(range(len(order))):
        return state, said
    if not _is_pytorchs(scheduler):
        return state, f"{said}; what of a {_class(scheduler)} belongs to a group is not known"
    return _permuted(state, [found for found in order if found is not None]), None


def _permuted(state: dict[str, Any], order: list[int]) -> dict[str, Any]:
    turned = dict(state)
    for member, value in state.items():
        if member == "_schedulers":
            turned[member] = type(value)(_permuted(each, order) for each in value)
        elif member in _BY_GROUP and isinstance(value, (list, tuple)) and len(value) == len(order):
            turned[member] = type(value)(value[found] for found in order)
    return turned


def _is_pytorchs(scheduler: Any) -> bool:
    return (type(scheduler).__module__ in ("torch.optim.lr_scheduler", "torch.optim.swa_utils")
            and all(_is_pytorchs(inner) for inner in getattr(scheduler, "_schedulers", ())))


def _class(scheduler: Any) -> str:
    return type(scheduler).__name__


def _classes(scheduler: Any) -> Any:
    """The class, with those of the schedulers within it in their order."""
    inner = getattr(scheduler, "_schedulers", None)
    return [_class(scheduler), [_classes(each) for each in inner]] if inner else _class(scheduler)


def _said(classes: Any) -> str:
    if isinstance(classes, list) and len(classes) == 2 and isinstance(classes[1], list):
        return f"{classes[0]} of ({', '.join(map(_said, classes[1]))})"
    return str(classes)


def _state(scheduler: Any, name: str) -> dict[str, Any]:
    if not all(callable(getattr(scheduler, each, None)) for each in ("state_dict", "load_state_dict")):
        raise usage(f"scheduler {name!r} is a {_class(scheduler)}, which has no state_dict and load_state_dict")
    return dict(scheduler.state_dict())


def _shape(state: Any) -> Any:
    """What a nest of schedulers is made of: the numbers of those within each other, and of the groups they drive."""
    inner = state.get("_schedulers") if isinstance(state, dict) else None
    if isinstance(inner, (list, tuple)):
        return [_shape(each) for each in inner]
    rates = state.get("base_lrs", state.get("min_lrs")) if isinstance(state, dict) else None
    return len(rates) if isinstance(rates, (list, tuple)) else 0


def _changed(now: dict[str, Any], saved: dict[str, Any]) -> str | None:
    """What the schedule's own numbers were here and are as saved: those that do not move with steps."""
    moving = {"last_epoch", "_step_count", "_last_lr", "_schedulers", "T_cur", "T_i", "best", "num_bad_epochs",
              "cooldown_counter", "mode_worse"}
    changed = [f"{member} was {now[member]!r} here and is {value!r} as saved" for member, value in saved.items()
               if member not in moving and member in now and type(value) in (int, float, bool, str)
               and now[member] != value]
    return "; ".join(changed) or None


def _position(scheduler: Any) -> int | None:
    """How often it was stepped: of schedulers that step together, as one of them counts."""
    inner = getattr(scheduler, "_schedulers", None)
    position = getattr(scheduler, "last_epoch", None)
    return _position(inner[0]) if position is None and inner else position


def _rates(scheduler: Any) -> list[float | torch.Tensor] | None:
    """The rates in force, one for each group."""
    rates = getattr(scheduler, "_last_lr", None)
    if isinstance(rates, (list, tuple)) and all(isinstance(rate, (int, float, torch.Tensor)) for rate in rates):
        return list(rates)
    return None


def _float(rate: float | torch.Tensor) -> dict[str, str]:
    if isinstance(rate, torch.Tensor):
        value = float(rate.item())
        return {"f32": _f32(value)} if rate.dtype == torch.float32 else f64(value)
    return f64(float(rate))


def _f32(value: float) -> str:
    import struct

    return struct.pack(">f", value).hex()


def _computed(scheduler: Any, position: int, rates: Sequence[float | torch.Tensor]) -> tuple[str, Any] | None:
    """The schedule of the specification that gives these rates, with its parameters; None where none does.

    PyTorch steps from one rate to the next and so gathers rounding, and a loop may have set rates of its own: what is
    claimed is compared with half of the bound that a reader allows.
    """
    kind = type(scheduler)
    bases = list(getattr(scheduler, "base_lrs", ()))
    plain = all(type(each) in (int, float) for each in [*rates, *bases])
    if kind.__module__ != "torch.optim.lr_scheduler" or not plain:
        return None
    bases = [float(base) for base in bases]
    if kind.__name__ == "CosineAnnealingLR" and position <= scheduler.T_max:
        algorithm, floors, total = "linear-warmup+cosine", [float(scheduler.eta_min)] * len(bases), scheduler.T_max
    elif kind.__name__ == "LinearLR":
        algorithm, total = "linear-warmup+linear", scheduler.total_iters
        floors = [base * scheduler.end_factor for base in bases]
        bases = [base * scheduler.start_factor for base in bases]
    elif kind.__name__ == "PolynomialLR" and scheduler.power == 1:
        algorithm, floors, total = "linear-warmup+linear", [0.0] * len(bases), scheduler.total_iters
    else:
        return None
    if type(total) is not int or total <= 0 or len(rates) != len(bases):
        return None
    for rate, base, floor in zip(rates, bases, floors):
        x = position / total
        value = floor if x >= 1 else base + (floor - base) * x
        if x < 1 and algorithm == "linear-warmup+cosine":
            value = floor + (base - floor) * (1 + math.cos(math.pi * x)) / 2
        allowed = abs(value) * 2**-40 + max(abs(base), abs(floor)) * 2**-48
        if not abs(float(rate) - value) <= allowed / 2:
            return None
    return algorithm, {"map": [
        ["base", {"list": [f64(base) for base in bases]}], ["floor", {"list": [f64(floor) for floor in floors]}],
        ["warmup", 0], ["total", total],
    ]}
