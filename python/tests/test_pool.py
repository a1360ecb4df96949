"""Staging: every byte arrives, nothing of it is shared, and the memory is what it says."""

from __future__ import annotations

import dataclasses
import mmap
import os
import pathlib

import numpy as np
import pytest

from waystation.arrays import as_bytes
from waystation.errors import Error
from waystation.key import Key
from waystation.pool import Pool
from waystation.records import Record
from waystation.snapshot import Alias, Declared, Omitted, Piece, Snapshot


def whole(**data) -> Snapshot:
    return Snapshot(pieces=[Piece.whole(Key.param(name), array) for name, array in data.items()])


def same(staged: Snapshot, expected: list[bytes]) -> None:
    assert [bytes(piece.data) for piece in staged.pieces] == expected


def test_numpy_arrives_whatever_its_strides_and_order():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    snapshot = whole(plain=base, turned=base.T, stepped=base[::2, 1::2], back=base[::-1], big=base.astype(">f4"),
                     big_turned=base.astype(">f4").T, scalar=np.float64(3), none=np.zeros((0, 3), np.int8))
    expected = [np.ascontiguousarray(piece.data, np.asarray(piece.data).dtype.newbyteorder("<")).tobytes()
                for piece in snapshot.pieces]
    same(Pool(4096).stage(snapshot), expected)


def test_elements_below_a_byte_are_packed():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    nibbles = np.array([1, -2, 3, -4, 5], ml_dtypes.int4)
    for array in (nibbles, nibbles[::2], nibbles[::-1]):
        same(Pool(4096).stage(whole(w=array)), [as_bytes(array).tobytes()])


def test_torch_arrives_whatever_its_type_and_strides():
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    tensors = {"plain": base, "turned": base.t(), "stepped": base[::2, 1::2], "scalar": torch.tensor(2.5),
               "none": torch.zeros(0, 3), "parameter": torch.nn.Parameter(base.clone()),
               "column": torch.arange(4.0).reshape(1, 4).t(), "one": torch.ones(9)[::9], "empty": torch.zeros(3, 0).t(),
               "turned_parameter": torch.nn.Parameter(base.clone()).t(), "bool": base.t() > 3}
    for name in ("bfloat16", "float8_e4m3fn", "uint16", "uint64", "int8", "float64"):
        tensors[f"{name}_turned"] = base.to(getattr(torch, name)).t()
    snapshot = whole(**tensors)
    same(Pool(1 << 16).stage(snapshot), [as_bytes(piece.data).tobytes() for piece in snapshot.pieces])


def test_what_wraps_other_tensors_is_refused():
    torch = pytest.importorskip("torch")
    sparse = torch.eye(3).to_sparse()
    piece = Piece(Key.param("w"), "F32", (3, 3), (0, 0), (3, 3), sparse)
    with pytest.raises(Error, match="layout"):
        Pool(4096).stage(Snapshot(pieces=[piece]))


def test_nothing_is_shared_with_the_snapshot():
    array, value = np.arange(1000), {"tree": {"list": [1, 2]}}
    turned = np.arange(12).reshape(3, 4)
    snapshot = whole(w=array, t=turned.T)
    snapshot.records = [Record("value", "v", value)]
    snapshot.attachments = {"a": b"one", "b": pathlib.Path("/two")}
    snapshot.declared = [Declared(Key.param("d"), "F32", (0,))]
    snapshot.aliases = [Alias("main", "param", "tied", Key.param("w"))]
    snapshot.omitted = [Omitted("main", ("o",), "frozen")]
    snapshot.inventory = [Key.param("w")]
    staged = Pool(1 << 14).stage(snapshot)
    before = [bytes(piece.data) for piece in staged.pieces]
    declared, aliases, omitted = list(snapshot.declared), list(snapshot.aliases), list(snapshot.omitted)
    array += 1
    turned += 1
    value["tree"]["list"].append(3)
    for members in (snapshot.pieces, snapshot.records, snapshot.declared, snapshot.aliases, snapshot.omitted,
                    snapshot.attachments, snapshot.inventory):
        members.clear()
    same(staged, before)
    assert [record.value for record in staged.records] == [{"tree": {"list": [1, 2]}}]
    assert staged.attachments == {"a": b"one", "b": pathlib.Path("/two")}
    assert (staged.declared, staged.aliases, staged.omitted) == (declared, aliases, omitted)
    assert staged.inventory == [Key.param("w")]


