"""What the parameters and buffers of a model are called: as its `state_dict` would, without what wrappers put in front.

The names are those of the model that was wrapped, so they are the same with and without `DistributedDataParallel`,
`torch.compile` and activation checkpointing. The order is that of `state_dict`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..errors import usage

EXTRA = "_extra_state"

# Class, by module and name so that none is imported, and the child that it wraps.
_WRAPPERS = {
    ("torch.nn.parallel.distributed", "DistributedDataParallel"): "module",
    ("torch.nn.parallel.data_parallel", "DataParallel"): "module",
    ("torch._dynamo.eval_frame", "OptimizedModule"): "_orig_mod",
    ("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "CheckpointWrapper"): "_checkpoint_wrapped_module",
    ("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "OffloadWrapper"): "_checkpoint_wrapped_module",
}
_HIDDEN = "_checkpoint_wrapped_module."  # these wrappers take it out of the state dict themselves


@dataclass(frozen=True, slots=True)
class Named:
    """A parameter or persistent buffer under one of its names; `target` is the first of all its names, maybe this
    one."""

    name: str
    role: str
    tensor: torch.Tensor
    target: str

    @property
    def is_alias(self) -> bool:
        """Whether the tensor has been met under an earlier name."""
        return self.name != self.target


@dataclass(frozen=True, slots=True)
class Names:
    """The tensors of a model by name, in the order of its state dict, and its modules' extra state."""

    tensors: tuple[Named, ...]
    extra: tuple[tuple[str, Any, nn.Module], ...]
    """Module's name, extra state, module."""

    def of_params(self) -> dict[int, str]:
        """`id(parameter)` to the name under which its state is kept."""
        return {id(each.tensor): each.target for each in self.tensors if each.role == "param"}


def names_of(model: nn.Module, what: str = "the model") -> Names:
    """The names of a model's parameters, persistent buffers and extra state.

    Raises `bad-argument` where its `state_dict` has other names or other tensors than its modules: a hook or an
    override that this function cannot follow would otherwise lose state.
    """
    # First, since it runs the hooks that put sharded parameters in their place.
    stated: dict[str, Any] = dict(model.state_dict(keep_vars=True))
    found: dict[str, tuple[str, str, torch.Tensor]] = {}
    extra: dict[str, tuple[str, nn.Module]] = {}
    for raw, name, module in _modules(model, "", "", ()):
        _known(module, name or what)
        raw = raw.replace(_HIDDEN, "")
        for role, members in (("param", module._parameters), ("buffer", module._buffers)):
            for short, tensor in members.items():
                if tensor is not None and not (role == "buffer" and short in module._non_persistent_buffers_set):
                    found[raw + short] = (name + short, role, tensor)
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            extra[raw + EXTRA] = (name.removesuffix("."), module)
    lost = sorted(stated.keys() - found.keys() - extra.keys())
    hidden = sorted((found.keys() | extra.keys()) - stated.keys())
    if lost or hidden:
        raise usage(f"the state_dict of {what} has {_some(lost)} that no parameter, buffer or extra state of its "
                    "modules is, "
                    f"and lacks {_some(hidden)} that one is: a hook or an override changes it",
                    remedy="Save what it adds as values or tensors of your own, and hand over the model without it.")
    first: dict[tuple[str, int], str] = {}
    tensors: list[Named] = []
    taken: dict[str, str] = {}
    states: list[tuple[str, Any, nn.Module]] = []
    for raw, value in stated.items():
        if raw in extra:
            states.append((extra[raw][0], value, extra[raw][1]))
            continue
        name, role, tensor = found[raw]
        if value is not tensor:
            raise usage(f"the state_dict of {what} has another tensor as {raw!r} than the module: a hook changes it",
                        remedy="Hand over the model without the hook.")
        if name in taken:
            raise usage(f"{raw!r} and {taken[name]!r} of {what} are both {name!r} without the wrappers' prefixes")
        taken[name] = raw
        tensors.append(Named(name, role, tensor, first.setdefault((role, id(tensor)), name)))
    return Names(tuple(tensors), tuple(states))


def _modules(module: nn.Module, raw: str, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, str, nn.Module]]:
    """Every module under each of its names: prefix in the state dict, prefix without wrappers, module."""
    yield raw, name, module
    wrapped, path = _wrapped(module), (*above, id(module))
    for short, child in module._modules.items():
        if child is None:
            continue
        if id(child) in path:
            raise usage(f"module {name + short!r} contains itself")
        inner = name if short == wrapped else f"{name}{short}."
        yield from _modules(child, f"{raw}{short}.", inner, path)


def _wrapped(module: nn.Module) -> str | None:
    """The child that a module only wraps."""
    for kind in type(module).__mro__:
        child = _WRAPPERS.get((kind.__module__, kind.__name__))
        if child is not None:
            return child
    return None


def _known(module: nn.Module, name: str) -> None:
    for kind in type(module).__mro__:
        if kind.__name__ == "FullyShardedDataParallel":
            raise usage(f"{name} is wrapped in FullyShardedDataParallel, which flattens its parameters",
                        remedy="Use torch.distributed.fsdp.fully_shard, which keeps them.")


def _some(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:5]))
    return f"{len(names)} names ({shown}{', …' if len(names) > 5 else ''})" if names else "none"
