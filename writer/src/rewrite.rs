//! Writing a checkpoint again, shared out among another number of writers.
//!
//! It knows what is carried over and what is made anew. Reading is the reader's business, and so is
//! who holds what; bytes pass through in pieces, never a whole tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use waystation_format::common::{Common, Version};
use waystation_format::entry::{Alias, Entry, Tensor};
use waystation_format::features::Features;
use waystation_format::inventory::InventoryBuilder;
use waystation_format::part::{Extension, Inventory, Producer};
use waystation_format::{Attempt, Code, Error, Region, Result};
use waystation_reader::{Checkpoint, Progress, TensorRef, Want, reshard as sharing};
use waystation_store::Store;

use crate::attempt;
use crate::commit::{self, CommitOptions, Committed, go_on};
use crate::decl::TensorDecl;
use crate::put;
use crate::session::{ChunkId, Session, SessionOptions};
use crate::workers;
use crate::writing::Writing;

/// Bytes of a tensor that a thread holds at a time, unless a block is longer.
const PIECE_BYTES: u64 = 4 << 20;
/// Threads that hold pieces.
const THREADS: usize = 4;

/// How to write a checkpoint again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReshardOptions {
    /// Number of writers that the new one is shared out among.
    pub writers: u32,
    /// The new attempt; `None` takes the timeline after the original's and a random nonce.
    pub attempt: Option<Attempt>,
    /// Bytes of a block; `None` keeps the original's.
    pub block_bytes: Option<u64>,
    /// Of each writer.
    pub session: SessionOptions,
    /// The program that asks.
    pub producer: Producer,
    /// The run that the new directory stands in, and its name there.
    pub run: Option<(Arc<dyn Store>, String)>,
}

impl ReshardOptions {
    /// For `writers` writers, with everything else as it comes.
    #[must_use]
    pub fn new(writers: u32) -> Self {
        Self {
            writers,
            attempt: None,
            block_bytes: None,
            session: SessionOptions::default(),
            producer: Producer::default(),
            run: None,
        }
    }
}

/// Writes `from` again into `to`, a new and empty directory, and commits it. The new one has the
/// same step, run, topology, tensors, aliases, records and attachments; `from` is its parent.
///
/// A flat companion that cannot be read whole keeps its boxes, and so does the tensor that it
/// accompanies. Data of features that this version does not know is carried when it says so, and
/// left out with the feature otherwise.
///
/// # Errors
///
/// `exists` when `to` is not empty; the first breach of the original; `interrupted`; the stores'.
/// What is there after an error is no checkpoint.
pub fn reshard(
    from: &Checkpoint,
    to: &Arc<dyn Store>,
    options: &ReshardOptions,
    progress: &dyn Progress,
) -> Result<Committed> {
    if let Some(first) = to.list()?.first() {
        let message = "expected an empty directory, found a file";
        return Err(Error::new(Code::Exists, message).in_file(&first.name));
    }
    let content = Content::gather(from)?;
    let (common, extensions) = carried(from, options)?;
    if let Some((_, name)) = &options.run {
        commit::check_name(Some(name), &common)?;
    }
    let hands = content.share(options.writers)?;
    let bytes = hands.iter().flatten().fold(0, |sum: u64, held| sum.saturating_add(held.bytes));
    progress.begin("reshard", bytes);
    for (writer, hand) in (0..).zip(&hands) {
        let mut session = Session::begin_alone(Arc::clone(to), common.clone(), writer)?;
        // Records are carried as they are, whatever they say.
        session.set_options(SessionOptions { check_state: false, ..options.session });
        session.producer(options.producer.clone());
        session.inventory(content.inventory);
        if writer == 0 {
            declare_rest(from, &content, &extensions, &mut session, progress)?;
        }
        write(from, &content, hand, session, progress)?;
    }
    let mut commit_options = CommitOptions::default();
    if let Some((run, name)) = &options.run {
        commit_options = CommitOptions::in_run(Arc::clone(run), name);
    }
    commit_options.check_state = false;
    commit::commit(to, &commit_options, progress)
}

