//! Directories out of a fuzzer's bytes: a golden with changes, or files of any names.
//!
//! ```text
//! u8 base, or 255 for none     u8 flags: 1 = lengths and digests are made to fit again
//! then until the bytes end:
//! 0 u8 file                               the file is gone
//! 1 u8 file, u24 length, bytes            it holds these bytes
//! 2 u8 length, name, u24 length, bytes    a file of any name holds these bytes
//! 3 u8 file, u24 at, u8 gone, u8 length, bytes    bytes within it are replaced
//! 4 u8 file, u24 at, u8 mask              a byte is flipped
//! 5 u8 file, u24 length                   it is cut, or made longer by zeros
//! 6 u8 file, u8 other                     two files change places
//! 7 u8 file                               something that is no file stands there
//! ```
//!
//! Files are counted in the order of their names. What is too short ends there, and what is not understood is passed over: every
//! input is a directory, and nearly every directory is an input.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::{fs, io};

use waystation_conformance::files::Files;
use waystation_store::MemoryFs;

use crate::{goldens, reseal};

/// The longest file that a change makes.
const MOST_BYTES: usize = 1 << 20;
/// The number of no base.
const NO_BASE: u8 = u8::MAX;

/// A directory, or a run of them.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Files by path.
    pub files: Files,
    /// Paths at which something stands that is no file.
    pub others: BTreeSet<String>,
    /// Whether nothing was changed.
    pub golden: bool,
}

/// The directory that bytes stand for.
#[must_use]
pub fn decode(data: &[u8]) -> Directory {
    let mut input = Input(data);
    let base = input.byte().and_then(|number| goldens::files(number.into()));
    let flags = input.byte().unwrap_or(0);
    let mut made = Directory {
        files: base.cloned().unwrap_or_default(),
        golden: base.is_some(),
        ..Directory::default()
    };
    while change(&mut made, &mut input).is_some() {}
    made.golden &= base.is_some_and(|base| *base == made.files) && made.others.is_empty();
    if flags & 1 == 1 {
        reseal::reseal(&mut made.files);
    }
    made
}

fn change(made: &mut Directory, input: &mut Input<'_>) -> Option<()> {
    let what = input.byte()?;
    if what == 2 {
        let length = input.byte()?;
        let name = input.take(length.into())?;
        let bytes = input.sized()?.to_vec();
        let name = String::from_utf8_lossy(name).into_owned();
        if placeable(&name) {
            made.others.remove(&name);
            made.files.insert(name, bytes);
        }
        return Some(());
    }
    let number = usize::from(input.byte()?);
    let named = |made: &Directory| {
        let count = made.files.len();
        (count > 0).then(|| made.files.keys().nth(number % count).cloned()).flatten()
    };
    let name = named(made);
    match what {
        0 => _ = name.map(|name| made.files.remove(&name)),
        1 => {
            let bytes = input.sized()?.to_vec();
            if let Some(name) = name {
                made.files.insert(name, bytes);
            }
        }
        3 => {
            let at = input.u24()?;
            let gone = usize::from(input.byte()?);
            let length = input.byte()?;
            let bytes = input.take(length.into())?;
            if let Some(file) = name.and_then(|name| made.files.get_mut(&name)) {
                let at = at.min(file.len());
                let end = (at + gone).min(file.len());
                file.splice(at..end, bytes.iter().copied());
            }
        }
        4 => {
            let (at, mask) = (input.u24()?, input.byte()?);
            if let Some(byte) = name.and_then(|name| made.files.get_mut(&name)?.get_mut(at)) {
                *byte ^= mask;
            }
        }
        5 => {
            let length = input.u24()?.min(MOST_BYTES);
            if let Some(file) = name.and_then(|name| made.files.get_mut(&name)) {
                file.resize(length, 0);
            }
        }
        6 => {
            let other = usize::from(input.byte()?) % made.files.len().max(1);
            let other = made.files.keys().nth(other).cloned();
            if let (Some(a), Some(b)) = (name, other)
                && let (Some(one), Some(two)) = (made.files.remove(&a), made.files.remove(&b))
            {
                made.files.extend([(a, two), (b, one)]);
            }
        }
        7 => {
            if let Some(name) = name {
                made.files.remove(&name);
                made.others.insert(name);
            }
        }
        _ => {}
    }
    Some(())
}

