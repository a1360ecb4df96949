//! Every rule and byte of a checkpoint.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use waystation_format::{Error, Result, names};
use waystation_reader::{Checkpoint, VerifyOptions};
use waystation_store::Store;

use super::{Attempt, Work, open_attempt};
use crate::output;

/// What a verification found.
#[derive(Debug)]
pub struct Verified {
    /// Whether data were left unread.
    pub quick: bool,
    /// What is wrong; nothing in a sound checkpoint.
    pub findings: Vec<Error>,
    /// What is not wrong, but worth to know.
    pub notes: Vec<String>,
}

impl Verified {
    /// The object that `waystation verify --json` prints.
    #[must_use]
    pub fn json(&self) -> Value {
        let findings: Vec<Value> = self.findings.iter().map(output::error_json).collect();
        let ok = self.findings.is_empty();
        json!({ "ok": ok, "quick": self.quick, "findings": findings, "notes": self.notes })
    }
}

/// Verifies the checkpoint at `path`; `quick` leaves tensor data and attachments unread.
///
/// # Errors
/// Those of [`waystation_reader::verify()`]; what is wrong with a checkpoint are findings.
pub fn verify(path: &Path, quick: bool, work: &Work<'_>) -> Result<Verified> {
    let Attempt { store, name, .. } = open_attempt(path)?;
    let options = VerifyOptions { quick, threads: work.threads, progress: work.watcher };
    let report = waystation_reader::verify(&store, &options)?;
    let mut notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    if let (true, Some(name)) = (report.ok, name) {
        notes.extend(misnamed(store, &name, work)?);
    }
    Ok(Verified { quick, findings: report.findings, notes })
}

/// A whole checkpoint under another name than its own is passed over by `latest` and `list`.
fn misnamed(store: Arc<dyn Store>, name: &str, work: &Work<'_>) -> Result<Option<String>> {
    let checkpoint = Checkpoint::open_store(store, work.open_options())?;
    let common = &checkpoint.manifest().common;
    let own = names::attempt_dir(common.step, &common.attempt);
    let note = || format!("name: a run passes over it, for its manifest says {own}");
    Ok((own != name).then(note))
}
