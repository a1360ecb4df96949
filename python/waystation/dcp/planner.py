"""Planners of DCP that know what cannot be left to chance.

`SavePlanner` plans as DCP does, and further names what each rank has for its own, which rank's copy of a thing is
meant, which tensors are one under two names, and who writes the record of an optimizer. `LoadPlanner` loads as DCP does
without listing a whole checkpoint, and tells all that is missing at once. They know state dicts and plans; they must
not write.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    create_default_local_load_plan,
)
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem, SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner import SavePlanner as TorchSavePlanner
from torch.distributed.tensor import DTensor

from ..errors import error, usage
from ..records import Coordinate
from .naming import Naming, Names, Optimizer
from .replicas import differ

Pattern = str | re.Pattern[str] | Callable[[str], bool]


@dataclass
class WriterMeta(StorageMeta):
    """What the writer tells the planner."""

    rank: int = 0
    place: Coordinate = ()


@dataclass(frozen=True)
class Outline:
    """What is more to a rank's plan than items. No numbers of the state stand in it: DCP may replay an old plan."""

    optimizers: tuple[Optimizer, ...] = ()
    ties: tuple[tuple[str, str], ...] = ()
    """(flat key, flat key of the tensor that it is)"""
    absent: frozenset[tuple[str, str]] = frozenset()
    """(component, name) of parameters that an optimizer has and the state dict has not."""


@dataclass(frozen=True)
class Assigned:
    """What the coordinator decided for one rank."""

    records: frozenset[str] = frozenset()
    """Owners whose record this rank writes."""
    placed: frozenset[str] = frozenset()
    """Owners of which each rank writes a record for its own place."""
    ties: tuple[tuple[str, str], ...] = ()
    omitted: tuple[tuple[str, str], ...] = ()
    """(component, name) of parameters that an optimizer has and nobody saves."""


@dataclass(frozen=True)
class Plan(SavePlan):
    """A plan of DCP with what is more to it."""

    outline: Outline = field(default_factory=Outline)
    assigned: Assigned | None = None


