//! Every byte of the shards of a part: header, pads, chunks and tables.
//!
//! It goes through each file once, front to back, in bounded memory.

use std::sync::{Arc, Mutex, PoisonError};

use waystation_format::crc::BlockCrcs;
use waystation_format::entry::Entry;
use waystation_format::part::{Part, ShardEntry};
use waystation_format::shard::{Layout, layouts_of};
use waystation_format::{Code, Error, Result, arith, names, pack, rule};
use waystation_store::Object;

use super::Check;
use crate::complete::{check_length, with_rule, zeroed};
use crate::options::len;
use crate::parallel;
use crate::plan::parse_table;
use crate::progress::go_on;

/// Bytes read at once.
const STEP_BYTES: u64 = 512 << 10;

/// A job has at least so many bytes, if the file has.
const JOB_BYTES: u64 = 16 << 20;

/// A chunk as the part lists it.
struct Stored {
    offset: u64,
    bytes: u64,
    crc32c: u32,
    table_index: Option<u64>,
    tensor: Arc<str>,
    bits: u32,
    elements: u64,
}

/// A shard that is checked.
struct Shard<'a> {
    name: String,
    object: Arc<dyn Object>,
    layout: &'a Layout,
    chunks: &'a [Stored],
    /// The table, if it has its stated CRC.
    table: Option<Arc<[u32]>>,
    block_bytes: u64,
    segments: Vec<Segment>,
}

/// A stretch of a file, up to `end`.
#[derive(Clone, Copy)]
struct Segment {
    end: u64,
    kind: What,
}

#[derive(Clone, Copy)]
enum What {
    Header,
    Pad,
    /// Position among the chunks.
    Chunk(usize),
    /// Checked apart.
    Table,
}

/// Lays out a part's shards again: where everything in them must stand.
///
/// # Errors
/// `layout-mismatch` and others of [`layouts_of`].
pub(super) fn layout(part: &Part) -> Result<Vec<Layout>> {
    layouts_of(part).map_err(|e| e.in_file(part.file_name()))
}

/// Checks the data of a part with good layouts; breaches go to `found` in any order.
///
/// # Errors
/// `interrupted`.
pub(super) fn check(
    check: &Check<'_>,
    part: &Part,
    layouts: &[Layout],
    found: &mut Vec<Error>,
) -> Result<()> {
    let stored = match stored(part) {
        Ok(stored) => stored,
        Err(e) => {
            found.push(e.in_file(part.file_name()));
            return Ok(());
        }
    };
    let mut shards = Vec::new();
    let of_part = (0_u32..).zip(&part.shards).zip(layouts.iter().zip(&stored));
    for ((position, entry), (layout, chunks)) in of_part {
        let name = names::shard(entry.class, part.writer, part.inc, position);
        if !check.is_good(&name) {
            continue;
        }
        let block_bytes = part.common.block_bytes;
        match open(check, name.clone(), entry, layout, chunks, block_bytes, found) {
            Ok(shard) => shards.push(shard),
            Err(e) => found.push(e.in_file(name)),
        }
    }
    let found = Mutex::new(found);
    let jobs = jobs(&shards);
    parallel::each(check.threads, jobs, Vec::new, |buffer: &mut Vec<u8>, job| {
        go_on(check.progress)?;
        let mut own = Vec::new();
        let done = job.run(check, buffer, &mut own);
        // An interruption ends everything; what a disk cannot read is a finding like others.
        go_on(check.progress)?;
        own.extend(done.err().map(|e| e.in_file(&job.shard.name)));
        found.lock().unwrap_or_else(PoisonError::into_inner).append(&mut own);
        Ok(())
    })
}

/// The chunks of each shard of a part, ascending by offset.
fn stored(part: &Part) -> Result<Vec<Vec<Stored>>> {
    let mut shards: Vec<Vec<Stored>> = part.shards.iter().map(|_| Vec::new()).collect();
    for entry in part.entries() {
        let Entry::Tensor(tensor) = entry? else { continue };
        if tensor.chunks.is_empty() {
            continue;
        }
        let key: Arc<str> = tensor.identity.key().into();
        for chunk in &tensor.chunks {
            let at = arith::to_usize(u64::from(chunk.shard), "position of a shard")?;
            let Some(shard) = shards.get_mut(at) else { continue };
            shard.push(Stored {
                offset: chunk.offset,
                bytes: tensor.chunk_bytes(&chunk.region)?,
                crc32c: chunk.crc32c,
                table_index: chunk.table_index,
                tensor: Arc::clone(&key),
                bits: tensor.dtype.bits(),
                elements: tensor.stored_elements(&chunk.region)?,
            });
        }
    }
    for shard in &mut shards {
        shard.sort_unstable_by_key(|chunk| chunk.offset);
    }
    Ok(shards)
}

