"""Where training stands in its data: samplers that know, and are put back to the bit.

It knows orders, epochs and shares (chapter 18 of the specification) and how PyTorch's loaders ask for indices. It must
not read data. Loaders whose state only they understand are `opaque`'s.

A position counts items of completed optimizer steps, over all ranks: the trainer says `step()` after each, and what the
workers of a `DataLoader` read ahead does not count. So a position holds for any number of ranks and workers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias, Union

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, Sampler

from .. import _core
from .._json import canonical
from ..errors import error, usage
from ..records import Record
from ..snapshot import Piece
from ..tree import GetTensor
from .group import Place

__all__ = ["DistributedSamplerCursor", "ResumableSampler", "digest_of_dataset", "digest_of_files"]

Augment: TypeAlias = Literal["none", "per-record", "worker-stream"]
Said: TypeAlias = Union[str, int, bytes, "Iterable[Said]"]

CANARY_ITEMS = 1024
"""Items that the canary of a cursor covers, at most."""

_SIMPLE_PERMUTATION = 214_748_364
"""From this length on the first element of a permutation of PyTorch takes as long as the last."""


class CursorSource(Protocol):
    """What a trainer's data needs to be, to be saved and restored."""

    def capture(self, name: str, place: Place) -> tuple[list[Record], list[Piece]]:
        """The record of kind `cursor` under `name`, and tensors that its value names."""

    def offer(self, place: Place) -> tuple[list[tuple[int, str]], Any | None]:
        """What it is about to read: sources (records, SHA-256 in hex), and the fingerprint tree of an opaque cursor."""

    def check(self, value: dict[str, Any]) -> None:
        """Raises `not-exact` where it could not go on from the value of a record. Nothing is changed."""

    def put(self, value: dict[str, Any], tensor: GetTensor) -> None:
        """Goes on from the value; `tensor` reads a tensor that it names, by its key."""

    def step(self) -> int:
        """Counts what the optimizer step that was just completed consumed, and says how many items that was."""


def digest_of_dataset(*said: Said) -> str:
    """A digest for `source`: SHA-256 over the canonical JSON of what is said, for data that have no digest of their
    own.

    Say what makes the data these data, in an order that does not depend on the machine: names, sizes and record counts
    of the shards, the version of the preparation, the revision of the tokenizer. Not paths, not modification times.
    What is not said is not noticed when it changes.

        digest_of_dataset("c4/en 3.1", [("shard-000.parquet", 71_230_112, 356_317), …])
    """

    def plain(value: Any) -> Any:
        if isinstance(value, (str, int)):
            return value
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": bytes(value).hex()}
        if isinstance(value, dict) or not isinstance(value, Iterable):
            raise usage(f"a digest is of texts, integers, bytes and sequences of them; found a {type(value).__name__}")
        return [plain(item) for item in value]

    return hashlib.sha256(canonical(plain(said)).encode()).hexdigest()


def digest_of_files(folder: str | os.PathLike[str], *, contents: bool = False) -> str:
    """A digest for `source` over the files beneath a folder: their names and sizes, or, slower, also their bytes.

    Raises `OSError` for what cannot be read. Links are followed; what a link to a folder names is not looked into.
    """
    root = os.fspath(folder)
    said: list[Said] = []
    for parent, folders, files in os.walk(root, onerror=_raise):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(parent, name)
            entry: list[Said] = [os.path.relpath(path, root).replace(os.sep, "/"), os.stat(path).st_size]
            if contents:
                with open(path, "rb") as file:
                    entry.append(_digest(file))
            said.append(entry)
    if not said:
        raise usage(f"expected files beneath {root}, found none")
    return digest_of_dataset("files", said)


def _raise(why: OSError) -> None:
    what = f"{why.filename} could not be listed: {why.strerror}"
    raise error("io-denied" if isinstance(why, PermissionError) else "io", what) from why


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


