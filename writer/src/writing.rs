//! Writing the bytes of declared chunks, in any order and on many threads, and the part at last.
//!
//! It knows the fixed layout, CRCs taken from the caller's bytes on their way, and the order of
//! fsyncs. It must not know how tensors are split: the session was told.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use waystation_format::crc;
use waystation_format::entry::{Chunk, Entry, Tensor};
use waystation_format::pack;
use waystation_format::part::{CrcTable, PartContent, ShardEntry};
use waystation_format::shard::TablePlace;
use waystation_format::{
    Code, Digest, Error, Region, Result, ShardClass, arith, limits, names, rule,
};
use waystation_store::{NewObject, Store};

use crate::blocks::Blocks;
use crate::layout::{self, ShardPlan};
use crate::put;
use crate::session::{ChunkId, Session, position};
use crate::stream::ChunkStream;
use crate::workers;

/// Bytes whose CRC is taken before they are written, while they are in the cache. A power of two.
const PIECE: usize = 1 << 18;

/// A writer whose layout is fixed. Chunks are written through a shared reference, by any number of
/// threads and in any order; [`finish`](Writing::finish) makes all of it durable and writes the
/// part.
#[must_use = "without `finish` the attempt has no part of this writer and cannot be committed"]
pub struct Writing {
    session: Session,
    shards: Vec<OpenShard>,
    /// By [`ChunkId`].
    chunks: Vec<Placed>,
    blocks: Blocks,
    /// B, in memory's own integer.
    block_bytes: usize,
}

/// What a writer has made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Name of the part's file.
    pub part: String,
    /// The part's digest.
    pub digest: Digest,
    /// Bytes of all shards.
    pub bytes: u64,
}

struct OpenShard {
    object: Arc<dyn NewObject>,
    class: ShardClass,
    bytes: u64,
    table: Option<TablePlace>,
    /// Chunks in file order.
    chunks: Vec<usize>,
}

struct Placed {
    tensor: Arc<Tensor>,
    region: Region,
    bytes: u64,
    shard: u32,
    offset: u64,
    table_index: Option<u64>,
    first_block: usize,
    blocks: usize,
}

impl Writing {
    pub(crate) fn lay_out(mut session: Session) -> Result<Self> {
        let target = session.options.shard_target_bytes;
        let plans = layout::plan(&session.chunks, session.common.block_bytes, target)?;
        let (chunks, blocks) = place(&mut session, &plans)?;
        let block_bytes = arith::to_usize(session.common.block_bytes, "block length")?;
        let mut writing = Self { session, shards: Vec::new(), chunks, blocks, block_bytes };
        writing.check_part(&plans)?;
        let session = &writing.session;
        writing.shards = workers::map(session.options.threads, &plans, |position, plan| {
            make_shard(session, position, plan)
        })?;
        Ok(writing)
    }

    /// Length of a chunk in bytes.
    ///
    /// # Errors
    ///
    /// `bad-argument` for a chunk of another session.
    pub fn chunk_bytes(&self, id: ChunkId) -> Result<u64> {
        Ok(self.placed(id)?.bytes)
    }

    /// Writes `bytes` into a chunk, from its byte `offset` on: a multiple of `block_bytes`, and so
    /// is the end, unless it is the chunk's. Every byte is written exactly once.
    ///
    /// # Errors
    ///
    /// `bad-argument` for another place, one that was written before, or unused bits that are not
    /// zero; those of the store, after which the attempt is dead.
    pub fn write(&self, id: ChunkId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.session.poison.check()?;
        let chunk = self.placed(id)?;
        let in_chunk = |e: Error| e.in_tensor(chunk.tensor.identity.key());
        self.check_place(chunk, offset, bytes).map_err(in_chunk)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let skipped = arith::ceil_div(offset, self.session.common.block_bytes, "block")?;
        let skipped = arith::to_usize(skipped, "block")?;
        let first = chunk.first_block.checked_add(skipped).ok_or_else(too_many_blocks)?;
        if !self.blocks.claim(first, bytes.len().div_ceil(self.block_bytes)) {
            let message = format!("expected bytes not yet written, found some at {offset}");
            return Err(in_chunk(Error::new(Code::BadArgument, message)));
        }
        let at = arith::add(chunk.offset, offset, "offset in a shard")?;
        let shard = self.shard(chunk)?;
        self.session.poison.guard(self.write_blocks(shard, first, at, bytes)).map_err(in_chunk)
    }

