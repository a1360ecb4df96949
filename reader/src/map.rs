//! Views of tensors in mapped files: no copy, every block checked when the view is made.
//!
//! The only file of the crate with unsafe code, and the only one that maps. It knows which
//! tensors are one run of mapped bytes. It must not map anything that its caller has not promised
//! to leave alone.

#![allow(unsafe_code, reason = "mapping a file is unsafe by nature; each call carries its proof")]

use std::fmt;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};
use waystation_format::entry::{Chunk, Tensor};
use waystation_format::{Code, Error, Identity, Region, Result, arith, crc, pack, rule};

use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::complete::check_length;
use crate::options::OpenOptions;
use crate::plan::{damaged, parse_table};
use crate::shards::{self, ShardId};
use crate::tensor::TensorRef;

/// Shards that stay mapped though no view needs them.
const MAPPED_FILES: u64 = 256;

/// A checkpoint whose shards are mapped as views of them are asked for.
#[derive(Debug)]
pub struct MappedCheckpoint {
    checkpoint: Checkpoint,
    maps: Cache<ShardId, Arc<Mapped>>,
}

/// The bytes of a tensor, packed as one chunk, in a mapped file. It keeps the file mapped.
pub struct View {
    map: Arc<Mapped>,
    bytes: Range<usize>,
}

/// A mapped file, or nothing for a view of nothing.
#[derive(Debug)]
struct Mapped(Option<Mmap>);

impl Checkpoint {
    /// Opens the checkpoint in the directory `path` for views.
    ///
    /// # Safety
    /// Until the result and all its views are dropped, nobody may write to, truncate or replace the
    /// content of any shard in the directory, in this process or another: its bytes are lent out
    /// as slices. A file that is truncated meanwhile ends the process at the next access. Removing
    /// names is fine. A directory that conforming writers made is never written again.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub unsafe fn map(path: &Path) -> Result<MappedCheckpoint> {
        let checkpoint = Self::open(path)?;
        // SAFETY: the caller's promise is the same.
        Ok(unsafe { checkpoint.into_mapped() })
    }

    /// As [`map`](Self::map), for a checkpoint that is open already; its store must be one of files.
    ///
    /// # Safety
    /// As [`map`](Self::map).
    #[must_use]
    pub unsafe fn into_mapped(self) -> MappedCheckpoint {
        MappedCheckpoint { checkpoint: self, maps: Cache::new(MAPPED_FILES) }
    }

    /// As [`map`](Self::map), with choices.
    ///
    /// # Safety
    /// As [`map`](Self::map).
    ///
    /// # Errors
    /// As [`Checkpoint::open_with`].
    pub unsafe fn map_with(path: &Path, options: OpenOptions) -> Result<MappedCheckpoint> {
        let checkpoint = Self::open_with(path, options)?;
        // SAFETY: the caller's promise is the same.
        Ok(unsafe { checkpoint.into_mapped() })
    }
}

impl MappedCheckpoint {
    /// The checkpoint, for everything but views.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// A view of a tensor, or of the target of an alias. Every block is checked now, unless the
    /// checkpoint was opened without checks.
    ///
    /// # Errors
    /// `not-one-run` when its elements are not one run of bytes of one file that can be mapped;
    /// `crc-mismatch`, `crc-table-mismatch`, `nonzero-pad` for damage; those of
    /// [`Checkpoint::tensor`].
    pub fn view(&self, identity: &Identity) -> Result<View> {
        let tensor = self.checkpoint.tensor(identity)?;
        self.view_of(&tensor).map_err(|e| e.in_tensor(tensor.identity().key()))
    }

    fn view_of(&self, tensor: &TensorRef<'_>) -> Result<View> {
        let entry = tensor.entry();
        let Some(run) = one_run(entry)? else {
            return Ok(View { map: Arc::new(Mapped(None)), bytes: 0..0 });
        };
        let map = self.mapped(run.shard)?;
        if self.checkpoint.options().verify_reads {
            let name = shards::file_name(self.checkpoint.manifest(), run.shard)?;
            for chunk in &run.chunks {
                self.check(&map, entry, chunk, run.shard).map_err(|e| e.in_file(&*name))?;
            }
        }
        let begin = arith::to_usize(run.bytes.start, "a place in a file")?;
        let end = arith::to_usize(run.bytes.end, "a place in a file")?;
        Ok(View { map, bytes: begin..end })
    }

    fn mapped(&self, shard: ShardId) -> Result<Arc<Mapped>> {
        self.maps.get_or(&shard, || {
            let manifest = self.checkpoint.manifest();
            let object =
                self.checkpoint.shards().open(&**self.checkpoint.store(), manifest, shard)?;
            let Some(fd) = object.raw_fd() else {
                let message = "expected a file that can be mapped, found an object without one";
                return Err(Error::new(Code::NotOneRun, message).in_file(object.name()));
            };
            let bytes = arith::to_usize(object.bytes(), "the length of a file")?;
            // SAFETY: the descriptor is that of a regular file, open for reading, of at least this
            // length; whoever made this checkpoint a mapped one promised that nobody changes the
            // content of its shards while they are mapped.
            let map = unsafe { MmapOptions::new().len(bytes).map(fd.as_raw_fd()) }
                .map_err(|e| Error::io("map", e).in_file(object.name()))?;
            check_length(object.bytes(), crate::options::len(&map))?;
            Ok((Arc::new(Mapped(Some(map))), 1))
        })
    }

