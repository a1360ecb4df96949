//! The same contents, split over another number of writers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use waystation_format::{Result, names};
use waystation_writer::{Committed, ReshardOptions, SessionPlan, make_attempt};

use super::{Target, Work, open_checkpoint, producer, target};

/// Writes the checkpoint at `from` again, for `writers` writers; where it is, and the commit.
///
/// # Errors
/// Those of [`waystation_writer::reshard`].
pub fn reshard(
    from: &Path,
    to: Target<'_>,
    writers: u32,
    work: &Work<'_>,
) -> Result<(PathBuf, Committed)> {
    let from = open_checkpoint(from, work.open_options())?;
    let common = &from.manifest().common;
    let mut options = ReshardOptions::new(writers);
    options.producer = producer();
    options.session.threads = work.threads;
    let (store, path) = match to {
        Target::Alone(out) => {
            let (parent, name) = target::parent_and_name(out)?;
            if let Some((_, attempt)) = names::parse_attempt_dir(&name) {
                options.attempt = Some(attempt);
                options.run = Some((Arc::clone(&parent), name.clone()));
            }
            (waystation_store::make_durable(&*parent, &name)?, out.to_owned())
        }
        Target::InRun(path) => {
            let run = target::open_or_make_run(path)?;
            let plan =
                SessionPlan::next_in(&run, common.run.clone(), writers, common.topology.clone())?;
            let (name, store) = make_attempt(&run, &plan, common.step, 0)?;
            options.attempt = Some(plan.attempt(common.step, 0));
            options.run = Some((run, name.clone()));
            (store, path.join(name))
        }
    };
    let done = waystation_writer::reshard(&from, &store, &options, work.watcher);
    let done = target::or_left_behind(&path, work, done)?;
    Ok((path, done))
}
