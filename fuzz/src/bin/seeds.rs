//! Writes the seeds of all targets, or of one, each into a folder of its own. `cargo xtask fuzz seeds` runs it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use waystation_fuzz::TARGETS;
use waystation_fuzz::seeds::Suite;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (out, only) = match args.as_slice() {
        [out] => (out, None),
        [out, target] if waystation_fuzz::target(target).is_some() => (out, Some(target.as_str())),
        _ => {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!(
                "usage: waystation-fuzz-seeds FOLDER [TARGET]\n\ntargets: {}",
                names.join(" ")
            );
            return ExitCode::from(2);
        }
    };
    let suite = Suite::build();
    for target in TARGETS.iter().filter(|target| only.is_none_or(|only| only == target.name)) {
        match write(&suite, Path::new(out), target.name) {
            Ok((count, bytes)) => {
                println!("{:<14} {count:>5} seeds, {:>6} KiB", target.name, bytes.div_ceil(1024))
            }
            Err(e) => {
                eprintln!("{out}/{}: {e}", target.name);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// How many seeds were written, and their bytes.
fn write(suite: &Suite, out: &Path, target: &str) -> std::io::Result<(usize, usize)> {
    let folder = out.join(target);
    fs::create_dir_all(&folder)?;
    let seeds = suite.seeds(target);
    for (name, bytes) in &seeds {
        fs::write(folder.join(name), bytes)?;
    }
    Ok((seeds.len(), seeds.values().map(Vec::len).sum()))
}
