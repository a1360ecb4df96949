//! Markers: why not to resume from a checkpoint, and why not to delete it.
//!
//! It knows the marker files and their races with a keeper that deletes. It must not know what is
//! in a checkpoint.

use std::sync::Arc;

use waystation_format::names::{self, Marker};
use waystation_format::{Code, Error, Result, limits, rule};
use waystation_store::{Put, Store};

use crate::put;

/// Says that nobody should resume from the checkpoint, and why. `latest` skips it from then on.
///
/// # Errors
///
/// `bad-argument` for a reason above 4096 bytes; `exists` when it is rejected for another reason;
/// `not-committed`, `deleted`; the store's.
pub fn reject(checkpoint: &Arc<dyn Store>, reason: &str) -> Result<()> {
    if put::length(reason.as_bytes()) > limits::REASON_BYTES {
        let most = limits::REASON_BYTES;
        let message = format!("expected a reason of up to {most} bytes, found {}", reason.len());
        return Err(Error::new(Code::BadArgument, message));
    }
    check_kept(checkpoint)?;
    let put = checkpoint.put_new(names::REJECTED, reason.as_bytes())?;
    if put == Put::Exists && !put::equals(checkpoint, names::REJECTED, reason.as_bytes())? {
        let message = "expected no marker or one with this reason, found another reason";
        return Err(Error::new(Code::Exists, message).in_file(names::REJECTED));
    }
    checkpoint.sync()
}

/// Keeps the checkpoint from being deleted for as long as the pin is there. Pinning twice under one
/// name is pinning once.
///
/// # Errors
///
/// `bad-argument` for a name that is not 1 to 64 of `A-Z a-z 0-9 . _ -`; `not-committed`;
/// `deleted`, also when a keeper began to delete meanwhile; the store's.
pub fn pin(checkpoint: &Arc<dyn Store>, name: &str) -> Result<()> {
    let file = pin_file(name)?;
    check_kept(checkpoint)?;
    let _: Put = checkpoint.put_new(&file, &[])?;
    checkpoint.sync()?;
    // A keeper looks for pins after it put its marker, so one of the two sees the other.
    check_kept(checkpoint)
}

/// Takes a pin away.
///
/// # Errors
///
/// `bad-argument` as [`pin`]; `not-found` when there is no such pin; the store's.
pub fn unpin(checkpoint: &Arc<dyn Store>, name: &str) -> Result<()> {
    let file = pin_file(name)?;
    if !checkpoint.remove(&file)? {
        return Err(Error::new(Code::NotFound, "expected a pin, found none").in_file(file));
    }
    checkpoint.sync()
}

fn pin_file(name: &str) -> Result<String> {
    Marker::pin(name).map(|marker| marker.file_name()).ok_or_else(|| {
        let message = format!("expected a pin of 1 to 64 of A-Z a-z 0-9 . _ -, found {name:?}");
        Error::new(Code::BadArgument, message)
    })
}

/// Markers are for checkpoints that stay.
fn check_kept(checkpoint: &Arc<dyn Store>) -> Result<()> {
    if checkpoint.stat(names::DELETED)?.is_some() {
        return Err(deleted());
    }
    if checkpoint.stat(names::COMMIT)?.is_none() {
        let message = "expected a commit file, found none";
        return Err(
            Error::rule(Code::NotCommitted, rule::COMMIT_ABSENT, message).in_file(names::COMMIT)
        );
    }
    Ok(())
}

/// The answer to whoever wants something of a checkpoint that is being removed.
#[cold]
pub(crate) fn deleted() -> Error {
    let message = "expected a checkpoint that stays, found the marker of one being removed";
    Error::rule(Code::Deleted, rule::RUN_DELETED, message).in_file(names::DELETED)
}
