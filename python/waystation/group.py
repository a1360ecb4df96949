"""The processes of one job, as far as saving needs them.

It knows a rank, a size and two collectives; it must not know what is sent. A job makes one `broadcast` when it starts,
one `all_gather` where it resumes, and no other collective ever; a manager makes one `all_gather` where its methods say
so. Any transport will do: `waystation.torch` has one over `torch.distributed`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Group", "Solo"]


@runtime_checkable
class Group(Protocol):
    """All processes that save together. Every process calls the same methods in the same order."""

    @property
    def rank(self) -> int:
        """This process, 0 … size-1. Rank 0 makes directories and commits."""

    @property
    def size(self) -> int:
        """How many processes there are, at least 1."""

    def broadcast(self, data: bytes | None) -> bytes:
        """What rank 0 gives, on all ranks; the others give None."""

    def all_gather(self, data: bytes) -> list[bytes]:
        """What every rank gives, of any length, in the order of the ranks, on all ranks."""


class Solo:
    """A job of one process."""

    rank: int = 0
    size: int = 1

    def broadcast(self, data: bytes | None) -> bytes:
        """The same bytes."""
        return b"" if data is None else data

    def all_gather(self, data: bytes) -> list[bytes]:
        """The same bytes, of the only rank."""
        return [data]
