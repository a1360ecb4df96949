"""What tests of several folders share: processes with torch.distributed between them, started once for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dcp.ranks import Ranks


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
