"""One archive of `torch.save`: what it holds, and the bytes of its tensors. Knows their layout, and no naming."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from . import torch_globals
from .archive import Archive, Source
from .pickle_machine import load
from .refusal import Place, refuse
from .torch_globals import TensorRef

MAX_PICKLE: Final = 256 << 20
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class TorchFile:
    """What `torch.save` wrote: `root`, with a `TensorRef` for each tensor, whose bytes `read` gives.

    Raises `bad-argument` for what is no such archive, `limit` for one that is too large, `crc-mismatch` for a damaged
    one.
    """

    def __init__(
        self,
        source: Source,
        offset: int = 0,
        length: int | None = None,
        *,
        what: str | None = None,
        max_pickle: int = MAX_PICKLE,
        check: bool = True,
    ) -> None:
        self.archive = Archive(source, offset, length, what=what, check=check)
        entries = self.archive.entries
        if any(name.startswith("code/") or name == "constants.pkl" for name in entries):
            raise refuse("a TorchScript archive, which is a program: save its state_dict()", self.archive.place)
        if "byteorder" in entries and self.archive.read("byteorder", 16) != b"little":
            raise refuse("its numbers are big-endian: only little-endian ones are read", self.archive.place)
        pickle = self.archive.find("data.pkl")
        self.place = Place(source.path, pickle.offset, what or "data.pkl")
        data = self.archive.read("data.pkl", max_pickle)
        self.pickle_bytes = len(data)
        self.root, self.unknown = load(data, torch_globals.find, place=self.place, persistent=torch_globals.persistent)
        self._checked: set[str] = set()

    def check_tensor(self, tensor: TensorRef) -> None:
        """Refuses a tensor that has no form here, or whose elements are not all within its storage."""
        if tensor.why_not is not None:
            raise refuse(f"a tensor is {tensor.why_not}", self.place)
        if tensor.dtype.dtype is None:
            raise refuse(
                f"tensors of {tensor.dtype.name} have no element type in the registry",
                self.place,
                code="unsupported-dtype",
                remedy="Convert it before saving.",
            )
        if len(tensor.size) > 16:
            raise refuse(f"a tensor of {len(tensor.size)} axes, the format has 16", self.place, code="limit")
        if tensor.dtype.per_item == 2 and not tensor.size:
            raise refuse(f"a tensor of {tensor.dtype.name} without axes has no shape in single elements", self.place)
        storage = tensor.storage
        entry = self.archive.find(f"data/{storage.key}")
        width = 1 if storage.dtype is None else storage.dtype.item_bytes
        if width == 0 or storage.count * width != entry.length:
            raise refuse(
                f"storage {storage.key!r} is stated to have {storage.count} elements of {width} bytes, and has "
                f"{entry.length} bytes",
                self.place,
            )
        _, last = _span(tensor)
        if last * tensor.dtype.item_bytes > entry.length:
            raise refuse(
                f"a tensor's elements reach to byte {last * tensor.dtype.item_bytes} of storage {storage.key!r}, "
                f"which has {entry.length}",
                self.place,
            )

    def keep(self, tensor: TensorRef) -> None:
        """Forgets all but what `read` needs for this one: of archives there may be hundreds of thousands."""
        name = f"data/{tensor.storage.key}"
        self.archive.entries = {name: self.archive.find(name)}

    def storage_bytes(self, tensor: TensorRef) -> int:
        """Bytes of a tensor's storage."""
        return self.archive.find(f"data/{tensor.storage.key}").length

    def read(self, tensor: TensorRef, out: Bytes) -> None:
        """A tensor's elements, packed and row-major, into exactly their bytes. `check_tensor` has been called."""
        if out.nbytes == 0:
            return
        width = tensor.dtype.item_bytes
        first, last = _span(tensor)
        if _is_packed(tensor):
            self._read_span(tensor, first, out.data)
            return
        span = np.empty((last - first) * width, np.uint8)
        self._read_span(tensor, first, span.data)
        # Void elements: copied as bytes, whatever they are.
        kind = np.dtype(f"V{width}")
        strides = tuple(step * width for step in tensor.stride)
        view = np.ndarray(tensor.size, kind, span.data, 0, strides)
        np.copyto(np.ndarray(tensor.size, kind, out.data), view)

    def _read_span(self, tensor: TensorRef, first: int, out: memoryview) -> None:
        name, width = f"data/{tensor.storage.key}", tensor.dtype.item_bytes
        self.archive.read_into(name, first * width, out, known=name in self._checked)
        self._checked.add(name)


def _span(tensor: TensorRef) -> tuple[int, int]:
    """The first of a tensor's elements in its storage, and the one after the last."""
    if 0 in tensor.size:
        return tensor.offset, tensor.offset
    reach = sum((size - 1) * step for size, step in zip(tensor.size, tensor.stride))
    return tensor.offset, tensor.offset + reach + 1


def _is_packed(tensor: TensorRef) -> bool:
    step = 1
    for size, stride in zip(reversed(tensor.size), reversed(tensor.stride)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def storages_bytes(file: TorchFile) -> int:
    """Bytes of all storages of the file."""
    return sum(entry.length for name, entry in file.archive.entries.items() if name.startswith("data/"))