    /// Writes a whole chunk.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); `bad-argument` for another length than the chunk's.
    pub fn write_all(&self, id: ChunkId, bytes: &[u8]) -> Result<()> {
        self.check_length(id, bytes)?;
        self.write(id, 0, bytes)
    }

    /// Whether `bytes` are as many as the chunk's.
    ///
    /// # Errors
    ///
    /// `bad-argument` when not.
    pub(crate) fn check_length(&self, id: ChunkId, bytes: &[u8]) -> Result<()> {
        let expected = self.chunk_bytes(id)?;
        if put::length(bytes) != expected {
            let message = format!("expected the chunk's {expected} bytes, found {}", bytes.len());
            return Err(Error::new(Code::BadArgument, message)
                .in_tensor(self.placed(id)?.tensor.identity.key()));
        }
        Ok(())
    }

    /// Bytes of a block.
    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Takes the bytes of a chunk in order, in pieces of any length.
    ///
    /// # Errors
    ///
    /// `bad-argument` for a chunk of another session.
    pub fn stream(&self, id: ChunkId) -> Result<ChunkStream<'_>> {
        let bytes = self.chunk_bytes(id)?;
        Ok(ChunkStream::new(self, id, bytes, self.block_bytes))
    }

    /// Checks that every chunk is whole, writes the tables of CRCs, makes every file durable (one
    /// fsync each, on the descriptor that wrote it), then the directory, then the part, then the
    /// directory again.
    ///
    /// # Errors
    ///
    /// `bad-argument` for a chunk that was not written to its end; `limit` for a part that is too
    /// long; those of the store. After any of them the attempt is dead.
    pub fn finish(self) -> Result<Written> {
        self.session.poison.check()?;
        let crcs = self.chunk_crcs()?;
        let tables = workers::map(self.session.options.threads, &self.shards, |_, shard| {
            let table = self.finish_table(shard)?;
            shard.object.finish()?;
            Ok(table)
        })?;
        let store = Arc::clone(&self.session.store);
        store.sync()?;
        let mut bytes = 0;
        let mut shards = Vec::with_capacity(self.shards.len());
        for (shard, crc_table) in self.shards.iter().zip(tables) {
            bytes = arith::add(bytes, shard.bytes, "length of all shards")?;
            shards.push(ShardEntry { bytes: shard.bytes, class: shard.class, crc_table });
        }
        let part = self.content(&crcs, shards).into_part()?;
        let name = part.file_name();
        put_part(&store, &name, part.raw())?;
        store.sync()?;
        Ok(Written { part: name, digest: part.digest(), bytes })
    }

    /// Finds what is wrong with the part before any space is taken: it lacks but the CRCs.
    fn check_part(&self, plans: &[ShardPlan]) -> Result<()> {
        let no_crc =
            |place: TablePlace| CrcTable { count: place.count, crc32c: 0, offset: place.offset };
        let shards = plans.iter().map(|plan| ShardEntry {
            bytes: plan.layout.bytes,
            class: plan.class,
            crc_table: plan.layout.table.map(no_crc),
        });
        self.content(&vec![0; self.chunks.len()], shards.collect()).into_part().map(drop)
    }

    fn check_place(&self, chunk: &Placed, offset: u64, bytes: &[u8]) -> Result<()> {
        let block = self.session.common.block_bytes;
        let end = arith::add(offset, put::length(bytes), "end of a write")?;
        let expected = if !offset.is_multiple_of(block) {
            format!("expected an offset that is a multiple of {block}")
        } else if end > chunk.bytes {
            format!("expected a write within the chunk's {} bytes", chunk.bytes)
        } else if end != chunk.bytes && !end.is_multiple_of(block) {
            format!("expected a write that ends at a multiple of {block} or at {}", chunk.bytes)
        } else if end == chunk.bytes && !has_zero_tail(chunk, bytes)? {
            "expected unused bits of the last byte to be zero".to_owned()
        } else {
            return Ok(());
        };
        let message = format!("{expected}, found {} bytes at {offset}", bytes.len());
        Err(Error::new(Code::BadArgument, message))
    }

    /// Writes claimed blocks, the first at `at` in the shard: the CRC of each piece, then the piece
    /// while it is in the cache.
    fn write_blocks(
        &self,
        shard: &OpenShard,
        mut block: usize,
        mut at: u64,
        bytes: &[u8],
    ) -> Result<()> {
        // Short blocks go out many at a time, long ones in several pieces.
        let mut crcs = Vec::new();
        for group in bytes.chunks(self.block_bytes.max(PIECE)) {
            for piece in group.chunks(PIECE) {
                for run in piece.chunks(self.block_bytes) {
                    crcs.push((crc::crc32c(run), put::length(run)));
                }
                shard.object.write_at(piece, at)?;
                at = arith::add(at, put::length(piece), "offset in a shard")?;
            }
            let per_block = self.block_bytes.div_ceil(PIECE);
            for runs in crcs.chunks(per_block) {
                let join = |crc, &(next, length): &(u32, u64)| crc::combine(crc, next, length);
                self.blocks.set(block, runs.iter().fold(0, join));
                block = block.checked_add(1).ok_or_else(too_many_blocks)?;
            }
            crcs.clear();
        }
        Ok(())
    }

    /// The CRC of every chunk, combined from its blocks.
    fn chunk_crcs(&self) -> Result<Vec<u32>> {
        self.chunks.iter().map(|chunk| self.chunk_crc(chunk)).collect()
    }

    fn chunk_crc(&self, chunk: &Placed) -> Result<u32> {
        let block = self.session.common.block_bytes;
        let mut left = chunk.bytes;
        let mut whole = 0;
        for crc in self.blocks.crcs(chunk.first_block, chunk.blocks) {
            let Some(crc) = crc else {
                let written = chunk.bytes.saturating_sub(left);
                let message = format!(
                    "expected all {} bytes of the chunk {} to be written, found none at {written}",
                    chunk.bytes, chunk.region
                );
                return Err(Error::rule(Code::BadArgument, rule::INTRO_NEVER_FILL, message)
                    .in_tensor(chunk.tensor.identity.key()));
            };
            let length = left.min(block);
            whole = crc::combine(whole, crc, length);
            left = left.saturating_sub(length);
        }
        Ok(whole)
    }

    /// Writes a shard's table of block CRCs, if it has one.
    fn finish_table(&self, shard: &OpenShard) -> Result<Option<CrcTable>> {
        let Some(place) = &shard.table else { return Ok(None) };
        let mut table = Vec::new();
        let tabled = shard.chunks.iter().filter_map(|&chunk| self.chunks.get(chunk));
        for chunk in tabled.filter(|chunk| chunk.table_index.is_some()) {
            for crc in self.blocks.crcs(chunk.first_block, chunk.blocks).flatten() {
                table.extend_from_slice(&crc.to_le_bytes());
            }
        }
        shard.object.write_at(&table, place.offset)?;
        Ok(Some(CrcTable { count: place.count, crc32c: crc::crc32c(&table), offset: place.offset }))
    }

    /// What the part says; without CRCs it is as long and as good as with them.
    fn content(&self, crcs: &[u32], shards: Vec<ShardEntry>) -> PartContent {
        let Session { common, writer, inc, tensors, content, .. } = &self.session;
        let mut chunks_of: HashMap<String, Vec<Chunk>> = HashMap::new();
        for (chunk, &crc32c) in self.chunks.iter().zip(crcs) {
            let Placed { tensor, region, shard, offset, table_index, .. } = chunk;
            chunks_of.entry(tensor.identity.key()).or_default().push(Chunk {
                writer: *writer,
                shard: *shard,
                offset: *offset,
                region: region.clone(),
                crc32c,
                table_index: *table_index,
            });
        }
        let mut entries = Vec::with_capacity(tensors.len());
        for (key, tensor) in tensors {
            let mut tensor = Tensor::clone(tensor);
            tensor.chunks = chunks_of.remove(key).unwrap_or_default();
            entries.push(Entry::Tensor(tensor));
        }
        entries.extend(content.aliases.iter().cloned().map(Entry::Alias));
        PartContent {
            common: common.clone(),
            writer: *writer,
            inc: *inc,
            attachments: content.attachments.clone(),
            shards,
            extensions: content.extensions.clone(),
            inventory: content.inventory,
            omitted: content.omitted.clone(),
            producer: content.producer.clone(),
            entries,
            records: content.records.clone(),
        }
    }

    fn placed(&self, id: ChunkId) -> Result<&Placed> {
        let ours = (id.writer, id.inc) == (self.session.writer, self.session.inc);
        self.chunks.get(id.at).filter(|_| ours).ok_or_else(|| {
            Error::new(Code::BadArgument, "expected a chunk of this session, found another")
        })
    }

    fn shard(&self, chunk: &Placed) -> Result<&OpenShard> {
        let position = arith::to_usize(u64::from(chunk.shard), "shard")?;
        self.shards.get(position).ok_or_else(|| {
            Error::new(Code::BadArgument, "expected a chunk of this session, found another")
        })
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing")
            .field("session", &self.session)
            .field("shards", &self.shards.len())
            .field("chunks", &self.chunks.len())
            .finish_non_exhaustive()
    }
}

