//! A case's files on disk, in a directory of their own that goes away with them. Knows the steps
//! that git cannot hold, and no meaning of any file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use waystation_format::{Code, Error, Result};

use crate::case::Step;
use crate::files::Files;

/// A directory with `given/` in it, as a case has it.
#[derive(Debug)]
pub struct Placed {
    dir: TempDir,
    /// What must be made accessible again to be removed.
    denied: Vec<PathBuf>,
    /// Everything beneath `given` as it was made.
    made: BTreeMap<PathBuf, Trace>,
}

/// What changes in a file or directory whenever it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trace {
    inode: u64,
    bytes: u64,
    mode: u32,
    /// Seconds and nanoseconds of its last change, which nobody can set back.
    changed: (i64, i64),
}

/// Why a case has no files.
#[derive(Debug)]
pub enum Unplaced {
    /// This machine, or this user, cannot make the case. It says nothing about the implementation.
    NotHere(String),
    /// The environment failed.
    Failed(Error),
}

impl Placed {
    /// Writes the files and does the steps.
    ///
    /// # Errors
    /// A step that cannot be done here; a file that cannot be written.
    pub fn new(files: &Files, setup: &[Step]) -> Result<Self, Unplaced> {
        let placed = Self::write(files).map_err(Unplaced::Failed);
        let mut placed = placed?;
        for step in setup {
            let done = placed.step(step);
            done.map_err(|e| Unplaced::NotHere(format!("{}: {e}", step_name(step))))?;
        }
        placed.made = placed.traces();
        Ok(placed)
    }

    /// The checkpoint or run.
    #[must_use]
    pub fn given(&self) -> PathBuf {
        self.root().join("given")
    }

    /// The directory itself, in which there is room for more.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// What beneath `given` is not as it was made.
    #[must_use]
    pub fn changed(&self) -> Vec<String> {
        /// More help nobody.
        const MOST: usize = 12;
        let now = self.traces();
        let paths: BTreeSet<&PathBuf> = self.made.keys().chain(now.keys()).collect();
        let differs = paths.into_iter().filter(|path| self.made.get(*path) != now.get(*path));
        let root = self.root();
        let differs = differs.take(MOST);
        differs.map(|path| path.strip_prefix(root).unwrap_or(path).display().to_string()).collect()
    }

    fn traces(&self) -> BTreeMap<PathBuf, Trace> {
        let (mut found, mut left) = (BTreeMap::new(), vec![self.given()]);
        while let Some(path) = left.pop() {
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() {
                let listing = fs::read_dir(&path).into_iter().flatten();
                left.extend(listing.filter_map(|entry| Some(entry.ok()?.path())));
            }
            let changed = (meta.ctime(), meta.ctime_nsec());
            let (inode, bytes, mode) = (meta.ino(), meta.len(), meta.mode());
            found.insert(path, Trace { inode, bytes, mode, changed });
        }
        found
    }

    fn write(files: &Files) -> Result<Self> {
        let named = |e| Error::io("make a directory for a case", e);
        // Adapters get the path that the system would tell them, too.
        let within = std::env::temp_dir().canonicalize().map_err(named)?;
        let dir = tempfile::Builder::new().prefix("waystation-case-").tempdir_in(within);
        let dir = dir.map_err(named)?;
        if dir.path().to_str().is_none() {
            // A request is JSON.
            let why = "expected a directory for temporary files whose path is UTF-8, found another; see TMPDIR";
            return Err(Error::new(Code::BadArgument, why));
        }
        let placed = Self { dir, denied: Vec::new(), made: BTreeMap::new() };
        fs::create_dir(placed.given()).map_err(named)?;
        for (path, bytes) in files {
            let whole = placed.beneath(path).map_err(|e| Error::io(path, e))?;
            if let Some(folder) = whole.parent() {
                fs::create_dir_all(folder).map_err(|e| Error::io(path, e))?;
            }
            fs::write(&whole, bytes).map_err(|e| Error::io(path, e))?;
        }
        Ok(placed)
    }

    /// A path of the case; it does not leave the case's directory.
    fn beneath(&self, path: &str) -> io::Result<PathBuf> {
        let plain = Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
        if !plain || path.is_empty() {
            return Err(io::Error::other(format!("expected a relative path, found {path:?}")));
        }
        Ok(self.given().join(path))
    }

