//! A store that notes what is read and written through it.
//!
//! It knows names, offsets and lengths. It must change nothing: every call goes to the store it
//! wraps. Reads through a mapping of [`Object::raw_fd`] are not seen.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use waystation_format::Result;

use crate::fs::Stat;
use crate::store::{Listed, NewObject, Object, Put, Store};

/// One read or write that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The object's name; in a subdirectory `sub/name`.
    pub name: String,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Wraps a store and counts. Clones and the stores of subdirectories share the counts.
#[derive(Clone)]
pub struct Counting {
    inner: Arc<dyn Store>,
    /// What names are shown with: empty, or `sub/`.
    prefix: String,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    reads: Mutex<Vec<Access>>,
    writes: Mutex<Vec<Access>>,
}

impl Counting {
    /// Counts what goes through to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, prefix: String::new(), log: Arc::default() }
    }

    /// Every read so far, in the order in which they ended.
    #[must_use]
    pub fn reads(&self) -> Vec<Access> {
        lock(&self.log.reads).clone()
    }

    /// Every write so far; a [`Store::put_new`] that created is one.
    #[must_use]
    pub fn writes(&self) -> Vec<Access> {
        lock(&self.log.writes).clone()
    }

    /// Bytes read from objects whose name `wanted` accepts, repeated reads counted each time.
    pub fn bytes_read(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        total(&lock(&self.log.reads), wanted)
    }

    /// Bytes written to objects whose name `wanted` accepts.
    pub fn bytes_written(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        total(&lock(&self.log.writes), wanted)
    }

    /// Forgets what was counted.
    pub fn reset(&self) {
        lock(&self.log.reads).clear();
        lock(&self.log.writes).clear();
    }

    fn shown(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn below(&self, inner: Arc<dyn Store>, name: &str) -> Arc<dyn Store> {
        let prefix = format!("{}{name}/", self.prefix);
        Arc::new(Self { inner, prefix, log: Arc::clone(&self.log) })
    }
}

impl Store for Counting {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.inner.list()
    }

    fn stat(&self, name: &str) -> Result<Option<Stat>> {
        self.inner.stat(name)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>> {
        let inner = self.inner.open(name)?;
        Ok(Arc::new(Counted { inner, shown: self.shown(name), log: Arc::clone(&self.log) }))
    }

    fn create(&self, name: &str, bytes: Option<u64>) -> Result<Arc<dyn NewObject>> {
        let inner = self.inner.create(name, bytes)?;
        Ok(Arc::new(Counted { inner, shown: self.shown(name), log: Arc::clone(&self.log) }))
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        let put = self.inner.put_new(name, bytes)?;
        if put == Put::Created {
            note(&self.log.writes, &self.shown(name), 0, bytes.len());
        }
        Ok(put)
    }

    fn remove(&self, name: &str) -> Result<bool> {
        self.inner.remove(name)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn dir(&self, name: &str) -> Result<Option<Arc<dyn Store>>> {
        Ok(self.inner.dir(name)?.map(|inner| self.below(inner, name)))
    }

    fn make_dir(&self, name: &str) -> Result<Arc<dyn Store>> {
        Ok(self.below(self.inner.make_dir(name)?, name))
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        self.inner.remove_dir(name)
    }
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counting").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// An object or a new object, counted.
struct Counted<O: ?Sized> {
    inner: Arc<O>,
    shown: String,
    log: Arc<Log>,
}

impl Object for Counted<dyn Object> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)?;
        note(&self.log.reads, &self.shown, offset, buf.len());
        Ok(())
    }

    fn raw_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.raw_fd()
    }
}

impl NewObject for Counted<dyn NewObject> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)?;
        note(&self.log.writes, &self.shown, offset, buf.len());
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)?;
        note(&self.log.reads, &self.shown, offset, buf.len());
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.inner.finish()
    }
}

fn note(log: &Mutex<Vec<Access>>, name: &str, offset: u64, bytes: usize) {
    // A length in memory always fits.
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    lock(log).push(Access { name: name.to_owned(), offset, bytes });
}

fn total(log: &[Access], wanted: impl Fn(&str) -> bool) -> u64 {
    let wanted = log.iter().filter(|access| wanted(&access.name));
    wanted.fold(0, |sum: u64, access| sum.saturating_add(access.bytes))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryFs;

    #[test]
    fn every_read_and_write_is_noted_once() {
        let counting = Counting::new(MemoryFs::new().store());
        let store: Arc<dyn Store> = Arc::new(counting.clone());
        assert_eq!(store.put_new("a", b"0123456789").unwrap(), Put::Created);
        assert_eq!(store.put_new("a", b"other").unwrap(), Put::Exists);
        let sub = store.make_dir("sub").unwrap();
        let new = sub.create("b", None).unwrap();
        new.write_at(b"xyz", 5).unwrap();
        new.finish().unwrap();
        let object = store.open("a").unwrap();
        object.read_at(&mut [0; 4], 3).unwrap();
        object.read_at(&mut [0; 4], 8).unwrap_err();
        store.dir("sub").unwrap().unwrap().open("b").unwrap().read_at(&mut [0; 8], 0).unwrap();

        let access = |name: &str, offset, bytes| Access { name: name.to_owned(), offset, bytes };
        assert_eq!(counting.writes(), [access("a", 0, 10), access("sub/b", 5, 3)]);
        assert_eq!(counting.reads(), [access("a", 3, 4), access("sub/b", 0, 8)]);
        assert_eq!(counting.bytes_read(|_| true), 12);
        assert_eq!(counting.bytes_read(|name| name == "a"), 4);
        assert_eq!(counting.bytes_written(|name| name != "a"), 3);
        counting.reset();
        assert_eq!((counting.reads(), counting.writes()), (vec![], vec![]));
    }
}
