//! The file system as system calls: one method each, plain [`io::Error`]s.
//!
//! It knows directories, files and what the kernel says. It must not know retries, codes or
//! temporaries: those are [`DirStore`](crate::DirStore)'s, so every implementation gets them alike.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::SystemTime;

/// What a name stands for, links not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file of bytes.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link, pipe, socket or device: never opened, never followed.
    Other,
}

/// What the file system says of a name or an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Length in bytes; meaningful for [`Kind::Regular`] only.
    pub bytes: u64,
    /// When the content last changed, where that is known. A hint for people and ages, never proof.
    pub modified: Option<SystemTime>,
}

/// A file system, one method a system call. Names are single components (`name` module), relative
/// to an open directory, and are never resolved through a link.
///
/// Implementations neither retry nor reinterpret: `EINTR`, partial transfers and `EEXIST` go up as
/// they are. The one reading they do is "absent", which [`stat`](Fs::stat) answers with `None`.
///
/// # Errors
///
/// Every method returns the system's error; those of the same cause have the same
/// [`io::ErrorKind`] in every implementation.
pub trait Fs: Send + Sync + 'static {
    /// An open directory.
    type Dir: Send + Sync + 'static;
    /// An open file; positional reads and writes may run on many threads.
    type File: Send + Sync + 'static;

    /// Opens a directory by a path that the user gave: links in it are followed.
    fn open_root(&self, path: &Path) -> io::Result<Self::Dir>;

    /// Opens a subdirectory, never through a link.
    fn open_dir(&self, at: &Self::Dir, name: &str) -> io::Result<Self::Dir>;

    /// Makes a directory; one that exists is an error.
    fn make_dir(&self, at: &Self::Dir, name: &str) -> io::Result<()>;

    /// The names in a directory, in any order, without `.` and `..`. A byte that is not UTF-8
    /// stands as `/x` and two hex digits, which no real name can hold.
    fn list(&self, at: &Self::Dir) -> io::Result<Vec<String>>;

    /// What a name stands for; `None` when it is absent.
    fn stat(&self, at: &Self::Dir, name: &str) -> io::Result<Option<Stat>>;

    /// Opens for reading, neither following a link nor waiting for a pipe's other end.
    fn open_read(&self, at: &Self::Dir, name: &str) -> io::Result<Self::File>;

    /// Makes a file for writing and reading; a name that exists, even as a dangling link, is an
    /// error.
    fn create(&self, at: &Self::Dir, name: &str) -> io::Result<Self::File>;

    /// What an open file is.
    fn stat_file(&self, file: &Self::File) -> io::Result<Stat>;

    /// Reads up to `buf.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes up to `buf.len()` bytes at `offset`.
    fn write_at(&self, file: &Self::File, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes the file `bytes` long, with space reserved where the file system can.
    fn allocate(&self, file: &Self::File, bytes: u64) -> io::Result<()>;

    /// Forces a file's bytes and length to stable storage.
    fn sync_file(&self, file: &Self::File) -> io::Result<()>;

    /// Closes a file and says whether that went well: network file systems report lost writes here.
    fn close(&self, file: Self::File) -> io::Result<()>;

    /// Forces a directory's names to stable storage.
    fn sync_dir(&self, at: &Self::Dir) -> io::Result<()>;

    /// Gives a file a second name; `to` existing is an error.
    fn link(&self, at: &Self::Dir, from: &str, to: &str) -> io::Result<()>;

    /// Renames; `to` existing is an error.
    fn rename(&self, at: &Self::Dir, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name of anything but a directory.
    fn unlink(&self, at: &Self::Dir, name: &str) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, at: &Self::Dir, name: &str) -> io::Result<()>;

    /// The descriptor, for mapping; `None` where there is none.
    fn raw_fd<'f>(&self, file: &'f Self::File) -> Option<BorrowedFd<'f>> {
        let _ = file;
        None
    }
}
