"""The state of an optimizer into a snapshot: tensors by parameter and slot, hyper-parameters and step counts in a
record.

Parameters go by the names that the model gives them, never by number. `resume_optimizer` is the way back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import copysign
from typing import Any

import torch
from torch import nn

from .. import arrays
from ..errors import usage
from ..key import Key
from ..records import Coordinate, Record
from ..snapshot import Snapshot
from .boxes import Ranks, global_shape, is_distributed, local, pieces
from .names import names_of
from .slots import IMPLEMENTATION, NOT_STATE, WITHOUT_PARAMETER, algorithm, axes_of, family, slot_of
from .stored import Values

Models = nn.Module | Mapping[str, nn.Module]
"""A model, which is component `main`, or all models of a job by component."""
Masters = Mapping[torch.Tensor, torch.Tensor]
"""Parameter of the model to the tensor of higher precision that an optimizer updates in its place."""
Pair = tuple[str, str]
"""Component and name of a parameter."""


@dataclass(slots=True)
class Params:
    """Which parameter of which model each tensor of an optimizer is."""

    owner: str
    pairs: dict[int, Pair] = field(default_factory=dict)
    masters: dict[Pair, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, models: Models, owner: str, masters: Masters | None = None) -> Params:
        """Those of all models, under the first name of each, and their masters."""
        found = cls(owner)
        for component, model in (models if isinstance(models, Mapping) else {"main": models}).items():
            for at, name in names_of(model, f"the model {component!r}").of_params().items():
                found.pairs[at] = (component, name)
        for parameter, master in (masters or {}).items():
            pair = found.pairs.get(id(parameter))
            if pair is None:
                raise usage(f"masters of optimizer {owner!r} have a tensor of shape {list(parameter.shape)} that is no "
                            f"parameter of the model")
            found.masters[pair] = master
        for pair, master in found.masters.items():
            found.pairs.setdefault(id(master), pair)
        return found

    def pair(self, parameter: torch.Tensor, group: int, number: int) -> Pair:
        """The name of a parameter of a group. Raises `bad-argument` for one that no model has."""
        pair = self.pairs.get(id(parameter))
        if pair is None:
            raise usage(f"parameter {number} of group {group} of optimizer {self.owner!r}, of shape "
                        f"{list(parameter.shape)}, "
                        f"is none of the model's",
                        remedy="Make the optimizer of the parameters that the model has now, after it was wrapped or "
                               "sharded, and hand over all models that it updates, as {component: model}.")
        return pair


def capture(optimizer: torch.optim.Optimizer, models: Models, *, name: str = "main", ranks: Ranks = Ranks(),
            coordinate: Coordinate = (), masters: Masters | None = None, cast: str = "nearest-even") -> Snapshot:
    """What this rank saves of an optimizer, whose tensors and record have `name` as their owner.

    `coordinate` is where ranks have other parameters, as stages of a pipeline do. `masters` are saved in the role of
    that name; `cast` says how parameters are made of them: nearest-even, stochastic or other. Tensors are views, not
    copies. Raises `bad-argument` for parameters that no model has, and for state that cannot be held without loss.
    """
    _known(optimizer, name)
    params = Params.of(models, name, masters)
    snapshot = Snapshot()
    values = Values(snapshot, ranks)
    kind = family(optimizer)
    groups: list[dict[str, Any]] = []
    pairs: dict[int, Pair] = {}
    taken: set[Pair] = set()
    called = group_names(optimizer)
    for number, group in enumerate(optimizer.param_groups):
        listed = [params.pair(each, number, at) for at, each in enumerate(group["params"])]
        for each, pair in zip(group["params"], listed):
            if pair in taken:
                raise usage(f"optimizer {name!r} has parameter {pair[1]!r} twice, itself or its master")
            taken.add(pair)
            pairs[id(each)] = pair
        groups.append(_group(values, name, called[number], group, listed))
    steps: dict[Pair, Any] = {}
    other: dict[str, Any] = {}
    free: dict[Any, Any] = {}
    for each, state in optimizer.state.items():
        if not isinstance(each, torch.Tensor):
            free[each] = state
            continue
        if id(each) not in pairs:
            raise usage(f"optimizer {name!r} has state for a tensor of shape {list(each.shape)} that is in none "
                        "of its groups")
        pair = pairs[id(each)]
        for native, value in state.items():
            if native == "step" and kind not in WITHOUT_PARAMETER and _is_scalar(value):
                steps[pair] = value
            elif isinstance(value, torch.Tensor) and isinstance(native, str) and kind not in WITHOUT_PARAMETER:
                _slot(snapshot, ranks, name, pair, each, slot_of(kind, native), value)
            else:
                other.setdefault(pair[0], {}).setdefault(pair[1], {})[native] = value
    counts = _counts(steps)
    for pair, value in steps.items():
        if pair not in counts:  # a count that is no whole number is a tensor, or a value, like any other
            each = next(p for group in optimizer.param_groups for p in group["params"] if pairs[id(p)] == pair)
            if isinstance(value, torch.Tensor):
                _slot(snapshot, ranks, name, pair, each, slot_of(kind, "step"), value)
            else:
                other.setdefault(pair[0], {}).setdefault(pair[1], {})["step"] = value
    record: dict[str, Any] = {"algorithm": algorithm(optimizer), "groups": groups,
                              "steps": _steps(counts, list(pairs.values()))}
    if masters is not None:
        record["masters"] = {"cast": cast}
        for (component, parameter), master in params.masters.items():
            key = Key(component, "master", parameter, scope=ranks.scope_of(parameter))
            _take(snapshot, *pieces(key, master, ranks))
    snapshot.records.append(Record("optimizer", name, record, coordinate))
    if other or free or coordinate:  # with a coordinate, there is one record for each place or for none
        values.record(record_of(name), {"params": other, "other": free}, coordinate)
    return snapshot


def record_of(name: str) -> str:
    """The name of the record of kind `value` that holds what of an optimizer's state belongs to no slot."""
    return f"torch.optimizer/{name}"


