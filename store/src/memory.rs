//! A file system in memory: for tests, and for tools that keep small checkpoints off the disk.
//!
//! It answers as the operating system does, with the same errors. It knows no durability: what is
//! written is there until the last handle goes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::io::Errno;

use crate::dir::DirStore;
use crate::fs::{Fs, Kind, Stat};
use crate::store::Store;

/// A file system in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryFs {
    root: MemoryDir,
}

/// An open directory of a [`MemoryFs`].
#[derive(Clone, Default)]
pub struct MemoryDir(Arc<Mutex<Names>>);

/// An open file of a [`MemoryFs`].
#[derive(Clone)]
pub struct MemoryFile(Arc<Mutex<Content>>);

#[derive(Default)]
struct Names {
    entries: BTreeMap<String, Node>,
    /// Removed while open: nothing can be made in it any more.
    removed: bool,
}

struct Content {
    bytes: Vec<u8>,
    modified: SystemTime,
    /// Set when the bytes are asked for.
    read: Option<Arc<AtomicBool>>,
}

#[derive(Clone)]
enum Node {
    Directory(MemoryDir),
    Regular(MemoryFile),
    /// Stands for a link, pipe or device.
    Other,
}

impl MemoryFs {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The root directory as a store.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        let fs = Arc::new(self.clone());
        Arc::new(DirStore::of(fs, self.root.clone(), String::new()))
    }

    /// The root directory.
    pub(crate) fn root(&self) -> MemoryDir {
        self.root.clone()
    }

    /// The bytes of a regular file by its path from the root.
    ///
    /// # Errors
    ///
    /// When the path is absent or no regular file.
    pub fn bytes(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let (dir, name) = self.resolve(path.as_ref())?;
        match dir.names().entries.get(&name) {
            Some(Node::Regular(file)) => Ok(file.content().note().bytes.clone()),
            Some(_) => Err(Errno::INVAL.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Makes the file at `path` hold `bytes`, in place if it is there: open handles see the change,
    /// as they do when a disk or a careless tool damages a file.
    ///
    /// # Errors
    ///
    /// When the directory is absent, or the name stands for something else.
    pub fn set(&self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) -> io::Result<()> {
        let (dir, name) = self.resolve(path.as_ref())?;
        let mut names = dir.names();
        match names.entries.entry(name).or_insert_with(|| Node::Regular(MemoryFile::empty())) {
            Node::Regular(file) => file.replace(bytes.into()),
            Node::Directory(_) | Node::Other => return Err(Errno::INVAL.into()),
        }
        Ok(())
    }

    /// Puts something at `path` that is neither a file nor a directory, as a link or a pipe is.
    ///
    /// # Errors
    ///
    /// When the directory is absent or the name is there.
    pub fn set_other(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (dir, name) = self.resolve(path.as_ref())?;
        dir.add(&name, Node::Other)
    }

    fn resolve(&self, path: &Path) -> io::Result<(MemoryDir, String)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(Errno::INVAL)?;
        Ok((self.open_root(path.parent().unwrap_or(Path::new("")))?, name.to_owned()))
    }
}

impl Fs for MemoryFs {
    type Dir = MemoryDir;
    type File = MemoryFile;

    fn open_root(&self, path: &Path) -> io::Result<MemoryDir> {
        let mut dir = self.root.clone();
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    dir = self.open_dir(&dir, name.to_str().ok_or(Errno::NOENT)?)?;
                }
                Component::ParentDir | Component::Prefix(_) => return Err(Errno::NOENT.into()),
            }
        }
        Ok(dir)
    }

    fn open_dir(&self, at: &MemoryDir, name: &str) -> io::Result<MemoryDir> {
        match at.get(name)? {
            Node::Directory(dir) => Ok(dir),
            Node::Regular(_) | Node::Other => Err(Errno::NOTDIR.into()),
        }
    }

    fn make_dir(&self, at: &MemoryDir, name: &str) -> io::Result<()> {
        at.add(name, Node::Directory(MemoryDir::default()))
    }

    fn list(&self, at: &MemoryDir) -> io::Result<Vec<String>> {
        Ok(at.names().entries.keys().cloned().collect())
    }

    fn stat(&self, at: &MemoryDir, name: &str) -> io::Result<Option<Stat>> {
        Ok(at.names().entries.get(name).map(|node| match node {
            Node::Regular(file) => file.stat(),
            Node::Directory(_) => Stat { kind: Kind::Directory, bytes: 0, modified: None },
            Node::Other => Stat { kind: Kind::Other, bytes: 0, modified: None },
        }))
    }

    fn open_read(&self, at: &MemoryDir, name: &str) -> io::Result<MemoryFile> {
        match at.get(name)? {
            Node::Regular(file) => Ok(file),
            Node::Directory(_) => Err(Errno::ISDIR.into()),
            Node::Other => Err(Errno::LOOP.into()),
        }
    }

    fn create(&self, at: &MemoryDir, name: &str) -> io::Result<MemoryFile> {
        let file = MemoryFile::empty();
        at.add(name, Node::Regular(file.clone()))?;
        Ok(file)
    }

    fn stat_file(&self, file: &MemoryFile) -> io::Result<Stat> {
        Ok(file.stat())
    }

    fn read_at(&self, file: &MemoryFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = file.content();
        content.note();
        let from = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        let rest = content.bytes.get(from..).unwrap_or_default();
        let count = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }

    fn write_at(&self, file: &MemoryFile, buf: &[u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
        let end = from.checked_add(buf.len()).ok_or(Errno::FBIG)?;
        let mut content = file.content();
        content.grow(end)?;
        content.bytes.get_mut(from..end).ok_or(Errno::FBIG)?.copy_from_slice(buf);
        content.modified = SystemTime::now();
        Ok(buf.len())
    }

    fn allocate(&self, file: &MemoryFile, bytes: u64) -> io::Result<()> {
        file.content().grow(usize::try_from(bytes).map_err(|_| Errno::FBIG)?)
    }

    fn sync_file(&self, _file: &MemoryFile) -> io::Result<()> {
        Ok(())
    }

    fn close(&self, _file: MemoryFile) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _at: &MemoryDir) -> io::Result<()> {
        Ok(())
    }

    fn link(&self, at: &MemoryDir, from: &str, to: &str) -> io::Result<()> {
        match at.get(from)? {
            node @ Node::Regular(_) => at.add(to, node),
            Node::Directory(_) | Node::Other => Err(Errno::PERM.into()),
        }
    }

    fn rename(&self, at: &MemoryDir, from: &str, to: &str) -> io::Result<()> {
        let mut names = at.names();
        if !names.entries.contains_key(from) {
            return Err(Errno::NOENT.into());
        }
        if names.entries.contains_key(to) {
            return Err(Errno::EXIST.into());
        }
        if let Some(node) = names.entries.remove(from) {
            names.entries.insert(to.to_owned(), node);
        }
        Ok(())
    }

    fn unlink(&self, at: &MemoryDir, name: &str) -> io::Result<()> {
        match at.names().entries.entry(name.to_owned()) {
            Entry::Vacant(_) => Err(Errno::NOENT.into()),
            Entry::Occupied(entry) => match entry.get() {
                Node::Directory(_) => Err(Errno::ISDIR.into()),
                Node::Regular(_) | Node::Other => {
                    entry.remove();
                    Ok(())
                }
            },
        }
    }

    fn remove_dir(&self, at: &MemoryDir, name: &str) -> io::Result<()> {
        match at.names().entries.entry(name.to_owned()) {
            Entry::Vacant(_) => Err(Errno::NOENT.into()),
            Entry::Occupied(entry) => {
                let Node::Directory(dir) = entry.get() else { return Err(Errno::NOTDIR.into()) };
                // Parent before child is the one order in which two locks are ever held.
                let mut names = dir.names();
                if !names.entries.is_empty() {
                    return Err(Errno::NOTEMPTY.into());
                }
                names.removed = true;
                drop(names);
                entry.remove();
                Ok(())
            }
        }
    }
}

