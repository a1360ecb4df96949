//! The conformance suite: every case as code, and the runner that puts them to an implementation.
//!
//! A case begins as a [`recipe::Recipe`] from which [`build`] makes the files of a checkpoint, with one change where the case
//! wants one and everything after it recomputed. This builder is naive on purpose and shares nothing
//! with the writer but the registry: what the two make of a recipe is compared. The format's own
//! crates judge answers only where the protocol says so ([`protocol.md`]).
//!
//! [`protocol.md`]: https://github.com/waystation/waystation/blob/main/conformance/protocol.md

#![forbid(unsafe_code)]

pub mod adapter;
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "reads the suite's own texts; a slip is a bug of the suite, which its tests meet"
)]
pub mod assemble;
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "as for build"
)]
pub mod bend;
#[allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "works on the suite's own recipes; a slip is a bug of the suite, which its tests meet"
)]
pub mod build;
pub mod case;
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "as for build"
)]
pub mod catalogue;
pub mod explain;
pub mod export;
pub mod files;
pub mod proof;
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "as for build"
)]
pub mod recipe;
pub mod runner;
