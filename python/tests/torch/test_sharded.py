"""Models and optimizers sharded by FSDP2 and tensor parallelism: saved on four ranks, resumed on four, two and one."""

from pathlib import Path

import sharded_ranks
import torch
import torch.multiprocessing as mp
from sharded_ranks import build, restore, whole
from torch_states import same

import waystation


def test_what_four_ranks_saved_resumes_on_four_two_and_one(tmp_path: Path) -> None:
    mp.spawn(sharded_ranks.on_four, (str(tmp_path),), nprocs=4)
    at, saved = torch.load(tmp_path / "saved")
    model, made = build(3, None)
    restore(at, model, made)
    same(whole(model, made), saved)
    strided = [entry for entry in waystation.open(at)._source.core.entries() if entry.key[2] == "up.weight"]
    assert strided and all(len(entry.chunks) == 4 for entry in strided)
    mp.spawn(sharded_ranks.on_two, (str(tmp_path),), nprocs=2)
