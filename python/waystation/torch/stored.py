"""What a checkpoint holds, by what live objects ask for: names of a component, slots of a parameter, values.

One pass over the metadata serves the model, the optimizers and the averages of one restore.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import dtypes, tree
from .._opening import checkpoint_of
from ..key import Key
from ..records import Coordinate, Record, value_tree
from ..snapshot import Declared, Snapshot
from .boxes import Ranks, Scope

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored tensor under a name: `key` is that of the tensor itself, also where the name is an alias."""

    key: Key
    role: str
    dtype: str
    shape: tuple[int, ...]
    axes: tuple[int | None, ...] | None


class Stored:
    """The metadata of a checkpoint, indexed. `ckpt` is the checkpoint; nothing of its data is read here."""

    def __init__(self, ckpt: Checkpoint) -> None:
        self.ckpt = ckpt
        self._named: dict[str, dict[tuple[str, Scope], Entry]] = {}
        self._owned: dict[tuple[str, str, str], dict[tuple[str, Scope], dict[str | None, Entry]]] = {}
        for entry in ckpt._source.core.entries():
            key = Key.of(entry.key)
            target = key if entry.of is None else Key.of(entry.of)
            axes = None if entry.axes is None else tuple(entry.axes)
            kept = Entry(target, key.role, entry.dtype, tuple(entry.shape), axes)
            at = (key.name, key.scope)
            if key.role in ("param", "buffer"):
                self._named.setdefault(key.component, {})[at] = kept
            else:
                owned = self._owned.setdefault((key.role, key.owner or "", key.component), {})
                owned.setdefault(at, {})[key.slot] = kept

    @classmethod
    def of(cls, source: Checkpoint | Stored | str | os.PathLike[str]) -> Stored:
        """The index of a checkpoint, or of the one at a path, made now unless it is there."""
        return source if isinstance(source, Stored) else cls(checkpoint_of(source))

    def named(self, component: str) -> dict[tuple[str, Scope], Entry]:
        """Params, buffers and aliases of a component, by name and scope."""
        return self._named.get(component, {})

    def owned(self, role: str, owner: str, component: str) -> dict[tuple[str, Scope], dict[str | None, Entry]]:
        """The tensors of a role and owner: for each name and scope, by slot."""
        return self._owned.get((role, owner, component), {})

    def record(self, kind: str, name: str, coordinate: Coordinate = ()) -> Record | None:
        """The record of a kind and name for a coordinate: the one at it, or that of all places; None where there is
        none. Who stands nowhere, `()`, gets the only one there is: never a place that of another."""
        there = self.ckpt.records(kind, name)
        for record in there:
            if record.coordinate in (coordinate, ()):
                return record
        return there[0] if len(there) == 1 and not coordinate else None

    def omitted(self, component: str) -> dict[str, str]:
        """The parameters of a component that the save left out, each with the reason."""
        said = json.loads(self.ckpt._source.core.manifest_json())["omitted"]
        return {name: each["reason"] for each in said if each.get("component", "main") == component
                for name in each["names"]}


class Values:
    """Tensors within value trees of a snapshot being made: each gets an identity under the record's name."""

    def __init__(self, into: Snapshot, ranks: Ranks, component: str = "main") -> None:
        self._into, self._ranks, self._component = into, ranks, component

    def record(self, name: str, obj: object, coordinate: Coordinate = ()) -> None:
        """Adds a record of kind `value`. Raises `bad-argument` with the path of what has no tree."""
        value = self.tree(name, obj)
        self._into.records.append(value_tree(name, value, coordinate=coordinate))

    def tree(self, name: str, obj: object) -> Any:
        """The tree of an object; its tensors are called by their place in it, `name/state/0`."""
        put = tree.TreeTensors(name, self._component)
        made = tree.to_tree(obj, put)
        for piece in put.pieces:
            declared = Declared(piece.key, piece.dtype, piece.shape)
            written, said = self._ranks.share(self._ranks.holding, [piece], declared)
            self._into.pieces += written
            self._into.declared += said
        return made


def like(entry: Entry, device: torch.device | str = "cpu") -> torch.Tensor:
    """A new tensor of the stored shape and dtype, its elements undefined."""
    dtype = dtypes.torch_dtype(entry.dtype)
    shape = list(entry.shape)
    pair = dtypes.per_element(entry.dtype)
    if pair > 1:
        shape[-1] //= pair
    return torch.empty(shape, dtype=dtype, device=device)


def differs(entry: Entry, shape: tuple[int, ...], dtype: str) -> tuple[str, str] | None:
    """The finding and its reason where a stored tensor has another shape or dtype than the live one."""
    if entry.shape != shape:
        return "shape", f"{list(entry.shape)} in the checkpoint, {list(shape)} here"
    if entry.dtype != dtype:
        return "dtype", f"{entry.dtype} in the checkpoint, {dtype} here; nothing is cast"
    return None


def dtype_of(tensor: torch.Tensor) -> str:
    """The registry id of a tensor's elements."""
    return dtypes.of_torch(tensor.dtype)
