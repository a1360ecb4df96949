"""Averages of a model's parameters (`torch.optim.swa_utils.AveragedModel`, or any copy of the model) and back, bit for
bit.

An average goes by the names of the model's parameters, in the role `ema`. How it is made is a function, which is not
saved: a record says its decay, and a value how many updates there were as the framework counts them.
"""

from __future__ import annotations

import inspect
import math
from functools import partial as bound
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import records
from ..errors import usage
from ..key import Key
from ..records import Coordinate, Record
from ..snapshot import Snapshot
from .boxes import Ranks, global_shape, local, pieces, plain
from .loading import Pending, reads_of
from .names import Named, names_of
from .report import Report
from .stored import Stored, differs, dtype_of

if TYPE_CHECKING:
    from .. import _core
    from ..checkpoint import Checkpoint

_KIND = "ema"
NOT_CONSTANT = math.nan
"""Stands for the decay of an average that has no constant one, which its record does not say: equal weights, or a
function that nothing is known of."""


def capture(average: nn.Module, *, name: str = "ema", component: str = "main", ranks: Ranks = Ranks(),
            decay: float | None = None, updates: int | None = None, coordinate: Coordinate = ()) -> Snapshot:
    """What this rank saves of an average of the model `component`, whose tensors have `name` as their owner.

    `decay` and `updates` are taken from an `AveragedModel` where it has them, and must be given for any other copy of
    the model; NaN says that the decay is not constant, and then the record says none. Persistent buffers are saved with the parameters.
    """
    model, count, own = _parts(average, name)
    known = own if decay is None else decay
    number = int(local(count).item()) if count is not None else updates
    if number is None:
        raise usage(f"average {name!r} is a {type(average).__name__}, which counts no updates: pass updates=")
    if count is not None and updates is not None and updates != number:
        raise usage(f"average {name!r} counts {number} updates, and updates={updates} was passed")
    if known is None:
        raise usage(f"the decay of average {name!r} stands in a function that is not PyTorch's: pass decay=, NaN "
                    "where it "
                    f"is not constant")
    snapshot = Snapshot(records=[Record(_KIND, name, records.ema(name, decay=None if math.isnan(known) else known, updates=number).value, coordinate)])
    names = names_of(model, f"average {name!r}")
    if names.extra:
        raise usage(f"average {name!r} holds modules with extra state ({names.extra[0][0]!r}), which an average "
                    "has not")
    for each in names.tensors:
        if not each.is_alias:
            written, declared = pieces(key_of(each, name, component, ranks), each.tensor, ranks)
            snapshot.pieces += written
            snapshot.declared += declared
    return snapshot


def key_of(named: Named, owner: str, component: str, ranks: Ranks = Ranks()) -> Key:
    """The identity of the average of a parameter or buffer."""
    return Key(component, "ema", named.target, None, owner, ranks.scope_of(named.target))


def plan(ckpt: Checkpoint | Stored, average: nn.Module, *, name: str = "ema", component: str = "main",
         ranks: Ranks = Ranks(), decay: float | None = None, partial: bool = False,
         coordinate: Coordinate = ()) -> Pending:
    """What loading into `average` would do, and what stands against it; nothing is touched."""
    stored = Stored.of(ckpt)
    pending = Pending()
    report = pending.report
    model, count, own = _parts(average, name)
    record = stored.record(_KIND, name, coordinate)
    if record is None:
        report.add(_KIND, name, "none", "the checkpoint has no such average", "missing")
        return pending
    saved = records.float_of(record.value["decay"]) if "decay" in record.value else NOT_CONSTANT
    known = own if decay is None else decay
    note = None
    if known is not None and saved != known and not (math.isnan(saved) and math.isnan(known)):
        note = f"its decay is {_words(known)} here and was {_words(saved)}"
    have = stored.owned("ema", name, component)
    live: set[str] = set()
    for each in names_of(model, f"average {name!r}").tensors:
        live.add(each.target)
        if each.is_alias:
            continue
        entry = have.get((each.name, ranks.scope_of(each.name)), {}).get(None)
        if entry is None:
            report.add(_KIND, f"{name}/{each.name}", "none", "not in the checkpoint", "missing")
            continue
        plain(each.tensor, f"average of {each.name!r}")
        different = differs(entry, global_shape(each.tensor), dtype_of(local(each.tensor)))
        if different is not None:
            report.add(_KIND, f"{name}/{each.name}", "none", different[1], different[0])
            continue
        pending.reads += reads_of(entry.key, each.tensor)
        report.add(_KIND, f"{name}/{each.name}")
    if not partial:
        for other, scope in sorted(have):
            if other not in live and scope == ranks.scope_of(other):
                report.add(_KIND, f"{name}/{other}", "none", "in the checkpoint, not here", "unexpected")
    report.add(_KIND, name, reason=note)
    if count is not None:
        pending.finish.append(bound(_set_count, count, record.value["updates"]))
    return pending


def restore(ckpt: Checkpoint | Stored, average: nn.Module, *, name: str = "ema", component: str = "main",
            ranks: Ranks = Ranks(), decay: float | None = None, strict: bool = True, partial: bool = False,
            coordinate: Coordinate = (), progress: _core.Progress | None = None) -> Report:
    """Loads an average in place. Raises `not-exact` before it touches anything."""
    stored = Stored.of(ckpt)
    pending = plan(stored, average, name=name, component=component, ranks=ranks, decay=decay, partial=partial,
                   coordinate=coordinate)
    pending.run(stored.ckpt, strict=strict, progress=progress)
    return pending.report


def _parts(average: nn.Module, name: str) -> tuple[nn.Module, torch.Tensor | None, float | None]:
    """The averaged model, the tensor that counts its updates, and its decay, as far as the class says them."""
    if type(average).__name__ != "AveragedModel" and not hasattr(average, "n_averaged"):
        return average, None, None
    count = getattr(average, "n_averaged")
    model = getattr(average, "module", None)
    if not isinstance(count, torch.Tensor) or count.ndim or not isinstance(model, nn.Module):
        raise usage(f"average {name!r} is a {type(average).__name__}, which is not as AveragedModel: n_averaged "
                    "and module")
    functions = [each for each in (getattr(average, "avg_fn", None), getattr(average, "multi_avg_fn", None)) if each]
    return model, count, _decay(functions[0]) if functions else NOT_CONSTANT


def _decay(function: Any) -> float | None:
    """The decay of one of PyTorch's own averaging functions, which have it as a variable of that name."""
    function = inspect.unwrap(function)
    if getattr(function, "__module__", None) != "torch.optim.swa_utils":
        return None
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    variables = dict(zip(code.co_freevars, cells)) if code is not None else {}
    if "decay" in variables:
        return float(variables["decay"].cell_contents)
    return NOT_CONSTANT


def _words(decay: float) -> str:
    return "not constant" if math.isnan(decay) else repr(decay)


def _set_count(count: torch.Tensor, updates: int) -> None:
    with torch.no_grad():
        local(count).fill_(updates)
