"""Faults that are no missing check: how rules are broken that a reader keeps by the way it is made.

Each is a function of the set of rules that are switched off; it changes the reader's modules after they are imported. Its first
line of text is what it does wrong, `BY_NAME` has the rule that this breaks. Some rules need more than a check that is
left out before anything comes of it: `COMPANIONS` has what goes with switching them off.
"""

import json
import os
import re
import struct

from waystation_reader import (canonical, checkpoint, content, cursors, entries, files, forms, metadata, records, region, restore,
                               rng, run, state, values)
from waystation_reader.refusal import Refusal

_SLOTS = {
    "accumulated.gradient", "adadelta.delta", "adadelta.v", "adafactor.col", "adafactor.full", "adafactor.row", "adagrad.sum",
    "adam.m", "adam.v", "adam.vmax", "adamax.u", "amax", "asgd.ax", "asgd.eta", "asgd.mu", "codebook", "lion.m", "muon.momentum",
    "nadam.mu_product", "rmsprop.mean", "rmsprop.momentum", "rmsprop.v", "rprop.prev", "rprop.step_size", "scale", "scale_inv",
    "sgd.momentum", "zero",
}
_ORIGINAL = {"read": files.File.read, "length": files.Directory.length, "open": files.Directory.open, "parse": canonical.parse,
             "chunk": checkpoint.Checkpoint.chunk_bytes, "whole": checkpoint.Checkpoint.read, "goes": forms.goes_with_role,
             "check": records.check, "preamble": metadata.preamble, "open_checkpoint": checkpoint.open_checkpoint,
             "version": forms.version, "complete": run._complete, "everything": content.everything, "share": cursors.share,
             "cursor": restore.Loader.cursor, "one": restore.Loader.one, "find": checkpoint.Checkpoint.find}


def fills_gaps(off):
    """Gives zeros where data is missing."""
    off |= {"cover.gap", "cover.exact", "dir.present", "dir.length", "intro.never-fill"}

    def length(self, name, absent=None):
        return _ORIGINAL["length"](self, name) if name in self.names else 0

    def chunk_bytes(self, tensor, chunk):
        name = self.shard_name(chunk)
        there = self.directory.length(name)
        if chunk.offset + chunk.length <= there:
            return _ORIGINAL["chunk"](self, tensor, chunk)
        return bytes(chunk.length)
    files.Directory.length, checkpoint.Checkpoint.chunk_bytes = length, chunk_bytes


def cleans_floats(_off):
    """Makes all NaNs one NaN and all zeros positive, and every byte of BOOL 0 or 1."""
    forms_of = {"F32": "<I", "BF16": "<H", "F16": "<H", "F64": "<Q"}
    exponents = {"F32": (0x7F800000, 0x7FC00000), "BF16": (0x7F80, 0x7FC0), "F16": (0x7C00, 0x7E00),
                 "F64": (0x7FF0000000000000, 0x7FF8000000000000)}

    def read(self, tensor, *box):
        data, dtype = bytes(_ORIGINAL["whole"](self, tensor, *box)), tensor.raw["dtype"]
        if dtype == "BOOL":
            return bytes(byte != 0 for byte in data)
        if dtype not in forms_of:
            return data
        infinity, nan = exponents[dtype]
        out = []
        for (word,) in struct.iter_unpack(forms_of[dtype], data):
            magnitude = word & (2 * infinity - 1 | infinity) & ((1 << 8 * struct.calcsize(forms_of[dtype]) - 1) - 1)
            out.append(struct.pack(forms_of[dtype], nan if magnitude > infinity else 0 if magnitude == 0 else word))
        return b"".join(out)
    checkpoint.Checkpoint.read = read


def refuses_others(_off):
    """Opens no directory with a file in it that is not named."""
    def open_checkpoint(path, report=checkpoint.refuse):
        opened = _ORIGINAL["open_checkpoint"](path, report)
        others = opened.directory.names - opened.files.keys()
        if others:
            raise Refusal("bad-format", "dir.others", f"{sorted(others)} are not named")
        return opened
    _everywhere("open_checkpoint", open_checkpoint)


def takes_run_others(_off):
    """Takes whatever is called like an attempt, links among it, for an attempt."""
    run._NAME = re.compile("[.]?step-([0-9]+)-([0-9a-fA-F]+).*")
    files.Directory.is_directory = lambda self, name: os.path.exists(os.path.join(self.path, name))


