"""What a state dict finds in a checkpoint: flat keys of DCP, and what stands behind them.

A key is looked up by what it would be called first, and all entries are listed only when that does not find it or when
somebody asks for all keys: a rank that loads a few tensors of a hundred thousand reads a few pages. Checkpoints that
DCP did not write are read by the paths that DCP would have: `model.<name>`, and `optim.state.<name>.<state>`.

It knows the metadata of a checkpoint; it must not know PyTorch, nor read elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import _core
from .._registry import SLOTS
from ..errors import error
from ..key import Key
from ..records import Coordinate, Record
from .naming import FRAMEWORK, TENSOR_SLOT, VALUE_SLOT, Path, flat
from .values import PREFIX, Values, optimizer_steps, optimizer_values


@dataclass(frozen=True)
class Step:
    """A step count, as it stands in the record of an optimizer."""

    count: int
    stored_as: str
    """`int`, or a dtype and `[]`"""


@dataclass(frozen=True)
class Value:
    """A value that is no tensor."""

    tree: Any


Source = _core.Entry | Step | Value


@dataclass(frozen=True)
class Seat:
    """The rank that loads."""

    rank: int = 0
    size: int = 1
    place: Coordinate | None = None
    """Its coordinate in the checkpoint's topology, where the caller says one."""


class Index:
    """The flat keys of one checkpoint, for one rank."""

    def __init__(self, checkpoint: _core.Checkpoint, seat: Seat) -> None:
        self._checkpoint = checkpoint
        self._seat = seat
        self._known: dict[str, Source | None] = {}
        self._listed: dict[str, tuple[Path, list[_core.Entry]]] | None = None
        self._records: _Records | None = None

    def find(self, key: str) -> Source | None:
        """What stands behind a flat key; None where the checkpoint has nothing of the name.

        Raises `not-exact` where each rank saved its own, and which is this rank's cannot be said.
        """
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def keys(self) -> Iterator[str]:
        """All flat keys: those of tensors, then those of values."""
        yield from self._all()
        yield from (key for key in self._said.paths if key not in self._all())

    def path(self, key: str) -> Path | None:
        """The path of a flat key."""
        found = self.find(key)
        if isinstance(found, _core.Entry):
            return path_of(found)
        return self._said.paths.get(key)

    @property
    def _said(self) -> _Records:
        if self._records is None:
            self._records = _Records(self._checkpoint)
        return self._records

    def _find(self, key: str) -> Source | None:
        bare = None
        for six in _guesses(key):
            for entry in self._ask(six):
                if flat(path_of(entry) or ()) == key:
                    if not entry.key[5]:
                        return entry
                elif not _is_ours(entry) and entry.key[2] == key:
                    bare = entry
        found = self._said.find(key, self._seat)
        if found is not None:
            return found
        listed = self._all().get(key)
        if listed is not None:
            return self._of_place(key, listed[1])
        return bare

    def _ask(self, six: tuple[str, str, str, str | None, str | None, Coordinate]) -> Iterator[_core.Entry]:
        if six[1] == "param":
            found = self._checkpoint.find_named(six[0], six[2])
        else:
            found = self._checkpoint.find(six)
        if found is not None:
            yield found

    def _all(self) -> dict[str, tuple[Path, list[_core.Entry]]]:
        if self._listed is None:
            self._listed = {}
            for entry in self._checkpoint.entries():
                path = path_of(entry)
                if path is not None:
                    self._listed.setdefault(flat(path), (path, []))[1].append(entry)
        return self._listed

    def _of_place(self, key: str, entries: list[_core.Entry]) -> _core.Entry:
        if len(entries) == 1 and not entries[0].key[5]:
            return entries[0]
        place = self._seat.place
        if place is None and self._seat.size == self._checkpoint.writers:
            place = self._said.places.get(self._seat.rank)
        for entry in entries:
            if place is not None and tuple(entry.key[5]) == tuple(place):
                return entry
        otherwise = f"{self._seat.size} ranks load what {self._checkpoint.writers} saved"
        raise error(
            "not-exact",
            f"{key!r} was saved by each of {len(entries)} ranks for itself, and "
            f"{f'none of them at {list(place)}' if place else otherwise}",
            remedy="Leave it out of the state dict, or say whose it should be: Reader(path, place=[(axis, index), …]).",
        )


def path_of(entry: _core.Entry) -> Path | None:
    """Where a tensor stands in the state dict; None for one that stands in none."""
    for framework, path in entry.native:
        if framework == FRAMEWORK:
            return tuple(path)
    component, role, name, slot, owner, _ = entry.key
    place: Path = ("model",) if component == "main" else (component, "model")
    if role in ("param", "buffer"):
        return (*place, name)
    if role == "optimizer" and slot is not None and owner is not None:
        return (*default_prefix(owner), "state", name, _torch_name(slot))
    if role == "extension" and slot != VALUE_SLOT:
        return (name,) if slot is None else (slot, name)
    return None


