//! Everything in a checkpoint, each tensor by length and digest: its bytes are streamed through the digest.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waystation_format::digest::Hasher;
use waystation_format::value_tree::hex;
use waystation_format::{Code, Entry, Error, Identity, Result};
use waystation_reader::{Checkpoint, OpenOptions};

use super::Request;

/// Bytes of a tensor that are in memory at once.
pub(super) const PIECE_BYTES: u64 = 4 << 20;
/// Up to so many bytes stand beside their digest.
const SHOWN_BYTES: usize = 64;

pub(super) fn answer(request: &Request) -> Result<Value> {
    let checkpoint = open(&request.path("path")?)?;
    // All pages come before data, in the order of 12.1.
    let entries: Vec<Arc<Entry>> = checkpoint.entries().collect::<Result<_>>()?;
    let records =
        checkpoint.records().map(|record| parsed(&record?.json)).collect::<Result<Vec<_>>>()?;
    let mut tensors = Vec::new();
    for entry in &entries {
        if let Entry::Tensor(_) = **entry {
            tensors.push(tensor(&checkpoint, entry)?);
        }
    }
    let mut attachments = Vec::new();
    for attachment in checkpoint.attachments() {
        checkpoint.read_attachment(attachment.path, &mut io::sink())?;
        let entry = attachment.entry;
        attachments.push(json!({
            "path": attachment.path, "bytes": entry.bytes, "sha256": entry.sha256.to_string(),
        }));
    }
    let mut aliases = Vec::new();
    for entry in &entries {
        if let Entry::Alias(alias) = &**entry {
            checkpoint.tensor_of(entry)?;
            let mut said = named(&alias.identity());
            said.insert("of".to_owned(), parsed(&alias.of.key())?);
            aliases.push(Value::Object(said));
        }
    }
    Ok(json!({
        "run": checkpoint.run(),
        "step": checkpoint.step(),
        "tensors": tensors,
        "aliases": aliases,
        "attachments": attachments,
        "records": records,
    }))
}

/// Opened with one thread: what is measured is what is read.
pub(super) fn open(path: &Path) -> Result<Checkpoint> {
    Checkpoint::open_with(path, OpenOptions::new().threads(1))
}

fn tensor(checkpoint: &Checkpoint, entry: &Arc<Entry>) -> Result<Value> {
    let tensor = checkpoint.tensor_of(entry)?;
    let mut packed = Packed::default();
    let read = tensor.stream(PIECE_BYTES, &mut |bytes| {
        packed.take(bytes);
        Ok(())
    });
    let mut said = named(tensor.identity());
    said.insert("dtype".to_owned(), json!(tensor.entry().dtype.as_str()));
    said.insert("shape".to_owned(), json!(tensor.entry().shape.to_vec()));
    match read {
        Ok(()) => packed.say(&mut said),
        Err(e) if e.code() == Code::BlockBoundary => {
            said.insert("bytes".to_owned(), Value::Null);
            said.insert("sha256".to_owned(), Value::Null);
            said.insert("refused".to_owned(), json!(e.code().to_string()));
        }
        Err(e) => return Err(e),
    }
    Ok(Value::Object(said))
}

fn named(identity: &Identity) -> Map<String, Value> {
    let mut said = Map::new();
    said.insert("component".to_owned(), json!(identity.component));
    said.insert("role".to_owned(), json!(identity.role.as_str()));
    said.insert("name".to_owned(), json!(identity.name));
    said.insert("slot".to_owned(), json!(identity.slot));
    said.insert("owner".to_owned(), json!(identity.owner));
    said.insert("scope".to_owned(), json!(identity.scope.to_vec()));
    said
}

/// Canonical JSON of the format as an answer has it.
pub(super) fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text)
        .map_err(|e| Error::new(Code::NotCanonical, format!("expected JSON, found {e}")))
}

/// Elements by length and digest, and themselves where they are few.
#[derive(Default)]
pub(super) struct Packed {
    bytes: u64,
    hasher: Hasher,
    first: Vec<u8>,
}

impl Packed {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let room = SHOWN_BYTES.saturating_sub(self.first.len());
        self.first.extend(bytes.iter().take(room));
    }

    pub(super) fn say(self, said: &mut Map<String, Value>) {
        said.insert("bytes".to_owned(), json!(self.bytes));
        said.insert("sha256".to_owned(), json!(self.hasher.finish().to_string()));
        if u64::try_from(self.first.len()).is_ok_and(|shown| shown == self.bytes) {
            said.insert("hex".to_owned(), json!(hex(&self.first)));
        }
    }
}
