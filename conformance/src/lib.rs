//! The conformance suite: every case as code, and the runner that puts them to an implementation.
//!
//! A case begins as a recipe from which `build` makes the files of a checkpoint, with one change where the case
//! wants one and everything after it recomputed. This builder is naive on purpose and shares nothing
//! with the writer but the registry: what the two make of a recipe is compared. The format's own
//! crates judge answers only where the protocol says so ([`protocol.md`]).
//!
//! [`protocol.md`]: https://github.com/waystation/waystation/blob/main/conformance/protocol.md

#![forbid(unsafe_code)]

pub mod case;
pub mod files;
