//! `cargo +nightly fuzz run commit`; otherwise replays the files named as arguments.
#![cfg_attr(fuzzing, no_main)]

waystation_fuzz::main!(waystation_fuzz::commit::run);
