"""Whatever a user may call says what it does: every public name of the package, and every public method of its classes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import pytest

MODULES = ["waystation", "waystation.torch", "waystation.dcp", "waystation.interop", "waystation.run",
           "waystation.errors", "waystation.resume", "waystation.records", "waystation.manager"]  # fmt: skip


def unsaid(module_name: str) -> Iterator[str]:
    module = importlib.import_module(module_name)
    if not module.__doc__:
        yield module_name
    for name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)) or not value.__module__.startswith("waystation"):
            continue
        # A dataclass without a docstring is given its signature for one.
        if not value.__doc__ or value.__doc__.startswith(f"{name}("):
            yield f"{module_name}.{name}"
        for member, own in vars(value).items() if inspect.isclass(value) else ():
            if member.startswith("_") or not (inspect.isfunction(own) or isinstance(own, (property, classmethod))):
                continue
            # What a base class says of a method, as PyTorch's do of theirs, holds for those that replace it.
            if not inspect.getdoc(getattr(value, member)):
                yield f"{module_name}.{name}.{member}"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_says_what_it_is(module: str) -> None:
    if module.rpartition(".")[2] in ("torch", "dcp", "interop"):
        pytest.importorskip("torch")
    assert not list(unsaid(module))
