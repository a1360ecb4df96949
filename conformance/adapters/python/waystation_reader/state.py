"""What chapters 16 to 18 say of records beyond their form: with the tensors that they name, and with one another.

`check_record` and `Join` are depth R, what one who restores a record has to check; `check_all` is what a validator does.
"""

import sys
from array import array

from . import canonical, cursors, nodes, records, rng, values
from .forms import within
from .refusal import Refusal, attempt


def check_all(checkpoint, report):
    """Reports every breach in an open checkpoint whose pages are all good; gives notes of what was left out."""
    notes = []

    def about_record(refusal):
        # What is broken is the chunk that a tensor is read from, and has been reported.
        if refusal.file is None and refusal.rule != "cursor.canary-steps":
            report(refusal.at(file, pointer))
        elif refusal.file is None:
            notes.append({"file": file, "note": f"canary left out: {pointer}"})

    agreement = _Agreement(checkpoint)
    for key in sorted(checkpoint.records):
        file, pointer = checkpoint.places[key]
        attempt(about_record, check_record, checkpoint, checkpoint.records[key])
        attempt(about_record, agreement.record, checkpoint.records[key])
    for key in sorted(checkpoint.tensors):
        file, pointer = checkpoint.places[key]
        attempt(about_record, agreement.tensor, checkpoint.tensors[key].identity)
    return notes


def check_record(checkpoint, record):
    """Depth R of one record; gives the next items of a computed cursor."""
    check = {"rng": _rng, "schedule": _schedule, "cursor": _cursor}.get(record["kind"])
    return check and within("/value", check, checkpoint, record["value"])


def state_bytes(checkpoint, value):
    """The canonical state of a stream of a registered algorithm."""
    if isinstance(value["state"], str):
        return bytes.fromhex(value["state"])
    tensor = within("/state", _blob, checkpoint, value["state"]["tensor"], "U8", "rng.tensor")
    size = rng.ALGORITHMS[value["algorithm"]].size
    if tensor.shape != [size]:
        raise Refusal("bad-rng-state", "rng.state", f"{tensor.shape[0]} bytes, not {size}", pointer="/state")
    return bytes(checkpoint.read(tensor))


def numbers_of(checkpoint):
    """How a cursor reads the numbers of a tensor, of an identity and how many."""
    held = {}

    def numbers(identity, count):
        key = canonical.text(identity)
        if key not in held:
            tensor = _blob(checkpoint, identity, "U64", "order.tensor")
            if tensor.shape != [count]:
                raise Refusal("dangling", "order.tensor", f"shape {tensor.shape}, not [{count}]")
            held[key] = array("Q", bytes(checkpoint.read(tensor)))
            if sys.byteorder == "big":
                held[key].byteswap()
        if len(held[key]) != count:
            raise Refusal("dangling", "order.tensor", f"shape [{len(held[key])}], not [{count}]")
        return held[key]
    return numbers


def _blob(checkpoint, identity, dtype, rule):
    tensor = checkpoint.tensors.get(canonical.text(identity))
    if tensor is None or identity[1] != "blob" or tensor.raw["dtype"] != dtype or "valid" in tensor.raw:
        raise Refusal("dangling", rule, f"not a tensor of role blob and dtype {dtype}, without valid")
    return tensor


def _rng(checkpoint, value):
    if value["algorithm"] not in rng.ALGORITHMS:
        if isinstance(value["state"], dict):
            within("/state", _blob, checkpoint, value["state"]["tensor"], "U8", "rng.tensor")
        return
    state = state_bytes(checkpoint, value)
    within("/state", rng.decode, value["algorithm"], state)
    outputs = within("/state", rng.canary, value["algorithm"], state, len(value["next_raw"]))
    for number, (one, other) in enumerate(zip(outputs, value["next_raw"])):
        if one != other:
            raise Refusal("canary-mismatch", "rng.canary", f"{one} comes next", pointer=f"/next_raw/{number}")