/// Bytes that stand for these files, as changes of a base.
#[must_use]
pub fn encode(base: Option<usize>, files: &Files) -> Vec<u8> {
    let number = base.and_then(|number| u8::try_from(number).ok()).unwrap_or(NO_BASE);
    let mut there = goldens::files(number.into()).cloned().unwrap_or_default();
    let mut out = vec![number, 0];
    let gone: Vec<String> =
        there.keys().filter(|name| !files.contains_key(*name)).cloned().collect();
    for name in gone {
        let at = there.keys().position(|other| *other == name).and_then(|at| u8::try_from(at).ok());
        out.extend([0, at.unwrap_or(0)]);
        there.remove(&name);
    }
    for (name, bytes) in files {
        if there.get(name) == Some(bytes) {
            continue;
        }
        let at = there.keys().position(|other| other == name).and_then(|at| u8::try_from(at).ok());
        match at {
            Some(at) => out.extend([1, at]),
            None => {
                out.extend([2, u8::try_from(name.len()).unwrap_or(u8::MAX)]);
                out.extend(name.bytes().take(u8::MAX.into()));
                there.insert(name.clone(), bytes.clone());
            }
        }
        let length = bytes.len().min((1 << 24) - 1);
        out.extend(&length.to_le_bytes()[..3]);
        out.extend(&bytes[..length]);
    }
    out
}

impl Directory {
    /// The directory as a file system in memory. A path whose folder is a file is left out.
    #[must_use]
    pub fn memory(&self) -> MemoryFs {
        let fs = MemoryFs::new();
        for (path, bytes) in &self.files {
            if folder(&fs, path) {
                let _ = fs.set(path, bytes.clone());
            }
        }
        for path in &self.others {
            if folder(&fs, path) {
                let _ = fs.set_other(path);
            }
        }
        fs
    }

    /// Writes the directory into a folder; what is no file there is a symbolic link to nothing. Gives the paths that the file system did
    /// not take, and why.
    pub fn place(&self, folder: &Path) -> Vec<(&str, io::Error)> {
        let mut left = Vec::new();
        let mut put = |path, put: &dyn Fn(&Path) -> io::Result<()>| {
            let whole = folder.join(path);
            let made = whole.parent().map_or(Ok(()), fs::create_dir_all);
            left.extend(made.and_then(|()| put(&whole)).err().map(|e| (path, e)));
        };
        for (path, bytes) in &self.files {
            put(path.as_str(), &|whole| fs::write(whole, bytes));
        }
        for path in &self.others {
            put(path.as_str(), &|whole| symlink("nowhere", whole));
        }
        left
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}

/// Makes the folder of a path.
fn folder(fs: &MemoryFs, path: &str) -> bool {
    let mut store = fs.store();
    let Some(parent) = Path::new(path).parent() else { return false };
    for component in parent.components() {
        let Some(name) = component.as_os_str().to_str() else { return false };
        let next = match store.dir(name) {
            Ok(Some(dir)) => Ok(dir),
            Ok(None) => store.make_dir(name),
            Err(e) => Err(e),
        };
        match next {
            Ok(dir) => store = dir,
            Err(_) => return false,
        }
    }
    true
}

/// Whether every file system can hold a file of that path.
fn placeable(path: &str) -> bool {
    path.split('/').count() <= 2
        && path.split('/').all(|name| {
            !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains('\0')
        })
}

/// Bytes that are still to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u24(&mut self) -> Option<usize> {
        self.take(3).map(|b| usize::from(b[0]) | usize::from(b[1]) << 8 | usize::from(b[2]) << 16)
    }

    /// Bytes after their length, or all that are left.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let length = self.u24()?.min(self.0.len());
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use waystation_conformance::catalogue::cases;

    use super::*;

    #[test]
    fn a_directory_comes_back() {
        for number in 0..goldens::NAMES.len() {
            let files = goldens::files(number).unwrap();
            let made = decode(&encode(Some(number), files));
            assert!(made.golden && made.files == *files);
        }
        let mut compared = 0;
        for case in cases().iter().step_by(7) {
            let base = case.expect.made.base.as_deref();
            let number = base.and_then(|base| goldens::NAMES.iter().position(|name| *name == base));
            if case.given.keys().all(|path| placeable(path)) && case.given.len() < 200 {
                assert_eq!(
                    decode(&encode(number, &case.given)).files,
                    case.given,
                    "{}",
                    case.expect.id
                );
                compared += 1;
            }
        }
        assert!(compared > 100, "{compared}");
    }
}
