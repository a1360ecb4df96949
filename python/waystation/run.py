"""A run, and the checkpoints in it: what is there, what to resume from, what may go; and whole checkpoints as such.

Thin over the native half: each function is one operation of the program `waystation`, with its answer typed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _core
from ._opening import refuse_run
from .errors import Error, UsageError, from_parts
from .progress import Progress, reporting

if TYPE_CHECKING:
    from .checkpoint import Attachment
    from .records import Coordinate
    from .snapshot import Omitted

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Skipped:
    """An attempt that is newer than the one taken, and why it was not."""

    name: str
    error: Error


@dataclass(frozen=True)
class Latest:
    """The checkpoint to resume from: newest timeline, then newest step. Where a path is expected, it is `path`."""

    path: str
    name: str
    step: int
    attempt: str
    digest: str
    skipped: tuple[Skipped, ...]

    def __fspath__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Listed:
    """One attempt of a run. `state` is `complete`, `uncommitted`, `damaged` or what else `waystation list` says.

    `nbytes` and `digest` are known of complete ones, `error` says what is wrong with damaged ones, `rejected` is the
    reason why it is not to be resumed from.
    """

    name: str
    path: str
    step: int
    attempt: str
    timeline: int
    state: str
    nbytes: int | None
    digest: str | None
    error: Error | None
    rejected: str | None
    pins: tuple[str, ...]

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<Listed {self}>"

    def __str__(self) -> str:
        said = [f"{self.name}: step {self.step}, {self.state}"]
        said += [] if self.nbytes is None else [f"{self.nbytes} bytes"]
        said += [] if self.error is None else [self.error.code]
        said += [] if self.rejected is None else [f"rejected: {self.rejected}"]
        said += [f"pinned: {' '.join(self.pins)}"] if self.pins else []
        return ", ".join(said)


@dataclass(frozen=True)
class Fate:
    """What became, or with `dry_run` would become, of one attempt, and why.

    `fate` is `kept`, `removed`, `left` (no checkpoint any more, but a directory was found in it, which stays), or
    `failed`: `error` says why it could not be removed, and the next `gc` goes on with it.
    """

    name: str
    fate: str
    why: str
    error: Error | None


@dataclass(frozen=True)
class Finding:
    """A breach of a rule of the specification, and its place."""

    code: str
    class_: str
    message: str
    remedy: str
    rule: str | None
    file: str | None
    offset: int | None
    pointer: str | None
    record: str | None
    tensor: str | None

    @property
    def error(self) -> Error:
        """As an exception."""
        return from_parts(
            self.code,
            self.class_,
            self.message,
            self.remedy,
            self.file,
            self.offset,
            self.pointer,
            self.record,
            self.tensor,
            self.rule,
        )

    def __str__(self) -> str:
        return str(self.error)


@dataclass(frozen=True)
class Report:
    """What a check of a whole checkpoint found. `notes` are no breaches: markers, files that nothing names."""

    path: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    quick: bool
    """True where no tensor data was read."""

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.findings

    def raise_if_bad(self) -> None:
        """Raises the first breach, which says how many others there are."""
        if self.findings:
            why = self.findings[0].error
            if len(self.findings) > 1:
                why = why.with_message(f"{why.message}; and {len(self.findings) - 1} more")
            raise why

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        head = f"{self.path}: {'ok' if self.ok else f'{len(self.findings)} breaches'}"
        return "\n".join(
            [
                head + (" (tensor data was not read)" if self.quick else ""),
                *map(str, self.findings),
                *(f"note: {note}" for note in self.notes),
            ]
        )


@dataclass(frozen=True)
class Committed:
    """An attempt that is a checkpoint now. `already`: it was one before."""

    path: str
    digest: str
    already: bool


@dataclass(frozen=True)
class Exported:
    """Plain safetensors files of a checkpoint. `tied` are the names left out for those that have their data."""

    path: str
    nbytes: int
    files: int
    attachments: int
    tied: dict[str, str]


@dataclass(frozen=True)
class Imported:
    """A checkpoint made of plain safetensors files. `skipped` are files of the source that it does not have."""

    path: str
    digest: str
    step: int
    writers: int
    tensors: int
    nbytes: int
    attachments: tuple[str, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Contents:
    """The tensors of one component, role and element type."""

    component: str
    role: str
    dtype: str
    tensors: int
    nbytes: int


@dataclass(frozen=True)
class Inspection:
    """What a checkpoint is and holds. `records` are kind, name and coordinate."""

    path: str
    run: str
    step: int
    attempt: str
    timeline: int
    digest: str
    parent: str | None
    writers: int
    block_bytes: int
    topology: Coordinate
    contents: tuple[Contents, ...]
    aliases: int
    records: tuple[tuple[str, str, Coordinate], ...]
    attachments: tuple[Attachment, ...]
    omitted: tuple[Omitted, ...]

    @property
    def tensors(self) -> int:
        """Number of tensors; aliases are none."""
        return sum(of.tensors for of in self.contents)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(of.nbytes for of in self.contents)

    def by_role(self) -> dict[str, int]:
        """Bytes of each role."""
        return _summed((of.role, of.nbytes) for of in self.contents)

    def by_dtype(self) -> dict[str, int]:
        """Bytes of each element type."""
        return _summed((of.dtype, of.nbytes) for of in self.contents)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        axes = " ".join(f"{axis}={size}" for axis, size in self.topology)
        lines = [
            f"{self.path}: run {self.run}, step {self.step}, {self.writers} writers{f', {axes}' if axes else ''}",
            f"  digest {self.digest}",
        ]
        if self.parent is not None:
            lines.append(f"  parent {self.parent}")
        lines += [
            f"  {of.component} {of.role} {of.dtype}: {of.tensors} tensors, {of.nbytes} bytes" for of in self.contents
        ]
        lines.append(f"  {self.aliases} aliases, {len(self.records)} records, {len(self.attachments)} attachments")
        return "\n".join(lines)


def latest(run: PathLike) -> Latest:
    """The checkpoint to resume from.

    Raises `no-checkpoint` where nothing was ever committed in the run, which is a fresh start; `none-resumable` where
    all that was is damaged or rejected, which is none; and what the storage fails with.
    """
    found = json.loads(_core.latest_json(os.fspath(run)))
    skipped = tuple(Skipped(one["name"], _error(one["error"])) for one in found["skipped"])
    return Latest(found["path"], found["name"], found["step"], found["attempt"], found["digest"], skipped)


def list_checkpoints(run: PathLike) -> list[Listed]:
    """All attempts of a run, complete or not, from the oldest on."""
    where = os.fspath(run)
    return [
        Listed(
            one["name"],
            os.path.join(where, one["name"]),
            one["step"],
            one["attempt"],
            one["timeline"],
            one["state"],
            one.get("bytes"),
            one.get("digest"),
            _error_or_none(one.get("error")),
            one["rejected"],
            tuple(one["pins"]),
        )
        for one in json.loads(_core.list_json(where))
    ]


def gc(
    run: PathLike,
    *,
    keep_last: int,
    keep_every: int | None = None,
    uncommitted_older_than: float | None = None,
    dry_run: bool = False,
) -> list[Fate]:
    """Removes old checkpoints: all but the `keep_last` newest, those whose step is a multiple of `keep_every`, the one
    to resume from, and pinned ones. Uncommitted attempts go once a newer timeline has committed, or when untouched for
    `uncommitted_older_than` seconds: until then a job may still be writing them."""
    answer = json.loads(
        _core.gc_json(
            os.fspath(run),
            keep_last=keep_last,
            keep_every=keep_every,
            uncommitted_older_than=uncommitted_older_than,
            dry_run=dry_run,
        )
    )
    return [Fate(one["name"], one["fate"], one["why"], _error_or_none(one["error"])) for one in answer["items"]]


def reject(path: PathLike, reason: str) -> None:
    """Marks a checkpoint as one not to resume from, such as one of a run that diverged."""
    _core.reject(os.fspath(path), reason)


def pin(path: PathLike, name: str) -> None:
    """Keeps a checkpoint from `gc` until `unpin` of the same name."""
    _core.pin(os.fspath(path), name)


def unpin(path: PathLike, name: str) -> None:
    """Takes a pin away."""
    _core.unpin(os.fspath(path), name)


def commit(
    path: PathLike, *, deadline: float | None = None, poll: float = 0.2, check: bool = True, progress: Progress = None
) -> Committed:
    """Makes an attempt whose writers are done a checkpoint; may be run again, and by several at once.

    Waits `deadline` seconds for missing writers (None: looks once). Raises `writer-missing` where they are not there,
    and `fenced` where a newer job owns the run.
    """
    where = os.fspath(path)
    with reporting(progress) as report:
        digest, already = _core.commit(where, deadline=deadline, poll=poll, check_state=check, progress=report)
    return Committed(where, digest, already)


def salvage(path: PathLike, *, progress: Progress = None) -> str:
    """Finishes an attempt on purpose that `commit` would not: of an older job, or with a damaged root that its parts
    allow to make again. The digest of the checkpoint that it is then."""
    with reporting(progress) as report:
        return _core.salvage(os.fspath(path), progress=report)


def copy(source: PathLike, out: PathLike, *, progress: Progress = None) -> str:
    """Copies a checkpoint into the new directory `out`, verifying all of it on the way. Its digest, which is the
    same."""
    with reporting(progress) as report:
        return _core.copy(os.fspath(source), os.fspath(out), progress=report)


def reshard(source: PathLike, out: PathLike, *, writers: int, progress: Progress = None) -> str:
    """Writes the same contents split among `writers` writers into the new directory `out`. Its digest."""
    with reporting(progress) as report:
        return _core.reshard(os.fspath(source), os.fspath(out), writers=writers, progress=report)


def verify(path: PathLike, *, quick: bool = False, threads: int | None = None, progress: Progress = None) -> Report:
    """Checks every rule and every byte of a checkpoint; `quick` reads no tensor data. Damage is in the report, not
    raised."""
    where = os.fspath(path)
    with reporting(progress) as report:
        try:
            answer = json.loads(_core.verify_json(where, quick=quick, threads=threads, progress=report))
        except UsageError:
            refuse_run(where)
            raise
    findings = tuple(
        Finding(
            one["code"],
            one["class"],
            one["message"],
            one["remedy"],
            *(one.get(member) for member in ("rule", "file", "offset", "pointer", "record", "tensor")),
        )
        for one in answer["findings"]
    )
    return Report(where, findings, tuple(answer["notes"]), answer["quick"])


def inspect(path: PathLike, *, trust_links: bool = False) -> Inspection:
    """What a checkpoint holds; reads all of its metadata and no tensor data."""
    from .checkpoint import open as open_checkpoint

    with open_checkpoint(path, trust_links=trust_links) as checkpoint:
        counts: dict[tuple[str, str, str], tuple[int, int]] = {}
        aliases = 0
        for tensor in checkpoint.tensors():
            if tensor.alias_of is not None:
                aliases += 1
                continue
            of = (tensor.key.component, tensor.key.role, tensor.dtype)
            number, nbytes = counts.get(of, (0, 0))
            counts[of] = (number + 1, nbytes + tensor.nbytes)
        contents = tuple(Contents(*of, *counted) for of, counted in sorted(counts.items()))
        return Inspection(
            path=checkpoint.path,
            run=checkpoint.run,
            step=checkpoint.step,
            attempt=checkpoint.attempt,
            timeline=checkpoint.timeline,
            digest=checkpoint.digest,
            parent=checkpoint.parent,
            writers=checkpoint.writers,
            block_bytes=checkpoint.block_bytes,
            topology=checkpoint.topology,
            contents=contents,
            aliases=aliases,
            records=tuple((one.kind, one.name, one.coordinate) for one in checkpoint.records()),
            attachments=tuple(checkpoint.attachments.info(name) for name in checkpoint.attachments),
            omitted=tuple(checkpoint.omitted),
        )


def export(
    path: PathLike,
    out: PathLike,
    *,
    roles: Sequence[str] = ("param", "buffer"),
    component: str = "main",
    max_shard_bytes: int | None = None,
    single: bool = False,
    progress: Progress = None,
) -> Exported:
    """Writes the tensors of some roles as plain safetensors, with all attachments, into the new directory `out`, or as
    the one file `out` (`single`). Nothing but names, types, shapes and elements comes along."""
    with reporting(progress) as report:
        answer = json.loads(
            _core.export(
                os.fspath(path),
                os.fspath(out),
                roles=roles,
                component=component,
                max_shard_bytes=max_shard_bytes,
                single=single,
                progress=report,
            )
        )
    return Exported(answer["path"], answer["bytes"], answer["files"], answer["attachments"], answer["tied"])


def import_safetensors(
    source: PathLike,
    *,
    out: PathLike | None = None,
    run: PathLike | None = None,
    step: int = 0,
    writers: int = 1,
    attach: Sequence[str] = (),
    progress: Progress = None,
) -> Imported:
    """Makes a checkpoint of a safetensors file, or a directory of them with what lies beside: at `out`, or in a run."""
    with reporting(progress) as report:
        answer = json.loads(
            _core.import_json(
                os.fspath(source),
                out=None if out is None else os.fspath(out),
                run_path=None if run is None else os.fspath(run),
                step=step,
                writers=writers,
                attach=attach,
                progress=report,
            )
        )
    return Imported(
        answer["path"],
        answer["digest"],
        answer["step"],
        answer["writers"],
        answer["tensors"],
        answer["bytes"],
        tuple(answer["attachments"]),
        tuple(answer["skipped"]),
    )


def _summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    summed: dict[str, int] = {}
    for name, number in pairs:
        summed[name] = summed.get(name, 0) + number
    return summed


def _error(said: dict[str, Any]) -> Error:
    return from_parts(
        said["code"],
        said["class"],
        said["message"],
        said["remedy"],
        said.get("file"),
        said.get("offset"),
        said.get("pointer"),
        said.get("record"),
        said.get("tensor"),
        said.get("rule"),
    )


def _error_or_none(said: dict[str, Any] | None) -> Error | None:
    return None if said is None else _error(said)
