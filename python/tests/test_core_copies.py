"""Copies of arrays into one memory on many threads, without the GIL, while they are still told."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from core_saves import refused
from waystation import _core


def told(arrays: list[Any], gap: int = 0) -> Iterator[tuple[Any, int, int]]:
    """Arrays with places one after another, `gap` bytes apart."""
    at = 0
    for array in arrays:
        yield array, at, array.nbytes
        at += array.nbytes + gap


@pytest.mark.parametrize("threads", [1, 2, 5, None])
@pytest.mark.parametrize("shift", [0, 1, 17, 63])
def test_copies_of_any_length_to_any_place(threads: int | None, shift: int) -> None:
    random = np.random.default_rng(3)
    sizes = [0, 1, 7, 4095, 4096, 4097, 4200, 100_003, (1 << 20) - 1, 1 << 20, (33 << 20) + 5]
    sources = [random.integers(0, 256, size + shift, np.uint8)[shift:] for size in sizes]
    memory = np.full(shift + sum(sizes) + 5 * len(sizes), 9, np.uint8)
    _core.copy_bytes(memory[shift:], told(sources, 5), threads=threads)
    expected = b"".join(source.tobytes() + bytes([9] * 5) for source in sources)
    assert memory.tobytes() == bytes([9] * shift) + expected
    _core.copy_bytes(memory, [])
    _core.copy_bytes(memory[:0], [(memory[:0], 0, 0)])


def test_many_sources_are_each_copied_once() -> None:
    sources = [np.full(1 + number % 9000, number % 251, np.uint8) for number in range(20_000)]
    memory = np.zeros(sum(source.nbytes for source in sources), np.uint8)
    _core.copy_bytes(memory, told(sources))
    assert memory.tobytes() == b"".join(map(bytes, sources))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(60, dtype="f4").reshape(3, 4, 5),
        np.arange(60, dtype="c16").reshape(60, 1)[:, None],
        np.array(True),
        np.zeros((3, 0, 2), "i8"),
        np.arange(6, dtype="u2")[::6],
        np.arange(6, dtype="f8").reshape(1, 6)[::-1],
    ],
    ids=["3d", "ones", "scalar", "none", "one", "turned"],
)
def test_sources_are_of_any_type_and_shape(array: np.ndarray) -> None:
    memory = np.full(array.nbytes + 8, 7, np.uint8)
    _core.copy_bytes(memory, [(array, 0, array.nbytes)])
    assert memory.tobytes() == array.tobytes() + bytes([7] * 8)


SOURCE = np.arange(10, dtype=np.uint8)


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        ([(SOURCE, 0, 10), (SOURCE, 10, 9)], "9 bytes of source 1, found 10"),
        ([(SOURCE, 0, 11)], "11 bytes of source 0, found 10"),
        ([(SOURCE, 11, 10)], "10 bytes from 0 to 20, found one at 11"),
        ([(SOURCE[:5], 10, 5), (SOURCE, 5, 10)], "10 bytes from 15 to 20, found one at 5"),
        ([(SOURCE[:5], 0, 5), (SOURCE[5:], 4, 5)], "5 bytes from 5 to 20, found one at 4"),
        ([(SOURCE, 2**64 - 1, 10)], f"found one at {2**64 - 1}"),
        ([(SOURCE[::2], 0, 5)], "row-major"),
        ([(object(), 0, 10)], "speaks DLPack, found object"),
        ([(SOURCE, 0)], "its place and its bytes, found"),
        ([(SOURCE, -1, 10)], "its place and its bytes, found"),
        ([(SOURCE, 2**64, 10)], "its place and its bytes, found"),
        ([SOURCE], "its place and its bytes, found"),
    ],
)
def test_copies_that_are_refused(sources: list[Any], says: str) -> None:
    with refused("bad-argument", says):
        _core.copy_bytes(np.zeros(20, np.uint8), sources)


def test_memory_that_is_no_place_to_copy_to() -> None:
    memory = np.zeros(20, np.uint8)
    for source in (memory[:10], memory[10:], memory[19:]):
        with refused("bad-argument", "apart from the memory"):
            _core.copy_bytes(memory[5:], [(SOURCE[:2], 0, 2), (source, 2, source.nbytes)])
    _core.copy_bytes(memory[10:], [(memory[:10], 0, 10)])
    fixed = memory[:]
    fixed.flags.writeable = False
    for no_place, says in ((fixed, "read-only"), (bytes(20), "bytes"), (memory.view("u4"), "uint8"), (memory[::2], "contiguous")):
        with refused("bad-argument", says):
            _core.copy_bytes(no_place, [(SOURCE, 0, 10)])
    assert not memory[5:].any() or memory[5:7].tolist() == [0, 1] and not memory[7:].any()


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_raised_while_sources_are_told_ends_the_copies(threads: int) -> None:
    class Enough(BaseException):
        pass

    large = np.ones(8 << 20, np.uint8)
    memory = np.zeros(64 << 20, np.uint8)

    def sources() -> Iterator[tuple[Any, int, int]]:
        for number in range(7):
            yield large, number * large.nbytes, large.nbytes
        raise Enough

    with pytest.raises(Enough):
        _core.copy_bytes(memory, sources(), threads=threads)
    memory[:] = 5  # nobody writes to it any more
    time.sleep(0.05)
    assert (memory == 5).all()
    assert sys.getrefcount(large) == 2, "arrays are given back"


def test_a_source_lives_until_it_is_copied() -> None:
    memory = np.zeros(64 << 20, np.uint8)

    def sources() -> Iterator[tuple[Any, int, int]]:
        for number in range(64):
            yield np.full(1 << 20, number, np.uint8), number << 20, 1 << 20  # of nobody else

    _core.copy_bytes(memory, sources())
    assert (memory.reshape(64, -1) == np.arange(64, dtype=np.uint8)[:, None]).all()


def test_capsules_are_taken_once() -> None:
    memory = np.zeros(64, np.uint8)
    capsule = SOURCE.__dlpack__()
    _core.copy_bytes(memory, [(capsule, 3, 10)])
    assert memory[3:13].tolist() == SOURCE.tolist()
    with refused("bad-argument", "nobody took before"):
        _core.copy_bytes(memory, [(capsule, 3, 10)])


def test_copies_let_other_threads_run() -> None:
    source, target = np.ones(256 << 20, np.uint8), np.zeros(256 << 20, np.uint8)
    ticks, over = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not over.is_set():
            ticks += 1
            time.sleep(0)

    other = threading.Thread(target=tick)
    other.start()
    before = ticks
    _core.copy_bytes(target, [(source, 0, source.nbytes)])
    during = ticks - before
    over.set()
    other.join()
    assert during > 10 and target.all()
