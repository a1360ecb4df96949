//! A verified copy in a new directory.

use std::path::Path;

use waystation_format::Result;
use waystation_writer::Copied;

use super::{Work, refuse_run, target};

/// Copies the checkpoint at `from` into the new directory `to`.
///
/// # Errors
/// Those of [`waystation_writer::copy_into`].
pub fn copy(from: &Path, to: &Path, work: &Work<'_>) -> Result<Copied> {
    let store = waystation_store::open_path(from)?;
    refuse_run(&store, from)?;
    let (parent, name) = target::parent_and_name(to)?;
    let was_there = std::fs::symlink_metadata(to).is_ok();
    let done = waystation_writer::copy_into(&store, &parent, &name, work.watcher);
    if was_there { done } else { target::or_left_behind(to, work, done) }
}