def folds_case(_off):
    """Opens `Manifest.json` for `manifest.json`."""
    def actual(self, name):
        return next((there for there in self.names if there.lower() == name.lower()), name)
    files.Directory.length = lambda self, name, *absent: _ORIGINAL["length"](self, actual(self, name), *absent)
    files.Directory.open = lambda self, name: _ORIGINAL["open"](self, actual(self, name))


def refuses_unknown_slots(_off):
    """Knows a fixed list of slots and refuses others."""
    def goes_with_role(role, slot, owner):
        _ORIGINAL["goes"](role, slot, owner)
        if slot and slot.partition(":")[0] not in _SLOTS:
            raise Refusal("bad-identity", "identity.unknown-slot", f"slot {slot!r}")
    _everywhere("goes_with_role", goes_with_role)


def drops_unknown_kinds(_off):
    """Loses records of kinds that it does not know."""
    _edited("everything", lambda said: said | {"records": [record for record in said["records"] if _known(record["kind"])]})


def sorts_values(_off):
    """Hands unknown records on with empty members left out."""
    def kept(record):
        if _known(record["kind"]):
            return record
        return record | {"value": {name: value for name, value in record["value"].items() if value not in (None, [], {})}}
    _edited("everything", lambda said: said | {"records": [kept(record) for record in said["records"]]})


def looks_into_unknown(_off):
    """Wants a value tree of records of kinds that it does not know."""
    def check(raw, topology):
        _ORIGINAL["check"](raw, topology)
        if not _known(raw["kind"]):
            values.record_value(raw["value"])
    records.check = check


def most_significant_first(_off):
    """Packs sub-byte elements most significant first."""
    def read(self, tensor, *box):
        data = _ORIGINAL["whole"](self, tensor, *box)
        if tensor.bits % 8 == 0:
            return data
        count = len(data) * 8 // tensor.bits
        text = "".join(f"{element:0{tensor.bits}b}" for element in region.spread(bytes(data) + b"\0", count, tensor.bits))
        return int(text.ljust(8 * len(data), "0"), 2).to_bytes(len(data), "big")
    checkpoint.Checkpoint.read = read


def ones_in_unused_bits(_off):
    """Leaves ones in the unused bits of what it returns."""
    def read(self, tensor, start=None, extent=None):
        data = bytearray(_ORIGINAL["whole"](self, tensor, start, extent))
        unused = -tensor.elements_of(tensor.shape if extent is None else extent) * tensor.bits % 8
        if unused and data:
            data[-1] |= 0xFF << (8 - unused) & 0xFF
        return data
    checkpoint.Checkpoint.read = read


def column_major(_off):
    """Gives matrices column by column."""
    def read(self, tensor, start=None, extent=None):
        data = bytes(_ORIGINAL["whole"](self, tensor, start, extent))
        shape, width = tensor.shape if extent is None else extent, tensor.bits // 8
        if len(shape) != 2 or tensor.bits % 8 or tensor.block is not None:
            return data
        rows, columns = shape
        return b"".join(data[(row * columns + column) * width:][:width] for column in range(columns) for row in range(rows))
    checkpoint.Checkpoint.read = read


def alias_by_name(_off):
    """Takes the first tensor of the target's name for the target of an alias."""
    def find(self, key):
        if key in self.aliases:
            name = self.aliases[key].raw["of"][2]
            return next(tensor for _, tensor in sorted(self.tensors.items()) if tensor.identity[2] == name)
        return _ORIGINAL["find"](self, key)
    checkpoint.Checkpoint.find = find


def alias_of_nothing(_off):
    """Gives an alias zeros, as if it had been made and not loaded."""
    def read(checkpoint_, identity, start, extent):
        dtype, data = region_of(checkpoint_, identity, start, extent)
        return dtype, bytes(len(data)) if canonical.text(identity) in checkpoint_.aliases else data
    region_of, content.region = content.region, read


def refuses_optional(_off):
    """Refuses an optional feature that it does not know."""
    def preamble(value, kind, *rule):
        _ORIGINAL["preamble"](value, kind, *rule)
        if value.get("features", {}).get("optional"):
            raise Refusal("unsupported-feature", "feature.optional", "an optional feature", pointer="/features/optional")
    metadata.preamble = preamble