fn open<'a>(
    check: &Check<'_>,
    name: String,
    entry: &ShardEntry,
    layout: &'a Layout,
    chunks: &'a [Stored],
    block_bytes: u64,
    found: &mut Vec<Error>,
) -> Result<Shard<'a>> {
    let object = check.store.open(&name).map_err(with_rule)?;
    check_length(entry.bytes, object.bytes())?;
    let mut table = None;
    if let Some(place) = &entry.crc_table {
        let mut raw = zeroed(arith::mul(place.count, 4, "bytes of a table")?, "a table")?;
        let read = object
            .read_at(&mut raw, place.offset)
            .and_then(|()| parse_table(&raw, place.crc32c))
            .map_err(|e| e.in_file(&name).at_offset(place.offset));
        match read {
            Ok(good) => table = Some(good),
            Err(e) => found.push(e),
        }
    }
    let segments = segments(layout, chunks)?;
    Ok(Shard { name, object, layout, chunks, table, block_bytes, segments })
}

/// All of a file, in order.
fn segments(layout: &Layout, chunks: &[Stored]) -> Result<Vec<Segment>> {
    let mut all = Vec::with_capacity(chunks.len().saturating_add(layout.pads.len()));
    for (at, chunk) in chunks.iter().enumerate() {
        let end = arith::add(chunk.offset, chunk.bytes, "end of a chunk")?;
        all.push((chunk.offset, Segment { end, kind: What::Chunk(at) }));
    }
    for pad in &layout.pads {
        all.push((pad.start, Segment { end: pad.end, kind: What::Pad }));
    }
    if let Some(table) = &layout.table {
        let bytes = arith::mul(table.count, 4, "bytes of a table")?;
        let end = arith::add(table.offset, bytes, "end of a table")?;
        all.push((table.offset, Segment { end, kind: What::Table }));
    }
    all.sort_unstable_by_key(|(start, _)| *start);
    let header = Segment { end: layout.data_start, kind: What::Header };
    Ok(std::iter::once(header).chain(all.into_iter().map(|(_, segment)| segment)).collect())
}

/// Neighbouring segments of one shard.
struct Job<'s> {
    shard: &'s Shard<'s>,
    start: u64,
    segments: &'s [Segment],
}

