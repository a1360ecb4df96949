//! Writes what git holds of the suite, or compares it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::path::Path;
use std::process::ExitCode;

use waystation_conformance::{catalogue, export};
use waystation_format::Result;

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
    done.unwrap_or_else(|error| {
        eprintln!("waystation-suite: {error}");
        ExitCode::from(3)
    })
}

fn write(dir: &Path) -> Result<ExitCode> {
    let changed = export::store(&catalogue::cases(), dir)?;
    if changed > 0 {
        println!("wrote or removed {changed} files beneath {}", dir.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn check(dir: &Path) -> Result<ExitCode> {
    let differences = export::differences(&catalogue::cases(), dir)?;
    for line in &differences {
        eprintln!("{line}");
    }
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
