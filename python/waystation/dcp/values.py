"""What of a state dict is no tensor, as records.

One record of kind `value` for each writer that has any, `torch.dcp/<rank>`, is a map of

* `values`: flat key -> (path, value), of what all ranks share;
* `own`: the same for what this rank alone means (`per_rank`);
* `place`: the coordinate of the rank, where it has tensors of its own;
* `optimizers`: owner -> (form, path): for these the values of parameter groups and the step counts stand in the record
  of kind `optimizer`, once, and the state dict's form of them is made anew from it.

It knows Python values and records; it must not know ranks that talk, files, or PyTorch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import tree
from .._json import canonical
from ..errors import Error, Location, error
from ..key import Key
from ..records import Coordinate, Record, tree_of, value_tree
from .naming import IMPLEMENTATION, Group, Optimizer, Path

PREFIX = "torch.dcp/"
_VERSION = 1


@dataclass(slots=True)
class Values:
    """The values of one writer."""

    shared: dict[str, tuple[Path, Any]] = field(default_factory=dict)
    """flat key -> (path, value tree)"""
    own: dict[str, tuple[Path, Any]] = field(default_factory=dict)
    place: Coordinate = ()
    optimizers: dict[str, tuple[str, Path]] = field(default_factory=dict)
    """owner -> (form, path)"""

    def record(self, rank: int) -> Record | None:
        """The record of this writer; None where there is nothing to say."""
        if not (self.shared or self.own or self.place or self.optimizers):
            return None
        return value_tree(
            f"{PREFIX}{rank}",
            _map(
                {
                    "version": _VERSION,
                    "values": _entries(self.shared),
                    "own": _entries(self.own),
                    "place": {"list": [{"tuple": [axis, index]} for axis, index in self.place]},
                    "optimizers": _map(
                        {
                            owner: {"tuple": [form, {"list": list(path)}]}
                            for owner, (form, path) in self.optimizers.items()
                        }
                    ),
                }
            ),
        )

    @staticmethod
    def of(record: Record) -> Values:
        """What a record says. Raises `bad-member` where it has another form."""
        try:
            said = _pairs(tree_of(record))
            if said.get("version") != _VERSION:
                raise ValueError(f"version {said.get('version')!r}, not {_VERSION}")
            return Values(
                _read_entries(said["values"]),
                _read_entries(said["own"]),
                tuple((str(at["tuple"][0]), int(at["tuple"][1])) for at in said["place"]["list"]),
                {
                    str(owner): (str(of["tuple"][0]), tuple(of["tuple"][1]["list"]))
                    for owner, of in _pairs(said["optimizers"]).items()
                },
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as why:
            message = f"a state dict's values have another form: {why}"
            raise error("bad-member", message, location=Location(record=record.text), remedy="") from why


def to_tree(key: str, value: object, put_tensor: tree.PutTensor | None) -> Any:
    """The tree of a value of the state dict; refuses with its flat key what has no typed form."""
    try:
        return tree.to_tree(value, put_tensor)
    except Error as why:
        kind = type(value)
        raise why.with_message(
            f"the value of {key!r} ({kind.__module__}.{kind.__qualname__}) has no typed form, and "
            f"nothing is pickled: {why.message}",
            location=Location(),
            remedy=why.remedy or "Save what it is made of, or leave it out.",
        ) from why


def optimizer_record(
    one: Optimizer,
    values: Mapping[str, object],
    steps: Sequence[tuple[str, int, str]],
    *,
    algorithm: str | None = None,
    tensor_key: Callable[[str], Key | None],
    coordinate: Coordinate = (),
) -> Record:
    """The record of kind `optimizer` of one rank's parameter groups (16.2).

    `steps` are (parameter, count, stored as). `tensor_key` gives the identity of a flat key that is a tensor (a
    learning rate can be one), and None for others.
    """
    groups, trees = [], _trees(one, values, tensor_key)
    for name, group in _named(one, trees):
        hyper = [[member, trees[at]] for member, at in group.hyper if member not in IMPLEMENTATION]
        said: dict[str, Any] = {
            "name": name,
            "hyper": hyper,
            "params": [[one.component, param] for param in group.params],
        }
        how = [[member, trees[at]] for member, at in group.hyper if member in IMPLEMENTATION]
        if how:
            said["implementation"] = how
        groups.append(said)
    counted: dict[tuple[int, str], list[str]] = {}
    for param, count, stored_as in steps:
        counted.setdefault((count, stored_as), []).append(param)
    return Record(
        "optimizer",
        one.owner,
        {
            "algorithm": algorithm or _algorithm(one, trees),
            "groups": groups,
            "steps": [
                {"params": [[one.component, param] for param in params], "step": count, "stored_as": stored_as}
                for (count, stored_as), params in sorted(counted.items())
            ],
        },
        coordinate,
    )


def optimizer_values(records: Iterable[Record], form: str, prefix: Path) -> dict[Path, Any]:
    """The state dict's form of an optimizer's parameter groups, from its records: path -> value tree.

    Where there are several records (one for each pipeline stage), the groups of one name are one group.
    """
    groups: dict[str, dict[str, Any]] = {}
    for record in records:
        for group in record.value["groups"]:
            joined = groups.setdefault(group["name"], {**group, "params": []})
            joined["params"] += [pair for pair in group["params"] if pair not in joined["params"]]
    found: dict[Path, Any] = {}
    for index, group in enumerate(groups.values()):
        members = [*group["hyper"], *group.get("implementation", [])]
        bare = [(name, value) for name, value in members if not (type(value) is dict and "tensor" in value)]
        params = [name for _, name in group["params"]]
        if form == "nested":
            at: Path = (*prefix, "param_groups", index)
            found[at + ("params",)] = {"list": params}
            found.update({(*at, name): value for name, value in bare})
        else:
            found.update({(*prefix, f"param_groups.{param}.{name}"): value for param in params for name, value in bare})
    return found


def optimizer_steps(records: Iterable[Record], form: str, prefix: Path) -> dict[Path, tuple[int, str]]:
    """The step counts of an optimizer: path in the state dict -> (count, stored as)."""
    found: dict[Path, tuple[int, str]] = {}
    for record in records:
        everyone = [name for group in record.value["groups"] for _, name in group["params"]]
        for one in record.value["steps"]:
            for param in everyone if one["params"] == "all" else [name for _, name in one["params"]]:
                at = ("state", param, "step") if form == "nested" else (f"state.{param}.step",)
                found[prefix + at] = (one["step"], one["stored_as"])
    return found


def _trees(one: Optimizer, values: Mapping[str, object], tensor_key: Callable[[str], Key | None]) -> dict[str, Any]:
    """flat key -> tree, of all members of all groups."""
    trees: dict[str, Any] = {}
    for group in one.groups:
        for _, at in group.hyper:
            tensor = tensor_key(at)
            trees[at] = to_tree(at, values[at], None) if tensor is None else {"tensor": tensor.identity}
    return trees


def _named(one: Optimizer, trees: Mapping[str, Any]) -> list[tuple[str, Group]]:
    """The groups with their names, which are the same on all ranks.

    Flattened, each parameter came as a group of its own: those that are set alike are one again, called after how they
    are set, so that the ranks of a pipeline give one group one name.
    """
    if one.form == "nested":
        return [(f"group{index}", group) for index, group in enumerate(one.groups)]
    alike: dict[str, list[Group]] = {}
    for group in one.groups:
        set_so = canonical([[name, trees[at]] for name, at in group.hyper])
        alike.setdefault(hashlib.sha256(set_so.encode()).hexdigest()[:16], []).append(group)
    return [
        (f"set-{digest}", Group(tuple(param for group in groups for param in group.params), groups[0].hyper))
        for digest, groups in alike.items()
    ]


def _algorithm(one: Optimizer, trees: Mapping[str, Any]) -> str:
    decoupled = any(
        name == "decoupled_weight_decay" and trees[at] is True for group in one.groups for name, at in group.hyper
    )
    return "adamw" if one.algorithm == "adam" and decoupled else one.algorithm


def _map(members: Mapping[str, Any]) -> dict[str, Any]:
    return {"map": [[name, value] for name, value in members.items()]}


def _entries(values: Mapping[str, tuple[Path, Any]]) -> dict[str, Any]:
    return _map({key: {"tuple": [{"list": list(path)}, value]} for key, (path, value) in values.items()})


def _pairs(value: Any) -> dict[str, Any]:
    return {name: item for name, item in value["map"]}


def _read_entries(value: Any) -> dict[str, tuple[Path, Any]]:
    return {str(key): (tuple(of["tuple"][0]["list"]), of["tuple"][1]) for key, of in _pairs(value).items()}
