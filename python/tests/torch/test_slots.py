"""The tables of slots against the registry, and against what optimizers really hold."""

from __future__ import annotations

import pytest
import torch
from torch_states import Net, step

from waystation._registry import SLOTS
from waystation.torch import optimizer as optimizers, slots


def test_every_slot_of_the_tables_is_one_of_the_registry_by_its_native_name() -> None:
    known = {(slot.id, slot.torch) for slot in SLOTS if slot.role == "optimizer"}
    for family, table in slots._SLOTS.items():
        for native, slot in table.items():
            assert (slot, native) in known, (family, native)
            assert slots.native_of(family, slots.slot_of(family, native)) == native


@pytest.mark.parametrize("kind, more", [
    (torch.optim.ASGD, {}), (torch.optim.Adadelta, {}), (torch.optim.Adafactor, {}), (torch.optim.Adagrad, {}),
    (torch.optim.Adam, {"amsgrad": True}), (torch.optim.Adamax, {}), (torch.optim.NAdam, {}), (torch.optim.RAdam, {}),
    (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}), (torch.optim.Rprop, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
], ids=lambda value: getattr(value, "__name__", ""))
def test_no_state_of_pytorch_s_optimizers_is_without_a_registered_slot(kind: type, more: dict[str, object]) -> None:
    model = Net()
    optimizer = kind(model.parameters(), lr=0.01, **more)
    step(model, optimizer, 0)
    found = {piece.key.slot for piece in optimizers.capture(optimizer, model).pieces}
    assert found and found <= {slot.id for slot in SLOTS}


def test_what_no_table_has_goes_by_its_native_name() -> None:
    assert slots.slot_of("Mine", "exp_avg") == "torch/exp_avg" and slots.native_of("Mine", "torch/exp_avg") == "exp_avg"
    assert slots.slot_of("Lion", "exp_avg") == "lion.m" and slots.native_of("SGD", "adam.m") is None

    class Mine(torch.optim.AdamW):
        pass

    assert slots.family(Mine([torch.nn.Parameter(torch.ones(1))])) == "AdamW"
