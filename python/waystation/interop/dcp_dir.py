"""Directories of `torch.distributed.checkpoint` as checkpoints, without running anything that is in them.

Chunks become chunks: nothing is resharded, and no tensor is ever whole in memory. A box that is not there, stored
twice or of another size than stated is an error, where `dcp.load` would leave what was in memory before.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from ..dcp.naming import Naming
from ..errors import Error, Location, error
from ..progress import Progress
from . import dcp_metadata
from .archive import Files, Source
from .dcp_metadata import Box, Span, StoredTensor, StoredValue
from .intake import MEMORY, Bytes, Fill, ImportedState, Target, take_in
from .refusal import Place, refuse
from .state import Entries, Part, Tensor, Value, array_tensor, snapshot_of, step_of
from .torch_file import need_trust, plain
from .torch_globals import TensorRef
from .torch_zip import TorchFile
from .walk import Budget, NoForm, Path, refusal_of, show, to_tree

METADATA = ".metadata"
_TENSOR_PICKLE = 1 << 20


def import_dcp(
    source: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    run: str | os.PathLike[str] | None = None,
    name: str | None = None,
    step: int | None = None,
    trust_pickle: bool = False,
    naming: Naming | None = None,
    buffers: Collection[str] = (),
    skip_unreadable: bool = False,
    verify_crc: bool = True,
    trust_links: bool = False,
    memory: int = MEMORY,
    threads: int | None = None,
    progress: Progress = None,
) -> ImportedState:
    """Makes a checkpoint of what `dcp.save` wrote: at `out`, a directory to make, or as the next attempt of `run`.

    `trust_pickle=True` is needed, though nothing of the directory is run: what it holds is still only what its author
    says. `dcp.load` with `waystation.dcp.Reader` gives the same state back from the checkpoint, each tensor with the
    boxes that it had. `naming` gives identities of your own, `buffers` are the names of parameters that are buffers.

    `step`, if not given, is the whole number at `step` or `progress.step` of what was saved, of which a note tells;
    without one it is 0.

    `verify_crc` compares every tensor with its CRC-32, which `dcp.load` does not. Links within the directory are
    followed with `trust_links` only. Twice `memory` bytes are held at a time, or one box more where it is larger.

    Raises `not-found` and `file-missing` where something is not there, `cover-gap` and `cover-overlap` where boxes do
    not make up a tensor, `bad-argument` for what is not on the list of what is read (with `skip_unreadable` values
    without a form are left out, each with a record of kind `uncaptured`), `unsupported-dtype`, `limit`,
    `crc-mismatch`, and what writing does. All but the bytes of tensors is looked at before anything is made. After an
    error there is no checkpoint.
    """
    target = Target(out, run, name, 0 if step is None else step)
    target.check()
    need_trust(trust_pickle, source, "the metadata of a checkpoint of torch.distributed.checkpoint")
    folder = os.fspath(source)
    with Files() as files:
        metadata = _metadata(files, folder, trust_links)
        reader = _Reader(files, folder, trust_links, verify_crc)
        entries = reader.entries(metadata)
        notes: tuple[str, ...] = ()
        if step is None and (found := step_of(entries)) is not None:
            target, notes = replace(target, step=found[1]), (f"the step {found[1]} is that of {show(found[0])}",)
        made = snapshot_of(
            entries,
            step=target.step,
            naming=naming,
            buffers=frozenset(buffers),
            refused=None if skip_unreadable else lambda why: refusal_of(why, Place(folder)),
        )
        path, digest = take_in(made.snapshot, target, source=folder, threads=threads, memory=memory, progress=progress)
    tensors, nbytes = len(metadata.tensors), made.snapshot.nbytes
    return ImportedState(path, digest, target.step, tensors, nbytes, made.values, tuple(made.skipped), notes)


def _metadata(files: Files, folder: str, trust_links: bool) -> dcp_metadata.Metadata:
    path = os.path.join(folder, METADATA)
    try:
        source = files.source(path, follow_links=trust_links)
    except Error as e:
        if e.code != "not-found":
            raise
        raise _no_metadata(folder) from None
    if source.size > dcp_metadata.MAX_METADATA:
        raise refuse(
            f"it has {source.size} bytes, at most {dcp_metadata.MAX_METADATA} are read", Place(path), code="limit"
        )
    return dcp_metadata.read(source.read(0, source.size), Place(path))


def _no_metadata(folder: str) -> Error:
    place = Location(file=folder)
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return error("not-found", "there is no such directory", location=place)
    except NotADirectoryError:
        return error(
            "bad-argument", "a file, not a directory of dcp.save: import_torch_file reads those", location=place
        )
    except OSError as e:
        return error("io", os.strerror(e.errno or 0), location=place)
    if any(name.startswith("__") and name.endswith(METADATA) for name in names):
        return error(
            "bad-argument",
            "it was saved with use_collectives=False: each rank's metadata stand alone, and nothing says "
            "what the whole is. Load it on as many ranks and save it with waystation.dcp.Writer",
            location=place,
        )
    if any(name.endswith(".safetensors") for name in names):
        return error(
            "bad-argument", "it holds safetensors files: `waystation import` and import_hf read those", location=place
        )
    if any(name.endswith(".distcp") for name in names):
        return error(
            "file-missing", "it has no .metadata: the save never ended, and what lies where is lost", location=place
        )
    return error("not-found", "no checkpoint of torch.distributed.checkpoint: it has no .metadata", location=place)


class _Reader:
    def __init__(self, files: Files, folder: str, trust_links: bool, check: bool) -> None:
        self.files = files
        self.folder = folder
        self.trust_links = trust_links
        self.check = check
        self.sources: dict[str, Source] = {}

    def entries(self, metadata: dcp_metadata.Metadata) -> Entries:
        entries: dict[str, tuple[Path, Tensor | Value]] = {}
        for tensor in metadata.tensors:
            entries[tensor.key] = (tensor.path, self.tensor(tensor))
        for value in metadata.values:
            entries[value.key] = (value.path, self.value(value))
        return entries

    def open(self, span: Span, key: str, max_pickle: int) -> TorchFile:
        source = self.sources.get(span.file)
        if source is None:
            path = os.path.join(self.folder, span.file)
            try:
                source = self.files.source(path, follow_links=self.trust_links)
            except Error as e:
                if e.code != "not-found":
                    raise
                message = f"{show((key,))} lies in a file that is not there: nothing is filled in"
                raise error("file-missing", message, location=Location(file=path)) from None
            self.sources[span.file] = source
        return TorchFile(source, span.offset, span.length, what=show((key,)), max_pickle=max_pickle, check=self.check)

    def tensor(self, stored: StoredTensor) -> Tensor:
        pairs = stored.dtype.per_item
        parts = tuple(self.part(stored, box, pairs) for box in stored.boxes)
        return Tensor(str(stored.dtype.dtype), _elements(stored.size, pairs), parts)

    def part(self, stored: StoredTensor, box: Box, pairs: int) -> Part:
        file = self.open(box.span, stored.key, _TENSOR_PICKLE)
        found = file.root
        if not isinstance(found, TensorRef):
            raise refuse("a box of a tensor is stored as something else", file.place)
        file.check_tensor(found)
        if found.dtype.torch_name != stored.dtype.torch_name or found.size != box.extent:
            raise refuse(
                f"the box at {list(box.start)} is stated as {stored.dtype.name} {list(box.extent)} and stored as "
                f"{found.dtype.name} {list(found.size)}",
                file.place,
            )
        if found.nbytes > file.storage_bytes(found):
            raise refuse("a box has more elements than bytes are stored for it", file.place, code="limit")
        file.keep(found)
        return Part(_elements(box.start, pairs), _elements(box.extent, pairs), _fill(file, found))

    def value(self, stored: StoredValue) -> Value:
        file = self.open(stored.span, stored.key, 256 << 20)
        budget = Budget(file.pickle_bytes, file.place)

        def within(data: object) -> Tensor:
            if isinstance(data, TensorRef):
                file.check_tensor(data)
                if data.nbytes > file.storage_bytes(data):
                    raise refuse("a tensor has more elements than bytes are stored for it", file.place, code="limit")
                shape = data.shape
                whole = Part((0,) * len(shape), shape, _fill(file, data))
                return Tensor(str(data.dtype.dtype), shape, () if 0 in shape else (whole,))
            if isinstance(data, (np.ndarray, bytes)):
                return array_tensor(data)
            raise NoForm("nothing that is a tensor", stored.path)

        leaf = file.root
        return Value(
            plain(leaf, Budget(file.pickle_bytes, file.place)),
            lambda put: self.known(file, to_tree(leaf, stored.path, put, budget), stored),
            within,
        )

    def known(self, file: TorchFile, tree: object, stored: StoredValue) -> object:
        """The tree, unless its pickle names something unknown that is not in it either."""
        if file.unknown:
            raise NoForm(f"of a pickle that names {', '.join(file.unknown[:5])}", stored.path)
        return tree


def _fill(file: TorchFile, tensor: TensorRef) -> Fill:
    def fill(out: Bytes) -> None:
        file.read(tensor, out)

    return fill


def _elements(numbers: tuple[int, ...], pairs: int) -> tuple[int, ...]:
    """Numbers of PyTorch's elements as numbers of the registry's: the last axis of pairs has two for each."""
    return numbers if pairs == 1 or not numbers else (*numbers[:-1], numbers[-1] * pairs)
