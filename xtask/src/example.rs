//! The worked example: made by a crate of its own, which needs the format to compile.
//! Knows only how to run it.

use std::path::Path;
use std::process::Command;

use crate::Result;

/// Writes the example's files and its appendix, or compares them.
///
/// # Errors
/// The example does not build, or a file has drifted; the program itself names it.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args([
        "run",
        "--quiet",
        "--locked",
        "-p",
        "waystation-example",
        "--",
    ]);
    command.arg(if check { "--check" } else { "--write" }).arg("spec/example");
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("the worked example is not what the format makes".into())
    }
}
