//! Which chunk goes into which shard.
//!
//! It knows classes, lengths and the length at which a new shard begins. How a shard is laid out is
//! the format's business.

use waystation_format::entry::Tensor;
use waystation_format::shard::{self, Layout, Slot};
use waystation_format::{Region, Result, ShardClass, arith, limits};

use crate::put;
use crate::session::Planned;

/// A shard to be made.
pub(crate) struct ShardPlan {
    pub(crate) class: ShardClass,
    /// Positions of its chunks among those declared, in file order.
    pub(crate) chunks: Vec<usize>,
    pub(crate) layout: Layout,
}

/// Bytes of a header's entry beside its key and shape, and of the pad's entry behind it, at most:
/// names of members, dtype, offsets of up to 20 digits each.
const ENTRY_BYTES: u64 = 256;
/// Digits of one number of a shape, and its comma.
const NUMBER_BYTES: u64 = 21;
/// `__metadata__`, the table's entry, and the length before the header.
const FIXED_BYTES: u64 = 512;

/// Distributes all chunks, model before state, large ones first and otherwise as declared.
///
/// # Errors
///
/// `limit` when a header would be too long.
pub(crate) fn plan(chunks: &[Planned], block_bytes: u64, target: u64) -> Result<Vec<ShardPlan>> {
    let mut plans = Vec::new();
    for &class in ShardClass::ALL {
        let mut order: Vec<usize> = Vec::new();
        order.extend(chunks.iter().enumerate().filter_map(|(position, chunk)| {
            (chunk.tensor.identity.role.class() == class).then_some(position)
        }));
        let small = |&position: &usize| {
            chunks.get(position).is_none_or(|chunk| chunk.bytes < limits::LARGE_CHUNK_BYTES)
        };
        order.sort_by_key(small);
        let mut open = Open::new(target, block_bytes);
        for position in order {
            let Some(chunk) = chunks.get(position) else { continue };
            let slot = slot(&chunk.tensor, &chunk.region)?;
            if let Some((chunks, slots)) = open.take(position, chunk.bytes, slot)? {
                plans.push(close(class, chunks, &slots, block_bytes)?);
            }
        }
        if !open.chunks.is_empty() {
            plans.push(close(class, open.chunks, &open.slots, block_bytes)?);
        }
    }
    Ok(plans)
}

fn slot<'t>(tensor: &'t Tensor, region: &Region) -> Result<Slot<'t>> {
    shard::slot_of(tensor, region).map_err(|e| e.in_tensor(tensor.identity.key()))
}

fn close(
    class: ShardClass,
    chunks: Vec<usize>,
    slots: &[Slot<'_>],
    block_bytes: u64,
) -> Result<ShardPlan> {
    Ok(ShardPlan { class, chunks, layout: shard::lay_out(slots, block_bytes)? })
}

/// A shard that still takes chunks. Its length is known up to the header, which is taken for as
/// long as it may become: a shard is never longer than wanted, at times a little shorter.
struct Open<'t> {
    target: u64,
    block_bytes: u64,
    chunks: Vec<usize>,
    slots: Vec<Slot<'t>>,
    data: u64,
    table: u64,
    header: u64,
}

impl<'t> Open<'t> {
    fn new(target: u64, block_bytes: u64) -> Self {
        Self {
            target,
            block_bytes,
            chunks: Vec::new(),
            slots: Vec::new(),
            data: 0,
            table: 0,
            header: FIXED_BYTES,
        }
    }

    /// Takes a chunk; gives the chunks of the shard before it when it begins a new one.
    fn take(
        &mut self,
        position: usize,
        bytes: u64,
        slot: Slot<'t>,
    ) -> Result<Option<(Vec<usize>, Vec<Slot<'t>>)>> {
        let mut closed = None;
        if !self.chunks.is_empty() && !self.fits(bytes, &slot)? {
            let full = std::mem::replace(self, Self::new(self.target, self.block_bytes));
            closed = Some((full.chunks, full.slots));
        }
        (self.data, self.table, self.header) = self.with(bytes, &slot)?;
        self.chunks.push(position);
        self.slots.push(slot);
        Ok(closed)
    }

    fn fits(&self, bytes: u64, slot: &Slot<'_>) -> Result<bool> {
        let (data, table, header) = self.with(bytes, slot)?;
        let page = |x| arith::align_up(x, limits::PAGE_ALIGN, "length of a shard");
        // The table is aligned as a chunk of its length: at most to a page.
        let body = arith::add(page(data)?, page(table)?, "length of a shard")?;
        let whole = arith::add(body, page(header)?, "length of a shard")?;
        Ok(whole <= self.target && header <= limits::SHARD_HEADER_BYTES)
    }

    /// The ends of data, table and header with one more chunk.
    fn with(&self, bytes: u64, slot: &Slot<'_>) -> Result<(u64, u64, u64)> {
        let alignment = if bytes >= limits::LARGE_CHUNK_BYTES {
            limits::PAGE_ALIGN
        } else {
            limits::SMALL_ALIGN
        };
        let begin = arith::align_up(self.data, alignment, "offset in a shard")?;
        let data = arith::add(begin, bytes, "length of a shard")?;
        let mut table = self.table;
        if bytes > self.block_bytes {
            let blocks = arith::ceil_div(bytes, self.block_bytes, "blocks of a chunk")?;
            table = arith::add(table, arith::mul(blocks, 4, "table")?, "table")?;
        }
        Ok((data, table, arith::add(self.header, entry_bytes(slot)?, "length of a header")?))
    }
}

/// What a chunk adds to a header at most: a character of its key may need a `\` before it. Names
/// have no control characters, which alone would need more.
fn entry_bytes(slot: &Slot<'_>) -> Result<u64> {
    let what = "length of a header";
    let key = arith::mul(put::length(slot.key.as_bytes()), 2, what)?;
    let rank = u64::try_from(slot.shape.len()).unwrap_or(u64::MAX);
    let shape = arith::mul(rank, NUMBER_BYTES, what)?;
    arith::add(arith::add(key, shape, what)?, ENTRY_BYTES, what)
}
