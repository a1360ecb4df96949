"""A foreign state dict as a snapshot: names, records and values as `waystation.dcp` gives and reads them.

Knows entries of a state dict, by their flat keys, and what DCP's naming makes of them; not where their bytes come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from .. import dtypes
from ..arrays import as_bytes
from ..dcp.naming import FRAMEWORK, VALUE_SLOT, Naming, Names, Optimizer
from ..dcp.values import Values, optimizer_record
from ..errors import usage
from ..key import Key
from ..records import progress, uncaptured
from ..snapshot import Alias, Declared, Omitted, Piece, Snapshot
from .intake import Bytes, Fill, fill_from
from .walk import NoForm, Path, PutTensor, show

_COUNTS: Final = ("F32", "F64", "I64", "I32")
"""What frameworks hold the number of a step in."""


@dataclass(frozen=True)
class Part:
    """One stored box of a tensor and what fills it."""

    start: tuple[int, ...]
    extent: tuple[int, ...]
    fill: Fill


@dataclass(frozen=True)
class Tensor:
    """A tensor of a foreign state. `same` tells tensors that are one memory under several names; None: of its own."""

    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    same: object = None


@dataclass(frozen=True)
class Value:
    """Anything else: the object where it is plain, and its tree, made with what stores the tensors within."""

    plain: object
    tree: Callable[[PutTensor], Any]
    tensor_of: Callable[[object], Tensor]
    """The tensor that an object within the value is."""


@dataclass
class Made:
    """A snapshot, and what is to be told about it."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    values: int = 0
    skipped: list[str] = field(default_factory=list)


Entries = Mapping[str, "tuple[Path, Tensor | Value]"]


def snapshot_of(
    entries: Entries,
    *,
    step: int,
    naming: Naming | None,
    buffers: frozenset[str],
    refused: Callable[[NoForm], Exception] | None,
) -> Made:
    """The snapshot of a state. `refused` makes the error for a value without a form; None: it is left out."""
    return _Maker(entries, step, naming, buffers, refused).make()


def step_of(entries: Entries) -> tuple[Path, int] | None:
    """Where a state says how many steps were made, and the number; None where nothing says so, or two differ."""
    found = [
        (path, said.plain)
        for path, said in entries.values()
        if tuple(path) in (("step",), ("progress", "step"))
        and isinstance(said, Value)
        and type(said.plain) is int
        and 0 <= said.plain < 2**53
    ]
    return found[0] if len({number for _, number in found}) == 1 else None


