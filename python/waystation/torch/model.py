"""The parameters, buffers and extra state of a model, into a snapshot and back, bit for bit and in place.

`plan` compares everything and touches nothing; `restore` loads what it found. Optimizers, averages and random streams
are not known here.
"""

from __future__ import annotations

from functools import partial as bound
from typing import TYPE_CHECKING, Any

from torch import nn

from ..key import Key
from ..records import Coordinate
from ..snapshot import Alias, Omitted, Snapshot
from .boxes import Ranks, global_shape, local, pieces, plain
from .loading import Pending, reads_of
from .names import Named, Names, names_of
from .report import Report
from .stored import Entry, Stored, Values, differs, dtype_of

if TYPE_CHECKING:
    from .. import _core
    from ..checkpoint import Checkpoint

FROZEN = "frozen"


def capture(model: nn.Module, *, component: str = "main", ranks: Ranks = Ranks(), omit_frozen: bool = False,
            coordinate: Coordinate = ()) -> Snapshot:
    """What this rank saves of a model: boxes of its parameters and persistent buffers, aliases of tied ones, extra
    state.

    With `omit_frozen`, parameters that need no gradient are named and left out. `coordinate` is for extra state that
    differs between ranks which hold the same module. Tensors are views, not copies. Raises `bad-argument` for what a
    checkpoint cannot hold without loss, with its name.
    """
    names = names_of(model, _what(component))
    snapshot = Snapshot()
    frozen = {each.name for each in names.tensors if omit_frozen and each.role == "param"
              and not each.tensor.requires_grad}
    for each in names.tensors:
        if each.name in frozen:
            continue
        key = key_of(each, component, ranks)
        if each.is_alias:
            snapshot.aliases.append(Alias(component, each.role, each.name, key))
        else:
            written, declared = pieces(key, each.tensor, ranks)
            snapshot.pieces += written
            snapshot.declared += declared
    if frozen:
        snapshot.omitted.append(Omitted(component, tuple(sorted(frozen)), FROZEN))
    values = Values(snapshot, ranks, component)
    for module, state, _ in names.extra:
        values.record(_extra(component, module), state, coordinate)
    return snapshot


def key_of(named: Named, component: str, ranks: Ranks = Ranks()) -> Key:
    """The identity of the tensor that has this name, under the first of its names."""
    return Key(component, named.role, named.target, scope=ranks.scope_of(named.target))


def plan(ckpt: Checkpoint | Stored, model: nn.Module, *, component: str = "main", ranks: Ranks = Ranks(),
         partial: bool = False, base: bool = False, coordinate: Coordinate = ()) -> Pending:
    """What loading into `model` would do, and what stands against it; nothing is touched.

    `partial` says that this rank holds a part of what was saved: what is beyond it is not unexpected. `base` says that
    the parameters that a save left out are in the model already.
    """
    stored = Stored.of(ckpt)
    names = names_of(model, _what(component))
    pending = Pending()
    report = pending.report
    have = stored.named(component)
    omitted = stored.omitted(component)
    live: set[str] = set()
    roots: dict[str, Entry] = {}
    users: dict[Key, list[str]] = {}
    for each in names.tensors:
        live.add(each.name)
        entry = have.get((each.name, ranks.scope_of(each.target)))
        if entry is None:
            _absent(report, each, omitted, base)
            continue
        plain(each.tensor, f"{each.role} {each.name!r}")
        different = differs(entry, global_shape(each.tensor), dtype_of(local(each.tensor)))
        if different is not None:
            report.add(each.role, each.name, "none", different[1], different[0])
            continue
        roots.setdefault(each.target, entry)
        if each.is_alias and roots[each.target].key != entry.key:
            apart = f"one tensor with {each.target} here, another one in the checkpoint"
            report.add(each.role, each.name, "none", apart, "tied")
            continue
        note = None if entry.role == each.role else f"saved as {entry.role}"
        if not each.is_alias:
            users.setdefault(entry.key, []).append(each.name)
            if len(users[entry.key]) > 1:
                note = f"one tensor with {users[entry.key][0]} in the checkpoint, apart from it here"
            pending.reads += reads_of(entry.key, each.tensor)
        report.add(each.role, each.name, reason=note)
    if not partial:
        for name, scope in sorted(have):
            if name not in live and scope == ranks.scope_of(name):
                report.add(have[name, scope].role, name, "none", "in the checkpoint, not here", "unexpected")
    _plan_extra(stored, names, component, coordinate, partial, pending)
    return pending


def restore(ckpt: Checkpoint | Stored, model: nn.Module, *, component: str = "main", ranks: Ranks = Ranks(),
            strict: bool = True, partial: bool = False, base: bool = False, coordinate: Coordinate = (),
            progress: _core.Progress | None = None) -> Report:
    """Loads a model in place. Raises `not-exact` before it touches anything where `plan` finds what stands against it:
    with `strict` all that is missing, unexpected or tied otherwise, and always other shapes and dtypes.

    Each tensor is read straight into its memory: where damage is found meanwhile, the error leaves a model that is part
    old and part new.
    """
    stored = Stored.of(ckpt)
    pending = plan(stored, model, component=component, ranks=ranks, partial=partial, base=base, coordinate=coordinate)
    pending.run(stored.ckpt, strict=strict, progress=progress)
    return pending.report


def _plan_extra(stored: Stored, names: Names, component: str, coordinate: Coordinate, partial: bool,
                pending: Pending) -> None:
    prefix = _extra(component, "")
    saved = {record.name.removeprefix(prefix) for record in stored.ckpt.records("value")
             if record.name.startswith(prefix)}
    for name, _, module in names.extra:
        record = stored.record("value", prefix + name, coordinate)
        if record is None:
            why = "the module has extra state, the checkpoint none"
            pending.report.add("value", prefix + name, "none", why, "missing")
            continue
        state = stored.ckpt.value(record.name, record.coordinate)
        pending.finish.append(bound(_set_extra, module, state))
        pending.report.add("value", record.name)
    for name in sorted(saved - {name for name, _, _ in names.extra}):
        if not partial:
            why = "extra state of a module that has none here"
            pending.report.add("value", prefix + name, "none", why, "unexpected")


def _set_extra(module: nn.Module, state: Any) -> None:
    module.set_extra_state(state)


def _absent(report: Report, each: Named, omitted: dict[str, str], base: bool) -> None:
    why = omitted.get(each.name)
    if why is None:
        report.add(each.role, each.name, "none", "not in the checkpoint", "missing")
    elif base:
        report.add(each.role, each.name, "none", f"not saved: {why}; kept as it is here")
    else:
        report.add(each.role, each.name, "none", f"not saved: {why}; say base=True once it is loaded from elsewhere",
                   "missing")


def _extra(component: str, module: str) -> str:
    where = "" if component == "main" else f"@{component}"
    return f"torch.module_extra_state{where}/{module}"


def _what(component: str) -> str:
    return "the model" if component == "main" else f"the model {component!r}"
