//! Views of tensors in mapped files: no copy, every block checked when the view is made.
//!
//! [`MappedCheckpoint`] lends out shared views of whole files, [`Checkpoint::map_private`] gives a
//! tensor memory of its own that begins as the file's: what is written to it stays in the process.
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

use memmap2::{Mmap, MmapMut, MmapOptions};
use waystation_format::entry::{Chunk, Tensor};
use waystation_format::{Code, Error, Identity, Region, Result, arith, crc, pack, rule};

use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::complete::{check_length, zeroed};
use crate::options::{OpenOptions, threads};
use crate::parallel;
use crate::plan::{damaged, parse_table};
use crate::shards::{self, ShardId};
use crate::tensor::TensorRef;

/// Shards that stay mapped though no view needs them.
const MAPPED_FILES: u64 = 256;

/// What a thread checks of a mapping before it takes more.
const JOB_BYTES: usize = 4 << 20;

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

/// The bytes of a tensor, packed as one chunk, in a private mapping of their own: pages are the
/// file's until they are written to, and then copies of this process. No two share memory, also of
/// one tensor.
pub struct PrivateView(Option<MmapMut>);

impl Checkpoint {
    /// A private view of a tensor, or of the target of an alias. Every block is checked now, unless
    /// the checkpoint was opened without checks; its pages are read then and not again while memory
    /// lasts.
    ///
    /// Each takes one of the mappings that a process may have, 65,530 on Linux unless the machine
    /// says otherwise.
    ///
    /// # Safety
    /// Until the result is dropped, nobody may write to or truncate the content of the tensor's
    /// shard, in this process or another: a page that was not written to here is still the file's,
    /// so it would change under a slice. Of a file that is truncated meanwhile, the page in which
    /// it then ends reads as zeros from there on, and the next access to a page after it, also to
    /// one that was written to here, ends the process (`SIGBUS`). Removing or replacing names is
    /// fine. A directory that conforming writers made is never written again.
    ///
    /// # Errors
    /// `not-one-run` when its elements are not one run of bytes of one file that can be mapped;
    /// `crc-mismatch`, `crc-table-mismatch`, `nonzero-pad` for damage; those of
    /// [`Checkpoint::tensor`] and of the system.
    pub unsafe fn map_private(&self, identity: &Identity) -> Result<PrivateView> {
        let tensor = self.tensor(identity)?;
        // SAFETY: the caller's promise is the same.
        unsafe { self.private(tensor.entry()) }.map_err(|e| e.in_tensor(tensor.identity().key()))
    }

    /// # Safety
    /// As [`map_private`](Self::map_private).
    unsafe fn private(&self, tensor: &Tensor) -> Result<PrivateView> {
        let Some(run) = one_run(tensor)? else { return Ok(PrivateView(None)) };
        let object = self.shards().open(&**self.store(), self.manifest(), run.shard)?;
        let fd = object.raw_fd().ok_or_else(|| no_file().in_file(object.name()))?;
        // The file was found to be of its length when it was opened, and its chunks lie in that.
        let bytes = arith::sub(run.bytes.end, run.bytes.start, "bytes of a tensor")?;
        let bytes = arith::to_usize(bytes, "bytes of a tensor")?;
        let mut options = MmapOptions::new();
        // What is never written to needs no memory, however large it is.
        options.offset(run.bytes.start).len(bytes).no_reserve_swap();
        // SAFETY: the descriptor is that of a regular file, open for reading, in which these bytes
        // lie; the caller promised that nobody changes them while they are mapped. Nobody else has
        // this mapping.
        let map = unsafe { options.map_copy(fd.as_raw_fd()) }
            .map_err(|e| Error::io("map", e).in_file(object.name()))?;
        if self.options().verify_reads {
            check_run(self, tensor, &run, &map)?;
        }
        Ok(PrivateView(Some(map)))
    }

