//! A file system that loses power: what may be on the disk after any call, and no more is promised
//! than POSIX does.
//!
//! It knows which changes are durable and which are not. It must not know why a caller makes them.
//!
//! The model is that of application-level crash testing: ALICE (Pillai et al., "All File Systems Are
//! Not Created Equal", OSDI 2014) and CrashMonkey (Mohan et al., OSDI 2018). Every call is taken
//! apart into changes that reach the disk each by itself, in any order:
//!
//! * an entry of a directory: `create`, `mkdir` and `link` add one, `unlink` and `rmdir` remove one,
//!   `rename` does both, and the two may be parted;
//! * the length of a file, which `write` and `allocate` make greater;
//! * the bytes of a write, in two pieces that are parted at a boundary of sectors.
//!
//! `fsync` of a file makes its bytes and length durable, and not its name. `fsync` of a directory
//! makes its entries durable, and neither the content of the files nor its own name. Whatever is not
//! durable is there after a crash or is not, each change by itself; where several are changes of one
//! entry or one byte, the last of them that got there counts. Bytes that a file has by its length and
//! that did not get there are zeros, or what was on that place of the disk before.
//!
//! [`Crash::images`] gives disks with all of this settled. [`Crash::shapes`] gives every one, but leaves
//! bytes open that nobody has read yet: most are never read while they are not durable, and cannot matter.
//!
//! No file system is as unkind in all of this at once: ext4 writes a file's name with the file, and
//! all of them keep some order. What holds here holds on them, too.

mod book;
mod crash;
mod image;
mod open;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dir::DirStore;
use crate::fs::{Fs, Stat};
use crate::memory::{MemoryDir, MemoryFile, MemoryFs};
use crate::store::Store;

use book::{Book, Ino};
pub use crash::{Bound, Coverage, Crash};
pub use image::Image;

/// A file system in memory that knows what is durable. Clones share it.
///
/// It runs as [`MemoryFs`] does; [`crash`](CrashingFs::crash) says afterwards what could be left of
/// it. Calls that change something are crash points: lines of [`log`](CrashingFs::log), such as
/// `create a/model-00000`, `write a/model-00000 4096+512`, `fsync a/model-00000`, `link a/tmp-0 a/b`.
#[derive(Clone)]
pub struct CrashingFs {
    memory: MemoryFs,
    book: Arc<Mutex<Book>>,
}

/// An open directory of a [`CrashingFs`].
#[derive(Debug)]
pub struct CrashingDir {
    inner: MemoryDir,
    ino: Ino,
    path: String,
}

/// An open file of a [`CrashingFs`].
#[derive(Debug)]
pub struct CrashingFile {
    inner: MemoryFile,
    ino: Ino,
    path: String,
}

