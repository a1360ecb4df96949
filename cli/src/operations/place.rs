//! How a path becomes a checkpoint, an attempt or a run, and what is said when it is another of these.

use std::path::Path;
use std::sync::Arc;

use waystation_format::{Code, Error, Result, names};
use waystation_reader::{Checkpoint, OpenOptions};
use waystation_store::Store;

/// A directory that is, or may become, a checkpoint.
pub struct Attempt {
    /// Its files.
    pub store: Arc<dyn Store>,
    /// The run around it, when its name says that there is one.
    pub run: Option<Arc<dyn Store>>,
    /// Its name in the run.
    pub name: Option<String>,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Opens a checkpoint. A path to a run gets the advice to resolve it first.
///
/// # Errors
/// Those of [`Checkpoint::open_store`], and [`Code::BadArgument`] for a run.
pub fn open_checkpoint(path: &Path, options: OpenOptions) -> Result<Checkpoint> {
    let store = waystation_store::open_path(path)?;
    let opened = Checkpoint::open_store(Arc::clone(&store), options);
    opened.map_err(|error| {
        // What is in it is looked at only when it cannot be opened.
        match refuse_run(&store, path) {
            Err(advice) if error.code() == Code::NotCommitted => advice,
            _ => error.in_file(path.display().to_string()),
        }
    })
}

/// Refuses a run where a checkpoint or an attempt is meant.
///
/// # Errors
/// [`Code::BadArgument`] for a run; the store's.
pub(crate) fn refuse_run(store: &Arc<dyn Store>, path: &Path) -> Result<()> {
    let all = store.list()?;
    let ours = all.iter().any(|listed| is_ours(&listed.name));
    if !ours && all.iter().any(|l| names::parse_attempt_dir(&l.name).is_some()) {
        let advice = "this is a run, not a checkpoint: expected one of its step-… directories, as \
                      `waystation list` and `waystation latest` print";
        return Err(Error::new(Code::BadArgument, advice).in_file(path.display().to_string()));
    }
    Ok(())
}

/// Whether a name stands in checkpoints and attempts only, never in a run.
pub(crate) fn is_ours(name: &str) -> bool {
    name == names::COMMIT || name == names::MANIFEST || names::parse_part(name).is_some()
}

/// Opens a run. A checkpoint in its place would look like a run without attempts.
///
/// # Errors
/// [`Code::BadArgument`] for a checkpoint; the store's.
pub fn open_run(path: &Path) -> Result<Arc<dyn Store>> {
    let run = waystation_store::open_path(path)?;
    if run.list()?.iter().any(|listed| is_ours(&listed.name)) {
        let advice = "this is a checkpoint, not a run: expected the directory that holds it";
        return Err(Error::new(Code::BadArgument, advice).in_file(path.display().to_string()));
    }
    Ok(run)
}

/// The attempt at `path` and the run around it, when its name says that there is one.
///
/// # Errors
/// [`Code::BadArgument`] for a run; the store's.
pub fn open_attempt(path: &Path) -> Result<Attempt> {
    let store = waystation_store::open_path(path)?;
    refuse_run(&store, path)?;
    let real = std::fs::canonicalize(path).map_err(|e| Error::io("resolve", e))?;
    let name = real.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    // A checkpoint that stands alone may have any name.
    if names::parse_attempt_dir(name).is_none() {
        return Ok(Attempt { store, run: None, name: None });
    }
    let (run, name) = waystation_store::parent_and_name(&real)?;
    Ok(Attempt { store, run: Some(run), name: Some(name) })
}
