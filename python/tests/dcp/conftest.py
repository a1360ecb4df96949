from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
from waystation import _core  # noqa: E402


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A directory for a run. All checkpoints that are in it after the test hold every rule."""
    yield tmp_path / "run"
    for commit in (tmp_path / "run").glob("*/waystation.commit"):
        if not (commit.parent / "damaged").exists():
            report = json.loads(_core.verify_json(str(commit.parent)))
            assert report["ok"], report


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("c10d-NullHandler-dcp_logger").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


Save = Callable[..., str]