def refuses_minor(_off):
    """Refuses every minor version but 0."""
    def version(value):
        _ORIGINAL["version"](value)
        if value != "1.0":
            raise Refusal("unsupported-version", "version.minor", f"version {value}")
    forms.version = version


def by_header(_off):
    """Looks for a whole tensor where the shard's header says."""
    def chunk_bytes(self, tensor, chunk):
        with self.directory.open(self.shard_name(chunk)) as file:
            size = int.from_bytes(file.read(0, 8), "little")
            header = json.loads(file.read(8, size))
            stated = header.get(tensor.identity[2])
            if stated is None:
                return _ORIGINAL["chunk"](self, tensor, chunk)
            begin, end = stated["data_offsets"]
            return file.read(8 + size + begin, end - begin)
    checkpoint.Checkpoint.chunk_bytes = chunk_bytes


def reads_all_first(_off):
    """Reads every tensor before it gives a region of one."""
    def region_after(checkpoint_, *asked):
        for tensor in checkpoint_.tensors.values():
            if tensor.block is None:
                checkpoint_.read(tensor)
        return region_of(checkpoint_, *asked)
    region_of, content.region = content.region, region_after


def latest_by_step(_off):
    """Takes the highest step for the latest, whatever the timeline."""
    _ordered(lambda timeline, step, attempt: (step, timeline, attempt))


def latest_by_name(_off):
    """Takes the oldest of several attempts of one timeline and step."""
    _ordered(lambda timeline, step, attempt: (timeline, step, [-ord(digit) for digit in attempt]))


def latest_by_attempt(_off):
    """Takes the attempt with the greatest random number of one timeline for the latest."""
    _ordered(lambda timeline, step, attempt: (timeline, attempt, step))


def latest_incomplete(_off):
    """Takes a committed checkpoint for the latest, whether its files are there or not."""
    run.check_files = lambda *_: None


def passes_over_errors(_off):
    """Takes an older checkpoint when it cannot read, or does not know, the newest."""
    def complete(*arguments):
        try:
            return _ORIGINAL["complete"](*arguments)
        except Refusal as refusal:
            raise Refusal("bad-format", refusal.rule, refusal.message) from None
    run._complete = complete


def forks_copy(_off):
    """Gives every new place the stream of the first old one."""
    def stream(self, first, record, fits):
        grade, reason, entry = streamed(self, first, record, fits)
        if grade == "fork":
            entry = entry | {"state": state.state_bytes(self.checkpoint, first["value"]).hex(), "next_raw": first["value"]["next_raw"]}
        return grade, reason, entry
    streamed, restore.Loader.stream = restore.Loader.stream, stream


def forks_alike(_off):
    """Forks all streams of a place to one and the same state."""
    seed = rng.fork_seed
    rng.fork_seed = lambda name, step, stream, coordinate: seed(name, step, "", coordinate)


def forks_without_step(_off):
    """Leaves the step out of what a fork is made of."""
    seed = rng.fork_seed
    rng.fork_seed = lambda name, step, stream, coordinate: seed(name, 0, stream, coordinate)


def refuses_unknown_streams(_off):
    """Opens no checkpoint with a stream of an algorithm that it does not know."""
    def check(raw, topology):
        _ORIGINAL["check"](raw, topology)
        if raw["kind"] == "rng" and raw["value"]["algorithm"] not in rng.ALGORITHMS:
            raise Refusal("bad-member", "rng.unknown", "an unknown algorithm", pointer="/value/algorithm")
    records.check = check


def grades_exact(_off):
    """Calls everything exact."""
    def one(self, first, record, fits):
        _ORIGINAL["one"](self, first, record, fits)
        for listed in self.answer.values():
            for said in listed:
                said["grade"] = "exact"
    restore.Loader.one = one


def no_canaries(off):
    """Restores without comparing any canary."""
    off |= {"rng.canary", "cursor.canary", "schedule.canary", "restore.canary"}


def shares_in_runs(_off):
    """Gives a rank a run of each batch, whatever the rule says."""
    def share(cursor, *more):
        partition = cursor["partition"] | {"rule": "contiguous"}
        return _ORIGINAL["share"](cursor | {"partition": partition}, *more)
    cursors.share = share


def shares_reversed(_off):
    """Counts ranks with the first axis innermost."""
    def share(cursor, tensors, sizes, place):
        partition = cursor["partition"] | {"axes": cursor["partition"]["axes"][::-1]}
        return _ORIGINAL["share"](cursor | {"partition": partition}, tensors, sizes, place)
    cursors.share = share


