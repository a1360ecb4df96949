//! Disks that break one promise each, to see that the simulation notices.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use waystation_store::testing::{CrashingDir, CrashingFile, CrashingFs, Errno};
use waystation_store::{DirStore, Fs, Stat, Store};

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// fsync of directories does nothing.
    NoDirectorySync,
    /// fsync of files does nothing.
    NoFileSync,
    /// Files are synced after the commit file is there.
    CommitBeforeSync,
    /// The commit file is put before the directory is synced with the manifest in it.
    CommitBeforeManifest,
    /// A file gets its name first and its bytes then.
    InPlace,
    /// Names that are there are used again.
    ReusedNames,
    /// A close that says that bytes were lost is not listened to.
    IgnoredClose,
    /// Temporaries are renamed without an fsync.
    RenameWithoutSync,
}

/// A disk with a bug above it.
pub struct Faulty {
    fs: CrashingFs,
    bug: Bug,
    /// Files to sync later.
    late: Mutex<Vec<CrashingFile>>,
    /// Closes so far.
    closed: AtomicUsize,
    manifest: Mutex<bool>,
}

/// The one whose bytes are lost.
const LOST_AT_CLOSE: usize = 2;

/// The root of a disk with a bug above it.
pub fn store(fs: &CrashingFs, bug: Bug) -> Arc<dyn Store> {
    let faulty = Faulty {
        fs: fs.clone(),
        bug,
        late: Mutex::default(),
        closed: AtomicUsize::new(0),
        manifest: Mutex::new(false),
    };
    Arc::new(DirStore::open(Arc::new(faulty), Path::new("")).unwrap())
}

impl Faulty {
    fn is(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    /// All bytes of a file.
    fn bytes(&self, file: &CrashingFile) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.fs.stat_file(file)?.bytes as usize];
        self.fs.read_at(file, &mut bytes, 0)?;
        Ok(bytes)
    }
}

impl Fs for Faulty {
    type Dir = CrashingDir;
    /// With whether its name is a temporary.
    type File = (CrashingFile, bool);

    fn open_root(&self, path: &Path) -> io::Result<CrashingDir> {
        self.fs.open_root(path)
    }

    fn open_dir(&self, at: &CrashingDir, name: &str) -> io::Result<CrashingDir> {
        self.fs.open_dir(at, name)
    }

    fn make_dir(&self, at: &CrashingDir, name: &str) -> io::Result<()> {
        match self.fs.make_dir(at, name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.is(Bug::ReusedNames) => {
                Ok(())
            }
            other => other,
        }
    }

    fn list(&self, at: &CrashingDir) -> io::Result<Vec<String>> {
        self.fs.list(at)
    }

    fn stat(&self, at: &CrashingDir, name: &str) -> io::Result<Option<Stat>> {
        self.fs.stat(at, name)
    }

    fn open_read(&self, at: &CrashingDir, name: &str) -> io::Result<Self::File> {
        Ok((self.fs.open_read(at, name)?, false))
    }

    fn create(&self, at: &CrashingDir, name: &str) -> io::Result<Self::File> {
        if self.is(Bug::ReusedNames) && self.fs.stat(at, name)?.is_some() {
            self.fs.unlink(at, name)?;
        }
        Ok((self.fs.create(at, name)?, name.starts_with("tmp-")))
    }

    fn stat_file(&self, file: &Self::File) -> io::Result<Stat> {
        self.fs.stat_file(&file.0)
    }

    fn read_at(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fs.read_at(&file.0, buf, offset)
    }

    fn write_at(&self, file: &Self::File, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.fs.write_at(&file.0, buf, offset)
    }

    fn allocate(&self, file: &Self::File, bytes: u64) -> io::Result<()> {
        self.fs.allocate(&file.0, bytes)
    }

    fn sync_file(&self, file: &Self::File) -> io::Result<()> {
        match self.bug {
            Bug::NoFileSync | Bug::CommitBeforeSync => Ok(()),
            Bug::RenameWithoutSync if file.1 => Ok(()),
            _ => self.fs.sync_file(&file.0),
        }
    }

    fn close(&self, (file, _): Self::File) -> io::Result<()> {
        if self.is(Bug::CommitBeforeSync) {
            self.late.lock().unwrap().push(file);
            return Ok(());
        }
        if self.is(Bug::IgnoredClose)
            && self.closed.fetch_add(1, Ordering::Relaxed) == LOST_AT_CLOSE
        {
            // What the server has is not what was written; the error that says so goes nowhere.
            let lost = vec![0xee; self.bytes(&file)?.len()];
            self.fs.write_at(&file, &lost, 0)?;
            self.fs.sync_file(&file)?;
        }
        self.fs.close(file)
    }

    fn sync_dir(&self, at: &CrashingDir) -> io::Result<()> {
        if self.is(Bug::NoDirectorySync)
            || (self.is(Bug::CommitBeforeManifest) && *self.manifest.lock().unwrap())
        {
            return Ok(());
        }
        self.fs.sync_dir(at)
    }

    fn link(&self, at: &CrashingDir, from: &str, to: &str) -> io::Result<()> {
        match self.bug {
            Bug::RenameWithoutSync => return Err(Errno::OPNOTSUPP.into()),
            Bug::InPlace => {
                let bytes = self.bytes(&self.fs.open_read(at, from)?)?;
                let file = self.fs.create(at, to)?;
                self.fs.write_at(&file, &bytes, 0)?;
                self.fs.sync_file(&file)?;
            }
            Bug::ReusedNames if self.fs.stat(at, to)?.is_some() => {
                self.fs.unlink(at, to)?;
                self.fs.link(at, from, to)?;
            }
            _ => self.fs.link(at, from, to)?,
        }
        *self.manifest.lock().unwrap() = to == "manifest.json";
        if to == "waystation.commit" {
            for file in self.late.lock().unwrap().drain(..) {
                self.fs.sync_file(&file)?;
            }
        }
        Ok(())
    }

    fn rename(&self, at: &CrashingDir, from: &str, to: &str) -> io::Result<()> {
        self.fs.rename(at, from, to)
    }

    fn unlink(&self, at: &CrashingDir, name: &str) -> io::Result<()> {
        self.fs.unlink(at, name)
    }

    fn remove_dir(&self, at: &CrashingDir, name: &str) -> io::Result<()> {
        self.fs.remove_dir(at, name)
    }
}