def default_prefix(owner: str) -> Path:
    """Where DCP's users keep an optimizer that DCP did not write: `main` under `optim`, others under their name."""
    return ("optim",) if owner == "main" else (owner,)


def _is_ours(entry: _core.Entry) -> bool:
    return any(framework == FRAMEWORK for framework, _ in entry.native)


def _torch_name(slot: str) -> str:
    known = next((row.torch for row in SLOTS if row.id == slot and row.role == "optimizer" and row.torch), None)
    return known or slot.removeprefix("torch/")


def _guesses(key: str) -> Iterator[tuple[str, str, str, str | None, str | None, Coordinate]]:
    """The identities that a flat key most likely has."""
    yield "main", "param", key, None, None, ()
    first, _, rest = key.partition(".")
    if rest:
        yield "main", "param", rest, None, None, ()
        if rest.startswith("model."):
            yield "main", "param", rest[len("model.") :], None, None, ()
            yield first, "param", rest[len("model.") :], None, None, ()
    at = key.find("state.")
    if at == 0 or at > 0 and key[at - 1] == ".":
        name, _, last = key[at + len("state.") :].rpartition(".")
        owners = [key[: at - 1]] if at else ["main"]
        owners += ["main"] if owners == ["optim"] else []
        slots = [row.id for row in SLOTS if row.role == "optimizer" and row.torch == last]
        for slot in (*slots, f"torch/{last}") if name and last else ():
            for owner in owners:
                yield "main", "optimizer", name, slot, owner, ()
    yield "main", "extension", key, TENSOR_SLOT, None, ()


class _Records:
    """The values of all writers, and of the optimizers' records."""

    def __init__(self, checkpoint: _core.Checkpoint) -> None:
        from .._json import canonical
        import json

        self._shared: dict[str, dict[int, Any]] = {}
        self._own: dict[str, dict[int, Any]] = {}
        self._made: dict[str, Source] = {}
        self.places: dict[int, Coordinate] = {}
        self.paths: dict[str, Path] = {}
        self._writers = checkpoint.writers
        self._canonical = canonical
        optimizers: dict[str, list[Record]] = {}
        forms: dict[str, tuple[str, Path]] = {}
        for kind, name, coordinate, text in checkpoint.records():
            record = Record(kind, name, json.loads(text), tuple((axis, index) for axis, index in coordinate))
            if kind == "optimizer":
                optimizers.setdefault(name, []).append(record)
            elif kind == "value" and name.startswith(PREFIX) and name[len(PREFIX) :].isdecimal():
                self._take(int(name[len(PREFIX) :]), Values.of(record), forms)
        for owner, of_owner in optimizers.items():
            form, prefix = forms.get(owner, ("nested", default_prefix(owner)))
            for path, tree in optimizer_values(of_owner, form, prefix).items():
                self._add(path, Value(tree))
            for path, (count, stored_as) in optimizer_steps(of_owner, form, prefix).items():
                self._add(path, Value(count) if stored_as == "int" else Step(count, stored_as))

    def find(self, key: str, seat: Seat) -> Source | None:
        if key in self._own:
            of = self._own[key]
            rank = seat.rank if seat.place is None and seat.size == self._writers else self._rank_at(seat.place)
            if rank in of:
                return Value(of[rank])
            raise error(
                "not-exact",
                f"{key!r} was saved by each of {len(of)} ranks for itself, and {seat.size} ranks load "
                f"what {self._writers} saved",
                remedy="Leave it out of the state dict, or say whose it should be: "
                "Reader(path, place=[(axis, index), …]).",
            )
        if key in self._shared:
            shared = self._shared[key]
            if len({self._canonical(tree) for tree in shared.values()}) == 1:
                return Value(next(iter(shared.values())))
            # Saved without collectives, ranks have not compared: as DCP does it, each gets back what it gave.
            if seat.size == self._writers and seat.rank in shared:
                return Value(shared[seat.rank])
            raise error(
                "not-exact",
                f"{key!r} is not the same for the ranks {sorted(shared)}, which saved it without "
                f"collectives, and {seat.size} ranks load it",
                remedy="Leave it out of the state dict, or save it with SavePlanner(per_rank=[…]) or first_rank=[…].",
            )
        return self._made.get(key)

    def _rank_at(self, place: Coordinate | None) -> int | None:
        return next((rank for rank, of in self.places.items() if place is not None and tuple(of) == tuple(place)), None)

    def _take(self, rank: int, said: Values, forms: dict[str, tuple[str, Path]]) -> None:
        forms.update(said.optimizers)
        if said.place:
            self.places[rank] = said.place
        for into, values in ((self._shared, said.shared), (self._own, said.own)):
            for key, (path, tree) in values.items():
                into.setdefault(key, {})[rank] = tree
                self.paths.setdefault(key, path)

    def _add(self, path: Path, source: Source) -> None:
        self._made[flat(path)] = source
        self.paths.setdefault(flat(path), path)


def key_of(entry: _core.Entry) -> Key:
    """The identity of the tensor that is read for an entry: an alias's target."""
    return Key.of(entry.key if entry.of is None else entry.of)