    fn step(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::Symlink { path, target } => {
                let path = self.beneath(path)?;
                give_way(&path)?;
                let absolute = target.strip_prefix("given/").map(|inner| self.given().join(inner));
                std::os::unix::fs::symlink(absolute.unwrap_or_else(|| target.into()), path)
            }
            Step::Link { path, target } => {
                let (path, target) = (self.beneath(path)?, self.beneath(target)?);
                give_way(&path)?;
                fs::hard_link(target, path)
            }
            Step::Fifo { path } => {
                let path = self.beneath(path)?;
                give_way(&path)?;
                let mode = Mode::RUSR | Mode::WUSR;
                Ok(mknodat(CWD, path, FileType::Fifo, mode, 0)?)
            }
            Step::Mkdir { path } => fs::create_dir_all(self.beneath(path)?),
            Step::Truncate { path, bytes } => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false);
                options.open(self.beneath(path)?)?.set_len(*bytes)
            }
            Step::Rename { path, to } => fs::rename(self.beneath(path)?, self.beneath(to)?),
            Step::Deny { path } => self.deny(&self.beneath(path)?),
        }
    }

    fn deny(&mut self, path: &Path) -> io::Result<()> {
        let folder = fs::symlink_metadata(path)?.is_dir();
        fs::set_permissions(path, fs::Permissions::from_mode(0o000))?;
        self.denied.push(path.to_path_buf());
        let opened =
            if folder { fs::read_dir(path).map(drop) } else { fs::File::open(path).map(drop) };
        match opened {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            Err(e) => Err(e),
            Ok(()) => Err(io::Error::other("this user may read everything")),
        }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        for path in &self.denied {
            // What stays denied stays behind; that is untidy, not wrong.
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        }
    }
}

/// Removes what stands at `path`.
fn give_way(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(folder) => fs::create_dir_all(folder),
            None => Ok(()),
        },
        Err(e) => Err(e),
    }
}

fn step_name(step: &Step) -> String {
    let (what, path) = match step {
        Step::Symlink { path, .. } => ("symlink", path),
        Step::Link { path, .. } => ("link", path),
        Step::Fifo { path } => ("fifo", path),
        Step::Mkdir { path } => ("mkdir", path),
        Step::Truncate { path, .. } => ("truncate", path),
        Step::Rename { path, .. } => ("rename", path),
        Step::Deny { path } => ("deny", path),
    };
    format!("{what} {path}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;

    use super::*;

    fn files() -> Files {
        Files::from([("a".to_owned(), b"1".to_vec()), ("d/b".to_owned(), b"22".to_vec())])
    }

    #[test]
    fn files_and_steps() {
        let path = |s: &str| s.to_owned();
        let steps = [
            Step::Rename { path: path("a"), to: path("c") },
            Step::Symlink { path: path("a"), target: path("given/c") },
            Step::Symlink { path: path("d/b"), target: path("../c") },
            Step::Link { path: path("e"), target: path("c") },
            Step::Fifo { path: path("p") },
            Step::Mkdir { path: path("f") },
            Step::Truncate { path: path("hole"), bytes: 1 << 33 },
        ];
        let placed = Placed::new(&files(), &steps).unwrap();
        let given = placed.given();
        assert_eq!(fs::read(given.join("a")).unwrap(), b"1");
        assert_eq!(fs::read_link(given.join("a")).unwrap(), given.join("c"));
        assert_eq!(fs::read(given.join("d/b")).unwrap(), b"1");
        assert_eq!(fs::read(given.join("e")).unwrap(), b"1");
        assert!(fs::symlink_metadata(given.join("p")).unwrap().file_type().is_fifo());
        assert!(given.join("f").is_dir());
        assert_eq!(fs::metadata(given.join("hole")).unwrap().len(), 1 << 33);
        let root = placed.root().to_path_buf();
        drop(placed);
        assert!(!root.exists());
    }

    #[test]
    fn a_step_that_cannot_be_done_is_told() {
        for path in ["../x", "/x", ""] {
            let steps = [Step::Mkdir { path: path.to_owned() }];
            assert!(matches!(Placed::new(&files(), &steps), Err(Unplaced::NotHere(_))), "{path}");
        }
        let steps = [Step::Deny { path: "a".to_owned() }];
        let denied = Placed::new(&files(), &steps);
        if rustix::process::geteuid().is_root() {
            assert!(matches!(denied, Err(Unplaced::NotHere(why)) if why.contains("deny a")));
        } else {
            assert!(fs::read(denied.unwrap().given().join("a")).is_err());
        }
    }
}
