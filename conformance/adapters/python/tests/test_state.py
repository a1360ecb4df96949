"""Records of training state: each rule of chapters 16 to 18 that a record can break, and what a loader makes of sound ones."""

import copy
import struct
import tempfile
import unittest
from unittest import mock

from tests import support
from tests.test_cursors import laned, mixed, permuted, rooted, windowed
from tests.test_rules import GONE, put
from tests.test_run import called
from waystation_reader import records as forms_of
from waystation_reader import cursors, rng
from waystation_reader.checkpoint import open_checkpoint
from waystation_reader.orders import Budget
from waystation_reader.refusal import Refusal
from waystation_reader.state import check_record
from waystation_reader.verify import verify

TOPOLOGY = [["dp", 2], ["tp", 1]]
STATE = rng.forked("mt19937", 1)


def f64(number):
    return {"f64": struct.pack(">d", number).hex()}


def stream(algorithm="xoshiro256++", seed=1, reshape="fork", state=None, **members):
    fresh = rng.forked(algorithm, seed)
    return {"algorithm": algorithm, "caches": [], "next_raw": rng.canary(algorithm, fresh, 4), "on_reshape": reshape,
            "state": fresh.hex() if state is None else state} | members


def record(kind, name, value, **coordinate):
    axes = [[axis, index] for axis, index in coordinate.items()]
    return {"kind": kind, "name": name, "value": value} | ({"coordinate": axes} if axes else {})


def blob(name, dtype, numbers):
    entry = {"dtype": dtype, "name": name, "role": "blob", "shape": [len(numbers)]}
    data = struct.pack(f"<{len(numbers)}Q", *numbers) if dtype == "U64" else bytes(numbers)
    return entry, support.whole(entry["shape"]), [data]


def named(name):
    return {"tensor": ["main", "blob", name, "", "", []]}


def scheduled(algorithm, value, last, **parameters):
    return {"algorithm": algorithm, "last_value": last, "parameters": {"map": [[key, given] for key, given in parameters.items()]},
            "position": {"unit": "optimizer_steps", "value": value}}


GROUPS = [{"hyper": [["lr", f64(0.1)]], "name": "decayed", "params": [["main", "w"], ["main", "cold"]]},
          {"hyper": [["lr", f64(0.1)]], "name": "other", "params": [["critic", "w"]]}]
ADAM = {"algorithm": "adamw", "groups": GROUPS, "masters": {"cast": "nearest-even"},
        "steps": [{"params": "all", "step": 10, "stored_as": "F32[]"}]}
EXPLICIT = permuted(3, order={"algorithm": "explicit", "n": 3} | {"ordinals": named("ordinals")})
LANED = laned([2, 1], [[0, 1], [1, 0]])
CACHES = [{"bits": "0" * 16, "kind": "torch/normal-f64"}]
LANED["source"]["shards"] = named("shards")
OPAQUE = {"fingerprint": {"map": [["ranks", 2]]}, "kind": "opaque", "media_type": "pickle", "state": None}
PACK = {"algorithm": "concat-then-split", "child": permuted(), "kind": "pack", "leftover": [3, 5, 9], "length": 8, "tail": "drop"}


def records():
    half = scheduled("linear-warmup+cosine", 60, [f64(0.55), {"f32": struct.pack(">f", 0.55).hex()}],
                     base={"list": [f64(1.0), f64(1.0)]}, floor=f64(0.1), warmup=20, total=100)
    shuffled = windowed(mixed([permuted(10), LANED], [1, 1]), 2, reverse=True)
    return [
        record("cursor", "explicit", rooted(EXPLICIT, 0, [[5], [0], [5], [5]])),
        record("cursor", "lanes", rooted(LANED, 1, [[1], [2], [0]], partition={"axes": ["dp"], "batch": 2, "rule": "by-lane"})),
        record("cursor", "mixed", rooted(shuffled, 0, [[1, 1], [0, 0], [1, 2], [0, 1]])),
        record("cursor", "opaque", OPAQUE),
        record("cursor", "pack", PACK | {"consumed": 4}),
        record("cursor", "train", rooted(permuted(), 0, [[n] for n in range(6)], augment="none",
                                         partition={"axes": ["dp"], "batch": 6, "rule": "contiguous"})),
        record("ema", "slow", {"decay": f64(0.99), "updates": 3}),
        record("optimizer", "main", ADAM, dp=0),
        record("optimizer", "main", ADAM, dp=1),
        record("progress", "main", {"optimizer_step": 1000, "tokens": 5}),
        record("rng", "augment", stream(reshape="reinit"), dp=0),
        record("rng", "augment", stream(seed=2, reshape="reinit"), dp=1),
        record("rng", "big", stream("mt19937", 1, "require", named("state"), caches=CACHES)),
        record("rng", "drop", stream(origin={"framework": "x"}, purpose="p", seed_rule={"root": 1, "rule": "r"}), dp=0),
        record("rng", "drop", stream(seed=3, fork={"coordinate": [["pp", 9]], "manifest": "0" * 64, "step": 1}), dp=1),
        record("rng", "new", stream() | {"algorithm": "new", "next_raw": ["0"], "state": ""}),
        record("scaler", "amp", {"backoff": f64(0.5), "good_steps": 1, "growth": f64(2.0), "interval": 2000, "scale": f64(4.0)}),
        record("schedule", "lr", half),
        record("uncaptured", "worker", {"kind": "rng", "reason": "no hook"}),
        record("value", "v", {"tree": None}),
    ]


