"""The state of an optimizer out of a checkpoint, into a live one: by name, in the dtype in which it was saved.

State is made anew and takes the place of what is there in one move at the end, without `load_state_dict`, which would
cast it to the parameter's dtype. Models are loaded elsewhere; here they only name parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial as bound
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from .. import dtypes, tree
from ..errors import Error, usage
from ..key import Key
from ..records import Coordinate
from .boxes import Ranks, global_shape, is_distributed, local
from .loading import Pending, reads_of
from .optimizer import Masters, Models, Pair, Params, group_names, parameters, record_of
from .report import Report
from .slots import (
    COUNTED,
    IMPLEMENTATION,
    NOT_STATE,
    SCALARS,
    SCALARS_ON_DEVICE,
    WITHOUT_PARAMETER,
    algorithm,
    family,
    native_of,
)
from .stored import Entry, Stored, differs, dtype_of, like

if TYPE_CHECKING:
    from .. import _core
    from ..checkpoint import Checkpoint

_KIND = "optimizer"

_restored: WeakKeyDictionary[torch.optim.Optimizer, tuple[str, list[int | None]]] = WeakKeyDictionary()
"""Optimizers that were restored from a checkpoint whose groups stand otherwise: its path, and which group each is."""


@dataclass(slots=True)
class _Saved:
    """A record of kind `optimizer`, by what a live optimizer asks for."""

    algorithm: str
    groups: list[dict[str, Any]]
    group_of: dict[Pair, int] = field(default_factory=dict)
    steps: dict[Pair, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, value: dict[str, Any]) -> _Saved:
        saved = cls(value["algorithm"], value["groups"])
        for number, group in enumerate(saved.groups):
            for component, name in group["params"]:
                saved.group_of[component, name] = number
        for each in value["steps"]:
            pairs = saved.group_of if each["params"] == "all" else map(tuple, each["params"])
            for pair in pairs:
                saved.steps[pair] = (each["step"], each["stored_as"])
        return saved


def plan(ckpt: Checkpoint | Stored, optimizer: torch.optim.Optimizer, models: Models, *, name: str = "main",
         ranks: Ranks = Ranks(), record: dict[str, Any] | None = None, masters: Masters | None = None,
         partial: bool = False, coordinate: Coordinate = ()) -> Pending:
    """What loading into `optimizer` would do, and what stands against it; nothing is touched.

    `record` is the value of the record of kind `optimizer`, joined over all coordinates, as a restore for a place gives
    it; None: the only one of that name in the checkpoint. `partial` says that this rank has some of the parameters
    only.
    """
    stored = Stored.of(ckpt)
    pending = Pending()
    value = record if record is not None else _only(stored, name)
    if value is None:
        pending.report.add(_KIND, name, "none", "the checkpoint has no such optimizer", "missing")
        return pending
    saved = _Saved.of(value)
    here = algorithm(optimizer)
    if here != saved.algorithm:
        pending.report.add(_KIND, name, "none", f"{saved.algorithm} in the checkpoint, {here} here", "algorithm")
        return pending
    params = Params.of(models, name, masters)
    return _Plan(stored, optimizer, params, saved, name, ranks, partial, coordinate, pending).made()


def restore(ckpt: Checkpoint | Stored, optimizer: torch.optim.Optimizer, models: Models, *, name: str = "main",
            ranks: Ranks = Ranks(), record: dict[str, Any] | None = None, masters: Masters | None = None,
            strict: bool = True, partial: bool = False, coordinate: Coordinate = (),
            progress: _core.Progress | None = None) -> Report:
    """Loads an optimizer, and masters in place. Raises `not-exact` before it touches anything where `plan` finds what
    stands against it; an error while reading leaves the optimizer as it was, but for masters."""
    stored = Stored.of(ckpt)
    pending = plan(stored, optimizer, models, name=name, ranks=ranks, record=record, masters=masters, partial=partial,
                   coordinate=coordinate)
    pending.run(stored.ckpt, strict=strict, progress=progress)
    return pending.report


def order_of(optimizer: Any, stored: Stored) -> list[int | None] | None:
    """Which group of the checkpoint each group of an optimizer is, that was restored from it; None where all stand as
    they did, and for one that was not."""
    found = _restored.get(optimizer) if isinstance(optimizer, torch.optim.Optimizer) else None
    return found[1] if found is not None and found[0] == stored.ckpt.path else None


@dataclass(slots=True)
class _Plan:
    stored: Stored
    optimizer: torch.optim.Optimizer
    params: Params
    saved: _Saved
    name: str
    ranks: Ranks
    partial: bool
    coordinate: Coordinate
    pending: Pending
    family: str = ""
    state: dict[Any, dict[Any, Any]] = field(default_factory=dict)
    slots: dict[str, dict[Any, dict[str | None, Entry]]] = field(default_factory=dict)
    order: list[int | None] = field(default_factory=list)
    """The number of the saved group that each group is, as far as it is one."""

    def made(self) -> Pending:
        self.family = family(self.optimizer)
        live: list[dict[Pair, torch.Tensor]] = [{} for _ in self.optimizer.param_groups]
        for number, pair, each in parameters(self.optimizer, self.params):
            live[number][pair] = each
        self.order = [None] * len(live)
        for number, group in enumerate(self.optimizer.param_groups):
            self.group(number, group, live)
        self.split()
        self.pending.orders[id(self.optimizer)] = self.order
        every = {pair for group in live for pair in group}
        if not self.partial:
            for pair in self.saved.group_of:
                if pair not in every:
                    self.add(pair, "none", "in the checkpoint's optimizer, not in this one", "unexpected")
        extra = self.extra()
        for number, group in enumerate(self.optimizer.param_groups):
            for pair, each in live[number].items():
                if pair in self.saved.group_of:
                    self.param(pair, each, group, extra.get("params", {}).get(pair[0], {}).get(pair[1], {}))
        for (component, name), master in self.params.masters.items():
            self.master(component, name, master)
        self.pending.finish.append(bound(self.finish, extra.get("other", {})))
        return self.pending

    def add(self, pair: Pair | str, grade: str = "exact", reason: str | None = None,
            finding: str | None = None) -> None:
        what = pair if isinstance(pair, str) else pair[1] if pair[0] == "main" else f"{pair[0]}:{pair[1]}"
        self.pending.report.add(_KIND, f"{self.name}/{what}", grade, reason, finding)

    # Groups

    def group(self, number: int, group: dict[str, Any], live: list[dict[Pair, torch.Tensor]]) -> None:
        """Which saved group a live one is: the one that has its parameters, or, without any, the one in its place."""
        called = group_names(self.optimizer)[number]
        mine = live[number]
        found = sorted({self.saved.group_of[pair] for pair in mine if pair in self.saved.group_of})
        for pair in mine:
            if pair not in self.saved.group_of:
                self.add(pair, "none", "in this optimizer, not in the checkpoint's", "missing")
        if not found:
            same = [at for at, each in enumerate(self.saved.groups) if each["name"] == called]
            if not same:
                if not mine:
                    self.add(called, "none", "an empty group that the checkpoint has not", "missing")
                return
            found = same
        saved = self.saved.groups[found[0]]
        self.order[number] = found[0]
        if len(found) > 1:
            names = [self.saved.groups[at]["name"] for at in found]
            self.add(called, "none", f"has parameters of the groups {names} of the checkpoint", "hyper")
            return
        order = [pair for pair in map(tuple, saved["params"]) if pair in mine]
        if order != [pair for pair in mine if pair in self.saved.group_of]:
            if self.family in WITHOUT_PARAMETER:
                self.add(called, "none", "the state depends on the order of parameters, which is another one", "form")
                return
            self.add(called, reason="parameters in another order than saved; state goes by name")
        self.hyper(called, group, saved)

    def split(self) -> None:
        """Groups that were one: what they are set with here is put for what the one was set with."""
        called = group_names(self.optimizer)
        for at, saved in enumerate(self.saved.groups):
            mine = [called[number] for number, found in enumerate(self.order) if found == at]
            if len(mine) > 1:
                why = f"the groups {mine} here were the one group {saved['name']!r}, and are set as that was"
                for each in mine:
                    self.add(each, "none", why, "hyper")

    def hyper(self, called: str, group: dict[str, Any], saved: dict[str, Any]) -> None:
        values: dict[str, Any] = {}
        for member, made in saved["hyper"]:
            try:
                values[member] = tree.from_tree(made, self.stored.ckpt.tensor)
            except Error as why:
                self.add(f"{called}.{member}", "none", why.message, "hyper")
        notes: list[str] = []
        for member, now in group.items():
            if member in NOT_STATE or member in IMPLEMENTATION:
                continue
            if member not in values:
                notes.append(f"{member} is not in the checkpoint and stays {now!r}")
            elif not _scheduled(member, group, values) and not _same(now, values[member]):
                notes.append(f"{member} was {now!r} here and is {values[member]!r} as saved")
        for member, made in saved.get("implementation", []):
            before = tree.from_tree(made, self.stored.ckpt.tensor)
            if member in group and group[member] != before:
                notes.append(f"computed with {member}={group[member]!r}, before with {before!r}: last bits may differ")
        self.add(called, reason="; ".join(notes) or None)
        self.pending.finish.append(bound(_set_hyper, group, values))

    # State

    def extra(self) -> dict[str, Any]:
        """State that belongs to no slot: that of parameters from wherever it was, that of none from this place."""
        records = self.stored.ckpt.records("value", record_of(self.name))
        joined: dict[str, dict[str, Any]] = {}
        free: dict[str, Any] = {}
        for record in records:
            found = self.stored.ckpt.value(record.name, record.coordinate)
            for component, names in found["params"].items():
                for name, state in names.items():
                    joined.setdefault(component, {}).setdefault(name, state)
            if record.coordinate in (self.coordinate, ()) or len(records) == 1 and not self.coordinate:
                free = found["other"]
            elif found["other"] and all(each.coordinate != self.coordinate for each in records):
                why = f"saved at {record.coordinate}, which is not asked for"
                self.add("state of no parameter", "none", why, "missing")
        return {"params": joined, "other": free}

    def param(self, pair: Pair, each: torch.Tensor, group: dict[str, Any], extra: dict[Any, Any]) -> None:
        component, name = pair
        if component not in self.slots:
            self.slots[component] = self.stored.owned("optimizer", self.name, component)
        made: dict[Any, Any] = {}
        step = self.saved.steps.get(pair)
        if step is not None:
            made["step"] = self.step(step, each, group)
        good = True
        for slot, entry in self.slots[component].get((name, self.ranks.scope_of(name)), {}).items():
            native = native_of(self.family, slot or "")
            if native is None:
                self.add(pair, "none", f"has the slot {slot!r}, which {self.family} has not", "form")
                good = False
                continue
            if not _follows(entry, global_shape(each)):
                why = f"{slot} has the shape {list(entry.shape)}, the parameter {list(each.shape)} here"
                self.add(pair, "none", why, "shape")
                good = False
                continue
            target = self.new(native, entry, each, group)
            self.pending.reads += reads_of(entry.key, target)
            made[native] = target
        for native, value in extra.items():
            made[native] = _on(value, local(each).device)
        if self.family in COUNTED and made and "step" not in made:
            self.add(pair, "none", "has state and no count of steps", "form")
            good = False
        if good:
            self.add(pair)
            self.state[each] = made

    def step(self, step: tuple[int, str], each: torch.Tensor, group: dict[str, Any]) -> Any:
        count, form = step
        if form == "int":
            return count
        if not form.endswith("[]"):
            raise usage(f"optimizer {self.name!r} counts steps in {form!r}, which is no form of PyTorch's")
        made = torch.tensor(count, dtype=dtypes.torch_dtype(form[:-2]), device=self.device("step", each, group))
        if made.item() != count:
            raise usage(f"optimizer {self.name!r} counts {count} steps in {form}, which does not hold that number")
        return made

    def new(self, native: str, entry: Entry, each: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        """A tensor for a slot: where and laid out as the live one, if there is one, else as the optimizer makes it."""
        dtype = dtypes.torch_dtype(entry.dtype)
        now = self.optimizer.state.get(each, {}).get(native)
        for model in (now, each):
            if not isinstance(model, torch.Tensor) or entry.shape != global_shape(model):
                continue
            if model is now or native not in SCALARS:
                with torch.no_grad():
                    return torch.empty_like(model.detach(), dtype=dtype, requires_grad=False)
        if not entry.shape:
            return like(entry, self.device(native, each, group))
        made = like(entry, local(each).device)
        if is_distributed(each):
            from torch.distributed.tensor import DTensor, Replicate

            mesh: Any = each.device_mesh  # type: ignore[attr-defined]
            return DTensor.from_local(made, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return made

    def device(self, native: str, each: torch.Tensor, group: dict[str, Any]) -> torch.device:
        """Where the optimizer keeps a number of no axes: with the parameter only if it must not come to the host."""
        now = self.optimizer.state.get(each, {}).get(native)
        if isinstance(now, torch.Tensor):
            return now.device
        if group.get("capturable") or group.get("fused") or self.family in SCALARS_ON_DEVICE:
            return local(each).device
        return torch.device("cpu")

    def master(self, component: str, name: str, master: torch.Tensor) -> None:
        scope = self.ranks.scope_of(name)
        entry = self.stored.owned("master", "", component).get((name, scope), {}).get(None)
        if entry is None:
            self.pending.report.add("master", name, "none", "not in the checkpoint", "missing")
            return
        different = differs(entry, global_shape(master), dtype_of(local(master)))
        if different is not None:
            self.pending.report.add("master", name, "none", different[1], different[0])
            return
        self.pending.reads += reads_of(Key(component, "master", name, scope=scope), master)
        self.pending.report.add("master", name)

    def finish(self, free: dict[Any, Any]) -> None:
        """Puts the new state in the place of the old."""
        optimizer = self.optimizer
        for each in list(optimizer.state):
            if not isinstance(each, torch.Tensor) or self.params.pairs.get(id(each)) in self.saved.group_of:
                del optimizer.state[each]
        for each, state in self.state.items():
            if state:
                optimizer.state[each] = state
        for key, value in free.items():
            optimizer.state[key] = value
        # What load_state_dict does last: an optimizer may know groups and step counts of its own earlier versions.
        optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})
        _restored.pop(optimizer, None)
        if self.order != list(range(len(self.saved.groups))):
            _restored[optimizer] = self.stored.ckpt.path, self.order


def _only(stored: Stored, name: str) -> dict[str, Any] | None:
    found = stored.ckpt.records(_KIND, name)
    if len(found) > 1:
        raise usage(f"the checkpoint has {len(found)} records of optimizer {name!r}, of other places each",
                    remedy="Restore for a place first (waystation.resume) and pass record=restored.optimizers[name].")
    return found[0].value if found else None


def _follows(entry: Entry, shape: tuple[int, ...]) -> bool:
    """Whether a slot's shape goes with its parameter's, as far as it says so."""
    if entry.axes is None:
        return True
    return all(axis is None or axis < len(shape) and size == shape[axis] for size, axis in zip(entry.shape, entry.axes))


def _scheduled(member: str, now: dict[str, Any], saved: dict[str, Any]) -> bool:
    """Whether a schedule moves it, of which what it began with is compared: a rate, and where it cycles momentum that
    or the first of the betas."""
    if member == "lr":
        return "initial_lr" in now
    if not all("base_momentum" in group and "max_momentum" in group for group in (now, saved)):
        return False
    return member == "momentum" or member == "betas" and _same(tuple(now[member][1:]), tuple(saved[member][1:]))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and bool(torch.equal(a.cpu(), b.cpu()))
    return type(a) is type(b) and bool(a == b)


def _set_hyper(group: dict[str, Any], values: dict[str, Any]) -> None:
    for member, value in values.items():
        now = group.get(member)
        if isinstance(now, torch.Tensor) and isinstance(value, torch.Tensor):
            value = value.to(now.device)
            if now.dtype == value.dtype and now.shape == value.shape:
                # In place: compiled steps and captured graphs hold this very tensor.
                with torch.no_grad():
                    now.copy_(value)
                continue
        group[member] = value


def _on(value: Any, device: torch.device) -> Any:
    """Tensors of a nested value on a device: state that belongs to no slot lies with its parameter."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if type(value) is list or type(value) is tuple:
        return type(value)(_on(item, device) for item in value)
    if type(value) is dict:
        return {key: _on(item, device) for key, item in value.items()}
    return value
