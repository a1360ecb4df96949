"""How far training has come, counted by the trainer; the record `progress` of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .. import records
from ..errors import usage
from ..records import Record

__all__ = ["Progress"]


@dataclass(slots=True)
class Progress:
    """Counts over all ranks together, so that they are the same on each. None: the trainer does not count it; 0 is a
    count.

    `optimizer_step` are completed optimizer steps, `iteration` passes through the loop with those among them that a
    loss scaler `skipped`; `samples` and `tokens` those of completed optimizer steps, `batch` the samples of one now.
    """

    optimizer_step: int = 0
    iteration: int | None = None
    skipped: int | None = None
    epoch: int | None = None
    samples: int | None = None
    tokens: int | None = None
    batch: int | None = None

    def step(self, *, samples: int = 0, tokens: int = 0, skipped: bool = False) -> None:
        """Counts one pass through the loop; `skipped` says that the loss scaler left the optimizer step out."""
        if skipped and self.skipped is None:
            raise usage("a step was skipped and Progress does not count those: Progress(iteration=0, skipped=0)")
        if self.iteration is not None:
            self.iteration += 1
        if skipped:
            self.skipped = (self.skipped or 0) + 1
            return
        self.optimizer_step += 1
        if self.samples is not None:
            self.samples += samples
        if self.tokens is not None:
            self.tokens += tokens

    def record(self) -> Record:
        """The record, as the counts are now."""
        counts: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return records.progress(counts.pop("optimizer_step"), **counts)

    def put(self, value: dict[str, Any]) -> None:
        """The counts of a record's value. What it does not say is not counted from here on: 0 would be another
        count."""
        for each in fields(self):
            found = value.get(each.name)
            if each.name != "batch" or found is not None and self.batch is None:
                setattr(self, each.name, found)
