//! Parts, pages and manifests: every rule that one file can break by itself, and round trips.
//!
//! A case changes one value of a sound file, named by its JSON pointer; what is expected is code,
//! rule and the pointer in the error.

// Indices and numbers here are the tests' own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::panic
)]

mod cases;
mod files;
mod fixture;
mod pages;
mod round_trips;
mod state;