    /// Checks the bytes of a chunk, and that its unused bits are zero.
    fn check(&self, map: &Mapped, entry: &Tensor, chunk: &Chunk, shard: ShardId) -> Result<()> {
        let size = entry.chunk_bytes(&chunk.region)?;
        let end = arith::add(chunk.offset, size, "end of a chunk")?;
        let bytes = map.range(chunk.offset..end)?;
        match chunk.table_index {
            None => {
                let found = crc::crc32c(bytes);
                if found != chunk.crc32c {
                    return Err(damaged(chunk.crc32c, found).at_offset(chunk.offset));
                }
            }
            Some(first) => {
                let table = self.table(map, shard)?;
                let first = arith::to_usize(first, "table index")?;
                let expected = table.get(first..).unwrap_or_default();
                let block = self.checkpoint.manifest().common.block_bytes;
                let blocks = bytes.chunks(arith::to_usize(block, "block_bytes")?);
                let mut offset = chunk.offset;
                if blocks.len() > expected.len() {
                    let message = "expected the CRC of every block in the table, found too few";
                    let rule = rule::INTEGRITY_TABLE;
                    return Err(Error::rule(Code::CrcTableMismatch, rule, message));
                }
                for (block, &expected) in blocks.zip(expected) {
                    let found = crc::crc32c(block);
                    if found != expected {
                        return Err(damaged(expected, found).at_offset(offset));
                    }
                    offset = offset.saturating_add(crate::options::len(block));
                }
            }
        }
        let elements = entry.stored_elements(&chunk.region)?;
        let last = bytes.last().copied().unwrap_or(0);
        if pack::unused_bits_zero(entry.dtype.bits(), elements, last) {
            return Ok(());
        }
        let message = format!("expected zeros in the unused bits, found the byte {last:#04x}");
        Err(Error::rule(Code::NonzeroPad, rule::TENSOR_UNUSED_BITS, message)
            .at_offset(end.saturating_sub(1)))
    }

    fn table(&self, map: &Mapped, shard: ShardId) -> Result<Arc<[u32]>> {
        let shards = self.checkpoint.shards();
        if let Some(table) = shards.tables.get(&shard) {
            return Ok(table);
        }
        let place = shards::table(self.checkpoint.manifest(), shard)?;
        let bytes = arith::mul(place.count, 4, "bytes of a table")?;
        let end = arith::add(place.offset, bytes, "end of a table")?;
        let table = parse_table(map.range(place.offset..end)?, place.crc32c)
            .map_err(|e| e.at_offset(place.offset))?;
        shards.keep_table(shard, Arc::clone(&table));
        Ok(table)
    }
}

impl Mapped {
    fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    fn range(&self, range: Range<u64>) -> Result<&[u8]> {
        let begin = arith::to_usize(range.start, "a place in a file")?;
        let end = arith::to_usize(range.end, "a place in a file")?;
        self.bytes().get(begin..end).ok_or_else(|| {
            let message = format!("expected bytes {range:?} in a file of {}", self.bytes().len());
            Error::rule(Code::LengthMismatch, rule::DIR_LENGTH, message)
        })
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.bytes().get(self.bytes.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Chunks whose bytes follow one another in one file in the order of the tensor's elements.
struct OneRun<'t> {
    shard: ShardId,
    bytes: Range<u64>,
    chunks: Vec<&'t Chunk>,
}

/// The run that a tensor's elements are; `None` for a tensor without any.
fn one_run(tensor: &Tensor) -> Result<Option<OneRun<'_>>> {
    // Of runs of the flattened shape the order by `at`, in which chunks stand, is their order.
    let mut found: Option<OneRun<'_>> = None;
    for chunk in &tensor.chunks {
        let size = tensor.chunk_bytes(&chunk.region)?;
        let end = arith::add(chunk.offset, size, "end of a chunk")?;
        if tensor.chunks.len() > 1 && !is_run(tensor, &chunk.region)? {
            return Err(not_one_run("a chunk that is no run of the tensor's elements"));
        }
        match &mut found {
            None => {
                let shard = (chunk.writer, chunk.shard);
                found = Some(OneRun { shard, bytes: chunk.offset..end, chunks: vec![chunk] });
            }
            Some(run) if run.shard != (chunk.writer, chunk.shard) => {
                return Err(not_one_run("chunks in several files"));
            }
            Some(run) if run.bytes.end != chunk.offset => {
                return Err(not_one_run("chunks apart from one another"));
            }
            Some(run) => {
                run.bytes.end = end;
                run.chunks.push(chunk);
            }
        }
    }
    Ok(found)
}

/// Whether a box is a run of the flattened shape that begins and ends on bytes, and blocks.
fn is_run(tensor: &Tensor, region: &Region) -> Result<bool> {
    let mut runs = region.runs(&tensor.shape)?;
    let (Some((begin, count)), None) = (runs.next(), runs.next()) else { return Ok(false) };
    let end = arith::add(begin, count, "end of a run")?;
    let unit = match tensor.block {
        Some(block) if tensor.dtype.bits().is_multiple_of(8) => block,
        Some(_) => return Ok(false),
        None if tensor.dtype.bits().is_multiple_of(8) => 1,
        None => 8,
    };
    Ok(begin.is_multiple_of(unit) && (end.is_multiple_of(unit) || end == tensor.elements()?))
}

#[cold]
fn not_one_run(found: &str) -> Error {
    let message = format!("expected a tensor that is one run of bytes in one file, found {found}");
    Error::new(Code::NotOneRun, message)
}
