//! What to read, and what to do with the bytes: no I/O, so that any backend can serve it.
//!
//! It knows regions, chunks, blocks and their CRCs. It must not know how bytes are got.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use waystation_format::entry::Entry;
use waystation_format::{Code, Error, Identity, Region, Result, arith, crc, pack, rule};

use crate::options::len;
use crate::scatter::{self, Emit};

mod build;

pub(crate) use build::Builder;

/// A tensor, or a region of one, that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// A tensor or an alias.
    pub tensor: Identity,
    /// Start and extent in the tensor's shape; all of it when `None`.
    pub region: Option<Region>,
}

impl Want {
    /// All of a tensor.
    #[must_use]
    pub fn whole(tensor: Identity) -> Self {
        Self { tensor, region: None }
    }

    /// A region of a tensor.
    #[must_use]
    pub fn region(tensor: Identity, region: Region) -> Self {
        Self { tensor, region: Some(region) }
    }
}

/// A range of bytes of one file, to be read and fed to its [`Plan`].
#[derive(Clone, Debug)]
pub struct PlannedRead {
    /// The file's name.
    pub file: Arc<str>,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// The want that it serves; `None` for a table of CRCs, which serves several.
    pub want: Option<usize>,
    /// Where in the want's result the bytes stand as they are: a backend may read straight there
    /// and then only [`Plan::check`] them. `None` when they have to be scattered.
    pub lands: Option<Range<u64>>,
    /// The writer and the position of the shard.
    pub shard: (u32, u32),
    /// Position of the chunk among the want's, or of the table.
    item: usize,
    /// First byte within the chunk.
    within: u64,
}

/// Reads that put wanted regions together, and the checks of what they bring.
///
/// Feed every read of [`reads`](Self::reads), tables (`want` is `None`) before the rest, in any
/// order otherwise and from any number of threads; then [`finish`](Self::finish).
#[derive(Debug)]
pub struct Plan {
    reads: Vec<PlannedRead>,
    goals: Vec<Goal>,
    tables: Vec<Table>,
    /// Which of `reads` were fed.
    fed: Vec<AtomicBool>,
    block_bytes: u64,
    verify: bool,
}

/// A want, resolved.
#[derive(Debug)]
struct Goal {
    entry: Arc<Entry>,
    bits: u32,
    /// Packed, it is what the offsets of the result count in.
    region: Region,
    /// The part of `region` that is wanted now, as disjoint boxes.
    boxes: Vec<Region>,
    /// Elements of `region` before the result.
    skip: u64,
    /// Elements of the result.
    elements: u64,
    /// The chunks that the reads refer to.
    chunks: Vec<Held>,
}

/// A chunk that a goal needs.
#[derive(Debug)]
struct Held {
    place: Region,
    crc32c: u32,
    /// Position among the tables, and the index there of the CRC of the first block.
    table: Option<(usize, u64)>,
}

/// A shard's table of block CRCs.
#[derive(Debug)]
struct Table {
    crc32c: u32,
    blocks: OnceLock<Arc<[u32]>>,
}

impl Plan {
    /// The reads, tables first, then by writer, shard and offset.
    #[must_use]
    pub fn reads(&self) -> &[PlannedRead] {
        &self.reads
    }

