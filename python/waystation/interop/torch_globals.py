"""What stands for PyTorch's, NumPy's and Python's classes in a pickle of `torch.save`: all that is understood.

PyTorch is not needed and never imported; NumPy's scalars and arrays are real ones, made of checked parts. A tensor is a
`TensorRef`: a window onto a storage that nobody has read. Makers check every argument, for they come out of a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeGuard

import numpy as np

from .._registry import DTYPES
from .pickle_machine import Global, Inert, Odict, SetOf, Unknown, put_pairs

ELEMENTS: Final = 1 << 56
"""No tensor has more, nor any file as many bytes."""
_AXES: Final = 64
_DTYPE_OF_TORCH: Final = {row.torch: row.id for row in DTYPES.values() if row.torch is not None}
_STORAGES: Final = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
# Element types of PyTorch that the registry lacks: known by name, so that what is refused is called what it is.
_OTHER_DTYPES: Final = (
    "complex32",
    "quint8",
    "qint8",
    "qint32",
    "quint4x2",
    "quint2x4",
    "bits8",
    "bits16",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    *(f"{sign}int{bits}" for sign in ("u", "") for bits in range(1, 8)),
)


class TorchDtype(Global):
    """`torch.bfloat16`: `name` is what follows the point, `dtype` the registry's id if there is one."""

    __slots__ = ("dtype", "torch_name")

    def __init__(self, torch_name: str) -> None:
        super().__init__(f"torch.{torch_name}")
        self.torch_name = torch_name
        self.dtype = _DTYPE_OF_TORCH.get(torch_name)

    @property
    def item_bytes(self) -> int:
        """Bytes of one of PyTorch's elements, 0 for those that the registry lacks."""
        return 0 if self.dtype is None else max(DTYPES[self.dtype].bits, 8) // 8

    @property
    def per_item(self) -> int:
        """Elements of the registry's type in one of PyTorch's: 2 for pairs of four bits."""
        return 2 if self.torch_name.endswith("_x2") else 1


class TorchSize(Inert):
    """A `torch.Size`."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.numbers = numbers


class TorchDevice(Inert):
    """A `torch.device`, by its text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Layout(Inert):
    """A `torch.layout`, by its text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class StorageRef(Inert):
    """Bytes of the archive: entry `data/<key>`; `dtype` is None for an untyped one, whose `count` is then bytes."""

    __slots__ = ("count", "dtype", "key")

    def __init__(self, key: str, dtype: TorchDtype | None, count: int) -> None:
        self.key = key
        self.dtype = dtype
        self.count = count


class Window(NamedTuple):
    """Where a tensor's elements lie: two tensors of one window are one."""

    storage: str
    dtype: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class TensorRef(Inert):
    """A tensor: `offset`, `size` and `stride` are in elements of PyTorch's type, as there."""

    __slots__ = ("dtype", "offset", "size", "storage", "stride", "trained", "why_not")

    def __init__(
        self, storage: StorageRef, dtype: TorchDtype, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
    ) -> None:
        self.storage = storage
        self.dtype = dtype
        self.offset = offset
        self.size = size
        self.stride = stride
        self.why_not: str | None = None
        """Why it has no form here, if it has none."""
        self.trained: bool | None = None
        """Of a parameter: whether it requires a gradient."""

    @property
    def window(self) -> Window:
        """What tells it from other tensors."""
        return Window(self.storage.key, self.dtype.torch_name, self.offset, self.size, self.stride)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in elements of the registry's type."""
        if self.dtype.per_item == 1 or not self.size:
            return self.size
        return (*self.size[:-1], self.size[-1] * self.dtype.per_item)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, packed."""
        return math.prod(self.size) * self.dtype.item_bytes


def find(module: str, name: str) -> Inert | None:
    """The table."""
    return _TABLE.get((module, name))


def persistent(reference: object) -> StorageRef | Unknown:
    """The storage that a pickle of `torch.save` refers to."""
    if not isinstance(reference, tuple) or len(reference) != 5 or reference[0] != "storage":
        raise ValueError("a reference to something that is no storage")
    kind, key, _location, count = reference[1:]
    if not isinstance(key, str) or not is_count(count):
        raise ValueError("a storage without a name or a length")
    if isinstance(kind, Unknown):
        return Unknown(kind.name)
    if not isinstance(kind, _StorageKind):
        raise ValueError("a storage of an unknown class")
    return StorageRef(key, kind.dtype, count)


class _StorageKind(Global):
    __slots__ = ("dtype",)

    def __init__(self, name: str, dtype: TorchDtype | None) -> None:
        super().__init__(name)
        self.dtype = dtype


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a number of elements that can be."""
    return type(value) is int and 0 <= value <= ELEMENTS


