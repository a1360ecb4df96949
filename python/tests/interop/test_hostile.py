"""Pickles and archives that must be refused, and must not have run."""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from interop import hostile as h

from waystation.errors import Error
from waystation.interop import import_torch_file
from waystation.interop.archive import Archive, Files


class _Runs:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.path}",)


def _real_attack(canary: str) -> bytes:
    return pickle.dumps({"w": _Runs(canary)}, 2)


def _long(length: int) -> bytes:
    return b"\x8b" + struct.pack("<I", length) + b"\x01" * length


_BUILT = h.global_("collections", "OrderedDict") + b")R"
_ATTACKS: dict[str, Callable[[str], bytes]] = {
    "os.system by REDUCE": _real_attack,
    "os.system at the root": lambda c: h.pickle_of(h.global_("os", "system") + h.text(f"touch {c}") + b"\x85R"),
    "posix.system, and dropped": lambda c: h.pickle_of(
        h.global_("posix", "system") + h.text(f"touch {c}") + b"\x85R0}"
    ),
    "eval": lambda c: h.pickle_of(h.mapping(w=h.global_("builtins", "eval") + h.text(f"open({c!r}, 'w')") + b"\x85R")),
    "getattr chain": lambda c: h.pickle_of(
        h.mapping(w=h.global_("builtins", "getattr") + h.global_("os", "system") + h.text("x") + b"\x86R")
    ),
    "STACK_GLOBAL": lambda c: (
        b"\x80\x04" + h.text("os") + h.text("system") + b"\x93" + h.text(f"touch {c}") + b"\x85R."
    ),
    "an import of its own": lambda c: h.pickle_of(h.mapping(w=h.global_("antigravity", "geohash"))),
    "a dotted name": lambda c: b"\x80\x04}" + h.text("w") + h.text("torch") + h.text("nn.Module.__init__") + b"\x93s.",
    "NEWOBJ": lambda c: h.pickle_of(h.mapping(w=h.global_("subprocess", "Popen") + h.text(f"touch {c}") + b"\x85\x81")),
    "INST": lambda c: h.pickle_of(b"(" + h.text(f"touch {c}") + b"ios\nsystem\n"),
    "OBJ": lambda c: h.pickle_of(b"(" + h.global_("os", "system") + h.text(f"touch {c}") + b"o"),
    "EXT1": lambda c: h.pickle_of(b"\x82\x01"),
    "EXT4": lambda c: h.pickle_of(b"\x84\x01\x00\x00\x00"),
    "PERSID": lambda c: h.pickle_of(b"Pos.system\n"),
    "BUILD onto a class": lambda c: h.pickle_of(h.mapping(w=h.global_("torch", "Size") + b"}b")),
    "BUILD onto a number": lambda c: h.pickle_of(b"K\x01}b"),
    "BUILD of the table": lambda c: h.pickle_of(_BUILT + b"(" + h.text("build") + h.global_("os", "system") + b"db"),
    "a call of a result": lambda c: h.pickle_of(_BUILT + b")R"),
    "a call of a text": lambda c: h.pickle_of(h.text("system") + b")R"),
    "a call of a dtype": lambda c: h.pickle_of(h.global_("torch", "float32") + b")R"),
    "a bytearray by length": lambda c: h.pickle_of(h.global_("builtins", "bytearray") + _long(5) + b"\x85R"),
    "no storage": lambda c: h.pickle_of(h.text("storage") + b"Q"),
    "a maker in a maker": lambda c: h.pickle_of(
        h.mapping(
            w=h.global_("torch._tensor", "_rebuild_from_type_v2")
            + b"("
            + h.global_("collections", "OrderedDict")
            + h.global_("torch", "Tensor")
            + b")}tR"
        )
    ),
    "an array of objects": lambda c: h.pickle_of(h.mapping(w=h.global_("numpy", "dtype") + h.text("O8") + b"\x85R")),
}


