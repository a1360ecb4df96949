"""Value trees: what a framework's state holds beside tensors, without loss (9.1 and 16.6 of the specification).

`to_tree` refuses what it cannot write so that it comes back the same in type, order and bits, and says where it stands.
`from_tree` makes objects of a fixed list of types and never looks anything up by a name that it reads. Not kept: that
two places hold one object (a tree has it twice), the device and strides of a tensor, the byte order of an array.
"""

from __future__ import annotations

import collections
import hashlib
import re
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import numpy as np

from . import _scalars as scalars
from . import arrays, dtypes
from ._json import canonical
from ._registry import DTYPES
from .errors import Error, error, usage
from .key import NAME_BYTES, UNNAMEABLE, Key
from .snapshot import Piece

Path = tuple[str | int, ...]
PutTensor = Callable[[object, Path, str], Key]
"""Stores a tensor, or long bytes as `uint8`, that stand at a path of the object, under a role, and says its
identity."""

INLINE_BYTES = 8192
"""More bytes than this are a tensor of role `blob`."""
INTEGER_DIGITS = 4300
"""Decimal digits of the longest integer that a tree may have."""
DEPTH = 97
"""Levels of JSON that a tree may have: of the 100 of metadata, page and record take three."""
SIZE = 2**24
"""Values that a tree may have; what holds others counts as several."""
_HOLDER = 16
_BARE = 2**53 - 1


class Stored(Protocol):
    """A tensor that a tree names, as `Checkpoint.tensor` gives it."""

    def numpy(self) -> np.ndarray[Any, Any]: ...
    def torch(self) -> Any: ...
    def raw(self) -> np.ndarray[Any, np.dtype[np.uint8]]: ...


GetTensor = Callable[[Key], Stored]


@dataclass(frozen=True)
class Typed:
    """A value of a type that is not among those that are made here: its name, and its tree as it was read."""

    name: str
    tree: Any


@dataclass
class TreeTensors:
    """A `PutTensor` that keeps what it is given as pieces of a snapshot.

    A tensor at the path `("state", 0, "step")` of the object `name` is called `name/state/0/step`.
    """

    name: str
    component: str = "main"
    scope: tuple[tuple[str, int], ...] = ()
    slot: str | None = None
    """Of those of role `extension`."""
    pieces: list[Piece] = field(default_factory=list)
    _taken: set[Key] = field(default_factory=set)

    def __call__(self, data: object, path: Path, role: str) -> Key:
        name = "/".join([self.name, *(_escaped(step) for step in path)])
        key = None
        if not UNNAMEABLE.search(name) and len(name.encode()) <= NAME_BYTES:
            key = self._key(name, role)
        if key is None or key in self._taken:
            # Paths differ where their names do not (1 and "1"), or the name would not be one: the path decides.
            digest = hashlib.sha256(ascii((self.name, *path)).encode()).hexdigest()
            key = self._key(f"tree/{digest}", role)
        self._taken.add(key)
        self.pieces.append(Piece.whole(key, data))
        return key

    def _key(self, name: str, role: str) -> Key:
        return Key(self.component, role, name, self.slot if role == "extension" else None, None, self.scope)


def to_tree(obj: Any, put_tensor: PutTensor | None = None) -> Any:
    """The value tree of `obj`, as JSON has it: None, booleans, integers, strings, lists and dicts.

    Raises `bad-argument` for a type without a tree, a key that is neither string nor integer, a number or string that
    metadata cannot hold, and `limit` for what is too large or nested too deep (or contains itself), each with the
    place.
    """
    return _Writer(put_tensor).tree(obj, (), 1)


def from_tree(tree: Any, get_tensor: GetTensor | None = None, *, carry: bool = False) -> Any:
    """The object of a value tree.

    A tensor without a type is one of PyTorch. With `carry` a type that is not known here becomes a `Typed`, which
    `to_tree` writes as it was; otherwise it is `bad-argument`, with the place. Raises `bad-member` for what is no tree.
    """
    return _Reader(get_tensor, carry).value(tree, ())


def keys_in(tree: Any) -> list[Key]:
    """The identities of all tensors that a tree names, in its order."""
    found: list[Key] = []
    _keys_in(tree, found)
    return found


def _keys_in(tree: Any, found: list[Key]) -> None:
    if type(tree) is list:
        for item in tree:
            _keys_in(item, found)
    elif type(tree) is dict:
        for member, item in tree.items():
            if member == "tensor":
                found.append(Key.from_identity(item))
            else:
                _keys_in(item, found)


