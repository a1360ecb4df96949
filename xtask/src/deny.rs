//! What is depended on: that it asks for no newer compiler than we say; and by `cargo deny` and
//! `deny.toml` licences, sources and bans from what is on this machine, and advisories where their
//! database can be had. Knows the tool's words, not its rules.

use std::path::Path;
use std::process::Command;

use crate::{Result, msrv};

/// How to have the tool.
const INSTALL: &str = "cargo-deny is not installed: cargo install cargo-deny --locked";

/// What the tool says when it has no database: no network is no finding.
const NO_DATABASE: &str = "failed to fetch advisory database";

/// How it went.
pub(crate) enum Outcome {
    /// All of it holds.
    Passed,
    /// Licences, sources and bans hold; advisories were not looked at, and why.
    NoAdvisories(String),
    /// There is no tool, and how to have it.
    Absent(String),
}

/// Runs all checks.
///
/// # Errors
/// What is depended on and should not be; the tool told more on the terminal.
pub(crate) fn run(root: &Path) -> Result<Outcome> {
    msrv::check(root)?;
    if !tool(root).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok(Outcome::Absent(INSTALL.to_owned()));
    }
    let mut command = tool(root);
    command.args(["--locked", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
    let status = command.status().map_err(|e| format!("cargo deny: {e}"))?;
    if !status.success() {
        return Err(format!("cargo deny: bans, licences or sources: {status}"));
    }
    let mut command = tool(root);
    command.args(["--locked", "check", "advisories"]);
    let output = command.output().map_err(|e| format!("cargo deny: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Ok(Outcome::Passed);
    }
    if said.contains(NO_DATABASE) {
        return Ok(Outcome::NoAdvisories(format!("advisories NOT CHECKED: {NO_DATABASE}")));
    }
    Err(format!("cargo deny: advisories: {}\n{said}", output.status))
}

/// The task by itself, where a missing tool is a failure.
///
/// # Errors
/// As [`run`], and when there is no tool.
pub(crate) fn alone(root: &Path) -> Result<()> {
    match run(root)? {
        Outcome::Passed => Ok(()),
        Outcome::NoAdvisories(why) => {
            println!("{why}");
            Ok(())
        }
        Outcome::Absent(why) => Err(why),
    }
}

fn tool(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("deny").current_dir(root);
    command
}
