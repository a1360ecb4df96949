"""Value trees (section 9.1 and 16.6 of the specification) of Python objects, and back.

Nothing is looked up by a type's name: `KNOWN` lists what can be made again. An object of any other
type is refused, and so is a key that is neither a string nor an integer.
"""

import collections
import json
import struct

import jax
import ml_dtypes
import mlx.core
import numpy
import optax
import torch

LARGEST = 2**53 - 1
INLINE_BYTES = 8192

DTYPES = {
    "BOOL": numpy.bool_, "U8": numpy.uint8, "U16": numpy.uint16, "U32": numpy.uint32, "U64": numpy.uint64,
    "I8": numpy.int8, "I16": numpy.int16, "I32": numpy.int32, "I64": numpy.int64, "F16": numpy.float16,
    "F32": numpy.float32, "F64": numpy.float64, "BF16": ml_dtypes.bfloat16,
}  # fmt: skip
SCALARS = {
    f"numpy.{kind.__name__}": kind
    for kind in (
        numpy.bool_, numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint8, numpy.uint16, numpy.uint32,
        numpy.uint64, numpy.float16, numpy.float32, numpy.float64,
    )
}  # fmt: skip
MAPS = {
    "collections.Counter": collections.Counter,
    "collections.OrderedDict": collections.OrderedDict,
}
NAMED_TUPLES = {
    f"optax.{kind.__name__}": kind
    for kind in (
        optax.AddNoiseState, optax.EmptyState, optax.FactoredState, optax.InjectStatefulHyperparamsState,
        optax.MaskedNode, optax.MaskedState, optax.MultiStepsState, optax.PartitionState, optax.ScaleByAdamState,
        optax.ScaleByScheduleState, optax.TraceState,
    )
}  # fmt: skip
# It has no public name.
NAMED_TUPLES["optax.schedules._inject.WrappedScheduleState"] = optax.schedules._inject.WrappedScheduleState
IMPLEMENTATIONS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}
TORCH_DTYPES = {str(kind): kind for kind in (torch.float32, torch.float64, torch.bfloat16, torch.int64)}


class Refused(Exception):
    """The object has no value tree."""


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def name_of(table, kind):
    return next((name for name, known in table.items() if known is kind), None)


class Tensors:
    """The tensors that trees name, by their identity key."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.rows = {}

    def add(self, array, path, role="extension"):
        # NumPy has two types of 64 bits that are equal as dtypes.
        dtype = next((name for name, known in DTYPES.items() if array.dtype == known), None)
        if dtype is None:
            raise Refused(f"dtype {array.dtype}")
        identity = ["main", role, "/".join([self.prefix, *path]), "", "", []]
        key = canonical(identity)
        assert key not in self.rows, key
        data = numpy.ascontiguousarray(array).tobytes()
        shape = list(array.shape)
        self.rows[key] = {"bytes": data.hex(), "dtype": dtype, "identity": identity, "shape": shape}
        return {"tensor": identity}

    def get(self, identity):
        row = self.rows[canonical(identity)]
        flat = numpy.frombuffer(bytes.fromhex(row["bytes"]), DTYPES[row["dtype"]])
        return flat.reshape(row["shape"]).copy()


def torch_array(tensor):
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def array_torch(array):
    if array.dtype.type is ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def typed(name, value):
    return {"type": [name, value]}


def f64(value):
    return {"f64": f"{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"}


def of_int(value):
    return value if abs(value) <= LARGEST else {"int": str(value)}


def to_tree(value, tensors, path=()):
    """The tree of `value`; arrays in it become tensors."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return of_int(value)
    if kind is float:
        return f64(value)
    if kind is str:
        value.encode()  # No lone surrogates.
        return value
    if kind is complex:
        return typed("complex", {"tuple": [f64(value.real), f64(value.imag)]})
    if kind is bytes or kind is bytearray:
        if len(value) > INLINE_BYTES:
            tree = tensors.add(numpy.frombuffer(bytes(value), numpy.uint8), path, role="blob")
            return typed(kind.__name__, tree)
        return {"bytes": value.hex()} if kind is bytes else typed("bytearray", {"bytes": value.hex()})

    def inner(item, step):
        return to_tree(item, tensors, (*path, str(step)))

    if kind is list or kind is tuple:
        return {kind.__name__: [inner(item, i) for i, item in enumerate(value)]}
    if kind is torch.Size:
        return typed("torch.Size", {"tuple": list(value)})
    if kind is set or kind is frozenset:
        items = sorted((inner(item, i) for i, item in enumerate(value)), key=canonical)
        return typed(kind.__name__, {"list": items})
    if kind is dict or kind in MAPS.values():
        pairs = []
        for key, item in value.items():
            if type(key) not in (str, int):
                raise Refused(f"key of type {type(key).__name__}")
            pairs.append([of_int(key) if type(key) is int else key, inner(item, key)])
        return {"map": pairs} if kind is dict else typed(name_of(MAPS, kind), {"map": pairs})
    if name := name_of(NAMED_TUPLES, kind):
        fields = zip(value._fields, value, strict=True)
        return typed(name, {"map": [[field, inner(item, field)] for field, item in fields]})
    if isinstance(value, numpy.generic):
        return of_scalar(value)
    if kind is torch.dtype:
        return typed("torch.dtype", str(value))
    if kind is torch.device:
        return typed("torch.device", str(value))
    if isinstance(value, numpy.dtype):
        return typed("numpy.dtype", value.str)
    return of_array(value, tensors, path)


