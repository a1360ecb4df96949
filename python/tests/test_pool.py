"""Staging: every byte arrives, nothing of it is shared, and the memory is what it says."""

from __future__ import annotations

import dataclasses
import mmap
import os
import pathlib

import numpy as np
import pytest

from waystation import arrays
from waystation._registry import DTYPES
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


def test_every_type_of_torch_arrives_with_and_without_gradients():
    torch = pytest.importorskip("torch")
    random, tensors, expected = np.random.default_rng(5), {}, []
    for row in DTYPES.values():
        dtype = getattr(torch, row.torch or "", None)
        if dtype is None:
            continue
        width = torch.empty(1, dtype=dtype).element_size()
        for count in (0, 1, 24, 3 << 20):  # none, few, and more than one thread takes at once
            raw = random.integers(0, 2 if row.torch == "bool" else 256, count * width, np.uint8)
            tensor = torch.from_numpy(raw).view(dtype) if count else torch.empty(0, dtype=dtype)
            if dtype.is_floating_point and width > 1 or dtype.is_complex:
                tensor.requires_grad_()
            assert arrays.lender(dtype) is torch.utils.dlpack.to_dlpack, dtype
            tensors[f"{row.id}.{count}"] = tensor
            expected.append(raw.tobytes())
    assert len(expected) > 60
    snapshot = whole(**tensors)
    same(Pool(Pool.required(snapshot)).stage(snapshot), expected)


def test_types_that_dlpack_has_not_arrive_as_well(monkeypatch: pytest.MonkeyPatch):
    torch = pytest.importorskip("torch")
    arrays.lender.cache_clear()
    monkeypatch.setattr(torch.utils.dlpack, "to_dlpack", None)
    try:
        tensors = {"p": torch.nn.Parameter(torch.arange(6.0).to(torch.bfloat16)), "f": torch.arange(6.0).to(torch.float8_e5m2)}
        expected = [tensor.detach().view(torch.uint8).numpy().tobytes() for tensor in tensors.values()]
        same(Pool(4096).stage(whole(**tensors)), expected)
    finally:
        arrays.lender.cache_clear()


def test_torch_arrives_as_it_is_seen():
    torch = pytest.importorskip("torch")

    class Own(torch.Tensor):
        pass

    numbers = torch.view_as_complex(torch.arange(24.0).reshape(3, 4, 2))
    pictures = torch.arange(48.0).reshape(2, 2, 3, 4).to(memory_format=torch.channels_last)
    tensors = {"conj": numbers.conj(), "neg": numbers.conj()[:1, 3:].imag, "both": numbers.conj().t(), "imag": numbers.imag,
               "pictures": pictures, "own": torch.arange(5.0).as_subclass(Own), "expanded": torch.ones(1).expand(7),
               "own_turned": torch.arange(6.0).reshape(2, 3).t().as_subclass(Own),
               "leaf": torch.ones(3, requires_grad=True), "later": torch.ones(3, requires_grad=True) * 2}
    assert tensors["conj"].is_contiguous() and tensors["conj"].is_conj()
    assert tensors["neg"].is_contiguous() and tensors["neg"].is_neg()
    expected = [np.ascontiguousarray(tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().numpy()).tobytes()
                for tensor in tensors.values()]
    same(Pool(1 << 16).stage(whole(**tensors)), expected)
    with torch.inference_mode():
        same(Pool(4096).stage(whole(w=torch.ones(3))), [np.ones(3, np.float32).tobytes()])


def test_what_changes_later_does_not_arrive():
    torch = pytest.importorskip("torch")
    tensors = {f"w{at}": torch.full((1000 + 7 * at,), float(at), requires_grad=at % 2 == 0) for at in range(3000)}
    snapshot = whole(**tensors)
    expected = [tensor.detach().numpy().tobytes() for tensor in tensors.values()]
    staged = Pool(Pool.required(snapshot)).stage(snapshot)
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.fill_(-1)
    same(staged, expected)


def test_an_error_in_the_middle_leaves_the_pool_free_and_the_state_as_it_was():
    torch = pytest.importorskip("torch")
    tensors = [torch.full((1 << 18,), float(at)) for at in range(40)]
    pieces = [Piece.whole(Key.param(f"w{at}"), tensor) for at, tensor in enumerate(tensors)]
    freed = torch.ones(1 << 18)
    freed.untyped_storage().resize_(0)
    for wrong, says in ((torch.zeros(5), "has 1048576 bytes, its data 20"), (torch.eye(3).to_sparse(), "layout"),
                        (freed, "address of 1048576 bytes, found none"), (object(), "no array"),
                        (np.zeros((1 << 18, 2), np.float32)[:, 0].astype("f2"), "has 1048576 bytes, its data 524288")):
        broken = [*pieces[:20], dataclasses.replace(pieces[20], data=wrong), *pieces[21:]]
        pool = Pool(40 << 20)
        with pytest.raises(Error, match=says):
            pool.stage(Snapshot(pieces=broken))
        assert not pool.held
        same(pool.stage(Snapshot(pieces=pieces)), [tensor.numpy().tobytes() for tensor in tensors])
    assert all((tensor == at).all() for at, tensor in enumerate(tensors))


def test_a_pool_is_not_staged_into_itself():
    pool = Pool(1 << 16)
    staged = pool.stage(whole(a=np.arange(1000)))
    pool.release()
    with pytest.raises(Error, match="apart from the memory"):
        pool.stage(staged)
    assert not pool.held


def test_what_wraps_other_tensors_is_refused():
    torch = pytest.importorskip("torch")

    class Wraps(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise AssertionError(function)

    for data, says in ((torch.eye(3).to_sparse(), "layout"), (Wraps(torch.eye(3)), "Wraps wraps other tensors"),
                       (torch.eye(3, device="meta"), "meta device")):
        piece = Piece(Key.param("w"), "F32", (3, 3), (0, 0), (3, 3), data)
        with pytest.raises(Error, match=says):
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
