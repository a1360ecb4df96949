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

use Half::{Accepted, Both, Noticed, Refused};

/// Rule, what of it, why.
pub const UNTESTABLE: &[(&str, Half, &str)] = &[
    (
        "attachment.export",
        Both,
        "The protocol writes nothing out; bad paths are refused when a checkpoint is opened, and an_attached_file_has_its_own_name in cli/tests/program.rs exports one.",
    ),
    (
        "commit.done",
        Both,
        "When a committer says that it is done is between it and its disk: every_file_is_durable_before_what_stands_on_it in writer/tests/durability.rs.",
    ),
    (
        "commit.fence",
        Both,
        "The protocol has no operation that commits what another wrote: a_higher_timeline_stops_the_committer in writer/tests/commit.rs.",
    ),
    (
        "commit.order",
        Both,
        "The order of fsyncs is not to be seen in what is there afterwards: every_file_is_durable_before_what_stands_on_it in writer/tests/durability.rs.",
    ),
    (
        "commit.put",
        Both,
        "The protocol has no two committers at once: two_committers_at_every_distance_both_succeed in writer/tests/contest.rs.",
    ),
    ("companion.rewrite", Both, "Done by a keeper; the protocol has no operation for it."),
    (
        "copy.order",
        Both,
        "The protocol has no operation that copies: a_copy_cut_short_is_no_checkpoint in writer/tests/contest.rs.",
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
        "dir.immutable",
        Both,
        "What was written over is not to be seen in what is there; every create is exclusive, and every_file_is_durable_before_what_stands_on_it in writer/tests/durability.rs has all calls of a save.",
    ),
    ("dir.links", Refused, "It allows, and forbids nothing."),
    (
        "feature.rewrite",
        Both,
        "The protocol has no operation that writes a checkpoint again: features_that_say_keep_are_carried_and_others_left_out in writer/tests/reshard.rs.",
    ),
    (
        "gc.kept",
        Both,
        "The protocol has no operation that deletes: keeping_none_keeps_the_latest in writer/tests/gc.rs.",
    ),
    (
        "gc.order",
        Both,
        "The protocol has no operation that deletes: a_directory_goes_in_an_order_that_never_shows_half_of_it in writer/tests/gc.rs.",
    ),
    (
        "gc.uncommitted",
        Both,
        "The protocol has no operation that deletes: uncommitted_ones_go_when_succeeded_or_stale in writer/tests/gc.rs.",
    ),
    (
        "gc.unnamed",
        Both,
        "The protocol has no operation that deletes: a_subdirectory_stays_with_its_directory in writer/tests/gc.rs.",
    ),
    (
        "identity.order",
        Noticed,
        "Each place where keys ascend has a rule of its own, with the same code: page.order, part.entries, manifest.firsts.",
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
        "intro.code",
        Both,
        "Every case of a refusal asks for the code; no reader lacks the rule as a whole.",
    ),
    ("intro.depth", Both, "It is all rules of a depth together; each is shown for itself."),
    (
        "intro.no-crash",
        Both,
        "Every case asks for it, with limits on memory and time; no check is its own.",
    ),
    (
        "limit.arithmetic",
        Noticed,
        "The reader whose checks are switched off is in a language whose integers do not wrap.",
    ),
    (
        "manifest.contents",
        Noticed,
        "Where it is broken, derive.function is, too, with the same code.",
    ),
    ("manifest.firsts", Noticed, "Where it is broken, page.order is, too, with the same code."),
    (
        "open.no-data",
        Both,
        "The protocol has no operation that opens and reads nothing, and does not see which bytes a process reads.",
    ),
    (
        "open.order",
        Accepted,
        "It says which breach is named, and in what is accepted there is none.",
    ),
    (
        "optimizer.no-cast",
        Refused,
        "It is about what a reader returns: a checkpoint cannot break it.",
    ),
    ("page.cut", Noticed, "Where it is broken, derive.function is, too, with the same code."),
    (
        "part.all-writers",
        Refused,
        "The protocol writes the parts of all writers, and a root names as many; missing_writers_are_named in writer/tests/commit.rs lacks some.",
    ),
    ("part.all-writers", Noticed, "As no case breaks it."),
    (
        "part.one-per-writer",
        Both,
        "The protocol writes parts and commits them in one go, and a root names one part of each writer; two_parts_of_one_writer_are_refused in writer/tests/commit.rs has two.",
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
        "record.order",
        Noticed,
        "Each place where keys ascend has a rule of its own, with the same code: page.order, part.records, manifest.firsts.",
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
        "run.pin",
        Both,
        "The protocol has no operation that deletes: pinned_ones_stay_and_rejected_ones_do_not_count in writer/tests/gc.rs.",
    ),
    (
        "run.rejected",
        Refused,
        "A reader passes over a rejected checkpoint, and may open it: no answer has the code.",
    ),
    (
        "run.report",
        Both,
        "The answer of `latest` has no list of what was skipped: what_is_not_complete_is_passed_over_and_reported in reader/tests/run.rs.",
    ),
    (
        "run.resolve-once",
        Both,
        "It is about the processes of a job, of which the protocol has one.",
    ),
    (
        "salvage.conflict",
        Both,
        "The protocol has no operation that salvages: a_root_of_other_bytes_is_removed_only_when_asked in writer/tests/salvage.rs.",
    ),
    (
        "salvage.verify",
        Both,
        "The protocol has no operation that salvages: any_flipped_bit_is_refused in writer/tests/salvage.rs.",
    ),
    (
        "security.map",
        Both,
        "Whether a reader maps files is not in its answers; reader/src/map.rs has the one call that does.",
    ),
    ("security.no-code", Both, "What a process runs or imports is not in its answers."),
    (
        "security.terminal",
        Both,
        "The protocol is JSON, which escapes control characters: json_steers_no_terminal in cli/tests/unlucky.rs.",
    ),
    (
        "session.directory",
        Both,
        "The protocol names one directory, which is not there: an exclusive create is not to be seen from outside.",
    ),
    (
        "session.plan",
        Both,
        "The protocol's writers are told what a plan says, not given its text: what_is_no_plan_is_refused in writer/src/plan_text.rs.",
    ),
    (
        "session.timeline",
        Both,
        "The protocol's writers are told their attempt: jobs_that_start_at_one_moment_do_not_share_a_timeline in writer/tests/timelines.rs.",
    ),
    (
        "shard.header-size",
        Both,
        "A header beyond 64 MiB needs some sixty thousand chunks with the longest names, in a shard of as many bytes again.",
    ),
    ("shard.key", Noticed, "Where it is broken, shard.header is, too, with the same code."),
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
    ("shard.order", Noticed, "A reader that expects an order would have to look for one."),
    ("shard.size", Both, "A SHOULD of writers about files of gigabytes; any size is read."),
    ("state.boundary", Both, "Of which moment records and tensors are is not to be seen in them."),
    (
        "tensor.packing",
        Refused,
        "A chunk's length follows from its elements and is stated nowhere, so no file can state another.",
    ),
    (
        "tensor.packing",
        Noticed,
        "No reader can take another length for a chunk: it is stated nowhere.",
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
    ("verify.all", Noticed, "It is all rules of depth V together; each is shown for itself."),
    (
        "writer.abandon",
        Both,
        "The protocol has no operation that gives up: the_only_writer_takes_back_what_it_did_not_finish in writer/tests/gc.rs.",
    ),
    (
        "writer.create",
        Both,
        "The protocol's attempts are new: two_writers_never_share_a_file in writer/tests/contest.rs.",
    ),
    (
        "writer.dead",
        Both,
        "The protocol cannot make a disk fail: after_an_error_the_writer_is_dead in writer/tests/durability.rs.",
    ),
    (
        "writer.part",
        Both,
        "Of a save that is killed only the order of names shows, which durability cases look at: every_file_is_durable_before_what_stands_on_it in writer/tests/durability.rs has the rest.",
    ),
    (
        "writer.restart",
        Both,
        "The protocol starts each save once: a_restarted_writer_does_not_rejoin in writer/tests/contest.rs.",
    ),
    (
        "writer.sync",
        Both,
        "What is durable shows when power fails: every_file_is_durable_before_what_stands_on_it in writer/tests/durability.rs.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_in_the_specification_and_ascend() {
        assert!(UNTESTABLE.is_sorted_by(|a, b| a.0 <= b.0));
        for (id, _, reason) in UNTESTABLE {
            assert!(waystation_format::rule::find(id).is_some(), "no rule {id}");
            assert!(reason.ends_with('.'), "{id}: {reason}");
        }
    }

    #[test]
    fn tests_that_reasons_name_are_there() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut named = 0;
        for (id, _, reason) in UNTESTABLE {
            let words: Vec<&str> = reason.split(' ').collect();
            for three in words.windows(3) {
                let path = three[2].trim_end_matches(['.', ',', ';']);
                if three[1] == "in"
                    && three[0].contains('_')
                    && (path.ends_with(".rs") || path.ends_with(".py"))
                {
                    let text = std::fs::read_to_string(root.join(path)).expect(path);
                    let (rust, python) =
                        (format!("fn {}(", three[0]), format!("def {}(", three[0]));
                    assert!(
                        text.contains(&rust) || text.contains(&python),
                        "{id}: no {} in {path}",
                        three[0]
                    );
                    named += 1;
                }
            }
        }
        assert!(named > 20, "{named}");
    }
}