def of_scalar(value):
    name = name_of(SCALARS, type(value))
    if name is None:
        raise Refused(type(value).__name__)
    if isinstance(value, numpy.bool_):
        return typed(name, bool(value))
    if isinstance(value, numpy.integer):
        return typed(name, of_int(int(value)))
    if isinstance(value, numpy.float16):
        return typed(name, {"bytes": value.tobytes().hex()})
    width = {4: "f32", 8: "f64"}[value.itemsize]
    return typed(name, {width: value.tobytes()[::-1].hex()})


def of_array(value, tensors, path):
    """PyTorch's tensors stand bare; those of others say whose they are."""
    if type(value) is torch.Tensor:
        return tensors.add(torch_array(value), path)
    if type(value) is numpy.ndarray:
        return typed("numpy.ndarray", tensors.add(value, path))
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        implementation = IMPLEMENTATIONS[str(value.dtype)[4:-1]]
        data = tensors.add(numpy.asarray(jax.random.key_data(value)), path)
        return typed("jax.random.key", {"map": [["implementation", implementation], ["data", data]]})
    if isinstance(value, jax.Array):
        return typed("jax.Array", tensors.add(numpy.asarray(value), path))
    if isinstance(value, mlx.core.array):
        return typed("mlx.core.array", tensors.add(numpy.array(value), path))
    raise Refused(f"{type(value).__module__}.{type(value).__qualname__}")


def from_tree(tree, tensors):
    """The object that `to_tree` made the tree of."""
    if not isinstance(tree, dict):
        return tree
    ((member, value),) = tree.items()
    if member == "int":
        return int(value)
    if member == "f64":
        return struct.unpack("<d", struct.pack("<Q", int(value, 16)))[0]
    if member == "bytes":
        return bytes.fromhex(value)
    if member == "list":
        return [from_tree(item, tensors) for item in value]
    if member == "tuple":
        return tuple(from_tree(item, tensors) for item in value)
    if member == "map":
        return {from_tree(key, tensors): from_tree(item, tensors) for key, item in value}
    if member == "tensor":
        return array_torch(tensors.get(value))
    if member == "type":
        return of_type(*value, tensors)
    raise Refused(member)


def of_type(name, tree, tensors):
    if name in SCALARS:
        ((member, value),) = tree.items() if isinstance(tree, dict) else ((None, tree),)
        if member in ("f32", "f64", "bytes"):
            data = bytes.fromhex(value)
            return numpy.frombuffer(data if member == "bytes" else data[::-1], SCALARS[name])[0]
        return SCALARS[name](from_tree(tree, tensors))
    if name in ("numpy.ndarray", "jax.Array", "mlx.core.array"):
        make = {"numpy.ndarray": lambda a: a, "jax.Array": jax.numpy.asarray, "mlx.core.array": mlx.core.array}
        return make[name](tensors.get(tree["tensor"]))
    if name in ("bytes", "bytearray") and "tensor" in tree:
        data = tensors.get(tree["tensor"]).tobytes()
        return data if name == "bytes" else bytearray(data)
    value = from_tree(tree, tensors)
    if name in MAPS:
        return MAPS[name](value)
    if name in NAMED_TUPLES:
        return NAMED_TUPLES[name](**value)
    if name == "jax.random.key":
        data = jax.numpy.asarray(torch_array(value["data"]).view(numpy.uint32))
        return jax.random.wrap_key_data(data, impl=value["implementation"])
    make = {
        "bytearray": bytearray,
        "complex": lambda parts: complex(*parts),
        "frozenset": frozenset,
        "numpy.dtype": numpy.dtype,
        "set": set,
        "torch.device": torch.device,
        "torch.dtype": TORCH_DTYPES.__getitem__,
        "torch.Size": torch.Size,
    }
    return make[name](value)


def same(one, two):
    """Whether two objects agree in types, order and bits."""
    if type(one) is not type(two):
        return False
    if isinstance(one, (dict, list, tuple)):
        if isinstance(one, dict):
            one, two = ([part for pair in d.items() for part in pair] for d in (one, two))
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float) and not isinstance(one, numpy.generic):
        return struct.pack("<d", one) == struct.pack("<d", two)
    if isinstance(one, complex):
        return same((one.real, one.imag), (two.real, two.imag))
    if isinstance(one, torch.Tensor):
        one, two = torch_array(one), torch_array(two)
    elif isinstance(one, jax.Array) and jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
        if one.dtype != two.dtype:
            return False
        one, two = jax.random.key_data(one), jax.random.key_data(two)
    if isinstance(one, (numpy.ndarray, numpy.generic, jax.Array, mlx.core.array)):
        one, two = numpy.array(one), numpy.array(two)
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    return one == two
