//! Removing what nobody resumes from any more.
//!
//! It knows what is kept and why, and the order in which a directory goes: at no moment does
//! anything half removed pass for a checkpoint. It must not know what is in a checkpoint, and
//! follows no link.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use waystation_format::{Attempt, Code, Error, Result, names, rule};
use waystation_reader::{Listed, Marks, State, list};
use waystation_store::{Kind, Stat, Store};

/// What to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcPolicy {
    /// So many of the latest checkpoints are kept, at least one.
    pub keep_last: usize,
    /// Checkpoints of a step that is a multiple of this are kept too.
    pub keep_every: Option<u64>,
    /// Uncommitted attempts in which nothing has changed for so long are removed, too. Without it
    /// only those are of a timeline below that of the latest checkpoint.
    pub uncommitted_older_than: Option<Duration>,
    /// A removal that somebody began is gone on with when its marker is older than this. A keeper
    /// takes moments after its marker to see whether it has to think better of it; until then
    /// another would remove what it spares.
    pub begun_older_than: Duration,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
}

impl GcPolicy {
    /// Keeps the last `keep_last` checkpoints.
    #[must_use]
    pub fn keep_last(keep_last: usize) -> Self {
        Self {
            keep_last,
            keep_every: None,
            uncommitted_older_than: None,
            begun_older_than: Duration::from_secs(60),
            dry_run: false,
        }
    }
}

/// What was done with every attempt of the run, in the order of their names.
#[derive(Debug)]
pub struct GcReport {
    /// One an attempt.
    pub items: Vec<GcItem>,
}

/// What was done with one attempt.
#[derive(Debug)]
pub struct GcItem {
    /// Name of its directory.
    pub name: String,
    /// What was done, or with `dry_run` would be.
    pub fate: Fate,
    /// Why.
    pub why: Why,
}

/// What was done with an attempt.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fate {
    /// Nothing.
    Kept,
    /// It was removed; with `dry_run` it would be.
    Removed,
    /// It is no checkpoint any more, but this subdirectory was found in it and left.
    Left {
        /// The subdirectory.
        subdirectory: String,
    },
    /// Removing it failed; the next run of the keeper goes on with it.
    Failed(Error),
}

/// Why an attempt is kept or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Kept: it is what `latest` returns.
    Latest,
    /// Kept: it is among the last ones wanted.
    Last,
    /// Kept: its step is a multiple of `keep_every`.
    Every,
    /// Kept: it is pinned.
    Pinned,
    /// Kept: it was rejected, but there is no other checkpoint.
    NothingBetter,
    /// Kept: a job may still be writing it.
    Writing,
    /// Kept: it had no commit file when the run was listed, and has one now.
    Committed,
    /// Kept: it is committed but not complete, which is for people to look at.
    Damaged,
    /// Kept: it could not be read, or needs a newer reader.
    Unknown,
    /// Kept by this keeper: another began to remove it a moment ago, and goes on.
    Elsewhere,
    /// Removed: newer checkpoints are kept.
    Older,
    /// Removed: it was rejected.
    Rejected,
    /// Removed: an uncommitted attempt of a timeline that another has succeeded.
    Succeeded,
    /// Removed: an uncommitted attempt in which nothing happened for long.
    Stale,
    /// Removed: somebody had begun to.
    Begun,
}

impl Why {
    /// Whether it is a reason to remove.
    fn removes(self) -> bool {
        matches!(self, Self::Older | Self::Rejected | Self::Succeeded | Self::Stale | Self::Begun)
    }
}

/// Removes from `run` what `policy` does not keep.
///
/// # Errors
///
/// Those of listing the run, and of making what is kept durable: nothing is removed then. An
/// attempt that cannot be removed is reported in its item.
pub fn gc(run: &Arc<dyn Store>, policy: &GcPolicy) -> Result<GcReport> {
    let listed = list(run)?;
    let reasons = judge(run, &listed, policy)?;
    let mut items = Vec::with_capacity(listed.len());
    if !policy.dry_run && reasons.iter().any(|why| why.removes()) {
        let kept = listed.iter().zip(&reasons).filter(|(_, why)| !why.removes());
        sync_kept(run, kept.map(|(attempt, _)| attempt))?;
    }
    let mut removed = false;
    for (attempt, mut why) in listed.into_iter().zip(reasons) {
        let fate = if !why.removes() {
            Fate::Kept
        } else if policy.dry_run {
            Fate::Removed
        } else {
            removed = true;
            match remove(run, &attempt) {
                Ok(Outcome::Done(fate)) => fate,
                Ok(Outcome::Spared(spared)) => {
                    why = spared;
                    Fate::Kept
                }
                Err(error) => Fate::Failed(error),
            }
        };
        items.push(GcItem { name: attempt.name, fate, why });
    }
    if removed {
        run.sync()?;
    }
    Ok(GcReport { items })
}

