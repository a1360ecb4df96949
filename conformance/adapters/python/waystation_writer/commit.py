"""Committing an attempt from the parts that lie in it (11.3)."""

import hashlib
import re

from waystation_reader import canonical, entries, metadata, shard
from waystation_reader.checkpoint import attachment_name, page_name, refuse, shard_name
from waystation_reader.derive import Part, derive
from waystation_reader.forms import bad
from waystation_reader.refusal import Refusal
from waystation_reader.registry import LIMITS

_PART = re.compile("part-([0-9]{5,})-([0-9a-f]{16})\\.json")


def commit(attempt, timeline):
    """Gives the attempt its pages, manifest and commit file, in this order, each when what it names lasts."""
    names = attempt.names()
    attempt.directory.names = names
    parts = {}
    for matched in sorted(filter(None, map(_PART.fullmatch, names)), key=lambda matched: matched[0]):
        try:
            part = _part(attempt.directory, matched)
        except Refusal as refusal:
            raise refusal.at(file=matched[0]) from None
        if part.value["writer"] in parts:
            raise Refusal("duplicate-writer", "part.one-per-writer", f"two parts of writer {part.value['writer']}", matched[0])
        parts[part.value["writer"]] = part
    writers = parts[min(parts)].value["writers"] if parts else 1
    missing = [writer for writer in range(writers) if writer not in parts]
    if missing:
        raise Refusal("writer-missing", "part.all-writers", f"no part of writers {missing}")
    manifest, tensors, records = derive([parts[writer] for writer in range(writers)], refuse)
    if "deleted" in names:
        raise Refusal("deleted", "run.deleted", "the attempt is being removed", "deleted")
    for kind, pages in (("tensors", tensors), ("records", records)):
        for number, page in enumerate(pages):
            attempt.put(page_name(kind, number), page)
    attempt.put("manifest.json", manifest)
    attempt.sync()
    attempt.fence(timeline)
    attempt.put("waystation.commit", f"{hashlib.sha256(manifest).hexdigest()}  manifest.json\n".encode())
    attempt.sync()
    attempt.sync_run()
    names = attempt.names()
    if "deleted" in names or not any(map(_PART.fullmatch, names)):
        raise Refusal("deleted", "commit.done", "a keeper has been at work while this was committed", "deleted")


def _part(directory, matched):
    """A part that obeys every rule that needs no data, and whose files are there."""
    if directory.length(matched[0]) > LIMITS["part-bytes"]:
        raise Refusal("limit", "derive.sizes", "longer than part-bytes")
    data = directory.read(matched[0])
    digest = hashlib.sha256(data).hexdigest()
    value = canonical.parse(data)
    metadata.preamble(value, "part")
    metadata.part(value)
    session, writer = entries.Session.of_part(value), value["writer"]
    found = entries.check_list("entries", value["entries"], session, "part.entries", writer=writer)
    records = entries.check_list("records", value["records"], session, "part.records", writer=writer)
    if (f"{writer:05d}", digest[:16]) != matched.groups():
        raise bad("not the name of this part", "part.name", "bad-format")
    for position, stated in enumerate(value["shards"]):
        placed = [(entry, chunk) for entry in found.values() for chunk in getattr(entry, "chunks", ()) if chunk.shard == position]
        shard.check(stated, sorted(placed, key=lambda pair: pair[1].offset), value["block_bytes"])
        _there(directory, shard_name(stated["class"], writer, value["inc"], position), stated["bytes"])
    for position, stated in enumerate(value["attachments"]):
        _there(directory, attachment_name(writer, value["inc"], position), stated["bytes"])
    return Part(matched[0], len(data), digest, value, list(found.values()), records)


def _there(directory, name, size):
    if directory.length(name) != size:
        raise Refusal("length-mismatch", "dir.length", f"not the {size} bytes that its part states", name)
