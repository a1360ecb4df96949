"""Records: everything of a checkpoint that is not tensor bytes (chapters 9 and 16 of the specification).

Values are kept in the form in which the specification has them; nothing is interpreted here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._json import canonical
from .errors import usage

if TYPE_CHECKING:
    from .tree import PutTensor

Coordinate = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `value` is the JSON object of the kind; `coordinate` says of which places, `()` of all."""

    kind: str
    name: str
    value: dict[str, Any]
    coordinate: Coordinate = ()

    @property
    def text(self) -> str:
        """The record key: canonical JSON."""
        return canonical([self.kind, self.name, [list(at) for at in self.coordinate]])

    @property
    def value_json(self) -> str:
        """The value as canonical JSON."""
        return canonical(self.value)


def progress(
    optimizer_step: int,
    *,
    iteration: int | None = None,
    skipped: int | None = None,
    epoch: int | None = None,
    samples: int | None = None,
    tokens: int | None = None,
    batch: int | None = None,
) -> Record:
    """How far training has come: completed optimizer steps, and what the trainer counts beside them (None: it does
    not)."""
    counts = {
        "iteration": iteration,
        "skipped": skipped,
        "epoch": epoch,
        "samples": samples,
        "tokens": tokens,
        "batch": batch,
    }
    said = {name: _count(name, number) for name, number in counts.items() if number is not None}
    return Record("progress", "main", {"optimizer_step": _count("optimizer_step", optimizer_step), **said})


def value(
    name: str, obj: Any, *, put_tensor: PutTensor | None = None, coordinate: Iterable[tuple[str, int]] = ()
) -> Record:
    """A Python object as a value tree (`waystation.tree`). `put_tensor`, such as a `tree.TreeTensors`, stores the
    tensors and long bytes within it."""
    from . import tree

    return value_tree(name, tree.to_tree(obj, put_tensor), coordinate=coordinate)


def value_tree(name: str, value: Any, *, coordinate: Iterable[tuple[str, int]] = ()) -> Record:
    """A record of a value tree that is there already: a bare value stands under `tree`."""
    return Record("value", name, value if type(value) is dict else {"tree": value}, tuple(coordinate))


def tree_of(record: Record) -> Any:
    """The value tree of a record of kind `value`."""
    return record.value["tree"] if set(record.value) == {"tree"} else record.value


def ema(name: str, *, decay: float | None, updates: int) -> Record:
    """The average `name`, which its tensors have as owner. `decay` is None where no one number holds."""
    said = {} if decay is None else {"decay": f64(decay)}
    return Record("ema", name, {**said, "updates": _count("updates", updates)})


def schedule(
    name: str,
    algorithm: str,
    *,
    unit: str,
    position: int,
    last_value: Sequence[float],
    parameters: Any,
    coordinate: Iterable[tuple[str, int]] = (),
) -> Record:
    """A schedule at `position` of `unit`: optimizer_steps, samples, tokens or epochs. `parameters` is a value tree."""
    return Record(
        "schedule",
        name,
        {
            "algorithm": algorithm,
            "last_value": [f64(number) for number in last_value],
            "parameters": parameters,
            "position": {"unit": unit, "value": _count("position", position)},
        },
        tuple(coordinate),
    )


def scaler(
    name: str,
    *,
    scale: Any,
    growth: float,
    backoff: float,
    interval: int,
    good_steps: int,
    hysteresis: int | None = None,
    skipped: int | None = None,
) -> Record:
    """A loss scaler. `scale` is a float, or a tree `{"f32": …}` where the framework holds one."""
    said = {
        "scale": scale if type(scale) is dict else f64(scale),
        "growth": f64(growth),
        "backoff": f64(backoff),
        "interval": _count("interval", interval),
        "good_steps": _count("good_steps", good_steps),
    }
    for member, number in (("hysteresis", hysteresis), ("skipped", skipped)):
        if number is not None:
            said[member] = _count(member, number)
    return Record("scaler", name, said)


def uncaptured(name: str, kind: str, reason: str, *, coordinate: Iterable[tuple[str, int]] = ()) -> Record:
    """Says that a stream, cursor or something else was used and is not in the checkpoint, and why."""
    return Record("uncaptured", name, {"kind": kind, "reason": reason}, tuple(coordinate))


def f64(number: float) -> dict[str, str]:
    """The tree of a binary64: its bits."""
    return {"f64": struct.pack(">d", number).hex()}


def f32(number: float) -> dict[str, str]:
    """The tree of a binary32; raises `bad-argument` where that would round."""
    try:
        packed = struct.pack(">f", number)
    except OverflowError:
        raise usage(f"{number!r} is beyond binary32") from None
    if struct.unpack(">f", packed)[0] != number and number == number:
        raise usage(f"{number!r} is no binary32")
    return {"f32": packed.hex()}


def float_of(tree: Any) -> float:
    """The number of a tree that is a float."""
    if type(tree) is dict and len(tree) == 1:
        if "f64" in tree:
            return float(struct.unpack(">d", bytes.fromhex(tree["f64"]))[0])
        if "f32" in tree:
            return float(struct.unpack(">f", bytes.fromhex(tree["f32"]))[0])
    raise usage(f"{tree!r} is no float")


def _count(name: str, number: int) -> int:
    if type(number) is not int or not 0 <= number < 2**53:
        raise usage(f"{name} is a count from 0 to 2^53 − 1, not {number!r}")
    return number