class _Writer:
    def __init__(self, put_tensor: PutTensor | None) -> None:
        self.put_tensor = put_tensor
        self.torch = sys.modules.get("torch")
        self.size = 0

    def tree(self, obj: Any, path: Path, level: int) -> Any:
        kind = type(obj)
        if obj is None or kind is bool:
            return obj
        if kind is str:
            return _text(obj, path)
        if kind is int:
            return _integer(obj, path)
        if kind is float:
            made: Any = scalars.f64(obj)
        elif level >= DEPTH and kind is not bytes:
            _too_deep(path)
        else:
            made = self.composite(obj, path, level)
        if level > DEPTH - _LEAF and level + _depth(made) - 1 > DEPTH:
            _too_deep(path)
        return made

    def composite(self, obj: Any, path: Path, level: int) -> Any:
        kind = type(obj)
        if isinstance(obj, (list, tuple, dict, set, frozenset)):
            # An object that stands in two places is written twice, its own twice too, and so on: 2^n for n levels.
            self.size += _HOLDER + len(obj)
            if self.size > SIZE:
                _too_large(path)
        if kind is list or kind is tuple:
            return {kind.__name__: self.items(obj, path, level)}
        if kind is dict:
            return {"map": self.pairs(obj, path, level)}
        if kind is bytes or kind is bytearray:
            return self.bytes(obj, path)
        if kind in (set, frozenset):
            members = (self.tree(item, (*path, index), level + 3) for index, item in enumerate(obj))
            return _typed(kind.__name__, {"list": sorted(members, key=_sorted_as)})
        if kind is complex:
            return _typed("complex", {"tuple": [scalars.f64(obj.real), scalars.f64(obj.imag)]})
        if kind is Typed:
            return _typed(obj.name, obj.tree)
        return self.collection(obj, path, level)

    def items(self, obj: Iterable[Any], path: Path, level: int) -> list[Any]:
        return [self.tree(item, (*path, index), level + 2) for index, item in enumerate(obj)]

    def pairs(self, obj: dict[Any, Any], path: Path, level: int) -> list[Any]:
        out = []
        for key, item in obj.items():
            if type(key) is str:
                name: Any = _text(key, path)
            elif type(key) is int:
                name = _integer(key, path)
            else:
                _refuse(path, f"the key {key!r} is a {type(key).__name__}: only strings and integers have a tree")
            out.append([name, self.tree(item, (*path, key), level + 3)])
        return out

    def collection(self, obj: Any, path: Path, level: int) -> Any:
        kind = type(obj)
        if kind is collections.OrderedDict:
            extra = dict(vars(obj))
            pairs = {"map": self.pairs(obj, path, level + 2)}
            if not extra:
                return _typed("collections.OrderedDict", pairs)
            if set(extra) != {"_metadata"}:
                _refuse(path, f"an OrderedDict with attributes {sorted(extra)} of its own has no tree")
            metadata = self.tree(extra["_metadata"], (*path, "_metadata"), level + 5)
            both = [["items", _typed("collections.OrderedDict", pairs)], ["metadata", metadata]]
            return _typed(_STATE_DICT, {"map": both})
        if kind is collections.Counter:
            return _typed("collections.Counter", {"map": self.pairs(obj, path, level + 2)})
        if kind is collections.defaultdict:
            if obj.default_factory is not None:
                _refuse(path, f"a defaultdict that makes {obj.default_factory!r} would lose it: save dict(…) of it")
            return _typed("collections.defaultdict", {"map": self.pairs(obj, path, level + 2)})
        if isinstance(obj, np.generic):
            tree = scalars.to_tree(obj)
            if tree is None:
                _refuse(path, f"numpy.{kind.__name__} has no tree")
            return tree
        if isinstance(obj, np.dtype):
            name = scalars.dtype_text(obj)
            if name is None:
                _refuse(path, f"the element type {obj} has no tree: only plain ones have")
            return _typed("numpy.dtype", name)
        if kind is np.ndarray:
            return _typed("numpy.ndarray", self.tensor(obj, path, "extension"))
        if self.torch is not None:
            made = self.of_torch(obj, path)
            if made is not None:
                return made
        _refuse(
            path,
            f"{kind.__module__}.{kind.__qualname__} has no tree: make of it dicts, lists, numbers, strings, "
            f"bytes and tensors",
        )

    def of_torch(self, obj: Any, path: Path) -> Any:
        torch, kind = self.torch, type(obj)
        assert torch is not None
        if kind is torch.Tensor:
            if obj.requires_grad:
                _refuse(path, "a tensor that requires a gradient would come back without: detach() it first")
            return self.tensor(obj, path, "extension")
        if kind is torch.nn.Parameter:
            data = self.tensor(obj.detach(), path, "extension")
            return _typed(_PARAMETER, {"map": [["data", data], ["requires_grad", obj.requires_grad]]})
        if kind is torch.Size:
            return _typed("torch.Size", {"tuple": [_integer(int(number), path) for number in obj]})
        if kind is torch.dtype:
            name = str(obj)
            if name not in _torch_dtypes():
                _refuse(path, f"{name} is not among the types of tensors that are known here")
            return _typed("torch.dtype", name)
        if kind is torch.device:
            return _typed("torch.device", str(obj))
        return None

    def bytes(self, obj: bytes | bytearray, path: Path) -> Any:
        kind = type(obj).__name__
        if len(obj) > INLINE_BYTES:
            # A bytearray may change before its tensor is written: the tree is of now.
            return _typed(kind, self.tensor(np.frombuffer(bytes(obj), np.uint8), path, "blob"))
        plain = {"bytes": obj.hex()}
        return plain if kind == "bytes" else _typed(kind, plain)

    def tensor(self, data: Any, path: Path, role: str) -> Any:
        if self.put_tensor is None:
            _refuse(path, "a tensor or long bytes: nothing was given that stores them (put_tensor)")
        try:
            if arrays.is_torch(data):
                arrays.plain_tensor(data)
            return {"tensor": self.put_tensor(data, path, role).identity}
        except Error as why:
            raise _placed(why, path) from why


