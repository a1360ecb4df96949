//! Rules, or halves of rules, that no case can put to an implementation, each with the reason.

/// What of a rule has no case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Nothing of it can be tested from outside.
    Both,
    /// No case is accepted because of it.
    Accepted,
    /// No case is refused because of it.
    Refused,
    /// Cases break it, but a reader that lacks its check alone answers alike: another rule sees the same.
    Noticed,
}

use Half::{Both, Refused};

/// Rule, what of it, why.
pub const UNTESTABLE: &[(&str, Half, &str)] = &[
    ("companion.rewrite", Both, "Done by a keeper; the protocol has no operation for it."),
    (
        "dir.flat",
        Both,
        "A directory in an attempt is unnamed to readers; what a writer makes there is seen by its own tests alone.",
    ),
    (
        "cursor.canary-steps",
        Refused,
        "It allows a validator to leave something out, and forbids nothing.",
    ),
    (
        "cursor.epoch-seed",
        Both,
        "It says where the order of data does not come from, which the items of a right answer do not show.",
    ),
    (
        "identity.unknown-slot",
        Refused,
        "It demands that slots are accepted, so a breach is a refusal: `core/roles` fails.",
    ),
    (
        "integrity.write",
        Both,
        "Whether a CRC was computed before or after writing is not seen in the file that comes of it.",
    ),
    (
        "open.no-data",
        Both,
        "The protocol has no operation that opens and reads nothing, and does not see which bytes a process reads.",
    ),
    (
        "optimizer.no-cast",
        Refused,
        "It is about what a reader returns: a checkpoint cannot break it.",
    ),
    (
        "read.alias",
        Refused,
        "It says what is returned; what is wrong with an alias breaks a rule of chapter 4.1.",
    ),
    (
        "read.packed",
        Refused,
        "It says what is returned; every slice and every whole tensor is compared with it.",
    ),
    (
        "read.subset",
        Refused,
        "It demands that reading goes on: `reshard/damage-elsewhere` fails when it does not.",
    ),
    (
        "restore.again",
        Both,
        "The protocol has no operation that restores and saves; saving_again_at_once_changes_nothing in state/tests/cursors.rs does both.",
    ),
    (
        "restore.order",
        Both,
        "The order in which a loader hands state to a trainer happens in the trainer's process.",
    ),
    ("restore.report", Refused, "It is about what a loader returns: a checkpoint cannot break it."),
    (
        "rng.caches",
        Both,
        "The answer of `state` has no caches; no_form_drops_a_cache_or_takes_another_engine in state/tests/rng_properties.rs is about them.",
    ),
    (
        "rng.different",
        Both,
        "What a writer compared before it left an axis out is not in the checkpoint.",
    ),
    (
        "rng.fork",
        Refused,
        "It is about what a loader makes of a stream: a checkpoint cannot break it.",
    ),
    (
        "rng.lineage",
        Both,
        "A fork is saved by a job that resumed, and the protocol's writers resume from nothing.",
    ),
    ("rng.unknown", Refused, "It forbids a reader to refuse, and a checkpoint cannot break it."),
    (
        "shard.header-size",
        Both,
        "A header beyond 64 MiB needs some sixty thousand chunks with the longest names, in a shard of as many bytes again.",
    ),
    (
        "shard.no-parse",
        Both,
        "A reader may look at headers and refuse, so the cases with headers that mislead (`core/header-swapped` and others) allow both.",
    ),
    (
        "shard.order",
        Refused,
        "It leaves the order to writers; `core/shards` and `core/grid` have two of them.",
    ),
    ("shard.size", Both, "A SHOULD of writers about files of gigabytes; any size is read."),
    ("state.boundary", Both, "Of which moment records and tensors are is not to be seen in them."),
    (
        "tensor.packing",
        Refused,
        "A chunk's length follows from its elements and is stated nowhere, so no file can state another.",
    ),
    (
        "uncaptured.all",
        Both,
        "What training used and a writer did not save is not in the checkpoint.",
    ),
    (
        "value.keys",
        Both,
        "A recipe holds value trees: what has none cannot be asked for. test_what_would_lose_something_is_refused in python/tests/test_tree.py asks for it.",
    ),
    ("value.no-code", Both, "What a process imports is not to be seen in its answers."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_in_the_specification_and_ascend() {
        assert!(UNTESTABLE.is_sorted_by(|a, b| a.0 < b.0));
        for (id, _, reason) in UNTESTABLE {
            assert!(waystation_format::rule::find(id).is_some(), "no rule {id}");
            assert!(reason.ends_with('.'), "{id}: {reason}");
        }
    }
}
