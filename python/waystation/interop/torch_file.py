"""Files of `torch.save` as checkpoints, without running anything that is in them.

`import_torch_file` needs no PyTorch. The pickle within is read by a machine that makes numbers, texts, containers and
tensors, and knows nothing else; everything else is refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, Final

import numpy as np

from ..dcp.naming import Naming
from ..errors import Error, usage
from ..key import Key
from ..progress import Progress
from .archive import Files
from .intake import MEMORY, Bytes, Fill, ImportedState, Target, take_in
from .pickle_machine import Inert
from .refusal import refuse
from .state import Entries, Part, Tensor, Value, array_tensor, snapshot_of
from .torch_globals import NumpyArray, TensorRef
from .torch_zip import TorchFile, storages_bytes
from .walk import Budget, NoForm, Path, flatten, refusal_of, show, to_tree

_MODELS: Final = ("model", "state_dict", "model_state_dict", "module")
MAX_EXPANDED: Final = 1 << 30


def import_torch_file(
    source: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    run: str | os.PathLike[str] | None = None,
    name: str | None = None,
    step: int = 0,
    trust_pickle: bool = False,
    model_key: str | None = None,
    naming: Naming | None = None,
    buffers: Collection[str] = (),
    skip_unreadable: bool = False,
    verify_crc: bool = True,
    max_expanded_bytes: int = MAX_EXPANDED,
    memory: int = MEMORY,
    threads: int | None = None,
    progress: Progress = None,
) -> ImportedState:
    """Makes a checkpoint of a file of `torch.save`: at `out`, a directory to make, or as the next attempt of `run`.

    `trust_pickle=True` is needed, though nothing of the file is run: what it holds is still only what its author says.

    A mapping is split into tensors and values as `torch.distributed.checkpoint` splits it, so that `dcp.load` with
    `waystation.dcp.Reader` gives it back. The mapping under `model_key` (by default the first there is of `model`,
    `state_dict`, `model_state_dict` and `module`; without any, the file's own tensors) are parameters; `buffers` are
    the names of those that are buffers, which a file does not say. `naming` gives identities of your own.

    Tensors of one storage and geometry (tied weights) become aliases. Views are stored as their elements; those that
    overlap others may take `max_expanded_bytes` more than the file has. `verify_crc` compares every storage with its
    CRC-32, which `torch.load` does not. Twice `memory` bytes are held at a time, or one tensor more where it is larger.

    Raises `bad-argument` for anything that is not on the list of what is read, with its place in the state (with
    `skip_unreadable` values without a form are left out, each with a record of kind `uncaptured`), `unsupported-dtype`,
    `limit`, `crc-mismatch` and what writing does. After an error there is no checkpoint.
    """
    target = Target(out, run, name, step)
    target.check()
    need_trust(trust_pickle, source, "a file of torch.save")
    with Files() as files:
        file = TorchFile(files.source(source, follow_links=True), check=verify_crc)
        root = file.root if isinstance(file.root, dict) else {"root": file.root}
        reader = _Reader(file, max_expanded_bytes)
        entries = reader.entries(root)
        if not skip_unreadable:
            reader.all_known(entries)
        made = snapshot_of(
            entries,
            step=step,
            naming=naming or _model_naming(root, model_key, frozenset(buffers)),
            buffers=frozenset(buffers),
            refused=None if skip_unreadable else lambda why: refusal_of(why, file.place),
        )
        path, digest = take_in(
            made.snapshot, target, source=os.fspath(source), threads=threads, memory=memory, progress=progress
        )
    tensors = sum(isinstance(said, Tensor) for _, said in entries.values())
    nbytes = made.snapshot.nbytes
    return ImportedState(path, digest, step, tensors, nbytes, made.values, tuple(made.skipped))


def need_trust(trust_pickle: bool, source: str | os.PathLike[str], what: str) -> None:
    """Refuses to read pickles that nobody vouched for."""
    if trust_pickle is not True:
        raise usage(
            f"{os.fspath(source)}: {what} is a pickle: `trust_pickle=True` says that you know where it comes from",
            remedy="It is read by a reader that runs nothing and refuses what it does not know; whether its numbers "
            "are the ones you want, only its author can say.",
        )


class _Reader:
    def __init__(self, file: TorchFile, max_expanded: int) -> None:
        self.file = file
        self.budget = Budget(file.pickle_bytes, file.place)
        self.plain_budget = Budget(file.pickle_bytes, file.place)
        self.room = storages_bytes(file) + max_expanded
        self.seen: set[object] = set()

    def entries(self, root: dict[object, object]) -> Entries:
        entries: dict[str, tuple[Path, Tensor | Value]] = {}
        for path, leaf in flatten(root, self.budget):
            key = ".".join(map(str, path))
            if key in entries:
                raise refuse(f"two places of the state have the flat key {show((key,))}", self.file.place)
            if not key:
                raise refuse("an entry of the state whose key is empty", self.file.place)
            if isinstance(leaf, TensorRef):
                entries[key] = (path, self.tensor(leaf, path))
            else:
                entries[key] = (path, self.value(leaf, path))
        return entries

    def tensor(self, tensor: TensorRef, path: Path) -> Tensor:
        try:
            self.file.check_tensor(tensor)
        except Error as e:
            e.message = f"{show(path)}: {e.message}"
            raise
        # What is one window is stored once; all others cost their elements, whatever storage they share.
        if tensor.window not in self.seen:
            self.seen.add(tensor.window)
            self.room -= tensor.nbytes
        if self.room < 0:
            raise refuse(
                f"{show(path)}: its tensors have far more elements than the file has bytes: views that overlap",
                self.file.place,
                code="limit",
                remedy="Raise `max_expanded_bytes` if that is meant.",
            )
        shape = tensor.shape
        parts = () if 0 in shape else (Part((0,) * len(shape), shape, self.fill(tensor)),)
        return Tensor(str(tensor.dtype.dtype), shape, parts, same=tensor.window)

    def fill(self, tensor: TensorRef) -> Fill:
        file = self.file

        def fill(out: Bytes) -> None:
            file.read(tensor, out)

        return fill

    def value(self, leaf: object, path: Path) -> Value:
        return Value(
            plain(leaf, self.plain_budget),
            lambda put: to_tree(leaf, path, put, self.budget),
            lambda data: self.within(data, path),
        )

    def within(self, data: object, path: Path) -> Tensor:
        """The tensor that stands within a value; never one with a tensor of the state."""
        if isinstance(data, TensorRef):
            made = self.tensor(data, path)
            return Tensor(made.dtype, made.shape, made.parts)
        if isinstance(data, (np.ndarray, bytes)):
            return array_tensor(data)
        raise NoForm("nothing that is a tensor", path)

    def all_known(self, entries: Entries) -> None:
        """Refuses a file that names something unknown anywhere, also where nothing of it is left in the state."""
        if not self.file.unknown:
            return
        for path, said in entries.values():
            if isinstance(said, Value):
                try:
                    said.tree(lambda data, at: Key("main", "extension", "unused"))
                except NoForm as why:
                    raise refusal_of(why, self.file.place) from None
        raise refuse(
            f"it names {', '.join(self.file.unknown[:5])}, which is not on the list of what is read", self.file.place
        )


def plain(leaf: object, budget: Budget) -> object:
    """The leaf where it is made of Python's own plain types, else None: naming looks into parameter groups alone.

    `budget` is one for this only. However many parameters a group has, it is looked through to its end.
    """
    todo = [leaf]
    while todo:
        value = todo.pop()
        if isinstance(value, (Inert, dict)):
            return None
        if isinstance(value, (list, tuple)):
            if len(value) > budget.left:
                return None  # and making its tree is refused for the same reason
            budget.spend(len(value))
            todo.extend(value)
    return leaf


def _model_naming(root: dict[object, object], model_key: str | None, buffers: frozenset[str]) -> Naming | None:
    """Parameters for what stands under the model's key; the rules of DCP's naming know only `model`."""
    if model_key is not None and not isinstance(root.get(model_key), dict):
        raise usage(f"`model_key` is {model_key!r}, and the file has no mapping of that name")
    found = model_key or next((key for key in _MODELS if isinstance(root.get(key), dict)), None)
    if found is None or found == "model":
        return None

    def naming(path: Any) -> Key | None:
        if len(path) < 2 or path[0] != found:
            return None
        name = ".".join(map(str, path[1:]))
        return Key.buffer(name) if name in buffers else Key.param(name)

    return naming


__all__ = ["NumpyArray", "import_torch_file", "need_trust", "plain"]
