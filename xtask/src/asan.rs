//! `cargo xtask asan`: what maps files and calls the system, under AddressSanitizer. Knows which tests
//! have unsafe code below them that Miri cannot run.

use std::path::Path;

use crate::Result;
use crate::nightly;

/// Tests of files as they are: package, then targets.
const RUNS: [(&str, &[&str]); 2] =
    [("waystation-store", &["contract", "posix"]), ("waystation-reader", &["posix", "swapped"])];

/// A target has to be named, or build scripts are instrumented, too.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs them on the nightly toolchain.
///
/// # Errors
/// What it found, or that there is no such toolchain.
pub(crate) fn run(root: &Path) -> Result<()> {
    for (package, tests) in RUNS {
        println!("\n=== asan: {package} {} ===", tests.join(" "));
        let mut command = nightly::cargo(root);
        command.args(["test", "--locked", "--target", TARGET, "-p", package]);
        command.args(tests.iter().flat_map(|test| ["--test", test]));
        command.env("RUSTFLAGS", "-Zsanitizer=address");
        // The process that a test kills on purpose is to die as it would without.
        command.env("ASAN_OPTIONS", "handle_sigbus=0:detect_leaks=1");
        let status = command.status().map_err(|e| format!("cargo: {e}"))?;
        if !status.success() {
            return Err(format!("asan: {package}: {status}"));
        }
    }
    Ok(())
}