/// What is in the original, without its chunks.
struct Content {
    /// Ascending by identity key.
    tensors: Vec<Tensor>,
    aliases: Vec<Alias>,
    inventory: Inventory,
    /// Chunks of the tensors that keep their boxes, by the tensor's position.
    kept: BTreeMap<usize, Vec<Region>>,
}

/// A box that a new writer writes.
struct Held {
    tensor: usize,
    region: Region,
    bytes: u64,
    /// The original's chunk, when it is copied as it is.
    chunk: Option<usize>,
}

impl Content {
    fn gather(from: &Checkpoint) -> Result<Self> {
        let mut tensors = Vec::new();
        let mut aliases = Vec::new();
        let mut inventory = InventoryBuilder::new();
        let mut fixed = BTreeSet::new();
        for entry in from.entries() {
            let entry = entry?;
            inventory.push(&entry.key());
            match &*entry {
                Entry::Alias(alias) => aliases.push(alias.clone()),
                Entry::Tensor(tensor) => {
                    if tensor.block.is_some() && !is_readable(from, tensor)? {
                        fixed.insert(group(tensor));
                    }
                    tensors.push(TensorDecl::from(tensor).to_tensor());
                }
            }
        }
        let mut kept = BTreeMap::new();
        if !fixed.is_empty() {
            for (position, tensor) in tensors.iter().enumerate() {
                if fixed.contains(&group(tensor)) {
                    let original = from.tensor(&tensor.identity)?;
                    let regions = original.entry().chunks.iter().map(|chunk| chunk.region.clone());
                    kept.insert(position, regions.collect());
                }
            }
        }
        Ok(Self { tensors, aliases, inventory: inventory.finish(), kept })
    }

    /// What each writer writes.
    fn share(&self, writers: u32) -> Result<Vec<Vec<Held>>> {
        let free: Vec<usize> =
            (0..self.tensors.len()).filter(|position| !self.kept.contains_key(position)).collect();
        let tensors: Vec<&Tensor> =
            free.iter().filter_map(|&position| self.tensors.get(position)).collect();
        let mut hands = Vec::new();
        for pieces in sharing::share(&tensors, writers)? {
            let held = pieces.into_iter().filter_map(|piece| {
                let tensor = free.get(piece.tensor).copied()?;
                Some(Held { tensor, region: piece.region, bytes: piece.bytes, chunk: None })
            });
            hands.push(held.collect::<Vec<Held>>());
        }
        for (&position, regions) in &self.kept {
            let Some(tensor) = self.tensors.get(position) else { continue };
            for (chunk, region) in regions.iter().enumerate() {
                // Boxes that belong together go to one writer.
                let writer = sharing::owner(&format!("{}{region}", tensor.identity.name), writers);
                let bytes = tensor.chunk_bytes(region)?;
                let hand = usize::try_from(writer).ok().and_then(|writer| hands.get_mut(writer));
                if let Some(hand) = hand {
                    let (region, chunk) = (region.clone(), Some(chunk));
                    hand.push(Held { tensor: position, region, bytes, chunk });
                }
            }
        }
        Ok(hands)
    }
}

/// A flat companion belongs to the tensors of its component, name, scope and shape.
fn group(tensor: &Tensor) -> (String, String, Vec<(String, u64)>, Vec<u64>) {
    let identity = &tensor.identity;
    let shape = tensor.shape.to_vec();
    (identity.component.clone(), identity.name.clone(), identity.scope.clone(), shape)
}

/// Whether all of a flat companion's chunks begin and end on blocks.
fn is_readable(from: &Checkpoint, companion: &Tensor) -> Result<bool> {
    match from.plan(&[Want { tensor: companion.identity.clone(), region: None }]) {
        Ok(_) => Ok(true),
        Err(e) if e.code() == Code::BlockBoundary => Ok(false),
        Err(e) => Err(e),
    }
}

