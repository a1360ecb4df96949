"""What tests of several folders share: processes with torch.distributed between them, started once for all."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dcp.ranks import Ranks

# Who starts tests in the background hands down a Ctrl-C that is ignored, and tests send one to processes of their own.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _ranks(size: int, factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    pytest.importorskip("torch")
    from dcp.ranks import Ranks

    ranks = Ranks(size, str(factory.mktemp("ranks") / "meet"))
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Two ranks that are kept until all tests are done."""
    yield from _ranks(2, tmp_path_factory)


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Four ranks, as `two`."""
    yield from _ranks(4, tmp_path_factory)
