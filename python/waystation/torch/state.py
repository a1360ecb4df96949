"""All that a PyTorch trainer needs to go on, as one thing that is captured and restored.

It knows the parts of a training state, in which order they are put back, and that all is compared before anything is
touched. What each part is made of is the business of its module; when to save, and where, is the manager's and the
job's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .._opening import checkpoint_of
from ..errors import Error, error, usage
from ..run import verify
from ..snapshot import Snapshot
from . import ema as averages
from . import model as modules
from . import optimizer as optimization
from . import optimizer_load, parts, placing, replicas
from . import scaler as scaling
from . import scheduler as scheduling
from .boxes import Held, Ranks, Scope
from .counters import Progress
from .data import CursorSource, ResumableSampler
from .group import Place, place as place_here
from .loading import Pending
from .names import names_of
from .parts import Named
from .report import Line, Report
from .rng import Streams
from .stored import Stored, Values

if TYPE_CHECKING:
    from .. import _core
    from ..checkpoint import Checkpoint
    from ..job import Job
    from ..manager import CheckpointManager

__all__ = ["TrainingState"]

_TORN = ("What was being restored is now part old and part new: do not train with it, restore another checkpoint, or "
         "this one once it is repaired.")
_REFUSED = "refused the checkpoint with", "Nothing was touched on any rank. Do there what its own error says."
_BROKE_OFF = "broke off while it restored the checkpoint with", _TORN



class TrainingState:
    """The whole state of a training, captured at the end of an optimizer step and restored before the next.

    model         a module, or several by component, `{"main": generator, "critic": critic}`
    optimizers, schedulers, scaler, ema
                  one, or several by name; an optimizer's name is the owner of its tensors; of an average that cannot
                  say its decay `(average, decay)`, and of several models the name of its component
    data          by name, what says where training stands in it: `ResumableSampler`, `DistributedSamplerCursor`,
                  `StatefulLoaderCursor`
    rng           True for Python's, NumPy's and PyTorch's generators; see `waystation.torch.rng.Streams`
    progress      counters; `Progress()` as given
    masters       parameter to the tensor of higher precision that an optimizer updates
    values        by name, anything else with `state_dict()` and `load_state_dict()`, the same on all ranks, its tensors
                  too
    place         where this process stands, `waystation.torch.place(mesh)`; as given, one axis "dp" of all ranks, or
                  one process. The manager or job that saves must have the same topology
    per_rank      names of parameters and buffers that differ between ranks though they share a name. All other plain
                  tensors are the same on all ranks, and are written once; `DTensor`s say themselves what they are
    first_rank    names of parameters and buffers that may differ between ranks and of which the lowest rank's are
                  meant, for all: BatchNorm's running statistics under `DistributedDataParallel`, which takes rank 0's
    check_replicas
                  compare what several ranks hold before one of them writes it: each rank computes a checksum of all
                  its shared tensors, those of a device copied to the host for it, and one all_gather takes 16 bytes of
                  each. Streams and other records are always compared

    Gradients are not part of a state: capture it after `optimizer.step()`, not within an accumulation.
    """

    def __init__(self, model: nn.Module | Mapping[str, nn.Module], optimizers: Named[torch.optim.Optimizer] = None, *,
                 schedulers: Named[Any] = None, scaler: Named[Any] = None, ema: Named[Any] = None,
                 data: Mapping[str, CursorSource] | None = None, rng: bool | Mapping[str, object] = True,
                 progress: Progress | None = None, masters: Mapping[torch.Tensor, torch.Tensor] | None = None,
                 values: Mapping[str, Any] | None = None, place: Place | None = None, per_rank: Iterable[str] = (),
                 first_rank: Iterable[str] = (), check_replicas: bool = True) -> None:
        self.models = parts.models(model)
        self.optimizers = parts.optimizers(optimizers)
        self.schedulers = parts.stateful("schedulers", schedulers)
        self.scalers = parts.stateful("scaler", scaler)
        self.averages = parts.averages(ema)
        self.data = parts.named("data", data, "capture", "offer", "check", "put", "step")
        self.progress = Progress() if progress is None else progress
        self.masters = masters
        self.values = parts.named("values", values, "state_dict", "load_state_dict")
        self.place = place_here() if place is None else place
        self.streams = Streams(rng, self.place)
        self.check_replicas = check_replicas
        self._per_rank, self._first_rank = self._named(per_rank=per_rank, first_rank=first_rank)
        if self._per_rank & self._first_rank:
            raise usage(f"per_rank and first_rank both name {sorted(self._per_rank & self._first_rank)}")
        for name in self.values:
            if name.startswith("torch."):
                raise usage(f"values have names of their own, and {name!r} begins as those of this package do")

    def _named(self, **said: Iterable[str]) -> Iterator[frozenset[str]]:
        """The names under which what is said is kept: that of a tied parameter is the first of its names."""
        target: dict[str, set[str]] = {}
        for model in self.models.values():
            for each in names_of(model).tensors:
                target.setdefault(each.name, set()).add(each.target)
        for option, names in said.items():
            if isinstance(names, str):
                raise usage(f"{option} takes a sequence of names, found the text {names!r}")
            names = set(names)
            unknown = names - target.keys()
            if unknown:
                raise usage(f"{option} names {sorted(unknown)}, which no parameter or buffer is called")
            yield frozenset(kept for name in names for kept in target[name])

    def __repr__(self) -> str:
        said = [f"{what} {', '.join(names)}" for what, names in (
            ("models", self.models), ("optimizers", self.optimizers), ("schedulers", self.schedulers),
            ("scalers", self.scalers), ("averages", self.averages), ("data", self.data), ("values", self.values),
            ("streams", self.streams.names)) if names]
        return f"<TrainingState at step {self.progress.optimizer_step}: {'; '.join(said)}>"

    # Counting.

    def step(self, *, samples: int | None = None, tokens: int = 0, skipped: bool = False,
             data: Iterable[str] | None = None) -> None:
        """Counts an optimizer step that is complete, and what it consumed.

        `data` are the names of what it consumed a batch of; as given the one there is. `samples` are as given the items
        of these. A step that the loss scaler `skipped` consumed its data too.
        """
        if data is None:
            if len(self.data) > 1:
                raise usage(f"expected data=(name, …): of {sorted(self.data)} any may have been consumed")
            data = self.data
        items = 0
        for name in data:
            if name not in self.data:
                raise usage(f"expected one of the data {sorted(self.data)}, found {name!r}")
            items += self.data[name].step()
            epoch = getattr(self.data[name], "epoch", None)
            if self.progress.epoch is not None and epoch is not None:
                self.progress.epoch = epoch
        self.progress.step(samples=items if samples is None else samples, tokens=tokens, skipped=skipped)

    # Capturing.

    def snapshot(self, step: int | None = None) -> Snapshot:
        """What this rank writes of the state as it is now. Tensors are views: they are staged or written before they
        change.

        In a job of several ranks all call it together: it compares what they share by one all_gather, and raises
        `state-disagree` on all of them where that differs, or where some of them have not got what all should have.
        Raises `bad-argument` for a `step` other than that of the progress, and for what cannot be held without loss;
        where one rank raises, the others do, with what it says.
        """
        return self._snapshot(step, self.place.topology)

    def _snapshot(self, step: int | None, topology: Sequence[tuple[str, int]]) -> Snapshot:
        group = self.place.group
        held: list[Held] | None = [] if self.check_replicas and group.size > 1 else None
        try:
            if tuple(topology) != self.place.topology:
                raise usage(f"the state is of a job with the topology {self.place.topology}, and what saves it has "
                            f"{topology}: expected topology=place.topology there, or place=… here")
            if step is not None and step != self.progress.optimizer_step:
                raise usage(f"step {step} is to be saved, and {self.progress.optimizer_step} optimizer steps were "
                            "counted: expected state.step() after each, and their number as the step")
            snapshot = self._capture(self._ranks(held))
            whole = len(self.place.topology)
            told = replicas.tell(held or (), (record for record in snapshot.records if len(record.coordinate) < whole))
        except BaseException as why:
            # Whatever it is: the others wait for a word of this rank.
            if group.size > 1:
                group.all_gather(replicas.refuse(why))
            raise
        replicas.compare(group, told)
        return snapshot

    def save(self, target: Job | CheckpointManager, step: int | None = None, **more: Any) -> Any:
        """Captures and saves: with a `Job` at once, with a `CheckpointManager` as that does. `step` is the
        progress's."""
        from ..job import Job

        number = self.progress.optimizer_step if step is None else step

        def taken(job: Job) -> Snapshot:
            return self._snapshot(number, job.topology)

        if isinstance(target, Job):
            return target.save(taken(target), number, **more)
        return target.save(number, lambda: taken(target.job), **more)

    def _ranks(self, held: list[Held] | None = None) -> Ranks:
        group = self.place.group
        return Ranks(group.rank, group.size, scope=self._scope, first=self._first_rank, held=held)

    def _scope(self, name: str) -> Scope:
        return self.place.coordinate if name in self._per_rank else ()

    def _capture(self, ranks: Ranks) -> Snapshot:
        snapshot = self._tensors(ranks)
        values = Values(snapshot, ranks)
        for name, live in self.values.items():
            values.record(name, live.state_dict())
        snapshot.records.append(self.progress.record())
        for name, source in self.data.items():
            records, pieces = source.capture(name, self.place)
            snapshot.records += records
            snapshot.pieces += pieces
        snapshot.records += self.streams.capture()
        return snapshot

    def _tensors(self, ranks: Ranks) -> Snapshot:
        snapshot = Snapshot()
        for component, model in self.models.items():
            snapshot.merge(modules.capture(model, component=component, ranks=ranks))
        for name, optimizer in self.optimizers.items():
            snapshot.merge(optimization.capture(optimizer, self.models, name=name, ranks=ranks,
                                               masters=self._masters_of(optimizer)))
        for name, (average, decay) in self.averages.items():
            snapshot.merge(averages.capture(average, name=name, component=self._averaged(name), ranks=ranks,
                                            decay=decay))
        for name, scheduler in self.schedulers.items():
            snapshot.merge(scheduling.capture(scheduler, name=name, ranks=ranks))
        for name, scaler in self.scalers.items():
            snapshot.merge(scaling.capture(scaler, name=name))
        return snapshot

    def _masters_of(self, optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, torch.Tensor] | None:
        """Of the masters those that this optimizer updates; None where there are none."""
        own = {id(each) for group in optimizer.param_groups for each in group["params"]}
        found = {each: master for each, master in (self.masters or {}).items() if {id(each), id(master)} & own}
        return found or None

    def _averaged(self, name: str) -> str:
        """The component that an average is one of: that of its name, where there are several."""
        return name if name in self.models else "main"

    # Restoring.

    def appraise(self, ckpt: Checkpoint | str | os.PathLike[str], *, streams: str = "exact", cursors: str = "exact",
                 leave_out: Iterable[str] = ()) -> Report:
        """How well each part would be restored, and what stands against it; nothing is refused, nothing touched."""
        out, ckpt = frozenset(leave_out), checkpoint_of(ckpt)
        said, placed = self._placed(ckpt, streams, cursors, out)
        pending = self._plan(Stored.of(ckpt), said)
        pending.report.extend(placed.lines)
        pending.hold_shared(ckpt)
        return pending.report

    def restore(self, ckpt: Checkpoint | str | os.PathLike[str], *, streams: str = "exact", cursors: str = "exact",
                leave_out: Iterable[str] = (), strict: bool = True, iterators: Callable[[], object] | None = None,
                progress: _core.Progress | None = None, verify_first: bool = False) -> Report:
        """Puts all of a checkpoint back into the live objects, to the bit, and says of each part how well. A path of
        one is opened here.

        `streams` and `cursors` are the worst grades that are put up with (19.1): "fork" for streams of a job of another
        shape, "opaque-same-topology" for loaders whose state only they understand, "none" to go on without. `leave_out`
        are streams and cursors, by name, to go on without. Without `strict`, tensors and records that only one side has
        are listed and passed over.

        Everything is compared before anything is touched: what stands against it raises `not-exact` (`source-changed`
        for other data, `canary-mismatch` and what reading the checkpoint answers), and leaves all as it was. Tensors
        are then read into the live ones, and each block of their data is held against its checksum meanwhile: damage,
        or a disk that fails, leaves a state that is part old and part new, and so does an exception of a
        `load_state_dict`, `set_extra_state`, `put` or `iterators` of your own, which comes as `not-exact` with it as
        the cause. The error says so: restore another checkpoint before going on. `verify_first` reads the whole
        checkpoint once before anything is touched, so that damage leaves all as it was; rank 0 does, while the others
        wait.

        The order is that of 19.2, random streams last. `iterators` is called before these: a loader whose iterator
        draws from them makes it there. In a job of several ranks all call it together: two all_gathers, one before
        anything is touched and one at the end, and where one rank fails, all do.
        """
        out = frozenset(leave_out)
        group = self.place.group
        try:
            ckpt = checkpoint_of(ckpt)
            said, placed = self._placed(ckpt, streams, cursors, out)
            placed.raise_if_bad(said)
            pending = self._plan(Stored.of(ckpt), said)
            pending.report.extend(placed.lines)
            pending.hold_shared(ckpt)
            pending.report.raise_if_bad(strict)
            if verify_first and group.rank == 0:
                verify(ckpt.path).raise_if_bad()
        except BaseException as why:
            replicas.agree(group, why, *_REFUSED)
            raise
        replicas.agree(group, None, *_REFUSED)
        try:
            pending.run(ckpt, strict=strict, progress=progress)
            if said["progress"] is not None:
                self.progress.put(said["progress"])
            for name, value in placed.cursors.items():
                self.data[name].put(value, ckpt.tensor)
            if iterators is not None:
                iterators()
            self.streams.put(placed.streams, placed.natives)
        except BaseException as why:
            if isinstance(why, Error):
                why.remedy = f"{_TORN} {why.remedy}".rstrip()
            replicas.agree(group, why, *_BROKE_OFF)
            if isinstance(why, Exception) and not isinstance(why, Error):
                # Of code that is not this package's: a `load_state_dict`, a `set_extra_state`, a loader.
                raise error("not-exact", f"restoring the checkpoint broke off with {type(why).__name__}: {why}",
                            remedy=_TORN) from why
            raise
        replicas.agree(group, None, *_BROKE_OFF)
        self._watch(placed.natives)
        return pending.report

    def _placed(self, ckpt: Checkpoint, streams: str, cursors: str,
                out: frozenset[str]) -> tuple[dict[str, Any], placing.Placed]:
        said = placing.answer(ckpt, self.place, self.streams, self.data, streams, cursors, out)
        return said, placing.hold(said, self.streams, self.data, (streams, cursors), out)

    def _plan(self, stored: Stored, said: dict[str, Any]) -> Pending:
        """In the order of 19.2."""
        ranks, pending = self._ranks(), Pending()
        for component, model in self.models.items():
            pending.merge(modules.plan(stored, model, component=component, ranks=ranks))
        for name, optimizer in self.optimizers.items():
            pending.merge(optimizer_load.plan(stored, optimizer, self.models, name=name, ranks=ranks,
                                              record=said["optimizers"].get(name),
                                              masters=self._masters_of(optimizer)))
        for name, (average, decay) in self.averages.items():
            pending.merge(averages.plan(stored, average, name=name, component=self._averaged(name), ranks=ranks,
                                        decay=decay))
        for name, scheduler in self.schedulers.items():
            pending.merge(scheduling.plan(stored, scheduler, name=name, orders=pending.orders))
        for name, scaler in self.scalers.items():
            pending.merge(scaling.plan(stored, scaler, name=name))
        pending.report.extend(self._not_here(said))
        for name, live in self.values.items():
            if stored.record("value", name) is None:
                pending.report.add("value", name, "none", "not in the checkpoint", "missing")
                continue
            pending.report.add("value", name)
            pending.finish.append(partial(live.load_state_dict, stored.ckpt.value(name)))
        if said["progress"] is None:
            pending.report.add("progress", "main", "none", "not in the checkpoint", "missing")
        else:
            pending.report.add("progress", "main")
        return pending

    def _not_here(self, said: dict[str, Any]) -> Iterator[Line]:
        """Records that nothing here takes."""
        here: dict[str, Mapping[str, Any]] = {
            "optimizer": self.optimizers, "ema": self.averages, "schedule": self.schedulers, "scaler": self.scalers}
        for graded in said["report"]:
            kind, name = graded["kind"], graded["name"]
            if kind in here and name not in here[kind]:
                yield Line(kind, name, "none", "in the checkpoint, not here", "unexpected")
            elif kind == "value" and not name.startswith("torch.") and name not in self.values:
                yield Line(kind, name, "none", "nothing here takes it")
            elif kind not in here and kind not in ("value", "progress", "rng", "cursor", "uncaptured"):
                yield Line(kind, name, "none", "a kind of record that is not known here")

    def _watch(self, natives: Mapping[str, bytes]) -> None:
        """Sees to it that nothing draws from PyTorch's generator between here and the first batch, in mid-epoch."""
        if "torch" not in natives:
            return
        for name, source in self.data.items():
            if getattr(source, "position", 0) and hasattr(source, "when_begun"):
                source.when_begun = partial(self._untouched, natives["torch"], name)

    def _untouched(self, native: bytes, name: str) -> None:
        if not self.streams.is_as("torch", native):
            raise error("not-exact", f"PyTorch's generator was drawn from between restore() and the first batch of "
                                     f"{name!r}, "
                                     "which in a run that was not interrupted nothing did in the middle of an epoch",
                        rule="restore.order", remedy="A DataLoader draws when it is iterated over: give it a "
                                                     "generator of its "
                        "own, generator=data.generator; or draw what you draw before restore(), or in iterators=….")
