//! `cargo +nightly fuzz run mutate`; otherwise replays the files named as arguments.
#![cfg_attr(fuzzing, no_main)]

waystation_fuzz::main!(waystation_fuzz::mutate::run);
