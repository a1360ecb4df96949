"""A storage writer of DCP that writes a checkpoint of Waystation.

A `Writer` stands for one save of a job. It carries texts and numbers only, so DCP may send it to another process, and
what holds files is made where the writing is done. It knows plans, planners and sessions; how things are called is
`naming`'s, which ranks hold what alike `replicas`'.

What happens when: all ranks plan; rank 0 makes the directory; each rank writes its items and its part; rank 0 compares
what the ranks should hold alike, and commits. Before the last there is no checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner import SavePlanner as TorchSavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from .. import _core, dtypes, records
from ..errors import Error, usage
from ..job import Job
from ..key import Key
from ..records import Record
from ..snapshot import Alias, Declared, Omitted, Piece, Snapshot, owner_rank, write
from ..torch import boxes
from ..torch.slots import axes_of
from ..tree import TreeTensors
from ..waiting import commit_file, until
from . import meeting, replicas, values
from .boxes import check_box
from .naming import VALUE_SLOT, Names, Optimizer
from .planner import Assigned, Plan, SavePlanner, WriterMeta

_DIGESTS = "waystation.digests"


@dataclass(frozen=True)
class _Save:
    """Where and as what a save is written."""

    run_path: str
    plan_json: str
    step: int
    counter: int
    name: str
    writer: int
    writers: int
    place: tuple[tuple[str, int], ...]
    threads: int | None
    shard_bytes: int | None
    check: bool

    @property
    def path(self) -> str:
        return os.path.join(self.run_path, self.name)

    @property
    def plan(self) -> _core.SessionPlan:
        return _core.SessionPlan.from_json(self.plan_json)


class Writer(StorageWriter):
    """Writes one save of a job: `dcp.save(state_dict, storage_writer=Writer(job, step), planner=SavePlanner())`.

    All ranks make one alike, for the same step; making it takes the job's next save. `records` and `attachments` are
    stored beside what the state dict holds, by rank 0. `check_replicas=False` does without comparing what ranks should
    hold alike; with `use_collectives=False` tensors alone are compared, for each rank is given its own values back. Of
    what is refused so rank 0 takes its part back, and no later start can commit it. `deadline` is in seconds, for
    waiting on other ranks where DCP does not (`use_collectives=False`).
    `progress` is called as `waystation.save` calls it; one that cannot be pickled cannot go to another process.

    Raises `bad-argument` for `overwrite=True`: a checkpoint is never written over, each save is a directory of its own.
    """

    def __init__(
        self,
        job: Job,
        step: int,
        *,
        records: Sequence[Record] = (),
        attachments: Mapping[str, bytes | os.PathLike[str]] | None = None,
        check_replicas: bool = True,
        deadline: float = 600.0,
        progress: _core.Progress | None = None,
        overwrite: bool = False,
    ) -> None:
        super().__init__()
        if overwrite:
            raise usage(
                "overwrite=True: a checkpoint is never written over",
                remedy="Leave it out: each save is a new directory in the run. waystation.gc removes old ones.",
            )
        reserved = job.reserve(step)
        place = job.coordinate if len(job.coordinate) == len(job.topology) else ()
        self._save = _Save(
            job.run_path,
            job.plan.to_json(),
            step,
            reserved.counter,
            reserved.name,
            job.rank,
            job.size,
            place,
            job.threads,
            job.shard_bytes,
            job.check,
        )
        self._records = tuple(records)
        self._attachments = dict(attachments or {})
        self._check_replicas = check_replicas
        self._deadline = deadline
        self._progress = progress
        self._collective = True
        self._begun = False
        self._part = ""
        """File name of this rank's part, where it is written."""
        self.digest: str | None = None
        """Of the manifest, where this process has committed or seen the commit."""

    @property
    def path(self) -> str:
        """The directory of the checkpoint, from when it is committed on."""
        return self._save.path

    @property
    def checkpoint_id(self) -> str:
        """The directory of the attempt, as DCP calls it."""
        return self._save.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None and os.fspath(checkpoint_id) != self.path:
            raise usage(
                f"checkpoint_id={os.fspath(checkpoint_id)!r}: the directory of a save is named by run, step and job",
                remedy="Leave it out; Writer(job, step).path says where the checkpoint will be.",
            )

    def storage_meta(self) -> StorageMeta:
        return WriterMeta(self.path, self._save.name, rank=self._save.writer, place=self._save.place)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Never: a path alone does not say which job saves."""
        return False

    # DCP gives the rank to a method that has a parameter of just this name.
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._begun:
            raise usage(
                f"this Writer has begun its save of step {self._save.step} already",
                remedy="Make a new Writer(job, step) for each save.",
            )
        self._begun = True
        self._collective = kwargs.get("use_collectives", True)
        rank = kwargs.get("rank", 0)
        if rank != self._save.writer:
            raise usage(
                f"DCP saves as rank {rank}, and the job knows this process as rank {self._save.writer} of "
                f"{self._save.writers}",
                remedy="Start the job with the group that DCP saves in: Job.start(…, group=TorchGroup(process_group)); "
                "with no_dist=True each process has a job of its own.",
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        if self._collective and len(plans) != self._save.writers:
            raise usage(f"DCP saves with {len(plans)} ranks, the job has {self._save.writers}")
        # Here, between the gathering of plans and their way back, no rank writes yet.
        if self._save.writer == 0:
            _core.make_attempt(self._save.run_path, self._save.plan, self._save.step, self._save.counter)
        return plans

    def write_data(self, plan: SavePlan, planner: TorchSavePlanner) -> Future[list[WriteResult]]:
        save = self._save
        if not self._collective and save.writer != 0:
            self._wait_for_directory()
        mine = _Contents(save, plan, planner, self._collective, self._check_replicas)
        if save.writer == 0:
            _common_records(mine.snapshot, save.step, self._records, self._attachments)
        session = _core.Session.begin(
            save.path,
            save.plan,
            save.step,
            save.counter,
            save.writer,
            threads=save.threads,
            shard_bytes=save.shard_bytes,
            check_state=save.check,
        )
        session.producer("waystation.dcp", torch.__version__)
        placed = mine.snapshot.declare(session)
        writing = session.lay_out()
        if self._by_files:
            meeting.say(save.path, save.writer, mine.digests)
        write(writing, placed, threads=save.threads, progress=self._progress)
        self._part = writing.finish()
        results = [WriteResult(item.index, mine.sizes.get(number, 0), None) for number, item in enumerate(plan.items)]
        results.append(WriteResult(MetadataIndex(_DIGESTS), 0, replicas.Digests.of(save.writer, mine.digests)))
        written: Future[list[WriteResult]] = Future()
        written.set_result(results)
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        save = self._save
        if save.writer == 0:
            self._compare(metadata, results)
            self.digest, _ = _core.commit(
                save.path,
                run_path=save.run_path,
                name=save.name,
                deadline=None if self._collective else self._deadline,
                check_state=save.check,
                progress=self._progress,
            )
        else:
            self._wait_for_commit()
        metadata.storage_meta = self.storage_meta()

    @property
    def _by_files(self) -> bool:
        """Whether ranks compare by files what they hold alike."""
        return self._check_replicas and not self._collective and self._save.writers > 1

    def _compare(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        path = self._save.path
        found: list[Any] = [result.storage_data for of_rank in results for result in of_rank]
        places: Iterable[replicas.Place] = ()
        if self._by_files:
            found[:], places = meeting.hear(path, self._save.writers, self._deadline, self._progress)
        try:
            replicas.compare(
                (one for one in found if isinstance(one, replicas.Digests)), lambda: places or _places(metadata)
            )
        except Error as why:
            # All parts are there: whoever starts from here would else commit what was refused.
            meeting.take_back(path, self._part)
            if self._by_files:
                meeting.refuse(path, why)
            raise
        if self._by_files:
            meeting.clear(path, self._save.writers)

    def __getstate__(self) -> dict[str, Any]:
        # Another process has its own bar, if any.
        return {**self.__dict__, "_progress": None}

    def _wait_for_directory(self) -> None:
        path = self._save.path
        if until(lambda: os.path.isdir(path) or None, self._deadline, "waiting for rank 0", self._progress) is None:
            raise usage(
                f"rank {self._save.writer} expected rank 0 to make {path} within {self._deadline:g} s", "not-found"
            )

    def _wait_for_commit(self) -> None:
        path = self._save.path

        def committed() -> str | None:
            refused = meeting.refused(path)
            if refused is not None:
                raise refused
            return commit_file(path)

        self.digest = until(committed, 2 * self._deadline, "waiting for the commit", self._progress)
        if self.digest is None:
            raise usage(
                f"rank {self._save.writer} wrote its part of {path}; rank 0 did not commit it within "
                f"{2 * self._deadline:g} s",
                "not-committed",
            )


class _Contents:
    """What one rank writes, made of its plan."""

    def __init__(self, save: _Save, plan: SavePlan, planner: TorchSavePlanner, collective: bool, compare: bool) -> None:
        self.save, self.planner, self.collective = save, planner, collective
        self.ours = planner if isinstance(planner, SavePlanner) else None
        self.state_dict: Mapping[str, Any] = getattr(planner, "state_dict", {})
        self.names = self._names(plan)
        self.assigned = self._assigned(plan)
        self.snapshot = Snapshot()
        self.values = values.Values()
        self.sizes: dict[int, int] = {}
        """number of the item in the plan -> bytes written"""
        self.digests: dict[replicas.Place, int] = {}
        self._ties = dict(self.assigned.ties)
        self._taken: dict[Key, str] = {}
        self._counted: set[str] = set()
        self._plain_trees: dict[str, Any] = {}
        self._params = self._param_shapes()
        for one in self.names.optimizers:
            self._optimizer(one)
        for number, item in enumerate(plan.items):
            if item.type == WriteItemType.BYTE_IO:
                self._value(item)
            else:
                self._tensor(number, item)
        self._finish(compare)

    def _names(self, plan: SavePlan) -> Names:
        if self.ours is not None:
            return self.ours.names
        paths = getattr(self.planner, "mappings", None) or plan.planner_data or {}
        keys = self.state_dict or {item.index.fqn: None for item in plan.items}
        names = Names(keys, paths)
        # Whether ranks have the same optimizers is for SavePlanner to find out; without it they are only tensors.
        return names.without_optimizers()

    def _assigned(self, plan: SavePlan) -> Assigned:
        if isinstance(plan, Plan) and plan.assigned is not None:
            found = plan.assigned
            if not self.collective and self.save.place:
                # Nobody has compared the ranks: each says its own, for its own place.
                owners = frozenset(one.owner for one in self.names.optimizers)
                return Assigned(frozenset(), owners, found.ties, found.omitted)
            return found
        if self.names.optimizers:
            # What an optimizer's record holds is left out elsewhere: nobody would write it.
            raise usage(
                "the plan does not say who writes the records of optimizers",
                remedy="Let planners that derive from waystation.dcp.SavePlanner keep the plans that it makes, "
                "dataclasses.replace(plan, items=…).",
            )
        return Assigned()

    def _param_shapes(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """(component, name) -> global shape, of the parameters that an optimizer has state for."""
        if not self.names.optimizers:
            return {}
        tensors = (
            (self.names.key(key), value) for key, value in self.state_dict.items() if isinstance(value, torch.Tensor)
        )
        return {(key.component, key.name): tuple(value.shape) for key, value in tensors if key.role == "param"}

    def _lookup(self, key: str) -> object:
        return self.state_dict[key]

    def _optimizer(self, one: Optimizer) -> None:
        """Writes the record of an optimizer if that is this rank's, and notes what stands there."""
        covered = [
            at for group in one.groups for _, at in group.hyper if not isinstance(self._lookup(at), torch.Tensor)
        ]
        if one.form == "nested":
            covered += [key for key in self._param_lists(one)]
        steps = []
        for param, key in one.steps:
            counted = _count(self._lookup(key))
            if counted is not None:
                steps.append((param, *counted))
                covered.append(key)
        self._counted |= set(covered)
        here = one.owner in self.assigned.placed
        if one.owner not in self.assigned.records and not here:
            return
        algorithm = None if self.ours is None else self.ours.algorithms.get(one.owner)
        self.snapshot.records.append(
            values.optimizer_record(
                one,
                self.state_dict,
                steps,
                algorithm=algorithm,
                coordinate=self.save.place if here else (),
                tensor_key=lambda at: self.names.key(at) if isinstance(self._lookup(at), torch.Tensor) else None,
            )
        )
        self.values.optimizers[one.owner] = (one.form, one.prefix)

    def _param_lists(self, one: Optimizer) -> list[str]:
        depth = len(one.prefix)
        return [
            key
            for key in self.state_dict
            if (path := self.names.path(key))[:depth] == one.prefix
            and path[depth : depth + 1] == ("param_groups",)
            and path[-1] == "params"
            and len(path) == depth + 3
        ]

    def _value(self, item: WriteItem) -> None:
        key = item.index.fqn
        if key in self._counted:
            return
        own = None if self.ours is None else self.ours.own.get(key)
        into = self.values.shared if own is None else self.values.own
        put = TreeTensors(f"{values.PREFIX}{self.save.writer}/{key}", slot=VALUE_SLOT)
        lookup = getattr(self.planner, "lookup_object", None)
        if lookup is None:
            raise usage(
                f"the value of {key!r} cannot be had from {type(self.planner).__name__} but as a pickle, which is "
                f"never stored",
                remedy="Derive the planner from waystation.dcp.SavePlanner.",
            )
        found = values.to_tree(own or key, lookup(item.index), put)
        into[own or key] = (self.names.path(key), found)
        if not put.pieces:
            self._plain_trees[key] = found
        self.snapshot.pieces += put.pieces

    def _tensor(self, number: int, item: WriteItem) -> None:
        key, data = item.index.fqn, item.tensor_data
        assert data is not None
        if key in self._counted:
            return
        found = self.planner.resolve_data(item)
        if not isinstance(found, torch.Tensor):
            raise usage(f"the planner gives {type(found).__name__} for the tensor {key!r}")
        if isinstance(found, DTensor):
            found = found.to_local()
        whole = self.state_dict.get(key)
        if isinstance(whole, torch.Tensor):
            check_box(whole, data.chunk.offsets, data.chunk.sizes, repr(key))
        if tuple(found.shape) != tuple(data.chunk.sizes):
            raise usage(f"{key!r}: the planner says a box of {list(data.chunk.sizes)} and gives {list(found.shape)}")
        identity = self._identity(key)
        if key in self._ties:
            self.snapshot.aliases.append(
                Alias(
                    identity.component,
                    identity.role,
                    identity.name,
                    self._identity(self._ties[key]),
                    self.names.native(key),
                )
            )
            return
        try:
            dtype, scale = _element(found)
            declared = Declared(
                identity, dtype, _scaled(data.size, scale), self._axes(identity, data.size), self.names.native(key)
            )
            if not found.numel() or not self._is_mine(key, identity):
                # Shown all the same: of a tensor without elements, or whose writer fails, nothing would be known.
                self.snapshot.declared.append(declared)
                return
            piece = Piece(
                identity,
                dtype,
                declared.shape,
                _scaled(data.chunk.offsets, scale),
                _scaled(data.chunk.sizes, scale),
                found.detach(),
                declared.axes,
                declared.native,
            )
            boxes.plain(found, "it")
        except Error as why:
            raise usage(
                f"the tensor {key!r} cannot be stored: {why.message}", why.code, tensor=identity.text, remedy=why.remedy
            ) from why
        self.snapshot.pieces.append(piece)
        self.sizes[number] = piece.nbytes

    def _identity(self, key: str) -> Key:
        identity = self.names.key(key)
        taken = self._taken.setdefault(identity, key)
        if taken != key:
            raise usage(
                f"{taken!r} and {key!r} would both be {identity.text}",
                tensor=identity.text,
                remedy="Give SavePlanner(naming=…) that tells them apart.",
            )
        return identity

    def _axes(self, identity: Key, shape: Sequence[int]) -> tuple[int | None, ...] | None:
        """Which axes of its parameter those of an optimizer's slot follow."""
        param = self._params.get((identity.component, identity.name)) if identity.role == "optimizer" else None
        return None if param is None else axes_of(shape, param)

    def _is_mine(self, key: str, identity: Key) -> bool:
        """Whether this rank writes its copy; with collectives DCP has left only one of each in the plans."""
        if self.collective or (self.ours is not None and key in self.ours.own):
            return True
        tensor = self.state_dict.get(key)
        first = self.ours is not None and self.ours.taken_as_it_is(key)
        if isinstance(tensor, DTensor):
            holding = boxes.replicas(tensor, boxes.Ranks(self.save.writer, self.save.writers), repr(key))
            return (min(holding) if first else owner_rank(identity, holding)) == self.save.writer
        return (0 if first else owner_rank(identity, range(self.save.writers))) == self.save.writer

    def _finish(self, compare: bool) -> None:
        save = self.save
        if any(isinstance(self._lookup(key), torch.Tensor) for key in (self.ours.own if self.ours else ())):
            self.values.place = save.place
        record = self.values.record(save.writer)
        if record is not None:
            self.snapshot.records.append(record)
        by_component: dict[str, list[str]] = {}
        for component, name in self.assigned.omitted:
            by_component.setdefault(component, []).append(name)
        self.snapshot.omitted += [
            Omitted(component, tuple(names), "other") for component, names in by_component.items()
        ]
        if compare and save.writers > 1:
            self.digests = self._digests()

    def _digests(self) -> dict[replicas.Place, int]:
        tensors: list[tuple[replicas.Place, torch.Tensor]] = []
        found: dict[replicas.Place, int] = {}
        for key, value in self.state_dict.items():
            if self.ours is not None and (key in self.ours.own or self.ours.taken_as_it_is(key)):
                continue
            if isinstance(value, DTensor):
                if value.device_mesh.get_coordinate() is not None and replicas.is_shared(value, self.save.writers):
                    start = value.__create_chunk_list__()[0].offsets  # type: ignore[no-untyped-call]
                    tensors.append(((key, tuple(start)), value.to_local()))
            elif isinstance(value, torch.Tensor):
                tensors.append(((key, ()), value))
            elif self.collective:  # otherwise each rank's own is stored
                plain = replicas.of_value(value)
                found[key, ()] = replicas.of_tree(self._tree(key, value)) if plain is None else plain
        return {**found, **replicas.of_tensors(tensors)}

    def _tree(self, key: str, value: object) -> Any:
        """The tree of a value, in which tensors stand by their digests: their names are each rank's own."""
        if key in self._plain_trees:
            return self._plain_trees[key]
        put = TreeTensors(key)
        found = values.to_tree(key, value, put)
        return {"list": [found, *(replicas.of_array(piece.data) for piece in put.pieces)]} if put.pieces else found


