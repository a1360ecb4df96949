"""Writing a recipe's checkpoint: each writer's shards, attachments and part, and then the commit (chapters 6, 7, 11).

All writers are this process, one after another. The recipe gives the attempt, so no timeline is claimed: that was its job's
business. A recipe stands in one line, so shards are not cut at shard-target-bytes.
"""

import hashlib
import secrets

from waystation_reader import canonical, crc32c, entries, metadata, shard
from waystation_reader.checkpoint import attachment_name, part_name, shard_name
from waystation_reader.registry import LIMITS, ROLES

from . import recipe as recipes
from .attempt import Attempt
from .commit import commit

_PRODUCER = {"name": "waystation-python-adapter", "version": "1"}
_FILL = bytes(1 << 16)


def save(out, value):
    """A committed checkpoint at `out`."""
    recipe = recipes.Recipe(value)
    common = recipe.common | {
        "features": {"optional": [], "required": []}, "format": "waystation", "kind": "part", "version": "1.0",
        "writers": len(recipe.writers),
    }
    check_common(common)
    tensors = [recipes.whole(recipe.entry(number), common["topology"]) for number in range(len(value["tensors"]))]
    for writer in recipe.writers:
        for number, at, extent in writer.boxes:
            recipes.check_box(tensors[number], at, extent)
    with Attempt(out) as attempt:
        timeline = int(common["attempt"][:8], 16)
        attempt.fence(timeline)
        for number, writer in enumerate(recipe.writers):
            _Files(attempt, common, number).write(recipe, writer, tensors)
        commit(attempt, timeline)


def check_common(common):
    """That what all parts will say is sound, so that nothing is made of a recipe that is not."""
    empty = {"attachments": [], "entries": [], "extensions": {}, "inc": "0" * 16, "inventory": None, "omitted": [],
             "producer": _PRODUCER, "records": [], "shards": [], "writer": 0}
    metadata.preamble(common, "part")
    metadata.part(common | empty)


class _Files:
    """The files of one writer."""

    def __init__(self, attempt, common, number):
        self.attempt, self.common, self.number = attempt, common, number
        self.inc = secrets.token_hex(8)
        self.shards, self.entries = [], {}

    def write(self, recipe, writer, tensors):
        if self.number == 0:
            for number in recipe.unboxed:
                self.entry(tensors[number])
        for shard_class in ("model", "state"):
            boxes = [box for box in writer.boxes if ROLES[tensors[box[0]].identity[1]][0] == shard_class]
            if boxes:
                self.shard(shard_class, recipe, boxes, tensors)
        attachments = []
        for position, (path, data) in enumerate(writer.attachments):
            self.attempt.create(attachment_name(self.number, self.inc, position), [data])
            attachments.append({"bytes": len(data), "path": path, "sha256": hashlib.sha256(data).hexdigest()})
        self.attempt.sync()
        self.part(writer, attachments)

    def entry(self, tensor):
        return self.entries.setdefault(tensor.key, tensor.raw | {"chunks": []})

    def shard(self, shard_class, recipe, boxes, tensors):
        """One shard with all boxes of its class, large ones first."""
        placed, pieces, block_bytes = [], [], self.common["block_bytes"]
        for number, at, extent in boxes:
            tensor = tensors[number]
            data = recipes.cut(tensor, recipe.data(number, tensor), at, extent)
            chunk = entries.Chunk(self.number, len(self.shards), None, at, extent, crc32c.crc32c(data), None, len(data))
            placed.append((tensor, chunk, data))
        placed.sort(key=lambda one: one[1].length < LIMITS["large-chunk-bytes"])
        layout = shard.layout([(tensor, chunk) for tensor, chunk, _ in placed], block_bytes)
        table, end = b"", 0

        def stand(offset, data):
            nonlocal end
            while end < offset:
                pieces.append(_FILL[:offset - end])
                end += len(pieces[-1])
            pieces.append(data)
            end += len(data)

        stand(0, layout.header)
        for (tensor, chunk, data), offset, index in zip(placed, layout.offsets, layout.indices):
            stand(offset, data)
            self.entry(tensor)["chunks"].append(
                [len(self.shards), offset, chunk.at, chunk.extent, f"{chunk.crc:08x}"] + ([] if index is None else [index]))
            if index is not None:
                table += b"".join(crc32c.crc32c(data[at:at + block_bytes]).to_bytes(4, "little")
                                  for at in range(0, len(data), block_bytes))
        stated = None
        if layout.table is not None:
            stand(layout.table[0], table)
            stated = {"count": layout.table[1], "crc32c": f"{crc32c.crc32c(table):08x}", "offset": layout.table[0]}
        stand(layout.end, b"")
        self.attempt.create(shard_name(shard_class, self.number, self.inc, len(self.shards)), pieces)
        self.shards.append({"bytes": layout.end, "class": shard_class, "crc_table": stated})

    def part(self, writer, attachments):
        """The part, under its name when all that it names lasts."""
        for entry in self.entries.values():
            entry["chunks"].sort(key=lambda chunk: chunk[2])
        session = entries.Session(self.common["topology"], 0, {})
        keyed = list(self.entries.items()) + [(entries.alias(alias, session).key, alias) for alias in writer.aliases]
        records = [(entries.record(record, session), record) for record in writer.records]
        value = self.common | {
            "attachments": attachments,
            "entries": [entry for _, entry in sorted(keyed, key=lambda pair: pair[0])],
            "extensions": {},
            "inc": self.inc,
            "inventory": None,
            "omitted": writer.omitted,
            "producer": _PRODUCER,
            "records": [record for _, record in sorted(records, key=lambda pair: pair[0])],
            "shards": self.shards,
            "writer": self.number,
        }
        data = canonical.dump(value)
        name = part_name(self.number, hashlib.sha256(data).hexdigest())
        self.attempt.put(name, data)
        self.attempt.sync()
