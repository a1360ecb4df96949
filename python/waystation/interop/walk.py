"""What a pickle holds, unfolded: leaves with their paths, and value trees (chapter 9.1 and 16.6) of leaves.

A pickle is a graph; a container in many places, or in itself, would unfold into more than there is memory. So
unfolding has a depth and a budget that the pickle's own length gives. Whatever has no typed form is refused, with its
path and class.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from .. import _scalars as scalars
from .._json import canonical
from ..errors import Error
from ..key import Key
from .pickle_machine import Global, Inert, Odict, OddKey, SetOf, Unknown
from .refusal import Place, refuse
from .torch_globals import Layout, NumpyArray, NumpyDtype, StorageRef, TensorRef, TorchDevice, TorchDtype, TorchSize

Path = tuple["str | int", ...]
PutTensor = Callable[[object, Path], Key]
"""Stores a tensor, an array or long bytes that stand within a value; the path is that of the place."""

MAX_DEPTH: Final = 40
"""Containers within containers: a tree takes two levels of JSON for each, of which there are 100."""
_EXACT: Final = 2**53 - 1
_INLINE_BYTES: Final = 8192
_INTEGER_DIGITS: Final = 4300


class Budget:
    """How many values may still be met: as many as a pickle of that length can have without sharing, and some more."""

    def __init__(self, pickle_bytes: int, place: Place) -> None:
        self.left = 4 * pickle_bytes + 10_000
        self.place = place

    def spend(self, count: int = 1) -> None:
        """Meets so many."""
        self.left -= count
        if self.left < 0:
            raise refuse("the pickle unfolds into far more values than it has bytes: it repeats itself", self.place)


class NoForm(Exception):
    """A value that has no typed form: why. The caller knows the key."""

    def __init__(self, why: str, path: Path) -> None:
        Exception.__init__(self, why, path)
        self.why = why
        self.path = path


def flatten(root: dict[object, object], budget: Budget) -> Iterator[tuple[Path, object]]:
    """All leaves of a state dict, split as `torch.distributed.checkpoint` splits them.

    Mappings are descended into, and lists that hold tensors or mappings. Keys of mappings become text, as there; two
    keys that become the same text are refused. Empty mappings are leaves, so that they are not lost.
    """
    # By hand and not by recursion: the depth is the file's choice.
    known: dict[int, bool] = {}
    stack: list[tuple[Path, Iterator[tuple[str | int, object]]]] = [((), _items(root, (), budget.place))]
    while stack:
        path, items = stack[-1]
        step = next(items, None)
        if step is None:
            stack.pop()
            continue
        budget.spend()
        here, value = (*path, step[0]), step[1]
        inner: Iterator[tuple[str | int, object]] | None = None
        if isinstance(value, dict) and value:
            inner = _items(value, here, budget.place)
        elif isinstance(value, list) and _holds_more(value, known, budget.place):
            inner = iter(enumerate(value))
        if inner is None:
            yield here, value
            continue
        if len(stack) > MAX_DEPTH:
            raise refuse(f"more than {MAX_DEPTH} containers within one another", budget.place, code="limit")
        stack.append((here, inner))


def _items(mapping: dict[object, object], path: Path, place: Place) -> Iterator[tuple[str | int, object]]:
    seen: set[str] = set()
    for key, value in mapping.items():
        if type(key) is not str and type(key) is not int:
            raise refuse(
                f"{show(path)} has a key that is {describe_key(key)}: only text and integers have a form", place
            )
        text = str(key)
        if text in seen:
            raise refuse(f"{show(path)} has the key {text!r} both as text and as a number", place)
        seen.add(text)
        yield text, value


def _holds_more(items: list[object], known: dict[int, bool], place: Place, depth: int = 0) -> bool:
    """Whether a list, or a list in it, holds a tensor or a mapping. `known` has the lists that were looked at."""
    found = known.get(id(items))
    if found is not None:
        return found
    if depth > MAX_DEPTH:
        raise refuse(f"more than {MAX_DEPTH} containers within one another", place, code="limit")
    known[id(items)] = False  # for one that holds itself
    found = any(
        isinstance(item, (TensorRef, dict)) or isinstance(item, list) and _holds_more(item, known, place, depth + 1)
        for item in items
    )
    known[id(items)] = found
    return found


def to_tree(value: object, path: Path, put_tensor: PutTensor, budget: Budget, depth: int = 0) -> Any:
    """The value tree of a leaf. Raises `NoForm`."""
    budget.spend()
    if depth > MAX_DEPTH:
        raise refuse(f"{show(path)}: more than {MAX_DEPTH} containers within one another", budget.place, code="limit")

    def inner(item: object, step: str | int) -> Any:
        return to_tree(item, (*path, step), put_tensor, budget, depth + 1)

    if value is None or value is True or value is False:
        return value
    if type(value) is str:
        return _text(value, path)
    if type(value) is int:
        return _integer(value, path)
    if type(value) is float:
        return {"f64": struct.pack(">d", value).hex()}
    if type(value) is bytes:
        return _bytes(value, path, put_tensor)
    if type(value) is bytearray:
        tree = _bytes(bytes(value), path, put_tensor)
        return _typed("bytearray", tree["type"][1] if "type" in tree else tree)
    if type(value) is complex:
        parts = [{"f64": struct.pack(">d", part).hex()} for part in (value.real, value.imag)]
        return _typed("complex", {"tuple": parts})
    if type(value) is list:
        return {"list": [inner(item, index) for index, item in enumerate(value)]}
    if type(value) is tuple:
        return {"tuple": [inner(item, index) for index, item in enumerate(value)]}
    if isinstance(value, dict):
        pairs = [[_tree_key(key, path), inner(item, _step(key))] for key, item in value.items()]
        return {"map": pairs} if not isinstance(value, Odict) else _ordered(value, pairs, inner, path)
    if isinstance(value, SetOf):
        items = sorted((inner(item, index) for index, item in enumerate(value.items)), key=canonical)
        if any(canonical(one) == canonical(next_) for one, next_ in zip(items, items[1:])):
            raise NoForm("a set that has one element twice", path)
        return _typed("frozenset" if value.frozen else "set", {"list": items})
    if isinstance(value, np.generic):
        number = scalars.to_tree(value)
        if number is None:
            raise NoForm(f"a numpy.{value.dtype.name}", path)
        return number
    return _inert(value, path, put_tensor)


def _inert(value: object, path: Path, put_tensor: PutTensor) -> Any:
    if isinstance(value, TensorRef):
        tensor = {"tensor": put_tensor(value, path).identity}
        if value.trained is None:
            return tensor
        return _typed("torch.nn.Parameter", {"map": [["data", tensor], ["requires_grad", value.trained]]})
    if isinstance(value, NumpyArray) and value.array is not None:
        return _typed("numpy.ndarray", {"tensor": put_tensor(value.array, path).identity})
    if isinstance(value, TorchSize):
        return _typed("torch.Size", {"tuple": [_integer(number, path) for number in value.numbers]})
    if isinstance(value, TorchDtype):
        return _typed("torch.dtype", value.name)
    if isinstance(value, TorchDevice):
        return _typed("torch.device", value.text)
    if isinstance(value, NumpyDtype):
        return _typed("numpy.dtype", scalars.dtype_text(value.dtype))
    raise NoForm(describe(value), path)


def describe(value: object) -> str:
    """What a value is that has no form, by its class; never by what it says, which a file chose."""
    if isinstance(value, Unknown):
        return f"an object of {value.name}, which is not on the list of classes that are read"
    if isinstance(value, StorageRef):
        return "a bare storage: save a tensor of it"
    if isinstance(value, Layout):
        return "a torch.layout"
    if isinstance(value, Global):
        return f"the class or function {value.name}"
    return (
        f"an object of {type(value).__name__}"
        if isinstance(value, Inert)
        else f"an object of {type(value).__qualname__}"
    )


def describe_key(key: object) -> str:
    """The class of a key of a mapping."""
    value = key.value if isinstance(key, OddKey) else key
    return "an object" if isinstance(value, Inert) else f"of {type(value).__name__}"


def show(path: Path) -> str:
    """A path, for people; what a file says in it is escaped."""
    # Cut before it is joined: a key may be a megabyte, and is told for each of its chunks.
    return ascii(".".join(str(step)[:200] for step in path)[:200])[1:-1][:200] or "the root"


def _typed(kind: str, tree: Any) -> dict[str, Any]:
    return {"type": [kind, tree]}


def _integer(number: int, path: Path) -> Any:
    if -_EXACT <= number <= _EXACT:
        return number
    digits = scalars.digits_of(number, _INTEGER_DIGITS)
    if digits is None:
        raise NoForm(f"an integer of more than {_INTEGER_DIGITS} digits", path)
    return {"int": digits}


def _text(text: str, path: Path) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise NoForm("text that is no Unicode", path) from None
    return text


def _tree_key(key: object, path: Path) -> Any:
    if type(key) is str:
        return _text(key, path)
    if type(key) is int:
        return _integer(key, path)
    raise NoForm(f"a mapping with a key that is {describe_key(key)}", path)


def _step(key: object) -> str | int:
    return key if type(key) is str or type(key) is int else "?"


def _bytes(data: bytes, path: Path, put_tensor: PutTensor) -> dict[str, Any]:
    if len(data) <= _INLINE_BYTES:
        return {"bytes": data.hex()}
    return _typed("bytes", {"tensor": put_tensor(data, path).identity})


def _ordered(value: Odict, pairs: list[Any], inner: Callable[[object, str], Any], path: Path) -> Any:
    tree = _typed(f"collections.{value.kind}", {"map": pairs})
    extra = set(value.attributes)
    if not extra:
        return tree
    if extra != {"_metadata"} or value.kind != "OrderedDict":
        raise NoForm(f"a {value.kind} with more to it than its items", path)
    # What `Module.state_dict()` gives.
    both = [["items", tree], ["metadata", inner(value.attributes["_metadata"], "_metadata")]]
    return _typed("torch.nn.Module.state_dict", {"map": both})


def refusal_of(why: NoForm, place: Place) -> Error:
    """The error for a value without a form."""
    return refuse(
        f"{show(why.path)} is {why.why}: it has no typed form",
        place,
        remedy="Leave it out of what is saved, or import with skip_unreadable=True, which lists it and goes on.",
    )
