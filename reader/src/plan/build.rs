//! Turns wants into reads: the blocks that each chunk has to give, and where they land.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use waystation_format::entry::{Chunk, Entry, Tensor};
use waystation_format::manifest::Manifest;
use waystation_format::{Region, Result, arith, flat, pack};

use super::{Goal, Held, Plan, PlannedRead, Table, TableIndex};
use crate::blocks::{Blocks, join};
use crate::cache::Cache;
use crate::scatter::within;
use crate::shards::{self, ShardId};
use crate::source::Source;

/// Longest read, but for a chunk or block that cannot be checked in pieces.
const PIECE_BYTES: u64 = 4 << 20;

/// Ends of a run that are only part of a block get reads of their own when at least so many bytes
/// between them can then be read straight to where they belong.
const WORTH_SPLITTING: u64 = 1 << 20;

/// Without checks there are no blocks to respect: a page of memory is the grain.
const UNCHECKED_BYTES: u64 = 4096;

/// Collects wants and makes the plan.
#[derive(Debug)]
pub(crate) struct Builder<'c> {
    manifest: &'c Manifest,
    known: &'c Cache<ShardId, Arc<[u32]>>,
    verify: bool,
    names: HashMap<ShardId, Arc<str>>,
    index: TableIndex,
    table_reads: Vec<PlannedRead>,
    reads: Vec<PlannedRead>,
    goals: Vec<Goal>,
    tables: Vec<Table>,
}

/// Bytes of a chunk that stand as they are from a place in the result on.
#[derive(Debug)]
struct Landing {
    chunk: Range<u64>,
    to: u64,
}

