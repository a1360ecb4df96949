//! Making an attempt a checkpoint: `commit` and `salvage`.

use std::path::Path;
use std::time::Duration;

use waystation_format::Result;
use waystation_writer::{CommitOptions, Committed, SalvageOptions};

use super::{Attempt, Work, open_attempt};

/// How long to wait for writers that are not done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline {
    /// `None` looks once.
    pub after: Option<Duration>,
    /// Between two looks; `None` is the library's.
    pub poll: Option<Duration>,
}

/// Commits `attempt`, which need not stand in a run.
///
/// # Errors
/// Those of [`waystation_writer::commit`].
pub fn commit(
    attempt: Attempt,
    deadline: Deadline,
    check_state: bool,
    work: &Work<'_>,
) -> Result<Committed> {
    let mut options = CommitOptions::default();
    options.run = attempt.run;
    options.name = attempt.name;
    options.deadline = deadline.after;
    options.poll = deadline.poll.unwrap_or(options.poll);
    options.threads = work.threads;
    options.check_state = check_state;
    waystation_writer::commit(&attempt.store, &options, work.watcher)
}

/// Commits the attempt at `path` from its parts alone.
///
/// # Errors
/// Those of [`waystation_writer::salvage`].
pub fn salvage(path: &Path, discard_root: bool, work: &Work<'_>) -> Result<Committed> {
    let attempt = open_attempt(path)?;
    let mut options = SalvageOptions::new();
    options.run = attempt.run;
    options.name = attempt.name;
    options.discard_root = discard_root;
    waystation_writer::salvage(&attempt.store, &options, work.watcher)
}
