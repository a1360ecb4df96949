"""What `_core` takes for memory, what it refuses, and that nothing is kept or given back twice."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path
from typing import Any

import capsules
import made
import numpy as np
import pytest
from capsules import Exporter
from waystation import _core
from waystation.errors import Error

DATA = np.arange(64, dtype=np.uint8)


@pytest.fixture
def opened(tmp_path: Path) -> _core.Checkpoint:
    return _core.Checkpoint.open(made.checkpoint(tmp_path / "c", {made.param("w"): DATA, made.param("v"): DATA}))


def into(opened: _core.Checkpoint, out: Any) -> None:
    opened.read([(made.param("w"), None, out)])


def refused(call: Any, says: str) -> Error:
    with pytest.raises(Error, match=says) as caught:
        call()
    assert caught.value.code == "bad-argument"
    return caught.value


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"strides": None},
        {"says": {"device_kind": 3}},
        {"says": {"device_kind": 11}},
    ],
)
def test_what_is_bytes_of_the_cpu_is_read_into_and_given_back_once(
    opened: _core.Checkpoint, versioned: bool, more: dict[str, Any]
) -> None:
    exporter = Exporter(versioned=versioned, **more)
    into(opened, exporter)
    assert exporter.memory.tobytes() == DATA.tobytes()
    assert exporter.deleted == 1


def test_an_offset_counts_from_the_data(opened: _core.Checkpoint) -> None:
    exporter = Exporter(memory=np.zeros(100, np.uint8), says={"byte_offset": 36})
    into(opened, exporter)
    assert exporter.memory.tobytes() == bytes(36) + DATA.tobytes()


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"says": {"device_kind": 2}}, "memory of the CPU"),
        ({"says": {"code": 0}}, "uint8"),
        ({"says": {"bits": 16}}, "uint8"),
        ({"says": {"lanes": 2}}, "uint8"),
        ({"shape": (8, 8), "strides": (8, 1)}, "one axis, found 2"),
        ({"shape": (), "strides": ()}, "one axis, found 0"),
        ({"says": {"shape": None}}, "one axis"),
        ({"strides": (2,)}, "contiguous"),
        ({"strides": (-1,)}, "contiguous"),
        ({"strides": (0,)}, "contiguous"),
        ({"shape": (-64,)}, "contiguous"),
        ({"says": {"data": None}}, "address"),
        ({"says": {"byte_offset": 2**64 - 1}}, "address"),
    ],
)
def test_what_is_none_is_refused_and_left_to_its_owner(
    opened: _core.Checkpoint, versioned: bool, more: dict[str, Any], says: str
) -> None:
    exporter = Exporter(versioned=versioned, **more)
    refused(lambda: into(opened, exporter), says)
    assert exporter.deleted == 0
    assert not exporter.memory.any()


def test_another_major_version_is_refused_without_a_look_at_the_rest(opened: _core.Checkpoint) -> None:
    refused(lambda: into(opened, Exporter(major=2)), "DLPack 1, found 2")


def test_nothing_has_no_address(tmp_path: Path) -> None:
    path = made.checkpoint(tmp_path / "c", {made.param("w"): np.zeros((4, 4), np.uint8)})
    exporter = Exporter(shape=(0,), says={"data": None})
    _core.Checkpoint.open(path).read([(made.param("w"), ((1, 0), (0, 4)), exporter)])
    assert exporter.deleted == 1


def test_what_is_read_only_is_read_and_never_written(opened: _core.Checkpoint) -> None:
    fixed = DATA.copy()
    fixed.flags.writeable = False
    refused(lambda: into(opened, fixed), "read-only")
    refused(lambda: into(opened, Exporter(flags=1)), "read-only")
    refused(lambda: into(opened, bytes(64)), "bytes")
    out = np.zeros(64, np.uint8)
    for source in (fixed, Exporter(memory=DATA, flags=1), DATA.tobytes()):
        out[:] = 0
        _core.copy_bytes(out, [(source, 0, 64)])
        assert out.tobytes() == DATA.tobytes()


def test_what_speaks_no_dlpack_or_raises_is_refused_and_says_why(opened: _core.Checkpoint) -> None:
    class Raises:
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("not today")

    class GivesAnother:
        def __dlpack__(self, **_: Any) -> Any:
            return 5

    class Stops:
        def __dlpack__(self, **_: Any) -> Any:
            raise KeyboardInterrupt

    refused(lambda: into(opened, bytearray(64)), "speaks DLPack, found bytearray")
    error = refused(lambda: into(opened, Raises()), "not today")
    assert isinstance(error.__cause__, BufferError)
    refused(lambda: into(opened, GivesAnother()), "a capsule, found int")
    with pytest.raises(KeyboardInterrupt):
        into(opened, Stops())
    for array in (DATA.view("f4"), DATA.reshape(8, 8), np.zeros(128, np.uint8)[::2]):
        refused(lambda array=array: into(opened, array), "expected")


def test_a_capsule_is_taken_once(opened: _core.Checkpoint) -> None:
    class Again:
        capsule = Exporter().capsule()

        def __dlpack__(self, **_: Any) -> Any:
            return self.capsule

    again = Again()
    into(opened, again)
    assert capsules.name_of(again.capsule) == b"used_dltensor_versioned"
    refused(lambda: into(opened, again), "nobody took before")


def test_destinations_are_apart_from_one_another_and_from_sources(opened: _core.Checkpoint) -> None:
    pool = np.zeros(192, np.uint8)
    w, v = made.param("w"), made.param("v")
    refused(lambda: opened.read([(w, None, pool[:64]), (v, None, pool[63:127])]), "two that overlap")
    refused(lambda: opened.read([(w, None, pool[64:128]), (v, None, pool[64:128])]), "two that overlap")
    opened.read([(w, None, pool[64:128]), (v, None, pool[:64])])
    refused(lambda: _core.copy_bytes(pool[63:127], [(pool[:64], 0, 64)]), "overlap")
    _core.copy_bytes(pool[64:128], [(pool[:64], 0, 64)])


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(
    ("shape", "strides", "says"),
    [
        ((4, 4), (4, 1), {}),
        ((4, 4), None, {}),
        ((2, 1, 8), (8, 99, 1), {}),
        ((), (), {"bits": 64, "lanes": 2}),
        ((), None, {"bits": 64, "lanes": 2, "shape": None}),
        ((16,), (1,), {"code": 17, "bits": 4, "lanes": 2}),
        ((1, 1), (-5, 0), {"bits": 128}),
    ],
)
def test_a_source_is_elements_of_any_type_and_shape(
    versioned: bool, shape: tuple[int, ...], strides: tuple[int, ...] | None, says: dict[str, Any]
) -> None:
    exporter = Exporter(memory=DATA, versioned=versioned, shape=shape, strides=strides, says=says)
    out = np.zeros(16, np.uint8)
    _core.copy_bytes(out, [(exporter, 0, 16)])
    assert out.tobytes() == DATA[:16].tobytes()
    assert exporter.deleted == 1


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(
    ("shape", "strides", "more", "message"),
    [
        ((4, 4), (1, 4), {}, "row-major"),
        ((4, 4), (5, 1), {}, "row-major"),
        ((4, 4), (4, -1), {}, "row-major"),
        ((4, 4), (0, 0), {}, "row-major"),
        ((-4, 4), (4, 1), {}, "row-major"),
        ((-4, -4), None, {}, "row-major"),
        ((2**62, 2**62), None, {}, "address"),
        ((2**62,), None, {"bits": 64}, "address"),
        ((2**62,), None, {"bits": 16}, "address"),
        ((16,), (1,), {"bits": 4}, "whole bytes"),
        ((16,), (1,), {"bits": 0}, "whole bytes"),
        ((16,), (1,), {"lanes": 0}, "whole bytes"),
        ((16,), (1,), {"bits": 3, "lanes": 7}, "whole bytes"),
        ((16,), (1,), {"shape": None}, "lengths of 1 axes"),
        ((16,), (1,), {"ndim": -1}, "lengths of -1 axes"),
        ((16,), (1,), {"device_kind": 2}, "memory of the CPU"),
        ((16,), (1,), {"data": None}, "address"),
        ((16,), (1,), {"byte_offset": 2**64 - 1}, "address"),
    ],
)
def test_a_source_that_is_none_is_refused_and_left_to_its_owner(
    versioned: bool, shape: tuple[int, ...], strides: tuple[int, ...] | None, more: dict[str, Any], message: str
) -> None:
    exporter = Exporter(memory=DATA, versioned=versioned, shape=shape, strides=strides, says=more)
    refused(lambda: _core.copy_bytes(np.zeros(16, np.uint8), [(exporter, 0, 16)]), message)
    assert exporter.deleted == 0


def test_nothing_in_any_shape_is_a_source() -> None:
    exporter = Exporter(shape=(3, 0, 2**62, 4), strides=(1, 7, 3, 5), says={"data": None})
    _core.copy_bytes(np.zeros(16, np.uint8), [(exporter, 4, 0)])
    assert exporter.deleted == 1


def test_arrays_are_kept_during_the_call_only(opened: _core.Checkpoint) -> None:
    out = np.zeros(64, np.uint8)
    before = sys.getrefcount(out)
    for _ in range(100):
        into(opened, out)
        refused(lambda: into(opened, out[:3]), "expected 64 bytes")
    gc.collect()  # tracebacks refer to the frames of the calls
    assert sys.getrefcount(out) == before


def test_torch_reads_and_is_read_into(opened: _core.Checkpoint) -> None:
    torch = pytest.importorskip("torch")
    out = torch.zeros(64, dtype=torch.uint8)
    into(opened, out)
    assert out.numpy().tobytes() == DATA.tobytes()
    mapped = torch.from_dlpack(opened.map(made.param("w")))
    mapped += 1
    assert mapped.numpy().tobytes() == (DATA + 1).tobytes()


def test_a_mapped_tensor_answers_as_the_protocol_asks(opened: _core.Checkpoint) -> None:
    mapped = opened.map(made.param("w"))
    assert mapped.__dlpack_device__() == (1, 0) and mapped.nbytes == 64
    assert capsules.name_of(mapped.__dlpack__()) == b"dltensor"
    assert capsules.name_of(mapped.__dlpack__(max_version=(0, 8))) == b"dltensor"
    assert capsules.name_of(mapped.__dlpack__(max_version=(1, 1), copy=False)) == b"dltensor_versioned"
    for wish in ({"copy": True}, {"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises(BufferError):
            mapped.__dlpack__(**wish)


def test_capsules_taken_or_not_leave_nothing_behind(opened: _core.Checkpoint) -> None:
    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count("model-")

    before = mappings()
    for _ in range(100):  # what is allocated once
        np.from_dlpack(opened.map(made.param("w")))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for at in range(10_000):
        mapped = opened.map(made.param("w"))
        if at % 3 == 0:
            mapped.__dlpack__(max_version=(1, 0) if at % 2 else None)
        elif at % 3 == 1:
            assert np.from_dlpack(mapped)[1] == 1
    del mapped
    gc.collect()
    assert mappings() == before
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert grown < 8 << 10, f"{grown} KiB more"


def test_an_array_outlives_all_that_it_came_from(opened: _core.Checkpoint) -> None:
    mapped = opened.map(made.param("w"))
    arrays = [np.from_dlpack(mapped) for _ in range(3)]
    arrays[0][5] = 99  # one memory, as with all arrays of one memory
    del mapped, opened
    gc.collect()
    assert arrays[2][5] == 99
    assert arrays[1][6:].tobytes() == DATA[6:].tobytes()