fn jobs<'s>(shards: &'s [Shard<'s>]) -> Vec<Job<'s>> {
    let mut jobs = Vec::new();
    for shard in shards {
        let mut rest: &[Segment] = &shard.segments;
        let mut start = 0_u64;
        while !rest.is_empty() {
            let enough = |segment: &Segment| segment.end.saturating_sub(start) >= JOB_BYTES;
            let count = rest.iter().position(enough).map_or(rest.len(), |at| at.saturating_add(1));
            let (own, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            jobs.push(Job { shard, start, segments: own });
            start = own.last().map_or(start, |segment| segment.end);
            rest = after;
        }
    }
    jobs
}

/// What has been seen of the segment under way.
enum Seen {
    /// Whether a breach was reported.
    Plain(bool),
    Chunk(Box<BlockCrcs>, u8),
}

impl Job<'_> {
    fn run(&self, check: &Check<'_>, buffer: &mut Vec<u8>, found: &mut Vec<Error>) -> Result<()> {
        let end = self.segments.last().map_or(self.start, |segment| segment.end);
        if buffer.is_empty() {
            *buffer = zeroed(STEP_BYTES, "the bytes of a step")?;
        }
        let mut at = self.start;
        let mut segments = self.segments.iter();
        let mut current = segments.next();
        let mut seen = self.begin(current);
        while at < end {
            let left = arith::to_usize(end.saturating_sub(at), "bytes left")?;
            let size = buffer.len().min(left);
            let mut piece = buffer.get_mut(..size).unwrap_or_default();
            self.shard.object.read_at(piece, at)?;
            check.progress.advance(len(piece));
            go_on(check.progress)?;
            while let Some(segment) = current
                && !piece.is_empty()
            {
                let room = arith::to_usize(segment.end.saturating_sub(at), "a segment")?;
                let taken = room.min(piece.len());
                let (own, after) = piece.split_at_mut_checked(taken).unwrap_or_default();
                self.take(segment.kind, &mut seen, at, own, found);
                at = at.saturating_add(len(own));
                piece = after;
                if at == segment.end {
                    self.end(segment, seen, found)?;
                    current = segments.next();
                    seen = self.begin(current);
                }
            }
        }
        Ok(())
    }

    fn begin(&self, segment: Option<&Segment>) -> Seen {
        match segment.map(|segment| segment.kind) {
            Some(What::Chunk(_)) => {
                Seen::Chunk(Box::new(BlockCrcs::new(self.shard.block_bytes)), 0)
            }
            _ => Seen::Plain(false),
        }
    }

    fn take(&self, kind: What, seen: &mut Seen, at: u64, bytes: &[u8], found: &mut Vec<Error>) {
        let broken = match (kind, seen) {
            (What::Chunk(_), Seen::Chunk(crcs, last)) => {
                crcs.update(bytes);
                *last = bytes.last().copied().unwrap_or(*last);
                return;
            }
            (What::Header, Seen::Plain(reported @ false)) => {
                let expected =
                    usize::try_from(at).ok().and_then(|at| self.shard.layout.header.get(at..));
                let expected = expected.unwrap_or_default();
                let Some(differs) = bytes.iter().zip(expected).position(|(a, b)| a != b) else {
                    return;
                };
                *reported = true;
                let message = "expected the header that the part gives, found another";
                (Error::rule(Code::HeaderMismatch, rule::SHARD_HEADER, message), differs)
            }
            (What::Pad, Seen::Plain(reported @ false)) => {
                let Some(differs) = bytes.iter().position(|&byte| byte != 0) else { return };
                *reported = true;
                let message = "expected zeros in a pad, found another byte";
                (Error::rule(Code::NonzeroPad, rule::SHARD_PADS, message), differs)
            }
            _ => return,
        };
        let (e, differs) = broken;
        let offset = at.saturating_add(u64::try_from(differs).unwrap_or(u64::MAX));
        found.push(e.in_file(&self.shard.name).at_offset(offset));
    }

    fn end(&self, segment: &Segment, seen: Seen, found: &mut Vec<Error>) -> Result<()> {
        let (What::Chunk(at), Seen::Chunk(crcs, last)) = (segment.kind, seen) else {
            return Ok(());
        };
        let Some(chunk) = self.shard.chunks.get(at) else { return Ok(()) };
        let mut breach = |code, rule, message: String, offset| {
            found.push(
                Error::rule(code, rule, message)
                    .in_file(&self.shard.name)
                    .at_offset(offset)
                    .in_tensor(&*chunk.tensor),
            );
        };
        let (whole, blocks) = crcs.finish();
        let expected = match (&self.shard.table, chunk.table_index) {
            (Some(table), Some(first)) => {
                usize::try_from(first).ok().and_then(|first| table.get(first..))
            }
            _ => None,
        };
        let differs = expected
            .and_then(|expected| {
                blocks.iter().zip(expected).position(|(found, good)| found != good)
            })
            .and_then(|block| u64::try_from(block).ok());
        if whole != chunk.crc32c {
            let within = differs.map_or(0, |block| block.saturating_mul(self.shard.block_bytes));
            let message = format!("expected CRC-32C {:08x}, found {whole:08x}", chunk.crc32c);
            let offset = chunk.offset.saturating_add(within);
            breach(Code::CrcMismatch, rule::INTEGRITY_ALL, message, offset);
        } else if let (Some(block), Some(first), Some(table)) =
            (differs, chunk.table_index, &self.shard.layout.table)
        {
            let message =
                String::from("expected the CRC of a block of a good chunk, found another");
            let offset = table.offset.saturating_add(first.saturating_add(block).saturating_mul(4));
            breach(Code::CrcTableMismatch, rule::INTEGRITY_BLOCKS, message, offset);
        }
        if !pack::unused_bits_zero(chunk.bits, chunk.elements, last) {
            let message = format!("expected zeros in the unused bits, found the byte {last:#04x}");
            let offset = segment.end.saturating_sub(1);
            breach(Code::NonzeroPad, rule::TENSOR_UNUSED_BITS, message, offset);
        }
        Ok(())
    }
}