/// Removes the attempt `name` from `run`, whatever its age.
///
/// # Errors
///
/// `kept` when it is pinned, is what `latest` returns, is uncommitted and of the latest timeline, is
/// damaged or cannot be known, or when every checkpoint is rejected; `not-found`; `exists` when a
/// subdirectory is in it; the store's.
pub fn delete(run: &Arc<dyn Store>, name: &str) -> Result<()> {
    let listed = list(run)?;
    let policy = GcPolicy::keep_last(1);
    let reasons = judge(run, &listed, &policy)?;
    let kept = |message: &str, rule| Err(Error::rule(Code::Kept, rule, message).in_file(name));
    let found = listed.iter().zip(&reasons).find(|(attempt, _)| attempt.name == name);
    let Some((victim, why)) = found else {
        return Err(Error::new(Code::NotFound, "no such attempt").in_file(name));
    };
    match why {
        Why::Pinned => return kept("expected no pin, found one", rule::RUN_PIN),
        Why::Latest => return kept("expected another than the latest checkpoint", rule::GC_KEPT),
        Why::Writing => {
            let message = "expected an attempt that no job can be writing";
            return kept(message, rule::GC_UNCOMMITTED);
        }
        Why::Elsewhere => {
            return kept("expected to be the only keeper, found another at work", rule::GC_ORDER);
        }
        Why::NothingBetter => {
            let message = "expected a checkpoint that is not rejected in the run, found none";
            return kept(message, rule::GC_KEPT);
        }
        Why::Damaged | Why::Unknown => {
            let message = "expected a whole checkpoint, found one that is for people to look at";
            return kept(message, rule::GC_KEPT);
        }
        _ => {}
    }
    // All others stay, also those that a keeper of the run would remove.
    sync_kept(run, listed.iter().filter(|attempt| attempt.name != name))?;
    let outcome = remove(run, victim)?;
    run.sync()?;
    settled(outcome, name)
}

/// Removes from `run` the attempt `name`, which was never committed, for the job that made it.
///
/// Only the one writer of an attempt of one may do this, and only when it is done with it: what became of
/// other writers nobody knows. An attempt that is not there is no error.
///
/// # Errors
///
/// `kept` when it is committed or pinned, or when a keeper is at work on it; `exists` when a subdirectory
/// is in it; `not-found` for a name that is no attempt's; the store's.
pub fn abandon(run: &Arc<dyn Store>, name: &str) -> Result<()> {
    let Some((step, attempt)) = names::parse_attempt_dir(name) else {
        return Err(Error::new(Code::NotFound, "expected the name of an attempt").in_file(name));
    };
    let Some(victim) = run.dir(name)? else { return Ok(()) };
    let marks = Marks::of(&*victim)?;
    if marks.deleted {
        return settled(Outcome::Spared(Why::Elsewhere), name);
    }
    if !marks.pins.is_empty() {
        return settled(Outcome::Spared(Why::Pinned), name);
    }
    let parts = victim.list()?.iter().any(|file| names::parse_part(&file.name).is_some());
    let listed = Listed { name: name.to_owned(), step, attempt, state: State::Uncommitted, marks };
    let outcome = match remove(run, &listed) {
        // A marker takes room, too. Without a part nobody can be about to commit.
        Err(full) if full.code() == Code::IoFull && !parts => {
            Outcome::Done(sweep(run, &victim, name)?)
        }
        outcome => outcome?,
    };
    run.sync()?;
    settled(outcome, name)
}