impl MemoryDir {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &str) -> io::Result<Node> {
        self.names().entries.get(name).cloned().ok_or_else(|| Errno::NOENT.into())
    }

    fn add(&self, name: &str, node: Node) -> io::Result<()> {
        let mut names = self.names();
        if names.removed {
            return Err(Errno::NOENT.into());
        }
        match names.entries.entry(name.to_owned()) {
            Entry::Occupied(_) => Err(Errno::EXIST.into()),
            Entry::Vacant(entry) => {
                entry.insert(node);
                Ok(())
            }
        }
    }
}

impl MemoryFile {
    fn empty() -> Self {
        let content = Content { bytes: Vec::new(), modified: SystemTime::now(), read: None };
        Self(Arc::new(Mutex::new(content)))
    }

    /// Sets `read` whenever bytes of this file are asked for.
    pub(crate) fn watch(&self, read: Arc<AtomicBool>) {
        self.content().read = Some(read);
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, bytes: Vec<u8>) {
        let mut content = self.content();
        content.bytes = bytes;
        content.modified = SystemTime::now();
    }

    fn stat(&self) -> Stat {
        let content = self.content();
        Stat {
            kind: Kind::Regular,
            // A length in memory always fits.
            bytes: u64::try_from(content.bytes.len()).unwrap_or(u64::MAX),
            modified: Some(content.modified),
        }
    }
}

