"""Optimizers: every class of torch.optim, in every form of state, resumed to the bit and training on alike."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_states import Net, joined, param_keys, same, save, step

from waystation.errors import Error
from waystation.key import Key
from waystation.torch import model as models, optimizer as optimizers, optimizer_load as loads
from waystation.torch.report import Refused

Make = Callable[[nn.Module], torch.optim.Optimizer]
_O = torch.optim


def _matrices(model: nn.Module) -> list[nn.Parameter]:
    return [each for each in model.parameters() if each.ndim == 2]


ALL: dict[str, Make] = {
    "adadelta": lambda m: _O.Adadelta(m.parameters()),
    "adafactor": lambda m: _O.Adafactor(m.parameters()),
    "adagrad": lambda m: _O.Adagrad(m.parameters(), lr_decay=0.1, initial_accumulator_value=0.5),
    "adam": lambda m: _O.Adam(m.parameters()),
    "adam amsgrad": lambda m: _O.Adam(m.parameters(), amsgrad=True, maximize=True),
    "adam fused": lambda m: _O.Adam(m.parameters(), fused=True),
    "adam tensor lr": lambda m: _O.Adam(m.parameters(), lr=torch.tensor(0.01), foreach=False),
    "adam capturable flag off": lambda m: _O.Adam(m.parameters(), foreach=False),
    "adamax": lambda m: _O.Adamax(m.parameters()),
    "adamw groups": lambda m: _O.AdamW([
        {"params": _matrices(m), "weight_decay": 0.1},
        {"params": [p for p in m.parameters() if p.ndim != 2], "lr": 3e-4}]),
    "adamw named": lambda m: _O.AdamW(m.named_parameters(), lr=1e-2),
    "asgd": lambda m: _O.ASGD(m.parameters(), t0=2),
    "lbfgs": lambda m: _O.LBFGS(m.parameters(), max_iter=3, history_size=4),
    "lbfgs wolfe": lambda m: _O.LBFGS(m.parameters(), max_iter=3, line_search_fn="strong_wolfe"),
    "muon": lambda m: _O.Muon(_matrices(m)),
    "nadam": lambda m: _O.NAdam(m.parameters(), decoupled_weight_decay=True),
    "radam": lambda m: _O.RAdam(m.parameters()),
    "rmsprop": lambda m: _O.RMSprop(m.parameters()),
    "rmsprop all": lambda m: _O.RMSprop(m.parameters(), momentum=0.9, centered=True),
    "rprop": lambda m: _O.Rprop(m.parameters()),
    "sgd": lambda m: _O.SGD(m.parameters(), lr=0.1),
    "sgd momentum": lambda m: _O.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
}


def test_no_class_of_torch_optim_is_forgotten() -> None:
    classes = {name.lower() for name, kind in vars(_O).items() if isinstance(kind, type)
               and issubclass(kind, _O.Optimizer) and kind is not _O.Optimizer}
    assert classes == {name.split()[0] for name in ALL} | {"sparseadam"}


def _trained(make: Make, model: nn.Module, steps: int = 3) -> torch.optim.Optimizer:
    optimizer = make(model)
    for number in range(steps):
        step(model, optimizer, number)
    return optimizer


def _saved(tmp_path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, **how: Any) -> Any:
    return save(tmp_path, joined(models.capture(model), optimizers.capture(optimizer, model, **how)))


def _resumed(ckpt: Any, make: Make, model: nn.Module) -> torch.optim.Optimizer:
    optimizer = make(model)
    models.restore(ckpt, model)
    report = loads.restore(ckpt, optimizer, model)
    assert report.ok, str(report)
    return optimizer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", ALL)
def test_an_optimizer_resumes_to_the_bit(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    if dtype is torch.bfloat16 and name.startswith("lbfgs"):
        pytest.skip("LBFGS does not train in BF16")
    model, fresh = Net(0, dtype), Net(1, dtype)
    optimizer = _trained(ALL[name], model)
    resumed = _resumed(_saved(tmp_path, model, optimizer), ALL[name], fresh)
    same(resumed.state_dict(), optimizer.state_dict())
    again, before = (optimizers.capture(each, net) for each, net in ((resumed, fresh), (optimizer, model)))
    assert again.records == before.records and set(param_keys(again)) == set(param_keys(before))
    for number in range(3, 6):
        step(model, optimizer, number)
        step(fresh, resumed, number)
    same(dict(fresh.state_dict()), dict(model.state_dict()))
    same(resumed.state_dict(), optimizer.state_dict())


def test_sparse_adam_resumes_to_the_bit(tmp_path: Path) -> None:
    def train(table: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        optimizer.zero_grad()
        table(torch.tensor([number % 5, 2])).square().sum().backward()
        optimizer.step()

    tables = [nn.Embedding(5, 3, sparse=True) for _ in range(2)]
    adams = [_O.SparseAdam(table.parameters()) for table in tables]
    for number in range(3):
        train(tables[0], adams[0], number)
    ckpt = _saved(tmp_path, tables[0], adams[0])
    assert ckpt.record("optimizer", "main").value["steps"] == [{"params": "all", "step": 3, "stored_as": "int"}]
    models.restore(ckpt, tables[1])
    loads.restore(ckpt, adams[1], tables[1])
    same(adams[1].state_dict(), adams[0].state_dict())
    for table, adam in zip(tables, adams):
        train(table, adam, 7)
    same(dict(tables[1].state_dict()), dict(tables[0].state_dict()))


def test_moments_of_more_bits_than_their_parameters_keep_them(tmp_path: Path) -> None:
    model, fresh = Net(0, torch.bfloat16), Net(1, torch.bfloat16)
    optimizer = _trained(ALL["adam"], model)
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].float() + 1e-6
        state["exp_avg_sq"] = state["exp_avg_sq"].double() + 1e-12
    resumed = _resumed(_saved(tmp_path, model, optimizer), ALL["adam"], fresh)
    same(resumed.state_dict(), optimizer.state_dict())
    assert {state["exp_avg"].dtype for state in resumed.state.values()} == {torch.float32}


def test_what_is_absent_is_not_zero(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    optimizer = _trained(ALL["adam"], model)
    ckpt = _saved(tmp_path, model, optimizer)
    assert model.unused.weight not in optimizer.state
    (steps,) = ckpt.record("optimizer", "main").value["steps"]
    assert ["main", "unused.weight"] not in steps["params"] and steps["stored_as"] == "F32[]" and steps["step"] == 3
    resumed = ALL["adam"](fresh)
    fresh.unused(torch.ones(2)).sum().backward()
    resumed.step()  # what is there before goes
    models.restore(ckpt, fresh)
    loads.restore(ckpt, resumed, fresh)
    assert fresh.unused.weight not in resumed.state
    same(resumed.state_dict(), optimizer.state_dict())


def test_nothing_as_a_buffer_stays_nothing(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    optimizer = _trained(ALL["sgd"], model)
    optimizer.state[model.embed.weight]["momentum_buffer"] = None
    optimizer.state[model.unused.weight]["history"] = [torch.ones(2), {"a": 1.5}, (None, True)]
    optimizer.state["calls"] = {"count": 7}
    resumed = _resumed(_saved(tmp_path, model, optimizer), ALL["sgd"], fresh)
    assert "momentum_buffer" in resumed.state[fresh.embed.weight]
    same(resumed.state[fresh.embed.weight], {"momentum_buffer": None})
    same(resumed.state[fresh.unused.weight], {"history": [torch.ones(2), {"a": 1.5}, (None, True)]})
    assert resumed.state["calls"] == {"count": 7}


def test_counts_that_are_no_counts_are_tensors(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    optimizer = _trained(ALL["adam"], model)
    values = [torch.tensor(2.5), torch.tensor(float("nan")), torch.tensor(-0.0), torch.tensor(7, dtype=torch.int64),
              torch.tensor(9.0, dtype=torch.float64)]
    for state, value in zip(optimizer.state.values(), values):
        state["step"] = value
    ckpt = _saved(tmp_path, model, optimizer)
    forms = {each["stored_as"] for each in ckpt.record("optimizer", "main").value["steps"]}
    assert forms == {"F32[]", "I64[]", "F64[]"} or forms == {"I64[]", "F64[]"}
    same(_resumed(ckpt, ALL["adam"], fresh).state_dict(), optimizer.state_dict())


def test_slots_follow_axes_of_their_parameters() -> None:
    model = Net(0)
    snapshot = optimizers.capture(_trained(ALL["adafactor"], model), model)
    axes = {(piece.key.name, piece.key.slot): piece.axes for piece in snapshot.pieces}
    assert axes["embed.weight", "adafactor.row"] == (0, None) and axes["embed.weight", "adafactor.col"] == (None, 1)
    assert axes["norm.weight", "adafactor.full"] == (0,)
    keys = param_keys(optimizers.capture(_trained(ALL["nadam"], model), model))
    assert Key.optimizer("embed.weight", "nadam.mu_product", "main") in keys
    assert all(key.name != "head.weight" for key in keys)  # tied: under the first name


def test_eight_bit_state_is_kept_as_it_is(tmp_path: Path) -> None:
    model, fresh = nn.Linear(4, 3), nn.Linear(4, 3)

    class Adam8bit(torch.optim.SGD):
        pass

    optimizer = Adam8bit(model.parameters(), lr=0.1)
    optimizer.state[model.weight] = {"step": 5, "state1": torch.arange(12, dtype=torch.uint8).reshape(3, 4),
                                     "absmax1": torch.rand(2), "qmap1": torch.rand(256)}
    ckpt = _saved(tmp_path, model, optimizer)
    resumed = Adam8bit(fresh.parameters(), lr=0.1)
    assert loads.restore(ckpt, resumed, fresh).ok
    same(resumed.state_dict(), optimizer.state_dict())


def test_hyper_parameters_come_back_in_type_and_bits(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    optimizer = _trained(ALL["adamw groups"], model)
    group = optimizer.param_groups[0]
    group.update(lr=0.1 + 2e-17, initial_lr=1, note="warm", limit=float("inf"), flag=None, more={"a": [1, 2.0]})
    optimizer.param_groups[1]["betas"] = (0.5, 0.75)
    resumed = _resumed(_saved(tmp_path, model, optimizer), ALL["adamw groups"], fresh)
    same(resumed.state_dict(), optimizer.state_dict())


def test_how_it_is_computed_is_the_live_one_s(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    ckpt = _saved(tmp_path, model, _trained(ALL["adam fused"], model))
    resumed = ALL["adam"](fresh)
    report = loads.restore(ckpt, resumed, fresh)
    assert report.ok and any("fused" in (line.reason or "") for line in report.notes)
    assert resumed.param_groups[0]["fused"] is None


def test_a_rate_that_is_a_tensor_is_filled_in_place(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    optimizer = _trained(ALL["adam tensor lr"], model)
    optimizer.param_groups[0]["lr"].fill_(0.25)
    ckpt = _saved(tmp_path, model, optimizer)
    resumed = ALL["adam tensor lr"](fresh)
    rate = resumed.param_groups[0]["lr"]
    loads.restore(ckpt, resumed, fresh)
    assert resumed.param_groups[0]["lr"] is rate and rate.item() == 0.25


def test_groups_and_parameters_in_another_order_are_found_by_name(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    ckpt = _saved(tmp_path, model, _trained(ALL["adamw groups"], model))
    turned = _O.AdamW([
        {"params": list(reversed([p for p in fresh.parameters() if p.ndim != 2]))},
        {"params": list(reversed(_matrices(fresh)))}])
    report = loads.restore(ckpt, turned, fresh)
    assert report.ok and "another order" in str(report)
    assert [group["weight_decay"] for group in turned.param_groups] == [0.01, 0.1]
    again = Net(2)
    straight = _resumed(ckpt, ALL["adamw groups"], again)
    by_name = [{name: opt.state.get(p, {}) for name, p in net.named_parameters()}
               for opt, net in ((turned, fresh), (straight, again))]
    same(by_name[0], by_name[1])


def _refused(ckpt: Any, optimizer: torch.optim.Optimizer, model: nn.Module, **how: Any) -> list[str | None]:
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(Refused) as caught:
        loads.restore(ckpt, optimizer, model, **how)
    same(optimizer.state_dict(), before)
    return [line.finding for line in caught.value.report.refusals(how.get("strict", True))]


def test_what_differs_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    model = Net(0)
    ckpt = _saved(tmp_path, model, _trained(ALL["adam"], model))
    fresh = Net(1)
    assert _refused(ckpt, _trained(ALL["adamw named"], fresh), fresh) == ["algorithm"]
    assert _refused(ckpt, _trained(ALL["adamw named"], fresh), fresh, strict=False) == ["algorithm"]
    fewer = _O.Adam(_matrices(fresh))
    assert set(_refused(ckpt, fewer, fresh)) == {"unexpected"}
    assert loads.restore(ckpt, fewer, fresh, partial=True).ok
    wider = Net(1)
    wider.norm.register_parameter("more", nn.Parameter(torch.ones(1)))
    assert _refused(ckpt, _trained(ALL["adam"], wider), wider) == ["missing"]
    assert not loads.restore(ckpt, ALL["adam"](wider), wider, strict=False).ok
    other = Net(1)
    other.middle[0] = nn.Linear(6, 9)
    assert "shape" in _refused(ckpt, ALL["adam"](other), other, strict=False)
    with pytest.raises(Refused, match="no such optimizer"):
        loads.restore(ckpt, ALL["adam"](fresh), fresh, name="critic")


def test_one_group_of_two_saved_ones_is_refused(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    ckpt = _saved(tmp_path, model, _trained(ALL["adamw groups"], model))
    assert "hyper" in _refused(ckpt, _O.AdamW(fresh.parameters()), fresh)


def test_lbfgs_depends_on_the_order_of_parameters(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    ckpt = _saved(tmp_path, model, _trained(ALL["lbfgs"], model))
    turned = _O.LBFGS(list(reversed(list(fresh.parameters()))))
    assert "form" in _refused(ckpt, turned, fresh, strict=False)


def test_parameters_of_no_model_are_refused() -> None:
    model, other = Net(0), nn.Linear(1, 1)
    with pytest.raises(Error, match="parameter 2 of group 0.*none of the model"):
        optimizers.capture(_O.Adam([*list(model.parameters())[:2], other.weight]), model)
    with pytest.raises(Error, match="no tree"):
        optimizer = _O.SGD(model.parameters(), lr=0.1)
        optimizer.param_groups[0]["made by"] = object()
        optimizers.capture(optimizer, model)


def test_two_optimizers_of_two_models(tmp_path: Path) -> None:
    nets, fresh = {"main": Net(0), "critic": Net(3)}, {"main": Net(1), "critic": Net(4)}

    def make(of: dict[str, Net]) -> dict[str, torch.optim.Optimizer]:
        both = [*of["main"].norm.parameters(), *of["critic"].norm.parameters()]
        return {"adam": _O.Adam(of["main"].parameters()), "shared": _O.SGD(both, lr=0.1, momentum=0.9)}

    made, live = make(nets), make(fresh)
    for number in range(2):
        for net in nets.values():
            step(net, made["adam"], number)
        made["shared"].step()
    ckpt = save(tmp_path, joined(*(models.capture(net, component=name) for name, net in nets.items()),
                                 *(optimizers.capture(each, nets, name=name) for name, each in made.items())))
    for name, each in live.items():
        assert loads.restore(ckpt, each, fresh, name=name).ok
        same(each.state_dict(), made[name].state_dict())


def test_masters_are_saved_beside_their_parameters(tmp_path: Path) -> None:
    def make(seed: int) -> tuple[Net, dict[torch.Tensor, torch.Tensor], torch.optim.Optimizer]:
        model = Net(seed, torch.bfloat16)
        masters: dict[torch.Tensor, torch.Tensor] = {p: p.detach().float() for p in model.parameters()}
        return model, masters, _O.Adam(list(masters.values()))

    model, masters, optimizer = make(0)
    for number, master in enumerate(masters.values()):
        master.add_(1e-5)
        master.grad = torch.full_like(master, 0.1 * number)
    optimizer.step()
    snapshot = joined(models.capture(model), optimizers.capture(optimizer, model, masters=masters))
    assert Key("main", "master", "embed.weight") in param_keys(snapshot)
    ckpt = save(tmp_path, snapshot)
    assert ckpt.record("optimizer", "main").value["masters"] == {"cast": "nearest-even"}
    fresh, more, resumed = make(1)
    assert loads.restore(ckpt, resumed, fresh, masters=more).ok
    same(resumed.state_dict(), optimizer.state_dict())
    same(list(more.values()), list(masters.values()))


def test_ranks_write_one_record_and_share_the_tensors(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    optimizer = _trained(ALL["lbfgs"], model)
    parts = [joined(models.capture(model, ranks=at), optimizers.capture(optimizer, model, ranks=at))
             for at in (models.Ranks(0, 2), models.Ranks(1, 2))]
    assert parts[0].records == parts[1].records
    same(_resumed(save(tmp_path, *parts), ALL["lbfgs"], fresh).state_dict(), optimizer.state_dict())


def test_frozen_parameters_that_were_left_out_still_have_their_state(tmp_path: Path) -> None:
    model, fresh = Net(0), Net(1)
    optimizer = ALL["sgd momentum"](model)
    step(model, optimizer, 0)
    optimizer.state[model.frozen.weight]["momentum_buffer"] = torch.ones(6, 6)
    ckpt = save(tmp_path, joined(models.capture(model, omit_frozen=True), optimizers.capture(optimizer, model)))
    resumed = ALL["sgd momentum"](fresh)
    assert loads.restore(ckpt, resumed, fresh).ok
    same(resumed.state_dict(), optimizer.state_dict())


def test_stages_of_a_pipeline_are_one_optimizer(tmp_path: Path) -> None:
    def whole(seed: int) -> nn.ModuleDict:
        torch.manual_seed(seed)
        return nn.ModuleDict({"first": nn.Linear(3, 3), "last": nn.Linear(3, 2)})

    saved, made, parts = whole(0), [], []
    for rank, name in enumerate(saved):
        stage = nn.ModuleDict({name: saved[name]})
        optimizer = _O.Adam(stage.parameters(), lr=0.1)
        stage[name](torch.ones(3)).sum().backward()
        optimizer.step()
        if rank == 0:
            optimizer.state[stage[name].bias]["history"] = [1, 2]
        ranks = models.Ranks(rank, 2, holders=(rank,))
        parts.append(joined(models.capture(stage, ranks=ranks),
                            optimizers.capture(optimizer, stage, ranks=ranks, coordinate=(("pp", rank),))))
        made.append(optimizer)
    ckpt = save(tmp_path, *parts, topology=[("pp", 2)])
    record = json.loads(ckpt._source.core.restore_json([], [], "{}"))["optimizers"]["main"]
    assert record["groups"][0]["params"] == [["main", f"{a}.{b}"] for a in saved for b in ("weight", "bias")]
    fresh = whole(1)
    resumed = _O.Adam(fresh.parameters(), lr=0.1)
    with pytest.raises(Error, match="record=restored"):
        loads.restore(ckpt, resumed, fresh)
    assert models.restore(ckpt, fresh).ok and loads.restore(ckpt, resumed, fresh, record=record).ok
    for optimizer, name in zip(made, saved):
        for mine, theirs in zip(fresh[name].parameters(), saved[name].parameters()):
            same(resumed.state[mine], optimizer.state[theirs])
    stage = nn.ModuleDict({"last": nn.Linear(3, 2)})
    again = _O.Adam(stage.parameters(), lr=0.1)
    assert loads.restore(ckpt, again, stage, record=record, partial=True, coordinate=(("pp", 1),)).ok
    same(list(again.state.values()), list(made[1].state.values()))
