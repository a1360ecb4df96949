//! What a checkpoint says: every tensor, record and attachment, read back in full.

use std::collections::BTreeMap;
use std::sync::Arc;

use waystation_format::Result;
use waystation_format::entry::Entry;
use waystation_reader::{Checkpoint, OpenOptions};
use waystation_store::Store;

/// Equal for two checkpoints that say the same, whoever wrote which box of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub step: u64,
    /// By identity key; an alias has its target's bytes.
    pub tensors: BTreeMap<String, Vec<u8>>,
    pub records: Vec<String>,
    /// By logical path.
    pub attachments: BTreeMap<String, Vec<u8>>,
}

impl Content {
    /// Reads all of it, every byte checked.
    ///
    /// # Errors
    /// The first breach.
    pub fn of(store: &Arc<dyn Store>) -> Result<Self> {
        let options = OpenOptions::new().threads(1);
        let checkpoint = Checkpoint::open_store(Arc::clone(store), options)?;
        let mut tensors = BTreeMap::new();
        for entry in checkpoint.entries() {
            let entry = entry?;
            let key = match &*entry {
                Entry::Tensor(tensor) => tensor.identity.key(),
                Entry::Alias(alias) => alias.identity().key(),
            };
            tensors.insert(key, checkpoint.tensor_of(&entry)?.read()?);
        }
        let mut records = Vec::new();
        for record in checkpoint.records() {
            records.push(format!("{:?}", record?));
        }
        let mut attachments = BTreeMap::new();
        for attachment in checkpoint.attachments() {
            let mut bytes = Vec::new();
            checkpoint.read_attachment(attachment.path, &mut bytes)?;
            attachments.insert(attachment.path.to_owned(), bytes);
        }
        Ok(Self { step: checkpoint.step(), tensors, records, attachments })
    }
}
