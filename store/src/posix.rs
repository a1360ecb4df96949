//! The operating system's files.
//!
//! It knows flags and descriptors. It must not retry or reinterpret. Every name is one component
//! below an open directory, and the kernel is asked twice not to leave it: `openat2` resolves
//! beneath the directory and through no link; where it is not there, `O_NOFOLLOW` on a name that is
//! known to be one component says the same.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

#[cfg(target_os = "linux")]
use rustix::fs::ResolveFlags;
use rustix::fs::{self as sys, AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::fs::{Fs, Kind, Stat};
use crate::name;

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct PosixFs;

impl Fs for PosixFs {
    type Dir = OwnedFd;
    type File = OwnedFd;

    fn open_root(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(sys::open(path, DIRECTORY, Mode::empty())?)
    }

    fn open_dir(&self, at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        open_beneath(at, name, DIRECTORY, Mode::empty())
    }

    fn make_dir(&self, at: &OwnedFd, name: &str) -> io::Result<()> {
        Ok(sys::mkdirat(at, component(name)?.as_ref(), Mode::RWXU | Mode::RWXG | Mode::RWXO)?)
    }

    fn list(&self, at: &OwnedFd) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in sys::Dir::read_from(at)? {
            let entry = entry?;
            let bytes = entry.file_name().to_bytes();
            if bytes != b"." && bytes != b".." {
                names.push(name::encode(bytes));
            }
        }
        Ok(names)
    }

    fn stat(&self, at: &OwnedFd, name: &str) -> io::Result<Option<Stat>> {
        match sys::statat(at, component(name)?.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat_of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn open_read(&self, at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        // NONBLOCK: a pipe without a writer opens at once and is then seen for what it is.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        open_beneath(at, name, flags, Mode::empty())
    }

    fn create(&self, at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        open_beneath(at, name, flags, mode)
    }

    fn stat_file(&self, file: &OwnedFd) -> io::Result<Stat> {
        Ok(stat_of(&sys::fstat(file)?))
    }

    fn read_at(&self, file: &OwnedFd, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(file, buf, offset)?)
    }

    fn write_at(&self, file: &OwnedFd, buf: &[u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwrite(file, buf, offset)?)
    }

    fn allocate(&self, file: &OwnedFd, bytes: u64) -> io::Result<()> {
        match sys::fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(sys::ftruncate(file, bytes)?),
            other => Ok(other?),
        }
    }

    fn sync_file(&self, file: &OwnedFd) -> io::Result<()> {
        Ok(sys::fsync(file)?)
    }

    #[expect(unsafe_code, reason = "the standard library closes without saying how it went")]
    fn close(&self, file: OwnedFd) -> io::Result<()> {
        let fd = file.into_raw_fd();
        // SAFETY: `into_raw_fd` gave up the one owner of an open descriptor, so it is valid here
        // and nobody uses or closes it afterwards, whatever the call answers.
        Ok(unsafe { rustix::io::try_close(fd) }?)
    }

    fn sync_dir(&self, at: &OwnedFd) -> io::Result<()> {
        Ok(sys::fsync(at)?)
    }

    fn link(&self, at: &OwnedFd, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (component(from)?, component(to)?);
        Ok(sys::linkat(at, from.as_ref(), at, to.as_ref(), AtFlags::empty())?)
    }

    fn rename(&self, at: &OwnedFd, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (component(from)?, component(to)?);
        match sys::renameat_with(at, from.as_ref(), at, to.as_ref(), RenameFlags::NOREPLACE) {
            // The file system cannot promise it: look first. Between look and rename another may
            // put the name; both committers of an attempt then hold the same bytes.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                match sys::statat(at, to.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(_) => Err(Errno::EXIST.into()),
                    Err(Errno::NOENT) => Ok(sys::renameat(at, from.as_ref(), at, to.as_ref())?),
                    Err(e) => Err(e.into()),
                }
            }
            other => Ok(other?),
        }
    }

    fn unlink(&self, at: &OwnedFd, name: &str) -> io::Result<()> {
        Ok(sys::unlinkat(at, component(name)?.as_ref(), AtFlags::empty())?)
    }

    fn remove_dir(&self, at: &OwnedFd, name: &str) -> io::Result<()> {
        Ok(sys::unlinkat(at, component(name)?.as_ref(), AtFlags::REMOVEDIR)?)
    }

    fn raw_fd<'f>(&self, file: &'f OwnedFd) -> Option<BorrowedFd<'f>> {
        Some(file.as_fd())
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens one name below `at`, never through a link and never outside.
fn open_beneath(at: &OwnedFd, name: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let name = component(name)?;
    let flags = flags.union(OFlags::NOFOLLOW);
    #[cfg(target_os = "linux")]
    {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match sys::openat2(at, name.as_ref(), flags, mode, resolve) {
            // Kernels before 5.6 do not have the call; sandboxes answer EPERM to calls they do not know.
            Err(Errno::NOSYS | Errno::PERM) => {}
            other => return Ok(other?),
        }
    }
    Ok(sys::openat(at, name.as_ref(), flags, mode)?)
}

/// The kernel's bytes for a name: this is what keeps every call inside its directory.
fn component(name: &str) -> io::Result<Cow<'_, [u8]>> {
    name::decode(name).ok_or_else(|| Errno::INVAL.into())
}

fn stat_of(stat: &sys::Stat) -> Stat {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    };
    Stat { kind, bytes: u64::try_from(stat.st_size).unwrap_or(0), modified: modified(stat) }
}

/// Times before 1970 say nothing useful of a checkpoint.
fn modified(stat: &sys::Stat) -> Option<SystemTime> {
    let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).ok()?);
    #[allow(clippy::useless_conversion, reason = "the field's type differs by platform")]
    let rest = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(seconds)?.checked_add(rest)
}
