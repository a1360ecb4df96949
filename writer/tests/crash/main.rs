//! Power fails at every call of a save, a commit, a keeper, a salvage and a copy, and of what repairs
//! them; whatever is left on the disk is read. The old checkpoint or the new one, never a mixture,
//! never none.
//!
//! How much is looked at: with feature `sweep`, optimized, every subset of what was not durable at
//! every crash point; in the everyday tests fewer. Every simulation prints its counts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub,
    reason = "a test that cannot go on should say where, and this one reports what it met"
)]

mod content;
mod faulty;
mod job;
mod keep;
mod race;
mod repair;
mod retry;
mod save;
mod seeded;
#[path = "../support/mod.rs"]
mod support;
mod turns;
mod windows;
mod world;

use waystation_store::testing::Bound;

/// What is looked at of the sets of changes that were not durable.
const BOUND: Bound = if cfg!(feature = "sweep") {
    Bound { exhaustive: 20, sampled: 64, seed: 7 }
} else {
    Bound { exhaustive: 6, sampled: 4, seed: 7 }
};
/// Whether every subset has to be looked at, at every crash point.
const ALL_POINTS: bool = cfg!(feature = "sweep");
/// Of states that could be repaired in every way, one in so many is.
const REPAIRED: u64 = if cfg!(feature = "sweep") { 1 } else { 8 };
