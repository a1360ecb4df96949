"""The registries and limits of version 1.0 (chapter 14 and appendix A), as this reader knows them."""

import re

_IO = {"io", "io-denied", "io-full", "commit-unknown", "interrupted"}


def exit_status(code):
    """The exit status of the class that `code` is in; 2 is left to a command line that cannot be followed."""
    return 3 if code in _IO else 1


LIMITS = {
    "max-integer": 9007199254740991,
    "manifest-bytes": 67108864,
    "page-bytes": 268435456,
    "page-target-bytes": 1048576,
    "part-bytes": 268435456,
    "shard-header-bytes": 67108864,
    "json-depth": 100,
    "name-bytes": 1024,
    "path-bytes": 1024,
    "path-component-bytes": 255,
    "inline-bytes": 8192,
    "integer-digits": 4300,
    "writers": 65536,
    "shards-per-writer": 65536,
    "attachments-per-writer": 65536,
    "tensors": 4194304,
    "chunks": 67108864,
    "records": 4194304,
    "dimensions": 16,
    "split-axes": 8,
    "topology-axes": 16,
    "tensor-bits": 72057594037927928,
    "step": 999999999999,
    "block-bytes-min": 4096,
    "block-bytes-max": 16777216,
    "large-chunk-bytes": 65536,
    "page-align": 4096,
    "small-align": 256,
    "canary-outputs": 64,
    "canary-items": 65536,
    "cursor-depth": 8,
    "inline-ordinals": 65536,
    "canary-steps": 67108864,
}

# dtype -> bits of an element; those in SELF stand in a shard's header under their own name.
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "F8_E4M3": 8, "F8_E5M2": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F8_E3M4": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4_E2M1": 4,
    "U4": 4, "I4": 4, "U2": 2, "I2": 2, "U1": 1, "C64": 64, "C128": 128,
}
SELF = frozenset(list(BITS)[:15])

# role -> (class of shard, slot, owner); True required, False forbidden, None optional.
ROLES = {
    "param": ("model", False, False),
    "buffer": ("model", False, False),
    "master": ("state", False, False),
    "optimizer": ("state", True, True),
    "ema": ("state", False, True),
    "quant": ("state", True, False),
    "blob": ("state", False, False),
    "extension": ("state", None, False),
}

# cache -> bits of its value.
CACHES = {
    "torch/normal-f64": 64, "torch/normal-f32": 32, "numpy/legacy-gauss-f64": 64, "python/gauss-next-f64": 64, "numpy/u32-half": 32,
}

# schedule -> its parameters.
SCHEDULES = {
    "constant": ("base",),
    "linear-warmup": ("base", "warmup"),
    "linear-warmup+linear": ("base", "floor", "warmup", "total"),
    "linear-warmup+cosine": ("base", "floor", "warmup", "total"),
}

# What a loader says of what it restored, best first.
GRADES = ("exact", "exact-if-axes-unchanged", "requantised", "fork", "opaque-same-topology", "none")

# `shard-sha256` is reserved, without a meaning that a reader could follow: none is known.
KNOWN_FEATURES = frozenset()

# Control and bidirectional characters that no name may hold.
FORBIDDEN_IN_NAMES = re.compile("[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
