//! The layout of a shard: where its chunks, pads and table of block CRCs stand, and its header.
//!
//! Layout is a pure function of the chunks in their order ([`lay_out`]); a part's shards are laid
//! out again and compared by [`layouts_of`]. This module knows keys, alignment and the safetensors
//! header. It must not know bytes of data, nor read any header.
//!
//! ```text
//! 0            u64 LE length of the header
//! 8            {"__metadata__":{…},…} and spaces
//! data_start   chunk, pad, chunk, …, pad, __crc__, pad      bytes
//! ```

use std::borrow::Cow;
use std::ops::Range;

use crate::dims::Dims;
use crate::json::Encoder;
use crate::{Code, Dtype, Error, Result, arith, limits, rule};

mod rebuild;

pub use rebuild::{each_layout_of, layouts_of, slot_of};

/// Begins the key of a chunk that does not stand under its tensor's name.
pub const CHUNK_KEY: &str = "__ws__:";
/// The key of the table of block CRCs.
pub const TABLE_KEY: &str = "__crc__";
/// Begins the key of a pad; its number follows.
pub const PAD_KEY: &str = "__pad__.";

/// A chunk as a shard's header shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// The member name in the header.
    pub key: Cow<'a, str>,
    /// The dtype in the header; U8 for dtypes that a header does not carry.
    pub dtype: Dtype,
    /// The shape in the header.
    pub shape: Dims,
    /// Bytes of the chunk, at least 1.
    pub bytes: u64,
}

impl Slot<'_> {
    /// The slot with a key of its own.
    #[must_use]
    pub fn into_owned(self) -> Slot<'static> {
        let Self { key, dtype, shape, bytes } = self;
        Slot { key: key.into_owned().into(), dtype, shape, bytes }
    }
}

/// Where everything in a shard stands. Offsets count from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where the header ends and data begins, a multiple of 4096.
    pub data_start: u64,
    /// Of each slot, in the slots' order.
    pub offsets: Vec<u64>,
    /// Of each slot: where in the table its blocks' CRCs begin, if it has more than one block.
    pub table_index: Vec<Option<u64>>,
    /// The table of block CRCs, if some slot has more than one block.
    pub table: Option<TablePlace>,
    /// The pads, ascending; their bytes are 0.
    pub pads: Vec<Range<u64>>,
    /// Length of the shard, a multiple of 4096.
    pub bytes: u64,
    /// The first `data_start` bytes of the shard.
    pub header: Vec<u8>,
}

/// A shard's table of block CRCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePlace {
    /// CRCs in it, 4 bytes each.
    pub count: u64,
    /// Where it begins, from the start of the file.
    pub offset: u64,
}

