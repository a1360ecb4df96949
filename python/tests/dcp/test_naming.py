"""What paths of a state dict are called, without PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from waystation._registry import SLOTS
from waystation.dcp.naming import Names, flat
from waystation.dcp.replicas import Digests, compare
from waystation.errors import Error
from waystation.key import Key


def names(values: dict[tuple[str | int, ...], object], **more: object) -> Names:
    flattened = {flat(path): value for path, value in values.items()}
    return Names(flattened, {flat(path): path for path in values}, **more)  # type: ignore[arg-type]


def group(*params: str, **hyper: object) -> dict[tuple[str | int, ...], object]:
    return {
        ("optim", "param_groups", 0, "params"): list(params),
        **{("optim", "param_groups", 0, name): value for name, value in hyper.items()},
    }


ADAM = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "amsgrad": False}


def test_models_optimizers_and_the_rest() -> None:
    found = names(
        {
            ("model", "a.w"): 0,
            ("optim", "state", "a.w", "exp_avg"): 0,
            ("optim", "state", "a.w", "new", "deep"): 0,
            ("optim", "state", "other", "exp_avg"): 0,
            ("extra", 3): 0,
            **group("a.w", **ADAM),
        }
    )
    assert found.key("model.a.w") == Key.param("a.w")
    assert found.key("optim.state.a.w.exp_avg") == Key.optimizer("a.w", "adam.m", "optim")
    assert found.key("optim.state.a.w.new.deep") == Key.optimizer("a.w", "torch/new.deep", "optim")
    # No group has this parameter: whose state it is cannot be said.
    assert found.key("optim.state.other.exp_avg") == Key(
        "main", "extension", "optim.state.other.exp_avg", "torch.dcp/tensor"
    )
    assert found.key("extra.3").role == "extension" and found.native("extra.3") == (("torch.dcp", ("extra", 3)),)


def test_flattened_names_with_dots_are_split_where_parameters_end() -> None:
    found = names(
        {
            ("optim", "state.a.state.b.exp_avg"): 0,
            ("optim", "state.a.exp_avg"): 0,
            **{("optim", f"param_groups.{param}.{name}"): 0 for param in ("a", "a.state.b") for name in ADAM},
        }
    )
    assert found.key("optim.state.a.state.b.exp_avg") == Key.optimizer("a.state.b", "adam.m", "optim")
    assert found.key("optim.state.a.exp_avg") == Key.optimizer("a", "adam.m", "optim")
    assert [one.form for one in found.optimizers] == ["flat"]


def test_one_name_is_several_slots() -> None:
    for hyper, native, slot in (
        ({"momentum": 0.9, "dampening": 0, "nesterov": False}, "momentum_buffer", "sgd.momentum"),
        ({"alpha": 0.9, "momentum": 0, "centered": False}, "momentum_buffer", "rmsprop.momentum"),
        ({"ns_coefficients": (), "ns_steps": 5}, "momentum_buffer", "muon.momentum"),
        ({"lr": 0.1}, "momentum_buffer", "torch/momentum_buffer"),
        ({"lr_decay": 0, "initial_accumulator_value": 0}, "sum", "adagrad.sum"),
    ):
        found = names({("optim", "state", "w", native): 0, **group("w", **hyper)})
        assert found.key(f"optim.state.w.{native}").slot == slot
        assert slot.startswith("torch/") or any(row.id == slot for row in SLOTS)


def test_numbered_parameters_have_no_names() -> None:
    values = {("optim", "state", "0", "exp_avg"): 0, ("optim", "param_groups", 0, "params"): [0, 1]}
    assert names(values).optimizers == () and names(values).key("optim.state.0.exp_avg").role == "extension"


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 1025, "\u2028", "\ud800"])
def test_what_cannot_be_a_name(name: str) -> None:
    key = names({("model", name): 0}).key(f"model.{name}")
    assert key.role == "extension" and key.name


def test_digests_name_what_differs_and_where() -> None:
    places = [("a", ()), ("b", (0, 0)), ("b", (2, 0)), ("c", ())]
    every = [Digests.of(rank, {place: number for number, place in enumerate(places)}) for rank in range(3)]
    compare(every, lambda: places)
    other = [
        *every,
        Digests.of(3, {("b", (2, 0)): 7, ("c", ()): 3}),
        Digests.of(4, {("new", ()): 1}),
        Digests.of(5, {("new", ()): 2}),
    ]
    with pytest.raises(Error) as caught:
        compare(other, lambda: [*places, ("new", ())])
    assert caught.value.code == "state-disagree"
    assert "'b' (rank 0 and rank 3)" in str(caught.value) and "'new' (rank 4 and rank 5)" in str(caught.value)
    assert "'c'" not in str(caught.value) and every[0].ids.dtype == np.uint64
