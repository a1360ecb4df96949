//! Files of a [`DirStore`](crate::DirStore): whole reads and writes out of partial ones.
//!
//! It knows retries, short files and when a file being written is dead. It must not know
//! directories.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use waystation_format::{Code, Error, Result, rule};

use crate::fs::Fs;
use crate::store::{NewObject, Object};

/// A file open for reading.
pub(crate) struct OpenFile<F: Fs> {
    pub(crate) fs: Arc<F>,
    pub(crate) file: F::File,
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

impl<F: Fs> Object for OpenFile<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        read_exact(&*self.fs, &self.file, buf, offset).map_err(|e| e.in_file(&self.name))
    }

    fn raw_fd(&self) -> Option<BorrowedFd<'_>> {
        self.fs.raw_fd(&self.file)
    }
}

/// A file being written.
pub(crate) struct NewFile<F: Fs> {
    fs: Arc<F>,
    name: String,
    /// `None` once finished or dead. Writers share the lock; only `finish` takes it alone.
    file: RwLock<Option<F::File>>,
    /// Set by the first failure: what the cache holds is then no longer known.
    dead: AtomicBool,
}

impl<F: Fs> NewFile<F> {
    pub(crate) fn new(fs: Arc<F>, file: F::File, name: &str) -> Self {
        Self {
            fs,
            name: name.to_owned(),
            file: RwLock::new(Some(file)),
            dead: AtomicBool::new(false),
        }
    }

    fn file(&self) -> RwLockReadGuard<'_, Option<F::File>> {
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file while it can be used; a dead one cannot, though its descriptor may still be there.
    fn usable<'f>(&self, file: Option<&'f F::File>) -> Result<&'f F::File> {
        if self.dead.load(Ordering::Acquire) {
            return Err(self.poisoned("an earlier write or fsync of this file failed"));
        }
        file.ok_or_else(|| self.poisoned("this file is already finished"))
    }

    fn poisoned(&self, why: &str) -> Error {
        Error::rule(Code::Poisoned, rule::WRITER_DEAD, why).in_file(&self.name)
    }

    fn kill(&self, e: Error) -> Error {
        self.dead.store(true, Ordering::Release);
        e.in_file(&self.name)
    }
}

impl<F: Fs> NewObject for NewFile<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let guard = self.file();
        let file = self.usable(guard.as_ref())?;
        write_all(&*self.fs, file, buf, offset).map_err(|e| self.kill(e))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let guard = self.file();
        let file = self.usable(guard.as_ref())?;
        read_exact(&*self.fs, file, buf, offset).map_err(|e| e.in_file(&self.name))
    }

    fn finish(&self) -> Result<()> {
        let mut guard = self.file.write().unwrap_or_else(PoisonError::into_inner);
        let file = guard.take();
        self.usable(file.as_ref())?;
        let Some(file) = file else { return Ok(()) };
        self.fs.sync_file(&file).map_err(|e| self.kill(Error::io("fsync", e)))?;
        self.fs.close(file).map_err(|e| self.kill(Error::io("close", e)))
    }
}

/// Fills `buf` from `offset` on, whatever the file system gives at a time.
pub(crate) fn read_exact<F: Fs>(fs: &F, file: &F::File, buf: &mut [u8], offset: u64) -> Result<()> {
    let wanted = buf.len();
    let mut rest = buf;
    let mut at = offset;
    while !rest.is_empty() {
        let read =
            retry(|| fs.read_at(file, rest, at)).map_err(|e| Error::io("read", e).at_offset(at))?;
        if read == 0 {
            return Err(Error::rule(
                Code::LengthMismatch,
                rule::DIR_LENGTH,
                format!("expected {wanted} bytes at {offset}, found the end of the file at {at}"),
            )
            .at_offset(at));
        }
        rest = rest.get_mut(read..).ok_or_else(|| too_many("read"))?;
        at = advance(at, read)?;
    }
    Ok(())
}

/// Writes all of `buf` at `offset`, whatever the file system takes at a time.
pub(crate) fn write_all<F: Fs>(fs: &F, file: &F::File, buf: &[u8], offset: u64) -> Result<()> {
    let mut rest = buf;
    let mut at = offset;
    while !rest.is_empty() {
        let written = retry(|| fs.write_at(file, rest, at))
            .and_then(|n| if n == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(n) })
            .map_err(|e| Error::io("write", e).at_offset(at))?;
        rest = rest.get(written..).ok_or_else(|| too_many("write"))?;
        at = advance(at, written)?;
    }
    Ok(())
}

/// Calls again while a signal interrupts. For calls that can be repeated without harm only: never
/// fsync, close or anything exclusive.
pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn advance(at: u64, by: usize) -> Result<u64> {
    u64::try_from(by).ok().and_then(|by| at.checked_add(by)).ok_or_else(|| {
        Error::new(Code::Limit, format!("file offset {at} + {by} is beyond 64 bits")).at_offset(at)
    })
}

#[cold]
fn too_many(what: &str) -> Error {
    Error::new(Code::Io, format!("{what}: the file system moved more bytes than it was given"))
}
