//! Writes the worked example and its appendix into the specification, or compares them.
//!
//! It knows two places: `DIR/<step-…>/` for the files and `DIR/../appendix-b-example.md` for the
//! text.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use waystation_example::{annotate, directory, files};

const USAGE: &str = "usage: waystation-example (--write | --check) DIR

  --write DIR   write the example's files to DIR/step-…, and DIR/../appendix-b-example.md
  --check DIR   compare instead; exit 1 and name the first file that differs
";
const CHAPTER: &str = "appendix-b-example.md";

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
            eprintln!("waystation-example: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Where each file belongs, the chapter last.
fn placed(dir: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let name = directory();
    let files = files();
    let chapter = annotate::chapter(&name, &files).map_err(|error| error.to_string())?;
    let place = |(file, bytes)| (dir.join(&name).join::<String>(file), bytes);
    let mut placed: Vec<_> = files.into_iter().map(place).collect();
    placed.push((dir.join("..").join(CHAPTER), chapter.into_bytes()));
    Ok(placed)
}

fn write(dir: &Path) -> Result<(), String> {
    let placed = placed(dir)?;
    let inside = dir.join(directory());
    fs::create_dir_all(&inside).map_err(|error| named(&inside, &error))?;
    for stale in strangers(dir, &placed)? {
        fs::remove_file(&stale).map_err(|error| named(&stale, &error))?;
    }
    for (path, bytes) in placed {
        if fs::read(&path).is_ok_and(|found| found == bytes) {
            continue;
        }
        fs::write(&path, bytes).map_err(|error| named(&path, &error))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

fn check(dir: &Path) -> Result<(), String> {
    let placed = placed(dir)?;
    for (path, bytes) in &placed {
        let found = fs::read(path).map_err(|error| named(path, &error))?;
        if found != *bytes {
            return Err(format!("{}: differs from what the program makes", path.display()));
        }
    }
    match strangers(dir, &placed)?.first() {
        Some(path) => Err(format!("{}: is not of the example", path.display())),
        None => Ok(()),
    }
}

/// Files in the example's directory that do not belong there.
fn strangers(dir: &Path, placed: &[(PathBuf, Vec<u8>)]) -> Result<Vec<PathBuf>, String> {
    let inside = dir.join(directory());
    let wanted: BTreeSet<&Path> = placed.iter().map(|(path, _)| path.as_path()).collect();
    let mut strangers = Vec::new();
    for entry in fs::read_dir(&inside).map_err(|error| named(&inside, &error))? {
        let path = entry.map_err(|error| named(&inside, &error))?.path();
        if !wanted.contains(path.as_path()) {
            strangers.push(path);
        }
    }
    strangers.sort();
    Ok(strangers)
}

fn named(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}
