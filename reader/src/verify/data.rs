//! Every byte of the shards of a writer: header, pads, chunks and tables.
//!
//! It goes through each file once, front to back, in bounded memory.

use std::sync::{Arc, Mutex, PoisonError};

use waystation_format::crc::BlockCrcs;
use waystation_format::part::ShardEntry;
use waystation_format::shard::Layout;
use waystation_format::{Code, Error, Result, arith, names, pack, rule};
use waystation_store::Object;

use super::Check;
use super::stored::{Data, Stored};
use crate::complete::{check_length, with_rule, zeroed};
use crate::options::len;
use crate::parallel;
use crate::plan::parse_table;
use crate::progress::go_on;

/// Bytes read at once.
const STEP_BYTES: u64 = 512 << 10;

/// A job has at least so many bytes, if the file has.
const JOB_BYTES: u64 = 16 << 20;

/// A shard that is checked.
struct Shard<'a> {
    name: String,
    object: Arc<dyn Object>,
    /// Without one, header and pads are left out.
    layout: Option<&'a Layout>,
    entry: &'a ShardEntry,
    chunks: &'a [Stored],
    /// The table, if it has its stated CRC.
    table: Option<Arc<[u32]>>,
    block_bytes: u64,
    segments: Vec<Segment>,
}

/// A stretch of a file.
#[derive(Clone, Copy)]
struct Segment {
    start: u64,
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

/// Checks the data of a writer; breaches go to `found` in any order.
///
/// # Errors
/// `interrupted`.
pub(super) fn check(check: &Check<'_>, data: &Data<'_>, found: &mut Vec<Error>) -> Result<()> {
    let mut shards = Vec::new();
    for ((position, entry), chunks) in (0_u32..).zip(data.shards).zip(&data.stored) {
        let name = names::shard(entry.class, data.writer, data.inc, position);
        if !check.is_good(&name) {
            continue;
        }
        let layout = usize::try_from(position).ok().and_then(|at| data.layouts.get(at)?.as_ref());
        match open(check, data, name.clone(), entry, layout, chunks, found) {
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

fn open<'a>(
    check: &Check<'_>,
    data: &Data<'_>,
    name: String,
    entry: &'a ShardEntry,
    layout: Option<&'a Layout>,
    chunks: &'a [Stored],
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
    Ok(Shard {
        name,
        object,
        layout,
        entry,
        chunks,
        table,
        block_bytes: data.block_bytes,
        segments,
    })
}

/// All of a file, in order; without a layout the chunks only, and of several that claim the same
/// bytes the first, so that no byte is read twice.
fn segments(layout: Option<&Layout>, chunks: &[Stored]) -> Result<Vec<Segment>> {
    let mut all = Vec::with_capacity(chunks.len());
    for (at, chunk) in chunks.iter().enumerate() {
        let end = arith::add(chunk.offset, chunk.bytes, "end of a chunk")?;
        all.push(Segment { start: chunk.offset, end, kind: What::Chunk(at) });
    }
    if let Some(layout) = layout {
        all.push(Segment { start: 0, end: layout.data_start, kind: What::Header });
        for pad in &layout.pads {
            all.push(Segment { start: pad.start, end: pad.end, kind: What::Pad });
        }
        if let Some(table) = &layout.table {
            let bytes = arith::mul(table.count, 4, "bytes of a table")?;
            let end = arith::add(table.offset, bytes, "end of a table")?;
            all.push(Segment { start: table.offset, end, kind: What::Table });
        }
    }
    all.sort_unstable_by_key(|segment| segment.start);
    let mut end = 0_u64;
    all.retain(|segment| {
        let apart = segment.start >= end;
        end = if apart { segment.end } else { end };
        apart
    });
    Ok(all)
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
        while let Some(first) = rest.first() {
            let mut end = first.start;
            let count = rest
                .iter()
                .take_while(|segment| {
                    let long = end.saturating_sub(first.start) >= JOB_BYTES;
                    let next = !long && segment.start == end;
                    end = if next { segment.end } else { end };
                    next
                })
                .count();
            let (own, after) = rest.split_at_checked(count.max(1)).unwrap_or((rest, &[]));
            jobs.push(Job { shard, start: first.start, segments: own });
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
                let header = self.shard.layout.map_or(&[][..], |layout| &layout.header);
                let expected = usize::try_from(at).ok().and_then(|at| header.get(at..));
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
            (differs, chunk.table_index, &self.shard.entry.crc_table)
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
