//! The conformance suite as git holds it: made by its own crate, which needs the format to compile.
//! Knows only how to run it.

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
    command.args(["run", "--quiet", "--locked", "-p", "waystation-conformance"]);
    command.args(["--bin", "waystation-suite", "--"]);
    command.arg(if check { "--check" } else { "--write" }).arg("conformance");
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("the conformance suite in git is not what its crate makes".into())
    }
}
