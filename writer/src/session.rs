//! One writer of one attempt, while it says what it will write.
//!
//! It knows declarations and keeps them until the layout is fixed. It must not know bytes of
//! tensors: those come after [`Session::lay_out`]. Attachments are the exception, they are streamed
//! at once and nothing else depends on their length.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use waystation_format::attachment::{self, AttachmentEntry};
use waystation_format::common::Common;
use waystation_format::entry::{Alias, Tensor};
use waystation_format::part::{Extension, Inventory, Omitted, PartContent, Producer};
use waystation_format::record::Record;
use waystation_format::{Code, Digest, Error, Incarnation, Region, Result, limits, names, rule};
use waystation_store::Store;

use crate::attach;
use crate::decl::TensorDecl;
use crate::marks;
use crate::poison::Poison;
use crate::state;
use crate::workers;
use crate::writing::Writing;

/// A chunk that was declared, for writing its bytes. It is of no use to another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId {
    pub(crate) writer: u32,
    pub(crate) inc: Incarnation,
    /// Position among the chunks declared.
    pub(crate) at: usize,
}

/// How a writer lays out and writes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// A new shard is begun before a chunk that would make one longer than this, in bytes.
    pub shard_target_bytes: u64,
    /// Threads that make, fsync and close the shards.
    pub threads: usize,
    /// Whether records of resume state are held against themselves and the step before anything is
    /// written: what a reader would refuse to resume from is then refused here, at the rank that has
    /// it wrong.
    pub check_state: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            shard_target_bytes: limits::SHARD_TARGET_BYTES,
            threads: workers::default_threads(),
            check_state: true,
        }
    }
}

/// One writer of one attempt.
///
/// After an error of the file system every further call answers `poisoned`: the attempt is dead,
/// and a save begins anew in another one.
#[must_use = "a session that is dropped leaves its attempt without a part, so it cannot be committed"]
pub struct Session {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) common: Common,
    pub(crate) writer: u32,
    pub(crate) inc: Incarnation,
    pub(crate) options: SessionOptions,
    pub(crate) poison: Poison,
    /// Entries without chunks, by identity key.
    pub(crate) tensors: BTreeMap<String, Arc<Tensor>>,
    pub(crate) chunks: Vec<Planned>,
    pub(crate) content: Content,
}

/// A declared chunk.
pub(crate) struct Planned {
    pub(crate) tensor: Arc<Tensor>,
    pub(crate) region: Region,
    pub(crate) bytes: u64,
}

/// What goes into the part as it is.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) aliases: Vec<Alias>,
    pub(crate) attachments: Vec<AttachmentEntry>,
    pub(crate) extensions: Vec<Extension>,
    pub(crate) inventory: Option<Inventory>,
    pub(crate) omitted: Vec<Omitted>,
    pub(crate) producer: Producer,
    pub(crate) records: Vec<Record>,
}

impl Session {
    /// Begins as writer `writer` of the attempt in `store`, a directory that the coordinator made.
    ///
    /// # Errors
    ///
    /// `bad-argument` for a writer beyond `common.writers`; what the common members break, as
    /// `bad-member` for a block length that is none; `exists` when an earlier process wrote
    /// here as the same writer, or the attempt is committed; `deleted`; the store's.
    pub fn begin(store: Arc<dyn Store>, common: Common, writer: u32) -> Result<Self> {
        Self::with_incarnation(store, common, writer, draw()?)
    }

    /// As [`begin`](Self::begin), for a process that made the attempt's directory, is all its
    /// writers one after the other, and so knows that nobody wrote there before: the directory is
    /// not looked through, which for many writers would take the square of their number.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin), but `exists` and `deleted` are not seen.
    pub fn begin_alone(store: Arc<dyn Store>, common: Common, writer: u32) -> Result<Self> {
        Self::new(store, common, writer, draw()?)
    }