    /// Bytes of all reads.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.reads.iter().fold(0, |sum, read| sum.saturating_add(read.bytes))
    }

    /// The number of wants.
    #[must_use]
    pub fn wants(&self) -> usize {
        self.goals.len()
    }

    /// Bytes of the result of a want: its region packed as one chunk.
    ///
    /// # Errors
    /// `bad-argument` when there is no such want.
    pub fn out_bytes(&self, want: usize) -> Result<u64> {
        let goal = self.goal(want)?;
        pack::packed_bytes(goal.bits, goal.elements)
    }

    /// Takes the bytes of a read: checks their CRCs and puts the wanted ones where they belong in
    /// `out`, the result of the read's want. For a table `out` is not looked at.
    ///
    /// # Errors
    /// `crc-mismatch` or `crc-table-mismatch` for damage; `bad-argument` when there is no such
    /// read, a length is wrong, or the table that it needs was not fed before.
    pub fn feed(&self, read: usize, bytes: &[u8], out: &mut [u8]) -> Result<()> {
        self.check(read, bytes)?;
        let planned = self.read(read)?;
        let Some(want) = planned.want else { return Ok(()) };
        let expected = self.out_bytes(want)?;
        if len(out) != expected {
            let message = format!("expected {expected} bytes to read into, found {}", out.len());
            return Err(Error::new(Code::BadArgument, message));
        }
        self.scatter(planned, 0, bytes, &mut |piece| piece.copy_into(out, 0))
    }

    /// Takes the bytes of a read that already stand where it [`lands`](PlannedRead::lands): checks
    /// their CRCs and moves nothing.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    pub fn check(&self, read: usize, bytes: &[u8]) -> Result<()> {
        let planned = self.read(read)?;
        if len(bytes) != planned.bytes {
            let message = format!("expected {} bytes, found {}", planned.bytes, bytes.len());
            return Err(Error::new(Code::BadArgument, message));
        }
        if planned.want.is_none() {
            self.take_table(planned, bytes)?;
        } else {
            self.check_step(planned, 0, bytes)?;
        }
        self.mark(read);
        Ok(())
    }

    /// Accepts the results: every read was fed.
    ///
    /// # Errors
    /// `bad-argument` when one was not: its elements are missing in the result.
    pub fn finish(&self) -> Result<()> {
        match self.fed.iter().position(|fed| !fed.load(Ordering::Acquire)) {
            None => Ok(()),
            Some(read) => {
                let message = format!("expected every read to be fed, found that {read} was not");
                Err(Error::new(Code::BadArgument, message))
            }
        }
    }

    /// Notes that a read's bytes were all taken.
    pub(crate) fn mark(&self, read: usize) {
        if let Some(fed) = self.fed.get(read) {
            fed.store(true, Ordering::Release);
        }
    }

    /// Checks the bytes of a data read from its byte `from`, a multiple of a block, on.
    pub(crate) fn check_step(&self, read: &PlannedRead, from: u64, bytes: &[u8]) -> Result<()> {
        if !self.verify {
            return Ok(());
        }
        let (goal, chunk) = self.chunk(read)?;
        let place = |offset: u64| read.offset.saturating_add(from).saturating_add(offset);
        let broken = |expected: u32, found: u32, offset: u64| {
            damaged(expected, found)
                .in_file(&*read.file)
                .at_offset(place(offset))
                .in_tensor(goal.entry.key())
        };
        let Some((table, first)) = chunk.table else {
            let found = crc::crc32c(bytes);
            return if found == chunk.crc32c {
                Ok(())
            } else {
                Err(broken(chunk.crc32c, found, 0))
            };
        };
        let table =
            self.tables.get(table).and_then(|table| table.blocks.get()).ok_or_else(|| {
                Error::new(
                    Code::BadArgument,
                    "expected the table of CRCs to be fed before the data",
                )
            })?;
        let start = arith::add(read.within, from, "place in a chunk")?;
        let block = start.checked_div(self.block_bytes).unwrap_or(0);
        let index = arith::to_usize(arith::add(first, block, "table index")?, "table index")?;
        let size = arith::to_usize(self.block_bytes, "block_bytes")?;
        let expected = table.get(index..).unwrap_or_default();
        let blocks = bytes.chunks(size);
        if blocks.len() > expected.len() {
            let message = format!("expected {} CRCs from {index} on in the table", blocks.len());
            return Err(Error::rule(Code::CrcTableMismatch, rule::INTEGRITY_TABLE, message)
                .in_file(&*read.file));
        }
        let mut offset = 0_u64;
        for (block, &expected) in blocks.zip(expected) {
            let found = crc::crc32c(block);
            if found != expected {
                return Err(broken(expected, found, offset));
            }
            offset = offset.saturating_add(len(block));
        }
        Ok(())
    }

    /// Gives the wanted runs of the bytes of a data read from its byte `from` on.
    pub(crate) fn scatter(
        &self,
        read: &PlannedRead,
        from: u64,
        bytes: &[u8],
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let (goal, chunk) = self.chunk(read)?;
        let piece = scatter::Packed {
            bits: u64::from(goal.bits),
            place: &chunk.place,
            first: arith::add(read.within, from, "place in a chunk")?,
            bytes,
        };
        let result = scatter::Wanted {
            region: &goal.region,
            boxes: &goal.boxes,
            skip: goal.skip,
            elements: goal.elements,
        };
        scatter::scatter(&piece, &result, emit)
    }

    /// Bytes that a step of a read must be a multiple of, so that each step can be checked alone.
    pub(crate) fn step_unit(&self, read: &PlannedRead) -> Result<u64> {
        let (_, chunk) = self.chunk(read)?;
        Ok(match chunk.table {
            _ if !self.verify => 1,
            Some(_) => self.block_bytes,
            None => read.bytes.max(1),
        })
    }

    /// The table that a table read brought.
    pub(crate) fn table(&self, read: &PlannedRead) -> Option<Arc<[u32]>> {
        self.tables.get(read.item)?.blocks.get().cloned()
    }

    fn take_table(&self, read: &PlannedRead, bytes: &[u8]) -> Result<()> {
        let table = self.tables.get(read.item).ok_or_else(no_such_read)?;
        let blocks = parse_table(bytes, table.crc32c)
            .map_err(|e| e.in_file(&*read.file).at_offset(read.offset))?;
        // Fed twice, it is the same: both had the CRC that is stated.
        let _ = table.blocks.set(blocks);
        Ok(())
    }

    fn goal(&self, want: usize) -> Result<&Goal> {
        self.goals.get(want).ok_or_else(|| Error::new(Code::BadArgument, "no such want"))
    }

    fn read(&self, read: usize) -> Result<&PlannedRead> {
        self.reads.get(read).ok_or_else(no_such_read)
    }

    fn chunk(&self, read: &PlannedRead) -> Result<(&Goal, &Held)> {
        let goal = read.want.and_then(|want| self.goals.get(want)).ok_or_else(no_such_read)?;
        Ok((goal, goal.chunks.get(read.item).ok_or_else(no_such_read)?))
    }
}

/// The CRCs of a table, once the table's own is checked.
pub(crate) fn parse_table(bytes: &[u8], expected: u32) -> Result<Arc<[u32]>> {
    let found = crc::crc32c(bytes);
    if found != expected {
        let message = format!("expected a table of CRC-32C {expected:08x}, found {found:08x}");
        return Err(Error::rule(Code::CrcTableMismatch, rule::INTEGRITY_TABLE, message));
    }
    let (entries, _) = bytes.as_chunks::<4>();
    Ok(entries.iter().map(|entry| u32::from_le_bytes(*entry)).collect())
}

/// Bytes of a chunk with another CRC than stated.
#[cold]
pub(crate) fn damaged(expected: u32, found: u32) -> Error {
    let message = format!("expected CRC-32C {expected:08x}, found {found:08x}");
    Error::rule(Code::CrcMismatch, rule::INTEGRITY_CHUNK, message)
}

#[cold]
fn no_such_read() -> Error {
    Error::new(Code::BadArgument, "no such read in this plan")
}

/// Positions of tables by shard.
type TableIndex = HashMap<(u32, u32), usize>;