/// Where each declared chunk went, and the number of blocks of all of them.
fn place(session: &mut Session, plans: &[ShardPlan]) -> Result<(Vec<Placed>, Blocks)> {
    let block_bytes = session.common.block_bytes;
    let mut blocks: usize = 0;
    let mut chunks = Vec::with_capacity(session.chunks.len());
    for planned in std::mem::take(&mut session.chunks) {
        let count = arith::ceil_div(planned.bytes, block_bytes, "blocks of a chunk")?;
        let count = arith::to_usize(count, "blocks of a chunk")?;
        chunks.push(Placed {
            tensor: planned.tensor,
            region: planned.region,
            bytes: planned.bytes,
            shard: 0,
            offset: 0,
            table_index: None,
            first_block: blocks,
            blocks: count,
        });
        blocks = blocks.checked_add(count).ok_or_else(too_many_blocks)?;
    }
    for (number, plan) in plans.iter().enumerate() {
        let shard = position(number, limits::SHARDS_PER_WRITER)?;
        let places = plan.layout.offsets.iter().zip(&plan.layout.table_index);
        for (&chunk, (&offset, &table_index)) in plan.chunks.iter().zip(places) {
            if let Some(placed) = chunks.get_mut(chunk) {
                (placed.shard, placed.offset, placed.table_index) = (shard, offset, table_index);
            }
        }
    }
    Ok((chunks, Blocks::new(blocks)))
}