def build(change=lambda listed: None):
    """A checkpoint with everything; `change` bends its records."""
    listed = [copy.deepcopy(found) for found in records()]
    change(listed)
    w = {"dtype": "U8", "name": "w", "role": "param", "shape": [2]}
    moment = w | {"owner": "main", "role": "optimizer", "slot": "adam.m"}
    tensors = [w, w | {"component": "critic"}, moment, w | {"role": "master"}, w | {"owner": "slow", "role": "ema"}]
    tensors = [(entry, support.whole([2])) for entry in tensors]
    tensors += [blob("state", "U8", STATE), blob("shards", "U64", [2, 1]), blob("ordinals", "U64", [5, 0, 5])]
    omitted = [{"component": "main", "names": ["cold"], "reason": "frozen"}]
    return support.Checkpoint([support.Writer(0, tensors, records=listed, omitted=omitted)], topology=TOPOLOGY)


def at(kind, name, number=0):
    """The position of a record among those of its kind and name."""
    return [position for position, found in enumerate(records()) if (found["kind"], found["name"]) == (kind, name)][number]


C, O, R = ("cursor", "train"), ("optimizer", "main"), ("rng", "drop")
LANES, MIXED, EXPL, BIG, LR = ("cursor", "lanes"), ("cursor", "mixed"), ("cursor", "explicit"), ("rng", "big"), ("schedule", "lr")
SHAPE = "json.types"
TORCH = {"algorithm": "torch.randperm-cpu", "n": 3, "seed": 1, "seed_rule": "seed"}
GRAIN = TORCH | {"algorithm": "grain.index_shuffle", "rounds": 4}
# Seen on opening: (record, path in its value, new value, code, rule).
FORMS = [
    (("progress", "main"), ["more"], 1, "bad-member", "json.unknown-member"),
    (("progress", "main"), ["tokens"], -1, "bad-member", SHAPE),
    (O, ["groups", 0, "params", 1], ["main", "w"], "bad-member", "optimizer.form"),
    (O, ["groups", 1, "params", 0], ["main", "w"], "bad-member", "optimizer.form"),
    (O, ["groups", 1, "name"], "decayed", "bad-member", "optimizer.form"),
    (O, ["groups", 0, "hyper"], [["a", 1], ["a", 2]], "bad-member", "optimizer.form"),
    (O, ["groups", 0, "hyper", 0, 1], [], "bad-member", "value.form"),
    (O, ["groups", 0, "hyper", 0, 0], "", "bad-name", "identity.name"),
    (O, ["steps"], lambda steps: steps * 2, "bad-member", "optimizer.form"),
    (O, ["steps", 0, "params"], "some", "bad-member", SHAPE),
    (O, ["masters", "cast"], "down", "bad-member", SHAPE),
    (("ema", "slow"), ["decay"], 1, "bad-member", "ema.form"),
    (("ema", "slow"), ["updates"], GONE, "bad-member", "json.unknown-member"),
    (("scaler", "amp"), ["scale"], {"int": "9007199254740992"}, "bad-member", "scaler.form"),
    (("uncaptured", "worker"), ["reason"], "", "bad-name", "identity.name"),
    (LR, ["last_value", 0], 1, "bad-member", "schedule.form"),
    (LR, ["position", "unit"], "steps", "bad-member", SHAPE),
    (LR, ["parameters"], {"list": []}, "bad-member", "schedule.form"),
    (LR, ["parameters", "map", 0, 1, "list"], lambda listed: listed[:1], "bad-member", "schedule.form"),
    (LR, ["parameters", "map", 1, 1], {"tuple": [f64(1.0), f64(1.0)]}, "bad-member", "schedule.form"),
    (LR, ["parameters", "map", 2, 1], 101, "bad-member", "schedule.form"),
    (LR, ["parameters", "map", 3, 0], "steps", "bad-member", "schedule.form"),
    (R, ["state"], "abc", "bad-member", SHAPE),
    (R, ["state"], "00" * 8193, "limit", "limit.value"),
    (R, ["state"], {"tensor": ["main", "blob", "s", "x", "", []]}, "bad-identity", "identity.slot"),
    (R, ["next_raw"], ["0" * 16] * 65, "limit", "limit.value"),
    (R, ["next_raw"], ["0" * 16] * 3, "bad-member", "rng.canary-there"),
    (R, ["next_raw", 0], "0", "bad-member", "rng.form"),
    (R, ["next_raw", 0], "0" * 129, "bad-member", SHAPE),
    (R, ["algorithm"], "jax-rbg", "bad-member", "rng.form"),
    (R, ["on_reshape"], "keep", "bad-member", SHAPE),
    (R, ["origin", "stream"], "x", "bad-member", "json.unknown-member"),
    (R, ["seed_rule", "root"], True, "bad-member", SHAPE),
    (R, ["fork"], {"coordinate": [], "manifest": "0", "step": 1}, "bad-member", SHAPE),
    (R, ["fork"], {"coordinate": [["pp", 1], ["pp", 2]], "manifest": "0" * 64, "step": 1}, "bad-member", "rng.form"),
    (BIG, ["caches", 0, "bits"], "0" * 8, "bad-member", "rng.form"),
    (BIG, ["caches"], lambda caches: caches * 2, "bad-member", "rng.form"),
    (C, ["kind"], "list", "bad-member", SHAPE),
    (C, ["kind"], GONE, "bad-member", "json.unknown-member"),
    (C, ["consumed"], GONE, "bad-member", "json.unknown-member"),
    (C, ["next"], GONE, "bad-member", "cursor.canary-there"),
    (C, ["next", "first"], [0, 1, 2], "bad-member", "cursor.canary-there"),
    (C, ["next", "first", 0], [0], "bad-member", "cursor.form"),
    (C, ["next", "count"], 65537, "limit", "limit.value"),
    (C, ["augment"], "some", "bad-member", SHAPE),
    (C, ["partition", "axes"], ["dp", "dp"], "bad-member", "cursor.partition"),
    (C, ["partition", "axes"], ["pp"], "bad-member", "cursor.partition"),
    (C, ["partition", "rule"], "by-lane", "bad-member", "cursor.partition"),
    (C, ["partition", "batch"], 0, "bad-member", "cursor.partition"),
    (C, ["source", "shards"], [10], "bad-member", "json.unknown-member"),
    (C, ["source", "records"], 0, "bad-member", "cursor.form"),
    (C, ["epoch_end", "unit"], 1, "bad-member", "json.unknown-member"),
    (C, ["epoch_end"], {"rule": "pad"}, "bad-member", "json.unknown-member"),
    (C, ["epoch_end"], {"rule": "drop-last", "unit": 11}, "bad-position", "cursor.position"),
    (C, ["position"], 11, "bad-position", "cursor.position"),
    (C, ["position"], 1, "bad-position", "cursor.position"),
    (C, ["order", "n"], 11, "bad-position", "order.domain"),
    (C, ["order"], {"algorithm": "explicit", "n": 2, "ordinals": [0, 10]}, "bad-position", "order.domain"),
    (C, ["order"], {"algorithm": "explicit", "n": 2, "ordinals": [0]}, "bad-position", "order.domain"),
    (C, ["order"], {"algorithm": "explicit", "n": 2}, "bad-member", "json.unknown-member"),
    (C, ["order"], {"algorithm": "python.shuffle"}, "bad-member", "json.unknown-member"),
    (C, ["order"], TORCH | {"seed": -1}, "bad-member", "order.form"),
    (C, ["order"], TORCH | {"seed": {"int": "9" * 4300}}, "bad-member", "order.form"),
    (C, ["order"], TORCH | {"rounds": 4}, "bad-member", "json.unknown-member"),
    (C, ["order"], GRAIN | {"seed": 2**32}, "bad-member", "order.form"),
    (C, ["order"], GRAIN | {"rounds": 5}, "bad-member", "order.form"),
    (C, ["order"], GRAIN | {"rounds": 1026}, "bad-member", "order.form"),
    (LANES, ["next_lane"], 2, "bad-position", "cursor.lanes"),
    (LANES, ["lanes"], [], "bad-position", "cursor.lanes"),
    (LANES, ["lanes", 0], [3, 0], "bad-position", "cursor.lanes"),
    (LANES, ["lanes", 0], [2, 1], "bad-position", "cursor.lanes"),
    (LANES, ["lanes"], [[1, 0], [1, 0]], "bad-position", "cursor.lanes"),
    (LANES, ["source", "shards"], [2, 2], "bad-position", "cursor.lanes"),
    (LANES, ["source", "shards"], [3], "bad-position", "cursor.lanes"),
    (LANES, ["source", "shards"], [1] * 65537, "limit", "limit.value"),
    (LANES, ["epoch_end"], "wrap", "bad-member", SHAPE),
    (LANES, ["order"], {"algorithm": "explicit", "n": 2, "ordinals": [0, 2]}, "bad-position", "order.domain"),
    (MIXED, ["anchor", "selection", "weights"], [1], "bad-member", "cursor.form"),
    (MIXED, ["anchor", "selection", "weights", 0], 2**32, "bad-member", "cursor.form"),
    (MIXED, ["anchor", "children"], [], "bad-member", "cursor.form"),
    (MIXED, ["anchor", "children", 0, "consumed"], 0, "bad-member", "json.unknown-member"),
    (MIXED, ["anchor", "children", 0, "kind"], ["x"], "bad-member", SHAPE),
    (MIXED, ["order"], {"algorithm": "identity", "n": 2}, "bad-member", "json.unknown-member"),
    (MIXED, ["order"], {"algorithm": "explicit", "ordinals": [0]}, "bad-member", "order.form"),
    (MIXED, ["reverse"], 1, "bad-member", SHAPE),
    (MIXED, ["replay"], 3, "bad-position", "cursor.replay"),
    (MIXED, ["buffer"], [], "bad-member", "json.unknown-member"),
    (("cursor", "opaque"), ["consumed"], 0, "bad-member", "json.unknown-member"),
    (("cursor", "opaque"), ["fingerprint"], {"map": [[1, 2]]}, "bad-member", "cursor.form"),
    (("cursor", "opaque"), ["state"], [], "bad-member", "value.form"),
    (("cursor", "pack"), ["leftover"], [[3], 5, 1], "bad-member", "cursor.form"),
    (("cursor", "pack"), ["leftover", 2], 0, "bad-position", "cursor.leftover"),
    (("cursor", "pack"), ["algorithm"], "best-fit", "bad-member", SHAPE),
    (("cursor", "pack"), ["length"], 0, "bad-member", "cursor.form"),
]
# Of a form that is right, whatever else becomes wrong: (record, path in its value, new value).
OPENS = [
    (C, ["order"], GRAIN), (C, ["order"], GRAIN | {"rounds": 1024, "seed": 2**32 - 1}),
    (C, ["order"], TORCH | {"seed": {"int": "18446744073709551615"}}), (C, ["order"], TORCH | {"n": 10}),
    (C, ["order"], {"algorithm": "explicit", "n": 11, "ordinals": [9] * 11}), (C, ["consumed"], 2**53 - 1),
    (C, ["order"], {"algorithm": "python.shuffle", "n": 10, "more": {}}),
    (C, ["order"], {"algorithm": "mine", "n": 10, "ordinals": [{}]}), (LANES, ["order"], {"algorithm": "mine", "n": 2, "ordinals": {}}), (C, ["epoch_end"], {"rule": "drop-last", "unit": 10}),
    (C, ["next"], {"count": 65536, "first": [0, 1, [0, 2], 3], "sha256": "0" * 64}), (C, ["partition", "axes"], []),
    (MIXED, ["replay"], 2), (MIXED, ["anchor", "selection"], {"algorithm": "random", "weights": []}),
    (MIXED, ["anchor", "selection", "weights", 0], 2**32 - 1), (LANES, ["lanes"], [[2, 0], [3, 0]]),
    (LANES, ["source", "shards"], [3, 0]), (("cursor", "pack"), ["leftover"], None), (("cursor", "pack"), ["leftover", 2], 99),
    (("cursor", "opaque"), ["next"], {"count": 0, "first": [], "sha256": "0" * 64}),
    (R, ["next_raw"], ["0" * 16] * 64), (R, ["state"], "00" * 8192), (BIG, ["caches"], [{"bits": "", "kind": "x"}]),
    (R, ["fork"], {"coordinate": [], "manifest": "0" * 64, "step": 999999999999}), (LR, ["parameters", "map", 2, 1], 100),
    (("ema", "slow"), ["decay"], GONE), (("scaler", "amp"), ["hysteresis"], 0), (LR, ["algorithm"], "other"), (O, ["steps"], []),
]
# Seen by a validator only, or by who restores the record.
DEEP = [
    (("progress", "main"), ["optimizer_step"], 999, "state-disagree", "progress.step"),
    (O, ["algorithm"], "sgd", "state-disagree", "optimizer.join"),
    (O, ["masters"], GONE, "state-disagree", "optimizer.join"),
    (O, ["groups", 1, "hyper"], [], "state-disagree", "optimizer.join"),
    (O, ["groups"], lambda groups: [groups[0] | {"params": groups[1]["params"]}, groups[1] | {"params": groups[0]["params"]}],
     "state-disagree", "optimizer.join"),
    (O, ["steps", 0, "step"], 11, "state-disagree", "optimizer.join"),
    (O, ["groups", 0, "params", 1, 1], "none", "dangling", "optimizer.params"),
    (BIG, ["state"], named("nowhere"), "dangling", "rng.tensor"),
    (BIG, ["state"], named("shards"), "dangling", "rng.tensor"),
    (("rng", "new"), ["state"], named("shards"), "dangling", "rng.tensor"),
    (R, ["state"], named("state"), "bad-rng-state", "rng.state"),
    (R, ["state"], "00" * 32, "bad-rng-state", "rng.state"),
    (R, ["state"], "01" * 32, "canary-mismatch", "rng.canary"),
    (BIG, ["next_raw", 3], "00000000", "canary-mismatch", "rng.canary"),
    (R, ["on_reshape"], "require", "state-disagree", "rng.alike"),
    (LR, ["position", "value"], 61, "canary-mismatch", "schedule.canary"),
    (LR, ["last_value", 1, "f32"], "7fc00000", "canary-mismatch", "schedule.canary"),
    (C, ["next", "first", 0], 1, "canary-mismatch", "cursor.canary"),
    (EXPL, ["order", "n"], 2, "dangling", "order.tensor"),
    (EXPL, ["order", "ordinals"], named("state"), "dangling", "order.tensor"),
    (EXPL, ["source", "records"], 5, "bad-position", "order.domain"),
    (LANES, ["lanes", 0, 1], 2, "bad-position", "cursor.lane-record"),
    (LANES, ["source", "records"], 4, "bad-position", "cursor.lane-record"),
    (MIXED, ["anchor", "children", 1, "lanes", 0, 1], 2, "bad-position", "cursor.lane-record"),
]