def counts(value: object, what: str) -> tuple[int, ...]:
    """The numbers of a size, stride or offset: few of them, and none too large to be told. Raises `ValueError`."""
    numbers = value.numbers if isinstance(value, TorchSize) else value
    if not isinstance(numbers, tuple) or len(numbers) > _AXES or not all(is_count(number) for number in numbers):
        raise ValueError(f"{what} is no short tuple of numbers from 0")
    return numbers


def _rebuild(
    storage: object, offset: object, size: object, stride: object, dtype: object = None, metadata: object = None
) -> TensorRef | Unknown:
    if isinstance(storage, Unknown):
        return Unknown(storage.name)
    if not isinstance(storage, StorageRef):
        raise ValueError("a tensor without a storage")
    kind = storage.dtype if dtype is None else dtype
    if not isinstance(kind, TorchDtype):
        raise ValueError("a tensor without an element type")
    if type(offset) is not int or not is_count(offset):
        raise ValueError("a tensor's offset is no number from 0")
    sizes, strides = counts(size, "a tensor's size"), counts(stride, "a tensor's stride")
    if len(sizes) != len(strides):
        raise ValueError("a tensor's size and stride have different lengths")
    if math.prod(number for number in sizes if number) > ELEMENTS:
        raise ValueError("a tensor of more elements than can be")
    tensor = TensorRef(storage, kind, offset, sizes, strides)
    if isinstance(metadata, dict) and any(metadata.values()):
        tensor.why_not = (
            "a view that is conjugated or negated when it is read: resolve_conj() and resolve_neg() before saving"
        )
    return tensor


def _rebuild_v1(arguments: tuple[object, ...]) -> TensorRef | Unknown:
    storage, offset, size, stride = arguments
    return _rebuild(storage, offset, size, stride)


def _rebuild_v2(arguments: tuple[object, ...]) -> TensorRef | Unknown:
    storage, offset, size, stride, _requires_grad, _hooks, *rest = arguments
    return _rebuild(storage, offset, size, stride, None, rest[0] if rest else None)


def _rebuild_v3(arguments: tuple[object, ...]) -> TensorRef | Unknown:
    storage, offset, size, stride, _requires_grad, _hooks, dtype, *rest = arguments
    return _rebuild(storage, offset, size, stride, dtype, rest[0] if rest else None)


def _parameter(arguments: tuple[object, ...]) -> object:
    data, *rest = arguments
    if isinstance(data, Unknown):
        return data
    if not isinstance(data, TensorRef):
        raise ValueError("a parameter of something that is no tensor")
    made = TensorRef(data.storage, data.dtype, data.offset, data.size, data.stride)
    made.why_not, made.trained = data.why_not, bool(rest[0]) if rest else True
    return made


def _from_type(arguments: tuple[object, ...]) -> object:
    function, kind, inner, *_state = arguments
    for named in (kind, function):
        if isinstance(named, Unknown):
            return Unknown(named.name)
    if kind is not _TENSOR and kind is not _PARAMETER:
        raise ValueError("a tensor of a class that is none")
    # Attributes that were set on the tensor are no state of it.
    if not isinstance(function, Global) or function.make is None or not isinstance(inner, tuple):
        raise ValueError("a tensor that is made of nothing")
    if function.make not in (_rebuild_v1, _rebuild_v2, _rebuild_v3, _parameter):
        raise ValueError("a tensor that is made by no maker of tensors")
    return function.make(inner)


