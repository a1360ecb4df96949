//! Directories as inputs of `open`, `sources` and `differential`, and inputs as directories, for people who want to look at one.
//! `cargo xtask fuzz unpack` and `cargo xtask fuzz pack` run it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use waystation_conformance::files::Files;
use waystation_fuzz::differential::RECIPE;
use waystation_fuzz::gen_archive::{self, Directory};

const USAGE: &str = "usage: waystation-fuzz-archive unpack FILE FOLDER
       waystation-fuzz-archive pack FOLDER FILE

  unpack  writes the directory that an input of open, sources or differential stands for into a new folder
  pack    writes an input that stands for the files of a folder, one level of subfolders included";

type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match args.as_slice() {
        [verb, file, folder] if verb == Path::new("unpack") => unpack(file, folder),
        [verb, folder, file] if verb == Path::new("pack") => pack(folder, file),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn unpack(file: &Path, folder: &Path) -> Result<String> {
    let bytes = fs::read(file).map_err(|e| of(file, &e))?;
    if bytes.first() == Some(&RECIPE) {
        return Err(format!(
            "{}: a recipe and a change, of `differential`: no directory",
            file.display()
        ));
    }
    let Directory { files, others, .. } = gen_archive::decode(&bytes);
    fs::create_dir(folder).map_err(|e| of(folder, &e))?;
    for (path, bytes) in &files {
        let whole = folder.join(path);
        let made = whole.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&whole, bytes)).map_err(|e| of(&whole, &e))?;
        println!("{path} ({} bytes)", bytes.len());
    }
    for path in &others {
        println!("{path}: something that is no file; left out");
    }
    Ok(format!("{} files in {}", files.len(), folder.display()))
}

fn pack(folder: &Path, file: &Path) -> Result<String> {
    let mut files = Files::new();
    for path in listed(folder)? {
        if path.is_dir() {
            for inner in listed(&path)? {
                add(&mut files, folder, &inner)?;
            }
        } else {
            add(&mut files, folder, &path)?;
        }
    }
    let bytes = gen_archive::encode(None, &files);
    let again = gen_archive::decode(&bytes).files;
    if again != files {
        let lost = files.iter().find(|(path, bytes)| again.get(*path) != Some(bytes));
        let lost = lost.map_or_else(String::new, |(path, _)| path.clone());
        return Err(format!("{lost}: longer, or of a longer name, than an input can hold"));
    }
    fs::write(file, &bytes).map_err(|e| of(file, &e))?;
    Ok(format!("{} files in {} bytes", files.len(), bytes.len()))
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|e| of(folder, &e))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(|e| of(folder, &e))).collect()
}

fn add(files: &mut Files, folder: &Path, path: &Path) -> Result<()> {
    let name = path.strip_prefix(folder).ok().and_then(Path::to_str);
    let name = name.ok_or_else(|| format!("{}: a name that is not UTF-8", path.display()))?;
    files.insert(name.to_owned(), fs::read(path).map_err(|e| of(path, &e))?);
    Ok(())
}

fn of(path: &Path, e: &std::io::Error) -> String {
    format!("{}: {e}", path.display())
}
