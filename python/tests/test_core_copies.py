"""Copies between arrays on many threads, without the GIL."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from core_saves import refused
from waystation import _core


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_copies_between_arrays(threads: int | None) -> None:
    random = np.random.default_rng(3)
    sizes = [0, 1, 7, 100_003, (16 << 20) - 1, (33 << 20) + 5]
    sources = [random.integers(0, 256, size, np.uint8) for size in sizes]
    pool = np.zeros(sum(sizes) + 64 * len(sizes), np.uint8)
    slots, at = [], 0
    for size in sizes:
        slots.append(pool[at:at + size + 5])
        at += size + 64
    _core.copy_bytes(list(zip(sources, slots, strict=True)), threads=threads)
    for source, slot in zip(sources, slots, strict=True):
        assert (slot[:len(source)] == source).all() and not slot[len(source):].any()
    _core.copy_bytes([])


def test_copies_that_are_refused() -> None:
    source, pool = np.arange(10, dtype=np.uint8), np.zeros(20, np.uint8)
    with refused("bad-argument", "source 1"):
        _core.copy_bytes([(source, pool[:10]), (source, pool[10:19])])
    with refused("bad-argument", "overlap"):
        _core.copy_bytes([(source, pool[:10]), (source, pool[9:])])
    with refused("bad-argument", "overlap"):
        _core.copy_bytes([(pool[:10], pool[9:])])
    with refused("bad-argument"):
        _core.copy_bytes([(source, b"0123456789")])
    fixed = pool[:10]
    fixed.flags.writeable = False
    with refused("bad-argument", "read-only"):
        _core.copy_bytes([(source, fixed)])
    assert not pool.any()


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
    _core.copy_bytes([(source, target)])
    during = ticks - before
    over.set()
    other.join()
    assert during > 10 and target.all()