class _Cursor:
    """A permuted index (18.1) over `n` records, in global batches of `batch` items, E items an epoch.

    What it knows of the trainer is `rank` and `ranks`; all else is the same on every rank.
    """

    def __init__(self, n: int, batch: int, *, shuffle: bool, seed: int, rule: str, unit: int | None, rank: int,
                 ranks: int, source: str, name: str | None, augment: Augment, axes: tuple[str, ...] | None) -> None:
        for what, number in (("n", n), ("batch", batch), ("ranks", ranks)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise usage(f"{what} is a number of at least 1, not {number!r}")
        if not 0 <= rank < ranks:
            raise usage(f"expected a rank below {ranks}, found {rank}")
        if not 0 <= seed < 2**64:
            raise usage(f"expected a seed from 0 to 2^64 - 1, found {seed}")
        if len(source) != 64 or set(source) - set("0123456789abcdef"):
            raise usage(f"source is a SHA-256 in lower-case hex that says what the data are, not {source!r}; "
                        "waystation.torch.digest_of_dataset(…) makes one")
        self.n, self.batch, self.rank, self.ranks = n, batch, rank, ranks
        self._order_value: dict[str, Any] = {"algorithm": "identity", "n": n}
        if shuffle:
            tree = seed if seed < 2**53 else {"int": str(seed)}
            self._order_value = {"algorithm": "torch.randperm-cpu", "n": n, "seed": tree, "seed_rule": "seed+epoch"}
        self._seed = seed if shuffle else None
        self._end: dict[str, Any] = {"rule": rule} if unit is None else {"rule": rule, "unit": unit}
        self.items = {"drop-last": n - n % (unit or 1), "pad": n + -n % (unit or 1)}.get(rule, n)
        """Items of an epoch, E."""
        if self.items < 1:
            raise usage(f"an epoch of {n} records has no item when what is over of {unit} is dropped: expected smaller "
                        "batches, or tail=\"pad\"")
        self._source: dict[str, Any] = {"records": n, "sha256": source} | ({} if name is None else {"name": name})
        self._augment, self._axes = augment, axes
        self._epoch = self._position = self.consumed = 0
        self._given = (0, 0)
        self._used_up: tuple[int, int] | None = None
        self._generation = 0
        self._orders: dict[int, torch.Tensor] = {}
        self.when_begun: Callable[[], None] | None = None
        """Called once, before the first index is given after a restore."""

    # Where it stands.

    @property
    def epoch(self) -> int:
        """The epoch of the next item, from 0: a trainer's loop goes over `range(data.epoch, epochs)`."""
        return self._next_place()[0]

    @property
    def position(self) -> int:
        """Items of `epoch` that completed steps consumed, over all ranks."""
        return self._next_place()[1]

    def _next_place(self) -> tuple[int, int]:
        return (self._epoch, self._position) if self._position < self.items else (self._epoch + 1, 0)

    def step(self) -> int:
        """Counts the global batch that the optimizer step just completed consumed; says how many items that was.

        Raises `bad-argument` when no rank can have been given that batch.
        """
        epoch, position = self._next_place()
        count = min(self.batch, self.items - position)
        if self._given < (epoch, position + count):
            raise usage(f"step() counts items {position} to {position + count} of epoch {epoch}, which were not "
                        "given yet: expected one step() after each optimizer step")
        self._epoch, self._position = epoch, position + count
        self.consumed += count
        return count

    def __repr__(self) -> str:
        return (f"<{type(self).__name__} of {self.n} records: epoch {self.epoch}, {self.position} of {self.items} items "
                f"consumed, rank {self.rank} of {self.ranks}>")

    # What iterating needs.

    def _begin(self) -> int:
        """Called where an iterator is made; the answer is what `_still` wants to see."""
        if self._used_up is not None and (self._epoch, self._position) < self._used_up:
            raise usage(f"all of epoch {self._used_up[0]} was given and only {self._position} of its {self.items} "
                        "items "
                        "were counted: expected a step() after each optimizer step")
        return self._generation

    def _still(self, generation: int) -> None:
        if generation != self._generation:
            raise usage("this iterator was made before the sampler was restored: expected a new one, iter(loader)")

    def _start(self, generation: int) -> tuple[int, int]:
        self._still(generation)
        begun, self.when_begun = self.when_begun, None
        if begun is not None:
            begun()
        place = self._next_place()
        self._given, self._used_up = place, None
        return place

    def _order(self, epoch: int) -> torch.Tensor | None:
        """The ordinals of an epoch, I64 [n]; None: as they are numbered."""
        if self._seed is None:
            return None
        order = self._orders.get(epoch)
        if order is None:
            generator = torch.Generator().manual_seed((self._seed + epoch) % 2**64)
            order = torch.randperm(self.n, generator=generator)
            self._check_order(order, epoch)
            # The one before it may still be walked when the canary needs the next.
            self._orders = {each: kept for each, kept in self._orders.items() if each == epoch - 1} | {epoch: order}
        return order

    def _check_order(self, order: torch.Tensor, epoch: int) -> None:
        """A version of PyTorch that permutes in another way is found out here, not at the next resume."""
        if self.n >= _SIMPLE_PERMUTATION:
            return
        count = min(self.n, 8)
        expected = _core.order(json.dumps(self._order_value), self.n, epoch, 0, count)
        if order[:count].tolist() != expected:
            raise error("not-exact", f"torch.randperm of PyTorch {torch.__version__} gives {order[:count].tolist()} "
                                     "for seed "
                                     f"{self._seed} and epoch {epoch}, and the order that is recorded is {expected}",
                        remedy="use a version of PyTorch that permutes as before")

    def _at(self, order: torch.Tensor | None, first: int, last: int, stride: int = 1) -> list[int]:
        """Ordinals of the items first, first + stride, … below last of an epoch."""
        if order is None:
            return [place % self.n for place in range(first, last, stride)]
        if last <= self.n:
            return order[first:last:stride].tolist()
        return order[torch.arange(first, last, stride) % self.n].tolist()

    # What is recorded.

    def capture(self, name: str, place: Place) -> tuple[list[Record], list[Piece]]:
        """See `CursorSource`. The record is the same on all ranks."""
        return [Record("cursor", name, self.value(place))], []

    def value(self, place: Place) -> dict[str, Any]:
        """The value of the record of kind `cursor`."""
        value = {
            "kind": "permuted-index", "epoch": self._epoch, "position": self._position, "consumed": self.consumed,
            "epoch_end": self._end, "order": self._order_value, "source": self._source, "augment": self._augment,
            "next": self._canary(),
        }
        # The format's global batches follow one another without regard to epochs.
        if self.items % self.batch == 0 and self._position % self.batch == 0:
            axes = self._axes_of(place)
            if axes is not None:
                value["partition"] = {"axes": list(axes), "batch": self.batch, "rule": "round-robin"}
        return value

    def _canary(self) -> dict[str, Any]:
        epoch, position = self._next_place()
        items = self._at(self._order(epoch), position, min(position + CANARY_ITEMS, self.items))
        packed = b"".join(item.to_bytes(8, "little") for item in items)
        return {"count": len(items), "first": items[:4], "sha256": hashlib.sha256(packed).hexdigest()}

    def _axes_of(self, place: Place) -> tuple[str, ...] | None:
        """The axes along which ranks share batches, or None where it is not known."""
        if self._axes is None:
            everywhere = self.ranks == place.group.size and self.ranks > 1
            axes = tuple(axis for axis, _ in place.topology) if everywhere else ()
            return axes if everywhere or self.ranks == 1 else None
        rank, ranks = 0, 1
        sizes, at = dict(place.topology), dict(place.coordinate)
        for axis in self._axes:
            if axis not in sizes:
                raise usage(f"axes={self._axes} of the data has {axis!r}, which the topology {place.topology} lacks")
            rank, ranks = rank * sizes[axis] + at[axis], ranks * sizes[axis]
        if (rank, ranks) != (self.rank, self.ranks):
            raise usage(f"along {self._axes} this is place {rank} of {ranks}, and the data are shared as rank "
                        f"{self.rank} of "
                        f"{self.ranks}")
        return self._axes

    def offer(self, place: Place) -> tuple[list[tuple[int, str]], Any | None]:
        """See `CursorSource`."""
        return [(self.n, self._source["sha256"])], None

    def check(self, value: dict[str, Any]) -> None:
        """See `CursorSource`."""
        if value.get("kind") != "permuted-index":
            raise error("not-exact", f"the data were saved as {value.get('kind')!r}, and here is a sampler of a "
                                     "permuted index")
        for what, here in (("order", self._order_value), ("epoch_end", self._end)):
            if value[what] != here:
                raise error("not-exact", f"the data were saved with {what} {canonical(value[what])}, and the sampler "
                                         "has "
                                         f"{canonical(here)}", remedy=self._advice(what))

    def _advice(self, what: str) -> str:
        if what == "order":
            return "make the sampler with the same n, seed and shuffle"
        return "make the sampler with the same tail and unit: how long an epoch is depends on them, not on the ranks"

    def put(self, value: dict[str, Any], tensor: GetTensor) -> None:
        """See `CursorSource`."""
        self._epoch, self._position, self.consumed = value["epoch"], value["position"], value["consumed"]
        self._given, self._used_up = (self._epoch, self._position), None
        self._generation += 1


class ResumableSampler(_Cursor, Sampler[list[int]]):
    """A batch sampler over `n` records that shares global batches among ranks and knows what was consumed.

    batch       items of one optimizer step, over all ranks
    shuffle     as `torch.utils.data.DistributedSampler` does: `torch.randperm` seeded with seed + epoch; else in order
    tail        what becomes of the records over at the end of an epoch: "drop", "pad" (from the epoch's beginning), or
                "keep" for a last batch that is shorter
    unit        what "drop" and "pad" bring an epoch to a multiple of; as given, `batch`. With the number of ranks and
                "pad", or "drop", indices are those of a DistributedSampler on so many ranks, the shorter last batch too
    rank, ranks as given, those of `torch.distributed`, or one process
    accumulate  micro-batches of one optimizer step, each of which is given by itself
    source      SHA-256 in hex that says what the data are, see `digest_of_dataset`
    name        of the source, for people
    augment     what random changes to records are drawn from: "none", "per-record" when they are a function of seed,
                epoch and record, "worker-stream" when workers draw them: such data do not resume exactly
    axes        along which ranks share a batch (ranks along other axes take the same items), outermost first; as given,
                all of the job when `ranks` are all its ranks

    An iterator goes from the first item that was not consumed to the end of the epoch. Use it as
    `DataLoader(dataset, batch_sampler=data, generator=data.generator, num_workers=…)`, or `data.loader(dataset, …)`.
    Without a generator of its own a DataLoader draws from PyTorch's default one whenever it is iterated over, so in a
    resumed run once more than in one that was not interrupted; that is found and refused.
    """

    def __init__(self, n: int, batch: int, *, source: str, shuffle: bool = True, seed: int = 0,
                 tail: Literal["drop", "pad", "keep"] = "drop", unit: int | None = None, rank: int | None = None,
                 ranks: int | None = None, accumulate: int = 1, name: str | None = None, augment: Augment = "none",
                 axes: tuple[str, ...] | None = None) -> None:
        rank, ranks = _rank_of(rank, ranks)
        rules = {"drop": "drop-last", "pad": "pad", "keep": "wrap"}
        if tail not in rules:
            raise usage(f"tail is \"drop\", \"pad\" or \"keep\", not {tail!r}")
        if tail == "keep" and unit is not None:
            raise usage("a unit is for tail=\"drop\" and \"pad\"")
        unit = None if tail == "keep" else batch if unit is None else unit
        super().__init__(n, batch, shuffle=shuffle, seed=seed, rule=rules[tail], unit=unit, rank=rank, ranks=ranks,
                         source=source, name=name, augment=augment, axes=axes)
        if accumulate < 1 or batch < ranks * accumulate:
            raise usage(f"a batch of {batch} items has none for some of {ranks} ranks × {accumulate} micro-batches")
        last = self.items % batch
        if 0 < last < ranks:
            raise usage(f"the last batch of an epoch has {last} items for {ranks} ranks: expected tail=\"drop\" or "
                        "\"pad\"")
        self.accumulate = accumulate
        self.generator = torch.Generator().manual_seed(seed)
        """For the DataLoader; what it draws decides nothing but the seeds of its workers."""

    def loader(self, dataset: torch.utils.data.Dataset[Any], **more: Any) -> DataLoader[Any]:
        """A DataLoader over `dataset` with this sampler; `more` are its other arguments."""
        return DataLoader(dataset, batch_sampler=self, generator=self.generator, **more)

    def __iter__(self) -> Iterator[list[int]]:
        return self._walk(self._begin())

    def _walk(self, generation: int) -> Iterator[list[int]]:
        epoch, position = self._start(generation)
        order = self._order(epoch)
        while position < self.items:
            end = min(position + self.batch, self.items)
            self._given = (epoch, end)
            for micro in self._micros(self._at(order, position + self.rank, end, self.ranks), end - position):
                yield micro
                self._still(generation)
            position = end
        self._used_up = (epoch, position)

    def _micros(self, share: list[int], count: int) -> Iterator[list[int]]:
        """This rank's items of a batch of `count` in micro-batches, of which all ranks have equally many."""
        size = -(-self.batch // (self.ranks * self.accumulate))
        if count % self.ranks == 0 and self.batch % (self.ranks * self.accumulate) == 0:
            yield from (share[first : first + size] for first in range(0, len(share), size))
            return
        least = count // self.ranks
        parts = self.accumulate if count == self.batch else min(self.accumulate, -(-least // size))
        for part in range(parts):
            yield share[part * len(share) // parts : (part + 1) * len(share) // parts]

    def __len__(self) -> int:
        """Micro-batches of a whole epoch."""
        whole, last = divmod(self.items, self.batch)
        if not last:
            return whole * self.accumulate
        return whole * self.accumulate + sum(1 for _ in self._micros([0] * (last // self.ranks), last))


class DistributedSamplerCursor(_Cursor, Sampler[int]):
    """Where training stands in a `torch.utils.data.DistributedSampler`, and the sampler of a DataLoader in its stead.

        data = DistributedSamplerCursor(sampler, batch_size=8, source=digest)
        loader = DataLoader(dataset, sampler=data, batch_size=8, generator=data.generator)

    `batch_size`, and `drop_last`, are those of the DataLoader; an optimizer step takes `accumulate` of its batches. It
    gives what the sampler gives, from the first index that was not consumed, and sets the sampler's epoch itself
    (`set_epoch` of this one checks). Such a sampler pads or cuts an epoch to the number of its ranks, so its cursor
    resumes on as many ranks, and on others where an epoch has the same length; `ResumableSampler` does on any.
    """

    def __init__(self, sampler: DistributedSampler[Any], batch_size: int, *, source: str, drop_last: bool = False,
                 accumulate: int = 1, name: str | None = None, augment: Augment = "none",
                 axes: tuple[str, ...] | None = None) -> None:
        n, ranks = len(sampler.dataset), sampler.num_replicas  # type: ignore[arg-type]
        batch = batch_size * ranks * accumulate
        rule, unit, micro = "drop-last" if sampler.drop_last else "pad", ranks, batch_size * ranks
        if drop_last:
            # Padding may complete the last batch.
            rule, unit = ("pad", micro) if sampler.total_size >= n + -n % micro else ("drop-last", micro)
        super().__init__(n, batch, shuffle=sampler.shuffle, seed=sampler.seed, rule=rule, unit=unit, rank=sampler.rank,
                         ranks=ranks, source=source, name=name, augment=augment, axes=axes)
        self._sampler = sampler
        self.generator = torch.Generator().manual_seed(sampler.seed)
        """For the DataLoader."""

    def set_epoch(self, epoch: int) -> None:
        """For loops that say it: raises `bad-argument` for another epoch than the one that comes next."""
        if epoch != self.epoch:
            raise usage(f"the next item is of epoch {self.epoch}, and the loop says {epoch}: expected it to go over "
                        "range(data.epoch, epochs)")

    def check(self, value: dict[str, Any]) -> None:
        """See `CursorSource`."""
        super().check(value)
        if value["position"] % self.ranks and value["position"] != self.items:
            raise error("not-exact", f"{value['position']} items were consumed, which is no multiple of {self.ranks} "
                                     "ranks",
                        remedy="resume with a ResumableSampler")

    def _advice(self, what: str) -> str:
        if what == "epoch_end":
            return ("a DistributedSampler makes an epoch a multiple of its ranks, so it is another epoch here: resume "
                    "on as "
                    "many ranks, or with a ResumableSampler")
        return super()._advice(what)

    def __iter__(self) -> Iterator[int]:
        return self._walk(self._begin())

    def _walk(self, generation: int) -> Iterator[int]:
        epoch, position = self._start(generation)
        self._sampler.set_epoch(epoch)
        indices = list(self._sampler)[: self.items // self.ranks]
        # The canary is of the order as it is recorded.
        few = 4 * self.ranks
        if indices[:4] != self._at(self._order(epoch), self.rank, min(few, self.items), self.ranks):
            raise error("not-exact", f"the sampler gives {indices[:4]} first in epoch {epoch}, which is not the order "
                                     "of a "
                                     "torch.utils.data.DistributedSampler",
                        remedy="save a sampler with an order of its own through an opaque cursor")
        for index in indices[position // self.ranks :]:
            position += self.ranks
            self._given = (epoch, position)
            yield index
            self._still(generation)
        self._used_up = (epoch, self.items)

    def __len__(self) -> int:
        """Indices of a whole epoch for this rank."""
        return self.items // self.ranks


def _rank_of(rank: int | None, ranks: int | None) -> tuple[int, int]:
    if (rank is None) != (ranks is None):
        raise usage("expected rank and ranks, or neither")
    if rank is not None and ranks is not None:
        return rank, ranks
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
