"""What the tensors and values of a state dict of PyTorch's distributed checkpoint are called here.

DCP knows a state dict as flat keys, each with the path that it came from (`("optim", "state", "0.weight", "exp_avg")`).
This module gives each tensor's path an identity, and finds the optimizers among the paths. It knows paths, names and
the values of parameter groups; it must not import PyTorch and never sees a tensor's elements.

The path itself is kept beside every tensor (`native: [["torch.dcp", path]]`), so the way back is exact whatever a
tensor is called:

* `model`, at the top or below one more key, holds parameters: `("model", "0.weight")` is the param `0.weight`. Where
  several models stand side by side (`("gen", "model", …)`, `("disc", "model", …)`), the key before is the component.
  Without any `model`, tensors at the top are parameters: a bare `model.state_dict()`.
* an optimizer is a place with `param_groups` that name their parameters, as `get_optimizer_state_dict` has them, nested
  or flattened. Its state for a parameter is of role `optimizer`, owner is the key that it stands under, the slot is the
  registry's for the algorithms of `torch.optim` and `torch/<name>` otherwise. The raw `optimizer.state_dict()` numbers
  its parameters instead: nobody can say which they are, and its state is of role `extension`.
* everything else is of role `extension`, slot `torch.dcp/tensor`, under its flat key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from .._registry import SLOTS
from ..key import Key

Path = tuple[str | int, ...]
Naming = Callable[[Path], "Key | None"]
"""A caller's own rule: the identity for a path, or None for the rules above."""

FRAMEWORK = "torch.dcp"
TENSOR_SLOT = "torch.dcp/tensor"
VALUE_SLOT = "torch.dcp/value"
"""Of tensors within values, which are no entries of the state dict themselves."""

IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")
"""Members of a parameter group that say how a step is computed, and not what."""

# Parameter groups of torch.optim are told apart by what they are set with; the slots are those of these families.
_ALGORITHMS: tuple[tuple[str, frozenset[str], tuple[str, ...]], ...] = (
    ("muon", frozenset({"ns_coefficients", "ns_steps"}), ("muon",)),
    ("nadam", frozenset({"betas", "momentum_decay"}), ("adam", "nadam")),
    ("adam", frozenset({"betas", "eps", "amsgrad"}), ("adam",)),
    ("adafactor", frozenset({"beta2_decay", "d"}), ("adafactor",)),
    ("sgd", frozenset({"momentum", "dampening", "nesterov"}), ("sgd",)),
    ("rmsprop", frozenset({"alpha", "momentum", "centered"}), ("rmsprop",)),
    ("adagrad", frozenset({"lr_decay", "initial_accumulator_value"}), ("adagrad",)),
    ("adadelta", frozenset({"rho", "eps"}), ("adadelta",)),
    ("asgd", frozenset({"lambd", "alpha", "t0"}), ("asgd",)),
    ("rprop", frozenset({"etas", "step_sizes"}), ("rprop",)),
)


def flat(path: Path) -> str:
    """The flat key of a path, as DCP joins it."""
    return ".".join(map(str, path))


@dataclass(frozen=True)
class Group:
    """One parameter group: its parameters, and the flat keys of what it is set with. Equal groups are equal."""

    params: tuple[str, ...]
    hyper: tuple[tuple[str, str], ...]
    """(name, flat key), without `params`."""


@dataclass(frozen=True)
class Optimizer:
    """An optimizer of the state dict, but for its numbers. Two ranks with equal ones can share a record."""

    owner: str
    prefix: Path
    """Where it stands."""
    form: str
    """`nested`, or `flat` where each parameter is its own group."""
    component: str
    groups: tuple[Group, ...]
    steps: tuple[tuple[str, str], ...]
    """(parameter, flat key) of the step counts."""

    @cached_property
    def params(self) -> frozenset[str]:
        return frozenset(name for group in self.groups for name in group.params)

    @cached_property
    def hyper_names(self) -> frozenset[str]:
        return frozenset(name for group in self.groups for name, _ in group.hyper)

    @property
    def algorithm(self) -> str:
        """The algorithm of `torch.optim` that has such groups, or `unknown`; `adamw` is told from `adam` by a value."""
        return next((name for name, marks, _ in _ALGORITHMS if marks <= self.hyper_names), "unknown")

    def slot(self, name: str) -> str:
        """The slot of the registry for what PyTorch calls `name`."""
        families = next((families for _, marks, families in _ALGORITHMS if marks <= self.hyper_names), ())
        for row in SLOTS:
            if row.role == "optimizer" and row.torch == name and row.id.partition(".")[0] in families:
                return row.id
        return f"torch/{name}"

    def split(self, path: Path) -> tuple[str, str] | None:
        """(parameter, name of the state) of a path within `state`, where it is of a parameter of this optimizer."""
        if path[: len(self.prefix)] != self.prefix:
            return None
        rest = path[len(self.prefix) :]
        if self.form == "nested":
            if len(rest) < 3 or rest[0] != "state" or rest[1] not in self.params:
                return None
            return str(rest[1]), flat(rest[2:])
        text = flat(rest)
        if not text.startswith("state."):
            return None
        return _split_known(text[len("state.") :], self.params)


