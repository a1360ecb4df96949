//! `part`: bytes of a part. What is read has one text, and its entries are sound.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::Value;
use waystation_format::entry::{Entry, Tensor};
use waystation_format::part::{Part, PartContent};
use waystation_format::shard::{Layout, each_layout_of, slot_of};
use waystation_format::{Digest, Result, limits};

use crate::{judge, memory};

/// The largest tensor whose elements are counted one by one.
const COUNTED: u64 = 1 << 16;
/// The most chunks of which each is held against each other.
const PAIRED: usize = 1000;

/// Reads bytes as a part, and lays its shards out.
///
/// # Panics
/// If a part that is read has another text, holds chunks that overlap, or a layout that is none; if a refusal names no rule; if
/// memory goes beyond [`memory::DECODING`].
pub fn run(data: &[u8]) {
    let (parsed, peak) = memory::peak(|| Part::parse(data.to_vec()));
    memory::DECODING.check(peak, data.len(), "a part");
    let part = match parsed {
        Ok(part) => part,
        Err(e) => {
            judge::within(&e, data.len());
            return judge::refusal(&e);
        }
    };
    assert_eq!(part.raw(), data);
    assert_eq!(part.digest(), Digest::of(data));
    let entries: Vec<Entry> = part.entries().collect::<Result<_>>().expect("entries were checked");
    let records = part.records().collect::<Result<Vec<_>>>().expect("records were checked");
    for entry in &entries {
        if let Entry::Tensor(tensor) = entry {
            apart(tensor);
        }
    }
    judge::ascending(entries.iter().map(Entry::key), "entries");
    judge::ascending(records.iter().map(|record| record.key.key()), "records");
    judge::paths(part.attachments.iter().map(|attachment| attachment.path.as_str()));
    part.shards.iter().for_each(judge::table);
    let placed = placed(&entries);
    let distinct = distinct(&entries);
    let content = PartContent {
        common: part.common.clone(),
        writer: part.writer,
        inc: part.inc,
        attachments: part.attachments.clone(),
        shards: part.shards.clone(),
        extensions: part.extensions.clone(),
        inventory: part.inventory,
        omitted: part.omitted.clone(),
        producer: part.producer.clone(),
        entries,
        records,
    };
    let encoded = content.encode().expect("what was read can be written");
    assert!(encoded == data, "a part with two texts");
    judge::canonical(data, "a part");
    let (layouts, peak) = memory::peak(|| each_layout_of(&part));
    memory::DECODING.check(peak, data.len() + part.shards.len() * 8192, "the layouts of a part");
    match layouts {
        Err(e) => judge::refusal(&e),
        Ok(layouts) => {
            assert_eq!(layouts.len(), part.shards.len());
            for ((layout, stated), number) in layouts.into_iter().zip(&part.shards).zip(0..) {
                match layout {
                    Err(e) => judge::refusal(&e),
                    Ok(layout) => {
                        assert_eq!(layout.bytes, stated.bytes);
                        let table = layout.table.map(|table| (table.count, table.offset));
                        let said = stated.crc_table.map(|table| (table.count, table.offset));
                        assert_eq!(table, said, "a table elsewhere than it is said to be");
                        let given = layout.offsets.iter().copied().zip(layout.table_index.clone());
                        let said = placed.get(&number).into_iter().flatten().copied();
                        assert!(given.eq(said), "a chunk elsewhere than it is said to be");
                        if distinct {
                            whole(&layout);
                        }
                    }
                }
            }
        }
    }
}

/// Offset and table index of every chunk, ascending, by shard.
fn placed(entries: &[Entry]) -> BTreeMap<u32, Vec<(u64, Option<u64>)>> {
    let mut placed: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for entry in entries {
        let Entry::Tensor(tensor) = entry else { continue };
        for chunk in &tensor.chunks {
            placed.entry(chunk.shard).or_default().push((chunk.offset, chunk.table_index));
        }
    }
    placed.values_mut().for_each(|chunks| chunks.sort_unstable());
    placed
}

