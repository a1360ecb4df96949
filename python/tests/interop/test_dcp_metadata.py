"""A `.metadata` that is made to cost far more than it has bytes, or to fail where something is told of it."""

from __future__ import annotations

import struct
import time

import pytest
from interop import hostile as h

from waystation.errors import Error
from waystation.interop import dcp_metadata
from waystation.interop.refusal import Place

_MODULE = "torch.distributed.checkpoint.metadata"
_HUGE = (1 << 8000).to_bytes(1001, "little")
_LONG = b"\x8b" + struct.pack("<I", len(_HUGE)) + _HUGE
_NONE = h.numbers((0,))
_KEY = ("k" * 1_000_000,)


def _object(kind: str, **members: bytes) -> bytes:
    return h.global_(_MODULE, kind) + b")\x81" + h.mapping(**members) + b"b"


def _tensor(size: bytes, chunks: bytes = b"]") -> bytes:
    properties = _object("TensorProperties", dtype=h.global_("torch", "float32"))
    return _object("TensorStorageMetadata", properties=properties, size=size, chunks=chunks)


def _metadata(state: bytes, storage: bytes = b"}", planner: bytes = b"}") -> bytes:
    return h.pickle_of(
        _object("Metadata", state_dict_metadata=state, storage_data=storage, planner_data=planner)
    )


def _chunks(count: int) -> bytes:
    """A list of empty boxes that stands in memo 0."""
    one = _object("ChunkStorageMetadata", offsets=_NONE, sizes=_NONE) + b"q\x01"
    return b"]q\x00(" + one + b"h\x01" * (count - 1) + b"e"


def _many(value: bytes, first: bytes, count: int = 2000) -> bytes:
    """A mapping of so many keys, of which all but the first have one value."""
    return b"}(" + h.text("k") + first + b"".join(h.text(f"k{at}") + value for at in range(count)) + b"u"


def _place_at(offset: bytes) -> bytes:
    index = _object("MetadataIndex", fqn=h.text("k"), offset=h.numbers((0,)))
    info = h.global_("torch.distributed.checkpoint.filesystem", "_StorageInfo") + b")\x81"
    info += h.mapping(relative_path=h.text("a"), offset=offset, length=h.number(1)) + b"b"
    return b"}" + index + info + b"s"


_HOSTILE = {
    "a size of a hundred thousand axes": _metadata(h.mapping(k=_tensor(b"(" + b"J\xff\xff\xff\x7f" * 100_000 + b"t"))),
    "a size of seventeen axes": _metadata(h.mapping(k=_tensor(h.numbers((1,) * 17)))),
    "a size that is longer than Python writes out": _metadata(h.mapping(k=_tensor(b"(" + _LONG * 16 + b"t"))),
    "more elements than can be": _metadata(h.mapping(k=_tensor(h.numbers((1 << 40, 1 << 40))))),
    "an offset that is longer than Python writes out": _metadata(h.mapping(), _place_at(_LONG)),
    "one list of chunks for all tensors": _metadata(_many(_tensor(_NONE, b"h\x00"), _tensor(_NONE, _chunks(4000)))),
    "a path of one long text, many times": _metadata(
        _many(_tensor(_NONE), _tensor(_NONE)),
        planner=_many(b"(" + b"h\x02" * 60 + b"t", h.text("long" * 250_000) + b"q\x02"),
    ),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_metadata_that_costs_more_than_its_bytes_is_refused(name: str) -> None:
    begun = time.process_time()
    with pytest.raises(Error) as refused:
        dcp_metadata.read(_HOSTILE[name], Place("x"))
    assert refused.value.code in ("bad-argument", "limit")
    assert len(str(refused.value)) < 2000
    assert time.process_time() - begun < 2


def test_a_key_of_a_megabyte_is_not_told_for_each_of_its_boxes() -> None:
    from waystation.interop.walk import show

    begun = time.process_time()
    for _ in range(10_000):
        show(_KEY)
    assert time.process_time() - begun < 2
    assert show(("a", 1, "b\n")) == "a.1.b\\n" and show(()) == "the root"
