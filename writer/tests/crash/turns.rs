//! Two at work on one disk, each making as many calls as a schedule says before the other goes on.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use waystation_store::testing::{CrashingDir, CrashingFile, CrashingFs};
use waystation_store::{DirStore, Fs, Stat, Store};

/// Who makes how many calls, in order.
pub type Schedule = Vec<(usize, usize)>;

struct Turns {
    left: Mutex<VecDeque<(usize, usize)>>,
    changed: Condvar,
}

impl Turns {
    /// Waits for a turn of `actor`, and makes the call while nobody else makes one.
    fn call<T>(&self, actor: usize, call: impl FnOnce() -> T) -> T {
        let mut left = self.left.lock().unwrap();
        while left.front().is_some_and(|(whose, _)| *whose != actor) {
            left = self.changed.wait(left).unwrap();
        }
        let made = call();
        if let Some((_, count)) = left.front_mut() {
            *count -= 1;
            if *count == 0 {
                left.pop_front();
            }
        }
        drop(left);
        self.changed.notify_all();
        made
    }
}

/// One of the two, until it is done or panics: the other must not wait for it any more.
struct Seat<'t> {
    turns: &'t Turns,
    actor: usize,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut left = self.turns.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|(whose, _)| *whose != self.actor);
        drop(left);
        self.turns.changed.notify_all();
    }
}

/// The disk as one of the two sees it.
struct Gated {
    inner: CrashingFs,
    turns: Arc<Turns>,
    actor: usize,
}

/// What one of the two does; it is given the run.
pub type Work<'w, T> = &'w (dyn Fn(&Arc<dyn Store>) -> T + Sync);

/// Runs both by `schedule`, then the first to its end, then the second. With what came out, how many
/// changes there were on the disk when each was done.
pub fn run<T: Send>(
    fs: &CrashingFs,
    schedule: &Schedule,
    work: [Work<'_, T>; 2],
) -> [(T, usize); 2] {
    let mut left: VecDeque<(usize, usize)> =
        schedule.iter().copied().filter(|(_, count)| *count > 0).collect();
    left.extend([(0, usize::MAX), (1, usize::MAX)]);
    let turns = Arc::new(Turns { left: Mutex::new(left), changed: Condvar::new() });
    let play = |actor: usize| {
        let seat = Seat { turns: &turns, actor };
        let gated = Gated { inner: fs.clone(), turns: Arc::clone(&turns), actor };
        let run: Arc<dyn Store> = Arc::new(DirStore::open(Arc::new(gated), Path::new("")).unwrap());
        let made = (work[actor])(&run);
        let points = turns.call(actor, || fs.points());
        drop(seat);
        (made, points)
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| play(0));
        let second = scope.spawn(|| play(1));
        [first.join().unwrap(), second.join().unwrap()]
    })
}

impl Gated {
    fn call<T>(&self, make: impl FnOnce(&CrashingFs) -> T) -> T {
        self.turns.call(self.actor, || make(&self.inner))
    }
}

impl Fs for Gated {
    type Dir = CrashingDir;
    type File = CrashingFile;

    fn open_root(&self, path: &Path) -> io::Result<CrashingDir> {
        self.inner.open_root(path)
    }

    fn open_dir(&self, at: &CrashingDir, name: &str) -> io::Result<CrashingDir> {
        self.call(|fs| fs.open_dir(at, name))
    }

    fn make_dir(&self, at: &CrashingDir, name: &str) -> io::Result<()> {
        self.call(|fs| fs.make_dir(at, name))
    }

    fn list(&self, at: &CrashingDir) -> io::Result<Vec<String>> {
        self.call(|fs| fs.list(at))
    }

    fn stat(&self, at: &CrashingDir, name: &str) -> io::Result<Option<Stat>> {
        self.call(|fs| fs.stat(at, name))
    }

    fn open_read(&self, at: &CrashingDir, name: &str) -> io::Result<CrashingFile> {
        self.call(|fs| fs.open_read(at, name))
    }

    fn create(&self, at: &CrashingDir, name: &str) -> io::Result<CrashingFile> {
        self.call(|fs| fs.create(at, name))
    }

    // What is in a file never changes once it has a name: no call of another comes between.
    fn stat_file(&self, file: &CrashingFile) -> io::Result<Stat> {
        self.inner.stat_file(file)
    }

    fn read_at(&self, file: &CrashingFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(file, buf, offset)
    }

    fn write_at(&self, file: &CrashingFile, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.call(|fs| fs.write_at(file, buf, offset))
    }

    fn allocate(&self, file: &CrashingFile, bytes: u64) -> io::Result<()> {
        self.call(|fs| fs.allocate(file, bytes))
    }

    fn sync_file(&self, file: &CrashingFile) -> io::Result<()> {
        self.call(|fs| fs.sync_file(file))
    }

    fn close(&self, file: CrashingFile) -> io::Result<()> {
        self.inner.close(file)
    }

    fn sync_dir(&self, at: &CrashingDir) -> io::Result<()> {
        self.call(|fs| fs.sync_dir(at))
    }

    fn link(&self, at: &CrashingDir, from: &str, to: &str) -> io::Result<()> {
        self.call(|fs| fs.link(at, from, to))
    }

    fn rename(&self, at: &CrashingDir, from: &str, to: &str) -> io::Result<()> {
        self.call(|fs| fs.rename(at, from, to))
    }

    fn unlink(&self, at: &CrashingDir, name: &str) -> io::Result<()> {
        self.call(|fs| fs.unlink(at, name))
    }

    fn remove_dir(&self, at: &CrashingDir, name: &str) -> io::Result<()> {
        self.call(|fs| fs.remove_dir(at, name))
    }
}