def rounds_positions(_off):
    """Moves a position back to the beginning of its batch."""
    def cursor(self, first, record, fits):
        grade, reason, entry = _ORIGINAL["cursor"](self, first, record, fits)
        batch = (record or first)["value"].get("partition", {}).get("batch")
        if entry["position"] is not None:
            entry = entry | {"position": entry["position"] // (batch or 10) * (batch or 10)}
        return grade, reason, entry
    restore.Loader.cursor = cursor


def makes_up_shares(off):
    """Shares what cannot be shared evenly, some way."""
    off |= {"cursor.share"}


# --- what goes with rules that are switched off


def _reads_short(_off):
    """Gives what there is of a range of a file."""
    files.File.read = lambda self, offset, size: os.pread(self.descriptor, size, offset)


def _follows_links(_off):
    """Opens whatever has the name."""
    def length(self, name, absent=("file-missing", "dir.present")):
        if name not in self.names:
            raise Refusal(absent[0], absent[1], "the file is not there", name)
        return os.stat(name, dir_fd=self.handle).st_size

    def opened(self, name):
        return files.File(os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=self.handle), name)
    files.Directory.length, files.Directory.open = length, opened


def _uncommitted(_off):
    """Takes the digest of whatever manifest is there for that of the commit file."""
    def length(self, name, *absent):
        return 80 if name == "waystation.commit" and name not in self.names else _ORIGINAL["length"](self, name, *absent)

    def read(self, name):
        if name == "waystation.commit" and name not in self.names:
            return f"{self.sha256('manifest.json')}  manifest.json\n".encode()
        return whole(self, name)
    whole, files.Directory.read, files.Directory.length = files.Directory.read, read, length


def _any_json(off):
    """Reads what a lax parser reads where the strict one refuses for a rule that is switched off."""
    watched = {rule for rule in off if rule.startswith("json.")}
    off -= watched

    def parse(data):
        try:
            return _ORIGINAL["parse"](data)
        except Refusal as refusal:
            if refusal.rule not in watched:
                raise
            text = data.decode("utf-8-sig", "replace").replace("\ufffd", "?")
            value, _ = json.JSONDecoder(parse_float=lambda digits: int(float(digits)), strict=False).raw_decode(text.lstrip())
            return value
    canonical.parse = parse


def _any_form(off):
    """Takes a record whatever the form of its value, where the rule of that form is switched off.

    Within a value the reader may name a rule of JSON members, of types or of limits where another names that of the form.
    """
    free = {"json.types", "json.unknown-member", "limit.value"}

    def check(raw, topology):
        try:
            _ORIGINAL["check"](raw, topology)
        except Refusal as refusal:
            mine = {f"{raw['kind']}.form"} | ({"order.form"} if "/order" in (refusal.pointer or "") else set())
            if refusal.rule not in free or not mine & off:
                raise
    records.check = check


# --- how modules are changed


def _known(kind):
    return kind == "cursor" or kind in records._KINDS


def _everywhere(name, made):
    """Puts a function in the place of another in all modules that took it by name."""
    old = getattr(checkpoint, name, None) or getattr(forms, name)
    for module in (checkpoint, forms, entries, content, metadata):
        if getattr(module, name, None) is old:
            setattr(module, name, made)
    import adapter
    if getattr(adapter, name, None) is old:
        setattr(adapter, name, made)


def _edited(name, edit):
    """Changes what the function of a name in `content` gives."""
    setattr(content, name, lambda *arguments: edit(_ORIGINAL[name](*arguments)))


def _ordered(key):
    """Another order of attempts; `key` is given timeline, step and attempt."""
    age = run._age
    run._age = lambda matched: key(*age(matched))


def refuses_links(_off):
    """Refuses a file that has a second name."""
    def length(self, name, *absent):
        if name in self.names and os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_nlink > 1:
            raise Refusal("not-regular", "dir.links", "a file with two names", name)
        return _ORIGINAL["length"](self, name, *absent)
    files.Directory.length = length


def answers_last(_off):
    """Answers with the last breach that it meets, not with the first."""
    def open_checkpoint(path_or_directory, report=checkpoint.refuse):
        if report is not checkpoint.refuse:
            return _ORIGINAL["open_checkpoint"](path_or_directory, report)
        met = []
        opened = _ORIGINAL["open_checkpoint"](path_or_directory, met.append)
        if met:
            raise met[-1]
        return opened
    _everywhere("open_checkpoint", open_checkpoint)


