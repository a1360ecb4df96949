//! `cargo +nightly fuzz run differential`; otherwise replays the files named as arguments.
#![cfg_attr(fuzzing, no_main)]

waystation_fuzz::main!(waystation_fuzz::differential::run);