    /// As [`begin`](Self::begin) with a given incarnation, for files whose every byte is fixed
    /// beforehand. Two processes must never share one.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub fn with_incarnation(
        store: Arc<dyn Store>,
        common: Common,
        writer: u32,
        inc: Incarnation,
    ) -> Result<Self> {
        let session = Self::new(store, common, writer, inc)?;
        check_untouched(&session.store, writer)?;
        Ok(session)
    }

    fn new(store: Arc<dyn Store>, common: Common, writer: u32, inc: Incarnation) -> Result<Self> {
        if writer >= common.writers {
            let message = format!("expected a writer below {}, found {writer}", common.writers);
            return Err(Error::rule(Code::BadArgument, rule::PART_WRITER, message));
        }
        check_common(&common, writer, inc)?;
        Ok(Self {
            store,
            common,
            writer,
            inc,
            options: SessionOptions::default(),
            poison: Poison::default(),
            tensors: BTreeMap::new(),
            chunks: Vec::new(),
            content: Content::default(),
        })
    }

    /// Replaces the options.
    pub fn set_options(&mut self, options: SessionOptions) {
        self.options = options;
    }

    /// Declares a tensor. Needed only for one of which this writer has no chunk; a tensor with a
    /// zero in its shape has none anywhere.
    ///
    /// # Errors
    ///
    /// What the tensor's members break; `tensor-conflict` when it was declared differently.
    pub fn declare(&mut self, tensor: &TensorDecl) -> Result<()> {
        self.declared(tensor).map(drop)
    }

    /// Declares that this writer will write the box `region` of `tensor`.
    ///
    /// # Errors
    ///
    /// As [`declare`](Self::declare); `bad-chunk` for a region that is empty or leaves the shape.
    pub fn chunk(&mut self, tensor: &TensorDecl, region: &Region) -> Result<ChunkId> {
        let tensor = self.declared(tensor)?;
        let outside = !region.is_within(&tensor.shape);
        if outside || region.extent.contains(&0) {
            let message = format!("expected a box in the shape {:?}, found {region}", tensor.shape);
            let broken = if outside { rule::CHUNK_BOUNDS } else { rule::CHUNK_NONEMPTY };
            return Err(
                Error::rule(Code::BadChunk, broken, message).in_tensor(tensor.identity.key())
            );
        }
        let bytes = tensor.chunk_bytes(region)?;
        let id = ChunkId { writer: self.writer, inc: self.inc, at: self.chunks.len() };
        self.chunks.push(Planned { tensor, region: region.clone(), bytes });
        Ok(id)
    }

    /// Gives a tensor a second name. That there is such a tensor is seen at the commit: another
    /// writer may declare it.
    ///
    /// # Errors
    ///
    /// What the alias's members break; `bad-alias` for one of itself.
    pub fn alias(&mut self, alias: Alias) -> Result<()> {
        let identity = alias.identity();
        alias.check(&self.common.topology).map_err(|e| e.in_tensor(identity.key()))?;
        if alias.of == identity {
            let message =
                "expected the identity of a tensor to give a second name to, found the alias's own";
            let error = Error::rule(Code::BadAlias, rule::ALIAS_TARGET, message);
            return Err(error.at_pointer("/of").in_tensor(identity.key()));
        }
        self.content.aliases.push(alias);
        Ok(())
    }

    /// Adds a record.
    ///
    /// One without a coordinate holds for all ranks: any writer may write it, and where several do
    /// theirs must be equal (`record-conflict` at the commit). One that differs along axes of the
    /// topology has a coordinate along these, and one is needed for every place along them
    /// (`record-grid` at the commit). What it says is checked by [`lay_out`](Self::lay_out).
    pub fn record(&mut self, record: Record) {
        self.content.records.push(record);
    }

    /// Says how many identities the whole attempt has, and their digest; the committer checks it.
    pub fn inventory(&mut self, inventory: Inventory) {
        self.content.inventory = Some(inventory);
    }

    /// Says which parameters are left out, and why.
    pub fn omit(&mut self, omitted: Omitted) {
        self.content.omitted.push(omitted);
    }

    /// Adds the data of a feature, which `common.features` must name.
    pub fn extension(&mut self, extension: Extension) {
        self.content.extensions.push(extension);
    }

    /// Says what program writes.
    pub fn producer(&mut self, producer: Producer) {
        self.content.producer = producer;
    }

    /// Attaches `bytes` under the logical path `path`.
    ///
    /// # Errors
    ///
    /// As [`attach_with`](Self::attach_with).
    pub fn attach_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.attach_with(path, &mut |out| out.write_all(bytes).map_err(|e| Error::io("attach", e)))
    }

    /// Attaches all that `from` gives, in bounded memory.
    ///
    /// # Errors
    ///
    /// As [`attach_with`](Self::attach_with); an error of `from`.
    pub fn attach_reader(&mut self, path: &str, from: &mut dyn Read) -> Result<()> {
        self.attach_with(path, &mut |out| {
            io::copy(from, out).map(drop).map_err(|e| Error::io("attach", e))
        })
    }

    /// Attaches all that `fill` writes, in bounded memory; the file is durable afterwards.
    ///
    /// # Errors
    ///
    /// `bad-path` for a path outside its form, or one that collides with another; `limit` for too
    /// many; an error of `fill` and those of the store, after which the attempt is dead.
    pub fn attach_with(
        &mut self,
        path: &str,
        fill: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        self.poison.check()?;
        attachment::check_path(path)?;
        let attachments = &mut self.content.attachments;
        let position = position(attachments.len(), limits::ATTACHMENTS_PER_WRITER)?;
        // A path that collides is refused before a file is made; the entry stands for what is there
        // only, also when `fill` panics.
        let mut entry =
            AttachmentEntry { bytes: 0, path: path.to_owned(), sha256: Digest::of(&[]) };
        attachment::check_unique(attachments.iter().chain([&entry]))?;
        let name = names::attachment(self.writer, self.inc, position);
        (entry.bytes, entry.sha256) = self.poison.guard(attach::write(&self.store, &name, fill))?;
        attachments.push(entry);
        Ok(())
    }

    /// Fixes where every chunk lies, makes the shards at their full length and writes their
    /// headers. Whatever of the declarations cannot stand in a part is found before a shard is made.
    ///
    /// # Errors
    ///
    /// `limit` for too many shards, too long a header or part; what aliases, records, extensions and
    /// omissions break; `state-disagree`, `bad-rng-state`, `bad-position`, `canary-mismatch` for a
    /// record of resume state that could not be resumed from; those of the store (`io-full` when
    /// there is no space).
    pub fn lay_out(self) -> Result<Writing> {
        self.poison.check()?;
        if self.options.check_state {
            state::check_all(&self.content.records, self.common.step)?;
        }
        Writing::lay_out(self)
    }

    fn declared(&mut self, decl: &TensorDecl) -> Result<Arc<Tensor>> {
        self.poison.check()?;
        let key = decl.identity.key();
        let tensor = decl.to_tensor();
        if let Some(declared) = self.tensors.get(&key) {
            if **declared == tensor {
                return Ok(Arc::clone(declared));
            }
            let message = "expected one declaration of a tensor, found another that differs";
            return Err(
                Error::rule(Code::TensorConflict, rule::DERIVE_TENSORS, message).in_tensor(key)
            );
        }
        tensor.check(&self.common.topology).map_err(|e| e.in_tensor(&key))?;
        let tensor = Arc::new(tensor);
        self.tensors.insert(key, Arc::clone(&tensor));
        Ok(tensor)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("store", &self.store)
            .field("writer", &self.writer)
            .field("inc", &self.inc)
            .field("tensors", &self.tensors.len())
            .field("chunks", &self.chunks.len())
            .finish_non_exhaustive()
    }
}