impl Content {
    fn note(&self) -> &Self {
        if let Some(read) = &self.read {
            read.store(true, Ordering::Release);
        }
        self
    }

    /// Zero-fills up to `end` bytes; memory that cannot be had is a full disk, not an abort.
    fn grow(&mut self, end: usize) -> io::Result<()> {
        if let Some(more) = end.checked_sub(self.bytes.len()) {
            self.bytes.try_reserve(more).map_err(|_| Errno::NOSPC)?;
            self.bytes.resize(end, 0);
        }
        Ok(())
    }
}

impl fmt::Debug for MemoryFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFs").field("root", &self.root).finish()
    }
}

impl fmt::Debug for MemoryDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names().entries.keys()).finish()
    }
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryFile({} bytes)", self.content().bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waystation_format::Code;

    #[test]
    fn damage_is_seen_by_open_handles() {
        let fs = MemoryFs::new();
        let store = fs.store();
        fs.set("a", *b"good").unwrap();
        let object = store.open("a").unwrap();
        fs.set("a", *b"bad").unwrap();
        let mut buf = [0; 3];
        object.read_at(&mut buf, 0).unwrap();
        assert_eq!(&buf, b"bad");
        assert_eq!(object.read_at(&mut [0; 4], 0).unwrap_err().code(), Code::LengthMismatch);
        assert_eq!(fs.bytes("a").unwrap(), b"bad");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let fs = MemoryFs::new();
        fs.set_other("pipe").unwrap();
        let store = fs.store();
        assert_eq!(store.open("pipe").unwrap_err().code(), Code::NotRegular);
        assert_eq!(store.dir("pipe").unwrap_err().code(), Code::NotRegular);
        assert_eq!(store.create("pipe", None).unwrap_err().code(), Code::Exists);
    }

    #[test]
    fn paths_lead_to_subdirectories() {
        let fs = MemoryFs::new();
        let run = fs.store().make_dir("run").unwrap();
        let step = run.make_dir("step").unwrap();
        assert_eq!(step.describe(), "run/step");
        fs.set("run/step/a", *b"x").unwrap();
        let again = DirStore::open(Arc::new(fs.clone()), Path::new("/run/step")).unwrap();
        assert_eq!(again.open("a").unwrap().bytes(), 1);
        let absent = DirStore::open(Arc::new(fs), Path::new("run/other")).unwrap_err();
        assert_eq!(absent.code(), Code::NotFound);
    }

    #[test]
    fn memory_that_cannot_be_had_is_a_full_disk() {
        let store = MemoryFs::new().store();
        let e = store.create("a", Some(u64::MAX >> 1)).unwrap_err();
        assert_eq!(e.code(), Code::IoFull);
        assert!(store.list().unwrap().is_empty());
    }
}