class _Maker:
    def __init__(
        self,
        entries: Entries,
        step: int,
        naming: Naming | None,
        buffers: frozenset[str],
        refused: Callable[[NoForm], Exception] | None,
    ) -> None:
        self.entries = entries
        self.step = step
        self.refused = refused
        plain = {key: said.plain if isinstance(said, Value) else said for key, (_, said) in entries.items()}
        self.names = Names(plain, {key: path for key, (path, _) in entries.items()}, naming=naming, buffers=buffers)
        self.plain: dict[str, object] = plain
        self.made = Made()
        self.values = Values()
        self.taken: dict[Key, str] = {}
        self.first: dict[object, Key] = {}

    def make(self) -> Made:
        in_records = self.optimizers()
        for key, (path, said) in self.entries.items():
            if key in in_records:
                continue
            if isinstance(said, Tensor):
                self.tensor(self.names.key(key), said, self.names.native(key), key)
            else:
                self.value(key, path, said)
        record = self.values.record(0)
        if record is not None:
            self.made.snapshot.records.append(record)
        if record is not None or any(piece.key.role != "param" for piece in self.made.snapshot.pieces):
            self.of_training()
        return self.made

    def of_training(self) -> None:
        """Says what a state of training should have and a state dict does not tell."""
        self.made.snapshot.records.append(progress(self.step))
        for kind, what in (("rng", "random streams"), ("cursor", "the place in the data")):
            # A stream that is missing without a word would be taken for one that was never there.
            reason = f"a state dict does not say what in it are {what}"
            self.made.snapshot.records.append(uncaptured(f"torch.dcp/{kind}", kind, reason))

    def tensor(self, identity: Key, tensor: Tensor, native: Any, key: str) -> None:
        other = self.taken.setdefault(identity, key)
        if other is not key:
            raise usage(
                f"{show((other,))} and {show((key,))} would have one identity: give `naming` that tells them apart",
                tensor=identity.text,
            )
        snapshot = self.made.snapshot
        same = None if tensor.same is None else (tensor.same, identity.component, identity.role)
        if same is not None and identity.role in ("param", "buffer") and not identity.scope and 0 not in tensor.shape:
            first = self.first.setdefault(same, identity)
            if first is not identity:
                snapshot.aliases.append(Alias(identity.component, identity.role, identity.name, first, native))
                return
        if not tensor.parts:
            snapshot.declared.append(Declared(identity, tensor.dtype, tensor.shape, native=native))
        for part in tensor.parts:
            piece = Piece(identity, tensor.dtype, tensor.shape, part.start, part.extent, part.fill, native=native)
            snapshot.pieces.append(piece)

    def value(self, key: str, path: Path, value: Value) -> None:
        tree = self.tree(key, value)
        if tree is not None:
            self.values.shared[key] = (path, tree[0])
            self.made.values += 1

    def tree(self, key: str, value: Value) -> tuple[Any] | None:
        """The tree of a value, or None where it has none and is left out."""
        within: list[tuple[Key, Tensor, str]] = []

        def put(data: object, path: Path) -> Key:
            role, slot = ("blob", None) if isinstance(data, bytes) else ("extension", VALUE_SLOT)
            name = f"{key}#{len(within)}"
            identity = Key(
                "main", role, name if len(name.encode()) <= 1024 and name.isprintable() else show((name,)), slot
            )
            within.append((identity, value.tensor_of(data), show(path)))
            return identity

        try:
            tree = value.tree(put)
        except NoForm as why:
            if self.refused is not None:
                raise self.refused(why) from None
            reason = f"{show(why.path)} is {why.why}"
            self.made.skipped.append(reason)
            self.made.snapshot.records.append(uncaptured(show((key,)), "value", reason[:1000]))
            return None
        for identity, tensor, where in within:
            self.tensor(identity, tensor, (), where)
        return (tree,)

    # Optimizers.

    def optimizers(self) -> set[str]:
        """Makes their records; the keys of entries that are in these and nowhere else."""
        gone: set[str] = set()
        params = {(key.component, key.name) for key in map(self.names.key, self.entries) if key.role == "param"}
        for one in self.names.optimizers:
            if one.owner in self.values.optimizers:
                continue
            steps: list[tuple[str, int, str]] = []
            for param, key in one.steps:
                count = _count(self.entries[key][1])
                if count is not None:
                    steps.append((param, *count))
                    gone.add(key)
            self.made.snapshot.records.append(optimizer_record(one, self.plain, steps, tensor_key=self.tensor_key))
            self.values.optimizers[one.owner] = (one.form, one.prefix)
            gone |= self.settings(one)
            absent = sorted({name for name in one.params if (one.component, name) not in params})
            if absent:
                self.made.snapshot.omitted.append(Omitted(one.component, tuple(absent), "other"))
        return gone

    def settings(self, one: Optimizer) -> set[str]:
        """The keys of an optimizer's groups that are no tensors: its record has them."""
        keys = {key for group in one.groups for _, key in group.hyper}
        if one.form == "nested":
            keys |= {
                key
                for key, (path, _) in self.entries.items()
                if path[: len(one.prefix)] == one.prefix and path[-1] == "params" and path[-3:-2] == ("param_groups",)
            }
        return {key for key in keys if isinstance(self.entries[key][1], Value)}

    def tensor_key(self, key: str) -> Key | None:
        return self.names.key(key) if isinstance(self.entries[key][1], Tensor) else None


def _count(said: Tensor | Value) -> tuple[int, str] | None:
    """The count that an entry holds and how, where it is one that a record can give back to the bit."""
    if isinstance(said, Value):
        return (said.plain, "int") if type(said.plain) is int and 0 <= said.plain < 2**53 else None
    if said.dtype not in _COUNTS or said.shape != () or len(said.parts) != 1:
        return None
    raw = np.empty(dtypes.bits(said.dtype) // 8, np.uint8)
    said.parts[0].fill(raw)
    number = raw.view(dtypes.numpy_dtype(said.dtype))[0]
    count = int(number) if number == number and 0 <= number < 2**53 else -1
    back = np.array([count], dtypes.numpy_dtype(said.dtype)).view(np.uint8)
    return (count, f"{said.dtype}[]") if count >= 0 and bytes(back) == bytes(raw) else None


def array_tensor(array: Any) -> Tensor:
    """The tensor of an array, or of bytes, in memory."""
    data: Bytes = as_bytes(array)
    from ..arrays import dtype_of, shape_of

    shape = shape_of(array)
    return Tensor(dtype_of(array), shape, () if 0 in shape else (Part((0,) * len(shape), shape, fill_from(data)),))


__all__ = ["FRAMEWORK", "Entries", "Made", "Part", "Tensor", "Value", "array_tensor", "snapshot_of", "step_of"]
