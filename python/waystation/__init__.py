"""Sharded, resumable training checkpoints: saved by N ranks, verified, resharded and resumed by M.

    import waystation

    waystation.save("ckpt", {"w": array})          # alone; a training job uses CheckpointManager
    with waystation.open("ckpt") as checkpoint:
        weights = checkpoint.load(framework="torch")

Names are looked up when they are first used: importing the package imports neither NumPy nor PyTorch. Subpackages:
`waystation.torch`, `waystation.dcp`, `waystation.interop`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoint import Checkpoint, Component, open
    from .errors import (
        CorruptError,
        Error,
        ExistsError,
        IncompleteError,
        LimitError,
        Location,
        MalformedError,
        NoCheckpointError,
        NoneResumableError,
        NotCommittedError,
        NotExactError,
        NotFoundError,
        RegionError,
        StorageError,
        UnsupportedError,
        UsageError,
    )
    from .group import Group, Solo
    from .job import Job
    from .key import Key
    from .manager import CheckpointManager
    from .records import Record
    from .resume import appraise, restore
    from .run import (
        commit,
        copy,
        export,
        gc,
        import_safetensors,
        inspect,
        latest,
        list_checkpoints,
        pin,
        reject,
        reshard,
        salvage,
        unpin,
        verify,
    )
    from .snapshot import Alias, Declared, Omitted, Piece, Snapshot
    from .standalone import save, save_snapshot
    from .tensor import Tensor

_NAMES = {
    "checkpoint": ("Checkpoint", "Component", "open"),
    "errors": (
        "CorruptError",
        "Error",
        "ExistsError",
        "IncompleteError",
        "LimitError",
        "Location",
        "MalformedError",
        "NoCheckpointError",
        "NoneResumableError",
        "NotCommittedError",
        "NotExactError",
        "NotFoundError",
        "RegionError",
        "StorageError",
        "UnsupportedError",
        "UsageError",
    ),
    "group": ("Group", "Solo"),
    "job": ("Job",),
    "key": ("Key",),
    "manager": ("CheckpointManager",),
    "records": ("Record",),
    "resume": ("appraise", "restore"),
    "run": (
        "commit",
        "copy",
        "export",
        "gc",
        "import_safetensors",
        "inspect",
        "latest",
        "list_checkpoints",
        "pin",
        "reject",
        "reshard",
        "salvage",
        "unpin",
        "verify",
    ),
    "snapshot": ("Alias", "Declared", "Omitted", "Piece", "Snapshot"),
    "standalone": ("save", "save_snapshot"),
    "tensor": ("Tensor",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = frozenset({*_NAMES, "arrays", "dcp", "dtypes", "interop", "pool", "progress", "torch", "tree"})

__all__ = [
    "Alias",
    "Checkpoint",
    "CheckpointManager",
    "Component",
    "CorruptError",
    "Declared",
    "Error",
    "ExistsError",
    "Group",
    "IncompleteError",
    "Job",
    "Key",
    "LimitError",
    "Location",
    "MalformedError",
    "NoCheckpointError",
    "NoneResumableError",
    "NotCommittedError",
    "NotExactError",
    "NotFoundError",
    "Omitted",
    "Piece",
    "Record",
    "RegionError",
    "Snapshot",
    "Solo",
    "StorageError",
    "Tensor",
    "UnsupportedError",
    "UsageError",
    "appraise",
    "commit",
    "copy",
    "export",
    "gc",
    "import_safetensors",
    "inspect",
    "latest",
    "list_checkpoints",
    "open",
    "pin",
    "reject",
    "reshard",
    "restore",
    "salvage",
    "save",
    "save_snapshot",
    "unpin",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        found = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    elif name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    elif name == "__version__":
        found = _version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, "__version__"})


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version(__name__)
    except metadata.PackageNotFoundError:
        return "0+unknown"  # from a source tree
