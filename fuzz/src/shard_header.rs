//! `shard_header`: bytes as a safetensors file. Two readings of them agree, and a header that our layout function writes is read
//! back as what was laid out.
//!
//! A reader of checkpoints never parses a header. Two things do: `import`, whose parser is held against the one of the
//! safetensors crate here, and the layout function, which makes headers.

use std::collections::BTreeMap;

use safetensors::{SafeTensorError, SafeTensors};
use serde_json::Value;
use waystation_cli::fuzzing::{Found, foreign_tensors};
use waystation_format::shard::{CHUNK_KEY, Layout, PAD_KEY, Slot, TABLE_KEY, lay_out};
use waystation_format::{Class, Code, Dims, Dtype};

use crate::{judge, memory, part};

/// Bytes of a block when headers are laid out.
const BLOCK_BYTES: u64 = 4096;
/// Data of a file that is laid out and read again.
const MOST_BYTES: u64 = 1 << 20;

/// Reads bytes as a safetensors file in two ways, and lays out what is in it.
///
/// # Panics
/// If the two ways differ, a tensor leaves the file, or a header of ours is not read back as what was laid out.
pub fn run(data: &[u8]) {
    let (ours, peak) = memory::peak(|| foreign_tensors(data));
    memory::DECODING.check(peak, data.len(), "the header of a foreign file");
    let theirs = SafeTensors::deserialize(data);
    match &ours {
        Ok(tensors) => {
            let mut end = None;
            for (name, dtype, shape, bytes) in tensors {
                assert!(
                    bytes.start <= bytes.end && bytes.end <= data.len() as u64,
                    "{name:?} leaves the file"
                );
                assert!(
                    end.is_none_or(|end| end == bytes.start),
                    "{name:?} leaves a hole before it"
                );
                end = Some(bytes.end);
                let elements = shape.iter().fold(1, |all: u128, &n| all.saturating_mul(n.into()));
                let bits = elements.saturating_mul(dtype.bits().into());
                let taken = u128::from(bytes.end - bytes.start);
                assert_eq!(bits, taken * 8, "{name:?} of {shape:?} takes {taken} bytes");
                if let Ok(theirs) = &theirs {
                    let view = theirs
                        .tensor(name)
                        .unwrap_or_else(|e| panic!("{name:?} is ours alone: {e}"));
                    let range = bytes.start as usize..bytes.end as usize;
                    assert!(
                        std::ptr::eq(view.data(), &raw const data[range]),
                        "{name:?} is elsewhere"
                    );
                    assert_eq!(view.dtype().bitsize(), dtype.bits() as usize, "{name:?}");
                    assert!(
                        view.shape().iter().map(|&size| size as u64).eq(shape.iter().copied()),
                        "{name:?}"
                    );
                }
            }
            assert!(end.is_none_or(|end| end == data.len() as u64), "bytes behind the last tensor");
            match &theirs {
                Ok(theirs) => assert_eq!(theirs.len(), tensors.len()),
                Err(e) => assert!(ours_alone(data, tensors, e), "taken by us alone: {e}"),
            }
        }
        Err(e) => {
            assert!(matches!(e.class(), Class::Usage | Class::Limit | Class::Unsupported), "{e}");
            judge::within(e, data.len());
        }
    }
    // A file that both take is taken alike. We refuse more: names that stand twice, pads and chunks of checkpoints. They refuse
    // dtypes that only we have.
    if let (Err(e), Ok(theirs)) = (&ours, &theirs) {
        let reserved = theirs.names().iter().any(|name| {
            name.starts_with(CHUNK_KEY) || name.starts_with(PAD_KEY) || *name == TABLE_KEY
        });
        let twice = e.message().contains("stands twice") || e.message().contains("duplicate field");
        assert!(reserved || twice || e.code() == Code::Limit, "refused by us alone: {e}");
    }
    let tensors = ours.unwrap_or_default();
    if data.len() as u64 <= MOST_BYTES && !tensors.is_empty() {
        // What is of the length of a block, or of a large chunk, is laid out in another way: few files hold that.
        for rows in [1, 16, 256, 4096] {
            lay_out_again(&tensors, rows);
        }
    }
}

