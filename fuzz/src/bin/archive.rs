//! Directories as inputs of `open`, `sources` and `differential`, and inputs as directories, for people who want to look at one.
//! `cargo xtask fuzz unpack` and `cargo xtask fuzz pack` run it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::fs::{self, FileType};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use waystation_conformance::files::Files;
use waystation_fuzz::differential::RECIPE;
use waystation_fuzz::gen_archive;

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
    let directory = gen_archive::decode(&bytes);
    fs::create_dir(folder).map_err(|e| of(folder, &e))?;
    let left = directory.place(folder);
    for (path, bytes) in &directory.files {
        println!("{path} ({} bytes)", bytes.len());
    }
    for path in &directory.others {
        println!("{path}: a symbolic link to nothing, for something that is no file");
    }
    for (path, why) in &left {
        println!("{path}: left out: {why}");
    }
    let (files, links) = (directory.files.len(), directory.others.len());
    Ok(format!("{}: {files} files, {links} links, {} left out", folder.display(), left.len()))
}

fn pack(folder: &Path, file: &Path) -> Result<String> {
    let mut files = Files::new();
    for (path, kind) in listed(folder)? {
        let within = if kind.is_dir() { listed(&path)? } else { vec![(path, kind)] };
        for (path, kind) in within {
            add(&mut files, folder, &path, kind)?;
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

fn listed(folder: &Path) -> Result<Vec<(PathBuf, FileType)>> {
    let entries = fs::read_dir(folder).map_err(|e| of(folder, &e))?;
    entries
        .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
        .map(|entry| entry.map_err(|e| of(folder, &e)))
        .collect()
}

fn add(files: &mut Files, folder: &Path, path: &Path, kind: FileType) -> Result<()> {
    if !kind.is_file() {
        return Err(format!("{}: no file, or too deep: an input cannot say it", path.display()));
    }
    let name = path.strip_prefix(folder).ok().and_then(Path::to_str);
    let name = name.ok_or_else(|| format!("{}: a name that is not UTF-8", path.display()))?;
    files.insert(name.to_owned(), fs::read(path).map_err(|e| of(path, &e))?);
    Ok(())
}

fn of(path: &Path, e: &std::io::Error) -> String {
    format!("{}: {e}", path.display())
}
