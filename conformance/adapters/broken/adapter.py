#!/usr/bin/env python3
"""Adapters that are wrong in the ways in which real readers and writers of other formats have been wrong. `adapter.py NAME` is one; `adapter.py --list`
names them. None may pass the suite: each is to fail a case.

They are the Python reader and writer with some checks switched off or a function replaced, through the switches that lie beside it.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import mutation

OFF = set()


def ignores_checksums():
    """Damage on disk becomes weights: readers that check no sum, or only when asked, load what a bit flip left."""
    OFF.update({"integrity.chunk", "integrity.all", "integrity.manifest", "integrity.part", "integrity.table", "integrity.blocks",
                "page.digest", "attachment.digest"})


def takes_last_duplicate():
    """Two readers see two checkpoints in one file: lax JSON parsers take the last of two members of one name, others the first."""
    OFF.update({"json.members", "json.canonical"})
    import mutations
    mutations.COMPANIONS["json.members"](OFF)


def fills_gaps():
    """A rank's lost shard becomes zeros: loaders that allocate first and copy what they find say nothing of the rest."""
    import mutations
    mutations.fills_gaps(OFF)


def follows_links():
    """A downloaded checkpoint reads or overwrites files elsewhere: archives and caches with links that loaders followed."""
    OFF.add("dir.regular")
    import mutations
    mutations.COMPANIONS["dir.regular"](OFF)


def follows_dots():
    """A name such as `../../etc/passwd` in metadata leaves the directory: loaders that join names from an index to a path."""
    OFF.update({"attachment.path", "json.types"})
    from waystation_reader import checkpoint, content, files
    original = files.Directory.sha256

    def sha256(self, name):
        for writer, part in enumerate(self.manifest["parts"]):
            for position, stated in enumerate(part["attachments"]):
                there = os.path.join(self.path, stated["path"])
                if ".." in stated["path"] and name == checkpoint.attachment_name(writer, part["inc"], position):
                    with open(there, "rb") as file:
                        return hashlib.sha256(file.read()).hexdigest()
        return original(self, name)

    def everything(opened):
        opened.directory.manifest = opened.manifest
        return whole(opened)
    files.Directory.sha256, whole, content.everything = sha256, content.everything, everything


def trusts_lengths():
    """A header of 100 bytes takes all memory: loaders that allocate what metadata states before they look at the file."""
    OFF.update({"limit.value", "derive.sizes", "dir.length", "chunk.shard", "part.table"})
    from waystation_reader import checkpoint, files

    def read(self, offset, size):
        buffer = bytearray(size)
        there = os.pread(self.descriptor, size, offset)
        buffer[:len(there)] = there
        return bytes(buffer)

    def length(opened, name):
        stated = opened.files[name]
        if stated is not None:
            # Written to, or the kernel would lend it without having it.
            bytearray(b"\1") * stated
        return measured(opened, name)
    measured, checkpoint._length, files.File.read = checkpoint._length, length, read


def takes_uncommitted():
    """A job that died while it saved resumes from half a checkpoint: loaders that take the newest directory for the newest checkpoint."""
    OFF.update({"commit.absent", "commit.file", "integrity.manifest"})
    import mutations
    mutations.COMPANIONS["commit.absent"](OFF)


def ignores_features():
    """A checkpoint of a later format is read as if it were of this one: readers that skip what they do not know."""
    OFF.update({"feature.required", "version.major", "json.unknown-member"})


def ignores_markers():
    """A run goes on from the checkpoint that diverged: tools that mark one as bad, and loaders that do not look."""
    OFF.update({"run.rejected", "run.deleted"})


def swaps_tensors():
    """Two weights of one shape change places: loaders that pair tensors by position instead of by name."""
    from waystation_reader import checkpoint
    original = checkpoint.Checkpoint.read

    def read(self, tensor, *box):
        alike = [other for _, other in sorted(self.tensors.items())
                 if (other.shape, other.bits, other.block) == (tensor.shape, tensor.bits, tensor.block)]
        return original(self, alike[(alike.index(tensor) + 1) % len(alike)], *box)
    checkpoint.Checkpoint.read = read


def never_commits():
    """A save that reported success is gone after a restart: writers that write all but what makes it a checkpoint."""
    from waystation_writer.attempt import Attempt
    original = Attempt.put

    def put(self, name, data):
        if name != "waystation.commit":
            original(self, name, data)
    Attempt.put = put


# What has nothing to do with a reader's rules: a function of the request and of the sound answer.


def crashes(_request, _answer):
    """A file takes the trainer down: native parsers that fault on what they did not expect."""
    sys.stdout.write('{"id":1,"ok":{"run":')
    sys.stdout.flush()
    os.abort()


def hangs(_request, _answer):
    """A trainer waits for ever: readers that open a pipe, or follow what leads to itself."""
    while True:
        time.sleep(3600)


def says_ok(request, _answer):
    """Everything is fine: tools that say so when they have looked at nothing."""
    return {"id": request["id"], "ok": {}}


def refuses_everything(request, _answer):
    """Nothing is ever loaded: a reader so strict that no checkpoint pleases it, which passes every test of malformed files."""
    return {"id": request["id"], "error": {"code": "bad-format", "message": "no"}}


# Writers: the request is another one by the time that the sound writer sees it.


def forgets_parent(recipe):
    """A run's history cannot be followed: writers that know nothing of what the job resumed from, and say so."""
    recipe["parent"] = None


def forgets_topology(recipe):
    """A restore cuts state for a grid that never was: writers that state as many processes as there are, and no axes."""
    recipe["topology"] = [["rank", len(recipe["writers"])]]


def changes_block(recipe):
    """Tables have other sums than the plan says: writers with a size of block of their own."""
    recipe["block_bytes"] = 8192


def writes_stale_bytes(recipe):
    """The weights of the step before are saved as those of this one: writers that keep a buffer and do not fill it anew."""
    for tensor in recipe["tensors"]:
        if "seed" in tensor["data"]:
            tensor["data"]["seed"] += 1


def loses_records(recipe):
    """A run goes on with fresh state of what was not saved: writers that drop what they have no form for."""
    for writer in recipe["writers"]:
        writer["records"] = [record for record in writer.get("records", []) if record["kind"] == "progress"]


READERS = (ignores_checksums, takes_last_duplicate, fills_gaps, follows_links, follows_dots, trusts_lengths, takes_uncommitted,
           ignores_features, ignores_markers, swaps_tensors, never_commits)
WRITERS = (forgets_parent, forgets_topology, changes_block, writes_stale_bytes, loses_records)
ANSWERS = (crashes, hangs, says_ok, refuses_everything)


def main(words):
    named = {made.__name__.replace("_", "-"): made for made in (*READERS, *WRITERS, *ANSWERS)}
    if words == ["--list"]:
        for name, made in named.items():
            print(f"{name}\t{made.__doc__}")
        return 0
    if len(words) != 1 or words[0] not in named:
        print(f"{__doc__}\nNAME is one of: {' '.join(named)}", file=sys.stderr)
        return 2
    mutation.install(OFF)
    import adapter
    import without
    made = named[words[0]]
    answer = without.guarded(adapter)
    sound = answer
    if made in READERS:
        made()
    elif made in WRITERS:
        def answer(line, name):
            request = json.loads(line)
            if request.get("op") == "write":
                made(request["recipe"])
            return sound(json.dumps(request), name)
    else:
        def answer(line, name):
            request = json.loads(line)
            return sound(line, name) if request.get("op") == "hello" else made(request, None)
    adapter.main(f"broken-{words[0]}", answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
