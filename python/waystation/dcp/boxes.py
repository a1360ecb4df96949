"""Whether DCP and the placements of a tensor mean the same elements.

DCP describes what a rank holds of a distributed tensor as one box. Where a rank holds several, or another one, the box
is plausible and wrong; `waystation.torch.boxes` knows which there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.distributed.tensor import DTensor

from ..errors import usage
from ..torch import boxes


def check_box(tensor: torch.Tensor, start: Sequence[int], extent: Sequence[int], what: str) -> None:
    """Refuses a distributed tensor of which DCP thinks that this rank has another box, or one of several."""
    if not isinstance(tensor, DTensor):
        return
    found = [(box.start, box.extent) for box in boxes.boxes(tensor, what)]
    if not found if 0 in extent else found == [(tuple(start), tuple(extent))]:
        return
    raise usage(
        f"{what} has the placements {tuple(tensor.placements)}: here this rank holds {_told(found)}, and "
        f"DCP takes it for {_told([(tuple(start), tuple(extent))])}",
        remedy="Redistribute it to placements whose shards are boxes.",
    )


def _told(found: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> str:
    return " and ".join(f"{list(extent)} at {list(start)}" for start, extent in found) or "nothing"