def _size(arguments: tuple[object, ...]) -> TorchSize:
    (numbers,) = arguments
    return TorchSize(counts(tuple(numbers) if isinstance(numbers, list) else numbers, "a torch.Size"))


def _device(arguments: tuple[object, ...]) -> TorchDevice:
    kind, *rest = arguments
    if type(kind) is not str or not kind.replace(":", "").isalnum() or len(kind) > 64 or len(rest) > 1:
        raise ValueError("no name of a device")
    if rest and not is_count(rest[0]):
        raise ValueError("no number of a device")
    return TorchDevice(f"{kind}:{rest[0]}" if rest else kind)


def _layout(arguments: tuple[object, ...]) -> Layout:
    (text,) = arguments
    if type(text) is not str or len(text) > 64:
        raise ValueError("no name of a layout")
    return Layout(text)


def _encode(arguments: tuple[object, ...]) -> bytes:
    text, encoding = arguments
    if type(text) is not str or encoding != "latin1":
        raise ValueError("not how protocol 2 writes bytes")
    return text.encode("latin-1")


def _bytes(arguments: tuple[object, ...]) -> bytes:
    if arguments:
        raise ValueError("not how protocol 2 writes bytes")
    return b""


def _bytearray(arguments: tuple[object, ...]) -> bytearray:
    if not arguments:
        return bytearray()
    data, *rest = arguments
    if isinstance(data, str) and rest == ["latin-1"]:
        return bytearray(data.encode("latin-1"))
    if type(data) is not bytes or rest:  # a number would be a length to allocate
        raise ValueError("a bytearray of something that is no bytes")
    return bytearray(data)


def _complex(arguments: tuple[object, ...]) -> complex:
    real, imaginary = arguments
    if type(real) is not float or type(imaginary) is not float:
        raise ValueError("a complex number of something that is no float")
    return complex(real, imaginary)


def _set(frozen: bool) -> Callable[[tuple[object, ...]], SetOf]:
    def make(arguments: tuple[object, ...]) -> SetOf:
        if not arguments:
            return SetOf([], frozen=frozen)
        (items,) = arguments
        if not isinstance(items, (list, tuple)):
            raise ValueError("a set of something that is no list")
        return SetOf(list(items), frozen=frozen)

    return make


def _mapping(kind: str) -> Callable[[tuple[object, ...]], Odict]:
    def make(arguments: tuple[object, ...]) -> Odict:
        made = Odict(kind)
        if arguments and kind != "defaultdict":
            (pairs,) = arguments
            put_pairs(made, pairs)
        elif len(arguments) > 1:
            raise ValueError("a defaultdict of more than its default")
        elif arguments and arguments[0] is not None:
            made.attributes["default_factory"] = arguments[0]
        return made

    return make


class NumpyDtype(Inert):
    """A dtype of NumPy's own numbers; BUILD says its byte order."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def build(self, state: object) -> None:
        """`(3, order, None, None, None, -1, -1, 0)`: nothing but the order is to say something."""
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "|", "="):
            raise ValueError("no state of a plain dtype")
        if any(member is not None for member in state[2:5]):
            raise ValueError("a dtype of fields")
        self.dtype = self.dtype.newbyteorder(state[1])


class NumpyArray(Inert):
    """An array, made in two steps as NumPy pickles it; `array` is None until its state is there."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array: np.ndarray[Any, Any] | None = None

    def build(self, state: object) -> None:
        """`(1, shape, dtype, fortran, bytes)`."""
        if not isinstance(state, tuple) or len(state) != 5 or self.array is not None:
            raise ValueError("no state of an array")
        _, shape, dtype, fortran, data = state
        self.array = _array(data, dtype, shape, "F" if fortran else "C")


_NUMBERS: Final = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")


def _numpy_dtype(arguments: tuple[object, ...]) -> NumpyDtype:
    code, *_rest = arguments
    if code not in _NUMBERS:
        raise ValueError("a dtype that is no plain number")
    return NumpyDtype(np.dtype(str(code)))