fn draw() -> Result<Incarnation> {
    let inc = getrandom::u64().map_err(|e| Error::io("draw an incarnation", e.into()))?;
    Ok(Incarnation(inc))
}

/// The number of the next one in a list of a part.
pub(crate) fn position(count: usize, limit: u64) -> Result<u32> {
    u32::try_from(count).ok().filter(|&position| u64::from(position) < limit).ok_or_else(|| {
        let message = format!("expected up to {limit} files of a kind, found one more");
        Error::rule(Code::Limit, rule::LIMIT_VALUE, message)
    })
}

/// A part that says nothing else says whether the common members are as they must be.
pub(crate) fn check_common(common: &Common, writer: u32, inc: Incarnation) -> Result<()> {
    let empty = PartContent {
        common: common.clone(),
        writer,
        inc,
        attachments: Vec::new(),
        shards: Vec::new(),
        // Features may name data that is still to come.
        extensions: Vec::new(),
        inventory: None,
        omitted: Vec::new(),
        producer: Producer::default(),
        entries: Vec::new(),
        records: Vec::new(),
    };
    empty.into_part().map(drop)
}

/// A process that begins must be the first to write as this writer, into an attempt that is open.
fn check_untouched(store: &Arc<dyn Store>, writer: u32) -> Result<()> {
    let exists = |rule, message: &str, name| {
        Err(Error::rule(Code::Exists, rule, message.to_owned()).in_file(name))
    };
    for listed in store.list()? {
        let name = listed.name;
        if name == names::DELETED {
            return Err(marks::deleted());
        }
        if name == names::COMMIT {
            let message = "expected an attempt to write into, found a checkpoint";
            return exists(rule::DIR_IMMUTABLE, message, name);
        }
        let owner = names::parse_shard(&name)
            .map(|shard| shard.writer)
            .or_else(|| names::parse_attachment(&name).map(|(writer, ..)| writer))
            .or_else(|| names::parse_part(&name).map(|(writer, _)| writer));
        if owner == Some(writer) {
            let message = "expected no file of this writer, found one of an earlier process";
            return exists(rule::WRITER_RESTART, message, name);
        }
    }
    Ok(())
}
