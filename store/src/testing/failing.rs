//! A file system that fails where a test says, and notes every call in order.
//!
//! It knows calls and faults. It must not know why a caller makes a call.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::fs::{Fs, Stat};

/// A method of [`Fs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// [`Fs::open_root`]
    OpenRoot,
    /// [`Fs::open_dir`]
    OpenDir,
    /// [`Fs::make_dir`]
    MakeDir,
    /// [`Fs::list`]
    List,
    /// [`Fs::stat`]
    Stat,
    /// [`Fs::open_read`]
    OpenRead,
    /// [`Fs::create`]
    Create,
    /// [`Fs::stat_file`]
    StatFile,
    /// [`Fs::read_at`]
    ReadAt,
    /// [`Fs::write_at`]
    WriteAt,
    /// [`Fs::allocate`]
    Allocate,
    /// [`Fs::sync_file`]
    SyncFile,
    /// [`Fs::close`]
    Close,
    /// [`Fs::sync_dir`]
    SyncDir,
    /// [`Fs::link`]
    Link,
    /// [`Fs::rename`]
    Rename,
    /// [`Fs::unlink`]
    Unlink,
    /// [`Fs::remove_dir`]
    RemoveDir,
}

impl Op {
    /// The word in the log.
    fn word(self) -> &'static str {
        match self {
            Self::OpenRoot => "root",
            Self::OpenDir => "opendir",
            Self::MakeDir => "mkdir",
            Self::List => "list",
            Self::Stat => "stat",
            Self::OpenRead => "open",
            Self::Create => "create",
            Self::StatFile => "fstat",
            Self::ReadAt => "read",
            Self::WriteAt => "write",
            Self::Allocate => "allocate",
            Self::SyncFile | Self::SyncDir => "fsync",
            Self::Close => "close",
            Self::Link => "link",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::RemoveDir => "rmdir",
        }
    }

    /// Whether it changes names or decides what lasts.
    fn changes(self) -> bool {
        matches!(
            self,
            Self::MakeDir
                | Self::Create
                | Self::SyncFile
                | Self::Close
                | Self::SyncDir
                | Self::Link
                | Self::Rename
                | Self::Unlink
                | Self::RemoveDir
        )
    }
}

/// Wraps a file system; clones share faults and log.
///
/// Lines of the log are a word and paths relative to the root that was opened, `.` for itself:
/// `create model-00000`, `write model-00000 4096+512`, `fsync model-00000`, `close model-00000`,
/// `fsync .`, `link tmp-* manifest.json`, `mkdir sub`, `create sub/a`. The random part of a
/// temporary's name is shown as `*`. A call that a fault hits ends in ` failed`.
pub struct FailingFs<F> {
    inner: Arc<F>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    log: Vec<(Op, String)>,
    faults: Vec<Fault>,
    races: Vec<Race>,
    largest_transfer: Option<usize>,
    /// Bytes that may still be written.
    space: Option<u64>,
}

struct Fault {
    op: Op,
    /// Calls to let pass.
    wait: usize,
    /// Only calls on a path that ends in this.
    name: Option<String>,
    errno: Errno,
    /// Whether the call is made all the same, and only its reply lost.
    lost_reply: bool,
    /// Whether it stays after it hit.
    for_ever: bool,
}

/// What another process does just before a call.
struct Race {
    op: Op,
    /// Calls to let pass.
    wait: usize,
    run: Box<dyn FnOnce() + Send>,
}

/// An open directory of a [`FailingFs`].
#[derive(Debug)]
pub struct FailingDir<D> {
    inner: D,
    path: String,
}

/// An open file of a [`FailingFs`].
#[derive(Debug)]
pub struct FailingFile<T> {
    inner: T,
    path: String,
}

impl<F: Fs> FailingFs<F> {
    /// Wraps `inner`; without faults it behaves as `inner` does.
    #[must_use]
    pub fn new(inner: F) -> Self {
        Self { inner: Arc::new(inner), state: Arc::default() }
    }

    /// The `nth` call of `op` from now on (1 = the next) fails with `errno` and does nothing.
    pub fn fail(&self, op: Op, nth: usize, errno: Errno) {
        self.add(op, nth, None, errno, false, false);
    }

    /// The `nth` call of `op` from now on is made, and its reply lost: the caller gets `errno`
    /// though it took effect.
    pub fn lose_reply(&self, op: Op, nth: usize, errno: Errno) {
        self.add(op, nth, None, errno, true, false);
    }

    /// Every call of `op` from now on fails with `errno`: a disk that cannot do it.
    pub fn fail_always(&self, op: Op, errno: Errno) {
        self.add(op, 1, None, errno, false, true);
    }

    /// Every call of `op` on `name` fails with `errno`; for a link or rename, `name` is the new one.
    pub fn fail_on(&self, op: Op, name: &str, errno: Errno) {
        self.add(op, 1, Some(name.to_owned()), errno, false, true);
    }

