//! What the suite must show of itself: that readers that are right pass it, that readers that are wrong do not, and
//! that for every rule a reader that lacks just its check is noticed.
//!
//! It knows the adapters that lie beside the crate. It judges nothing itself: [`crate::runner`] does.

mod broken;
mod coverage;
mod readers;

pub use broken::{Caught, broken};
pub use coverage::{Coverage, Row, coverage};
pub use readers::{Reader, readers, table};

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use waystation_format::{Code, Error, Result};

/// What a helper program prints when it is asked, in lines.
fn lines(command: &[OsString]) -> Result<Vec<String>> {
    let (program, words) = command
        .split_first()
        .ok_or_else(|| Error::new(Code::BadArgument, "expected a program, found none"))?;
    let output = Command::new(program)
        .args(words)
        .output()
        .map_err(|e| Error::new(Code::Io, format!("{}: {e}", program.to_string_lossy())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::new(Code::Io, format!("{command:?} failed: {said}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// `python3 <folder>/<script> <words>`.
fn python(script: &Path, words: &[&str]) -> Vec<OsString> {
    let mut command: Vec<OsString> = vec!["python3".into(), "-B".into(), script.into()];
    command.extend(words.iter().map(OsString::from));
    command
}
