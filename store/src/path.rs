//! Stores by the path that a user gives.
//!
//! It knows the operating system's paths: the only place that does. It must not know runs or
//! checkpoints.

use std::path::Path;
use std::sync::Arc;

use waystation_format::{Code, Error, Result};

use crate::dir::DirStore;
use crate::posix::PosixFs;
use crate::store::Store;

/// Opens the directory at `path`; links in the path are followed, none beneath it is.
///
/// # Errors
///
/// `not-found` when there is nothing, `not-regular` when it is no directory, those of the system.
pub fn open_path(path: &Path) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(DirStore::open(Arc::new(PosixFs), path)?))
}

/// Makes the last component of `path` and makes it durable in its parent, which must exist.
///
/// # Errors
///
/// `exists` when it is there, `not-found` when the parent is not, `bad-argument` when the path
/// ends in no name, those of the system.
pub fn make_path(path: &Path) -> Result<Arc<dyn Store>> {
    let (parent, name) = parent_and_name(path)?;
    make_durable(&*parent, &name)
}

/// Opens the directory at `path`; where it is not there, makes it and its missing parents, durably.
/// Several processes may call it at once. For a run, which the first job of many has to make.
///
/// # Errors
///
/// `not-regular` when something else is there, `bad-argument` when the path ends in no name, those
/// of the system.
pub fn open_or_make_path(path: &Path) -> Result<Arc<dyn Store>> {
    match open_path(path) {
        Err(e) if e.code() == Code::NotFound => {
            let above = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            above.map(open_or_make_path).transpose()?;
            let (parent, name) = parent_and_name(path)?;
            match make_durable(&*parent, &name) {
                // Another process has made it meanwhile, and may not yet have made it last.
                Err(e) if e.code() == Code::Exists => {
                    parent.sync()?;
                    open_path(path)
                }
                other => other,
            }
        }
        other => other,
    }
}

/// Makes a directory in `parent` and makes its name durable.
///
/// # Errors
///
/// `exists` when the name is there, those of the system. After one of fsync the directory may be
/// there, now or after a power cut, or not.
pub fn make_durable(parent: &dyn Store, name: &str) -> Result<Arc<dyn Store>> {
    let made = parent.make_dir(name)?;
    parent.sync()?;
    Ok(made)
}

/// Opens the parent of `path` and gives the last component, which need not exist.
///
/// # Errors
///
/// `bad-argument` when the path ends in no name (`/`, `..`) or in one that is not UTF-8; those of
/// [`open_path`] for the parent.
pub fn parent_and_name(path: &Path) -> Result<(Arc<dyn Store>, String)> {
    let bad = |what: &str| {
        Error::new(Code::BadArgument, format!("expected a path that ends in a name, found {what}"))
            .in_file(path.display().to_string())
    };
    let name = path.file_name().ok_or_else(|| bad("none"))?;
    let name = name.to_str().ok_or_else(|| bad("one that is not UTF-8"))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((open_path(parent)?, name.to_owned()))
}
