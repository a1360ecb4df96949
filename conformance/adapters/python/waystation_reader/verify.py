"""Checking everything (12.3): what a validator reports, in order."""

import hashlib
import re

from . import canonical, crc32c, entries, metadata, shard, state
from .checkpoint import attachment_name, open_checkpoint, page_name, part_name, shard_name
from .derive import Part, derive
from .files import Directory
from .forms import bad
from .refusal import Refusal, attempt

_PIN = re.compile("pin-[A-Za-z0-9._-]{1,64}")


def verify(path):
    """(findings, notes): every breach that can be seen, and what stands beside the named files."""
    findings, notes = [], []
    try:
        with Directory(path) as directory:
            notes = _notes(directory, {"waystation.commit", "manifest.json"})
            checkpoint = open_checkpoint(directory, findings.append)
            notes = _notes(directory, checkpoint.files.keys())
            _Verifier(checkpoint, findings.append).run()
            if checkpoint.pages_whole:
                notes = state.check_all(checkpoint, findings.append) + notes
    except Refusal as refusal:
        findings.append(refusal)
    return findings, notes


class _Verifier:
    def __init__(self, checkpoint, report):
        self.checkpoint = checkpoint
        self.directory = checkpoint.directory
        self.manifest = checkpoint.manifest
        self.report = report
        self.parts = []

    def run(self):
        for alias in self.checkpoint.aliases.values():
            target = self.checkpoint.tensors.get(alias.target)
            # What stands in a page that cannot be read may be the target.
            if target is not None or self.checkpoint.pages_whole:
                attempt(self.report, entries.check_target, alias, target)
        for writer in range(len(self.manifest["parts"])):
            self.parts.append(self.attempt(part_name(writer, self.manifest["parts"][writer]["sha256"]), self.part, writer))
        placed = self.placed()
        layouts = self.layouts(placed)
        self.derive()
        data = []
        for writer, part in enumerate(self.manifest["parts"]):
            for position, attachment in enumerate(part["attachments"]):
                name = attachment_name(writer, part["inc"], position)
                self.attempt(name, self.attachment, name, attachment)
            for position, stated in enumerate(part["shards"]):
                data.append((shard_name(stated["class"], writer, part["inc"], position), writer, position))
        for name, writer, position in sorted(data):
            here = placed.get((writer, position), [])
            self.attempt(name, self.shard, name, here, layouts.get((writer, position)), *self.stated(writer, position))

    def attempt(self, name, check, *arguments):
        """Runs the check of a file that is there, and reports what it refuses."""
        return None if name in self.checkpoint.missing else attempt(self.report, check, *arguments, file=name)

    # parts

    def part(self, writer):
        stated = self.manifest["parts"][writer]
        name = part_name(writer, stated["sha256"])
        data = self.directory.read(name)
        if hashlib.sha256(data).hexdigest() != stated["sha256"]:
            raise Refusal("digest-mismatch", "integrity.part", "not the SHA-256 that the manifest states")
        value = canonical.parse(data)
        metadata.preamble(value, "part")
        metadata.part(value)
        session, own = entries.Session.of_part(value), value["writer"]
        found = entries.check_list("entries", value["entries"], session, "part.entries", writer=own)
        records = entries.check_list("records", value["records"], session, "part.records", writer=own)
        if own != writer:
            raise bad(f"writer {own} under the name of writer {writer}", "part.name", "bad-format").at(prefix="/writer")
        return Part(name, len(data), stated["sha256"], value, list(found.values()), records)

    # layout

    def placed(self):
        """(writer, shard) -> its (tensor, chunk) pairs by offset: from the part, or where that is lost from the pages."""
        placed = {}
        for entry in self.checkpoint.tensors.values():
            for chunk in entry.chunks:
                if self.parts[chunk.writer] is None:
                    placed.setdefault((chunk.writer, chunk.shard), []).append((entry, chunk))
        for part in self.parts:
            for entry in part.entries if part else ():
                for chunk in getattr(entry, "chunks", ()):
                    placed.setdefault((chunk.writer, chunk.shard), []).append((entry, chunk))
        for pairs in placed.values():
            pairs.sort(key=lambda pair: pair[1].offset)
        return placed

    def layouts(self, placed):
        """(writer, shard) -> the layout that its part gives, if it is the right one."""
        layouts = {}
        for writer, part in enumerate(self.parts):
            for position, stated in enumerate(part.value["shards"] if part else ()):
                pairs = placed.get((writer, position), [])
                layout = attempt(self.report, shard.check, stated, pairs, part.value["block_bytes"],
                                 file=part.file, prefix=f"/shards/{position}")
                if layout is not None:
                    layouts[writer, position] = layout
        return layouts

    def stated(self, writer, position):
        """What is stated of a shard, and B: by its part, or where that is lost or has no such shard by the manifest."""
        part = self.parts[writer]
        said = part.value if part and position < len(part.value["shards"]) else self.manifest["parts"][writer]
        return said["shards"][position], (part.value if part else self.manifest)["block_bytes"]

    # derive

    def derive(self):
        if None in self.parts:
            return
        derived = derive(self.parts, self.report)
        if derived is None:
            return
        manifest, tensor_pages, record_pages = derived
        for kind, pages in (("tensors", tensor_pages), ("records", record_pages)):
            listed = self.manifest[kind]
            for number in range(min(len(listed), len(pages))):
                # A page that has the digest that the manifest states has been read; its bytes follow from that digest.
                if hashlib.sha256(pages[number]).hexdigest() != listed[number]["sha256"]:
                    self.report(Refusal("derive-mismatch", "derive.function", "not what the parts derive", page_name(kind, number)))
            if len(listed) != len(pages):
                self.report(Refusal("derive-mismatch", "derive.function",
                                    f"{len(listed)} pages of {kind}, the parts derive {len(pages)}", "manifest.json"))
        there = canonical.dump(self.manifest)
        if there != manifest:
            offset = first_difference(there, manifest)
            self.report(Refusal("derive-mismatch", "derive.function", "not what the parts derive", "manifest.json", offset))

    # attachments and data

    def attachment(self, name, stated):
        if self.directory.sha256(name) != stated["sha256"]:
            raise Refusal("digest-mismatch", "attachment.digest", f"not the SHA-256 stated for {stated['path']}")

    def shard(self, name, placed, layout, stated, block_bytes):
        """Reports by offset what is wrong in a shard; without a layout only its chunks can be checked."""
        found = []
        with self.directory.open(name) as file:
            try:
                if file.size() != stated["bytes"]:
                    raise Refusal("length-mismatch", "dir.length", f"{file.size()} bytes, its part states {stated['bytes']}")
                if layout is not None:
                    header = file.read(0, len(layout.header))
                    if header != layout.header:
                        found.append(Refusal("header-mismatch", "shard.header", "not the header that the part gives",
                                             offset=first_difference(header, layout.header)))
                    found += self.pads(file, layout.pads)
                blocks = []
                for tensor, chunk in placed:
                    blocks += self.chunk(file, tensor, chunk, block_bytes, found)
                if stated["crc_table"] is not None:
                    found += self.table(file, stated["crc_table"], blocks)
            except Refusal as refusal:
                found.append(refusal)
        for refusal in sorted(found, key=lambda refusal: refusal.offset or 0):
            self.report(refusal.at(file=name))

    @staticmethod
    def pads(file, pads):
        for begin, end in pads:
            data = file.read(begin, end - begin)
            if data.count(0) != len(data):
                offset = begin + len(data) - len(data.lstrip(b"\0"))
                yield Refusal("nonzero-pad", "shard.pads", "a pad is not zero", offset=offset)

    @staticmethod
    def chunk(file, tensor, chunk, size, found):
        """Checks a chunk; gives [(table index, offset, CRC)] of its blocks where it is sound and longer than B."""
        blocks, total, last = [], 0, b""
        for offset in range(0, chunk.length, size):
            last = file.read(chunk.offset + offset, min(size, chunk.length - offset))
            total = crc32c.crc32c(last, total)
            blocks.append((chunk.offset + offset, crc32c.crc32c(last) if chunk.length > size else total))
        sound = total == chunk.crc
        if not sound:
            found.append(Refusal("crc-mismatch", "integrity.all", f"chunk {chunk.at} of {tensor.key}", offset=chunk.offset))
        unused = -(tensor.elements_of(chunk.extent) * tensor.bits) % 8
        if unused and last[-1] >> (8 - unused):
            found.append(Refusal("nonzero-pad", "tensor.unused-bits", f"chunk {chunk.at} of {tensor.key}",
                                 offset=chunk.offset + chunk.length - 1))
        if not sound or chunk.index is None:
            return []
        return [(chunk.index + number, *block) for number, block in enumerate(blocks)]

    @staticmethod
    def table(file, stated, blocks):
        data = file.read(stated["offset"], 4 * stated["count"])
        if crc32c.crc32c(data) != int(stated["crc32c"], 16):
            yield Refusal("crc-table-mismatch", "integrity.table", "not the CRC stated for the table", offset=stated["offset"])
            return
        for number, offset, crc in blocks:
            if int.from_bytes(data[4 * number:4 * number + 4], "little") != crc:
                yield Refusal("crc-table-mismatch", "integrity.blocks", f"not the CRC of the block at {offset}",
                              offset=stated["offset"] + 4 * number)
                return


def first_difference(one, other):
    """The offset of the first byte that differs; the length of the shorter when it is the other's beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _notes(directory, named):
    notes = []
    for name in sorted(directory.names - named):
        if name in ("deleted", "rejected") or _PIN.fullmatch(name):
            notes.append({"file": name, "note": "marker"})
        else:
            notes.append({"file": name, "note": "temporary" if name.startswith("tmp-") else "unnamed"})
    return notes