/// What every new part states, and the data of features that is carried over.
fn carried(from: &Checkpoint, options: &ReshardOptions) -> Result<(Common, Vec<Extension>)> {
    let original = from.manifest();
    let attempt = match options.attempt {
        Some(attempt) => attempt,
        None => attempt::following(original.common.attempt)?,
    };
    let mut extensions: BTreeMap<&str, &Extension> = BTreeMap::new();
    for part in &original.parts {
        for extension in part.extensions.iter().filter(|extension| extension.keep) {
            extensions.entry(&extension.feature).or_insert(extension);
        }
    }
    let keep = |features: &[String]| {
        let kept = features.iter().filter(|feature| extensions.contains_key(feature.as_str()));
        kept.cloned().collect::<Vec<String>>()
    };
    let features = Features {
        optional: keep(&original.common.features.optional),
        required: keep(&original.common.features.required),
    };
    let common = Common {
        attempt,
        block_bytes: options.block_bytes.unwrap_or(original.common.block_bytes),
        features,
        parent: Some(from.digest()),
        run: original.common.run.clone(),
        step: original.common.step,
        topology: original.common.topology.clone(),
        version: Version::CURRENT,
        writers: options.writers,
    };
    Ok((common, extensions.into_values().cloned().collect()))
}

/// What the first writer declares for all.
fn declare_rest(
    from: &Checkpoint,
    content: &Content,
    extensions: &[Extension],
    session: &mut Session,
    progress: &dyn Progress,
) -> Result<()> {
    for tensor in content.tensors.iter().filter(|tensor| tensor.shape.contains(&0)) {
        session.declare(&TensorDecl::from(tensor))?;
    }
    content.aliases.iter().try_for_each(|alias| session.alias(alias.clone()))?;
    from.manifest().omitted.iter().for_each(|omitted| session.omit(omitted.clone()));
    extensions.iter().for_each(|extension| session.extension(extension.clone()));
    for record in from.records() {
        session.record(record?);
    }
    for attachment in from.attachments() {
        go_on(progress)?;
        let path = &attachment.entry.path;
        session.attach_with(path, &mut |out| from.read_attachment(path, out))?;
    }
    Ok(())
}

/// Writes what one writer holds.
fn write(
    from: &Checkpoint,
    content: &Content,
    hand: &[Held],
    mut session: Session,
    progress: &dyn Progress,
) -> Result<()> {
    let mut chunks = Vec::with_capacity(hand.len());
    for held in hand {
        let Some(tensor) = content.tensors.get(held.tensor) else { continue };
        let id = session.chunk(&TensorDecl::from(tensor), &held.region)?;
        chunks.push((id, tensor, held));
    }
    let threads = session.options.threads.min(THREADS);
    let writing = session.lay_out()?;
    workers::map(threads, &chunks, |_, &(id, tensor, held)| {
        go_on(progress)?;
        pass(&from.tensor(&tensor.identity)?, held, &writing, id, progress)
    })?;
    writing.finish().map(drop)
}

/// Passes the bytes of one box from the original to the new chunk.
fn pass(
    original: &TensorRef<'_>,
    held: &Held,
    writing: &Writing,
    id: ChunkId,
    progress: &dyn Progress,
) -> Result<()> {
    let mut stream = writing.stream(id)?;
    let mut take = |bytes: &[u8]| {
        go_on(progress)?;
        stream.push(bytes)?;
        progress.advance(put::length(bytes));
        Ok(())
    };
    match held.chunk {
        Some(chunk) => original.stream_chunk(chunk, PIECE_BYTES, &mut take)?,
        None => original.stream_region(&held.region, PIECE_BYTES, &mut take)?,
    }
    stream.finish()
}
