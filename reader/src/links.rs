//! A directory whose symbolic links are followed, because its caller trusts it: download caches
//! keep files elsewhere and fill a directory with links to them.
//!
//! It knows paths of the operating system. It must never be used unless a caller asked for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use waystation_format::{Code, Error, Result};
use waystation_store::{Kind, Listed, NewObject, Object, Put, Stat, Store, open_path};

/// Wraps the store of `path`; what is a link there is looked up where it leads.
#[derive(Debug)]
pub(crate) struct TrustedLinks {
    inner: Arc<dyn Store>,
    path: PathBuf,
}

impl TrustedLinks {
    pub(crate) fn new(inner: Arc<dyn Store>, path: &Path) -> Self {
        Self { inner, path: path.to_owned() }
    }

    /// The directory and name that a link leads to in the end; `None` when it leads nowhere.
    fn target(&self, name: &str) -> Result<Option<(Arc<dyn Store>, String)>> {
        let path = match self.path.join(name).canonicalize() {
            Ok(path) => path,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("follow a link", e).in_file(name)),
        };
        let (Some(parent), Some(last)) =
            (path.parent(), path.file_name().and_then(|last| last.to_str()))
        else {
            return Ok(None);
        };
        Ok(Some((open_path(parent)?, last.to_owned())))
    }

    fn follow(&self, name: &str, stat: Stat) -> Result<Stat> {
        if stat.kind != Kind::Other {
            return Ok(stat);
        }
        match self.target(name)? {
            Some((store, last)) => Ok(store.stat(&last)?.unwrap_or(stat)),
            None => Ok(stat),
        }
    }
}

impl Store for TrustedLinks {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let mut listed = self.inner.list()?;
        for Listed { name, stat } in &mut listed {
            *stat = self.follow(name, *stat)?;
        }
        Ok(listed)
    }

    fn stat(&self, name: &str) -> Result<Option<Stat>> {
        self.inner.stat(name)?.map(|stat| self.follow(name, stat)).transpose()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>> {
        match self.inner.open(name) {
            Err(e) if e.code() == Code::NotRegular => match self.target(name)? {
                Some((store, last)) => store.open(&last).map_err(|e| e.in_file(name)),
                None => Err(e),
            },
            other => other,
        }
    }

    fn create(&self, name: &str, bytes: Option<u64>) -> Result<Arc<dyn NewObject>> {
        self.inner.create(name, bytes)
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        self.inner.put_new(name, bytes)
    }

    fn remove(&self, name: &str) -> Result<bool> {
        self.inner.remove(name)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn dir(&self, name: &str) -> Result<Option<Arc<dyn Store>>> {
        self.inner.dir(name)
    }

    fn make_dir(&self, name: &str) -> Result<Arc<dyn Store>> {
        self.inner.make_dir(name)
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        self.inner.remove_dir(name)
    }
}