class _Reader:
    def __init__(self, get_tensor: GetTensor | None, carry: bool) -> None:
        self.get_tensor = get_tensor
        self.carry = carry

    def value(self, tree: Any, path: Path) -> Any:
        kind = type(tree)
        if tree is None or kind in (bool, str, int):
            return tree
        if kind is not dict or len(tree) != 1:
            _malformed(path, f"{_short(tree)} is no value tree")
        ((member, inside),) = tree.items()
        if member == "f64":
            return struct.unpack(">d", _hex(inside, 8, path))[0]
        if member == "map":
            return dict(self.pairs(inside, path))
        if member == "list":
            return self.items(inside, path)
        if member == "tuple":
            return tuple(self.items(inside, path))
        if member == "tensor":
            return self.stored(inside, path).torch()
        if member == "int":
            return _big(inside, path)
        if member == "f32":
            return struct.unpack(">f", _hex(inside, 4, path))[0]
        if member == "bytes":
            return _hex(inside, None, path)
        if member == "type" and type(inside) is list and len(inside) == 2 and type(inside[0]) is str:
            return self.typed(inside[0], inside[1], path)
        _malformed(path, f"{_short(tree)} is no value tree")

    def items(self, inside: Any, path: Path) -> list[Any]:
        if type(inside) is not list:
            _malformed(path, "a list or tuple has a list of trees")
        return [self.value(item, (*path, index)) for index, item in enumerate(inside)]

    def pairs(self, inside: Any, path: Path) -> list[tuple[str | int, Any]]:
        if type(inside) is not list:
            _malformed(path, "a map has a list of pairs")
        out = []
        for pair in inside:
            if type(pair) is not list or len(pair) != 2:
                _malformed(path, f"{_short(pair)} is no pair of a map")
            key = pair[0]
            if type(key) is dict and set(key) == {"int"}:
                key = _big(key["int"], path)
            if type(key) not in (str, int):
                _malformed(path, f"{_short(key)} is no key of a map")
            out.append((key, self.value(pair[1], (*path, key))))
        if len({key for key, _ in out}) != len(out):
            _malformed(path, "a map has a key twice")
        return out

    def stored(self, inside: Any, path: Path) -> Stored:
        if self.get_tensor is None:
            _refuse(path, "the tree names a tensor, and nothing was given that reads it (get_tensor)")
        try:
            return self.get_tensor(Key.from_identity(inside))
        except Error as why:
            raise _placed(why, path) from why

    def typed(self, name: str, tree: Any, path: Path) -> Any:
        make = _MAKE.get(name)
        if make is not None:
            return make(self, tree, path)
        if scalars.known(name):
            try:
                return scalars.from_tree(name, tree)
            except (TypeError, KeyError, ValueError, OverflowError):
                _malformed(path, f"{_short(tree)} is no {name}")
        if self.carry:
            return Typed(name, tree)
        _refuse(path, f"the type {name!r} is not among those that are made here (carry=True hands its tree back)")

    def of(self, member: str, tree: Any, path: Path) -> Any:
        """The value of a tree that must have the one member."""
        if type(tree) is not dict or set(tree) != {member}:
            _malformed(path, f"a tree with {member!r} belongs here, not {_short(tree)}")
        return self.value(tree, path)

    def text(self, tree: Any, path: Path) -> str:
        if type(tree) is not str:
            _malformed(path, f"a string belongs here, not {_short(tree)}")
        return tree

    def buffer(self, tree: Any, path: Path) -> bytes:
        if type(tree) is dict and set(tree) == {"tensor"}:
            return self.stored(tree["tensor"], path).raw().tobytes()
        value = self.of("bytes", tree, path)
        assert type(value) is bytes
        return value

    def ndarray(self, tree: Any, path: Path) -> np.ndarray[Any, Any]:
        if type(tree) is not dict or set(tree) != {"tensor"}:
            _malformed(path, f"a tensor belongs here, not {_short(tree)}")
        return self.stored(tree["tensor"], path).numpy()

    def members(self, names: tuple[str, ...], tree: Any, path: Path) -> list[Any]:
        found = self.of("map", tree, path)
        if tuple(found) != names:
            _malformed(path, f"a map of {', '.join(names)} belongs here, not {_short(tree)}")
        return list(found.values())

    def hashable(self, make: Callable[[list[Any]], Any], tree: Any, path: Path) -> Any:
        found = self.of("list", tree, path)
        try:
            made = make(found)
        except TypeError:
            _malformed(path, "a set has a member that cannot be one")
        if len(made) != len(found):
            _malformed(path, "a set has a member twice")
        return made


