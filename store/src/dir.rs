//! A [`Store`] over any [`Fs`]: one open directory and the order of calls that keeps promises.
//!
//! It knows what the system's errors mean for a name, and how an object comes into being whole.
//! It must not know what objects hold, nor make paths: every name is relative to the directory's
//! handle.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use waystation_format::{Code, Error, Result, rule};

use crate::fs::{Fs, Kind, Stat};
use crate::name;
use crate::object::{NewFile, OpenFile, retry, write_all};
use crate::store::{Listed, NewObject, Object, Put, Store};

/// A directory of a file system.
pub struct DirStore<F: Fs> {
    fs: Arc<F>,
    dir: F::Dir,
    path: String,
    /// Set when an fsync of the directory failed: no later one can be believed.
    sync_failed: AtomicBool,
}

impl<F: Fs> DirStore<F> {
    /// Opens the directory at `path`; links in the path are followed, as the user gave it.
    ///
    /// # Errors
    ///
    /// `not-found` when there is nothing, `not-regular` when it is no directory, those of the
    /// system.
    pub fn open(fs: Arc<F>, path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        match retry(|| fs.open_root(path)) {
            Ok(dir) => Ok(Self::of(fs, dir, shown)),
            Err(e) => Err(match e.kind() {
                io::ErrorKind::NotFound => Error::new(Code::NotFound, "no such directory"),
                io::ErrorKind::NotADirectory => Error::new(
                    Code::NotRegular,
                    "expected a directory, found something else on the path",
                ),
                _ => Error::io("open", e),
            }
            .in_file(shown)),
        }
    }

    pub(crate) fn of(fs: Arc<F>, dir: F::Dir, path: String) -> Self {
        Self { fs, dir, path, sync_failed: AtomicBool::new(false) }
    }

    fn child(&self, dir: F::Dir, name: &str) -> Arc<dyn Store> {
        let path = match self.path.as_str() {
            "" | "." => name.to_owned(),
            parent => Path::new(parent).join(name).display().to_string(),
        };
        Arc::new(Self::of(Arc::clone(&self.fs), dir, path))
    }

    /// The kind behind a name after a call on it failed: decides between "cannot" and "not this".
    fn kind(&self, name: &str) -> Option<Kind> {
        retry(|| self.fs.stat(&self.dir, name)).ok().flatten().map(|stat| stat.kind)
    }

    fn open_file(&self, name: &str) -> Result<OpenFile<F>> {
        // Looked at before it is opened: opening alone can rewind a tape or wake a pipe's writer.
        match retry(|| self.fs.stat(&self.dir, name)).map_err(|e| Error::io("stat", e))? {
            Some(stat) => expect_regular(stat.kind)?,
            None => return Err(missing()),
        }
        let file = match retry(|| self.fs.open_read(&self.dir, name)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(missing()),
            // Perhaps no longer what it was: links answer ELOOP, devices what they like.
            Err(e) => {
                self.kind(name).map_or(Ok(()), expect_regular)?;
                return Err(Error::io("open", e));
            }
        };
        let stat = retry(|| self.fs.stat_file(&file)).map_err(|e| Error::io("stat", e))?;
        expect_regular(stat.kind)?;
        let fs = Arc::clone(&self.fs);
        Ok(OpenFile { fs, file, name: name.to_owned(), bytes: stat.bytes })
    }

    fn create_file(&self, name: &str, bytes: Option<u64>) -> Result<F::File> {
        let file = self.fs.create(&self.dir, name).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Error::new(Code::Exists, "the name is already there"),
            _ => Error::io("create", e),
        })?;
        if let Some(bytes) = bytes.filter(|&bytes| bytes > 0)
            && let Err(e) = retry(|| self.fs.allocate(&file, bytes))
        {
            // Made just now and exclusively, so it is ours: give the space back.
            drop(file);
            let _ = self.fs.unlink(&self.dir, name);
            return Err(Error::io(&format!("reserve {bytes} bytes"), e));
        }
        Ok(file)
    }

    /// Writes and fsyncs the temporary, without its name yet.
    fn write_temporary(&self, temporary: &str, bytes: &[u8]) -> Result<()> {
        let file = self.create_file(temporary, None)?;
        write_all(&*self.fs, &file, bytes, 0)?;
        self.fs.sync_file(&file).map_err(|e| Error::io("fsync", e))?;
        self.fs.close(file).map_err(|e| Error::io("close", e))
    }

    fn give_name(&self, temporary: &str, name: &str) -> Result<Put> {
        let (what, done) = match self.fs.link(&self.dir, temporary, name) {
            Err(e) if links_unsupported(&e) => {
                ("rename", self.fs.rename(&self.dir, temporary, name))
            }
            other => ("link", other),
        };
        match done {
            Ok(()) => Ok(Put::Created),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(Put::Exists),
            Err(e) => Err(Error::io(what, e)),
        }
    }
}

