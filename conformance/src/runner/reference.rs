//! The reference reader's word on what an adapter wrote: whether it is a checkpoint, and what is in it.

use std::path::Path;

use serde_json::{Value, json};
use waystation_format::{Code, Error, Result};
use waystation_reader::VerifyOptions;

use super::answer::shortened;
use crate::adapter;

/// What is wrong with the checkpoint at `path`, a line each.
///
/// # Errors
/// Those of the system.
pub fn findings(path: &Path) -> Result<Vec<String>> {
    let store = waystation_store::open_path(path)?;
    let report = waystation_reader::verify(&store, &VerifyOptions::default())?;
    Ok(report.findings.iter().map(ToString::to_string).collect())
}

/// The name of the checkpoint that the run at `path` is to be resumed from.
///
/// # Errors
/// Those of [`waystation_reader::latest`], except that no checkpoint is none.
pub fn latest(path: &Path) -> Result<Option<String>> {
    match waystation_reader::latest(&waystation_store::open_path(path)?) {
        Ok(latest) => Ok(Some(latest.name)),
        Err(e) if e.code() == Code::NoCheckpoint => Ok(None),
        Err(e) => Err(e),
    }
}

/// What the manifest of the checkpoint at `path` says of its save, under the names that a recipe has for it.
///
/// # Errors
/// The code and message that the reader refuses with.
pub fn save(path: &Path) -> Result<Value> {
    let manifest = waystation_reader::Checkpoint::open(path)?.manifest().encode()?;
    let manifest: Value = serde_json::from_slice(&manifest)
        .map_err(|e| Error::new(Code::NotCanonical, format!("expected a manifest, found {e}")))?;
    let member = |name: &str| manifest.get(name).cloned().unwrap_or_default();
    Ok(json!({
        "attempt": member("attempt"), "block_bytes": member("block_bytes"), "parent": member("parent"),
        "topology": member("topology"), "writers": member("writers"),
    }))
}

/// The content of the checkpoint at `path` as `read` answers it, every byte checked.
///
/// # Errors
/// The code and message that the reader refuses with.
pub fn content(path: &Path) -> Result<Value> {
    let request = json!({ "id": 0, "op": "read", "path": path }).to_string();
    let mut answer = adapter::answer(request.as_bytes());
    if let Some(ok) = answer.get_mut("ok") {
        return Ok(ok.take());
    }
    let error = answer.get("error").unwrap_or(&answer);
    let code = error.get("code").and_then(Value::as_str).and_then(Code::from_id);
    Err(Error::new(code.unwrap_or(Code::Io), shortened(error)))
}
