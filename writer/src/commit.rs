//! Making an attempt a checkpoint, out of its parts.
//!
//! Anybody may, at any time and more than once: what is put is a function of the parts. It knows
//! the order of files and fsyncs, and when to stop. It must not know tensor data.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use waystation_format::common::Common;
use waystation_format::{Code, Digest, Error, Result, commit_file, names, rule};
use waystation_reader::Progress;
use waystation_store::Store;

use crate::attempt;
use crate::gather::{self, Look};
use crate::marks;
use crate::put;
use crate::root::Root;
use crate::state;
use crate::workers;

/// How to commit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CommitOptions {
    /// The run that the attempt stands in: looked at for a higher timeline, and synced at last.
    /// `None` for an attempt that stands alone.
    pub run: Option<Arc<dyn Store>>,
    /// The attempt's name in the run, checked against what its parts say.
    pub name: Option<String>,
    /// How long to wait for parts of all writers; `None` looks once.
    pub deadline: Option<Duration>,
    /// Time between two looks.
    pub poll: Duration,
    /// Threads that read parts.
    pub threads: usize,
    /// Whether records of resume state are held against themselves and the step first, whoever
    /// wrote them: nobody could resume from what breaks these rules.
    pub check_state: bool,
}

impl Default for CommitOptions {
    fn default() -> Self {
        Self {
            run: None,
            name: None,
            deadline: None,
            poll: Duration::from_millis(200),
            threads: workers::default_threads(),
            check_state: true,
        }
    }
}

impl CommitOptions {
    /// To commit the attempt `name` of `run`.
    #[must_use]
    pub fn in_run(run: Arc<dyn Store>, name: impl Into<String>) -> Self {
        Self { run: Some(run), name: Some(name.into()), ..Self::default() }
    }
}

/// A checkpoint that is there to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Digest of the manifest, which the commit file names.
    pub digest: Digest,
    /// Whether somebody had committed the attempt before.
    pub already: bool,
}

/// Waits for the parts of all writers, derives pages and manifest, and makes the attempt a
/// checkpoint. Committing what is committed changes nothing and succeeds.
///
/// # Errors
///
/// `writer-missing` after the deadline, with the numbers; what the parts break; `state-disagree`,
/// `bad-rng-state`, `bad-position`, `canary-mismatch` for a record that could not be resumed from,
/// unless the attempt is committed already; `fenced` when the
/// run has a higher timeline; `name-disagrees`; `deleted` when a keeper began to remove the attempt; `commit-conflict` when other bytes are there;
/// `commit-unknown` when it cannot be told whether the commit took effect; `interrupted`; the
/// store's. Nothing is removed after any of them, and calling again is safe.
pub fn commit(
    attempt: &Arc<dyn Store>,
    options: &CommitOptions,
    progress: &dyn Progress,
) -> Result<Committed> {
    let look = wait(attempt, options, progress)?;
    let parts = gather::read_parts(attempt, &look, options.threads, progress)?;
    let Some(first) = parts.first() else {
        return look.check_all(None).and(Err(Error::new(Code::WriterMissing, "no part")));
    };
    check_name(options.name.as_deref(), &first.common)?;
    let timeline = first.common.attempt.timeline;
    fence(options, timeline)?;
    let root = Root::derive(&parts)?;
    if options.check_state && attempt.stat(names::COMMIT)?.is_none() {
        state::check_parts(&parts, progress)?;
    }
    go_on(progress)?;
    root.put(attempt)?;
    // The commit file must never outlive what it stands for.
    attempt.sync()?;
    fence(options, timeline)?;
    put_commit(attempt, options.run.as_ref(), &root.digest, &first.file_name())
}

/// Puts the commit file and makes it durable; everything that it stands for is. `part` is one of
/// the parts' names.
pub(crate) fn put_commit(
    attempt: &Arc<dyn Store>,
    run: Option<&Arc<dyn Store>>,
    digest: &Digest,
    part: &str,
) -> Result<Committed> {
    let already = !put::put_checked(attempt, names::COMMIT, &commit_file::encode(digest))?;
    attempt.sync()?;
    if let Some(run) = run {
        run.sync()?;
    }
    // A keeper that took the attempt for abandoned looks for the commit file after it put its
    // marker, so one of the two sees the other. One that is done has removed the marker last, and
    // all parts before.
    if attempt.stat(names::DELETED)?.is_some() || attempt.stat(part)?.is_none() {
        return Err(marks::deleted());
    }
    Ok(Committed { digest: *digest, already })
}

/// # Errors
///
/// `name-disagrees` when the parts belong into a directory of another name.
pub(crate) fn check_name(name: Option<&str>, common: &Common) -> Result<()> {
    let own = names::attempt_dir(common.step, &common.attempt);
    match name {
        Some(name) if name != own => {
            let message = format!("expected the directory {own}, found {name}");
            Err(Error::rule(Code::NameDisagrees, rule::DIR_ATTEMPT_NAME, message).in_file(name))
        }
        _ => Ok(()),
    }
}

/// # Errors
///
/// `interrupted` when the caller asked to stop.
pub(crate) fn go_on(progress: &dyn Progress) -> Result<()> {
    if progress.cancelled() {
        return Err(Error::new(Code::Interrupted, "stopped before the work was done"));
    }
    Ok(())
}

fn fence(options: &CommitOptions, timeline: u32) -> Result<()> {
    options.run.as_ref().map_or(Ok(()), |run| attempt::check_fence(run, timeline))
}

/// Looks until the parts of all writers are there.
fn wait(
    attempt: &Arc<dyn Store>,
    options: &CommitOptions,
    progress: &dyn Progress,
) -> Result<Look> {
    let begin = Instant::now();
    let mut writers = None;
    loop {
        go_on(progress)?;
        let look = Look::at(attempt)?;
        if writers.is_none() {
            writers = look.writers(attempt)?;
        }
        let Err(missing) = look.check_all(writers) else { return Ok(look) };
        let spent = begin.elapsed();
        let left = options.deadline.unwrap_or_default().saturating_sub(spent);
        if left.is_zero() {
            return Err(missing);
        }
        thread::sleep(options.poll.min(left));
    }
}