def _places(metadata: Metadata) -> Iterator[replicas.Place]:
    """All that a checkpoint has, as ranks know it."""
    for key, of in metadata.state_dict_metadata.items():
        yield key, ()
        if isinstance(of, TensorStorageMetadata):
            yield from ((key, tuple(chunk.offsets)) for chunk in of.chunks)


def _common_records(
    snapshot: Snapshot, step: int, given: Sequence[Record], attachments: Mapping[str, bytes | os.PathLike[str]]
) -> None:
    """What holds for all ranks and stands once."""
    snapshot.records += given
    kinds = {record.kind for record in given}
    if "progress" not in kinds:
        snapshot.records.append(records.progress(step))
    told = {record.value.get("kind") for record in given if record.kind == "uncaptured"}
    for kind, what in (("rng", "random streams"), ("cursor", "places in the data")):
        if kind not in kinds and kind not in told:
            # A stream that is missing without a word would be taken for one that was never there.
            snapshot.records.append(
                records.uncaptured(
                    f"torch.dcp/{kind}",
                    kind,
                    f"a state dict of torch.distributed.checkpoint does not say which of its members are {what}",
                )
            )
    snapshot.attachments.update(attachments)


def _element(tensor: torch.Tensor) -> tuple[str, int]:
    """Element type, and elements of it in one of PyTorch's along the last axis."""
    dtype = dtypes.of_torch(tensor.dtype)
    return dtype, dtypes.per_element(dtype)


def _scaled(numbers: Sequence[int], scale: int) -> tuple[int, ...]:
    whole = tuple(int(number) for number in numbers)
    return whole if scale == 1 or not whole else (*whole[:-1], whole[-1] * scale)


def _count(value: object) -> tuple[int, str] | None:
    """(count, stored as) of a step count; None for what is none."""
    if type(value) is int:
        return (value, "int") if 0 <= value < 2**53 else None
    if not isinstance(value, torch.Tensor) or isinstance(value, DTensor) or value.dim() or value.is_complex():
        return None
    number = value.item()
    if isinstance(number, bool) or number != number or not 0 <= number < 2**53 or int(number) != number:
        return None
    if number == 0 and str(number).startswith("-"):
        return None
    return int(number), f"{dtypes.of_torch(value.dtype)}[]"