/// Makes a shard at its full length, which reads as zeros: the pads need no write of their own.
fn make_shard(session: &Session, number: usize, plan: &ShardPlan) -> Result<OpenShard> {
    let number = position(number, limits::SHARDS_PER_WRITER)?;
    let name = names::shard(plan.class, session.writer, session.inc, number);
    let object = session.store.create(&name, Some(plan.layout.bytes))?;
    object.write_at(&plan.layout.header, 0)?;
    Ok(OpenShard {
        object,
        class: plan.class,
        bytes: plan.layout.bytes,
        table: plan.layout.table,
        chunks: plan.chunks.clone(),
    })
}

/// Gives the part its name. Its digest is in the name, so other bytes there are not ours.
fn put_part(store: &Arc<dyn Store>, name: &str, part: &[u8]) -> Result<()> {
    if put::put_checked(store, name, part)? {
        return Ok(());
    }
    let message = "expected no part of this writer, found one";
    Err(Error::rule(Code::Exists, rule::WRITER_PART, message).in_file(name))
}

/// Whether the bits behind a chunk's last element, in the last of `bytes`, are zero.
fn has_zero_tail(chunk: &Placed, bytes: &[u8]) -> Result<bool> {
    let Some(&last) = bytes.last() else { return Ok(true) };
    let elements = chunk.tensor.stored_elements(&chunk.region)?;
    Ok(pack::unused_bits_zero(chunk.tensor.dtype.bits(), elements, last))
}

#[cold]
fn too_many_blocks() -> Error {
    Error::rule(Code::Limit, rule::LIMIT_ARITHMETIC, "expected fewer blocks than memory can count")
}