class SavePlanner(DefaultSavePlanner):
    """Plans a save into a checkpoint of Waystation.

    `per_rank` names what each rank has for its own though it is called the same everywhere (the state of a data loader,
    a random stream): texts are flat keys or beginnings of them up to a dot (`"loader"` has `loader.state.epoch`),
    compiled patterns must match the whole key, predicates take it. Tensors among them need a job with a topology, and
    the rank's coordinate in it. `first_rank` names what is taken from the lowest rank that has it and may differ
    elsewhere (running statistics of a batch norm that is not synchronised). Everything else that ranks share must be
    the same on all.

    `naming` gives paths an identity of the caller's own (`waystation.dcp.naming`), `buffers` are the names that are
    buffers and no parameters (a state dict does not tell), `algorithms` says what the optimizer under a key is where
    its groups do not show it.

    Further arguments are those of `torch.distributed.checkpoint.DefaultSavePlanner`.
    """

    def __init__(
        self,
        *,
        per_rank: Sequence[Pattern] = (),
        first_rank: Sequence[Pattern] = (),
        naming: Naming | None = None,
        buffers: Collection[str] = (),
        algorithms: Mapping[str, str] | None = None,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        super().__init__(
            flatten_state_dict, flatten_sharded_tensors, None, dedup_save_to_lowest_rank, enable_plan_caching
        )
        for option, said in (("per_rank", per_rank), ("first_rank", first_rank)):
            if isinstance(said, str):
                raise usage(f"{option} takes a sequence of patterns, found the text {said!r}")
        self._cached_plans_key = f"{__name__}.{type(self).__qualname__}"
        self.per_rank = tuple(per_rank)
        self.first_rank = tuple(first_rank)
        self.naming = naming
        self.buffers = frozenset(buffers)
        self.algorithms = dict(algorithms or {})
        self.own: dict[str, str] = {}
        """Flat key of the plan -> flat key of the state dict, of what this rank alone means."""
        self.place: Coordinate = ()
        self.names = Names({}, {})

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        if self.flatten_state_dict:
            _check_keys(state_dict, ())
        super().set_up_planner(state_dict, storage_meta, is_coordinator)
        own = [key for key in self.state_dict if _matches(self.per_rank, key)]
        self.place = storage_meta.place if isinstance(storage_meta, WriterMeta) else ()
        self.own = {}
        if own:
            if not isinstance(storage_meta, WriterMeta):
                raise usage(f"per_rank names {own[0]!r}, and the storage writer is not waystation.dcp.Writer")
            self._check_numbered(own)
            self.own = {f"{key}@{storage_meta.rank}": key for key in own}
            renamed = {key: own_key for own_key, key in self.own.items()}
            # One key for each rank, so that no rank's is taken for another's.
            self.state_dict = {renamed.get(key, key): value for key, value in self.state_dict.items()}
            if self.flatten_state_dict:
                self.mappings = {renamed.get(key, key): path for key, path in self.mappings.items()}
        self.names = names_of(
            self.state_dict, self.mappings, self.own, self.place, naming=self.naming, buffers=self.buffers
        )

    def _check_numbered(self, own: Sequence[str]) -> None:
        """Refuses what is shared and called as some rank's own would be in the plan: one would be lost."""
        for key in set(self.state_dict).difference(own):
            name, _, number = key.rpartition("@")
            if number.isdecimal() and _matches(self.per_rank, name):
                raise usage(
                    f"{key!r} is shared, and called as rank {number}'s own {name!r} is called in the plan of a save",
                    remedy="Give it another name in the state dict, or name it in per_rank, too.",
                )

    def create_local_plan(self) -> SavePlan:
        outline = Outline(
            self.names.optimizers, find_ties(self.state_dict, self.names), absent(self.names, self.state_dict)
        )
        cached = TorchSavePlanner._cached_save_plan.get(self._cached_plans_key)
        if cached is not None and getattr(cached, "outline", None) != outline:
            # DCP compares items alone; a group that lost a parameter to another has the same items.
            del TorchSavePlanner._cached_save_plan[self._cached_plans_key]
        plan = super().create_local_plan()
        if not plan.usable:
            return plan
        self.plan: SavePlan = Plan(plan.items, plan.storage_data, plan.planner_data, True, outline)
        if hasattr(self, "_pending_local_plan"):
            self._pending_local_plan = self.plan
        return self.plan

    def _dedup_save_plans(self, all_plans: list[SavePlan]) -> list[SavePlan]:
        return super()._dedup_save_plans(_keep_first(all_plans, self.first_rank))

    def _create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        _agree(all_plans, lambda key: _matches(self.first_rank, key))
        plans, metadata = super()._create_global_plan(all_plans)
        plans = assign(plans, all_plans, self.place)
        before = TorchSavePlanner._cached_global_plan.get(self._cached_plans_key)
        if self._enable_plan_caching and before is not None and len(before) == len(plans):
            # DCP sends a plan anew only when its items are others: what was decided beside them counts too.
            TorchSavePlanner._cached_global_plan[self._cached_plans_key] = [
                old if getattr(old, "assigned", None) == new.assigned else SavePlan([], usable=False)
                for old, new in zip(before, plans)
                if isinstance(new, Plan)
            ]
        return plans, metadata

    def taken_as_it_is(self, key: str) -> bool:
        """Whether the ranks may differ in this, and the lowest one's counts."""
        return _matches(self.first_rank, key)


class LoadPlanner(DefaultLoadPlanner):
    """Loads as `DefaultLoadPlanner` does, looks up only what is asked for, and names all that is missing at once.

    A value under a whole number, as in the raw `Optimizer.state_dict()`, is put back under that number;
    `DefaultLoadPlanner` puts it under the text of it, beside the old one.

    For state dicts saved before PyTorch 2.4 there is nothing here: no checkpoint of Waystation is that old.
    """

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        known = self.metadata.state_dict_metadata
        missing = [] if self.allow_partial_load else [key for key in self.state_dict if key not in known]
        if missing:
            raise error(
                "not-found",
                f"the checkpoint lacks {_some(missing)} of the state dict",
                remedy="Leave them out, or say LoadPlanner(allow_partial_load=True) to keep what they are.",
            )
        wrong = []
        for key, value in self.state_dict.items():
            found = known.get(key)
            if (
                isinstance(found, TensorStorageMetadata)
                and isinstance(value, torch.Tensor)
                and found.size != value.size()
            ):
                wrong.append(f"{key}: {list(found.size)} in the checkpoint, {list(value.size())} here")
        if wrong:
            raise usage(
                f"shapes differ: {'; '.join(wrong[:8])}{f' and {len(wrong) - 8} more' if len(wrong) > 8 else ''}"
            )
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        path = self.mappings.get(read_item.dest_index.fqn) if self.flatten_state_dict else None
        place = None if path is None else _numbered(self.original_state_dict, path)
        if place is None:
            super().load_bytes(read_item, value)
        else:
            container, key = place
            container[key] = torch.load(value, weights_only=False)


def _numbered(root: Any, path: Sequence[str | int]) -> tuple[Any, str | int] | None:
    """The container and key that a path of DCP leads to, where a whole number is a key on the way; None where none is.

    DCP makes text of all keys of mappings in its paths, and would make new members under these.
    """
    numbered, container = False, root
    for at, part in enumerate(path):
        key: Any = part
        if isinstance(container, Mapping) and part not in container:
            key = next((own for own in container if type(own) is int and str(own) == part), None)
            if key is None:
                return None
            numbered = True
        if at == len(path) - 1:
            return (container, key) if numbered else None
        if isinstance(container, list) and not (type(key) is int and key < len(container)):
            return None
        container = container[key]
    return None


def names_of(
    state_dict: Mapping[str, Any],
    paths: Mapping[str, Any],
    own: Mapping[str, str],
    place: Coordinate,
    *,
    naming: Naming | None = None,
    buffers: Collection[str] = (),
) -> Names:
    """The identities of a flattened state dict, and the scopes of what is the rank's own."""
    tensors = [key for key in own if isinstance(state_dict[key], torch.Tensor)]
    if tensors and not place:
        raise usage(
            f"the tensor {own[tensors[0]]!r} is each rank's own, and the job says no place for this rank",
            remedy="Start the job with a topology and this rank's coordinate in it, "
            'Job.start(…, topology=[("rank", size)], coordinate=[("rank", rank)]).',
        )
    whole = {key: tuple(paths.get(key, (own.get(key, key),))) for key in state_dict}
    return Names(state_dict, whole, naming=naming, buffers=buffers, scopes=dict.fromkeys(own, place))


def _check_keys(state_dict: Mapping[Any, Any], path: tuple[Any, ...]) -> None:
    """Refuses keys that DCP makes text of: what is under `True` would come back under `'True'`, and beside it.

    Whole numbers are let through, since `Optimizer.state_dict()` has them; tensors below them are loaded in place, and
    values where `LoadPlanner` loads.
    """
    for key, value in state_dict.items():
        if type(key) is bool or not isinstance(key, (str, int)):
            place = ".".join(map(str, path)) or "its top"
            raise usage(
                f"the state dict has the key {key!r} ({type(key).__name__}) at {place}, "
                "and is loaded with the text of it for a key",
                remedy="Have texts and whole numbers for keys, or make the dictionary a list of pairs.",
            )
        if isinstance(value, Mapping):
            _check_keys(value, (*path, key))


def find_ties(state_dict: Mapping[str, Any], names: Names) -> tuple[tuple[str, str], ...]:
    """Parameters that are one tensor under two names: (key, key of the one that comes first)."""
    first: dict[Any, str] = {}
    ties = []
    for key, value in state_dict.items():
        if not isinstance(value, torch.Tensor):
            continue
        local = value.to_local() if isinstance(value, DTensor) else value
        if type(local) not in (torch.Tensor, torch.nn.Parameter) or local.layout != torch.strided or not local.numel():
            continue
        identity = names.key(key)
        if identity.role not in ("param", "buffer") or identity.scope:
            continue
        same = (
            identity.component,
            identity.role,
            local.device,
            local.untyped_storage().data_ptr(),
            local.storage_offset(),
            local.dtype,
            local.shape,
            local.stride(),
            # A conjugate or a negation lies in the same memory and has other elements.
            local.is_conj(),
            local.is_neg(),
            value.shape,
        )
        target = first.setdefault(same, key)
        if target != key:
            ties.append((key, target))
    return tuple(ties)


def absent(names: Names, state_dict: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Parameters of optimizers that are not in the state dict."""
    wanted = {(one.component, name) for one in names.optimizers for name in one.params}
    if not wanted:
        return frozenset()
    for key, value in state_dict.items():
        if isinstance(value, torch.Tensor):
            identity = names.key(key)
            if identity.role == "param":
                wanted.discard((identity.component, identity.name))
    return frozenset(wanted)


def assign(plans: Sequence[SavePlan], before: Sequence[SavePlan], place: Coordinate) -> list[SavePlan]:
    """Who writes the records of optimizers, which ties hold on all ranks, and what nobody saves.

    `before` are the plans before DCP left only one of several equal items.
    """
    outlines = [plan.outline if isinstance(plan, Plan) else Outline() for plan in plans]
    holders: dict[str, list[int]] = {}
    for rank, outline in enumerate(outlines):
        for one in outline.optimizers:
            holders.setdefault(one.owner, []).append(rank)
    alone: dict[int, set[str]] = {}
    placed = set()
    for owner, ranks in holders.items():
        kinds = {one for rank in ranks for one in outlines[rank].optimizers if one.owner == owner}
        if len(kinds) == 1:
            alone.setdefault(ranks[0], set()).add(owner)
        elif any(one.form == "nested" for one in kinds):
            raise differ(
                {f"{owner}.param_groups": ranks},
                "Where ranks have different parameters (pipeline stages), take "
                "get_optimizer_state_dict(…, options=StateDictOptions(flatten_optimizer_state_dict=True)).",
            )
        elif not place:
            raise usage(
                f"the ranks hold different parameters of the optimizer {owner!r}, "
                "and the job has no topology to say where",
                remedy="Start the job with a topology and each rank's coordinate in it, "
                'Job.start(…, topology=[("pp", 4), …], coordinate=[("pp", 0), …]).',
            )
        else:
            placed.add(owner)
    listed = [{(one.component, name) for one in outline.optimizers for name in one.params} for outline in outlines]
    missing = {
        pair
        for outline in outlines
        for pair in outline.absent
        if all(pair in other.absent for other, has in zip(outlines, listed) if pair in has)
    }
    common = Assigned(frozenset(), frozenset(placed), _common_ties(before, outlines), ())
    return [
        replace(
            plan,
            assigned=replace(
                common, records=frozenset(alone.get(rank, ())), omitted=tuple(sorted(missing)) if rank == 0 else ()
            ),
        )
        if isinstance(plan, Plan)
        else plan
        for rank, plan in enumerate(plans)
    ]


def _common_ties(before: Sequence[SavePlan], outlines: Sequence[Outline]) -> tuple[tuple[str, str], ...]:
    """Those that hold on every rank that has the tensor."""
    if len({outline.ties for outline in outlines}) == 1:
        return outlines[0].ties
    every = {tie for outline in outlines for tie in outline.ties}
    names = {key for key, _ in every}
    for plan, outline in zip(before, outlines):
        here, holds = {item.index.fqn for item in plan.items} & names, set(outline.ties)
        every = {tie for tie in every if tie[0] not in here or tie in holds}
    return tuple(sorted(every))


def _agree(plans: Sequence[SavePlan], skip: Callable[[str], bool]) -> None:
    """Refuses tensors that have one name and several shapes or dtypes: DCP would keep one of them."""
    first: dict[str, tuple[Any, int]] = {}
    apart: dict[str, set[int]] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            data = item.tensor_data
            form = (item.type == WriteItemType.BYTE_IO, data and (data.size, data.properties.dtype))
            known = first.setdefault(item.index.fqn, (form, rank))
            if known[0] != form and not skip(item.index.fqn):
                apart.setdefault(item.index.fqn, {known[1]}).add(rank)
    if apart:
        raise differ(apart)


def _keep_first(plans: list[SavePlan], patterns: Sequence[Pattern]) -> list[SavePlan]:
    """Leaves what matches in the plan of the lowest rank that has it."""
    if not patterns:
        return plans
    taken: set[str] = set()
    kept = []
    for plan in plans:
        mine: set[str] = set()
        items: list[WriteItem] = []
        for item in plan.items:
            key = item.index.fqn
            if item.type != WriteItemType.SHARD and _matches(patterns, key):
                if key in taken:
                    continue
                mine.add(key)
            items.append(item)
        taken |= mine
        kept.append(replace(plan, items=items))
    return kept


def _matches(patterns: Sequence[Pattern], key: str) -> bool:
    for pattern in patterns:
        if isinstance(pattern, str):
            if key == pattern or key.startswith(pattern + "."):
                return True
        elif isinstance(pattern, re.Pattern):
            if pattern.fullmatch(key):
                return True
        elif pattern(key):
            return True
    return False


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:8]))
    return f"{len(names)} entries ({shown}{', …' if len(names) > 8 else ''})" if len(names) > 1 else shown