def paths(value, here=()):
    """The path to everything within a value."""
    for step, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield [*here, step]
        yield from paths(below, (*here, step))


class Rules(unittest.TestCase):
    def findings(self, checkpoint):
        with tempfile.TemporaryDirectory() as directory:
            checkpoint.write(directory)
            try:
                open_checkpoint(directory).directory.close()
                opened = None
            except Refusal as refusal:
                opened = refusal
            return opened, verify(directory)

    def bent(self, who, path, new):
        return build(lambda listed: put(listed[at(*who)]["value"], path, new))

    def test_sound(self):
        opened, found = self.findings(build())
        self.assertEqual((opened, [refusal.finding() for refusal in found[0]], found[1]), (None, [], []))

    def test_forms(self):
        for who, path, new, code, rule in FORMS:
            with self.subTest(who=who, path=path, new=str(new)[:60]):
                opened, (found, _) = self.findings(self.bent(who, path, new))
                self.assertEqual((opened.code, opened.rule), (code, rule), opened)
                self.assertIn((code, rule), [(refusal.code, refusal.rule) for refusal in found])
                self.assertTrue(opened.pointer.startswith(f"/records/{at(*who)}/value"), opened.pointer)

    def test_right_forms(self):
        for who, path, new in OPENS:
            with self.subTest(who=who, path=path, new=str(new)[:60]):
                bent = copy.deepcopy(records()[at(*who)])
                put(bent["value"], path, new)
                forms_of.check(bent, TOPOLOGY)

    def test_deep(self):
        for who, path, new, code, rule in DEEP:
            with self.subTest(who=who, path=path, new=str(new)[:60]):
                opened, (found, _) = self.findings(self.bent(who, path, new))
                self.assertIsNone(opened)
                self.assertIn((code, rule), [(refusal.code, refusal.rule) for refusal in found])
                for refusal in found:
                    self.assertTrue(refusal.pointer.startswith("/records/"), refusal.pointer)

    def test_a_state_without_outputs(self):
        for state, rules in ("00" * 16, []), ("00" * 15, ["rng.state"]):
            def change(listed, state=state):
                for number in (0, 1):
                    listed[at(*R, number)]["value"] = stream("jax-rbg", state=state)
            opened, (found, _) = self.findings(build(change))
            self.assertEqual((opened, [refusal.rule for refusal in found]), (None, rules * 2))

    def test_the_first_breach_is_the_answer(self):
        def change(listed):
            put(listed[at(*C)]["value"], ["partition", "rule"], "by-lane")
            put(listed[at(*C)]["value"], ["position"], 1)
        opened, _ = self.findings(build(change))
        self.assertEqual(opened.rule, "cursor.position")

    def test_true_is_not_1(self):
        def change(listed):
            for number, tree in (0, True), (1, 1):
                put(listed[at(*O, number)]["value"], ["groups", 0, "hyper"], [["fused", tree]])
        opened, (found, _) = self.findings(build(change))
        self.assertEqual((opened, [refusal.rule for refusal in found]), (None, ["optimizer.join"]))

    def test_progress_is_one(self):
        for member, new in (("name", "other"), ("coordinate", [["dp", 0]])):
            opened, _ = self.findings(build(lambda listed: put(listed, [at("progress", "main"), member], new)))
            self.assertEqual((opened.code, opened.rule), ("bad-member", "progress.form"))

    def test_tensors_without_records(self):
        for who, rules in ((("ema", "slow"), ["optimizer.owner"]), (O, ["optimizer.owner"])):
            def change(listed, who=who):
                listed[:] = [found for found in listed if (found["kind"], found["name"]) != who]
            _, (found, _) = self.findings(build(change))
            self.assertEqual([refusal.rule for refusal in found], rules)
            self.assertTrue(found[0].pointer.startswith("/entries/"))
        _, (found, _) = self.findings(build(lambda listed: [
            put(listed[at(*O, number)]["value"], ["groups", 0, "params"], []) for number in (0, 1)]))
        self.assertEqual([refusal.rule for refusal in found], ["optimizer.slot"])

    def test_depth(self):
        node = permuted()
        for _ in range(7):
            node = mixed([node], [1])
        sound = rooted(node, 0, [[0] * 7 + [n] for n in range(2)])
        opened, (found, _) = self.findings(build(lambda listed: put(listed[at(*C)], ["value"], sound)))
        self.assertEqual((opened, found), (None, []))
        deep = rooted(mixed([node], [1]), 0, [[0] * 8 + [0]])
        opened, _ = self.findings(build(lambda listed: put(listed[at(*C)], ["value"], deep)))
        self.assertEqual((opened.code, opened.rule), ("limit", "limit.value"))

    def test_schedules(self):
        for algorithm, position, value, parameters in (
            ("constant", 0, 3.0, {}),
            ("linear-warmup", 5, 1.5, {"warmup": 10}),
            ("linear-warmup", 10, 3.0, {"warmup": 10}),
            ("linear-warmup", 0, 3.0, {"warmup": 0}),
            ("linear-warmup+linear", 30, 2.0, {"floor": f64(1.0), "warmup": 20, "total": 40}),
            ("linear-warmup+cosine", 25, 1.0 + 2.0 * 0.8535533905932737, {"floor": f64(1.0), "warmup": 20, "total": 40}),
            ("linear-warmup+cosine", 40, 1.0, {"floor": f64(1.0), "warmup": 40, "total": 40}),
        ):
            with self.subTest(algorithm=algorithm, position=position):
                good = scheduled(algorithm, position, [f64(value)], base=f64(3.0), **parameters)
                self.assertEqual(self.findings(build(lambda listed: put(listed[at(*LR)], ["value"], good)))[1][0], [])
                good["last_value"] = [f64(value * (1 + 2**-39))]
                _, (found, _) = self.findings(build(lambda listed: put(listed[at(*LR)], ["value"], good)))
                self.assertEqual([refusal.rule for refusal in found], ["schedule.canary"])

    def test_odd_values(self):
        """Whatever stands in a record, it is answered with a refusal."""
        odd = [None, True, -1, 0, 3, 2**53 - 1, "", "all", "stop", "opaque", "explicit", [], [[]], [1], {}, {"a": 1}, {"list": []},
               {"int": "9" * 5000}, {"f64": "7ff8" + "0" * 12}, named("shards"), GONE]
        with tempfile.TemporaryDirectory() as directory, mock.patch("waystation_reader.cursors.Budget", lambda steps: Budget(9999)):
            build().write(directory)
            checkpoint = open_checkpoint(directory)
            self.addCleanup(checkpoint.directory.close)
            outcomes = set()
            for found in records():
                for path in list(paths(found["value"])):
                    for new in odd:
                        bent = copy.deepcopy(found)
                        put(bent["value"], path, new)
                        try:
                            forms_of.check(bent, TOPOLOGY)
                            check_record(checkpoint, bent)
                            outcomes.add("sound")
                        except Refusal as refusal:
                            outcomes.add(refusal.code)
        self.assertEqual(outcomes, {"sound", "bad-identity", "bad-member", "bad-name", "bad-position", "bad-rng-state",
                                    "canary-mismatch", "dangling", "limit", "unsupported-role"})

    def test_a_canary_that_takes_long(self):
        order = {"algorithm": "torch.randperm-cpu", "n": 1 << 40, "seed": 1, "seed_rule": "seed"}
        value = rooted(permuted(1 << 40, order=order), 0, [[0]])
        _, (found, notes) = self.findings(build(lambda listed: put(listed[at(*C)], ["value"], value)))
        self.assertEqual((found, len(notes)), ([], 1))