def _schedule(_checkpoint, value):
    for number, last in enumerate(value["last_value"]):
        computed = records.schedule_value(value, number)
        if computed is None:
            return
        height = max(map(abs, records.schedule_ends(value, number)))
        of_value, of_height = (-20, -20) if "f32" in last else (-40, -48)
        bound = abs(computed) * 2.0**of_value + height * 2.0**of_height
        # A difference that is no number is not within any bound.
        if not abs(values.real(last) - computed) <= bound:
            raise Refusal("canary-mismatch", "schedule.canary", f"{computed} is the value there", pointer=f"/last_value/{number}")


def _cursor(checkpoint, value):
    numbers = numbers_of(checkpoint)
    cursors.check_numbers(value, numbers)
    return cursors.check_canary(value, numbers) if nodes.is_computed(value) else None


# --- records with one another


class Join:
    """Records of kind `optimizer` of one name, joined one after another."""

    def __init__(self):
        self.said = {}

    def add(self, record):
        """Checks that a record agrees with those before it."""
        value = record["value"]
        for member in ("algorithm", "masters"):
            self._agree(member, value.get(member), f"/value/{member}" if member in value else "/value")
        for number, group in enumerate(value["groups"]):
            # As text: Python takes true for 1.
            self._agree(("hyper", group["name"]), canonical.text(group["hyper"]), f"/value/groups/{number}/hyper")
            for position, pair in enumerate(group["params"]):
                self._agree(("group", *pair), group["name"], f"/value/groups/{number}/params/{position}")
        for number, listed in enumerate(value["steps"]):
            for pair in pairs_of(record) if listed["params"] == "all" else listed["params"]:
                self._agree(("step", *pair), (listed["step"], listed["stored_as"]), f"/value/steps/{number}")

    def _agree(self, what, said, pointer):
        if self.said.setdefault(what, said) != said:
            raise Refusal("state-disagree", "optimizer.join", f"{what} is said otherwise before", pointer=pointer)


def pairs_of(record):
    return [pair for group in record["value"]["groups"] for pair in group["params"]]


class _Agreement:
    """Depth V: what there is, by name."""

    def __init__(self, checkpoint):
        self.step = checkpoint.manifest["step"]
        self.first = {}
        self.joins = {}
        self.optimized = {}
        self.averages = set()
        for record in checkpoint.records.values():
            if record["kind"] == "optimizer":
                self.optimized.setdefault(record["name"], set()).update(map(tuple, pairs_of(record)))
            elif record["kind"] == "ema":
                self.averages.add(record["name"])
        omitted = {(listed["component"], name) for listed in checkpoint.manifest["omitted"] for name in listed["names"]}
        there = [(entry.identity[1], (entry.identity[0], entry.identity[2]))
                 for entry in (*checkpoint.tensors.values(), *checkpoint.aliases.values())]
        self.params = omitted | {pair for role, pair in there if role == "param"}
        self.params_and_buffers = self.params | {pair for role, pair in there if role == "buffer"}

    def record(self, record):
        kind, value = record["kind"], record["value"]
        if kind == "progress" and value["optimizer_step"] != self.step:
            raise Refusal("state-disagree", "progress.step", f"{value['optimizer_step']}, the checkpoint's step is {self.step}",
                          pointer="/value/optimizer_step")
        if kind == "optimizer":
            self.joins.setdefault(record["name"], Join()).add(record)
            for number, group in enumerate(value["groups"]):
                for position, pair in enumerate(map(tuple, group["params"])):
                    if pair not in self.params:
                        raise Refusal("dangling", "optimizer.params", f"there is no parameter {pair}",
                                      pointer=f"/value/groups/{number}/params/{position}")
        if kind == "rng":
            first = self.first.setdefault(record["name"], value)
            for member in ("algorithm", "on_reshape"):
                if value[member] != first[member]:
                    raise Refusal("state-disagree", "rng.alike", f"another {member}", pointer=f"/value/{member}")

    def tensor(self, identity):
        component, role, name, _, owner, _ = identity
        pair = component, name
        if role == "optimizer" and owner not in self.optimized or role == "ema" and owner not in self.averages:
            raise Refusal("dangling", "optimizer.owner", f"there is no record of kind {role} named {owner}")
        known = {"optimizer": self.optimized.get(owner), "master": self.params, "ema": self.params_and_buffers}.get(role)
        if known is not None and pair not in known:
            raise Refusal("dangling", "optimizer.slot", f"{pair} is none of the parameters")
