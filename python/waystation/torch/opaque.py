"""Data loaders whose state only they understand, carried as they save it, beside what it depends on.

It knows torchdata's `StatefulDataLoader`. Such a state is right only on the same number of ranks, workers and batches,
which its fingerprint says; nothing here can tell which item comes next, so it is never graded `exact`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import Any

import torch

from .. import tree
from ..errors import error, usage
from ..records import Record
from ..snapshot import Piece
from .group import Place

__all__ = ["StatefulLoaderCursor"]

MEDIA_TYPE = "torchdata.StatefulDataLoader"


class StatefulLoaderCursor:
    """Where training stands in a `torchdata.stateful_dataloader.StatefulDataLoader`, on this rank.

    `source` says what the data are, as for `ResumableSampler`; `more` are further numbers and texts that the loader's
    state depends on and that are compared before a resume. Iterate over this instead of over the loader: making the
    loader's iterator draws from PyTorch's default generator, which in the middle of an epoch happens in a resumed run
    only, so it is undone there.

    Restoring one needs `restore(…, cursors="opaque-same-topology")`; on another number of ranks or workers it is
    refused.
    """

    def __init__(self, loader: Any, *, source: str, more: dict[str, str | int] | None = None) -> None:
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(loader, method, None)):
                raise usage(f"expected a loader with {method}(), found a {type(loader).__name__}: a plain DataLoader "
                            "has no "
                            "state; use a ResumableSampler as its batch_sampler")
        self.loader = loader
        self.source = source
        self.more = dict(more or {})
        self._resumed = False

    def __iter__(self) -> Iterator[Any]:
        if not self._resumed:
            return iter(self.loader)
        self._resumed = False
        before = torch.default_generator.get_state()
        iterator: Iterator[Any] = iter(self.loader)
        torch.default_generator.set_state(before)
        return iterator

    def __len__(self) -> int:
        return len(self.loader)

    def fingerprint(self, place: Place) -> dict[str, Any]:
        """What the state depends on, as a value tree: a map in ascending order of its names."""
        said: dict[str, Any] = {
            "batch_size": self.loader.batch_size, "num_workers": self.loader.num_workers, "rank": place.group.rank,
            "ranks": place.group.size, "source": self.source, "torchdata": _version("torchdata"),
            "dataset": f"{type(self.loader.dataset).__module__}.{type(self.loader.dataset).__qualname__}",
        }
        for name, value in self.more.items():
            if name in said or isinstance(value, bool) or not isinstance(value, (str, int)):
                raise usage(f"more[{name!r}] = {value!r}: expected names of one's own, and texts and integers")
            said[name] = value
        return {"map": [[name, tree.to_tree(said[name])] for name in sorted(said)]}

    def capture(self, name: str, place: Place) -> tuple[list[Record], list[Piece]]:
        """The record of this rank, and the tensors of the loader's state, scoped to its place."""
        tensors = tree.TreeTensors(f"cursor/{name}", scope=place.coordinate, slot="torch/value")
        state = tree.to_tree(self.loader.state_dict(), tensors)
        value = {"kind": "opaque", "media_type": MEDIA_TYPE, "fingerprint": self.fingerprint(place), "state": state}
        return [Record("cursor", name, value, place.coordinate)], tensors.pieces

    def offer(self, place: Place) -> tuple[list[tuple[int, str]], Any | None]:
        """No sources, since the fingerprint has the digest; and the fingerprint."""
        return [], self.fingerprint(place)

    def check(self, value: dict[str, Any]) -> None:
        """Raises `not-exact` for the cursor of another kind of loader."""
        if value.get("kind") != "opaque" or value.get("media_type") != MEDIA_TYPE:
            found = value.get("media_type", value.get("kind"))
            raise error("not-exact", f"the data were saved by {found!r}, and here is a {MEDIA_TYPE}")

    def put(self, value: dict[str, Any], tensor: tree.GetTensor) -> None:
        """Goes on from the value at the next iterator."""
        self.loader.load_state_dict(tree.from_tree(value["state"], tensor))
        self._resumed = True

    def step(self) -> int:
        """Nothing to count: the loader counts what it gives to the trainer."""
        return 0


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