class Names:
    """The identities of one rank's state dict. `values` are read for parameter groups alone."""

    def __init__(
        self,
        values: Mapping[str, object],
        paths: Mapping[str, Path],
        *,
        naming: Naming | None = None,
        buffers: Collection[str] = (),
        scopes: Mapping[str, tuple[tuple[str, int], ...]] | None = None,
    ) -> None:
        self._paths = {key: paths.get(key, (key,)) for key in values}
        self._naming = naming
        self._buffers = frozenset(buffers)
        self._scopes = scopes or {}
        self._keys: dict[str, Key] = {}
        self._models = {path[:at] for path in self._paths.values() if (at := _model_at(path)) is not None}
        self.optimizers = tuple(_find_optimizers(values, self._paths, self._component))
        # Without a model, tensors at the top are parameters, unless the whole is the state of an optimizer.
        self._bare = not self._models and all(one.prefix for one in self.optimizers)

    def without_optimizers(self) -> Names:
        """The same, but that optimizers are taken for tensors and values like any."""
        self.optimizers = ()
        self._keys.clear()
        return self

    def path(self, key: str) -> Path:
        """The path of a flat key."""
        return self._paths[key]

    def native(self, key: str) -> tuple[tuple[str, Path], ...]:
        """What stands beside the tensor: the way back. A path that the format cannot hold is joined."""
        path = self._paths[key]
        whole = len(path) <= 64 and all(type(part) is str or type(part) is int and part >= 0 for part in path)
        return ((FRAMEWORK, path if whole else (key,)),)

    def key(self, key: str) -> Key:
        """The identity of the tensor of a flat key."""
        known = self._keys.get(key)
        if known is None:
            known = self._keys[key] = self._make(key)
        return known

    def _make(self, key: str) -> Key:
        path, scope = self._paths[key], self._scopes.get(key, ())
        if self._naming is not None and (own := self._naming(path)) is not None:
            return Key(*own[:5], scope=scope) if scope else own
        found = self._optimizer_key(path) or self._model_key(path)
        if found is None:
            found = Key("main", "extension", _name(flat(path)), TENSOR_SLOT)
        return Key(*found[:5], scope=scope) if scope else found

    def _optimizer_key(self, path: Path) -> Key | None:
        for one in self.optimizers:
            split = one.split(path)
            if split is not None and _is_name(split[0]) and _is_name(split[1]):
                return Key(one.component, "optimizer", split[0], one.slot(split[1]), one.owner)
        return None

    def _model_key(self, path: Path) -> Key | None:
        at = _model_at(path)
        if at is not None:
            name = flat(path[at + 1 :])
        elif len(path) == 1 and self._bare:
            name = flat(path)
        else:
            return None
        if not _is_name(name):
            return None
        role = "buffer" if name in self._buffers else "param"
        return Key(self._component(path[:at]) if at is not None else "main", role, name)

    def _component(self, prefix: Path) -> str:
        """`main`, or what tells this place apart from other models."""
        if len(self._models) < 2 or not prefix or not _is_name(flat(prefix)):
            return "main"
        return flat(prefix)


def _model_at(path: Path) -> int | None:
    """Where `model` stands: at the top or one below, with something beneath."""
    return next((at for at in (0, 1) if len(path) > at + 1 and path[at] == "model"), None)


def _find_optimizers(
    values: Mapping[str, object], paths: Mapping[str, Path], component: Callable[[Path], str]
) -> Iterable[Optimizer]:
    nested: dict[Path, dict[int, dict[str, str]]] = {}
    flattened: dict[Path, dict[str, dict[str, str]]] = {}
    for key, path in paths.items():
        last = path[-1]
        if len(path) >= 3 and path[-3] == "param_groups" and type(path[-2]) is int and type(last) is str:
            nested.setdefault(path[:-3], {}).setdefault(path[-2], {})[last] = key
        elif type(last) is str and last.startswith("param_groups."):
            name, _, hyper = last[len("param_groups.") :].rpartition(".")
            flattened.setdefault(path[:-1], {}).setdefault(name, {})[hyper] = key
    for prefix, groups in nested.items():
        made = [_nested_group(values, groups[index]) for index in sorted(groups)]
        if all(group is not None for group in made):
            yield _optimizer(prefix, "nested", [group for group in made if group is not None], paths, component)
    for prefix, params in flattened.items():
        if prefix not in nested and all(_is_name(name) for name in params):
            each = [Group((name,), tuple(sorted(hyper.items()))) for name, hyper in params.items()]
            yield _optimizer(prefix, "flat", each, paths, component)


def _nested_group(values: Mapping[str, object], members: dict[str, str]) -> Group | None:
    """None where the parameters are numbered and not named."""
    params = values.get(members.get("params", ""))
    if type(params) is not list or not all(type(name) is str and _is_name(name) for name in params):
        return None
    hyper = tuple((name, key) for name, key in members.items() if name != "params" and _is_name(name))
    return Group(tuple(params), hyper)


def _optimizer(
    prefix: Path, form: str, groups: list[Group], paths: Mapping[str, Path], component: Callable[[Path], str]
) -> Optimizer:
    owner = _name(flat(prefix)) if prefix else "main"
    bare = Optimizer(owner, prefix, form, component(prefix[:-1]), tuple(groups), ())
    steps = []
    for key, path in paths.items():
        split = bare.split(path)
        if split is not None and split[1] == "step":
            steps.append((split[0], key))
    return Optimizer(owner, prefix, form, bare.component, bare.groups, tuple(steps))


def _split_known(text: str, params: frozenset[str]) -> tuple[str, str] | None:
    """`layer.0.weight.exp_avg` at the longest parameter that it begins with."""
    at = text.rfind(".")
    while at > 0:
        if text[:at] in params:
            return text[:at], text[at + 1 :]
        at = text.rfind(".", 0, at)
    return None


_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _is_name(text: str) -> bool:
    """Whether the format takes `text` as a name (`identity.name`)."""
    return 1 <= len(text) <= 1024 and _FORBIDDEN.search(text) is None and (text.isascii() or len(text.encode()) <= 1024)


def _name(text: str) -> str:
    """`text`, or what stands for it where it cannot be a name; the path beside the tensor is the whole truth."""
    if _is_name(text):
        return text
    return "sha256-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
