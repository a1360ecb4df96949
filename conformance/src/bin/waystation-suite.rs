//! Writes what git holds of the suite, or compares it.
//!
//! It knows the folders `DIR/bases` and `DIR/cases`, and that nothing else may lie in them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use waystation_conformance::catalogue;
use waystation_conformance::files::Files;

const USAGE: &str = "usage: waystation-suite (--write | --check) DIR

  --write DIR   write DIR/bases and DIR/cases, and remove from them what is not of the suite
  --check DIR   compare instead; exit 1 and name what differs
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--write", dir] => write(Path::new(dir)),
        ["--check", dir] => check(Path::new(dir)),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("waystation-suite: {message}");
            ExitCode::FAILURE
        }
    }
}

fn stored() -> Files {
    catalogue::stored(&catalogue::cases())
}

fn write(dir: &Path) -> Result<(), String> {
    let stored = stored();
    for stale in strangers(dir, &stored)? {
        fs::remove_file(&stale).map_err(|error| named(&stale, &error))?;
    }
    let mut written = 0_usize;
    for (path, bytes) in &stored {
        let path = dir.join(path);
        if fs::read(&path).is_ok_and(|found| found == *bytes) {
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| named(folder, &error))?;
        }
        fs::write(&path, bytes).map_err(|error| named(&path, &error))?;
        written = written.saturating_add(1);
    }
    if written > 0 {
        println!("wrote {written} of {} files beneath {}", stored.len(), dir.display());
    }
    Ok(())
}

fn check(dir: &Path) -> Result<(), String> {
    let stored = stored();
    for (path, bytes) in &stored {
        let path = dir.join(path);
        let found = fs::read(&path).map_err(|error| named(&path, &error))?;
        if found != *bytes {
            return Err(format!("{}: differs from what the suite makes", path.display()));
        }
    }
    match strangers(dir, &stored)?.first() {
        Some(path) => Err(format!("{}: is not of the suite", path.display())),
        None => Ok(()),
    }
}

/// Files in the suite's folders that do not belong there.
fn strangers(dir: &Path, stored: &Files) -> Result<Vec<PathBuf>, String> {
    let wanted: BTreeSet<PathBuf> = stored.keys().map(|path| dir.join(path)).collect();
    let mut found = Vec::new();
    for folder in ["bases", "cases"] {
        walk(&dir.join(folder), &mut found)?;
    }
    found.retain(|path| !wanted.contains(path));
    Ok(found)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| named(folder, &error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| named(folder, &error))?;
        if entry.file_type().map_err(|error| named(folder, &error))?.is_dir() {
            walk(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn named(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}