/// The product, in numbers that it fits: axes of 0 make it 0, and only then may the others be of any size.
fn product(sizes: &[u64]) -> u128 {
    if sizes.contains(&0) {
        return 0;
    }
    sizes.iter().fold(1, |product: u128, &size| product.saturating_mul(size.into()))
}

/// Chunks of one tensor lie in its shape, and no two share a byte; and nothing that is counted wraps.
///
/// # Panics
/// If not.
pub fn apart(tensor: &Tensor) {
    let key = || tensor.identity.key();
    let bits = u128::from(tensor.dtype.bits());
    let elements = product(&tensor.shape);
    assert_eq!(u128::from(tensor.elements().expect("elements were counted")), elements);
    let nonzero: Vec<u64> = tensor.shape.iter().copied().filter(|&size| size > 0).collect();
    assert!(
        product(&nonzero).saturating_mul(bits) <= u128::from(limits::TENSOR_BITS),
        "{}: more than a tensor holds",
        key()
    );
    for chunk in &tensor.chunks {
        let stored = product(&chunk.region.extent).div_ceil(tensor.block.unwrap_or(1).into());
        let bytes = tensor.chunk_bytes(&chunk.region).expect("counted");
        assert_eq!(u128::from(bytes), (stored * bits).div_ceil(8), "{}", key());
        assert!(
            chunk.region.is_within(&tensor.shape),
            "{}: {} leaves the shape",
            key(),
            chunk.region
        );
        assert!(
            chunk.offset.checked_add(tensor.chunk_bytes(&chunk.region).expect("counted")).is_some()
        );
    }
    let mut spans: Vec<(u32, u32, u64, u64)> = tensor
        .chunks
        .iter()
        .map(|c| {
            (
                c.writer,
                c.shard,
                c.offset,
                c.offset + tensor.chunk_bytes(&c.region).expect("counted"),
            )
        })
        .collect();
    spans.sort_unstable();
    for pair in spans.windows(2) {
        let [(w, s, _, end), (w2, s2, begin, _)] = [pair[0], pair[1]];
        assert!((w, s) != (w2, s2) || end <= begin, "{}: chunks share bytes", key());
    }
}

/// Whether no shard has two chunks under one key. A part alone may have: that its boxes do not overlap, and its names differ, is seen
/// where all parts are together.
fn distinct(entries: &[Entry]) -> bool {
    let mut keys = BTreeSet::new();
    entries.iter().all(|entry| match entry {
        Entry::Tensor(tensor) => tensor.chunks.iter().all(|chunk| {
            let slot = slot_of(tensor, &chunk.region).expect("bytes were counted");
            keys.insert((chunk.shard, slot.key.into_owned()))
        }),
        _ => true,
    })
}

/// Counts every element: each lies in exactly one chunk. Of large tensors the chunks are held against one another instead.
///
/// # Panics
/// If not.
pub fn covered(tensor: &Tensor) {
    apart(tensor);
    let elements = tensor.elements().expect("elements were counted");
    if elements > COUNTED {
        return disjoint(tensor);
    }
    let mut seen = vec![0_u8; elements as usize];
    for chunk in &tensor.chunks {
        for (begin, count) in chunk.region.runs(&tensor.shape).expect("a box of the shape") {
            for at in begin..begin + count {
                seen[at as usize] += 1;
            }
        }
    }
    assert!(seen.iter().all(|&times| times == 1), "{}: {seen:?}", tensor.identity.key());
}

