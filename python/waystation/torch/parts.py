"""The parts that a trainer hands over for its state, by name, and the refusal of what cannot be one.

It knows what each kind of part must be able to do; what is done with them is the state's and the parts' own modules'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, Union

import torch
from torch import nn

from ..errors import Error, usage

__all__ = ["Named", "averages", "models", "named", "optimizers", "stateful"]

T = TypeVar("T")
Named = Union[T, Mapping[str, T], None]
"""One of something, which is called "main", or several by name, or none."""


def models(given: Named[nn.Module]) -> dict[str, nn.Module]:
    """Modules by component."""
    if isinstance(given, Mapping) and any(isinstance(one, torch.Tensor) for one in given.values()):
        raise usage("model is a module, or a dict of modules by component, found a state dict: hand over the module "
                    "itself, so that it can be loaded")
    made = _by_name("model", given)
    if not made:
        raise usage("model is a module, or a dict of modules by component, found none")
    for name, one in made.items():
        if not isinstance(one, nn.Module):
            raise _refused("model", name, one, "a torch.nn.Module")
    return made


def optimizers(given: Named[torch.optim.Optimizer]) -> dict[str, torch.optim.Optimizer]:
    """Optimizers by name."""
    return _checked("optimizers", _by_name("optimizers", given), ("state_dict", "load_state_dict"), "param_groups")


def stateful(what: str, given: Named[Any]) -> dict[str, Any]:
    """Schedulers or scalers by name."""
    return _checked(what, _by_name(what, given), ("state_dict", "load_state_dict"))


def averages(given: Named[Any]) -> dict[str, tuple[Any, Any]]:
    """Averages by name, each with its decay, or None where it says that itself."""
    pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], nn.Module)
    made = {"ema": given} if pair else _by_name("ema", given, "ema")
    split = {name: one if isinstance(one, tuple) and len(one) == 2 else (one, None) for name, one in made.items()}
    for name, (one, _) in split.items():
        if not isinstance(one, nn.Module):
            raise _refused("ema", name, one, "a torch.nn.Module, or (module, decay)")
    return split


def named(what: str, given: Mapping[str, Any] | None, *methods: str) -> dict[str, Any]:
    """What has no name unless it is given one."""
    if given is not None and not isinstance(given, Mapping):
        raise usage(f"{what} is a dict of them by name, {what}={{\"train\": …}}, found {_said(given)}")
    return _checked(what, _by_name(what, given), methods)


def _by_name(what: str, given: Any, alone: str = "main") -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, (list, tuple, set, frozenset)):
        raise usage(f"{what} is one, or a dict of several by name, {{\"a\": …, \"b\": …}}, found {_said(given)}: "
                    "name them, since a checkpoint keeps them by their names and not in their order")
    if not isinstance(given, Mapping):
        return {alone: given}
    for name in given:
        if not isinstance(name, str) or not name:
            raise usage(f"{what} is one, or a dict of several by name, found the name {name!r}")
    return dict(given)


def _checked(what: str, made: dict[str, Any], methods: tuple[str, ...], *attributes: str) -> dict[str, Any]:
    for name, one in made.items():
        lacks = [each for each in methods if not callable(getattr(one, each, None))]
        lacks += [each for each in attributes if not hasattr(one, each)]
        # A class has the methods of its instances.
        if lacks or isinstance(one, type):
            raise _refused(what, name, one, f"something with {', '.join((*methods, *attributes))}")
    return made


def _refused(what: str, name: str, one: object, expected: str) -> Error:
    return usage(f"{what}: expected {expected} under {name!r}, found {_said(one)}")


def _said(one: object) -> str:
    if isinstance(one, type):
        return f"the class {one.__name__}"
    # Of others the text may be long.
    return f"{one!r:.60}" if isinstance(one, (str, int, float)) else f"a {type(one).__name__}"
