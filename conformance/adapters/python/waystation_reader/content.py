"""The content of an open checkpoint: everything in it, or one region, read with every check of depth R and told by length and digest."""

import hashlib

from . import canonical, forms
from .checkpoint import attachment_name
from .refusal import Refusal

# Up to so many bytes stand beside their digest.
_SHOWN = 64


def everything(checkpoint):
    """The run, the step, and all tensors, aliases, attachments and records, each list in ascending order."""
    manifest = checkpoint.manifest
    tensors = [_whole(checkpoint, checkpoint.tensors[key]) for key in sorted(checkpoint.tensors)]
    attachments = []
    for writer, part in enumerate(manifest["parts"]):
        for position, stated in enumerate(part["attachments"]):
            name = attachment_name(writer, part["inc"], position)
            if checkpoint.directory.sha256(name) != stated["sha256"]:
                raise Refusal("digest-mismatch", "attachment.digest", "not the SHA-256 stated", name)
            attachments.append({member: stated[member] for member in ("path", "bytes", "sha256")})
    for key in sorted(checkpoint.aliases):
        checkpoint.find(key)
    return {
        "run": manifest["run"],
        "step": manifest["step"],
        "tensors": tensors,
        "aliases": [_named(alias.identity) | {"of": alias.raw["of"]} for _, alias in sorted(checkpoint.aliases.items())],
        "attachments": sorted(attachments, key=lambda attachment: attachment["path"]),
        "records": [record for _, record in sorted(checkpoint.records.items())],
    }


def _whole(checkpoint, tensor):
    try:
        answer = packed(checkpoint.read(tensor))
    except Refusal as refusal:
        if refusal.code != "block-boundary":
            raise
        answer = {"bytes": None, "sha256": None, "refused": refusal.code}
    return _named(tensor.identity) | {"dtype": tensor.raw["dtype"], "shape": tensor.shape} | answer


def _named(identity):
    return dict(zip(("component", "role", "name", "slot", "owner", "scope"), identity))


def packed(data):
    """Length and digest of elements, and themselves where they are few."""
    said = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return said | {"hex": bytes(data).hex()} if len(data) <= _SHOWN else said


def region(checkpoint, identity, start, extent):
    """dtype and bytes of one region of a tensor, or of what an alias names. What is no identity or region is `bad-argument`."""
    try:
        forms.tensor_identity(identity)
    except (Refusal, UnicodeEncodeError):
        raise Refusal("bad-argument", "open.find", "expected an identity: [component, role, name, slot, owner, scope]") from None
    for given in (start, extent):
        if not isinstance(given, list) or not all(type(number) is int for number in given):
            raise Refusal("bad-argument", "read.region", "expected a list of integers")
    tensor = checkpoint.find(canonical.text(identity))
    return tensor.raw["dtype"], checkpoint.read(tensor, start, extent)
