//! What readers and writers see: named objects in one flat directory.
//!
//! Object-safe; errors are the project's, with the file's name. It knows names, bytes and
//! durability. It must not know how they are kept: [`DirStore`](crate::DirStore) does.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use waystation_format::Result;

use crate::fs::Stat;

/// A name in a store and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name; one that is not UTF-8 has its stray bytes as `/x` and two hex digits.
    pub name: String,
    /// What it is, links not followed.
    pub stat: Stat,
}

/// How [`Store::put_new`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an object that exists may hold other bytes: read it back"]
pub enum Put {
    /// The name now stands for exactly the bytes given.
    Created,
    /// The name was there before; nothing was changed.
    Exists,
}

/// Named objects in one flat directory.
///
/// Names are single components: not empty, `.` or `..`, without `/` and NUL; every method answers
/// others with [`BadArgument`](waystation_format::Code::BadArgument). [`stat`](Store::stat),
/// [`remove`](Store::remove) and [`remove_dir`](Store::remove_dir) also take every name that
/// [`list`](Store::list) gives. Nothing is ever replaced, and no link is followed.
///
/// Errors of the system are `io`, `io-denied` or `io-full`; only the others are named below.
pub trait Store: Send + Sync {
    /// The path or address, for messages.
    fn describe(&self) -> String;

    /// Everything in the directory, sorted by the bytes of the names.
    ///
    /// # Errors
    ///
    /// Those of the system. A name that vanishes meanwhile is left out.
    fn list(&self) -> Result<Vec<Listed>>;

    /// What a name stands for; `None` when absent.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn stat(&self, name: &str) -> Result<Option<Stat>>;

    /// Opens a regular file for reading.
    ///
    /// # Errors
    ///
    /// `file-missing` when absent; `not-regular` for a link, directory, pipe, socket or device,
    /// without waiting for any of them.
    fn open(&self, name: &str) -> Result<Arc<dyn Object>>;

    /// Makes a file to be written at once, here and by other threads. With `bytes` it has that
    /// length from the start, and the space is reserved where the file system can.
    ///
    /// # Errors
    ///
    /// `exists` when the name is there, whatever it stands for; `io-full` when the space is not.
    fn create(&self, name: &str, bytes: Option<u64>) -> Result<Arc<dyn NewObject>>;

    /// Puts `bytes` under `name` so that the name is only ever seen with all of them: temporary
    /// `tmp-<16 hex>`, write, fsync, checked close, link, unlink of the temporary. Where there are
    /// no hard links the temporary is renamed. The name itself is durable after
    /// [`sync`](Store::sync).
    ///
    /// # Errors
    ///
    /// Those of the system. After one the name may stand for the bytes nevertheless (the reply of
    /// the link was lost): the caller reads back.
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<Put>;

    /// Removes a name of anything but a directory; `false` when absent.
    ///
    /// # Errors
    ///
    /// `not-regular` for a directory.
    fn remove(&self, name: &str) -> Result<bool>;

    /// Makes the names of this directory durable.
    ///
    /// # Errors
    ///
    /// Those of the system; after one, `poisoned` for ever: the kernel may have dropped what it
    /// could not write, and a second success would be a lie.
    fn sync(&self) -> Result<()>;

    /// Opens a subdirectory; `None` when absent.
    ///
    /// # Errors
    ///
    /// `not-regular` for a link or anything else that is not a directory.
    fn dir(&self, name: &str) -> Result<Option<Arc<dyn Store>>>;

    /// Makes a subdirectory and opens it. Durable after [`sync`](Store::sync) of this one.
    ///
    /// # Errors
    ///
    /// `exists` when the name is there, whatever it stands for.
    fn make_dir(&self, name: &str) -> Result<Arc<dyn Store>>;

    /// Removes an empty subdirectory.
    ///
    /// # Errors
    ///
    /// `not-found` when absent, `not-regular` when it is no directory, `io` when it is not empty.
    fn remove_dir(&self, name: &str) -> Result<()>;
}

/// A regular file, open for reading. Reads may run on many threads.
pub trait Object: Send + Sync {
    /// The name in its store.
    fn name(&self) -> &str;

    /// Length in bytes when it was opened.
    fn bytes(&self) -> u64;

    /// Fills `buf` from byte `offset` on.
    ///
    /// # Errors
    ///
    /// `length-mismatch` when the file ends before; those of the system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// The descriptor, for mapping; `None` where there is none.
    fn raw_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A file being written. Writes may run on many threads; [`finish`](NewObject::finish) waits for
/// those under way.
pub trait NewObject: Send + Sync {
    /// The name in its store.
    fn name(&self) -> &str;

    /// Writes all of `buf` at byte `offset`.
    ///
    /// # Errors
    ///
    /// Those of the system: they kill the object. `poisoned` when it is dead or finished.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// Fills `buf` from byte `offset` on, from what was written.
    ///
    /// # Errors
    ///
    /// `length-mismatch` when the file ends before; `poisoned` when it is dead or finished.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// fsync, once, on the descriptor that wrote, then a checked close.
    ///
    /// # Errors
    ///
    /// Those of the system: they kill the object, and fsync is never tried again. `poisoned` when
    /// a write failed before, or after the first call.
    fn finish(&self) -> Result<()>;
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.describe())
    }
}

impl fmt::Debug for dyn Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}, {} bytes)", self.name(), self.bytes())
    }
}

impl fmt::Debug for dyn NewObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewObject({})", self.name())
    }
}