impl CrashingFs {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::on(&Image::default())
    }

    /// A disk after power came back: what is there is durable.
    #[must_use]
    pub fn on(image: &Image) -> Self {
        Self { memory: image.memory(), book: Arc::new(Mutex::new(Book::on(image))) }
    }

    /// The root directory as a store.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        let dir = self.root();
        Arc::new(DirStore::of(Arc::new(self.clone()), dir, String::new()))
    }

    /// Every call so far that changed something, in order: crash point `n` is after the first `n`.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.book().steps.iter().map(|step| step.line.clone()).collect()
    }

    /// How many calls changed something so far.
    #[must_use]
    pub fn points(&self) -> usize {
        self.book().steps.len()
    }

    /// What power that fails after the first `point` changing calls leaves to chance.
    #[must_use]
    pub fn crash(&self, point: usize) -> Crash {
        self.book().crash(point)
    }

    fn root(&self) -> CrashingDir {
        CrashingDir { inner: self.memory.root(), ino: Ino::ROOT, path: String::new() }
    }

    /// Calls are made one at a time, so that the order of the log is that of the changes.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fs for CrashingFs {
    type Dir = CrashingDir;
    type File = CrashingFile;

    fn open_root(&self, path: &Path) -> io::Result<CrashingDir> {
        let mut dir = self.root();
        for component in path.components() {
            match component {
                std::path::Component::Normal(name) => {
                    dir = self.open_dir(&dir, name.to_str().ok_or(io::ErrorKind::NotFound)?)?;
                }
                std::path::Component::RootDir | std::path::Component::CurDir => {}
                _ => return Err(io::ErrorKind::NotFound.into()),
            }
        }
        Ok(dir)
    }

    fn open_dir(&self, at: &CrashingDir, name: &str) -> io::Result<CrashingDir> {
        let book = self.book();
        let inner = self.memory.open_dir(&at.inner, name)?;
        Ok(CrashingDir { inner, ino: book.entry(at.ino, name)?, path: at.child(name) })
    }

    fn make_dir(&self, at: &CrashingDir, name: &str) -> io::Result<()> {
        let mut book = self.book();
        self.memory.make_dir(&at.inner, name)?;
        let line = format!("mkdir {}", at.child(name));
        book.make_dir(line, at.ino, name);
        Ok(())
    }

    fn list(&self, at: &CrashingDir) -> io::Result<Vec<String>> {
        self.memory.list(&at.inner)
    }

    fn stat(&self, at: &CrashingDir, name: &str) -> io::Result<Option<Stat>> {
        self.memory.stat(&at.inner, name)
    }

    fn open_read(&self, at: &CrashingDir, name: &str) -> io::Result<CrashingFile> {
        let book = self.book();
        let inner = self.memory.open_read(&at.inner, name)?;
        Ok(CrashingFile { inner, ino: book.entry(at.ino, name)?, path: at.child(name) })
    }

    fn create(&self, at: &CrashingDir, name: &str) -> io::Result<CrashingFile> {
        let mut book = self.book();
        let inner = self.memory.create(&at.inner, name)?;
        let path = at.child(name);
        let ino = book.create(format!("create {path}"), at.ino, name);
        Ok(CrashingFile { inner, ino, path })
    }

    fn stat_file(&self, file: &CrashingFile) -> io::Result<Stat> {
        self.memory.stat_file(&file.inner)
    }

    fn read_at(&self, file: &CrashingFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.memory.read_at(&file.inner, buf, offset)
    }

    fn write_at(&self, file: &CrashingFile, buf: &[u8], offset: u64) -> io::Result<usize> {
        let mut book = self.book();
        let written = self.memory.write_at(&file.inner, buf, offset)?;
        let line = format!("write {} {offset}+{written}", file.path);
        book.write(line, file.ino, offset, buf.get(..written).unwrap_or(buf));
        Ok(written)
    }

    fn allocate(&self, file: &CrashingFile, bytes: u64) -> io::Result<()> {
        let mut book = self.book();
        self.memory.allocate(&file.inner, bytes)?;
        book.allocate(format!("allocate {} {bytes}", file.path), file.ino, bytes);
        Ok(())
    }

    fn sync_file(&self, file: &CrashingFile) -> io::Result<()> {
        self.book().sync(format!("fsync {}", file.path), file.ino);
        Ok(())
    }

    fn close(&self, file: CrashingFile) -> io::Result<()> {
        self.memory.close(file.inner)
    }

    fn sync_dir(&self, at: &CrashingDir) -> io::Result<()> {
        let shown = if at.path.is_empty() { "." } else { &at.path };
        self.book().sync(format!("fsync {shown}"), at.ino);
        Ok(())
    }

    fn link(&self, at: &CrashingDir, from: &str, to: &str) -> io::Result<()> {
        let mut book = self.book();
        self.memory.link(&at.inner, from, to)?;
        let ino = book.entry(at.ino, from)?;
        let line = format!("link {} {}", at.child(from), at.child(to));
        book.change_entries(line, at.ino, &[(to, Some(ino))]);
        Ok(())
    }

    fn rename(&self, at: &CrashingDir, from: &str, to: &str) -> io::Result<()> {
        let mut book = self.book();
        self.memory.rename(&at.inner, from, to)?;
        let ino = book.entry(at.ino, from)?;
        let line = format!("rename {} {}", at.child(from), at.child(to));
        book.change_entries(line, at.ino, &[(to, Some(ino)), (from, None)]);
        Ok(())
    }

    fn unlink(&self, at: &CrashingDir, name: &str) -> io::Result<()> {
        let mut book = self.book();
        self.memory.unlink(&at.inner, name)?;
        book.change_entries(format!("unlink {}", at.child(name)), at.ino, &[(name, None)]);
        Ok(())
    }

    fn remove_dir(&self, at: &CrashingDir, name: &str) -> io::Result<()> {
        let mut book = self.book();
        self.memory.remove_dir(&at.inner, name)?;
        book.change_entries(format!("rmdir {}", at.child(name)), at.ino, &[(name, None)]);
        Ok(())
    }
}

impl CrashingDir {
    fn child(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }
}

impl Default for CrashingFs {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CrashingFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashingFs").field("points", &self.points()).finish_non_exhaustive()
    }
}
