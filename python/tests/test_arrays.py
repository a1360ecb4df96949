"""Arrays of others as bytes of the format."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from waystation import Error, Key, Piece, Snapshot, arrays
from waystation._registry import DTYPES
from waystation.dtypes import numpy_dtype, torch_dtype
from waystation.snapshot import owner_rank


@pytest.mark.parametrize("dtype", [row.id for row in DTYPES.values() if row.torch and row.bits >= 8])
def test_a_tensor_of_torch_is_seen_in_place(dtype: str) -> None:
    raw = torch.arange(48, dtype=torch.uint8)
    tensor = raw.view(torch_dtype(dtype)).reshape(1, -1)
    seen = arrays.as_bytes(tensor)
    assert arrays.dtype_of(tensor) == dtype and seen.tolist() == list(range(48))
    raw[0] = 99
    assert seen[0] == 99 and arrays.is_contiguous(tensor)


@pytest.mark.parametrize("dtype", [row.id for row in DTYPES.values() if row.bits >= 8])
def test_an_array_of_numpy_is_seen_in_place(dtype: str) -> None:
    raw = np.arange(48, dtype=np.uint8)
    array = raw.view(numpy_dtype(dtype)).reshape(-1, 1)
    seen = arrays.as_bytes(array)
    assert arrays.dtype_of(array) == dtype and np.shares_memory(seen, raw) and seen.tolist() == list(range(48))


@pytest.mark.parametrize(
    ("obj", "dtype", "shape", "data"),
    [
        (b"ab", "U8", (2,), b"ab"),
        (bytearray(b"ab"), "U8", (2,), b"ab"),
        (memoryview(b"abcd")[::2], "U8", (2,), b"ac"),
        (memoryview(np.arange(2, dtype="<u2")), "U8", (4,), b"\0\0\1\0"),
        (np.float32(1), "F32", (), b"\0\0\x80\x3f"),
        (np.zeros((0, 3), np.int8), "I8", (0, 3), b""),
        (np.array([[1, 2], [3, 4]], ">u2").T, "U16", (2, 2), b"\1\0\3\0\2\0\4\0"),
        (np.array([True, False]), "BOOL", (2,), b"\1\0"),
        (np.arange(3, dtype=np.int16)[::-1], "I16", (3,), b"\2\0\1\0\0\0"),
        (torch.tensor([1, 2, 3, 4], dtype=torch.int16)[::2], "I16", (2,), b"\1\0\3\0"),
        (torch.tensor(7, dtype=torch.uint8).expand(3), "U8", (3,), b"\7\7\7"),
        (torch.empty(0, 2), "F32", (0, 2), b""),
        (torch.tensor([1 + 2j]).conj(), "C64", (1,), np.array([1 - 2j], "<c8").tobytes()),
        (torch.tensor([1 + 2j]).conj().imag, "F32", (1,), np.array([-2], "<f4").tobytes()),
        (torch.nn.Parameter(torch.tensor([1.0])), "F32", (1,), b"\0\0\x80\x3f"),
        (torch.tensor([[0x21, 0x43]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "F4_E2M1", (1, 4), b"\x21\x43"),
        (np.array([1, 2, 3]).astype(ml_dtypes.uint4), "U4", (3,), b"\x21\x03"),
        (
            np.array([1.5], ml_dtypes.bfloat16).astype(np.dtype(ml_dtypes.bfloat16).newbyteorder(">")),
            "BF16",
            (1,),
            b"\xc0\x3f",
        ),
    ],
)
def test_bytes_type_and_shape(obj: Any, dtype: str, shape: tuple[int, ...], data: bytes) -> None:
    assert arrays.as_bytes(obj).tobytes() == data
    assert (arrays.dtype_of(obj), arrays.shape_of(obj)) == (dtype, shape)
    piece = Piece.whole(Key.param("w"), obj)
    assert (piece.dtype, piece.shape, piece.extent, piece.nbytes) == (dtype, shape, shape, len(data))


def test_others_come_by_their_protocols() -> None:
    class Speaks:
        def __dlpack__(self, **how: Any) -> Any:
            return np.arange(3, dtype=np.int64).__dlpack__(**how)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    class Arrays:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.arange(3, dtype=np.int64)

    for obj in (Speaks(), Arrays()):
        assert arrays.dtype_of(obj) == "I64" and arrays.as_bytes(obj).view("<i8").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("text", "is no array"),
        (None, "is no array"),
        ([1, 2], "is no array"),
        (1.5, "is no array"),
        (np.ma.masked_array([1], [True]), "masked"),
        (torch.ones(2, device="meta"), "meta"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "scales"),
    ],
)
def test_what_is_no_array_in_memory_is_refused(bad: Any, said: str) -> None:
    with pytest.raises(Error, match=said):
        arrays.as_bytes(bad)


def test_a_wrapped_tensor_is_refused_by_name() -> None:
    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise NotImplementedError

    wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, (2,))
    with pytest.raises(Error, match="Wrapper wraps other tensors"):
        arrays.as_bytes(wrapper)


def test_destinations() -> None:
    array = np.zeros(2, np.float32)
    arrays.writable_bytes(array)[:4] = np.frombuffer(b"\0\0\x80\x3f", np.uint8)
    assert array.tolist() == [1, 0]
    tensor = torch.nn.Parameter(torch.zeros(2))
    arrays.writable_bytes(tensor)[4:] = np.frombuffer(b"\0\0\x80\x3f", np.uint8)
    assert tensor.tolist() == [0, 1]
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    for bad in (
        np.zeros(4)[::2],
        frozen,
        torch.zeros(4)[::2],
        b"ab",
        np.zeros(2, ">f4"),
        np.zeros(2, ml_dtypes.int4),
        [0],
    ):
        with pytest.raises(Error):
            arrays.writable_bytes(bad)


def test_the_owner_of_a_replica_is_a_function_of_the_identity() -> None:
    keys = [Key.param(f"layer.{index}.weight") for index in range(200)]
    owners = [owner_rank(key, range(4)) for key in keys]
    assert owners == [owner_rank(key, [0, 1, 2, 3]) for key in keys] and set(owners) == {0, 1, 2, 3}
    assert owners[:8] == [owner_rank(Key.of(tuple(key)), range(4)) for key in keys[:8]]
    assert all(owner_rank(key, (7,)) == 7 for key in keys)
    assert max(owners.count(rank) for rank in range(4)) < 80
    # Of another process, and of another version of this code, it must be the same.
    assert [owner_rank(key, range(8)) for key in keys[:6]] == OWNERS


OWNERS = [1, 6, 2, 0, 6, 3]


def test_snapshots_are_put_together() -> None:
    one = Snapshot(
        pieces=[Piece.whole(Key.param("a"), np.zeros(3))], attachments={"x": b""}, inventory=[Key.param("a")]
    )
    two = Snapshot(
        pieces=[Piece.whole(Key.param("b"), np.zeros(2))], attachments={"y": b""}, inventory=[Key.param("b")]
    )
    one.merge(two)
    assert (
        one.nbytes == 40 and list(one.attachments) == ["x", "y"] and one.inventory == [Key.param("a"), Key.param("b")]
    )
    with pytest.raises(Error, match="two attachments have the path 'y'"):
        one.merge(Snapshot(attachments={"y": b"other"}))
    flat = Piece(Key("main", "quant", "w", "scale"), "F32", (8, 8), (0, 0), (4, 8), np.zeros(1), block=16)
    assert flat.nbytes == 8
