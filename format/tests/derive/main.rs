//! Parts in, pages and manifest out: agreement, merging, cutting, and every refusal.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub,
    reason = "tests fail by panicking, and their sizes are small"
)]

mod job;
mod merging;
mod properties;
mod refusals;
