//! The suite as files: an export for those who run it without the runner, every case complete, and an index; and what git
//! holds of it. Also whether files that somebody has are those of this suite. Knows folders; what is in a case others know.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use waystation_format::{Code, Error, Result};

use crate::case::{Case, Op};
use crate::catalogue;
use crate::files::Files;
use crate::runner::report::SPEC;

/// The index of an export.
pub const INDEX: &str = "cases.json";

/// What an export consists of: `cases.json`, and for each case `cases/<id>/expect.json` with its files in
/// `given/`. Steps of `setup` are not done: a copy of files would not keep what they make.
#[must_use]
pub fn files(cases: &[Case]) -> Files {
    let mut files = Files::new();
    let mut index = Vec::new();
    for case in cases {
        let mut expect = case.expect.clone();
        // Nothing lies over anything here.
        expect.made.base = None;
        expect.made.removed = Vec::new();
        expect.made.digest = None;
        let folder = format!("cases/{}", expect.id);
        files.insert(format!("{folder}/expect.json"), pretty(&json!(expect)));
        for (path, bytes) in &case.given {
            files.insert(format!("{folder}/given/{path}"), bytes.clone());
        }
        index.push(json!({
            "id": expect.id, "profile": expect.profile, "level": expect.level, "op": expect.op,
            "outcome": expect.outcome, "features": expect.features, "files": case.given.keys().collect::<Vec<_>>(),
            "setup": !expect.setup.is_empty(),
        }));
    }
    let index = json!({ "spec": SPEC, "suite": env!("CARGO_PKG_VERSION"), "cases": index });
    files.insert(INDEX.to_owned(), pretty(&index));
    files
}

/// Writes an export to `to`, which must not exist, and gives the number of its files.
///
/// # Errors
/// [`Code::Exists`], and those of the system.
pub fn export(cases: &[Case], to: &Path) -> Result<usize> {
    fs::create_dir(to).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            let why = "expected a directory that does not exist, found one";
            Error::new(Code::Exists, why).in_file(to.display().to_string())
        }
        _ => named("make a directory", to, e),
    })?;
    for given in folders(cases) {
        let given = to.join(given);
        fs::create_dir_all(&given).map_err(|e| named("make a directory", &given, e))?;
    }
    let files = files(cases);
    // The list comes last: an export that was cut short has none.
    let list = files.get_key_value(INDEX);
    for (path, bytes) in files.iter().filter(|(path, _)| *path != INDEX).chain(list) {
        write(&to.join(path), bytes)?;
    }
    Ok(files.len())
}

/// The checkpoint or run of each case; one in which there is nothing is a directory all the same.
fn folders(cases: &[Case]) -> impl Iterator<Item = String> {
    let read = cases.iter().filter(|case| case.expect.op != Op::Write);
    read.map(|case| format!("cases/{}/given", case.expect.id))
}

/// What differs between the files at `of` and this suite, a line each: of an export, or of the suite as
/// git holds it (a directory with `cases` and `bases`).
///
/// # Errors
/// [`Code::NotFound`] where there is neither, and those of the system.
pub fn differences(cases: &[Case], of: &Path) -> Result<Vec<String>> {
    let exported = of.join(INDEX).exists();
    if !exported && !of.join("cases").is_dir() {
        let why = format!(
            "expected {INDEX} of an export, or the folder cases of the repository, found neither"
        );
        return Err(Error::new(Code::NotFound, why).in_file(of.display().to_string()));
    }
    let wanted = if exported { files(cases) } else { catalogue::stored(cases) };
    let mut found = Vec::new();
    for (path, bytes) in &wanted {
        let whole = of.join(path);
        match fs::symlink_metadata(&whole) {
            Ok(there) if !there.is_file() => found.push(format!("{path}: is no file")),
            Ok(_) => match fs::read(&whole) {
                Ok(there) if there == *bytes => {}
                Ok(_) => found.push(format!("{path}: differs")),
                Err(e) => return Err(named("read", &whole, e)),
            },
            Err(e) if is_absent(&e) => found.push(format!("{path}: is not there")),
            Err(e) => return Err(named("read", &whole, e)),
        }
    }
    for folder in folders(cases).filter(|_| exported) {
        if !fs::symlink_metadata(of.join(&folder)).is_ok_and(|there| there.is_dir()) {
            found.push(format!("{folder}: is no directory"));
        }
    }
    let strangers = strangers(of, &wanted)?.into_iter();
    found.extend(strangers.map(|path| format!("{}: is not of this suite", relative(of, &path))));
    Ok(found)
}

/// Makes `dir` hold what git holds of the suite, with nothing else in `bases` and `cases`, and gives the number of files
/// that it wrote or removed.
///
/// # Errors
/// Those of the system.
pub fn store(cases: &[Case], dir: &Path) -> Result<usize> {
    let wanted = catalogue::stored(cases);
    let mut changed = 0_usize;
    for stale in strangers(dir, &wanted)? {
        fs::remove_file(&stale).map_err(|e| named("remove", &stale, e))?;
        changed = changed.saturating_add(1);
    }
    for (path, bytes) in &wanted {
        let path = dir.join(path);
        if !fs::read(&path).is_ok_and(|there| there == *bytes) {
            write(&path, bytes)?;
            changed = changed.saturating_add(1);
        }
    }
    Ok(changed)
}

/// Files in the suite's folders beneath `dir` that are none of `wanted`, ascending.
fn strangers(dir: &Path, wanted: &Files) -> Result<BTreeSet<PathBuf>> {
    let mut there = BTreeSet::new();
    for folder in ["bases", "cases"] {
        walk(&dir.join(folder), &mut there)?;
    }
    there.retain(|path| !wanted.contains_key(&relative(dir, path)));
    Ok(there)
}

fn relative(dir: &Path, path: &Path) -> String {
    path.strip_prefix(dir).unwrap_or(path).to_string_lossy().into_owned()
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| named("make a directory", folder, e))?;
    }
    fs::write(path, bytes).map_err(|e| named("write", path, e))
}

fn walk(folder: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    let listing = match fs::read_dir(folder) {
        Err(e) if is_absent(&e) => return Ok(()),
        other => other.map_err(|e| named("list", folder, e))?,
    };
    for entry in listing {
        let entry = entry.map_err(|e| named("list", folder, e))?;
        if entry.file_type().map_err(|e| named("list", folder, e))?.is_dir() {
            walk(&entry.path(), found)?;
        } else {
            found.insert(entry.path());
        }
    }
    Ok(())
}

/// Whether there is nothing of that name: a file may stand where a directory should.
fn is_absent(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

fn named(what: &str, path: &Path, e: io::Error) -> Error {
    Error::io(what, e).in_file(path.display().to_string())
}