/// No two chunks have an element in common, and together they have as many as the shape: so they cover it. Of very many chunks
/// nothing is said.
///
/// # Panics
/// If not.
pub fn disjoint(tensor: &Tensor) {
    if tensor.chunks.len() > PAIRED {
        return;
    }
    let key = || tensor.identity.key();
    let sum: u128 = tensor.chunks.iter().map(|chunk| product(&chunk.region.extent)).sum();
    assert_eq!(sum, product(&tensor.shape), "{}: elements in chunks", key());
    for (number, one) in tensor.chunks.iter().enumerate() {
        for other in &tensor.chunks[..number] {
            let (a, b) = (&one.region, &other.region);
            let apart = (0..tensor.shape.len()).any(|axis| {
                a.at[axis] + a.extent[axis] <= b.at[axis]
                    || b.at[axis] + b.extent[axis] <= a.at[axis]
            });
            assert!(apart, "{}: {a} and {b} share elements", key());
        }
    }
}

/// A layout fills its file: header, then chunks, pads and table without a hole, as the header itself says.
///
/// # Panics
/// If it does not.
pub fn whole(layout: &Layout) {
    let stated = header(&layout.header);
    let mut end = 0;
    for range in &stated {
        assert_eq!(range.start, end, "a hole, or two in one place");
        end = range.end;
    }
    assert_eq!(layout.data_start + end, layout.bytes, "the header fills another file");
    let begins = |at: u64| stated.iter().any(|range| layout.data_start + range.start == at);
    let table = layout.table.iter().map(|table| table.offset);
    for at in
        layout.offsets.iter().copied().chain(layout.pads.iter().map(|pad| pad.start)).chain(table)
    {
        assert!(begins(at), "the header has nothing at {at}");
    }
    assert_eq!(layout.header.len() as u64, layout.data_start);
    assert_eq!(layout.data_start % 4096, 0);
    assert_eq!(layout.bytes % 4096, 0);
    for pair in layout.offsets.windows(2) {
        assert!(pair[0] < pair[1]);
    }
    for pair in layout.pads.windows(2) {
        assert!(pair[0].end <= pair[1].start);
    }
    let last = layout.offsets.last().copied().unwrap_or(0);
    assert!(layout.data_start <= last && last < layout.bytes);
    if let Some(table) = layout.table {
        assert!(table.offset.checked_add(table.count * 4).is_some_and(|end| end <= layout.bytes));
    }
}

/// The ranges that a header of safetensors states, ascending.
fn header(bytes: &[u8]) -> Vec<Range<u64>> {
    let (length, text) = bytes.split_at(8);
    assert_eq!(u64::from_le_bytes(length.try_into().expect("8 bytes")), text.len() as u64);
    let tensors: BTreeMap<String, Value> = serde_json::from_slice(text).expect("a header is JSON");
    let of = |tensor: &Value| {
        let [start, end] = [0, 1].map(|n| tensor["data_offsets"][n].as_u64().expect("an offset"));
        start..end
    };
    let mut ranges: Vec<_> =
        tensors.iter().filter(|(name, _)| *name != "__metadata__").map(|(_, t)| of(t)).collect();
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges
}

#[cfg(test)]
mod tests {
    use waystation_format::entry::Chunk;
    use waystation_format::{Dtype, Identity, Region};

    use super::*;

    fn tensor(boxes: &[(u64, u64, u64)]) -> Tensor {
        let mut tensor = Tensor::new(Identity::param("w"), Dtype::U8, &[6]);
        tensor.chunks = boxes
            .iter()
            .map(|&(offset, at, extent)| Chunk {
                writer: 0,
                shard: 0,
                offset,
                region: Region::new(&[at], &[extent]),
                crc32c: 0,
                table_index: None,
            })
            .collect();
        tensor
    }

    #[test]
    fn counting_sees_what_is_missing_and_what_is_there_twice() {
        covered(&tensor(&[(0, 0, 4), (256, 4, 2)]));
        for wrong in [&[(0, 0, 4)][..], &[(0, 0, 4), (256, 3, 3)], &[(0, 0, 4), (2, 4, 2)]] {
            assert!(std::panic::catch_unwind(|| covered(&tensor(wrong))).is_err(), "{wrong:?}");
        }
    }
}
