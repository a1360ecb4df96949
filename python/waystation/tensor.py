"""One tensor of a checkpoint: what it is, without reading it, and its elements, when they are asked for.

Every read is a copy, verified as it was opened; `map` alone is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import _destination as destination
from . import _index as indices
from . import arrays, dtypes
from .errors import error, usage
from .key import Key
from .snapshot import Native

if TYPE_CHECKING:
    import torch

    from . import _core
    from ._reading import Source

Region = tuple[tuple[int, ...], tuple[int, ...]]
"""start, extent"""

_PART = 1 << 26  # bytes that iteration reads at once


class Tensor:
    """A tensor, or an alias of one. `t[2:4, ..., ::2]` reads that much into NumPy.

    `dtype` is an id of the registry (`"BF16"`), `shape` the global one. Where the elements are asked for, everything of
    them is read and checked before anything is handed out.
    """

    __slots__ = ("_entry", "_source", "_target", "dtype", "key", "shape")

    dtype: str
    """Id of the registry."""
    shape: tuple[int, ...]
    """The global shape, in elements."""

    def __init__(self, source: Source, entry: _core.Entry) -> None:
        self._source, self._entry = source, entry
        self.key = Key.of(entry.key)
        of = entry.of
        self._target = self.key if of is None else Key.of(of)
        self.dtype, self.shape = entry.dtype, entry.shape

    @property
    def name(self) -> str:
        """The parameter's or buffer's own name."""
        return self.key.name

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements that are stored."""
        size = 1
        for number in self._box(self.shape):
            size *= number
        return size

    @property
    def nbytes(self) -> int:
        """Bytes in the files."""
        return self._entry.nbytes

    @property
    def chunks(self) -> list[Region]:
        """The boxes in which it is stored: start and extent."""
        return self._entry.chunks

    @property
    def axes(self) -> tuple[int | None, ...] | None:
        """Which axis of its parameter each axis of a slot follows."""
        return self._entry.axes

    @property
    def valid(self) -> tuple[int, ...] | None:
        """The part of a padded shape that means something; None: all of it."""
        return self._entry.valid

    @property
    def block(self) -> int | None:
        """Of a flat companion: one element stands for each run of so many elements of the box."""
        return self._entry.block

    @property
    def native(self) -> Native:
        """What frameworks called it."""
        return tuple((framework, tuple(path)) for framework, path in self._entry.native)

    @property
    def alias_of(self) -> Key | None:
        """The tensor whose elements these are, where this is a second name."""
        return None if self._target is self.key else self._target

    def numpy(self, index: indices.Index = ...) -> np.ndarray[Any, Any]:
        """A new array. `index` is a basic one: integers, slices with any step, `...`, `None`.

        Of a slice with a step all between its ends is read, and what it skips let go. Raises `bad-region` (an
        IndexError) beyond the shape, `unsupported-dtype` without ml_dtypes, `limit` beyond the checkpoint's memory
        budget, and what damage there is.
        """
        return np.asarray(self[index])

    def __getitem__(self, index: indices.Index) -> Any:
        """As NumPy's, read from the files: an index of integers alone gives a single number."""
        cut = self._cut(index)
        made = destination.new("numpy", self.dtype, self._box(cut.extent))
        self._read(cut, made)
        array = made.finish()
        if cut.plain:
            return array
        part = array[cut.rest]
        # A view would keep alive what a step left out.
        return part if part.size == array.size else part.copy()

    def torch(self, device: str | torch.device | int | None = None, index: indices.Index = ...) -> torch.Tensor:
        """A new tensor of PyTorch, on the CPU or `device`; otherwise as `numpy`."""
        cut = self._cut(index)
        if cut.plain:
            made = destination.new("torch", self.dtype, self._box(cut.extent), device)
            self._read(cut, made)
            return made.finish()  # type: ignore[no-any-return]
        if dtypes.bits(self.dtype) < 8:
            raise usage(
                f"{self.dtype} in PyTorch is read in whole boxes: index without integers, steps and new axes",
                tensor=self.key.text,
            )
        # PyTorch has no negative steps: cut the elements as bytes, which any type is made of.
        torch = dtypes.import_torch()
        kind, width = dtypes.torch_dtype(self.dtype), dtypes.bits(self.dtype) // 8
        raw = np.empty((*self._box(cut.extent), width), np.uint8)
        self._read(cut, destination.Destination(raw.reshape(-1), lambda: None))
        part = np.ascontiguousarray(raw[cut.rest + (slice(None),)])
        made_of = torch.from_numpy(part.reshape(-1)).view(kind).reshape(part.shape[:-1])
        return made_of if device is None else made_of.to(device)  # type: ignore[no-any-return]

    def raw(self, region: Region | None = None) -> arrays.Bytes:
        """The bytes as one chunk of a file would have them: row-major, little-endian, packed; of any element type."""
        cut = self._region(region)
        made = np.empty(dtypes.packed_bytes(self.dtype, self._box(cut.extent)), np.uint8)
        self._read(cut, destination.Destination(made, lambda: made))
        return made

    def read_into(self, out: Any, region: Region | None = None) -> None:
        """Reads into an array of exactly this type and shape (a `bytearray`: of the bytes of `raw`), and casts nothing.

        Into contiguous host memory it reads directly, a part at a time where the memory budget asks for that. After an
        error the elements of `out` are undefined.
        """
        cut = self._region(region)
        made = destination.into(out, self.dtype, self._box(cut.extent))
        self._read(cut, made)
        made.finish()

    def map(self, framework: destination.Framework = "numpy") -> Any:
        """The elements where they lie: a private mapping of the file, writable, and nothing written reaches it.

        Everything is verified first. While the array lives the file must not be truncated by anybody: the rest of its last
        page would read as zeros, and the process die of SIGBUS at the first element after that. Raises `not-one-run` where the elements do not lie in one piece, `bad-argument` for elements
        below a byte in NumPy.
        """
        if framework not in ("numpy", "torch"):
            raise usage(f"framework is 'numpy' or 'torch', not {framework!r}")
        shape = self._box(self.shape)
        if framework == "torch":
            torch = dtypes.import_torch()
            kind = dtypes.torch_dtype(self.dtype)
            within = destination.torch_shape(self.dtype, shape)
            flat = torch.from_dlpack(self._source.core.map(self._target))
            return flat.view(kind).reshape(within)
        if dtypes.bits(self.dtype) < 8:
            raise usage(
                f"NumPy keeps {self.dtype} one a byte, so nothing can be shared: use numpy() or raw()",
                tensor=self.key.text,
            )
        array = np.from_dlpack(self._source.core.map(self._target))
        return array.view(dtypes.numpy_dtype(self.dtype)).reshape(shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("reading a tensor makes a copy: map() makes none")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **how: Any) -> Any:
        """A fresh copy in host memory."""
        if how.get("copy") is False:
            raise BufferError("reading a tensor makes a copy: map() makes none")
        if dtypes.row(self.dtype).numpy is not None:
            return self.numpy().__dlpack__(**{name: given for name, given in how.items() if name != "copy"})
        return self.torch().__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Along the first axis, many rows read at a time."""
        if not self.shape:
            raise TypeError("a tensor without axes is not iterated over")
        return (row for part in self._parts() for row in part)

    def __contains__(self, value: object) -> bool:
        """Whether an element equals `value`."""
        return any(bool(np.any(part == value)) for part in self._parts())

    def __float__(self) -> float:
        return float(self._one())

    def __int__(self) -> int:
        return int(self._one())

    def __complex__(self) -> complex:
        return complex(self._one())

    def __bool__(self) -> bool:
        """Of a single element, as in NumPy and PyTorch; `bad-argument` for any other number of them."""
        return bool(self._one())

    # It stands for what is in the files, which nobody changes.
    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: object) -> Tensor:
        return self

    def __reduce__(self) -> NoReturn:
        raise usage(
            "a tensor of an open checkpoint is not pickled",
            tensor=self.key.text,
            remedy="Read it first (numpy(), torch()), or pickle the checkpoint and ask it for the tensor again.",
        )

    def __repr__(self) -> str:
        said = f"<Tensor {_short(self.key)}: {self.dtype} {list(self.shape)}"
        return f"{said}, alias of {_short(self.alias_of)}>" if self.alias_of is not None else f"{said}>"

    def _one(self) -> Any:
        if self.size != 1:
            raise usage(
                f"a tensor of {self.size} elements is neither a number nor true or false",
                tensor=self.key.text,
                remedy="Index it, or compare with None to see whether there is one.",
            )
        return self.numpy().reshape(-1)[0]

    def _parts(self) -> Iterator[np.ndarray[Any, Any]]:
        """All elements, as many rows at a time as a part has room for."""
        if not self.shape or self.block is not None or self.size == 0:
            yield self.numpy()
            return
        budget = self._source.memory_budget
        rows = max(1, min(_PART, budget or _PART) * self.shape[0] // max(1, self.nbytes))
        for first in range(0, self.shape[0], rows):
            yield self.numpy((slice(first, first + rows),))

    def _cut(self, index: indices.Index) -> indices.Cut:
        if self.block is not None:
            if index is not ...:
                raise error("block-boundary", f"one element stands for {self.block}: read it whole, or raw by region")
            return indices.whole(self.shape)
        return indices.cut(index, self.shape)

    def _region(self, region: Region | None) -> indices.Cut:
        whole = indices.whole(self.shape)
        if region is None:
            return whole
        start, extent = tuple(region[0]), tuple(region[1])
        # Only what sizes memory is checked here; the region itself, by who reads it.
        if any(number < 0 for number in (*start, *extent)) or any(e > s for e, s in zip(extent, self.shape)):
            raise error("bad-region", f"from {list(start)}, {list(extent)} is not within {list(self.shape)}")
        return indices.Cut(start, extent, whole.rest)

    def _box(self, extent: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what is stored for a box: flat, for a flat companion."""
        if self.block is None:
            return extent
        count = 1
        for number in extent:
            count *= number
        return (-(-count // self.block),)

    def _read(self, cut: indices.Cut, made: destination.Destination) -> None:
        self._source.read(self, cut.start, cut.extent, made)


def _short(key: Key) -> str:
    """A key for people: what is as usual, a param or buffer of the component `main`, goes unsaid."""
    said = key.name if key.component == "main" else f"{key.component}:{key.name}"
    more = [] if key.role in ("param", "buffer") else [" ".join(filter(None, (key.role, key.owner, key.slot)))]
    more += [f"{axis}={index}" for axis, index in key.scope]
    return f"{said} ({', '.join(more)})" if more else said
