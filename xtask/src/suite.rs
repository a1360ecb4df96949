//! The conformance suite, as git holds it and as it proves itself: both are done by its own crate, which needs the others
//! to compile. Knows only how to run it.

use std::path::Path;
use std::process::Command;

use crate::Result;

/// Writes bases and cases of the suite, or compares them.
///
/// # Errors
/// The crate does not build, or a file has drifted; the program itself names it.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command.args(["run", "--quiet", "--locked", "--release", "-p", "waystation-conformance"]);
    command.args(["--bin", "waystation-suite", "--"]);
    command.arg(if check { "--check" } else { "--write" }).arg("conformance");
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("the conformance suite in git is not what its crate makes".into())
    }
}

/// Puts the suite to the project's readers, to broken ones, and to readers that lack one rule each; writes or compares
/// the tables that come of it.
///
/// # Errors
/// A reader that is right fails, one that is wrong passes, or a rule is not shown.
pub(crate) fn prove(root: &Path, check: bool) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(&cargo);
    build.current_dir(root).args([
        "build",
        "--quiet",
        "--locked",
        "--release",
        "-p",
        "waystation-conformance",
    ]);
    build.arg("--bins");
    let mut prove = Command::new(&cargo);
    prove.current_dir(root).args([
        "run",
        "--quiet",
        "--locked",
        "--release",
        "-p",
        "waystation-conformance",
    ]);
    prove.args(["--bin", "waystation-proof", "--"]);
    prove.arg(if check { "--check" } else { "--write" }).arg(root);
    for mut command in [build, prove] {
        let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
        if !status.success() {
            return Err("the conformance suite does not show what it must".into());
        }
    }
    Ok(())
}
