//! The `waystation` program.

fn main() {}
