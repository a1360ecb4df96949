//! A file system whose process stops at a chosen call, to be killed there or let go on.
//!
//! It counts calls and says on standard output which of them took effect. It must not know what
//! the files mean.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use waystation_store::{Fs, Stat};

/// Which calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// All.
    Calls,
    /// Those that change names or decide what lasts: create, fsync, close, link, unlink, …
    Changes,
    /// Writes of bytes.
    Writes,
}

/// Where in the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Before,
    /// When half of the bytes are written; any other call than a write is made whole.
    Half,
    After,
}

/// The call at which a process stops, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub among: Among,
    pub nth: u64,
    pub moment: Moment,
}

/// How many calls a process made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub calls: u64,
    pub changes: u64,
    pub writes: u64,
}

impl Counts {
    /// As many of the kind.
    pub fn of(self, among: Among) -> u64 {
        match among {
            Among::Calls => self.calls,
            Among::Changes => self.changes,
            Among::Writes => self.writes,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { calls: next()?, changes: next()?, writes: next()? })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.calls, self.changes, self.writes)
    }
}

impl Stop {
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let among = match words.next()? {
            "calls" => Among::Calls,
            "changes" => Among::Changes,
            "writes" => Among::Writes,
            _ => return None,
        };
        let nth = words.next()?.parse().ok()?;
        let moment = match words.next()? {
            "before" => Moment::Before,
            "half" => Moment::Half,
            "after" => Moment::After,
            _ => return None,
        };
        Some(Self { among, nth, moment })
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let among = match self.among {
            Among::Calls => "calls",
            Among::Changes => "changes",
            Among::Writes => "writes",
        };
        let moment = match self.moment {
            Moment::Before => "before",
            Moment::Half => "half",
            Moment::After => "after",
        };
        write!(f, "{among} {} {moment}", self.nth)
    }
}

/// Wraps a file system; clones share the count.
pub struct StopAt<F> {
    inner: Arc<F>,
    state: Arc<Mutex<State>>,
}

struct State {
    counts: Counts,
    stop: Option<Stop>,
}

/// An open directory and its path below the root, `.` for the root itself.
pub struct StopDir<D> {
    inner: D,
    path: String,
}

/// An open file and its path below the root.
pub struct StopFile<T> {
    inner: T,
    path: String,
}

impl<F: Fs> StopAt<F> {
    pub fn new(inner: F, stop: Option<Stop>) -> Self {
        let state = State { counts: Counts::default(), stop };
        Self { inner: Arc::new(inner), state: Arc::new(Mutex::new(state)) }
    }

    pub fn counts(&self) -> Counts {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).counts
    }

    /// Makes a call, or stops at it. `make` is told whether to do half of it only.
    fn call<T>(
        &self,
        word: &str,
        kind: Among,
        path: &str,
        make: impl FnOnce(bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.counts.calls += 1;
        match kind {
            Among::Calls => {}
            Among::Changes => state.counts.changes += 1,
            Among::Writes => state.counts.writes += 1,
        }
        let counts = state.counts;
        let hit = state.stop.filter(|stop| {
            (stop.among == Among::Calls || stop.among == kind) && stop.nth == counts.of(stop.among)
        });
        let Some(stop) = hit else {
            drop(state);
            return report(word, kind, path, make(false));
        };
        // The lock stays taken, so that every other thread stops at its own next call.
        state.stop = None;
        if stop.moment == Moment::Before {
            hold(&format!("before {word} {path}"));
            return report(word, kind, path, make(false));
        }
        let made = report(word, kind, path, make(stop.moment == Moment::Half));
        hold(&format!("after {word} {path}"));
        made
    }

    fn look<T>(
        &self,
        word: &str,
        path: &str,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.call(word, Among::Calls, path, |_| make())
    }

    fn change<T>(
        &self,
        word: &str,
        path: &str,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.call(word, Among::Changes, path, |_| make())
    }
}

impl<F> Clone for StopAt<F> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), state: Arc::clone(&self.state) }
    }
}

/// Says that a change took effect.
fn report<T>(word: &str, kind: Among, path: &str, made: io::Result<T>) -> io::Result<T> {
    if kind == Among::Changes && made.is_ok() {
        say(&format!("did {word} {path}"));
    }
    made
}