impl<F: Fs> Store for DirStore<F> {
    fn describe(&self) -> String {
        self.path.clone()
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let mut names = retry(|| self.fs.list(&self.dir))
            .map_err(|e| Error::io("list", e).in_file(&self.path))?;
        names.sort_unstable();
        let mut listed = Vec::with_capacity(names.len());
        for name in names {
            let stat = retry(|| self.fs.stat(&self.dir, &name))
                .map_err(|e| Error::io("stat", e).in_file(&name))?;
            if let Some(stat) = stat {
                listed.push(Listed { name, stat });
            }
        }
        Ok(listed)
    }

    fn stat(&self, name: &str) -> Result<Option<Stat>> {
        name::check_listed(name)?;
        retry(|| self.fs.stat(&self.dir, name)).map_err(|e| Error::io("stat", e).in_file(name))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>> {
        name::check(name)?;
        match self.open_file(name) {
            Ok(file) => Ok(Arc::new(file)),
            Err(e) => Err(e.in_file(name)),
        }
    }

    fn create(&self, name: &str, bytes: Option<u64>) -> Result<Arc<dyn NewObject>> {
        name::check(name)?;
        let file = self.create_file(name, bytes).map_err(|e| e.in_file(name))?;
        Ok(Arc::new(NewFile::new(Arc::clone(&self.fs), file, name)))
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        name::check(name)?;
        let nonce = getrandom::u64()
            .map_err(|e| Error::io("draw a random name", io::Error::other(e)).in_file(name))?;
        let temporary = format!("tmp-{nonce:016x}");
        let put = self
            .write_temporary(&temporary, bytes)
            .and_then(|()| self.give_name(&temporary, name))
            .map_err(|e| e.in_file(name));
        // Garbage by its name, should this fail; after a rename it is gone already. One that this
        // call did not make is left alone.
        if !matches!(&put, Err(e) if e.code() == Code::Exists) {
            let _ = self.fs.unlink(&self.dir, &temporary);
        }
        put
    }

    fn remove(&self, name: &str) -> Result<bool> {
        name::check_listed(name)?;
        match self.fs.unlink(&self.dir, name) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(match self.kind(name) {
                Some(Kind::Directory) => {
                    Error::new(Code::NotRegular, "expected a file to remove, found a directory")
                }
                _ => Error::io("remove", e),
            }
            .in_file(name)),
        }
    }

    fn sync(&self) -> Result<()> {
        if self.sync_failed.load(Ordering::Acquire) {
            let why = "an earlier fsync of this directory failed";
            return Err(Error::rule(Code::Poisoned, rule::WRITER_DEAD, why).in_file(&self.path));
        }
        self.fs.sync_dir(&self.dir).map_err(|e| {
            self.sync_failed.store(true, Ordering::Release);
            Error::io("fsync", e).in_file(&self.path)
        })
    }

    fn dir(&self, name: &str) -> Result<Option<Arc<dyn Store>>> {
        name::check(name)?;
        match retry(|| self.fs.open_dir(&self.dir, name)) {
            Ok(dir) => Ok(Some(self.child(dir, name))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(match self.kind(name) {
                Some(Kind::Regular | Kind::Other) => not_directory(),
                Some(Kind::Directory) | None => Error::io("open", e),
            }
            .in_file(name)),
        }
    }

    fn make_dir(&self, name: &str) -> Result<Arc<dyn Store>> {
        name::check(name)?;
        self.fs.make_dir(&self.dir, name).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => {
                Error::new(Code::Exists, "the name is already there").in_file(name)
            }
            _ => Error::io("make directory", e).in_file(name),
        })?;
        let dir = retry(|| self.fs.open_dir(&self.dir, name))
            .map_err(|e| Error::io("open", e).in_file(name))?;
        Ok(self.child(dir, name))
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        name::check_listed(name)?;
        self.fs.remove_dir(&self.dir, name).map_err(|e| {
            match (e.kind(), self.kind(name)) {
                (io::ErrorKind::NotFound, _) => Error::new(Code::NotFound, "no such directory"),
                (_, Some(Kind::Regular | Kind::Other)) => not_directory(),
                _ => Error::io("remove directory", e),
            }
            .in_file(name)
        })
    }
}

impl<F: Fs> fmt::Debug for DirStore<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirStore").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Whether a failed link says "not on this file system" (or, EPERM, "not this file for you", as
/// some mounts do for want of a better word) rather than "not now".
fn links_unsupported(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::Unsupported || e.raw_os_error() == Some(Errno::PERM.raw_os_error())
}

fn expect_regular(kind: Kind) -> Result<()> {
    let found = match kind {
        Kind::Regular => return Ok(()),
        Kind::Directory => "a directory",
        Kind::Other => "a link, pipe, socket or device",
    };
    Err(Error::rule(
        Code::NotRegular,
        rule::DIR_REGULAR,
        format!("expected a regular file, found {found}"),
    ))
}

#[cold]
fn missing() -> Error {
    Error::rule(Code::FileMissing, rule::DIR_PRESENT, "expected a file, found nothing")
}

#[cold]
fn not_directory() -> Error {
    Error::new(Code::NotRegular, "expected a directory, found a file, link, pipe or device")
}