def takes_memory(off):
    """Takes the memory that metadata states for a file before it looks at the file."""
    off |= {"limit.value", "derive.sizes", "dir.length"}
    measured = checkpoint._length

    def length(opened, name):
        stated = opened.files[name]
        if stated is not None:
            # Written to, or the kernel would lend it without having it.
            bytearray(b"\1") * stated
        return measured(opened, name)
    checkpoint._length = length


def casts_moments(_off):
    """Rounds what an optimizer holds in F32 to the precision of BF16."""
    def read(self, tensor, *box):
        data = bytearray(_ORIGINAL["whole"](self, tensor, *box))
        if tensor.raw["role"] == "optimizer" and tensor.raw["dtype"] == "F32":
            for low in range(0, len(data), 4):
                data[low:low + 2] = bytes(2)
        return bytes(data)
    checkpoint.Checkpoint.read = read


def leaves_out_uncaptured(_off):
    """Says nothing of what was not captured."""
    def one(self, first, record, fits):
        if first["kind"] != "uncaptured":
            _ORIGINAL["one"](self, first, record, fits)
    restore.Loader.one = one


def takes_names(off):
    """Takes a member that names a file as if the format had one."""
    off.add("json.unknown-member")


def takes_paths(off):
    """Takes a member that gives a path as if the format had one."""
    off.add("json.unknown-member")


def follows_links(off):
    """Follows links beneath the checkpoint."""
    off.add("dir.regular")
    COMPANIONS["dir.regular"](off)


def makes_directories(_off):
    """Makes a directory in what it writes, as if for attachments."""
    from waystation_writer import save as module
    plain = module.save

    def save(out, value):
        plain(out, value)
        os.mkdir(os.path.join(out, "attachments"))
    module.save = save


COMPANIONS = {
    "commit.absent": _uncommitted, "dir.length": _reads_short, "dir.regular": _follows_links,
    **dict.fromkeys(("json.canonical", "json.encoding", "json.one-value", "json.members", "json.ascii-members", "json.integers",
                     "json.strings", "json.depth", "json.literals"), _any_json),
    **dict.fromkeys(("progress.form", "optimizer.form", "ema.form", "schedule.form", "scaler.form", "uncaptured.form", "value.form",
                     "rng.form", "cursor.form", "order.form"), _any_form),
}

# name -> (the rule that is broken, how)
BY_NAME = {made.__name__.replace("_", "-"): (rule, made) for rule, made in (
    ("intro.never-fill", fills_gaps),
    ("dir.links", refuses_links),
    ("open.order", answers_last),
    ("open.memory", takes_memory),
    ("optimizer.no-cast", casts_moments),
    ("restore.report", leaves_out_uncaptured),
    ("security.no-paths", takes_paths),
    ("dir.computed-names", takes_names),
    ("security.beneath", follows_links),
    ("intro.bytes", cleans_floats),
    ("dir.others", refuses_others),
    ("dir.run-others", takes_run_others),
    ("dir.case", folds_case),
    ("identity.unknown-slot", refuses_unknown_slots),
    ("record.unknown-kind", drops_unknown_kinds),
    ("record.unknown-kind", sorts_values),
    ("record.unknown-member", looks_into_unknown),
    ("read.packed", most_significant_first),
    ("read.packed", ones_in_unused_bits),
    ("read.packed", column_major),
    ("read.alias", alias_by_name),
    ("read.alias", alias_of_nothing),
    ("read.subset", reads_all_first),
    ("shard.no-parse", by_header),
    ("feature.optional", refuses_optional),
    ("version.minor", refuses_minor),
    ("run.latest", latest_by_step),
    ("run.latest", latest_by_name),
    ("run.latest", latest_by_attempt),
    ("run.latest", latest_incomplete),
    ("run.errors", passes_over_errors),
    ("rng.fork", forks_copy),
    ("rng.fork", forks_alike),
    ("rng.fork", forks_without_step),
    ("rng.unknown", refuses_unknown_streams),
    ("restore.grade", grades_exact),
    ("restore.canary", no_canaries),
    ("restore.never-round", rounds_positions),
    ("restore.never-round", makes_up_shares),
    ("cursor.share", shares_in_runs),
    ("cursor.share", shares_reversed),
    ("dir.flat", makes_directories),
)}
