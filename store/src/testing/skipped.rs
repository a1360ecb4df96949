//! Tests that a machine cannot do say so, where people see it.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Says on standard error that a part of a test was left out, and why.
///
/// Written past `print!` and `eprint!`, which the harness keeps to itself when a test passes: one
/// that passes because it did nothing must not look like one that did.
pub fn skipped(what: impl Display, why: impl Display) {
    // Without a standard error there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "\nSKIPPED {what}: {why}");
}