/// Lays out a shard whose chunks are `slots` in this order, in a checkpoint whose blocks have
/// `block_bytes` bytes.
///
/// # Errors
/// [`Code::LayoutMismatch`] when there are no slots; [`Code::Limit`] when the header is longer than
/// `shard-header-bytes` or the shard than 64 bits count.
pub fn lay_out(slots: &[Slot<'_>], block_bytes: u64) -> Result<Layout> {
    if slots.is_empty() {
        let message = "expected a shard with at least one chunk, found one with none";
        return Err(Error::rule(Code::LayoutMismatch, rule::SHARD_CHUNKS, message));
    }
    let mut plan = Plan::new();
    let mut offsets = Vec::with_capacity(slots.len());
    let mut table_index = Vec::with_capacity(slots.len());
    let mut count = 0;
    for slot in slots {
        offsets.push(plan.place(&slot.key, slot.dtype, &slot.shape, slot.bytes)?);
        if slot.bytes > block_bytes {
            table_index.push(Some(count));
            let blocks = arith::ceil_div(slot.bytes, block_bytes, "blocks of a chunk")?;
            count = arith::add(count, blocks, "blocks of a shard")?;
        } else {
            table_index.push(None);
        }
    }
    let mut table = None;
    if count > 0 {
        let bytes = arith::mul(count, 4, "bytes of the CRC table")?;
        let offset = plan.place(TABLE_KEY, Dtype::U32, &[count], bytes)?;
        table = Some(TablePlace { count, offset });
    }
    plan.pad_to(limits::PAGE_ALIGN)?;

    let header = framed(plan.header)?;
    // From offsets within the data to offsets within the file.
    let data_start = header.len() as u64;
    let shift = |relative: u64| arith::add(data_start, relative, "offset in a shard");
    for offset in &mut offsets {
        *offset = shift(*offset)?;
    }
    if let Some(table) = &mut table {
        table.offset = shift(table.offset)?;
    }
    for pad in &mut plan.pads {
        *pad = shift(pad.start)?..shift(pad.end)?;
    }
    let bytes = shift(plan.cursor)?;
    Ok(Layout { data_start, offsets, table_index, table, pads: plan.pads, bytes, header })
}

/// Entries placed so far; offsets count from the start of the data.
struct Plan {
    cursor: u64,
    pads: Vec<Range<u64>>,
    header: Encoder,
}

impl Plan {
    fn new() -> Self {
        let mut header = Encoder::new();
        header.begin_object();
        header.member("__metadata__");
        header.raw(r#"{"format":"pt","waystation":"1.0"}"#);
        Self { cursor: 0, pads: Vec::new(), header }
    }

    /// Places an entry at the first fitting offset, after a pad where there is a gap.
    fn place(&mut self, key: &str, dtype: Dtype, shape: &[u64], bytes: u64) -> Result<u64> {
        let large = bytes >= limits::LARGE_CHUNK_BYTES;
        self.pad_to(if large { limits::PAGE_ALIGN } else { limits::SMALL_ALIGN })?;
        let begin = self.cursor;
        let end = arith::add(begin, bytes, "end of an entry of a shard")?;
        self.entry(key, dtype, shape, end);
        Ok(begin)
    }

    /// Fills up to the next multiple of `align` with a pad, if there is anything to fill.
    fn pad_to(&mut self, align: u64) -> Result<()> {
        let begin = self.cursor;
        let end = arith::align_up(begin, align, "end of a pad of a shard")?;
        let bytes = arith::sub(end, begin, "bytes of a pad")?;
        if bytes > 0 {
            let key = format!("{PAD_KEY}{}", self.pads.len());
            self.pads.push(begin..end);
            self.entry(&key, Dtype::U8, &[bytes], end);
        }
        Ok(())
    }

    /// The next entry, from the cursor to `end`.
    fn entry(&mut self, key: &str, dtype: Dtype, shape: &[u64], end: u64) {
        let begin = std::mem::replace(&mut self.cursor, end);
        self.header.member(key);
        self.header.begin_object();
        self.header.member("data_offsets");
        self.header.uints(&[begin, end]);
        self.header.member("dtype");
        self.header.string(dtype.as_str());
        self.header.member("shape");
        self.header.uints(shape);
        self.header.end_object();
    }
}

/// The length of the header, the header, and spaces up to where data begins.
fn framed(mut header: Encoder) -> Result<Vec<u8>> {
    header.end_object();
    let json = header.into_bytes();
    let json_end = arith::add(8, json.len() as u64, "end of a shard's header")?;
    let data_start = arith::align_up(json_end, limits::PAGE_ALIGN, "start of a shard's data")?;
    let length = arith::sub(data_start, 8, "length of a shard's header")?;
    if length > limits::SHARD_HEADER_BYTES {
        let max = limits::SHARD_HEADER_BYTES;
        let message = format!("expected a shard's header of at most {max} bytes, found {length}");
        return Err(Error::rule(Code::Limit, rule::SHARD_HEADER_SIZE, message));
    }
    let data_start = arith::to_usize(data_start, "start of a shard's data")?;
    let mut framed = Vec::with_capacity(data_start);
    framed.extend_from_slice(&length.to_le_bytes());
    framed.extend_from_slice(&json);
    framed.resize(data_start, b' ');
    Ok(framed)
}