/// How the removal of one attempt ended, for who asked for just this one.
fn settled(outcome: Outcome, name: &str) -> Result<()> {
    let kept = |message: &str, rule| Err(Error::rule(Code::Kept, rule, message).in_file(name));
    match outcome {
        Outcome::Spared(Why::Committed) => {
            let message = "expected an attempt without a commit file, found one just committed";
            kept(message, rule::GC_UNCOMMITTED)
        }
        Outcome::Spared(Why::Elsewhere) => {
            kept("expected to be the only keeper, found another at work", rule::GC_ORDER)
        }
        Outcome::Spared(_) => kept("expected no pin, found one", rule::RUN_PIN),
        Outcome::Done(Fate::Left { subdirectory }) => {
            let message = format!("expected only files, found the directory {subdirectory}");
            Err(Error::rule(Code::Exists, rule::GC_UNNAMED, message).in_file(name))
        }
        Outcome::Done(_) => Ok(()),
    }
}

/// Why each attempt is kept or removed.
fn judge(run: &Arc<dyn Store>, listed: &[Listed], policy: &GcPolicy) -> Result<Vec<Why>> {
    let mut good: Vec<&Listed> = listed
        .iter()
        .filter(|attempt| is_complete(attempt) && attempt.marks.rejected.is_none())
        .collect();
    good.sort_by_key(|attempt| Reverse(rank(attempt)));
    let latest = good.first().copied();
    let last = good.get(policy.keep_last.max(1).saturating_sub(1)).map(|attempt| rank(attempt));
    listed
        .iter()
        .map(|attempt| {
            Ok(match &attempt.state {
                State::Deleted => begun(run, attempt, policy)?,
                _ if !attempt.marks.pins.is_empty() => Why::Pinned,
                State::Complete { .. } if attempt.marks.rejected.is_some() => match latest {
                    Some(_) => Why::Rejected,
                    None => Why::NothingBetter,
                },
                State::Complete { .. } => {
                    let every = policy.keep_every.filter(|&every| every > 0);
                    if latest.is_some_and(|latest| latest.name == attempt.name) {
                        Why::Latest
                    } else if last.is_none_or(|last| rank(attempt) >= last) {
                        Why::Last
                    } else if every.is_some_and(|every| attempt.step.is_multiple_of(every)) {
                        Why::Every
                    } else {
                        Why::Older
                    }
                }
                State::Uncommitted => uncommitted(run, attempt, latest, policy)?,
                State::Damaged(_) => Why::Damaged,
                _ => Why::Unknown,
            })
        })
        .collect()
}

fn is_complete(attempt: &Listed) -> bool {
    matches!(&attempt.state, State::Complete { .. })
}

/// The order of `latest`.
fn rank(attempt: &Listed) -> (u32, u64, Attempt) {
    (attempt.attempt.timeline, attempt.step, attempt.attempt)
}

fn begun(run: &Arc<dyn Store>, attempt: &Listed, policy: &GcPolicy) -> Result<Why> {
    let Some(directory) = run.dir(&attempt.name)? else { return Ok(Why::Begun) };
    let marker = directory.stat(names::DELETED)?.and_then(|stat| stat.modified);
    // Without a time there is nothing to wait for.
    let Some(marker) = marker else { return Ok(Why::Begun) };
    let age = SystemTime::now().duration_since(marker).unwrap_or_default();
    Ok(if age >= policy.begun_older_than { Why::Begun } else { Why::Elsewhere })
}

fn uncommitted(
    run: &Arc<dyn Store>,
    attempt: &Listed,
    latest: Option<&Listed>,
    policy: &GcPolicy,
) -> Result<Why> {
    if latest.is_some_and(|latest| attempt.attempt.timeline < latest.attempt.timeline) {
        return Ok(Why::Succeeded);
    }
    let Some(age) = policy.uncommitted_older_than else { return Ok(Why::Writing) };
    let Some(directory) = run.dir(&attempt.name)? else { return Ok(Why::Writing) };
    let files = directory.list()?;
    // The directory's own time counts too: it is all that an empty one has.
    let own = run.stat(&attempt.name)?;
    let times = files.iter().map(|file| file.stat).chain(own).map(|stat: Stat| stat.modified);
    let Some(changed) = times.collect::<Option<Vec<SystemTime>>>() else {
        return Ok(Why::Writing);
    };
    let newest = changed.into_iter().max();
    let quiet = newest.and_then(|newest| SystemTime::now().duration_since(newest).ok());
    Ok(if quiet.is_some_and(|quiet| quiet > age) { Why::Stale } else { Why::Writing })
}