    /// Runs `run` just before the `nth` call of `op` from now on: what another process does in
    /// between two calls of the caller.
    pub fn before(&self, op: Op, nth: usize, run: impl FnOnce() + Send + 'static) {
        let wait = nth.saturating_sub(1);
        self.state().races.push(Race { op, wait, run: Box::new(run) });
    }

    /// No call moves more than `bytes` at a time from now on: partial reads and writes; with 0, no
    /// progress at all.
    pub fn limit_transfer(&self, bytes: usize) {
        self.state().largest_transfer = Some(bytes);
    }

    /// After `bytes` more written bytes the disk is full: the write that crosses the line is
    /// partial, the next fails with `ENOSPC`, as does every reservation of more than is left.
    pub fn limit_space(&self, bytes: u64) {
        self.state().space = Some(bytes);
    }

    /// Removes every fault, race and limit.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.races.clear();
        state.largest_transfer = None;
        state.space = None;
    }

    /// Every call so far, in order.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.state().log.iter().map(|(_, line)| line.clone()).collect()
    }

    /// The calls so far that change names or decide what lasts: create, fsync, close, link, rename,
    /// unlink, mkdir, rmdir.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        let state = self.state();
        let changes = state.log.iter().filter(|(op, _)| op.changes());
        changes.map(|(_, line)| line.clone()).collect()
    }

    /// Forgets the log.
    pub fn clear_log(&self) {
        self.state().log.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(
        &self,
        op: Op,
        nth: usize,
        name: Option<String>,
        errno: Errno,
        lost_reply: bool,
        for_ever: bool,
    ) {
        let wait = nth.saturating_sub(1);
        self.state().faults.push(Fault { op, wait, name, errno, lost_reply, for_ever });
    }

    /// Notes a call on `path` and makes it, unless a fault hits it.
    fn call<T>(
        &self,
        op: Op,
        path: &str,
        detail: &str,
        make: impl FnOnce(&F) -> io::Result<T>,
    ) -> io::Result<T> {
        // The lock is let go first: what races may come back here by another handle.
        let races = self.state().races(op);
        for run in races {
            run();
        }
        let hit = self.state().note(op, path, detail);
        match hit {
            None => make(&self.inner),
            Some((errno, false)) => Err(errno.into()),
            Some((errno, true)) => {
                drop(make(&self.inner)?);
                Err(errno.into())
            }
        }
    }
}

impl State {
    /// Takes what runs before this call.
    fn races(&mut self, op: Op) -> Vec<Box<dyn FnOnce() + Send>> {
        let mut due = Vec::new();
        let mut later = Vec::new();
        for mut race in std::mem::take(&mut self.races) {
            if race.op != op {
                later.push(race);
            } else if let Some(less) = race.wait.checked_sub(1) {
                race.wait = less;
                later.push(race);
            } else {
                due.push(race.run);
            }
        }
        self.races = later;
        due
    }

    /// Writes the line and gives the fault that hits, with whether only the reply is lost.
    fn note(&mut self, op: Op, path: &str, detail: &str) -> Option<(Errno, bool)> {
        let hit = self.hit(op, path);
        let space = if detail.is_empty() { "" } else { " " };
        // A link and a rename show their old name first.
        let (first, second) = match op {
            Op::Link | Op::Rename => (detail, path),
            _ => (path, detail),
        };
        let failed = if hit.is_some() { " failed" } else { "" };
        let line = format!("{} {}{space}{}{failed}", op.word(), masked(first), masked(second));
        self.log.push((op, line));
        hit
    }

    fn hit(&mut self, op: Op, path: &str) -> Option<(Errno, bool)> {
        let mut hit = None;
        self.faults.retain_mut(|fault| {
            let meant =
                fault.op == op && fault.name.as_ref().is_none_or(|name| is_named(path, name));
            if hit.is_some() || !meant {
                return true;
            }
            if let Some(less) = fault.wait.checked_sub(1) {
                fault.wait = less;
                return true;
            }
            hit = Some((fault.errno, fault.lost_reply));
            fault.for_ever
        });
        hit
    }
}

impl<F: Fs> Fs for FailingFs<F> {
    type Dir = FailingDir<F::Dir>;
    type File = FailingFile<F::File>;

    fn open_root(&self, path: &Path) -> io::Result<Self::Dir> {
        let inner = self.call(Op::OpenRoot, ".", "", |fs| fs.open_root(path))?;
        Ok(FailingDir { inner, path: ".".to_owned() })
    }

    fn open_dir(&self, at: &Self::Dir, name: &str) -> io::Result<Self::Dir> {
        let path = at.child(name);
        let inner = self.call(Op::OpenDir, &path, "", |fs| fs.open_dir(&at.inner, name))?;
        Ok(FailingDir { inner, path })
    }

    fn make_dir(&self, at: &Self::Dir, name: &str) -> io::Result<()> {
        self.call(Op::MakeDir, &at.child(name), "", |fs| fs.make_dir(&at.inner, name))
    }