impl<'c> Builder<'c> {
    /// `known` holds tables that were read and checked before.
    pub(crate) fn new(
        manifest: &'c Manifest,
        known: &'c Cache<ShardId, Arc<[u32]>>,
        verify: bool,
    ) -> Self {
        Self {
            manifest,
            known,
            verify,
            names: HashMap::new(),
            index: TableIndex::new(),
            table_reads: Vec::new(),
            reads: Vec::new(),
            goals: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Adds a region of a tensor.
    pub(crate) fn region(
        &mut self,
        entry: &Arc<Entry>,
        tensor: &Tensor,
        region: &Region,
    ) -> Result<()> {
        let source = Source::new(tensor, region)?;
        let elements = source.region.elements()?;
        let boxes = if elements == 0 { Vec::new() } else { vec![source.region.clone()] };
        self.add(entry, &source, boxes, 0, elements)
    }

    /// Adds the elements `range` of what `source` gives, in the order in which it is packed.
    pub(crate) fn window(
        &mut self,
        entry: &Arc<Entry>,
        source: &Source<'_>,
        range: Range<u64>,
    ) -> Result<()> {
        let mut boxes = flat::boxes_of_range(&source.region.extent, range.start, range.end)?;
        for part in &mut boxes {
            for (at, origin) in part.at.iter_mut().zip(&source.region.at) {
                *at = arith::add(*at, *origin, "place in a tensor")?;
            }
        }
        let elements = arith::sub(range.end, range.start, "elements of a window")?;
        self.add(entry, source, boxes, range.start, elements)
    }

    pub(crate) fn build(mut self) -> Plan {
        self.reads.sort_by_key(|read| (read.shard, read.offset));
        let mut reads = self.table_reads;
        reads.append(&mut self.reads);
        Plan {
            fed: reads.iter().map(|_| AtomicBool::new(false)).collect(),
            reads,
            goals: self.goals,
            tables: self.tables,
            block_bytes: self.manifest.common.block_bytes,
            verify: self.verify,
        }
    }

    fn add(
        &mut self,
        entry: &Arc<Entry>,
        source: &Source<'_>,
        boxes: Vec<Region>,
        skip: u64,
        elements: u64,
    ) -> Result<()> {
        let want = self.goals.len();
        let mut goal = Goal {
            entry: Arc::clone(entry),
            bits: source.bits,
            region: source.region.clone(),
            boxes,
            skip,
            elements,
            chunks: Vec::new(),
        };
        for (chunk, place) in &source.chunks {
            let bytes = pack::packed_bytes(source.bits, place.elements()?)?;
            let unit = self.unit(bytes);
            let ranges = touched(&goal, place, bytes, unit)?;
            if ranges.is_empty() {
                continue;
            }
            let table = match chunk.table_index {
                Some(first) if self.verify => Some((self.table(chunk)?, first)),
                _ => None,
            };
            let landing = landing(&goal, place)?;
            let at = Place { want, item: goal.chunks.len(), chunk, unit };
            for range in ranges {
                self.cut(&at, range, landing.as_ref())?;
            }
            goal.chunks.push(Held { place: place.clone(), crc32c: chunk.crc32c, table });
        }
        self.goals.push(goal);
        Ok(())
    }

    /// What is read and checked at once of a chunk of so many bytes.
    fn unit(&self, chunk_bytes: u64) -> u64 {
        let block = self.manifest.common.block_bytes;
        match () {
            () if !self.verify => UNCHECKED_BYTES,
            () if chunk_bytes > block => block,
            () => chunk_bytes.max(1),
        }
    }

    /// Cuts a range of whole units of a chunk into reads.
    fn cut(&mut self, at: &Place<'_>, range: Range<u64>, landing: Option<&Landing>) -> Result<()> {
        let Some(landing) = landing else {
            return self.pieces(at, range, None);
        };
        // The units of which every byte is wanted; the last one of a chunk may be shorter.
        let begin = landing.chunk.start.checked_next_multiple_of(at.unit).unwrap_or(u64::MAX);
        let end = match landing.chunk.end {
            end if end >= range.end => range.end,
            end => end.checked_div(at.unit).unwrap_or(0).saturating_mul(at.unit),
        };
        let whole = begin == range.start && end == range.end;
        if begin < end && (whole || end.saturating_sub(begin) >= WORTH_SPLITTING) {
            self.pieces(at, range.start..begin, None)?;
            self.pieces(at, begin..end, Some(landing))?;
            self.pieces(at, end..range.end, None)
        } else {
            self.pieces(at, range, None)
        }
    }

    fn pieces(
        &mut self,
        at: &Place<'_>,
        range: Range<u64>,
        landing: Option<&Landing>,
    ) -> Result<()> {
        let units = PIECE_BYTES.checked_div(at.unit).unwrap_or(1).max(1);
        let step = units.saturating_mul(at.unit);
        let shard = (at.chunk.writer, at.chunk.shard);
        let mut begin = range.start;
        while begin < range.end {
            let end = begin.saturating_add(step).min(range.end);
            let bytes = end.saturating_sub(begin);
            let lands = landing.and_then(|landing| {
                let to = landing.to.checked_add(begin.checked_sub(landing.chunk.start)?)?;
                Some(to..to.checked_add(bytes)?)
            });
            let read = PlannedRead {
                file: self.name(shard)?,
                offset: arith::add(at.chunk.offset, begin, "offset of a read")?,
                bytes,
                want: Some(at.want),
                lands,
                shard,
                item: at.item,
                within: begin,
            };
            self.reads.push(read);
            begin = end;
        }
        Ok(())
    }

    /// The position of the table of a chunk's shard, planned to be read unless it is known.
    fn table(&mut self, chunk: &Chunk) -> Result<usize> {
        let shard = (chunk.writer, chunk.shard);
        if let Some(&at) = self.index.get(&shard) {
            return Ok(at);
        }
        let item = self.tables.len();
        let place = shards::table(self.manifest, shard)?;
        let blocks = OnceLock::new();
        if let Some(known) = self.known.get(&shard) {
            let _ = blocks.set(known);
        } else {
            let read = PlannedRead {
                file: self.name(shard)?,
                offset: place.offset,
                bytes: arith::mul(place.count, 4, "bytes of a table")?,
                want: None,
                lands: None,
                shard,
                item,
                within: 0,
            };
            self.table_reads.push(read);
        }
        self.tables.push(Table { crc32c: place.crc32c, blocks });
        self.index.insert(shard, item);
        Ok(item)
    }

    fn name(&mut self, shard: ShardId) -> Result<Arc<str>> {
        if let Some(name) = self.names.get(&shard) {
            return Ok(Arc::clone(name));
        }
        let name: Arc<str> = shards::file_name(self.manifest, shard)?.into();
        self.names.insert(shard, Arc::clone(&name));
        Ok(name)
    }
}

/// The chunk that reads are cut from.
#[derive(Debug)]
struct Place<'a> {
    want: usize,
    item: usize,
    chunk: &'a Chunk,
    unit: u64,
}

/// The units of a chunk that hold wanted elements.
fn touched(goal: &Goal, place: &Region, bytes: u64, unit: u64) -> Result<Vec<Range<u64>>> {
    let bits = u64::from(goal.bits);
    let blocks = Blocks { extent: &place.extent, bits, len: bytes, block: unit };
    let mut ranges = Vec::new();
    for wanted in &goal.boxes {
        if let Some(common) = place.intersect(wanted) {
            blocks.touched(&within(&common, place)?, &mut ranges);
        }
    }
    if goal.boxes.len() > 1 {
        join(&mut ranges);
    }
    Ok(ranges)
}

/// The bytes of a chunk that are one run in the chunk and in the result, if its wanted elements
/// are and begin and end on bytes.
fn landing(goal: &Goal, place: &Region) -> Result<Option<Landing>> {
    let Some(common) = place.intersect(&goal.region) else { return Ok(None) };
    let mut sources = within(&common, place)?.runs(&place.extent)?;
    let mut targets = within(&common, &goal.region)?.runs(&goal.region.extent)?;
    let (Some(source), None) = (sources.next(), sources.next()) else { return Ok(None) };
    let (Some(target), None) = (targets.next(), targets.next()) else { return Ok(None) };
    // Clipped to the window, in elements; then in bytes. Nothing wraps: these are places within a
    // chunk and a tensor, whose bits are counted in 64 bits.
    let begin = target.0.max(goal.skip);
    let end = target.0.saturating_add(target.1).min(goal.skip.saturating_add(goal.elements));
    if begin >= end {
        return Ok(None);
    }
    let bits = u64::from(goal.bits);
    let from = source.0.saturating_add(begin.saturating_sub(target.0)).saturating_mul(bits);
    let count = end.saturating_sub(begin).saturating_mul(bits);
    let to = begin.saturating_sub(goal.skip).saturating_mul(bits);
    let whole = [from, count, to].iter().all(|bits| bits.is_multiple_of(8));
    Ok(whole.then(|| Landing { chunk: from / 8..from.saturating_add(count) / 8, to: to / 8 }))
}
