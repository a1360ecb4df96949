"""What PyTorch's optimizers call their state, and what the format calls it.

Tables only: by class, since one native name is several slots (`momentum_buffer` of SGD, RMSprop and Muon). A class that
is not listed is as the first listed one that it inherits from; what no table has is the slot `torch/<native name>`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_ADAM = {"exp_avg": "adam.m", "exp_avg_sq": "adam.v", "max_exp_avg_sq": "adam.vmax"}
_SLOTS: dict[str, dict[str, str]] = {
    "ASGD": {"ax": "asgd.ax", "eta": "asgd.eta", "mu": "asgd.mu"},
    "Adadelta": {"square_avg": "adadelta.v", "acc_delta": "adadelta.delta"},
    "Adafactor": {"row_var": "adafactor.row", "col_var": "adafactor.col", "variance": "adafactor.full"},
    "Adagrad": {"sum": "adagrad.sum"},
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "Adamax": {"exp_avg": "adam.m", "exp_inf": "adamax.u"},
    "FusedAdam": _ADAM,
    "LBFGS": {},
    "Lion": {"exp_avg": "lion.m"},
    "Muon": {"momentum_buffer": "muon.momentum"},
    "NAdam": _ADAM | {"mu_product": "nadam.mu_product"},
    "RAdam": _ADAM,
    "RMSprop": {"square_avg": "rmsprop.v", "momentum_buffer": "rmsprop.momentum", "grad_avg": "rmsprop.mean"},
    "Rprop": {"prev": "rprop.prev", "step_size": "rprop.step_size"},
    "SGD": {"momentum_buffer": "sgd.momentum"},
    "SparseAdam": _ADAM,
}
_PREFIX = "torch/"

WITHOUT_PARAMETER = frozenset({"LBFGS"})
"""Classes whose state belongs to all parameters in their order, and hangs on the first of them."""

COUNTED = frozenset(_SLOTS) - {"FusedAdam", "LBFGS", "Lion", "Muon", "SGD"}
"""Classes that cannot go on without a count of steps beside other state."""

SCALARS = frozenset({"step", "mu_product", "eta", "mu"})
"""Native names of state without axes, whatever shape the parameter has."""

SCALARS_ON_DEVICE = frozenset({"ASGD"})
"""Classes whose 0-d state is always where the parameter is."""

IMPLEMENTATION = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Members of a group that say how it is computed: those of the live optimizer stay as they are."""

NOT_STATE = frozenset({"params", "param_names"})
"""Members of a group that are neither: identities say which parameters it has."""


def family(optimizer: object) -> str:
    """The listed class that an optimizer is, or inherits from; else its own.

    A class of another's that is called as one of PyTorch's, and is made of another one of PyTorch's, is the latter:
    `class Adam(torch.optim.SGD)` has the state of SGD.
    """
    kinds = type(optimizer).__mro__
    listed = [kind for kind in kinds if kind.__name__ in _SLOTS]
    if any(_is_pytorchs(kind) for kind in listed):
        listed = [kind for kind in listed if _is_pytorchs(kind) or not hasattr(torch.optim, kind.__name__)]
    return next(iter(listed), kinds[0]).__name__


def algorithm(optimizer: object) -> str:
    """What the record calls an optimizer: its class in small letters, or `sgd.adam` for an SGD that is called Adam."""
    kind = type(optimizer).__name__
    made_of = family(optimizer)
    said = f"{made_of}.{kind}" if made_of != kind and hasattr(torch.optim, kind) else kind
    return said.lower()


def _is_pytorchs(kind: type) -> bool:
    return getattr(torch.optim, kind.__name__, None) is kind


def slot_of(family: str, native: str) -> str:
    """The slot of a native name."""
    return _SLOTS.get(family, {}).get(native, _PREFIX + native)


def native_of(family: str, slot: str) -> str | None:
    """The native name of a slot; None for one of another algorithm."""
    for native, found in _SLOTS.get(family, {}).items():
        if found == slot:
            return native
    return slot[len(_PREFIX):] if slot.startswith(_PREFIX) else None


def axes_of(shape: Sequence[int], parameter: Sequence[int]) -> tuple[int | None, ...] | None:
    """Which axis of its parameter each axis of a slot follows: one of equal length does, one of length 1 does not.

    None where the shapes do not correspond, and for what has no axes.
    """
    if len(shape) != len(parameter) or not all(a == b or a == 1 for a, b in zip(shape, parameter)):
        return None
    axes = tuple(axis if a == b else None for axis, (a, b) in enumerate(zip(shape, parameter)))
    return axes if any(axis is not None for axis in axes) else None
