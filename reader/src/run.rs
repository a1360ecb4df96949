//! A run: which attempts it holds, and which one to resume from.
//!
//! It knows the names of attempts and their markers, and asks `complete` about each. It must not
//! change anything: deleting and marking are the writer's crate's.

use std::sync::Arc;

use waystation_format::names::{self, Marker};
use waystation_format::{Attempt, Class, Code, Digest, Error, Result, limits, rule};
use waystation_store::{Kind, Store};

use crate::complete::{Directory, Root, check_committed, check_not_deleted, complete, read_file};
use crate::options::Budget;

/// Times that a run without a checkpoint is looked at while it changes.
const LOOKS: usize = 100;
/// How many attempts the message names that there is nothing to resume from.
const NAMED: usize = 8;

/// An attempt of a run.
#[derive(Debug)]
pub struct Listed {
    /// The directory's name.
    pub name: String,
    /// Its step, by its name.
    pub step: u64,
    /// Its attempt, by its name.
    pub attempt: Attempt,
    /// What it is good for.
    pub state: State,
    /// Its markers.
    pub marks: Marks,
}

/// What an attempt's directory holds.
#[derive(Debug)]
#[non_exhaustive]
pub enum State {
    /// A complete checkpoint.
    Complete {
        /// The manifest's digest.
        digest: Digest,
        /// Bytes of all its files.
        bytes: u64,
    },
    /// There is no commit file.
    Uncommitted,
    /// It is being removed.
    Deleted,
    /// There is a commit file, and something is wrong: why it is not complete.
    Damaged(Error),
    /// It is of a version or has a feature that this reader does not support.
    Unsupported(Error),
    /// The environment failed: nothing is known about it.
    Unreadable(Error),
}

/// Markers of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The reason of the `rejected` marker, if there is one; empty when it cannot be read as text.
    pub rejected: Option<String>,
    /// Names of pins, ascending, without `pin-`.
    pub pins: Vec<String>,
    /// Whether there is a `deleted` marker.
    pub deleted: bool,
}

/// What to resume from.
#[derive(Debug)]
pub struct Latest {
    /// The directory's name.
    pub name: String,
    /// Its files.
    pub store: Arc<dyn Store>,
    /// Its step.
    pub step: u64,
    /// Its attempt.
    pub attempt: Attempt,
    /// The manifest's digest: others open by name and compare this one.
    pub digest: Digest,
    /// The attempts that would have come before, newest first, and why they were passed over.
    pub skipped: Vec<(String, Error)>,
}

impl Marks {
    /// The markers in the directory of a checkpoint.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of(store: &dyn Store) -> Result<Self> {
        Self::read(store, &Directory::list(store)?)
    }

    fn read(store: &dyn Store, directory: &Directory) -> Result<Self> {
        let mut marks = Self::default();
        for listed in directory.iter() {
            match Marker::parse(&listed.name) {
                Some(Marker::Deleted) => marks.deleted = true,
                Some(Marker::Rejected) => {
                    let text = listed.stat.kind == Kind::Regular
                        && listed.stat.bytes <= limits::REASON_BYTES;
                    marks.rejected = Some(if text { reason(store)? } else { String::new() });
                }
                Some(Marker::Pin(name)) => marks.pins.push(name),
                None => {}
            }
        }
        Ok(marks)
    }
}

