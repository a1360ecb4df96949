"""The forms of records of registered kinds (chapters 16 and 17), and what a schedule's value is. Cursors: `nodes`."""

import math

from . import nodes, rng, values
from .forms import (above, array, bad, elements, hexadecimal, integer, members, name, object_of, one_of, tensor_or,
                    unique, within)
from .registry import CACHES, LIMITS, SCHEDULES


def check(raw, topology):
    """Checks the value of a record whose own members are sound, if its kind is known."""
    if raw["kind"] == "cursor":
        within("/value", nodes.root, raw["value"], topology)
    elif raw["kind"] in _KINDS:
        within("/value", _KINDS[raw["kind"]], raw["value"])
    if raw["kind"] == "progress" and (raw["name"] != "main" or "coordinate" in raw):
        raise bad("progress is named main and has no coordinate", "progress.form")


# --- optimizers

_PAIR = array("[component, name]", name, name)
_PARAMS = unique(_PAIR, tuple, "optimizer.form")
_NAMED = unique(array("[name, tree]", name, values.tree), lambda pair: pair[0], "optimizer.form")
_GROUP = object_of({"hyper": _NAMED, "implementation?": _NAMED, "name": name, "params": _PARAMS})


def _step_params(value):
    if value != "all":
        _PARAMS(value)


_STEP = object_of({"params": _step_params, "step": integer(), "stored_as": name})
_OPTIMIZER = {
    "algorithm": name,
    "groups": unique(_GROUP, lambda group: group["name"], "optimizer.form"),
    "masters?": object_of({"cast": one_of("nearest-even", "stochastic", "other")}),
    "steps": elements(_STEP),
}


def _optimizer(value):
    members(value, _OPTIMIZER)
    for member in ("groups", "steps"):
        seen = set()
        for number, listed in enumerate(value[member]):
            if listed["params"] == "all":
                if len(value["steps"]) > 1:
                    raise bad("`all` stands alone", "optimizer.form").at(prefix="/steps")
                continue
            for position, pair in enumerate(map(tuple, listed["params"])):
                if pair in seen:
                    raise bad(f"{pair} stands in two of {member}", "optimizer.form").at(
                        prefix=f"/{member}/{number}/params/{position}")
                seen.add(pair)


# --- schedules

_SCHEDULE = {
    "algorithm": name,
    "last_value": elements(values.tree),
    "parameters": values.tree,
    "position": object_of({"unit": one_of("optimizer_steps", "samples", "tokens", "epochs"), "value": integer()}),
}


def _schedule(value):
    members(value, _SCHEDULE)
    if value["algorithm"] not in SCHEDULES:
        return
    for number, last in enumerate(value["last_value"]):
        if values.real(last) is None:
            raise bad("expected a float", "schedule.form").at(prefix=f"/last_value/{number}")
    within("/parameters", _parameters, value["parameters"], SCHEDULES[value["algorithm"]], len(value["last_value"]))


def _parameters(tree, expected, count):
    pairs = tree["map"] if isinstance(tree, dict) and "map" in tree else []
    if any(type(key) is not str for key, _ in pairs) or sorted(key for key, _ in pairs) != sorted(expected):
        raise bad(f"expected a map of {', '.join(expected)}", "schedule.form")
    found = dict(pairs)
    for key, given in found.items():
        if key in ("warmup", "total"):
            fits = type(given) is int and given >= 0
        else:
            fits = values.real(given) is not None or (
                isinstance(given, dict) and "list" in given and len(given["list"]) == count
                and None not in map(values.real, given["list"]))
        if not fits:
            raise bad(f"{key} is not of its form", "schedule.form")
    if found.get("warmup", 0) > found.get("total", LIMITS["max-integer"]):
        raise bad("warmup is more than total", "schedule.form")


def schedule_ends(value, number):
    """Base and floor of the value of that number; base twice where there is no floor."""
    given = dict(value["parameters"]["map"])
    floats = given["base"], given.get("floor", given["base"])
    return [values.real(tree["list"][number] if "list" in tree else tree) for tree in floats]


def schedule_value(value, number):
    """What the algorithm gives for the value of that number at the position, in binary64; None where it is not computed."""
    if value["algorithm"] not in SCHEDULES:
        return None
    given, p = dict(value["parameters"]["map"]), value["position"]["value"]
    b, f = schedule_ends(value, number)
    w, t = given.get("warmup", 0), given.get("total")
    if p < w:
        return b * p / w
    if t is None:
        return b
    if p >= t:
        return f
    x = (p - w) / (t - w)
    return b + (f - b) * x if value["algorithm"].endswith("linear") else f + (b - f) * (1 + math.cos(math.pi * x)) / 2


# --- random streams


def _cache(value):
    members(value, {"bits": hexadecimal(0, 128, even=True), "kind": name})
    digits = CACHES.get(value["kind"], 0) // 4
    if digits and len(value["bits"]) != digits:
        raise bad(f"expected {digits} digits", "rng.form").at(prefix="/bits")


def _state(value):
    if not isinstance(value, str):
        raise bad("expected hex or a tensor")
    if len(value) > 2 * LIMITS["inline-bytes"]:
        raise bad("more than inline-bytes", "limit.value", "limit")
    hexadecimal(0, len(value), even=True)(value)


# Of whatever topology: only that each axis stands once.
_COORDINATE = unique(array("[axis, index]", name, integer()), lambda index: index[0], "rng.form")
_RNG = {
    "algorithm": name,
    "caches": elements(_cache, follows=above(lambda cache: cache["kind"].encode(), "rng.form")),
    "fork?": object_of({"coordinate": _COORDINATE, "manifest": hexadecimal(64), "step": integer(0, "step")}),
    "next_raw": elements(hexadecimal(1, 128), "canary-outputs"),
    "on_reshape": one_of("require", "fork", "reinit"),
    "origin?": object_of({"form?": name, "framework": name, "initial_seed?": values.integer, "version?": name}),
    "purpose?": name,
    "seed_rule?": object_of({"root": values.integer, "rule": name}),
    "state": tensor_or(_state),
}


def _rng(value):
    members(value, _RNG)
    known = rng.ALGORITHMS.get(value["algorithm"])
    if known is None:
        return
    for number, output in enumerate(value["next_raw"]):
        if len(output) != known.width // 4:
            raise bad(f"expected {known.width // 4} digits", "rng.form").at(prefix=f"/next_raw/{number}")
    if len(value["next_raw"]) < 4 if known.draw else value["next_raw"]:
        raise bad(f"{len(value['next_raw'])} raw outputs", "rng.canary-there").at(prefix="/next_raw")


# --- the table

_PROGRESS = dict.fromkeys(("batch?", "epoch?", "iteration?", "optimizer_step", "samples?", "skipped?", "tokens?"), integer())
_SCALER = {member: values.float_of("scaler.form") for member in ("scale", "growth", "backoff")} | {
    member: integer() for member in ("good_steps", "hysteresis?", "interval", "skipped?")}
_KINDS = {
    "progress": object_of(_PROGRESS),
    "optimizer": _optimizer,
    "ema": object_of({"decay?": values.float_of("ema.form"), "updates": integer()}),
    "schedule": _schedule,
    "scaler": object_of(_SCALER),
    "rng": _rng,
    "uncaptured": object_of({"kind": name, "reason": name}),
    "value": values.record_value,
}
