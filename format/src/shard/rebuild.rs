//! A part's shards laid out again from its chunks, and held against what the part says.
//!
//! It knows a part's entries and shards. It must not know the files: whoever reads them compares
//! their first bytes with [`Layout::header`] and their pads with [`Layout::pads`].

use crate::common::Coordinate;
use crate::entry::{Entry, Tensor};
use crate::identity::MAIN;
use crate::json::Encoder;
use crate::part::{Part, ShardEntry};
use crate::shard::{CHUNK_KEY, Layout, Slot, lay_out};
use crate::{Code, Dims, Dtype, Error, Region, Result, Role, rule};

/// The slot of the chunk `region` of `tensor`.
///
/// # Errors
/// [`Code::Limit`] when the chunk's bytes do not fit 64 bits.
pub fn slot_of<'a>(tensor: &'a Tensor, region: &Region) -> Result<Slot<'a>> {
    let bytes = tensor.chunk_bytes(region)?;
    let (dtype, shape) = if !tensor.dtype.header_self() {
        (Dtype::U8, Dims::from_elem(bytes, 1))
    } else if tensor.block.is_some() {
        (tensor.dtype, Dims::from_elem(tensor.stored_elements(region)?, 1))
    } else {
        (tensor.dtype, region.extent.clone())
    };
    let key = if stands_under_its_name(tensor, region) {
        tensor.identity.name.as_str().into()
    } else {
        chunk_key(tensor, region).into()
    };
    Ok(Slot { key, dtype, shape, bytes })
}

/// True when any tool that finds the chunk by the tensor's name finds all of the tensor.
fn stands_under_its_name(tensor: &Tensor, region: &Region) -> bool {
    let identity = &tensor.identity;
    matches!(identity.role, Role::Param | Role::Buffer)
        && identity.component == MAIN
        && identity.scope == Coordinate::new()
        && !identity.name.starts_with("__")
        && tensor.valid.is_none()
        && tensor.dtype.header_self()
        && region.extent == tensor.shape
}

/// `__ws__:` and the canonical JSON of `[identity, at]`.
fn chunk_key(tensor: &Tensor, region: &Region) -> String {
    let mut json = Encoder::new();
    json.begin_array();
    tensor.identity.encode(&mut json);
    json.uints(&region.at);
    json.end_array();
    format!("{CHUNK_KEY}{}", json.into_string())
}

/// The layout of each shard of `part`, in their order, checked against the offsets, table indices,
/// tables and lengths that the part states. Pointers in errors are into the part.
///
/// # Errors
/// [`Code::LayoutMismatch`] when the part states other than the layout function gives, or a shard
/// has no chunk; [`Code::Limit`] when a header is too long; and those of the part's entries.
pub fn layouts_of(part: &Part) -> Result<Vec<Layout>> {
    each_layout_of(part)?.into_iter().collect()
}

/// As [`layouts_of`], but one shard's breach does not hide the layouts of others.
///
/// # Errors
/// Those of the part's entries; what a shard breaks stands in its place.
pub fn each_layout_of(part: &Part) -> Result<Vec<Result<Layout>>> {
    let mut shards: Vec<Vec<Placed>> = part.shards.iter().map(|_| Vec::new()).collect();
    for (entry_number, entry) in part.entries().enumerate() {
        let Entry::Tensor(tensor) = entry? else { continue };
        for (chunk_number, chunk) in tensor.chunks.iter().enumerate() {
            let place = Place { entry: entry_number, chunk: chunk_number };
            // That the shard is there and of the right class was checked when the part was read.
            let placed = usize::try_from(chunk.shard).ok().and_then(|n| shards.get_mut(n));
            let placed = placed.ok_or_else(|| {
                let count = part.shards.len();
                let message = format!("expected one of {count} shards, found {}", chunk.shard);
                place.error(Code::BadChunk, rule::CHUNK_SHARD, message, "/0")
            })?;
            placed.push(Placed {
                slot: slot_of(&tensor, &chunk.region)?.into_owned(),
                offset: chunk.offset,
                table_index: chunk.table_index,
                place,
            });
        }
    }
    let laid_out = shards.into_iter().zip(&part.shards).enumerate();
    let check = |(number, (chunks, stated))| check_shard(chunks, stated, part, number);
    Ok(laid_out.map(check).collect())
}

/// A chunk as a part states it.
struct Placed {
    slot: Slot<'static>,
    offset: u64,
    table_index: Option<u64>,
    place: Place,
}

/// Where in a part a chunk stands.
#[derive(Clone, Copy)]
struct Place {
    entry: usize,
    chunk: usize,
}

impl Place {
    #[cold]
    fn error(self, code: Code, rule: &'static str, message: String, member: &str) -> Error {
        let Self { entry, chunk } = self;
        Error::rule(code, rule, message)
            .at_pointer(format!("/entries/{entry}/chunks/{chunk}{member}"))
    }
}

/// Lays out one shard and compares it with what the part states.
fn check_shard(
    mut chunks: Vec<Placed>,
    stated: &ShardEntry,
    part: &Part,
    number: usize,
) -> Result<Layout> {
    // Chunks at one offset cannot both be where the function puts them, so their order is free.
    chunks.sort_by_key(|chunk| chunk.offset);
    let mut slots = Vec::with_capacity(chunks.len());
    let mut places = Vec::with_capacity(chunks.len());
    for Placed { slot, offset, table_index, place } in chunks {
        slots.push(slot);
        places.push((offset, table_index, place));
    }
    let in_shard = |member: &str| format!("/shards/{number}{member}");
    let layout =
        lay_out(&slots, part.common.block_bytes).map_err(|error| error.at_pointer(in_shard("")))?;

    let given = layout.offsets.iter().zip(&layout.table_index);
    for ((offset, table_index), (stated_offset, stated_index, place)) in given.zip(places) {
        if stated_offset != *offset {
            let message = format!("expected offset {offset}, found {stated_offset}");
            return Err(place.error(Code::LayoutMismatch, rule::SHARD_LAYOUT, message, "/1"));
        }
        if stated_index != *table_index {
            let message = format!("expected table index {table_index:?}, found {stated_index:?}");
            return Err(place.error(Code::LayoutMismatch, rule::SHARD_LAYOUT, message, "/5"));
        }
    }
    let mismatch = |member: &str, expected: String, found: String| {
        let message = format!("expected {expected}, found {found}");
        Err(Error::rule(Code::LayoutMismatch, rule::SHARD_LAYOUT, message)
            .at_pointer(in_shard(member)))
    };
    let table = layout.table.map(|table| (table.count, table.offset));
    let stated_table = stated.crc_table.as_ref().map(|table| (table.count, table.offset));
    if table != stated_table {
        let words = |table: Option<(u64, u64)>| match table {
            Some((count, offset)) => format!("a table of {count} CRCs at {offset}"),
            None => "no table".to_owned(),
        };
        return mismatch("/crc_table", words(table), words(stated_table));
    }
    if stated.bytes != layout.bytes {
        return mismatch("/bytes", layout.bytes.to_string(), stated.bytes.to_string());
    }
    Ok(layout)
}