def group_names(optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of groups: those that the groups have as `name` where all have one and all differ, else by number."""
    names = [group.get("name") for group in optimizer.param_groups]
    if all(isinstance(each, str) and each for each in names) and len(set(names)) == len(names):
        return [str(each) for each in names]
    return [f"group{number}" for number in range(len(names))]


def _known(optimizer: torch.optim.Optimizer, name: str) -> None:
    kind = type(optimizer).__name__
    if kind == "ZeroRedundancyOptimizer":
        raise usage(f"optimizer {name!r} is a {kind}, which keeps each parameter's state on one rank only",
                    remedy="Use fully_shard, or an optimizer on every rank.")
    if not isinstance(getattr(optimizer, "param_groups", None), list) or not hasattr(optimizer, "state"):
        raise usage(f"optimizer {name!r} is a {kind}, which has no param_groups and state as torch.optim.Optimizer has")


def _group(values: Values, owner: str, name: str, group: dict[str, Any], pairs: list[Pair]) -> dict[str, Any]:
    hyper: list[list[Any]] = []
    implementation: list[list[Any]] = []
    for member, value in group.items():
        if member in NOT_STATE:
            continue
        tree = values.tree(f"{record_of(owner)}/{name}/{member}", value)
        (implementation if member in IMPLEMENTATION else hyper).append([member, tree])
    said: dict[str, Any] = {"hyper": hyper, "name": name, "params": [list(pair) for pair in pairs]}
    if implementation:
        said["implementation"] = implementation
    return said


def _slot(snapshot: Snapshot, ranks: Ranks, owner: str, pair: Pair, parameter: torch.Tensor, slot: str,
          value: torch.Tensor) -> None:
    component, name = pair
    scope = ranks.scope_of(name)
    key = Key.optimizer(name, slot, owner, component=component, scope=scope)
    if value.ndim and not is_distributed(value) and is_sharded(parameter) and not scope:
        raise usage(f"the state {slot!r} of optimizer {owner!r} for {name!r} is a plain tensor of shape "
                    f"{list(value.shape)}, "
                    f"while the parameter is sharded: each rank may have another one", tensor=key.text,
                    remedy="Use an optimizer that keeps DTensors for DTensors.")
    axes = axes_of(global_shape(value), global_shape(parameter))
    _take(snapshot, *pieces(key, value, ranks, axes=axes))


def _take(snapshot: Snapshot, written: list[Any], declared: list[Any]) -> None:
    snapshot.pieces += written
    snapshot.declared += declared


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether another rank holds other elements of the tensor."""
    if not is_distributed(tensor):
        return False
    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    placements: Any = tensor.placements  # type: ignore[attr-defined]
    return any(size > 1 and type(placement).__name__ != "Replicate" for size, placement in zip(mesh.shape, placements))


def _is_scalar(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.ndim == 0 and value.dtype != torch.bool and not value.dtype.is_complex
    return type(value) is int


def _counts(steps: dict[Pair, Any]) -> dict[Pair, tuple[int, str]]:
    """Count and form of each step that is a whole number from 0 to 2^53 − 1."""
    numbers: dict[Pair, tuple[Any, str]] = {}
    tensors: dict[tuple[torch.device, torch.dtype], list[tuple[Pair, torch.Tensor]]] = {}
    for pair, value in steps.items():
        if isinstance(value, torch.Tensor):
            here = local(value)
            tensors.setdefault((here.device, here.dtype), []).append((pair, here))
        else:
            numbers[pair] = (value, "int")
    for (_, _), several in tensors.items():
        # Together, since each number of a device that is asked for alone waits for the device.
        values = torch.stack([tensor for _, tensor in several]).tolist()
        form = arrays.dtype_of(several[0][1]) + "[]"
        numbers |= {pair: (value, form) for (pair, _), value in zip(several, values)}
    return {pair: (int(value), form) for pair, (value, form) in numbers.items()
            if 0 <= value < 2**53 and value == int(value) and copysign(1, value) > 0}


def _steps(counts: dict[Pair, tuple[int, str]], pairs: list[Pair]) -> list[dict[str, Any]]:
    if counts and len(counts) == len(pairs) and len(set(counts.values())) == 1:
        step, form = next(iter(counts.values()))
        return [{"params": "all", "step": step, "stored_as": form}]
    by: dict[tuple[int, str], list[list[str]]] = {}
    for pair in pairs:
        if pair in counts:
            by.setdefault(counts[pair], []).append(list(pair))
    return [{"params": listed, "step": step, "stored_as": form} for (step, form), listed in by.items()]


def parameters(optimizer: torch.optim.Optimizer, params: Params) -> Iterator[tuple[int, Pair, torch.Tensor]]:
    """Every parameter of an optimizer: number of its group, component and name, tensor."""
    for number, group in enumerate(optimizer.param_groups):
        for at, each in enumerate(group["params"]):
            yield number, params.pair(each, number, at), each
