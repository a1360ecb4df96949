//! `cargo +nightly fuzz run shard_header`; otherwise replays the files named as arguments.
#![cfg_attr(fuzzing, no_main)]

waystation_fuzz::main!(waystation_fuzz::shard_header::run);
