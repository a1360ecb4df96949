"""A run: which checkpoint is the latest (11.4)."""

import re

from .checkpoint import check_committed, check_files, open_manifest, refuse
from .files import Directory
from .refusal import Refusal
from .registry import exit_status

_NAME = re.compile("step-([0-9]{12})-([0-9a-f]{16})")


def latest(path):
    """(checkpoint's name, manifest, [(name, why skipped)]); the answer and what was passed over before it."""
    skipped = []
    with Directory(path) as run:
        found = [matched for matched in map(_NAME.fullmatch, run.names) if matched and run.is_directory(matched[0])]
        found.sort(key=_age, reverse=True)
        for matched in found:
            try:
                return matched[0], _complete(run, matched), skipped
            except Refusal as refusal:
                # Without knowing whether this one is complete, an older one must not be the answer.
                if exit_status(refusal.code) == 3 or refusal.code.startswith("unsupported-"):
                    raise refusal.at(file=matched[0]) from None
                skipped.append((matched[0], refusal))
    if all(why.code in ("not-committed", "deleted") for _, why in skipped):
        refusal = Refusal("no-checkpoint", "run.latest", "the run holds no complete checkpoint", path)
    else:
        refusal = Refusal("none-resumable", "run.none", "the run holds checkpoints, and none can be resumed from", path)
    refusal.skipped = skipped
    raise refusal


def _age(matched):
    """Timeline, step, attempt: what is the greatest is the latest."""
    return int(matched[2][:8], 16), int(matched[1]), matched[2]


def _complete(run, matched):
    """The manifest of an attempt that is complete, not rejected, and named as its manifest says."""
    with Directory(matched[0], run) as directory:
        check_committed(directory)
        if "rejected" in directory.names:
            raise Refusal("rejected", "run.rejected", "the checkpoint must not be resumed from", "rejected")
        checkpoint = open_manifest(directory)
        check_files(checkpoint, refuse)
        manifest = checkpoint.manifest
        if (manifest["step"], manifest["attempt"]) != (int(matched[1]), matched[2]):
            raise Refusal("name-disagrees", "dir.attempt-name", "the manifest gives another step or attempt")
        return manifest