def _complex(reader: _Reader, tree: Any, path: Path) -> complex:
    parts = reader.of("tuple", tree, path)
    if len(parts) != 2 or type(parts[0]) is not float or type(parts[1]) is not float:
        _malformed(path, "a complex number has two floats")
    return complex(parts[0], parts[1])


def _state_dict(reader: _Reader, tree: Any, path: Path) -> Any:
    items, metadata = reader.members(("items", "metadata"), tree, path)
    if type(items) is not collections.OrderedDict:
        _malformed(path, "the items of a module's state are an OrderedDict")
    items._metadata = metadata  # type: ignore[attr-defined]
    return items


def _parameter(reader: _Reader, tree: Any, path: Path) -> Any:
    data, requires_grad = reader.members(("data", "requires_grad"), tree, path)
    torch = dtypes.import_torch()
    if type(data) is not torch.Tensor or type(requires_grad) is not bool:
        _malformed(path, "a parameter is a tensor and whether it requires a gradient")
    return torch.nn.Parameter(data, requires_grad=requires_grad)


def _size(reader: _Reader, tree: Any, path: Path) -> Any:
    numbers = reader.of("tuple", tree, path)
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        _malformed(path, "a size has integers from 0 on")
    return dtypes.import_torch().Size(numbers)


def _torch_dtype(reader: _Reader, tree: Any, path: Path) -> Any:
    name = reader.text(tree, path)
    dtypes.import_torch()
    found = _torch_dtypes().get(name)
    if found is None:
        _refuse(path, f"{name!r} is not among the types of tensors that are known here")
    return found


def _torch_device(reader: _Reader, tree: Any, path: Path) -> Any:
    name = reader.text(tree, path)
    if not _DEVICE.fullmatch(name):
        _malformed(path, f"{name!r} is no device")
    try:
        return dtypes.import_torch().device(name)
    except RuntimeError as why:
        _refuse(path, f"PyTorch knows no device {name!r}: {str(why).splitlines()[0]}")


def _numpy_dtype(reader: _Reader, tree: Any, path: Path) -> np.dtype[Any]:
    name = reader.text(tree, path)
    try:
        return scalars.dtype_of(name)
    except (TypeError, ValueError):
        _malformed(path, f"{name!r} is no type of NumPy's elements that has a tree")


_STATE_DICT = "torch.nn.Module.state_dict"
_PARAMETER = "torch.nn.Parameter"
_MAKE: dict[str, Callable[[_Reader, Any, Path], Any]] = {
    "collections.OrderedDict": lambda r, tree, path: collections.OrderedDict(r.of("map", tree, path)),
    "collections.Counter": lambda r, tree, path: collections.Counter(r.of("map", tree, path)),
    "collections.defaultdict": lambda r, tree, path: collections.defaultdict(None, r.of("map", tree, path)),
    "bytes": lambda r, tree, path: r.buffer(tree, path),
    "bytearray": lambda r, tree, path: bytearray(r.buffer(tree, path)),
    "complex": _complex,
    "set": lambda r, tree, path: r.hashable(set, tree, path),
    "frozenset": lambda r, tree, path: r.hashable(frozenset, tree, path),
    "numpy.ndarray": lambda r, tree, path: r.ndarray(tree, path),
    "numpy.dtype": _numpy_dtype,
    "torch.Size": _size,
    "torch.dtype": _torch_dtype,
    "torch.device": _torch_device,
    _STATE_DICT: _state_dict,
    _PARAMETER: _parameter,
}