/// The attempts of a run, ascending by name; other names are ignored.
///
/// # Errors
/// Those of the system about the run itself; those about one attempt are its state.
pub fn list(run: &Arc<dyn Store>) -> Result<Vec<Listed>> {
    let mut found = Vec::new();
    for Candidate { name, step, attempt } in candidates(&**run)? {
        let (state, marks) = match look(&**run, &name) {
            Ok(None) => continue,
            Ok(Some(seen)) => (seen.state, seen.marks),
            Err(e) => (state_of(e), Marks::default()),
        };
        found.push(Listed { name, step, attempt, state, marks });
    }
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The complete checkpoint without `rejected` marker that has the greatest (timeline, step,
/// attempt), and what was passed over before it.
///
/// # Errors
/// `no-checkpoint` when there is none yet, which is a fresh start; `none-resumable` when there are some
/// and all are damaged or rejected, which is none: both name what was passed over. Errors of class `io`
/// or `unsupported` about an attempt that would come before the answer.
pub fn latest(run: &Arc<dyn Store>) -> Result<Latest> {
    let mut skipped = Vec::new();
    let mut before = None;
    for _ in 0..LOOKS {
        skipped.clear();
        let mut seen = Vec::new();
        for Candidate { name, step, attempt } in candidates(&**run)? {
            let code = match resumable(&**run, &name) {
                Ok(None) => None,
                Ok(Some((store, root))) => {
                    let digest = root.digest;
                    return Ok(Latest { name, store, step, attempt, digest, skipped });
                }
                Err(e) if matches!(e.class(), Class::Io | Class::Unsupported) => {
                    return Err(beneath(e, &name));
                }
                Err(e) => {
                    let code = e.code();
                    skipped.push((name.clone(), e));
                    Some(code)
                }
            };
            seen.push((name, code));
        }
        // A keeper removes an old one once there is a newer one, which may have come after the run
        // was listed: "none" is the answer only of a run that stays as it is.
        if before.as_ref() == Some(&seen) {
            break;
        }
        before = Some(seen);
    }
    Err(none(&skipped).in_file(run.describe()))
}

/// Why there is nothing to resume from: because there is nothing yet, or although there is something.
fn none(skipped: &[(String, Error)]) -> Error {
    let lost = |e: &Error| !matches!(e.code(), Code::NotCommitted | Code::Deleted);
    // What was lost comes first, for it is what somebody has to look at.
    let (mut named, others): (Vec<_>, Vec<_>) = skipped.iter().partition(|(_, e)| lost(e));
    let count = named.len();
    let (code, broken, mut message) = if count == 0 {
        let message = "expected a complete checkpoint in the run, found none".to_owned();
        (Code::NoCheckpoint, rule::RUN_LATEST, message)
    } else {
        let message = format!(
            "expected a checkpoint to resume from, found that none of the {count} in the run can be"
        );
        (Code::NoneResumable, rule::RUN_NONE, message)
    };
    named.extend(others);
    for (name, why) in named.iter().take(NAMED) {
        message.push_str(&format!("; {name}: {}: {}", why.code(), why.message()));
    }
    if let more @ 1.. = named.len().saturating_sub(NAMED) {
        message.push_str(&format!("; and {more} more"));
    }
    Error::rule(code, broken, message)
}

struct Candidate {
    name: String,
    step: u64,
    attempt: Attempt,
}

struct Seen {
    state: State,
    marks: Marks,
}

/// Directories with an attempt's name, greatest (timeline, step, attempt) first.
fn candidates(run: &dyn Store) -> Result<Vec<Candidate>> {
    let mut found: Vec<Candidate> = run
        .list()?
        .into_iter()
        .filter(|listed| listed.stat.kind == Kind::Directory)
        .filter_map(|listed| {
            let (step, attempt) = names::parse_attempt_dir(&listed.name)?;
            Some(Candidate { name: listed.name, step, attempt })
        })
        .collect();
    found
        .sort_unstable_by_key(|c| std::cmp::Reverse((c.attempt.timeline, c.step, c.attempt.nonce)));
    Ok(found)
}

/// What there is to say of an attempt; `None` when it has gone since it was listed.
fn look(run: &dyn Store, name: &str) -> Result<Option<Seen>> {
    let Some(store) = run.dir(name)? else { return Ok(None) };
    let marks = Marks::of(&*store)?;
    let state = match named(&*store, name) {
        Ok(root) => {
            let bytes = files_bytes(&root)?;
            State::Complete { digest: root.digest, bytes }
        }
        Err(e) => state_of(e),
    };
    Ok(Some(Seen { state, marks }))
}

/// An attempt that may be resumed from; `None` when it has gone since it was listed.
fn resumable(run: &dyn Store, name: &str) -> Result<Option<(Arc<dyn Store>, Root)>> {
    let Some(store) = run.dir(name)? else { return Ok(None) };
    let directory = Directory::list(&*store)?;
    check_not_deleted(&directory)?;
    check_committed(&directory)?;
    if let Some(why) = Marks::read(&*store, &directory)?.rejected {
        let message = format!("expected no marker, found one that rejects the checkpoint: {why:?}");
        return Err(
            Error::rule(Code::Rejected, rule::RUN_REJECTED, message).in_file(names::REJECTED)
        );
    }
    let root = named(&*store, name)?;
    Ok(Some((store, root)))
}

/// A complete checkpoint whose manifest gives it the name that it has.
fn named(store: &dyn Store, name: &str) -> Result<Root> {
    let root = complete(store, Budget::default())?;
    let common = &root.manifest.common;
    let expected = names::attempt_dir(common.step, &common.attempt);
    if expected == name {
        return Ok(root);
    }
    let message = format!("expected the name {expected}, found {name}");
    Err(Error::rule(Code::NameDisagrees, rule::DIR_ATTEMPT_NAME, message).in_file(names::MANIFEST))
}

fn state_of(e: Error) -> State {
    match (e.code(), e.class()) {
        (Code::NotCommitted, _) => State::Uncommitted,
        (Code::Deleted, _) => State::Deleted,
        (_, Class::Io) => State::Unreadable(e),
        (_, Class::Unsupported) => State::Unsupported(e),
        _ => State::Damaged(e),
    }
}

fn files_bytes(root: &Root) -> Result<u64> {
    let files = root.manifest.named_files()?;
    Ok(files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes)))
}

fn reason(store: &dyn Store) -> Result<String> {
    let raw = read_file(store, names::REJECTED, limits::REASON_BYTES, Budget::default())?;
    Ok(String::from_utf8(raw).unwrap_or_default())
}

/// Says in which attempt an error is.
fn beneath(e: Error, attempt: &str) -> Error {
    let place = e.location().clone();
    let file = match place.file {
        Some(file) if file != attempt => format!("{attempt}/{file}"),
        _ => attempt.to_owned(),
    };
    let message = e.message().to_owned();
    let again = match e.rule_id() {
        Some(rule) => Error::rule(e.code(), rule, message),
        None => Error::new(e.code(), message),
    };
    match place.offset {
        Some(offset) => again.in_file(file).at_offset(offset),
        None => again.in_file(file),
    }
}