    fn list(&self, at: &Self::Dir) -> io::Result<Vec<String>> {
        self.call(Op::List, &at.path, "", |fs| fs.list(&at.inner))
    }

    fn stat(&self, at: &Self::Dir, name: &str) -> io::Result<Option<Stat>> {
        self.call(Op::Stat, &at.child(name), "", |fs| fs.stat(&at.inner, name))
    }

    fn open_read(&self, at: &Self::Dir, name: &str) -> io::Result<Self::File> {
        let path = at.child(name);
        let inner = self.call(Op::OpenRead, &path, "", |fs| fs.open_read(&at.inner, name))?;
        Ok(FailingFile { inner, path })
    }

    fn create(&self, at: &Self::Dir, name: &str) -> io::Result<Self::File> {
        let path = at.child(name);
        let inner = self.call(Op::Create, &path, "", |fs| fs.create(&at.inner, name))?;
        Ok(FailingFile { inner, path })
    }

    fn stat_file(&self, file: &Self::File) -> io::Result<Stat> {
        self.call(Op::StatFile, &file.path, "", |fs| fs.stat_file(&file.inner))
    }

    fn read_at(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.state().largest_transfer.unwrap_or(usize::MAX).min(buf.len());
        let buf = buf.get_mut(..most).unwrap_or_default();
        let detail = format!("{offset}+{}", buf.len());
        self.call(Op::ReadAt, &file.path, &detail, |fs| fs.read_at(&file.inner, buf, offset))
    }

    fn write_at(&self, file: &Self::File, buf: &[u8], offset: u64) -> io::Result<usize> {
        let (most, space) = {
            let state = self.state();
            (state.largest_transfer.unwrap_or(usize::MAX).min(buf.len()), state.space)
        };
        let room = space.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let buf = buf.get(..most.min(room)).unwrap_or_default();
        let detail = format!("{offset}+{}", buf.len());
        let written = self.call(Op::WriteAt, &file.path, &detail, |fs| {
            if room == 0 && most > 0 {
                return Err(Errno::NOSPC.into());
            }
            fs.write_at(&file.inner, buf, offset)
        })?;
        if let Some(left) = &mut self.state().space {
            *left = left.saturating_sub(u64::try_from(written).unwrap_or(u64::MAX));
        }
        Ok(written)
    }

    fn allocate(&self, file: &Self::File, bytes: u64) -> io::Result<()> {
        let full = self.state().space.is_some_and(|left| bytes > left);
        self.call(Op::Allocate, &file.path, &bytes.to_string(), |fs| {
            if full {
                return Err(Errno::NOSPC.into());
            }
            fs.allocate(&file.inner, bytes)
        })
    }

    fn sync_file(&self, file: &Self::File) -> io::Result<()> {
        self.call(Op::SyncFile, &file.path, "", |fs| fs.sync_file(&file.inner))
    }

    fn close(&self, file: Self::File) -> io::Result<()> {
        self.call(Op::Close, &file.path, "", |fs| fs.close(file.inner))
    }

    fn sync_dir(&self, at: &Self::Dir) -> io::Result<()> {
        self.call(Op::SyncDir, &at.path, "", |fs| fs.sync_dir(&at.inner))
    }

    fn link(&self, at: &Self::Dir, from: &str, to: &str) -> io::Result<()> {
        let old = at.child(from);
        self.call(Op::Link, &at.child(to), &old, |fs| fs.link(&at.inner, from, to))
    }

    fn rename(&self, at: &Self::Dir, from: &str, to: &str) -> io::Result<()> {
        let old = at.child(from);
        self.call(Op::Rename, &at.child(to), &old, |fs| fs.rename(&at.inner, from, to))
    }

    fn unlink(&self, at: &Self::Dir, name: &str) -> io::Result<()> {
        self.call(Op::Unlink, &at.child(name), "", |fs| fs.unlink(&at.inner, name))
    }

    fn remove_dir(&self, at: &Self::Dir, name: &str) -> io::Result<()> {
        self.call(Op::RemoveDir, &at.child(name), "", |fs| fs.remove_dir(&at.inner, name))
    }

    fn raw_fd<'f>(&self, file: &'f Self::File) -> Option<BorrowedFd<'f>> {
        self.inner.raw_fd(&file.inner)
    }
}

impl<D> FailingDir<D> {
    fn child(&self, name: &str) -> String {
        if self.path == "." { name.to_owned() } else { format!("{}/{name}", self.path) }
    }
}

impl<F> Clone for FailingFs<F> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), state: Arc::clone(&self.state) }
    }
}

impl<F> fmt::Debug for FailingFs<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailingFs").finish_non_exhaustive()
    }
}

/// Whether `path` is `name`, or ends in it after a slash.
fn is_named(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// The path with the random part of a temporary's name as `*`.
fn masked(path: &str) -> String {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    if !name.starts_with("tmp-") {
        return path.to_owned();
    }
    if dir.is_empty() { "tmp-*".to_owned() } else { format!("{dir}/tmp-*") }
}
