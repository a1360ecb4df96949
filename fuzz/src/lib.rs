//! Fuzz targets: what each does with a fuzzer's bytes, and what must hold of it.
//!
//! A target is a function of bytes that panics when something is wrong, in a file of its own. What bytes mean the `gen` modules
//! say; [`judge`] is what all targets expect of an answer. The programs in `fuzz_targets/` hand them to libFuzzer, or without it
//! to the files named on the command line; `tests/replay.rs` runs what was found before.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test equipment: a panic is how a target reports, and a slip of its own is one too"
)]

pub mod commit;
pub mod differential;
pub mod gen_archive;
pub mod gen_cursor;
pub mod gen_layout;
pub mod gen_mutation;
pub mod gen_recipe;
pub mod goldens;
pub mod judge;
pub mod manifest;
pub mod memory;
pub mod mutate;
pub mod open;
pub mod page;
pub mod part;
pub mod reader;
pub mod replay;
pub mod reseal;
pub mod reshard;
pub mod roundtrip;
pub mod seeds;
pub mod shard_header;
pub mod sources;
pub mod state;

/// The engine, for [`main!`](crate::main).
#[cfg(fuzzing)]
pub use libfuzzer_sys;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its program, and of its folders of seeds and regressions.
    pub name: &'static str,
    /// Panics when an input shows a fault.
    pub run: fn(&[u8]),
}

/// All of them, quick ones first.
pub const TARGETS: &[Target] = &[
    Target { name: "manifest", run: manifest::run },
    Target { name: "part", run: part::run },
    Target { name: "page", run: page::run },
    Target { name: "shard_header", run: shard_header::run },
    Target { name: "state", run: state::run },
    Target { name: "open", run: open::run },
    Target { name: "sources", run: sources::run },
    Target { name: "roundtrip", run: roundtrip::run },
    Target { name: "mutate", run: mutate::run },
    Target { name: "reshard", run: reshard::run },
    Target { name: "commit", run: commit::run },
    Target { name: "differential", run: differential::run },
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The `main` of a target's program: the fuzzer's under cfg(fuzzing), else one that replays files.
#[macro_export]
macro_rules! main {
    ($run:path) => {
        #[cfg(fuzzing)]
        use $crate::libfuzzer_sys;
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $run(data));

        #[cfg(not(fuzzing))]
        fn main() -> std::process::ExitCode {
            $crate::replay::arguments($run)
        }
    };
}
