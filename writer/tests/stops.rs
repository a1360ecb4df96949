//! What computes for long is stopped in the midst of it, not only before and after.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use support::{declare, memory_run, open, plan};
use waystation_format::record::Record;
use waystation_format::records::Cursor;
use waystation_format::records::cursor::{
    Canary, EpochEnd, Item, Node, Order, PermutedIndex, SeedRule, Source,
};
use waystation_format::{Code, Digest, Topology};
use waystation_reader::restore::{Place, RestoreOptions};
use waystation_reader::{Checkpoint, NoProgress, Progress, Stop, VerifyOptions, verify};
use waystation_store::Store;
use waystation_writer::{CommitOptions, commit, make_attempt};

const RECORDS: u64 = 1 << 27;

/// Would go on whenever it is asked: only what looks at its stop is stopped.
struct Watching(Stop);

impl Progress for Watching {
    fn begin(&self, _what: &str, _total_bytes: u64) {}

    fn advance(&self, _bytes: u64) {}

    fn stop(&self) -> Option<&Stop> {
        Some(&self.0)
    }

    fn cancelled(&self) -> bool {
        false
    }
}

/// A checkpoint with a cursor whose canary costs minutes, and is wrong.
fn far() -> Arc<dyn Store> {
    let order = Order::TorchRandpermCpu { seed: 8, seed_rule: SeedRule::Seed };
    let source = Source { name: None, records: RECORDS, sha256: Digest::of(b"data") };
    let root = Node::PermutedIndex(PermutedIndex {
        epoch: 0,
        epoch_end: EpochEnd::Wrap,
        n: RECORDS,
        order,
        position: RECORDS / 4,
        source,
    });
    let next = Some(Canary { count: 1, first: vec![Item::of(&[0])], sha256: Digest::of(b"other") });
    let cursor = Cursor { augment: None, consumed: Some(RECORDS), next, partition: None, root };
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (name, attempt) = make_attempt(&run, &plan, 5, 5).unwrap();
    let (mut session, _) = declare(&attempt, &plan, 5, 0, &[]).unwrap();
    session.record(Record::new("cursor", "data", vec![], &cursor.to_value()).unwrap());
    session.lay_out().unwrap().finish().unwrap();
    commit(&attempt, &CommitOptions::in_run(Arc::clone(&run), name), &NoProgress).unwrap();
    attempt
}

/// A stop that is requested when it is asked for the third time.
fn third() -> Stop {
    let asked = AtomicU32::new(0);
    Stop::asking(move || asked.fetch_add(1, Ordering::Relaxed) >= 2)
}

#[test]
fn canaries_are_stopped() {
    let attempt = far();
    let checkpoint: Checkpoint = open(&attempt);
    let place = Place::new(Topology(vec![]), vec![]).unwrap();
    let mut options = RestoreOptions::default().with_source("data", RECORDS, Digest::of(b"data"));
    options.budget = options.budget.until(third());
    let error = checkpoint.restore(&place, &options).unwrap_err();
    assert_eq!(error.code(), Code::Interrupted);
    assert_eq!(checkpoint.grades_until(&third()).unwrap_err().code(), Code::Interrupted);
    let progress = Watching(third());
    let options = VerifyOptions { progress: &progress, ..VerifyOptions::default() };
    assert_eq!(verify(&attempt, &options).unwrap_err().code(), Code::Interrupted);
}
