"""Models: names, ties, frozen and odd tensors, extra state, wrappers; in place and to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_states import Net, bits, param_keys, same, save

from waystation.errors import Error
from waystation.key import Key
from waystation.snapshot import owner_rank
from waystation.torch import model as models
from waystation.torch.report import Refused


def _round(tmp_path: Path, saved: nn.Module, fresh: nn.Module, **how: Any) -> Any:
    ckpt = save(tmp_path, models.capture(saved))
    report = models.restore(ckpt, fresh, **how)
    same(dict(fresh.state_dict()), dict(saved.state_dict()))
    return report


def test_a_model_comes_back_to_the_bit_and_in_place(tmp_path: Path) -> None:
    saved, fresh = Net(0), Net(1)
    saved(torch.arange(8))  # moves the running statistics
    places = {name: tensor.data_ptr() for name, tensor in fresh.state_dict().items()}
    report = _round(tmp_path, saved, fresh)
    assert report.ok and str(report) == f"{len(saved.state_dict())} of {len(saved.state_dict())} exact"
    assert {name: tensor.data_ptr() for name, tensor in fresh.state_dict().items()} == places
    assert fresh.head.weight is fresh.embed.weight


def test_parameters_buffers_and_aliases_are_told_apart(tmp_path: Path) -> None:
    snapshot = models.capture(Net())
    keys = param_keys(snapshot)
    assert Key.param("embed.weight") in keys and Key.param("middle.2.0.weight") in keys
    assert Key.buffer("norm.running_mean") in keys and Key.buffer("norm.num_batches_tracked") in keys
    assert all("cache" not in key.name for key in keys)
    (alias,) = snapshot.aliases
    assert (alias.role, alias.name, alias.of) == ("param", "head.weight", Key.param("embed.weight"))
    assert len(keys) == len(set(keys)) == len(Net().state_dict()) - 1


class _Odd(nn.Module):
    def __init__(self, fill: int) -> None:
        super().__init__()
        count = iter(range(fill, fill + 10_000))

        def values(*shape: int) -> torch.Tensor:
            return torch.tensor([next(count) for _ in range(torch.Size(shape).numel())]).reshape(shape)

        self.columns = nn.Parameter(values(4, 3).float().t())
        self.every_second = nn.Parameter(values(8, 3).float()[::2])
        self.scalar = nn.Parameter(torch.tensor(float(fill)))
        self.empty = nn.Parameter(torch.empty(0, 7))
        self.brain = nn.Parameter(values(5).to(torch.bfloat16))
        self.waves = nn.Parameter(torch.complex(values(3).float(), -values(3).float()))
        self.register_buffer("conjugate", torch.complex(values(3).double(), values(3).double()).conj())
        self.register_buffer("negative", torch.complex(values(2).float(), values(2).float()).conj().imag)
        self.register_buffer("eight", values(6).float().to(torch.float8_e4m3fn))
        self.register_buffer("flags", values(9) % 2 == 0)
        self.register_buffer("repeated", torch.tensor([float(fill)]).expand(5))
        self.register_buffer("rows", (fill + torch.arange(3.0)).expand(4, 3))
        self.register_buffer("nothing", None)
        self.images = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
        patterns = torch.tensor([0x7FC01234 + fill, -2147483648 + fill], dtype=torch.int32)
        self.register_buffer("nan", patterns.view(torch.float32))


def test_tensors_of_every_form(tmp_path: Path) -> None:
    saved, fresh = _Odd(7), _Odd(2000)
    strides = {name: tensor.stride() for name, tensor in fresh.state_dict().items()}
    _round(tmp_path, saved, fresh)
    assert {name: tensor.stride() for name, tensor in fresh.state_dict().items()} == strides
    assert saved.state_dict()["conjugate"].is_conj() and saved.state_dict()["negative"].is_neg()


def test_an_expanded_tensor_takes_equal_elements_only(tmp_path: Path) -> None:
    saved, fresh = _Odd(7), _Odd(8)
    saved.repeated = torch.arange(5.0)
    ckpt = save(tmp_path, models.capture(saved))
    with pytest.raises(Error, match="differ along it"):
        models.restore(ckpt, fresh)


class _Counting(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.state: Any = {"count": count, "table": torch.arange(count), "long": b"x" * 9000, "n": None}

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        self.state = state


def test_extra_state_comes_back_in_type_and_value(tmp_path: Path) -> None:
    saved, fresh = nn.Sequential(_Counting(3), _Counting(4)), nn.Sequential(_Counting(0), _Counting(0))
    ckpt = save(tmp_path, models.capture(saved))
    assert models.restore(ckpt, fresh).ok
    for a, b in zip(saved, fresh):
        same(b.state, a.state)
    with pytest.raises(Refused, match="extra state"):
        models.restore(ckpt, nn.Sequential(_Counting(0), nn.Linear(1, 1)))


def test_extra_state_without_a_tree_is_refused_with_its_place() -> None:
    module = _Counting(1)
    module.state = {"made by": object()}
    with pytest.raises(Error, match="made by"):
        models.capture(module)


def test_frozen_parameters_can_be_left_out(tmp_path: Path) -> None:
    saved, fresh = Net(0), Net(1)
    snapshot = models.capture(saved, omit_frozen=True)
    (omitted,) = snapshot.omitted
    assert omitted.names == ("frozen.bias", "frozen.weight") and omitted.reason == "frozen"
    ckpt = save(tmp_path, snapshot)
    before = bits(fresh.frozen.weight)
    with pytest.raises(Refused, match="base=True") as caught:
        models.restore(ckpt, fresh)
    assert [line.name for line in caught.value.report.findings] == ["frozen.weight", "frozen.bias"]
    report = models.restore(ckpt, fresh, base=True)
    assert bits(fresh.frozen.weight) == before and bits(fresh.embed.weight) == bits(saved.embed.weight)
    assert [line.grade for line in report if line.name.startswith("frozen")] == ["none", "none"]


def test_wrappers_do_not_change_names(tmp_path: Path) -> None:
    import torch.distributed as dist
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.nn.parallel import DistributedDataParallel
    from torch.testing._internal.distributed.fake_pg import FakeStore

    plain = models.capture(Net())
    inner = Net()
    inner.middle = checkpoint_wrapper(inner.middle)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        wrapped = torch.compile(DistributedDataParallel(inner), backend="eager")
        assert "_orig_mod.module.embed.weight" in wrapped.state_dict()
        snapshot = models.capture(wrapped)
        assert set(param_keys(snapshot)) == set(param_keys(plain)) and snapshot.aliases == plain.aliases
        ckpt = save(tmp_path, models.capture(Net(5)))
        assert models.restore(ckpt, wrapped).ok
        assert bits(inner.embed.weight) == bits(Net(5).embed.weight)
    finally:
        dist.destroy_process_group()


def test_a_hook_on_the_state_dict_is_not_passed_over() -> None:
    added, changed, taken = Net(), Net(), Net()
    added.register_state_dict_post_hook(lambda module, state, *more: state.update({"scales": torch.ones(1)}))
    changed.register_state_dict_post_hook(lambda module, state, *more: state.update({"seen": torch.zeros(1)}))
    taken.register_state_dict_post_hook(lambda module, state, *more: state.__delitem__("seen"))
    for model, word in ((added, "'scales'"), (changed, "another tensor as 'seen'"), (taken, "'seen'")):
        with pytest.raises(Error, match=word):
            models.capture(model)


def test_odd_models_are_refused_by_name() -> None:
    with pytest.raises(Error, match="0.weight.*meta|'0.weight'"):
        models.capture(nn.Sequential(nn.Linear(2, 2, device="meta")))
    with pytest.raises(Error, match="not initialised"):
        models.capture(nn.Sequential(nn.LazyLinear(2)))
    looped = nn.Module()
    looped.child = nn.Module()
    looped.child._modules["back"] = looped
    with pytest.raises((Error, RecursionError)):
        models.capture(looped)


def test_a_parameter_that_is_a_buffer_too_is_saved_as_both(tmp_path: Path) -> None:
    def make(fill: float) -> nn.Module:
        model = nn.Module()
        model.weight = nn.Parameter(torch.full((3,), fill))
        model.register_buffer("copy", model.weight.detach())
        return model

    saved, fresh = make(2.0), make(1.0)
    _round(tmp_path, saved, fresh)
    assert fresh.copy.data_ptr() == fresh.weight.data_ptr()


def test_several_models_are_components(tmp_path: Path) -> None:
    from torch_states import joined

    actor, critic = nn.Linear(2, 3), nn.Linear(2, 3)
    ckpt = save(tmp_path, joined(models.capture(actor), models.capture(critic, component="critic")))
    fresh = nn.Linear(2, 3)
    models.restore(ckpt, fresh, component="critic")
    same(dict(fresh.state_dict()), dict(critic.state_dict()))
    models.restore(ckpt, fresh)
    same(dict(fresh.state_dict()), dict(actor.state_dict()))


def test_ranks_share_the_writing_of_replicas(tmp_path: Path) -> None:
    model, fresh = Net(3), Net(4)
    parts = [models.capture(model, ranks=models.Ranks(rank, 3)) for rank in range(3)]
    written = [len(part.pieces) for part in parts]
    assert min(written) > 0 and sum(written) == len(models.capture(model).pieces)
    models.restore(save(tmp_path, *parts), fresh)
    same(dict(fresh.state_dict()), dict(model.state_dict()))


def test_a_replica_that_its_owner_lacks_is_missed_at_the_commit(tmp_path: Path) -> None:
    name = next(f"w{number}" for number in range(9) if owner_rank(Key.param(f"w{number}"), [0, 1]) == 1)
    model = nn.ParameterDict({name: torch.ones(2), "both": torch.ones(2)})
    parts = [models.capture(each, ranks=models.Ranks(rank, 2))
             for rank, each in enumerate((model, nn.ParameterDict({"both": torch.ones(2)})))]
    with pytest.raises(Error, match="cover-gap"):
        save(tmp_path, *parts)


def test_tensors_that_differ_between_ranks_have_a_scope(tmp_path: Path) -> None:
    live = [nn.Linear(2, 2), nn.Linear(2, 2)]
    ranks = [models.Ranks(rank, 2, scope=lambda name, rank=rank: (("dp", rank),) if name == "bias" else ())
             for rank in range(2)]
    live[1].weight = live[0].weight
    ckpt = save(tmp_path, *(models.capture(model, ranks=at) for model, at in zip(live, ranks)), topology=[("dp", 2)])
    for model, at in zip(live, ranks):
        fresh = nn.Linear(2, 2)
        assert models.restore(ckpt, fresh, ranks=at).ok
        same(dict(fresh.state_dict()), dict(model.state_dict()))
