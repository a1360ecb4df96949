"""Opening a checkpoint in the order of 12.1, and reading tensors from it (12.2).

`open_checkpoint` hands every breach to `report`. A reader's `report` raises; a validator's keeps the breach and lets it go on.
"""

import hashlib
import re
from math import prod

from . import canonical, crc32c, entries, metadata, region
from .files import Directory
from .forms import bad
from .refusal import Refusal, attempt
from .registry import LIMITS

_COMMIT = re.compile(rb"([0-9a-f]{64})  manifest\.json\n")


class Checkpoint:
    """An open checkpoint: its manifest, the names of its files, and the entries of those pages that are sound."""

    def __init__(self, directory, manifest, digest):
        self.directory = directory
        self.manifest = manifest
        self.digest = digest
        self.session = entries.Session.of_manifest(manifest)
        self.files = named_files(manifest)
        self.missing = set()
        self.tensors = {}
        self.aliases = {}
        self.records = {}
        self.places = {}
        self.chunk_count = 0
        self.pages_whole = True

    def find(self, key):
        """The tensor of an identity key, or that which an alias of this key names."""
        if key in self.aliases:
            alias = self.aliases[key]
            tensor = self.tensors.get(alias.target)
            entries.check_target(alias, tensor)
            return tensor
        tensor = self.tensors.get(key)
        if tensor is None:
            raise Refusal("not-found", "open.find", f"there is no tensor or alias {key}")
        return tensor

    def shard_name(self, chunk):
        part = self.manifest["parts"][chunk.writer]
        return shard_name(part["shards"][chunk.shard]["class"], chunk.writer, part["inc"], chunk.shard)

    def chunk_bytes(self, tensor, chunk):
        """The bytes of a chunk, checked against its CRC."""
        name = self.shard_name(chunk)
        with self.directory.open(name) as file:
            data = file.read(chunk.offset, chunk.length)
        if crc32c.crc32c(data) != chunk.crc:
            raise Refusal("crc-mismatch", "integrity.chunk", f"chunk {chunk.at} of {tensor.key}", name, chunk.offset)
        return data

    def read(self, tensor, start=None, extent=None):
        """The elements of a region, packed as one chunk; of the whole tensor when no region is given."""
        start = [0] * len(tensor.shape) if start is None else start
        extent = list(tensor.shape) if extent is None else extent
        if len(start) != len(tensor.shape) or len(extent) != len(tensor.shape):
            raise Refusal("bad-region", "read.region", f"rank {len(start)}, {len(extent)} for a tensor of {len(tensor.shape)} axes")
        if any(a < 0 or e < 0 or a + e > size for a, e, size in zip(start, extent, tensor.shape)):
            raise Refusal("bad-region", "read.region", f"region {start}, {extent} leaves the shape {tensor.shape}")
        if 0 in extent:
            return b""
        if tensor.block is not None:
            return self._read_flat(tensor, start, extent)
        width = region.width_of(tensor.bits)
        target = bytearray(prod(extent) * width)
        for chunk in tensor.chunks:
            shared = region.meet(chunk.at, chunk.extent, start, extent)
            if shared is not None:
                source = region.spread(self.chunk_bytes(tensor, chunk), prod(chunk.extent), tensor.bits)
                region.copy_box(target, start, extent, source, chunk.at, chunk.extent, *shared, width)
        return region.pack(target, tensor.bits)

    def _read_flat(self, tensor, start, extent):
        first, end = self._blocks(tensor, start, extent)
        width = region.width_of(tensor.bits)
        target = bytearray(-(-(end - first) // tensor.block) * width)
        for chunk in tensor.chunks:
            if region.meet(chunk.at, chunk.extent, start, extent) is None:
                continue
            begin, stop = self._blocks(tensor, chunk.at, chunk.extent)
            source = region.spread(self.chunk_bytes(tensor, chunk), tensor.elements_of(chunk.extent), tensor.bits)
            low, high = max(begin, first), min(stop, end)
            count = -(-(high - low) // tensor.block) * width
            to, come = (low - first) // tensor.block * width, (low - begin) // tensor.block * width
            target[to:to + count] = source[come:come + count]
        return region.pack(target, tensor.bits)

    @staticmethod
    def _blocks(tensor, at, extent):
        run = region.run_of(tensor.shape, at, extent)
        if run is None or run[0] % tensor.block or (run[1] % tensor.block and run[1] != prod(tensor.shape)):
            raise Refusal("block-boundary", "companion.region", f"{at}, {extent} of {tensor.key} is not a run of whole blocks")
        return run


# --- names


def shard_name(shard_class, writer, inc, position):
    return f"{shard_class}-{writer:05d}-{inc}-{position:05d}.safetensors"


def attachment_name(writer, inc, position):
    return f"attachment-{writer:05d}-{inc}-{position:05d}"


def part_name(writer, sha256):
    return f"part-{writer:05d}-{sha256[:16]}.json"


def page_name(kind, number):
    return f"{kind}-{number:05d}.json"


def named_files(manifest):
    """The name of every named file, with its length; None where the metadata states none."""
    files = {"waystation.commit": 80, "manifest.json": None}
    for writer, part in enumerate(manifest["parts"]):
        files[part_name(writer, part["sha256"])] = part["bytes"]
        for position, shard in enumerate(part["shards"]):
            files[shard_name(shard["class"], writer, part["inc"], position)] = shard["bytes"]
        for position, attachment in enumerate(part["attachments"]):
            files[attachment_name(writer, part["inc"], position)] = attachment["bytes"]
    for kind in ("tensors", "records"):
        for number, page in enumerate(manifest[kind]):
            files[page_name(kind, number)] = page["bytes"]
    return files


# --- opening


def refuse(refusal):
    """The `report` of a reader."""
    raise refusal


def check_committed(directory):
    """That it is a checkpoint, and nobody removes it."""
    if "deleted" in directory.names:
        raise Refusal("deleted", "run.deleted", "the checkpoint is being removed", "deleted")
    if "waystation.commit" not in directory.names:
        raise Refusal("not-committed", "commit.absent", "the file is not there", "waystation.commit")


def open_manifest(directory):
    """Steps 1 to 4 of 12.1. What breaks here leaves nothing to go on with."""
    check_committed(directory)
    if directory.length("waystation.commit", ("not-committed", "commit.absent")) != 80:
        raise Refusal("commit-grammar", "commit.file", "not 80 bytes", "waystation.commit")
    commit = _COMMIT.fullmatch(directory.read("waystation.commit"))
    if not commit:
        raise Refusal("commit-grammar", "commit.file", "not a digest, two spaces, manifest.json and a newline", "waystation.commit")
    if directory.length("manifest.json") > LIMITS["manifest-bytes"]:
        raise Refusal("limit", "derive.sizes", "longer than manifest-bytes", "manifest.json")
    data = directory.read("manifest.json")
    if hashlib.sha256(data).hexdigest() != commit[1].decode():
        raise Refusal("digest-mismatch", "integrity.manifest", "not the SHA-256 that the commit file names", "manifest.json")
    try:
        manifest = canonical.parse(data)
        metadata.preamble(manifest, "manifest")
        metadata.manifest(manifest)
    except Refusal as refusal:
        raise refusal.at(file="manifest.json") from None
    return Checkpoint(directory, manifest, commit[1].decode())


def check_files(checkpoint, report):
    """Step 5: kind and length of every named file."""
    for name in sorted(checkpoint.files):
        if attempt(report, _length, checkpoint, name) is None:
            checkpoint.missing.add(name)


def _length(checkpoint, name):
    length, stated = checkpoint.directory.length(name), checkpoint.files[name]
    if stated not in (None, length):
        raise Refusal("length-mismatch", "dir.length", f"{length} bytes, {stated} stated", name)
    return length


def open_checkpoint(path_or_directory, report=refuse):
    """All of 12.1, with every page. Only steps 1 to 4 raise when `report` does not."""
    directory = path_or_directory if isinstance(path_or_directory, Directory) else Directory(path_or_directory)
    checkpoint = open_manifest(directory)
    check_files(checkpoint, report)
    for kind in ("tensors", "records"):
        for number in range(len(checkpoint.manifest[kind])):
            name = page_name(kind, number)
            if name in checkpoint.missing or attempt(report, _page, checkpoint, kind, number, file=name) is None:
                checkpoint.pages_whole = False
    return checkpoint


def _page(checkpoint, kind, number):
    """Checks a page and adds its entries to the checkpoint, all or none."""
    name, listed = page_name(kind, number), checkpoint.manifest[kind]
    data = checkpoint.directory.read(name)
    if hashlib.sha256(data).hexdigest() != listed[number]["sha256"]:
        raise Refusal("digest-mismatch", "page.digest", "not the SHA-256 that the manifest states")
    value = canonical.parse(data)
    metadata.page(value, kind, number, checkpoint.manifest["version"])
    listed_in = "entries" if kind == "tensors" else "records"
    first, *after = (canonical.text(page["first"]) for page in listed[number:number + 2])
    found = entries.check_list(listed_in, value[listed_in], checkpoint.session, "page.order", first)
    if not found:
        raise bad("a page without entries does not begin with its first key", "page.order", "bad-order")
    if after and max(found) >= after[0]:
        raise bad("the last key is not below the first of the next page", "page.order", "bad-order")
    for position, (key, entry) in enumerate(found.items()):
        checkpoint.places[key] = name, f"/{listed_in}/{position}"
        if kind == "records":
            checkpoint.records[key] = entry
        elif isinstance(entry, entries.Alias):
            entry.file = name
            checkpoint.aliases[key] = entry
        else:
            checkpoint.tensors[key] = entry
            checkpoint.chunk_count += len(entry.chunks)
    for limit, total in (("tensors", len(checkpoint.tensors) + len(checkpoint.aliases)), ("records", len(checkpoint.records)),
                         ("chunks", checkpoint.chunk_count)):
        if total > LIMITS[limit]:
            raise bad(f"more than {limit}", "limit.value", "limit")
    return found
