//! A disk that takes names for one another that differ in case only, as those of Windows and macOS do:
//! what it opens under another name is not there.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    missing_debug_implementations,
    reason = "tests: a failure is a panic"
)]

mod support;

use std::io;
use std::path::Path;
use std::sync::Arc;

use support::{Files, put_all, small};
use waystation_format::{Code, names};
use waystation_reader::{Checkpoint, OpenOptions, VerifyOptions, latest, verify};
use waystation_store::{DirStore, Fs, MemoryFs, Stat, Store};

/// Finds every name in whatever case.
struct Folding(MemoryFs);

type Dir = <MemoryFs as Fs>::Dir;
type File = <MemoryFs as Fs>::File;

impl Folding {
    /// The name as it is on the disk.
    fn real(&self, at: &Dir, name: &str) -> io::Result<String> {
        let found = self.0.list(at)?.into_iter().find(|there| there.eq_ignore_ascii_case(name));
        Ok(found.unwrap_or_else(|| name.to_owned()))
    }
}

impl Fs for Folding {
    type Dir = Dir;
    type File = File;

    fn open_root(&self, path: &Path) -> io::Result<Dir> {
        self.0.open_root(path)
    }

    fn open_dir(&self, at: &Dir, name: &str) -> io::Result<Dir> {
        self.0.open_dir(at, &self.real(at, name)?)
    }

    fn make_dir(&self, at: &Dir, name: &str) -> io::Result<()> {
        self.0.make_dir(at, &self.real(at, name)?)
    }

    fn list(&self, at: &Dir) -> io::Result<Vec<String>> {
        self.0.list(at)
    }

    fn stat(&self, at: &Dir, name: &str) -> io::Result<Option<Stat>> {
        self.0.stat(at, &self.real(at, name)?)
    }

    fn open_read(&self, at: &Dir, name: &str) -> io::Result<File> {
        self.0.open_read(at, &self.real(at, name)?)
    }

    fn create(&self, at: &Dir, name: &str) -> io::Result<File> {
        self.0.create(at, &self.real(at, name)?)
    }

    fn stat_file(&self, file: &File) -> io::Result<Stat> {
        self.0.stat_file(file)
    }

    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(file, buf, offset)
    }

    fn write_at(&self, file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(file, buf, offset)
    }

    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.0.allocate(file, bytes)
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        self.0.sync_file(file)
    }

    fn close(&self, file: File) -> io::Result<()> {
        self.0.close(file)
    }

    fn sync_dir(&self, at: &Dir) -> io::Result<()> {
        self.0.sync_dir(at)
    }

    fn link(&self, at: &Dir, from: &str, to: &str) -> io::Result<()> {
        self.0.link(at, &self.real(at, from)?, &self.real(at, to)?)
    }

    fn rename(&self, at: &Dir, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(at, &self.real(at, from)?, &self.real(at, to)?)
    }

    fn unlink(&self, at: &Dir, name: &str) -> io::Result<()> {
        self.0.unlink(at, &self.real(at, name)?)
    }

    fn remove_dir(&self, at: &Dir, name: &str) -> io::Result<()> {
        self.0.remove_dir(at, &self.real(at, name)?)
    }
}

/// A run on such a disk with these files as its one attempt.
fn run_of(files: &Files) -> (Arc<dyn Store>, String) {
    let making = small();
    let name = names::attempt_dir(making.step, &making.attempt);
    let memory = MemoryFs::new();
    put_all(&*memory.store().make_dir(&name).unwrap(), files);
    (Arc::new(DirStore::open(Arc::new(Folding(memory)), Path::new("")).unwrap()), name)
}

#[test]
fn a_name_in_another_case_is_missing_though_it_opens() {
    let good = small().files();
    let (run, name) = run_of(&good);
    assert_eq!(latest(&run).unwrap().name, name);
    for file in good.keys() {
        let mut files = good.clone();
        let bytes = files.remove(file).unwrap();
        files.insert(file.to_uppercase(), bytes);
        let (run, name) = run_of(&files);
        let attempt = run.dir(&name).unwrap().unwrap();
        assert!(attempt.open(file).is_ok(), "the disk takes {file} for another");
        let missing = if file == names::COMMIT { Code::NotCommitted } else { Code::FileMissing };
        let e = Checkpoint::open_store(Arc::clone(&attempt), OpenOptions::new()).unwrap_err();
        assert_eq!(e.code(), missing, "{file}: {e}");
        let report = verify(&attempt, &VerifyOptions::default()).unwrap();
        assert!(report.findings.iter().any(|e| e.code() == missing), "{file}: {report:?}");
        assert!(latest(&run).is_err(), "{file}");
    }
}
