"""A complete checkpoint, open for reading: tensors by name or identity, records, attachments.

Opening reads and checks the commit file and the manifest, no tensor data. What is damaged is an error when it is read,
and nothing damaged is ever handed out (`verify=False` takes the disk's word for it).
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import _core, _loading, tree
from . import _destination as destination
from ._opening import open_core
from ._reading import Source
from .errors import error, usage
from .key import UNNAMEABLE, Key
from .progress import Progress, reporting
from .records import Coordinate, Record, tree_of
from .snapshot import Omitted
from .tensor import Tensor

_FEW = 2_000  # names among which an error looks for similar ones


def open(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    threads: int | None = None,
    memory_budget: int | None = None,
    trust_links: bool = False,
) -> Checkpoint:
    """Opens the checkpoint in the directory `path`, or what `latest` or a save answered.

    `verify` checks the CRC of all that is read. `threads` of a read: None takes what the machine has. `memory_budget`
    is the most bytes that one call allocates. `trust_links` follows symbolic links, as download caches have them.
    Raises `not-committed` for what is no checkpoint, `bad-argument` for a run, and what else chapter 12 of the specification says.
    """
    core = open_core(
        path, verify_reads=verify, threads=threads, memory_budget=memory_budget, trust_links=trust_links
    )
    return Checkpoint(core, verify=verify, threads=threads, memory_budget=memory_budget, trust_links=trust_links)


class Component(Mapping[str, Tensor]):
    """The params, buffers and aliases of one model of the job, by name; iteration goes in order of identity."""

    def __init__(self, source: Source, component: str) -> None:
        self._source = source
        self._component = component
        self._listed: dict[str, Tensor] | None = None

    def __getitem__(self, name: str) -> Tensor:
        found: Tensor | None = self.get(name)
        if found is None:
            missing = f"no param, buffer or alias {name!r} in component {self._component!r}"
            raise error("not-found", missing + self._similar(name))
        return found

    def get(self, name: object, default: Any = None) -> Any:
        """The tensor of a name, or `default`."""
        if not isinstance(name, str) or UNNAMEABLE.search(name) or UNNAMEABLE.search(self._component):
            return default
        if self._listed is not None:
            return self._listed.get(name, default)
        found = self._source.core.find_named(self._component, name)
        return default if found is None else Tensor(self._source, found)

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None

    # Two views are not compared tensor by tensor, and one may be a key.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __bool__(self) -> bool:
        """True: a checkpoint without weights is one all the same."""
        return True

    def tensor(self, key: Key | str) -> Tensor:
        """The tensor or alias of an identity, or of a name as `[…]` has it. Raises `not-found`."""
        if isinstance(key, str):
            return self[key]
        found = self._source.core.find(key)
        if found is None:
            wanted = Key.of(key)
            raise error("not-found", f"no tensor {wanted.text}{self._similar_keys(wanted)}")
        return Tensor(self._source, found)

    def load(
        self,
        names: Iterable[str | Key] | None = None,
        *,
        out: Mapping[Any, Any] | None = None,
        framework: destination.Framework = "numpy",
        device: Any = None,
        progress: Progress = None,
    ) -> dict[Any, Any]:
        """Reads many tensors as one plan: `{name: array}`, by the names or identities given; None: all of this
        component.

        Names of one tensor (tied weights) give one and the same array. `out` has arrays of the caller, of exactly the
        type and shape, for some of the names or all (alone: for its own names); they are read into and returned, and
        undefined after an error. Others are new ones of `framework`, on `device`. Everything asked for is found, and
        type and shape compared, before anything is read. Raises as `Tensor.numpy` does.
        """
        asked = names if names is not None else out if out is not None else self
        tensors = {name: self.tensor(name) for name in asked}
        given = dict(out or {})
        strange = [name for name in given if name not in tensors]
        if strange:
            raise usage(f"'out' has {strange[0]!r}, which is not asked for")
        with reporting(progress) as report:
            return _loading.load(self._source, tensors, given, framework, device, report)

    def _names(self) -> dict[str, Tensor]:
        if self._listed is None:
            self._listed = {
                tensor.name: tensor
                for tensor in _all(self._source)
                if tensor.key.component == self._component
                and tensor.key.role in ("param", "buffer")
                and not tensor.key.scope
            }
        return self._listed

    def _similar(self, name: object) -> str:
        """Names that may have been meant, where there are few enough to look at them all."""
        if self._listed is None and not self._few():
            return ""
        if not isinstance(name, str) or len(self._names()) > _FEW:
            return ""
        return _close(name, self._names())

    def _similar_keys(self, key: Key) -> str:
        if not self._few():
            return ""
        return _close(key.text, [tensor.key.text for tensor in _all(self._source)], quote=str)

    def _few(self) -> bool:
        contents = json.loads(self._source.core.manifest_json())["contents"]
        return bool(sum(count for _, roles in contents for _, count in roles) <= _FEW)


def _close(wanted: str, there: Iterable[str], quote: Callable[[str], str] = repr) -> str:
    """What of `there` may have been meant: names with more or fewer parts before them, then names spelt alike."""
    names = list(there)[:_FEW]
    close = [name for name in names if name.endswith(f".{wanted}") or wanted.endswith(f".{name}")][:3]
    close = close or difflib.get_close_matches(wanted, names, 3)
    return f"; there is {' and '.join(map(quote, close))}" if close else ""


@dataclass(frozen=True)
class Attachment:
    """What is known of an attachment without reading it."""

    path: str
    nbytes: int
    sha256: str


class Attachments(Mapping[str, bytes]):
    """The files that came with a checkpoint, by their logical paths; each is read, and checked, when it is asked
    for."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known = {path: Attachment(path, size, sha256) for path, size, sha256 in source.core.attachments()}

    def __getitem__(self, path: str) -> bytes:
        return self._source.core.attachment(self.info(path).path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, path: object) -> bool:
        return path in self._known

    def info(self, path: str) -> Attachment:
        """Length and SHA-256. Raises `not-found`."""
        if path not in self._known:
            raise error("not-found", f"no attachment {path!r}{_close(str(path), self._known)}")
        return self._known[path]

    def __repr__(self) -> str:
        return f"<Attachments {list(self._known)}>"