/// Whether the safetensors crate may refuse what we take: for a dtype that only we have, and for members of no meaning that it
/// cannot keep.
fn ours_alone(file: &[u8], tensors: &[Found], e: &SafeTensorError) -> bool {
    if !matches!(e, SafeTensorError::InvalidHeaderDeserialization(_)) {
        return false;
    }
    let length = file.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    let kept = serde_json::from_slice::<Value>(&file[8..][..length as usize]).is_ok();
    !kept || tensors.iter().any(|(_, dtype, ..)| !known(*dtype))
}

/// Whether the safetensors crate has a dtype.
fn known(dtype: Dtype) -> bool {
    serde_json::from_value::<safetensors::Dtype>(foreign_name(dtype).into()).is_ok()
}

/// How other tools call a dtype.
#[must_use]
pub fn foreign_name(dtype: Dtype) -> &'static str {
    if dtype == Dtype::F4E2M1 { "F4" } else { dtype.as_str() }
}

/// Lays out tensors in the order given, each with `rows` times as many elements, and reads the header.
fn lay_out_again(tensors: &[Found], rows: u64) {
    let grown = |shape: &[u64]| match rows {
        1 => Dims::from_slice(shape),
        _ => [&[rows], shape].concat().into(),
    };
    let slots: Vec<Slot<'_>> = tensors
        .iter()
        .filter(|(_, dtype, _, bytes)| dtype.header_self() && bytes.start < bytes.end)
        .map(|(name, dtype, shape, bytes)| Slot {
            key: name.as_str().into(),
            dtype: *dtype,
            shape: grown(shape),
            bytes: (bytes.end - bytes.start) * rows,
        })
        .collect();
    if slots.iter().map(|slot| slot.bytes).sum::<u64>() > MOST_BYTES {
        return;
    }
    let layout = match lay_out(&slots, BLOCK_BYTES) {
        Ok(layout) => layout,
        Err(e) => {
            assert!(slots.is_empty(), "{e}");
            return judge::refusal(&e);
        }
    };
    part::whole(&layout);
    let mut file = layout.header.clone();
    file.resize(layout.bytes as usize, 0);
    let read = SafeTensors::deserialize(&file)
        .unwrap_or_else(|e| panic!("a header of ours is refused: {e}"));
    let mut begins = BTreeMap::new();
    for (name, view) in read.iter() {
        begins.insert(
            (view.data().as_ptr() as usize - file.as_ptr() as usize) as u64,
            (name.to_owned(), view),
        );
    }
    for (slot, &offset) in slots.iter().zip(&layout.offsets) {
        let (name, view) = begins.remove(&offset).expect("a slot begins where it was laid");
        assert_eq!(name, slot.key);
        assert_eq!(view.data().len() as u64, slot.bytes);
        assert!(view.shape().iter().map(|&size| size as u64).eq(slot.shape.iter().copied()));
        let align = if slot.bytes >= 65536 { 4096 } else { 256 };
        assert_eq!(offset % align, 0);
    }
    let rest = layout.pads.len() + usize::from(layout.table.is_some());
    assert_eq!(begins.len(), rest, "what is left are pads and the table");
    table(&slots, &layout);
}

/// The indices of the table by chapter 6.1, counted once more.
fn table(slots: &[Slot<'_>], layout: &Layout) {
    let mut count = 0;
    for (slot, &index) in slots.iter().zip(&layout.table_index) {
        let long = slot.bytes > BLOCK_BYTES;
        assert_eq!(index, long.then_some(count));
        count += if long { slot.bytes.div_ceil(BLOCK_BYTES) } else { 0 };
    }
    assert_eq!(layout.table.map_or(0, |table| table.count), count);
}