class Loader(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.directory = folder.name

    OFFERS = [f"--source={name}={count}:{'0' * 64}" for name, count in
              (("explicit", 10), ("lanes", 3), ("mixed", 10), ("mixed", 3), ("pack", 10), ("train", 10))]
    OFFERS += ['--fingerprint=opaque={"map":[["ranks",2]]}']

    def state(self, *words, dp=2, place=1, change=lambda listed: None, offers=OFFERS):
        files = build(change).write(self.directory)
        self.manifest = files["manifest.json"]
        words = list(words) if dp is None else ["--topology", f"dp={dp},tp=1", "--place", f"dp={place},tp=0", *words]
        return called("state", self.directory, *words, *offers)

    def grades(self, answer):
        return {(said["kind"], said["name"], *map(str, said.get("coordinate", ()))): said["grade"] for said in answer["records"]}

    def refused(self, *words, **options):
        status, answer = self.state(*words, **options)
        self.assertEqual(status, 1)
        return answer["error"]["code"], answer["error"]["rule"]

    def test_as_it_was(self):
        status, answer = self.state("--share", "--demand", "none")
        self.assertEqual(status, 0)
        worse = {key: grade for key, grade in self.grades(answer).items() if grade != "exact"}
        self.assertEqual(worse, {("cursor", "opaque"): "opaque-same-topology", ("cursor", "pack"): "none", ("rng", "new"): "none",
                                 ("uncaptured", "worker"): "none"})
        self.assertTrue(all(("reason" in said) == (said["grade"] != "exact") for said in answer["records"]))
        self.assertEqual(answer["uncaptured"], [{"kind": "rng", "name": "worker", "reason": "no hook"}])
        streams = {said["name"]: said for said in answer["rng"]}
        self.assertEqual(streams["drop"]["state"], rng.forked("xoshiro256++", 3).hex())
        self.assertEqual((streams["big"]["state"], streams["new"]["state"]), (STATE.hex(), None))
        self.assertEqual(streams["big"]["caches"], [{"bits": "0" * 16, "kind": "torch/normal-f64"}])
        found = {said["name"]: said for said in answer["cursors"]}
        train = {"name": "train", "grade": "exact", "position": 0, "next": [0, 1, 2, 3], "share": [3, 4, 5]}
        self.assertEqual(found["train"], train)
        self.assertEqual(found["mixed"]["next"], [[1, 1], [0, 0], [1, 2], [0, 1]])
        self.assertEqual(found["opaque"]["position"], None)

    def test_a_canary_that_costs_too_much(self):
        with mock.patch.object(cursors.begin, "__defaults__", (2,)):
            self.assertEqual(self.refused(), ("not-exact", "restore.demand"))
            status, answer = self.state("--demand", "none")
        self.assertEqual((status, self.grades(answer)["cursor", "train"]), (0, "none"))
        self.assertEqual(next(said for said in answer["cursors"] if said["name"] == "train")["position"], None)

    def test_another_topology(self):
        self.assertEqual(self.refused("--share", "--demand", "none", dp=3, place=2), ("not-exact", "cursor.share"))

        def one_lane_for_all(listed):
            put(listed[at(*LANES)]["value"], ["partition"], GONE)

        self.assertEqual(self.state("--demand", "none", dp=3, place=2)[0], 0)
        status, answer = self.state("--share", "--demand", "none", dp=3, place=2, change=one_lane_for_all)
        self.assertEqual(status, 0)
        grades = self.grades(answer)
        self.assertEqual([grades["rng", name] for name in ("augment", "big", "drop", "new")], ["none", "exact", "fork", "none"])
        self.assertEqual([grades["optimizer", "main"], grades["cursor", "train"]], ["exact", "exact"])
        drop = next(said for said in answer["rng"] if said["name"] == "drop")
        state = rng.forked("xoshiro256++", rng.fork_seed("tiny", 1000, "drop", [["dp", 2]]))
        self.assertEqual((drop["state"], drop["next_raw"]), (state.hex(), rng.canary("xoshiro256++", state, 4)))
        self.assertEqual(drop["fork"], {"coordinate": [["dp", 2]], "manifest": support.sha(self.manifest), "step": 1000})
        self.assertEqual(next(said for said in answer["cursors"] if said["name"] == "train")["share"], [4, 5])

    def test_require(self):
        def change(listed):
            for number in (0, 1):
                put(listed[at(*R, number)]["value"], ["on_reshape"], "require")

        self.assertEqual(self.refused("--demand", "none", dp=4, change=change), ("not-exact", "restore.require"))
        status, answer = self.state("--demand", "none", "--leave-out", "drop", dp=4, change=change)
        self.assertEqual((status, self.grades(answer)["rng", "drop"]), (0, "none"))
        self.assertEqual(self.state("--demand", "none", change=change)[0], 0)

    def test_demand(self):
        def only(*names):
            def change(listed):
                listed[:] = [found for found in listed if found["name"] in names or found["kind"] in ("optimizer", "ema")]
            return change

        def offers(*names):
            return [offer for offer in self.OFFERS if offer.split("=")[1] in names]

        self.assertEqual(self.state(change=only("drop", "train", "v"), offers=offers("train"))[0], 0)
        for names, demand in (("opaque",), "fork"), (("worker",), "opaque-same-topology"), (("new",), "opaque-same-topology"):
            some = {"change": only(*names), "offers": offers(*names)}
            self.assertEqual(self.refused(**some), ("not-exact", "restore.demand"))
            self.assertEqual(self.refused("--demand", demand, **some), ("not-exact", "restore.demand"))
        self.assertEqual(self.state("--demand", "opaque-same-topology", change=only("opaque"), offers=offers("opaque"))[0], 0)
        for name in "opaque", "worker", "new":
            status, answer = self.state("--leave-out", name, change=only(name), offers=offers(name))
            self.assertEqual((status, [said["grade"] for said in answer["records"] if said["name"] == name]), (0, ["none"]))
        self.assertEqual(self.refused(dp=3, change=only("drop")), ("not-exact", "restore.demand"))
        self.assertEqual(self.state("--demand", "fork", dp=3, change=only("drop"))[0], 0)

    def test_sources(self):
        none = ["--demand", "none"]
        _, answer = self.state(*none, offers=[])
        grades = self.grades(answer)
        self.assertEqual({grades["cursor", name] for name in ("explicit", "lanes", "mixed", "opaque", "pack", "train")}, {"none"})
        for offer in (f"--source=train=11:{'0' * 64}", f"--source=train=10:{'1' * 64}", f"--source=mixed=10:{'0' * 64}"):
            self.assertEqual(self.refused(*none, offers=[offer]), ("source-changed", "cursor.source"))
        offers = ['--fingerprint=opaque={"map":[["ranks",3]]}']
        self.assertEqual(self.refused(*none, offers=offers), ("source-changed", "cursor.opaque"))

    def test_no_topology(self):
        status, answer = self.state(dp=None, offers=[])
        grades = self.grades(answer)
        self.assertEqual(status, 0)
        self.assertEqual(grades["rng", "drop", "['dp', 1]"], "exact-if-axes-unchanged")
        self.assertEqual([grades["rng", "big"], grades["cursor", "train"], grades["cursor", "opaque"]],
                         ["exact", "exact", "opaque-same-topology"])

    def test_optimizers_are_joined_for_no_place_too(self):
        status, answer = self.state(dp=None, change=lambda listed: put(listed[at(*O)]["value"], ["algorithm"], "sgd"))
        self.assertEqual((status, answer["error"]["rule"]), (1, "optimizer.join"))

    def test_what_is_restored_is_checked(self):
        for who, path, new, rule in (
            (R, ["state"], "01" * 32, "rng.canary"),
            (C, ["next", "first", 0], 1, "cursor.canary"),
            (LR, ["position", "value"], 61, "schedule.canary"),
            (O, ["algorithm"], "sgd", "optimizer.join"),
        ):
            number = 1 if who == R else 0
            status, answer = self.state("--demand", "none", change=lambda listed: put(listed[at(*who, number)]["value"], path, new))
            self.assertEqual((status, answer["error"]["rule"], answer["error"]["file"]), (1, rule, "records-00000.json"))
        # The other place's stream is not restored.
        status, _ = self.state("--demand", "none", change=lambda listed: put(listed[at(*R)]["value"], ["state"], "01" * 32))
        self.assertEqual(status, 0)

    def test_worker_streams(self):
        def change(listed):
            for name in "train", "pack":
                put(listed[at("cursor", name)]["value"], ["augment"], "worker-stream")
        grades = self.grades(self.state("--demand", "none", change=change)[1])
        self.assertEqual([grades["cursor", "train"], grades["cursor", "pack"]], ["opaque-same-topology", "none"])

    def test_arguments(self):
        build().write(self.directory)
        for words in (["--topology", "dp"], ["--topology", "dp=x"], ["--topology", "dp=2", "--place", "dp=2"],
                      ["--topology", "dp=2"], ["--source", "train"], ["--source", f"train={'0' * 64}:10"], ["--fingerprint", "x"], ["--fingerprint", "x={"], ["--demand", "best"],
                      ["--topology", "dp=2,tp=1", "--place", "tp=0,dp=0"]):
            self.assertEqual(called("state", self.directory, *words)[0], 2, words)


if __name__ == "__main__":
    unittest.main()
