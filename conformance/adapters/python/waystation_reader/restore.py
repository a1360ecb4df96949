"""What a loader makes of records for one place of a topology (chapter 19): grades, forks, shares."""

import math

from . import canonical, cursors, nodes, rng
from .forms import on_topology
from .refusal import Refusal
from .registry import CACHES, GRADES
from .state import Join, check_record, numbers_of, state_bytes


class Loader:
    """An open checkpoint, and what its caller asks for and offers.

    `topology` is a list of [axis, size], or None when none is asked about; `place` a list of [axis, index]. `sources` has, by the
    name of a cursor, a set of (records, sha256), and `fingerprints` the canonical text of a tree; `left_out` are names of what the caller does without.
    With `shares` the place is told its items of the next batch.
    """

    def __init__(self, checkpoint, topology, place, demand="exact", sources=None, fingerprints=None, left_out=(),
                 shares=False):
        self.checkpoint, self.demand = checkpoint, demand
        self.sources, self.fingerprints, self.left_out, self.shares = sources or {}, fingerprints or {}, left_out, shares
        self.topology, self.place = topology, place
        if topology is not None:
            try:
                on_topology(place, topology, "restore.demand")
            except Refusal as refusal:
                raise Refusal("bad-argument", refusal.rule, refusal.message) from None
            if len(place) != len(topology):
                raise Refusal("bad-argument", "restore.demand", "a place has an index along every axis")
        self.answer = {"rng": [], "cursors": [], "records": [], "uncaptured": []}

    def load(self):
        """The whole answer; or a refusal, before anything of it is seen."""
        groups = {}
        for _, record in sorted(self.checkpoint.records.items()):
            groups.setdefault((record["kind"], record["name"]), []).append(record)
        for records in groups.values():
            if records[0]["kind"] == "optimizer":
                join = Join()
                for record in records:
                    self.within(record, join.add, record)
            if self.topology is None:
                for record in records:
                    self.one(record, record, True)
            else:
                self.for_place(records)
        if self.topology is not None:
            self.known_names()
            self.meet_demand()
        return self.answer

    def for_place(self, records):
        axes = [axis for axis, _ in records[0].get("coordinate", [])]
        sizes, old = dict(self.topology), dict(self.checkpoint.manifest["topology"])
        place = dict(self.place)
        fits = all(sizes.get(axis) == old[axis] for axis in axes)
        here = [record for record in records if fits and record.get("coordinate", []) == [[axis, place[axis]] for axis in axes]]
        if records[0]["kind"] == "optimizer":
            whole = math.prod(old[axis] for axis in axes)
            here, fits = (records, True) if len(records) == whole else ([], True)
        self.one(records[0], here[0] if here else None, fits)

    def one(self, first, record, fits):
        """Grades what is for the place; `record` is None where there is none, and `first` any of its kind and name."""
        kind = first["kind"]
        grade, reason, entry = self.within(record or first, {"rng": self.stream, "cursor": self.cursor}.get(kind, self.other),
                                           first, record, fits)
        if self.topology is None and "coordinate" in first and grade == "exact":
            grade, reason = "exact-if-axes-unchanged", "no topology is asked about"
        said = {"kind": kind, "name": first["name"], "grade": grade}
        if self.topology is None and "coordinate" in first:
            said["coordinate"] = first["coordinate"]
        self.answer["records"].append(said | ({} if grade == "exact" else {"reason": reason}))
        if entry is not None:
            said = {member: said[member] for member in ("name", "coordinate", "grade") if member in said}
            self.answer["rng" if kind == "rng" else "cursors"].append(said | entry)
        if kind == "uncaptured":
            self.answer["uncaptured"].append({"kind": first["value"]["kind"], "name": first["name"], "reason": reason})

    def within(self, record, act, *arguments):
        """Acts, and says in a refusal which record it is about."""
        try:
            return act(*arguments)
        except Refusal as refusal:
            if refusal.file is None:
                key = canonical.text([record["kind"], record["name"], record.get("coordinate", [])])
                refusal.at(*self.checkpoint.places[key])
            raise

    def other(self, first, record, fits):
        kind = first["kind"]
        if kind == "uncaptured":
            return "none", first["value"]["reason"], None
        if kind not in ("progress", "optimizer", "ema", "schedule", "scaler", "value"):
            return "none", "a kind that this reader does not know", None
        if record is None:
            return "none", _absence(fits), None
        check_record(self.checkpoint, record)
        return "exact", None, None

    # streams

    def stream(self, first, record, fits):
        value, name = (record or first)["value"], first["name"]
        entry = {"algorithm": value["algorithm"], "state": None, "next_raw": [], "caches": []}
        if name in self.left_out:
            return "none", "left out by the caller", entry
        if not fits and value["on_reshape"] == "require":
            raise Refusal("not-exact", "restore.require", f"stream {name} requires the axes that it was saved on")
        if value["algorithm"] not in rng.ALGORITHMS:
            return "none", "an algorithm that this reader does not know", entry
        if any(cache["kind"] not in CACHES for cache in value["caches"]):
            return "none", "a cache that this reader does not know", entry
        if record is not None:
            check_record(self.checkpoint, record)
            state = state_bytes(self.checkpoint, value)
            return "exact", None, entry | {"state": state.hex(), "next_raw": value["next_raw"], "caches": value["caches"]}
        if fits or value["on_reshape"] == "reinit":
            return "none", "to be seeded anew" if not fits else _absence(fits), entry
        axes = {axis for axis, _ in first["coordinate"]}
        coordinate = [[axis, index] for axis, index in self.place if axis in axes]
        manifest = self.checkpoint.manifest
        state = rng.forked(value["algorithm"], rng.fork_seed(manifest["run"], manifest["step"], name, coordinate))
        fork = {"coordinate": coordinate, "manifest": self.checkpoint.digest, "step": manifest["step"]}
        entry |= {"state": state.hex(), "next_raw": rng.canary(value["algorithm"], state, 4), "fork": fork}
        return "fork", _absence(fits), entry

    # cursors

    def cursor(self, first, record, fits):
        entry = {"position": None, "next": None}
        if first["name"] in self.left_out:
            return "none", "left out by the caller", entry
        if record is None:
            return "none", _absence(fits), entry
        value, name = record["value"], record["name"]
        stated = [node for _, node in nodes.walk(value)]
        opaque = [canonical.text(node["fingerprint"]) for node in stated if node["kind"] == "opaque"]
        sources = {(node["source"]["records"], node["source"]["sha256"]) for node in stated if "source" in node}
        if name in self.fingerprints and any(text != self.fingerprints[name] for text in opaque):
            raise Refusal("source-changed", "cursor.opaque", "another fingerprint than the caller's")
        if self.sources.get(name) and not sources <= self.sources[name]:
            raise Refusal("source-changed", "cursor.source", "a source that the caller does not have")
        if self.topology is not None and sources and name not in self.sources:
            return "none", "no source is offered", entry
        if self.topology is not None and opaque and name not in self.fingerprints:
            return "none", "no fingerprint is offered", entry
        if not opaque and not nodes.is_computed(value):
            return "none", "a cursor that is not computed", entry
        try:
            items = check_record(self.checkpoint, record)
        except Refusal as refusal:
            if refusal.rule != "cursor.canary-steps":
                raise
            return "none", "its canary costs more than this reader allows", entry
        entry["position"] = value.get("consumed")
        if items is not None:
            entry["next"] = [cursors.written(item) for item in items[:4]]
            if "partition" in value and self.shares and self.topology is not None:
                mine = cursors.share(value, numbers_of(self.checkpoint), dict(self.topology), dict(self.place))
                entry["share"] = [cursors.written(item) for item in mine]
        if opaque:
            return "opaque-same-topology", "the state of one framework's loader, unread", entry
        if value.get("augment") == "worker-stream":
            return "opaque-same-topology", "records are changed at random by streams of workers", entry
        return "exact", None, entry

    # demand

    def known_names(self):
        """What the caller says of a name was meant for a record that there is."""
        named = {kind: {said["name"] for said in self.answer[kind]} for kind in ("rng", "cursors", "uncaptured")}
        unknown = set(self.left_out) - set.union(*named.values())
        if named["cursors"]:
            unknown |= {*self.sources, *self.fingerprints} - named["cursors"] - named["uncaptured"]
        if unknown:
            raise Refusal("bad-argument", "restore.demand", f"there is no stream or cursor {min(unknown)!r}")

    def meet_demand(self):
        graded = [(said["name"], said["grade"]) for kind in ("rng", "cursors") for said in self.answer[kind]]
        graded += [(said["name"], "none") for said in self.answer["uncaptured"] if said["kind"] in ("rng", "cursor")]
        for name, grade in graded:
            if name not in self.left_out and GRADES.index(grade) > GRADES.index(self.demand):
                raise Refusal("not-exact", "restore.demand", f"{name} is graded {grade}, {self.demand} is demanded")


def _absence(fits):
    return "there is no record for this place" if fits else "an axis has another size than it had"