# The levels that a value without values in it takes at most.
_LEAF = 6

_DEVICE = re.compile("[a-z]{1,16}(:[0-9]{1,4})?")
_INTEGER = re.compile("-?[1-9][0-9]*")
_HEX = re.compile("([0-9a-f][0-9a-f])*")

# What PyTorch has beside the types of the registry: their names are values, their tensors are not.
_MORE_TORCH = (
    "complex32",
    "bcomplex32",
    "qint8",
    "quint8",
    "qint32",
    "quint4x2",
    "quint2x4",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "bits8",
    "bits16",
    *(f"{sign}int{width}" for sign in ("", "u") for width in range(1, 8)),
)


def _torch_dtypes() -> dict[str, Any]:
    """The types of the PyTorch that is here, by name: of a fixed list."""
    torch = sys.modules.get("torch")
    names = (*(row.torch for row in DTYPES.values() if row.torch is not None), *_MORE_TORCH)
    return {f"torch.{name}": getattr(torch, name) for name in names if hasattr(torch, name)}


def _typed(name: str, tree: Any) -> dict[str, Any]:
    return {"type": [name, tree]}


def _sorted_as(tree: Any) -> str:
    return canonical(tree)


def _text(text: str, path: Path) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(path, f"{text!r} holds a half of a surrogate pair, which UTF-8 cannot: keep it as bytes")
    return text


def _integer(number: int, path: Path) -> Any:
    if -_BARE <= number <= _BARE:
        return number
    digits = scalars.digits_of(number, INTEGER_DIGITS)
    if digits is None:
        raise error(
            "limit",
            f"at {_place(path)}: an integer of {number.bit_length()} bits has more than {INTEGER_DIGITS} digits",
            remedy="Keep it as bytes: number.to_bytes(…).",
        )
    return {"int": digits}


def _big(text: Any, path: Path) -> int:
    if type(text) is not str or not _INTEGER.fullmatch(text):
        _malformed(path, f"{_short(text)} is no integer")
    if len(text.removeprefix("-")) > INTEGER_DIGITS:
        raise error("limit", f"at {_place(path)}: an integer has {len(text)} digits, more than {INTEGER_DIGITS}")
    try:
        number = int(text)
    except ValueError:
        _refuse(path, f"an integer of {len(text)} digits is longer than Python reads")
    if -_BARE <= number <= _BARE:
        _malformed(path, f"{number} stands bare")
    return number


def _hex(text: Any, size: int | None, path: Path) -> bytes:
    if type(text) is not str or not _HEX.fullmatch(text) or (size is not None and len(text) != 2 * size):
        _malformed(path, f"{_short(text)} are no bytes in hex")
    return bytes.fromhex(text)


def _escaped(step: str | int) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")


def _place(path: Path) -> str:
    return "the value" + "".join(f"[{step!r}]" for step in path)


def _short(tree: Any) -> str:
    text = repr(tree)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _placed(why: Error, path: Path) -> Error:
    """`why` with the place in the object in front."""
    return why.with_message(f"at {_place(path)}: {why.message}")


def _depth(tree: Any) -> int:
    inside = tree.values() if type(tree) is dict else tree if type(tree) is list else None
    return 0 if inside is None else 1 + max(map(_depth, inside), default=0)


def _too_deep(path: Path) -> NoReturn:
    raise error(
        "limit",
        f"at {_place(path)}: nested deeper than metadata can be, or contains itself",
        remedy="Store deep structures flat, or as tensors.",
    )


def _too_large(path: Path) -> NoReturn:
    raise error(
        "limit",
        f"at {_place(path)}: the value has more than {SIZE} values in it, counting an object once for each place that "
        f"holds it, and lists, tuples, sets and dicts as {_HOLDER}",
        remedy="Store large values as tensors, and what many places hold once.",
    )


def _refuse(path: Path, why: str) -> NoReturn:
    raise usage(f"at {_place(path)}: {why}")


def _malformed(path: Path, why: str) -> NoReturn:
    raise error("bad-member", f"at {_place(path)}: {why}", rule="value.form")
