"""Checkpoints of others, in and out: DCP directories, files of `torch.save`, Hugging Face directories.

Nothing that is read here is ever run. `python -m waystation.interop` is the front for shells.
"""

from __future__ import annotations

from .dcp_dir import import_dcp
from .huggingface import ExportedModel, export_hf, from_checkpoint, import_hf, load_into
from .intake import ImportedState
from .torch_file import import_torch_file

__all__ = [
    "ExportedModel",
    "ImportedState",
    "export_hf",
    "from_checkpoint",
    "import_dcp",
    "import_hf",
    "import_torch_file",
    "load_into",
]
