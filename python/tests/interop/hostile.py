"""Makes archives and pickles as `torch.save` and others would, byte by byte, for the tests of what must be refused."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

PROTO = b"\x80\x02"
STOP = b"."


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def global_(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def mapping(**members: bytes) -> bytes:
    """The opcodes of a dict whose values are made by these opcodes."""
    return b"}(" + b"".join(text(key) + value for key, value in members.items()) + b"u"


def pickle_of(body: bytes) -> bytes:
    return PROTO + body + STOP


def tensor(
    key: str = "0",
    count: int = 4,
    size: tuple[int, ...] = (4,),
    stride: tuple[int, ...] = (1,),
    offset: int = 0,
    storage: str = "FloatStorage",
) -> bytes:
    """The opcodes of a tensor over storage `data/<key>`."""
    reference = b"(" + text("storage") + global_("torch", storage) + text(key) + text("cpu") + number(count) + b"tQ"
    hooks = global_("collections", "OrderedDict") + b")R"
    arguments = b"(" + reference + number(offset) + numbers(size) + numbers(stride) + b"\x89" + hooks + b"t"
    return global_("torch._utils", "_rebuild_tensor_v2") + arguments + b"R"


def number(value: int) -> bytes:
    raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def archive(
    path: Path,
    pickle: bytes,
    *,
    storages: dict[str, bytes] | None = None,
    folder: str = "archive",
    method: int = zipfile.ZIP_STORED,
    more: dict[str, bytes] | None = None,
) -> Path:
    """A file as `torch.save` lays it out."""
    with zipfile.ZipFile(path, "w", method) as made:
        made.writestr(f"{folder}/data.pkl", pickle)
        made.writestr(f"{folder}/byteorder", b"little")
        for key, data in (storages or {}).items():
            made.writestr(f"{folder}/data/{key}", data)
        made.writestr(f"{folder}/version", b"3\n")
        for name, data in (more or {}).items():
            made.writestr(name, data)
    return path
