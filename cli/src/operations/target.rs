//! Where a command's new checkpoint goes: a directory that stands alone, or an attempt of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use waystation_format::{Code, Error, Result, Topology, identity, limits, names, rule};
use waystation_store::Store;
use waystation_writer::{Committed, SessionPlan, make_attempt};

use super::Attempt;
use super::{Deadline, Work, commit, place::is_ours};

/// Where a new checkpoint goes.
#[derive(Clone, Copy, Debug)]
pub enum Target<'p> {
    /// The directory to make; it must not exist.
    Alone(&'p Path),
    /// A run, made where it is not there: the checkpoint is made in it, of a new timeline.
    InRun(&'p Path),
}

/// A directory that was just made, and what its writers agree on.
pub struct NewCheckpoint {
    /// Its files.
    pub store: Arc<dyn Store>,
    /// What its writers agree on; its save is number 0.
    pub plan: SessionPlan,
    /// Its step.
    pub step: u64,
    /// Where it is.
    pub path: PathBuf,
    /// The run around it and its name there.
    run: Option<(Arc<dyn Store>, String)>,
}

/// What the new checkpoint says of itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The run's name in the metadata.
    pub run_name: String,
    /// Its step.
    pub step: u64,
    /// Number of writers.
    pub writers: u32,
    /// The job's axes and their sizes.
    pub topology: Topology,
    /// The manifest digest of what it was made from.
    pub parent: Option<waystation_format::Digest>,
    /// Bytes of a block; `None` takes the default.
    pub block_bytes: Option<u64>,
}

impl Settings {
    /// Whether a checkpoint can say so.
    ///
    /// # Errors
    /// Those of what no checkpoint can say, before a directory is made for it.
    pub fn check(&self) -> Result<()> {
        if self.step > limits::STEP {
            let message = format!("expected a step up to {}, found {}", limits::STEP, self.step);
            return Err(Error::rule(Code::Limit, rule::LIMIT_VALUE, message));
        }
        identity::check_name(&self.run_name, "run name")?;
        let any = SessionPlan {
            run: self.run_name.clone(),
            timeline: 1,
            nonce: [0; 16],
            writers: self.writers,
            topology: self.topology.clone(),
            parent: self.parent,
            block_bytes: self.block_bytes.unwrap_or(limits::BLOCK_BYTES_DEFAULT),
        };
        any.check()
    }
}

/// The parent of a directory to be made, and its name there. No directory is made in a checkpoint,
/// where it would be neither part of it nor ever deleted with it.
///
/// # Errors
/// [`Code::BadArgument`] for a path in a checkpoint or attempt, and what the store answers.
pub(super) fn parent_and_name(path: &Path) -> Result<(Arc<dyn Store>, String)> {
    // What is there already is refused as such, whatever it is.
    check_outside(path.parent().unwrap_or(path))?;
    waystation_store::parent_and_name(path)
}

/// Opens a run, making it and what it stands in: the first save of a job should need no preparation.
///
/// # Errors
/// [`Code::BadArgument`] for a path in a checkpoint or attempt, and what the store answers.
pub fn open_or_make_run(path: &Path) -> Result<Arc<dyn Store>> {
    check_outside(path)?;
    waystation_store::open_or_make_path(path)
}

/// Refuses a path that is a checkpoint or attempt, or leads into one. Its end need not exist yet; what
/// does is looked at under its real name, so that `..` and links lead where they lead.
fn check_outside(path: &Path) -> Result<()> {
    let real = path.ancestors().find_map(|above| {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        std::fs::canonicalize(above).ok()
    });
    for above in real.iter().flat_map(|real| real.ancestors()) {
        let name = above.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| names::parse_attempt_dir(name).is_some()) || holds_parts(above) {
            let message =
                "expected a directory outside of any checkpoint, found one in a checkpoint";
            let error = Error::rule(Code::BadArgument, rule::DIR_FLAT, message);
            return Err(error.in_file(path.display().to_string()));
        }
    }
    Ok(())
}

/// Whether a directory is a checkpoint, or an attempt with at least one part. One that cannot be read is none.
fn holds_parts(directory: &Path) -> bool {
    let store = waystation_store::open_path(directory);
    store.and_then(|store| store.list()).is_ok_and(|all| all.iter().any(|l| is_ours(&l.name)))
}

/// Makes the directory, exclusively and durably.
///
/// # Errors
/// [`Code::Exists`] when it is there already, and what the store answers.
pub fn make(target: Target<'_>, settings: Settings) -> Result<NewCheckpoint> {
    let path = match target {
        Target::Alone(out) => {
            let (parent, name) = parent_and_name(out)?;
            // It stands alone, so no timeline precedes it; a run's directory beside it is no concern.
            let store = waystation_store::make_durable(&*parent, &name)
                .map_err(|e| e.in_file(out.display().to_string()))?;
            let plan = plan(None, &settings)?;
            let path = out.to_owned();
            return Ok(NewCheckpoint { store, plan, step: settings.step, path, run: None });
        }
        Target::InRun(path) => path,
    };
    let run = open_or_make_run(path)?;
    let plan = plan(Some(&run), &settings)?;
    let (name, store) = make_attempt(&run, &plan, settings.step, 0)?;
    Ok(NewCheckpoint {
        store,
        plan,
        step: settings.step,
        path: path.join(&name),
        run: Some((run, name)),
    })
}

impl std::fmt::Debug for NewCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewCheckpoint").field("path", &self.path).finish_non_exhaustive()
    }
}

impl NewCheckpoint {
    /// Commits it, once all writers are done.
    ///
    /// # Errors
    /// Those of [`waystation_writer::commit`].
    pub fn commit(&self, work: &Work<'_>) -> Result<Committed> {
        work.go_on("stopped before the commit: the attempt is not a checkpoint")?;
        let (run, name) = self.run.clone().unzip();
        let attempt = Attempt { store: Arc::clone(&self.store), run, name };
        commit(attempt, Deadline::default(), true, work)
    }
}

/// The plan of a checkpoint in a run, or of one that stands alone.
fn plan(run: Option<&Arc<dyn Store>>, settings: &Settings) -> Result<SessionPlan> {
    let (name, topology) = (settings.run_name.clone(), settings.topology.clone());
    let mut plan = match run {
        Some(run) => SessionPlan::next_in(run, name, settings.writers, topology)?,
        None => SessionPlan::alone(name, settings.writers, topology)?,
    };
    plan.parent = settings.parent;
    if let Some(block_bytes) = settings.block_bytes {
        plan.block_bytes = block_bytes;
    }
    Ok(plan)
}

/// Says, after a failure, what is left of a directory that was made: a retry will meet it.
pub(super) fn or_left_behind<T>(path: &Path, work: &Work<'_>, outcome: Result<T>) -> Result<T> {
    if outcome.is_err() && std::fs::symlink_metadata(path).is_ok() {
        work.watcher.note(&format!("left behind, and no checkpoint: {}", path.display()));
    }
    outcome
}
