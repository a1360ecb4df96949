//! What a run holds, what to resume from, what to keep.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use waystation_format::Result;
use waystation_reader::{Latest, Listed, State};
use waystation_writer::{Fate, GcItem, GcReport, Why};

use super::{Work, open_attempt, open_checkpoint, open_run};
use crate::output;

/// What to resume from, and where it is.
#[derive(Debug)]
pub struct Found {
    /// What the run answered.
    pub latest: Latest,
    /// Its directory, as the path to the run was given.
    pub path: PathBuf,
}

impl Found {
    /// The object that `waystation latest --json` prints without `--verify`.
    #[must_use]
    pub fn json(&self) -> Value {
        let skipped = self.latest.skipped.iter();
        let skipped: Vec<Value> = skipped
            .map(|(name, why)| json!({ "name": name, "error": output::error_json(why) }))
            .collect();
        json!({
            "name": self.latest.name, "path": self.path.display().to_string(), "step": self.latest.step,
            "attempt": self.latest.attempt.to_string(), "digest": self.latest.digest.to_string(),
            "skipped": skipped,
        })
    }
}

/// The checkpoint of `run` to resume from.
///
/// # Errors
/// Those of [`waystation_reader::latest`].
pub fn latest(run: &Path) -> Result<Found> {
    let latest = waystation_reader::latest(&open_run(run)?)?;
    let path = run.join(&latest.name);
    Ok(Found { latest, path })
}

/// The attempts of a run as `waystation list --json` prints them.
#[must_use]
pub fn list_json(all: &[Listed]) -> Value {
    all.iter().map(listed_json).collect()
}

fn listed_json(listed: &Listed) -> Value {
    let (state, error) = match &listed.state {
        State::Complete { .. } => ("complete", None),
        State::Uncommitted => ("uncommitted", None),
        State::Deleted => ("deleted", None),
        State::Damaged(e) => ("damaged", Some(e)),
        State::Unsupported(e) => ("unsupported", Some(e)),
        State::Unreadable(e) => ("unreadable", Some(e)),
        _ => ("unknown", None),
    };
    let mut object = json!({
        "name": listed.name, "step": listed.step, "timeline": listed.attempt.timeline, "attempt": listed.attempt.to_string(), "state": state,
        "rejected": listed.marks.rejected, "pins": listed.marks.pins,
    });
    if let Some(map) = object.as_object_mut() {
        if let State::Complete { digest, bytes } = &listed.state {
            map.insert("digest".into(), json!(digest.to_string()));
            map.insert("bytes".into(), json!(bytes));
        }
        if let Some(error) = error {
            map.insert("error".into(), output::error_json(error));
        }
    }
    object
}

/// The object that `waystation gc --json` prints.
#[must_use]
pub fn gc_json(report: &GcReport, dry_run: bool) -> Value {
    let items: Vec<Value> = report.items.iter().map(item_json).collect();
    json!({ "dry_run": dry_run, "items": items })
}

fn item_json(item: &GcItem) -> Value {
    let (fate, error) = match &item.fate {
        Fate::Kept => ("kept", None),
        Fate::Removed => ("removed", None),
        Fate::Left { .. } => ("left", None),
        Fate::Failed(e) => ("failed", Some(output::error_json(e))),
        _ => ("unknown", None),
    };
    json!({ "name": item.name, "fate": fate, "why": why(item.why), "error": error })
}

/// A reason to keep or remove, as the end of a sentence that begins with the attempt.
#[must_use]
pub fn why(why: Why) -> &'static str {
    match why {
        Why::Latest => "is the latest",
        Why::Last => "is among the last",
        Why::Every => "is a step to keep",
        Why::NothingBetter => "is rejected, and there is nothing better",
        Why::Pinned => "is pinned",
        Why::Writing => "may still be written",
        Why::Elsewhere => "is being removed by another keeper, or was until a minute ago",
        Why::Committed => "was committed a moment ago",
        Why::Damaged => "is damaged; look at it with verify",
        Why::Older => "is older than those kept",
        Why::Rejected => "is rejected",
        Why::Succeeded => "is uncommitted, of an earlier timeline",
        Why::Stale => "is uncommitted and untouched for long",
        Why::Begun => "was being removed",
        _ => "",
    }
}

/// Says that nobody should resume from the checkpoint at `path`, and why.
///
/// # Errors
/// Those of [`waystation_writer::reject`].
pub fn reject(path: &Path, reason: &str) -> Result<()> {
    waystation_writer::reject(&open_attempt(path)?.store, reason)
}

/// Keeps the checkpoint at `path` from being deleted.
///
/// # Errors
/// Those of opening it, for only what is whole can be worth keeping, and of [`waystation_writer::pin`].
pub fn pin(path: &Path, name: &str, work: &Work<'_>) -> Result<()> {
    waystation_writer::pin(open_checkpoint(path, work.open_options())?.store(), name)
}

/// Takes a pin away.
///
/// # Errors
/// Those of [`waystation_writer::unpin`].
pub fn unpin(path: &Path, name: &str) -> Result<()> {
    waystation_writer::unpin(&open_attempt(path)?.store, name)
}
