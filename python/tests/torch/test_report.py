"""What stands against loading is found before anything is touched, and said whole."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_states import Net, same, save

from waystation.torch import model as models
from waystation.torch.report import Line, Refused, Report


def _findings(saved: nn.Module, live: nn.Module, tmp_path: Path, *,
              strict: bool = True) -> list[tuple[str, str | None]]:
    """What is refused; nothing of the live model may have moved."""
    ckpt, before = save(tmp_path, models.capture(saved)), copy.deepcopy(dict(live.state_dict()))
    with pytest.raises(Refused) as caught:
        models.restore(ckpt, live, strict=strict)
    same(dict(live.state_dict()), before)
    return [(line.name, line.finding) for line in caught.value.report.refusals(strict)]


def test_missing_and_unexpected(tmp_path: Path) -> None:
    live = Net(1)
    live.more = nn.Linear(2, 2, bias=False)
    del live.unused
    assert _findings(Net(0), live, tmp_path) == [
        ("more.weight", "missing"), ("unused.bias", "unexpected"), ("unused.weight", "unexpected")]


def test_without_strict_what_is_there_is_loaded(tmp_path: Path) -> None:
    saved, live = Net(0), Net(1)
    live.more = nn.Linear(2, 2, bias=False)
    kept = live.more.weight.clone()
    report = models.restore(save(tmp_path, models.capture(saved)), live, strict=False)
    assert not report.ok and torch.equal(live.more.weight, kept) and torch.equal(live.embed.weight, saved.embed.weight)
    assert report.findings[0] == Line("param", "more.weight", "none", "not in the checkpoint", "missing")


@pytest.mark.parametrize("strict", [True, False])
def test_other_shapes_and_dtypes_are_never_loaded(tmp_path: Path, strict: bool) -> None:
    live = Net(1)
    live.middle[0] = nn.Linear(6, 7)
    live.norm.to(torch.float64)
    found = _findings(Net(0), live, tmp_path, strict=strict)
    assert ("middle.0.weight", "shape") in found and ("norm.running_var", "dtype") in found


def test_ties_that_are_new_here(tmp_path: Path) -> None:
    saved = Net(0)
    saved.head.weight = nn.Parameter(torch.zeros(11, 6))
    assert _findings(saved, Net(1), tmp_path) == [("head.weight", "tied")]


def test_ties_that_are_gone_here_are_told(tmp_path: Path) -> None:
    live = Net(1)
    live.head.weight = nn.Parameter(torch.zeros(11, 6))
    report = models.restore(save(tmp_path, models.capture(Net(0))), live)
    assert report.ok and [line.name for line in report.notes] == ["head.weight"]
    assert torch.equal(live.head.weight, Net(0).embed.weight)


def test_a_report_is_a_table_of_what_is_not_simply_exact() -> None:
    report = Report()
    report.add("param", "a.weight")
    report.add("param", "b", "none", "not in the checkpoint", "missing")
    report.add("optimizer", "main/group0", reason="weight_decay was 0.1")
    assert str(report).splitlines() == [
        "2 of 3 exact",
        "param      b            missing  not in the checkpoint",
        "optimizer  main/group0  exact    weight_decay was 0.1"]
    assert len(report) == 3 and [line.name for line in report] == ["a.weight", "b", "main/group0"]
    report.raise_if_bad(strict=False)
    with pytest.raises(Refused, match=r"not-exact: .*param b: missing \(not in the checkpoint\)") as caught:
        report.raise_if_bad()
    assert caught.value.code == "not-exact" and pickle.loads(pickle.dumps(caught.value)).code == "not-exact"


def test_many_findings_are_counted_in_the_message() -> None:
    report = Report([Line("param", f"p{number}", "none", None, "missing") for number in range(20)])
    with pytest.raises(Refused, match="p7: missing; and 12 more"):
        report.raise_if_bad()