/// Makes what stays durable before anything goes.
fn sync_kept<'l>(run: &Arc<dyn Store>, kept: impl Iterator<Item = &'l Listed>) -> Result<()> {
    for attempt in kept.filter(|attempt| is_complete(attempt)) {
        if let Some(directory) = run.dir(&attempt.name)? {
            directory.sync()?;
        }
    }
    run.sync()
}

/// How removing an attempt ended.
enum Outcome {
    Done(Fate),
    /// It stays, for a reason that the keeper saw at the last moment.
    Spared(Why),
}

/// Removes one directory, in the order of spec 11.6.
fn remove(run: &Arc<dyn Store>, attempt: &Listed) -> Result<Outcome> {
    let name = &attempt.name;
    let Some(victim) = run.dir(name)? else { return Ok(Outcome::Done(Fate::Removed)) };
    // A marker hides the checkpoint even when it is taken back, so it is put only with good reason.
    if !matches!(attempt.state, State::Deleted)
        && let Some(why) = spared(&victim, attempt)?
    {
        return Ok(Outcome::Spared(why));
    }
    let ours = if matches!(attempt.state, State::Deleted) {
        // Whose marker has gone has finished, or thought better of it: no other takes its place.
        if victim.stat(names::DELETED)?.is_none() {
            return Ok(match run.stat(name)? {
                Some(_) => Outcome::Spared(Why::Elsewhere),
                None => Outcome::Done(Fate::Removed),
            });
        }
        false
    } else {
        match mark(&victim) {
            // Another keeper has finished meanwhile.
            Err(_) if run.stat(name)?.is_none() => return Ok(Outcome::Done(Fate::Removed)),
            marked => marked?,
        }
    };
    // Two keepers under one marker could not tell whose it is when one of them thinks better of it.
    if !ours && !matches!(attempt.state, State::Deleted) {
        return Ok(Outcome::Spared(Why::Elsewhere));
    }
    victim.sync()?;
    // Whoever commits or pins looks for the marker afterwards, so one of the two sees the other.
    if let Some(why) = spared(&victim, attempt)? {
        if ours {
            victim.remove(names::DELETED)?;
            victim.sync()?;
        }
        return Ok(Outcome::Spared(why));
    }
    victim.remove(names::COMMIT)?;
    victim.sync()?;
    Ok(Outcome::Done(sweep(run, &victim, name)?))
}

/// Removes the files of a directory that is no checkpoint any more, its marker and itself.
fn sweep(run: &Arc<dyn Store>, victim: &Arc<dyn Store>, name: &str) -> Result<Fate> {
    let mut left = None;
    for file in victim.list()? {
        if file.stat.kind == Kind::Directory {
            left = Some(file.name);
        } else if file.name != names::DELETED {
            victim.remove(&file.name)?;
        }
    }
    if let Some(subdirectory) = left {
        return Ok(Fate::Left { subdirectory });
    }
    // While a part may come back after a power cut the marker has to: anyone could commit it.
    victim.sync()?;
    victim.remove(names::DELETED)?;
    match run.remove_dir(name) {
        // Something came in since it was listed: marked again, so that the next keeper goes on.
        Err(e) if e.code() != Code::NotFound => {
            let _ = mark(victim);
            Err(e)
        }
        // Another keeper may have been at it, too.
        _ => Ok(Fate::Removed),
    }
}

/// Why an attempt stays after all: it was committed or pinned since the run was listed.
fn spared(victim: &Arc<dyn Store>, attempt: &Listed) -> Result<Option<Why>> {
    // Without a commit file there is nothing to keep any more.
    if victim.stat(names::COMMIT)?.is_none() {
        return Ok(None);
    }
    if matches!(attempt.state, State::Uncommitted) {
        return Ok(Some(Why::Committed));
    }
    Ok(is_pinned(victim)?.then_some(Why::Pinned))
}

/// Puts the `deleted` marker; false when it is there already.
fn mark(victim: &Arc<dyn Store>) -> Result<bool> {
    match victim.create(names::DELETED, None) {
        Ok(marker) => marker.finish().map(|()| true),
        Err(e) if e.code() == Code::Exists => Ok(false),
        Err(e) => Err(e),
    }
}

fn is_pinned(victim: &Arc<dyn Store>) -> Result<bool> {
    Ok(!Marks::of(&**victim)?.pins.is_empty())
}