    /// Opens the checkpoint in the directory `path` for views.
    ///
    /// # Safety
    /// Until the result and all its views are dropped, nobody may write to, truncate or replace the
    /// content of any shard in the directory, in this process or another: its bytes are lent out
    /// as slices. Of a file that is truncated meanwhile, the page in which it then ends reads as
    /// zeros from there on, and the next access to a page after it ends the process (`SIGBUS`).
    /// Removing names is fine. A directory that conforming writers made is never written again.
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
            check_run(&self.checkpoint, entry, &run, map.range(run.bytes.clone())?)?;
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
            let fd = object.raw_fd().ok_or_else(|| no_file().in_file(object.name()))?;
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

impl PrivateView {
    /// The bytes, to be read and written; what is written stays in this process.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl Deref for PrivateView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl AsRef<[u8]> for PrivateView {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PrivateView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateView").field("bytes", &self.len()).finish()
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

/// Blocks of a chunk, one after another, and what their CRCs must be.
struct Blocks<'a> {
    /// Of the first byte, from the start of the file.
    offset: u64,
    bytes: &'a [u8],
    /// Bytes of a block; the last may be shorter.
    block: usize,
    expected: &'a [u32],
}

/// Checks the bytes of a run: every block, and that unused bits are zero.
fn check_run(
    checkpoint: &Checkpoint,
    tensor: &Tensor,
    run: &OneRun<'_>,
    bytes: &[u8],
) -> Result<()> {
    let name = shards::file_name(checkpoint.manifest(), run.shard)?;
    check_blocks(checkpoint, tensor, run, bytes).map_err(|e| e.in_file(name))
}

fn check_blocks(
    checkpoint: &Checkpoint,
    tensor: &Tensor,
    run: &OneRun<'_>,
    bytes: &[u8],
) -> Result<()> {
    let table = match run.chunks.iter().any(|chunk| chunk.table_index.is_some()) {
        true => table(checkpoint, run.shard)?,
        false => Arc::from([]),
    };
    let block = arith::to_usize(checkpoint.manifest().common.block_bytes, "block_bytes")?;
    let (mut chunks, mut jobs) = (Vec::with_capacity(run.chunks.len()), Vec::new());
    let mut rest = bytes;
    for chunk in &run.chunks {
        let size = arith::to_usize(tensor.chunk_bytes(&chunk.region)?, "bytes of a chunk")?;
        let (own, after) = rest.split_at_checked(size).ok_or_else(|| {
            let message = format!("expected {size} bytes of a chunk, found {}", rest.len());
            Error::rule(Code::LengthMismatch, rule::DIR_LENGTH, message)
        })?;
        let (expected, block) = match chunk.table_index {
            None => (std::slice::from_ref(&chunk.crc32c), size),
            Some(first) => {
                let first = arith::to_usize(first, "table index")?;
                (table.get(first..).unwrap_or_default(), block)
            }
        };
        let block = block.max(1);
        let expected = expected.get(..size.div_ceil(block)).ok_or_else(|| {
            let message = "expected the CRC of every block in the table, found too few";
            Error::rule(Code::CrcTableMismatch, rule::INTEGRITY_TABLE, message)
        })?;
        let blocks = JOB_BYTES.checked_div(block).unwrap_or(0).max(1);
        let mut offset = chunk.offset;
        for (bytes, expected) in
            own.chunks(blocks.saturating_mul(block)).zip(expected.chunks(blocks))
        {
            jobs.push(Blocks { offset, bytes, block, expected });
            offset = offset.saturating_add(crate::options::len(bytes));
        }
        chunks.push((*chunk, own));
        rest = after;
    }
    let threads = threads(checkpoint.options().threads);
    parallel::each(threads, jobs, || (), |(), blocks| blocks.check())?;
    chunks.into_iter().try_for_each(|(chunk, bytes)| check_unused(tensor, chunk, bytes))
}

impl Blocks<'_> {
    fn check(&self) -> Result<()> {
        let mut offset = self.offset;
        for (block, &expected) in self.bytes.chunks(self.block).zip(self.expected) {
            let found = crc::crc32c(block);
            if found != expected {
                return Err(damaged(expected, found).at_offset(offset));
            }
            offset = offset.saturating_add(crate::options::len(block));
        }
        Ok(())
    }
}

/// Checks that the unused bits of a chunk's last byte are zero.
fn check_unused(tensor: &Tensor, chunk: &Chunk, bytes: &[u8]) -> Result<()> {
    let elements = tensor.stored_elements(&chunk.region)?;
    let last = bytes.last().copied().unwrap_or(0);
    if pack::unused_bits_zero(tensor.dtype.bits(), elements, last) {
        return Ok(());
    }
    let message = format!("expected zeros in the unused bits, found the byte {last:#04x}");
    let last = crate::options::len(bytes).saturating_sub(1);
    Err(Error::rule(Code::NonzeroPad, rule::TENSOR_UNUSED_BITS, message)
        .at_offset(chunk.offset.saturating_add(last)))
}

/// A shard's table, from the cache or the file.
fn table(checkpoint: &Checkpoint, shard: ShardId) -> Result<Arc<[u32]>> {
    let shards = checkpoint.shards();
    if let Some(table) = shards.tables.get(&shard) {
        return Ok(table);
    }
    let place = shards::table(checkpoint.manifest(), shard)?;
    let mut bytes = zeroed(arith::mul(place.count, 4, "bytes of a table")?, "bytes of a table")?;
    // The file is open, so it has the stated length, in which the table lies.
    let object = shards.open(&**checkpoint.store(), checkpoint.manifest(), shard)?;
    object.read_at(&mut bytes, place.offset)?;
    let table = parse_table(&bytes, place.crc32c).map_err(|e| e.at_offset(place.offset))?;
    shards.keep_table(shard, Arc::clone(&table));
    Ok(table)
}

#[cold]
fn no_file() -> Error {
    let message = "expected a file that can be mapped, found an object without one";
    Error::new(Code::NotOneRun, message)
}
