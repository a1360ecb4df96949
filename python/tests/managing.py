"""What tests of managers share: one small state, and a look at what is in a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import waystation
from waystation import _core
from waystation.key import Key
from waystation.records import progress
from waystation.snapshot import Piece, Snapshot


def snapshot(step: int, size: int = 1000) -> Snapshot:
    return Snapshot(pieces=[Piece.whole(Key.param("w"), np.full(size, step, np.int32))], records=[progress(step)])


def steps(runs: Path) -> list[int]:
    """Of all complete checkpoints, each verified."""
    complete = [one for one in json.loads(_core.list_json(str(runs))) if one["state"] == "complete"]
    for one in complete:
        assert json.loads(_core.verify_json(str(runs / one["name"])))["ok"]
        with waystation.open(runs / one["name"]) as checkpoint:
            assert (checkpoint["w"].numpy() == one["step"]).all()
    return sorted(one["step"] for one in complete)


BEGIN = """
    import os, sys, threading
    import numpy as np
    from waystation.manager import CheckpointManager
    from waystation.key import Key
    from waystation.records import progress
    from waystation.snapshot import Piece, Snapshot

    def snapshot(step, size=1000):
        return Snapshot(pieces=[Piece.whole(Key.param("w"), np.full(size, step, np.int32))], records=[progress(step)])
"""