def _array(data: object, dtype: object, shape: object, order: str) -> np.ndarray[Any, Any]:
    if type(data) is not bytes and type(data) is not bytearray:
        raise ValueError("an array whose data are no bytes")
    if not isinstance(dtype, NumpyDtype):
        raise ValueError("an array without a dtype")
    sizes = counts(shape, "an array's shape")
    if len(sizes) > 32 or math.prod(sizes) * dtype.dtype.itemsize != len(data):
        raise ValueError("an array whose data are not as long as its shape says")
    flat = np.frombuffer(bytes(data), dtype.dtype)
    return flat.reshape(sizes, order="F" if order == "F" else "C")


def _numpy_scalar(arguments: tuple[object, ...]) -> object:
    dtype, data = arguments
    return _array(data, dtype, (), "C")[()]


def _numpy_reconstruct(arguments: tuple[object, ...]) -> NumpyArray:
    kind, shape, _code = arguments
    if kind is not _NDARRAY or shape != (0,):
        raise ValueError("an array of a class of its own")
    return NumpyArray()


def _numpy_frombuffer(arguments: tuple[object, ...]) -> NumpyArray:
    data, dtype, shape, order, *_rest = arguments
    if order not in ("C", "F"):
        raise ValueError("an array in no order")
    made = NumpyArray()
    made.array = _array(data, dtype, shape, str(order))
    return made


_TENSOR: Final = Global("torch.Tensor")
_PARAMETER: Final = Global("torch.nn.Parameter", _parameter)
_NDARRAY: Final = Global("numpy.ndarray")


def _table() -> dict[tuple[str, str], Inert]:
    table: dict[tuple[str, str], Inert] = {}

    def put(modules: str, name: str, make: Callable[[tuple[object, ...]], object] | None = None) -> None:
        for module in modules.split():
            table[module, name] = Global(f"{module}.{name}", make)

    for torch_name in (*_DTYPE_OF_TORCH, *_OTHER_DTYPES):
        table["torch", torch_name] = TorchDtype(torch_name)
    for storage, torch_name in _STORAGES.items():
        for module in ("torch", "torch.storage", "torch.cuda"):
            table[module, storage] = _StorageKind(storage, TorchDtype(torch_name))
    for module, name in (
        ("torch.storage", "UntypedStorage"),
        ("torch.storage", "_UntypedStorage"),
        ("torch", "UntypedStorage"),
    ):
        table[module, name] = _StorageKind(name, None)
    for version, make in (("", _rebuild_v1), ("_v2", _rebuild_v2), ("_v3", _rebuild_v3)):
        put("torch._utils", f"_rebuild_tensor{version}", make)
    put("torch._utils", "_rebuild_parameter", _parameter)
    put("torch._utils", "_rebuild_parameter_with_state", _parameter)
    put("torch._tensor", "_rebuild_from_type_v2", _from_type)
    put("torch", "Size", _size)
    put("torch", "device", _device)
    put("torch.serialization", "_get_layout", _layout)
    table["torch", "Tensor"] = _TENSOR
    table["torch.nn.parameter", "Parameter"] = _PARAMETER
    for kind in ("OrderedDict", "Counter", "defaultdict"):
        put("collections", kind, _mapping(kind))
    put("_codecs", "encode", _encode)
    for module in ("builtins", "__builtin__"):
        put(module, "bytes", _bytes)
        put(module, "bytearray", _bytearray)
        put(module, "complex", _complex)
        put(module, "set", _set(frozen=False))
        put(module, "frozenset", _set(frozen=True))
        for default in ("int", "float", "str", "list", "dict", "bool", "tuple"):  # of a defaultdict
            put(module, default)
    numpy = "numpy.core.multiarray numpy._core.multiarray"
    put(numpy, "scalar", _numpy_scalar)
    put(numpy, "_reconstruct", _numpy_reconstruct)
    put("numpy.core.numeric numpy._core.numeric", "_frombuffer", _numpy_frombuffer)
    put("numpy", "dtype", _numpy_dtype)
    table["numpy", "ndarray"] = _NDARRAY
    return table


_TABLE: Final = _table()