class Checkpoint(Component):
    """An open checkpoint: a mapping of the names of component `main` to tensors, none of which is read yet.

    It may be shared among threads, and survives a fork; a pickled one is opened again where it arrives, and must be the
    same there. As a context manager it is closed at the end.
    """

    def __init__(
        self,
        core: _core.Checkpoint,
        *,
        verify: bool = True,
        threads: int | None = None,
        memory_budget: int | None = None,
        trust_links: bool = False,
    ) -> None:
        super().__init__(Source(core, memory_budget), "main")
        self._how: dict[str, Any] = {
            "verify": verify,
            "threads": threads,
            "memory_budget": memory_budget,
            "trust_links": trust_links,
        }
        self.path: str = core.path
        """As it was opened."""
        self.run: str = core.run
        """Name of the run that it is of."""
        self.step: int = core.step
        """Completed optimizer steps."""
        self.attempt: str = core.attempt
        """What tells this save from others of the step."""
        self.timeline: int = core.timeline
        """Which start of a job in the run wrote it."""
        self.digest: str = core.digest
        """SHA-256 of the manifest: pins everything but tensor data, which checksums cover."""
        self.parent: str | None = core.parent
        """Digest of the checkpoint that the job resumed from."""
        self.writers: int = core.writers
        """Number of processes that wrote it."""
        self.block_bytes: int = core.block_bytes
        """Bytes that one checksum covers."""
        self.topology: Coordinate = tuple(core.topology)
        """Axes of the job and their sizes."""

    @property
    def core(self) -> _core.Checkpoint:
        """The native half, for other parts of this package. Raises `bad-argument` once it is closed."""
        return self._source.core

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as it stands in the file (chapter 8 of the specification)."""
        return json.loads(self._source.core.manifest_json())  # type: ignore[no-any-return]

    @property
    def omitted(self) -> list[Omitted]:
        """Parameters that exist and were not saved, and why."""
        return [
            Omitted(one.get("component", "main"), tuple(one["names"]), one["reason"])
            for one in self.manifest["omitted"]
        ]

    def component(self, name: str) -> Component:
        """The params, buffers and aliases of another model of the job, by name."""
        return Component(self._source, name)

    def components(self) -> list[str]:
        """The models of the job; reads all metadata."""
        return sorted({tensor.key.component for tensor in _all(self._source)})

    def tensors(
        self,
        *,
        role: str | None = None,
        component: str | None = None,
        owner: str | None = None,
        slot: str | None = None,
        name: str | None = None,
    ) -> Iterator[Tensor]:
        """All tensors and aliases of which that is true, in order of identity; pages are read as they are needed."""
        asked = {"role": role, "component": component, "owner": owner, "slot": slot, "name": name}
        wanted = [(member, value) for member, value in asked.items() if value is not None]
        return (
            tensor
            for tensor in _all(self._source)
            if all(getattr(tensor.key, member) == value for member, value in wanted)
        )

    def records(self, kind: str | None = None, name: str | None = None) -> list[Record]:
        """All records, or those of a kind and name, in order of record key."""
        return [
            Record(of, called, json.loads(value), tuple(coordinate))
            for of, called, coordinate, value in self._source.core.records()
            if (kind is None or of == kind) and (name is None or called == name)
        ]

    def record(self, kind: str, name: str, coordinate: Coordinate = ()) -> Record:
        """One record. Raises `not-found`."""
        there = self.records(kind, name)
        for record in there:
            if record.coordinate == tuple(coordinate):
                return record
        at = " and ".join(str(list(record.coordinate)) for record in there[:3])
        said = f"; there is one at {at}" if there else _close(name, {one.name for one in self.records(kind)})
        raise error("not-found", f"no record {kind!r} {name!r} at {list(coordinate)}{said}")

    def value(self, name: str, coordinate: Coordinate = ()) -> Any:
        """The Python object of a record of kind `value`, its tensors read with it (`waystation.tree`)."""
        return tree.from_tree(tree_of(self.record("value", name, coordinate)), self.tensor)

    @property
    def attachments(self) -> Attachments:
        """The files that came with it."""
        return Attachments(self._source)

    def close(self) -> None:
        """Lets go of the files. Arrays that were read or mapped stay."""
        self._source.close()

    def __enter__(self) -> Checkpoint:
        """Raises `bad-argument` where it is closed."""
        _ = self._source.core
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ipython_key_completions_(self) -> list[str]:
        """What notebooks offer after `checkpoint["`."""
        return list(self._names())

    def __repr__(self) -> str:
        return f"<Checkpoint {self.path!r} of run {self.run!r}, step {self.step}, {self.digest[:12]}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (os.path.abspath(self.path), self.digest, self._how)


def _again(path: str, digest: str, how: dict[str, Any]) -> Checkpoint:
    found = open(path, **how)
    if found.digest != digest:
        raise error(
            "source-changed",
            f"{path} was the checkpoint {digest} and is {found.digest}",
            remedy="Open the checkpoint that you mean by its path.",
        )
    return found


def _all(source: Source) -> Iterator[Tensor]:
    return (Tensor(source, entry) for entry in source.core.entries())
