//! Everything that a checkpoint says, read by our reader on one thread. Knows nothing of where its files are.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use waystation_format::digest::Hasher;
use waystation_format::entry::Native;
use waystation_format::part::Omitted;
use waystation_format::{Code, Digest, Entry, Error, Result, Topology};
use waystation_reader::{Checkpoint, OpenOptions, Report, VerifyOptions, verify};
use waystation_store::Store;

/// Bytes of a tensor that are in memory at once: few, so that small ones come in pieces, too.
const PIECE_BYTES: u64 = 1000;

/// What a checkpoint says. Equal for two that say the same, whoever wrote which box of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Name of the run.
    pub run: String,
    /// Optimizer steps completed.
    pub step: u64,
    /// By identity key.
    pub tensors: BTreeMap<String, Tensor>,
    /// The identity keys of aliases, their targets, and how frameworks call them.
    pub aliases: BTreeMap<String, (String, Vec<Native>)>,
    /// By record key.
    pub records: BTreeMap<String, String>,
    /// By logical path.
    pub attachments: BTreeMap<String, Digest>,
    /// Axes and their sizes.
    pub topology: Topology,
    /// What is not there.
    pub omitted: Vec<Omitted>,
}

/// A tensor, packed as one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its dtype.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The part of it that means something.
    pub valid: Option<Vec<u64>>,
    /// The axes of a parameter that its axes follow.
    pub axes: Option<Vec<Option<u8>>>,
    /// Elements of a block, of a flat companion.
    pub block: Option<u64>,
    /// How frameworks call it.
    pub native: Vec<Native>,
    /// Its length and digest; none of a flat companion that cannot be read whole.
    pub bytes: Option<(u64, Digest)>,
}

/// Opens a checkpoint.
///
/// # Errors
/// What the reader answers.
pub fn open(store: &Arc<dyn Store>) -> Result<Checkpoint> {
    Checkpoint::open_store(Arc::clone(store), OpenOptions::new().threads(1))
}

/// Checks everything.
///
/// # Errors
/// What the reader answers about the directory itself.
pub fn validate(store: &Arc<dyn Store>) -> Result<Report> {
    verify(store, &VerifyOptions { threads: 1, ..VerifyOptions::default() })
}

/// Reads everything: all pages first, then tensors, attachments and the targets of aliases.
///
/// # Errors
/// The first breach.
pub fn everything(checkpoint: &Checkpoint) -> Result<Content> {
    let mut content = Content {
        run: checkpoint.run().to_owned(),
        step: checkpoint.step(),
        topology: checkpoint.manifest().common.topology.clone(),
        omitted: checkpoint.manifest().omitted.clone(),
        ..Content::default()
    };
    let entries: Vec<Arc<Entry>> = checkpoint.entries().collect::<Result<_>>()?;
    for record in checkpoint.records() {
        let record = record?;
        content.records.insert(record.key.key(), record.json.into_string());
    }
    for entry in &entries {
        if let Entry::Tensor(tensor) = &**entry {
            let bytes = match digest(checkpoint, entry) {
                Ok(read) => Some(read),
                Err(e) if e.code() == Code::BlockBoundary => None,
                Err(e) => return Err(e),
            };
            let read = Tensor {
                dtype: tensor.dtype.to_string(),
                shape: tensor.shape.to_vec(),
                valid: tensor.valid.as_ref().map(|valid| valid.to_vec()),
                axes: tensor.axes.clone(),
                block: tensor.block,
                native: tensor.native.clone(),
                bytes,
            };
            content.tensors.insert(entry.key(), read);
        }
    }
    for attachment in checkpoint.attachments() {
        let mut hasher = Hashing(Hasher::new());
        checkpoint.read_attachment(attachment.path, &mut hasher)?;
        content.attachments.insert(attachment.path.to_owned(), hasher.0.finish());
    }
    for entry in &entries {
        if let Entry::Alias(alias) = &**entry {
            checkpoint.tensor_of(entry)?;
            content.aliases.insert(entry.key(), (alias.of.key(), alias.native.clone()));
        }
    }
    Ok(content)
}

/// Length and digest of a tensor.
///
/// # Errors
/// What the reader answers.
pub fn digest(checkpoint: &Checkpoint, entry: &Arc<Entry>) -> Result<(u64, Digest)> {
    let (mut bytes, mut hasher) = (0, Hasher::new());
    checkpoint.tensor_of(entry)?.stream(PIECE_BYTES, &mut |piece| {
        bytes += piece.len() as u64;
        hasher.update(piece);
        Ok(())
    })?;
    Ok((bytes, hasher.finish()))
}

/// Opens, reads and checks: all that a reader can say of a directory.
#[derive(Debug)]
pub struct Answers {
    /// What is in it, or the first breach.
    pub read: Result<Content>,
    /// The breaches that a validator found.
    pub findings: Vec<Error>,
}

/// Asks for all of it.
///
/// # Panics
/// If the directory cannot be listed.
#[must_use]
pub fn answers(store: &Arc<dyn Store>) -> Answers {
    let read = open(store).and_then(|checkpoint| everything(&checkpoint));
    let report = validate(store).expect("a directory can be listed");
    assert_eq!(report.ok, report.findings.is_empty());
    Answers { read, findings: report.findings }
}

struct Hashing(Hasher);

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