@pytest.mark.parametrize("name", _ATTACKS)
def test_nothing_of_a_hostile_pickle_is_run(name: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    path = h.archive(tmp_path / "a.pt", _ATTACKS[name](str(canary)))
    before = set(sys.modules)
    with pytest.raises(Error) as refused:
        import_torch_file(path, out=tmp_path / "out", trust_pickle=True)
    assert refused.value.code == "bad-argument"
    assert not canary.exists() and not (tmp_path / "out").exists()
    assert "antigravity" not in set(sys.modules) - before


@pytest.mark.parametrize("name", ["os.system by REDUCE", "eval", "NEWOBJ"])
def test_what_is_skipped_is_not_run_either(name: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    path = h.archive(tmp_path / "a.pt", _ATTACKS[name](str(canary)))
    made = import_torch_file(path, out=tmp_path / "out", trust_pickle=True, skip_unreadable=True)
    assert len(made.skipped) == 1 and made.skipped[0].startswith("w is an object of ")
    assert not canary.exists()


def test_the_key_and_the_class_are_named(tmp_path: Path) -> None:
    body = h.mapping(model=h.mapping(hook=h.global_("mine.things", "Hook") + b")\x81"))
    path = h.archive(tmp_path / "a.pt", h.pickle_of(body))
    with pytest.raises(Error, match=r"model\.hook is an object of mine\.things\.Hook"):
        import_torch_file(path, out=tmp_path / "out", trust_pickle=True)


def _nested(opcode: bytes, depth: int) -> bytes:
    return h.pickle_of(h.mapping(w=b"]" * depth + b"a" * (depth - 1)) if opcode == b"]" else b"")


def _laughs() -> bytes:
    """Twenty lists, each ten times the one before: 10^20 values in 700 bytes."""
    body = b"]q\x000"
    for level in range(20):
        body += b"](" + (b"h" + bytes([level])) * 10 + b"e" + b"q" + bytes([level + 1]) + b"0"
    return h.pickle_of(b"}" + h.text("w") + body + b"h\x14s")


def _loop() -> bytes:
    return h.pickle_of(b"}" + h.text("w") + b"]q\x00h\x00as")


def _loop_of_mappings() -> bytes:
    return h.pickle_of(b"}q\x00" + h.text("w") + b"h\x00s")


_BOMBS: dict[str, tuple[bytes, str]] = {
    "lists within lists": (_nested(b"]", 100_000), "limit"),
    "a list of itself": (_loop(), "limit"),
    "a mapping of itself": (_loop_of_mappings(), "limit"),
    "a billion laughs": (_laughs(), "bad-argument"),
    "a memo of four billion": (h.pickle_of(b"}r\xff\xff\xff\xff"), ""),
    "a text of four gigabytes": (h.pickle_of(b"X\xff\xff\xff\xffx"), "bad-argument"),
    "bytes of 2^63": (b"\x80\x05\x96" + struct.pack("<Q", 2**63) + b"x.", "bad-argument"),
    "bytes of 2^62": (b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.", "bad-argument"),
    "a frame of 2^62": (b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"}.", "bad-argument"),
    "an integer of a megabyte": (h.pickle_of(h.mapping(w=_long(1 << 20))), "bad-argument"),
    "an integer of two gigabytes": (h.pickle_of(b"\x8b\xff\xff\xff\x7f"), "bad-argument"),
    "a negative length": (h.pickle_of(b"\x8b\xff\xff\xff\xff"), "bad-argument"),
}


@pytest.mark.parametrize("name", _BOMBS)
def test_a_small_file_takes_little_memory_and_time(name: str, tmp_path: Path) -> None:
    data, code = _BOMBS[name]
    path = h.archive(tmp_path / "a.pt", data)
    tracemalloc.start()
    try:
        if code:
            with pytest.raises(Error) as refused:
                import_torch_file(path, out=tmp_path / "out", trust_pickle=True)
            assert refused.value.code == code
            assert not (tmp_path / "out").exists()
        else:
            import_torch_file(path, out=tmp_path / "out", trust_pickle=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # What a parser may take: a bounded multiple of the file, and of the tables of the package.
    assert peak < 40_000_000 + 200 * len(data)


def test_keys_whose_hashes_a_file_chooses_are_not_hashed(tmp_path: Path) -> None:
    # Multiples of 2^61 - 1 all have the hash 0: by value this would be 10^10 comparisons.
    keys = b"".join(h.number((2**61 - 1) * (index + 1)) + b"N" for index in range(100_000))
    path = h.archive(tmp_path / "a.pt", h.pickle_of(h.mapping(w=b"}(" + keys + b"u")))
    with pytest.raises(Error, match="only text and integers"):
        import_torch_file(path, out=tmp_path / "out", trust_pickle=True)


_TENSORS: dict[str, tuple[bytes, dict[str, bytes], str]] = {
    "past its storage": (h.tensor(size=(5,)), {"0": bytes(16)}, "bad-argument"),
    "past by its offset": (h.tensor(offset=1), {"0": bytes(16)}, "bad-argument"),
    "past by its stride": (h.tensor(size=(2, 2), stride=(3, 1)), {"0": bytes(16)}, "bad-argument"),
    "of 2^60 elements": (h.tensor(size=(2**60,), stride=(0,)), {"0": bytes(16)}, "bad-argument"),
    "of 2^40 repeated elements": (h.tensor(size=(2**40,), stride=(0,)), {"0": bytes(16)}, "limit"),
    "of a negative size": (h.tensor(size=(-1,)), {"0": bytes(16)}, "bad-argument"),
    "of a negative stride": (h.tensor(stride=(-1,)), {"0": bytes(16)}, "bad-argument"),
    "of a negative offset": (h.tensor(offset=-1), {"0": bytes(16)}, "bad-argument"),
    "of a longer storage than there is": (h.tensor(count=8), {"0": bytes(16)}, "bad-argument"),
    "of no storage": (h.tensor(), {}, "bad-argument"),
    "of another file": (h.tensor(key="../../../etc/passwd"), {"0": bytes(16)}, "bad-argument"),
    "of another archive's entry": (h.tensor(key="../data.pkl"), {"0": bytes(16)}, "bad-argument"),
    "of seventeen axes": (h.tensor(size=(1,) * 17, stride=(1,) * 17), {"0": bytes(16)}, "limit"),
}


@pytest.mark.parametrize("name", _TENSORS)
def test_a_tensor_has_no_elements_but_those_of_its_storage(name: str, tmp_path: Path) -> None:
    body, storages, code = _TENSORS[name]
    path = h.archive(tmp_path / "a.pt", h.pickle_of(h.mapping(w=body)), storages=storages)
    with pytest.raises(Error) as refused:
        import_torch_file(path, out=tmp_path / "out", trust_pickle=True)
    assert refused.value.code == code
    assert not (tmp_path / "out").exists()


def test_the_tensor_of_those_tests_is_one(tmp_path: Path) -> None:
    path = h.archive(tmp_path / "a.pt", h.pickle_of(h.mapping(w=h.tensor())), storages={"0": bytes(range(16))})
    assert import_torch_file(path, out=tmp_path / "out", trust_pickle=True).nbytes == 16


def test_a_million_views_of_one_storage_are_refused(tmp_path: Path) -> None:
    views = {f"w{index}": h.tensor(count=1 << 20, size=(1 << 20 - index,), stride=(1,)) for index in range(8)}
    storages = {"0": bytes(4 << 20)}
    path = h.archive(tmp_path / "a.pt", h.pickle_of(h.mapping(**views)), storages=storages)
    with pytest.raises(Error) as refused:
        import_torch_file(path, out=tmp_path / "out", trust_pickle=True, max_expanded_bytes=1 << 20)
    assert refused.value.code == "limit"
    assert import_torch_file(path, out=tmp_path / "out", trust_pickle=True).tensors == 8


_GOOD = h.pickle_of(h.mapping(w=h.tensor()))
_TWELVE = h.pickle_of(h.mapping(w=h.tensor(count=12, size=(12,))))


def _twist(path: Path, change: Callable[[bytearray], None]) -> Path:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


def _central(data: bytearray, name: bytes) -> int:
    """Where the directory's header of an entry begins."""
    return next(
        at.start() for at in re.finditer(rb"PK\x01\x02", bytes(data)) if data[at.start() + 46 :].startswith(name)
    )


def _reach(data: bytearray) -> None:
    """The storage is stated to go on into the entry that follows it."""
    struct.pack_into("<LL", data, _central(data, b"archive/data/0") + 20, 48, 48)


def _zip_cases(tmp_path: Path) -> dict[str, Callable[[], Path]]:
    path = tmp_path / "a.pt"

    def good(**more: object) -> Path:
        return h.archive(path, _GOOD, storages={"0": bytes(16)}, **more)  # type: ignore[arg-type]

    def cut() -> Path:
        return _twist(good(), lambda data: data.__delitem__(slice(len(data) - 7, None)))

    def flag() -> Path:
        return _twist(good(), lambda data: struct.pack_into("<H", data, _central(data, b"archive/data/0") + 8, 1))

    def size() -> Path:
        return _twist(
            good(), lambda data: struct.pack_into("<LL", data, _central(data, b"archive/data/0") + 20, 2**31, 2**31)
        )

    def count() -> Path:
        return _twist(good(), lambda data: struct.pack_into("<HH", data, len(data) - 14, 60000, 60000))

    def swap() -> Path:
        return _twist(good(), lambda data: struct.pack_into("<L", data, _central(data, b"archive/data/0") + 42, 0))

    return {
        "compressed": lambda: good(method=zipfile.ZIP_DEFLATED),
        "absolute": lambda: good(more={"/etc/passwd": b"x"}),
        "climbing": lambda: good(more={"archive/../../x": b"x"}),
        "backslash": lambda: good(more={"archive\\x": b"x"}),
        "two folders": lambda: good(more={"other/x": b"x"}),
        "no folder": lambda: good(more={"x": b"x"}),
        "twice": lambda: good(more={"archive/data/0": bytes(16)}),
        "cut short": cut,
        "encrypted": flag,
        "longer than the file": size,
        "more entries than fit": count,
        "another's bytes": swap,
        "overlapping": lambda: _twist(h.archive(path, _TWELVE, storages={"0": bytes(16)}), _reach),
        "followed": lambda: _twist(good(), lambda data: data.extend(b"x")),
        "empty": lambda: path.write_bytes(b"") and path or path,
        "a bare pickle": lambda: path.write_bytes(pickle.dumps({}, 2)) and path or path,
        "text": lambda: path.write_bytes(b"hello, world") and path or path,
        "TorchScript": lambda: good(more={"archive/code/x.py": b"x"}),
    }


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", _zip_cases(Path()))
def test_an_archive_that_pytorch_never_writes_is_refused(name: str, tmp_path: Path) -> None:
    path = _zip_cases(tmp_path)[name]()
    with pytest.raises(Error) as refused:
        import_torch_file(path, out=tmp_path / "out", trust_pickle=True)
    assert refused.value.code == "bad-argument", refused.value
    assert not (tmp_path / "out").exists()


def test_the_legacy_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2))
    with pytest.raises(Error, match=r"before 1\.6"):
        import_torch_file(path, out=tmp_path / "out", trust_pickle=True)


def test_big_endian_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("a/data.pkl", _GOOD)
        made.writestr("a/byteorder", b"big")
        made.writestr("a/data/0", bytes(16))
    with pytest.raises(Error, match="big-endian"):
        import_torch_file(path, out=tmp_path / "out", trust_pickle=True)


def test_every_flipped_byte_of_an_archive_is_refused_or_harmless(tmp_path: Path) -> None:
    """Whatever a byte becomes: an error of ours, or the very same tensor."""
    whole = h.archive(tmp_path / "a.pt", _GOOD, storages={"0": bytes(range(16))}).read_bytes()
    path = tmp_path / "b.pt"
    for at in range(0, len(whole)):
        data = bytearray(whole)
        data[at] ^= 0x55
        path.write_bytes(data)
        try:
            with Files() as files:
                from waystation.interop.torch_zip import TorchFile

                file = TorchFile(files.source(path, follow_links=False))
                _use(file)
        except Error:
            pass


def _use(file: object) -> None:
    import numpy as np

    from waystation.interop.torch_globals import TensorRef
    from waystation.interop.torch_zip import TorchFile
    from waystation.interop.walk import Budget, flatten

    assert isinstance(file, TorchFile)
    if not isinstance(file.root, dict):
        return
    for _, leaf in flatten(file.root, Budget(file.pickle_bytes, file.place)):
        if isinstance(leaf, TensorRef) and leaf.nbytes < 1 << 20:
            file.check_tensor(leaf)
            out = np.empty(leaf.nbytes, np.uint8)
            file.read(leaf, out)


def test_a_file_that_grows_shorter_is_an_error(tmp_path: Path) -> None:
    path = h.archive(tmp_path / "a.pt", _GOOD, storages={"0": bytes(1 << 16)})
    with Files() as files:
        archive = Archive(files.source(path, follow_links=False))
        os.truncate(path, 1000)
        with pytest.raises(Error, match="shorter"):
            archive.read("data/0", 1 << 20)


def test_zip64_archives_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        with made.open("a/data/0", "w", force_zip64=True) as entry:
            entry.write(bytes(16))
        made.writestr("a/data.pkl", _GOOD)
    path.write_bytes(buffer.getvalue())
    assert import_torch_file(path, out=tmp_path / "out", trust_pickle=True).nbytes == 16


def test_trust_must_be_said(tmp_path: Path) -> None:
    path = h.archive(tmp_path / "a.pt", _GOOD, storages={"0": bytes(16)})
    with pytest.raises(Error, match="trust_pickle=True"):
        import_torch_file(path, out=tmp_path / "out")