/// One line to whoever started this process, at once. Past any capture by the test harness.
pub fn say(line: &str) {
    let _ = io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

/// Stops until the parent sends a line. When it closes the pipe or is gone, so is this process.
fn hold(place: &str) {
    say(&format!("stopped {place}"));
    let read = io::stdin().lock().read_line(&mut String::new());
    if !matches!(read, Ok(bytes) if bytes > 0) {
        process::exit(3);
    }
}

impl<D> StopDir<D> {
    fn child(&self, name: &str) -> String {
        if self.path == "." { name.to_owned() } else { format!("{}/{name}", self.path) }
    }
}

impl<F: Fs> Fs for StopAt<F> {
    type Dir = StopDir<F::Dir>;
    type File = StopFile<F::File>;

    fn open_root(&self, path: &Path) -> io::Result<Self::Dir> {
        let inner = self.look("root", ".", || self.inner.open_root(path))?;
        Ok(StopDir { inner, path: ".".to_owned() })
    }

    fn open_dir(&self, at: &Self::Dir, name: &str) -> io::Result<Self::Dir> {
        let path = at.child(name);
        let inner = self.look("opendir", &path, || self.inner.open_dir(&at.inner, name))?;
        Ok(StopDir { inner, path })
    }

    fn make_dir(&self, at: &Self::Dir, name: &str) -> io::Result<()> {
        self.change("mkdir", &at.child(name), || self.inner.make_dir(&at.inner, name))
    }

    fn list(&self, at: &Self::Dir) -> io::Result<Vec<String>> {
        self.look("list", &at.path, || self.inner.list(&at.inner))
    }

    fn stat(&self, at: &Self::Dir, name: &str) -> io::Result<Option<Stat>> {
        self.look("stat", &at.child(name), || self.inner.stat(&at.inner, name))
    }

    fn open_read(&self, at: &Self::Dir, name: &str) -> io::Result<Self::File> {
        let path = at.child(name);
        let inner = self.look("open", &path, || self.inner.open_read(&at.inner, name))?;
        Ok(StopFile { inner, path })
    }

    fn create(&self, at: &Self::Dir, name: &str) -> io::Result<Self::File> {
        let path = at.child(name);
        let inner = self.change("create", &path, || self.inner.create(&at.inner, name))?;
        Ok(StopFile { inner, path })
    }

    fn stat_file(&self, file: &Self::File) -> io::Result<Stat> {
        self.look("fstat", &file.path, || self.inner.stat_file(&file.inner))
    }

    fn read_at(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.look("read", &file.path, || self.inner.read_at(&file.inner, buf, offset))
    }

    fn write_at(&self, file: &Self::File, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.call("write", Among::Writes, &file.path, |half| {
            let buf = if half { &buf[..buf.len() / 2] } else { buf };
            self.inner.write_at(&file.inner, buf, offset)
        })
    }

    fn allocate(&self, file: &Self::File, bytes: u64) -> io::Result<()> {
        self.change("allocate", &file.path, || self.inner.allocate(&file.inner, bytes))
    }

    fn sync_file(&self, file: &Self::File) -> io::Result<()> {
        self.change("fsync", &file.path, || self.inner.sync_file(&file.inner))
    }

    fn close(&self, file: Self::File) -> io::Result<()> {
        self.change("close", &file.path, || self.inner.close(file.inner))
    }

    fn sync_dir(&self, at: &Self::Dir) -> io::Result<()> {
        self.change("fsync", &at.path, || self.inner.sync_dir(&at.inner))
    }

    fn link(&self, at: &Self::Dir, from: &str, to: &str) -> io::Result<()> {
        self.change("link", &at.child(to), || self.inner.link(&at.inner, from, to))
    }

    fn rename(&self, at: &Self::Dir, from: &str, to: &str) -> io::Result<()> {
        self.change("rename", &at.child(to), || self.inner.rename(&at.inner, from, to))
    }

    fn unlink(&self, at: &Self::Dir, name: &str) -> io::Result<()> {
        self.change("unlink", &at.child(name), || self.inner.unlink(&at.inner, name))
    }

    fn remove_dir(&self, at: &Self::Dir, name: &str) -> io::Result<()> {
        self.change("rmdir", &at.child(name), || self.inner.remove_dir(&at.inner, name))
    }

    fn raw_fd<'f>(&self, file: &'f Self::File) -> Option<BorrowedFd<'f>> {
        self.inner.raw_fd(&file.inner)
    }
}