def test_attachments_that_can_change_are_copied():
    content = bytearray(b"now")
    staged = Pool(0).stage(Snapshot(attachments={"a": content}))
    content[:] = b"new"
    assert staged.attachments == {"a": b"now"}


def test_pieces_keep_all_they_say():
    piece = Piece(Key.param("w"), "F32", (4, 4), (0, 2), (4, 2), np.zeros((4, 2), np.float32), (0, None),
                  (("torch", ("w", 0)),), (4, 3), None)
    (staged,) = Pool(4096).stage(Snapshot(pieces=[piece])).pieces
    assert staged == dataclasses.replace(piece, data=staged.data)


def test_pieces_are_frozen_however_they_are_made():
    array = np.zeros((4, 4), np.float32)
    made = Piece.whole(Key.param("w"), array, axes=(0, None), native=(("torch", ("w", 0)),), valid=(4, 3))
    spelt = Piece(Key.param("w"), "F32", (4, 4), (0, 0), (4, 4), array, (0, None), (("torch", ("w", 0)),), (4, 3), None)
    for piece, like in ((made, spelt), (spelt.holding(b"x"), dataclasses.replace(spelt, data=b"x"))):
        assert type(piece) is Piece
        for each in dataclasses.fields(Piece):
            found, expected = getattr(piece, each.name), getattr(like, each.name)
            assert found is expected or found == expected, each.name
        with pytest.raises(dataclasses.FrozenInstanceError):
            piece.data = b"y"


def test_pieces_begin_at_cache_lines_of_a_page():
    pool = Pool(1 << 16)
    staged = pool.stage(whole(a=np.zeros(1, np.uint8), b=np.zeros(65, np.uint8), c=np.zeros(3, np.uint8)))
    starts = [piece.data.ctypes.data for piece in staged.pieces]
    assert starts[0] % mmap.PAGESIZE == 0
    assert [start - starts[0] for start in starts] == [0, 64, 192]


def test_too_small_a_pool_says_both_sizes():
    snapshot = whole(a=np.zeros(100, np.uint8), b=np.zeros(100, np.uint8))
    assert Pool.required(snapshot) == 256
    pool = Pool(255)
    with pytest.raises(Error, match="at most 255 bytes.*one of 256.*of 256 bytes or more") as caught:
        pool.stage(snapshot)
    assert caught.value.code == "limit"
    assert not pool.held
    Pool(256).stage(snapshot)


def test_a_pool_that_may_grow_does():
    pool = Pool(0, grow=True)
    same(pool.stage(whole(a=np.arange(100, dtype=np.uint8))), [bytes(range(100))])
    pool.release()
    large = np.arange(1 << 20, dtype=np.uint8)
    same(pool.stage(whole(a=large)), [large.tobytes()])
    assert pool.nbytes == 1 << 20


def test_no_snapshot_is_laid_over_another():
    pool = Pool(4096)
    pool.stage(whole(a=np.zeros(3)))
    with pytest.raises(Error, match="holds an earlier"):
        pool.stage(whole(a=np.ones(3)))
    pool.release()
    pool.stage(whole(a=np.ones(3)))


@pytest.mark.parametrize("data", [np.zeros(3, np.float32), np.zeros((6, 4), np.float32).T[::2]], ids=["plain", "strided"])
def test_data_of_another_length_are_refused(data):
    pool = Pool(4096)
    with pytest.raises(Error, match="has 16 bytes, its data"):
        pool.stage(Snapshot(pieces=[Piece(Key.param("w"), "F32", (4,), (0,), (4,), data)]))
    assert not pool.held


def test_all_pages_are_there_from_the_start():
    def resident() -> int:
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before = resident()
    pool = Pool(64 << 20)
    assert resident() - before > 60 << 20
    assert pool.nbytes == 64 << 20


def test_a_child_of_a_fork_gets_no_pages():
    pool = Pool(4096)
    (piece,) = pool.stage(whole(w=np.full(100, 7, np.uint8))).pieces
    child = os.fork()
    if child == 0:
        os._exit(int(piece.data.any()))
    assert os.waitpid(child, 0)[1] == 0
    assert piece.data.all()
