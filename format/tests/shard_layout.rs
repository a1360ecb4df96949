//! Shards as the safetensors crate sees them: every layout must be a file that it accepts, with
//! the same tensors, no hole, and everything aligned.

// A test may stop at the first surprise, and its numbers are its own.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use safetensors::SafeTensors;
use waystation_format::shard::{Layout, Slot, lay_out};
use waystation_format::{Code, Dtype, rule};

/// Slots of every dtype that a header carries, from one byte to a few blocks.
fn slots() -> impl Strategy<Value = Vec<Slot<'static>>> {
    let dtype = prop::sample::select(
        Dtype::ALL.iter().copied().filter(|d| d.header_self()).collect::<Vec<_>>(),
    );
    let shape = prop_oneof![
        prop::collection::vec(1u64..6, 0..4),
        (1u64..3, 1000u64..20_000).prop_map(|(a, b)| vec![a, b]),
        Just(vec![16, 4096]),
    ];
    prop::collection::vec((dtype, shape), 1..12).prop_map(|entries| {
        let slot = |(i, (dtype, shape)): (usize, (Dtype, Vec<u64>))| Slot {
            key: format!("w.{i} \"é\\😀").into(),
            dtype,
            bytes: shape.iter().product::<u64>() * u64::from(dtype.bits() / 8),
            shape: shape.into(),
        };
        entries.into_iter().enumerate().map(slot).collect()
    })
}

/// The shard's file: each slot filled with its number + 1, the table with 0xff.
fn file_of(slots: &[Slot<'_>], layout: &Layout) -> Vec<u8> {
    let mut file = layout.header.clone();
    file.resize(layout.bytes as usize, 0);
    for (i, (slot, &offset)) in slots.iter().zip(&layout.offsets).enumerate() {
        file[offset as usize..(offset + slot.bytes) as usize].fill(i as u8 + 1);
    }
    if let Some(table) = layout.table {
        let begin = table.offset as usize;
        file[begin..begin + 4 * table.count as usize].fill(0xff);
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn safetensors_accepts_every_layout(slots in slots(), block_bits in 12u32..17) {
        let block_bytes = 1 << block_bits;
        let layout = lay_out(&slots, block_bytes).unwrap();
        let file = file_of(&slots, &layout);
        let judge = SafeTensors::deserialize(&file).unwrap();

        let mut seen = BTreeMap::new();
        for (i, slot) in slots.iter().enumerate() {
            let view = judge.tensor(&slot.key).unwrap();
            let shape: Vec<u64> = view.shape().iter().map(|&n| n as u64).collect();
            prop_assert_eq!(&shape[..], &slot.shape[..]);
            prop_assert_eq!(view.dtype().to_string(), slot.dtype.as_str());
            prop_assert_eq!(view.data().len() as u64, slot.bytes);
            prop_assert!(view.data().iter().all(|&b| b == i as u8 + 1));
            seen.insert(layout.offsets[i], layout.offsets[i] + slot.bytes);
        }
        if let Some(table) = layout.table {
            let view = judge.tensor("__crc__").unwrap();
            prop_assert_eq!(view.shape(), [table.count as usize]);
            prop_assert!(view.data().iter().all(|&b| b == 0xff));
            seen.insert(table.offset, table.offset + 4 * table.count);
        }
        for (n, pad) in layout.pads.iter().enumerate() {
            let view = judge.tensor(&format!("__pad__.{n}")).unwrap();
            prop_assert_eq!(view.data().len() as u64, pad.end - pad.start);
            prop_assert!(view.data().iter().all(|&b| b == 0));
            seen.insert(pad.start, pad.end);
        }
        prop_assert_eq!(judge.len(), seen.len());

        // No hole from the header to the end, and every beginning where it should be.
        let mut end = layout.data_start;
        for (begin, next) in seen {
            prop_assert_eq!(begin, end);
            end = next;
        }
        prop_assert_eq!(end, layout.bytes);
        prop_assert_eq!(layout.bytes % 4096, 0);
        prop_assert_eq!(layout.data_start % 4096, 0);
        prop_assert_eq!(layout.header.len() as u64, layout.data_start);
        prop_assert!(layout.offsets.is_sorted());
        for (slot, offset) in slots.iter().zip(&layout.offsets) {
            prop_assert_eq!(offset % if slot.bytes >= 65_536 { 4096 } else { 256 }, 0);
        }
        let pad_max = layout.pads.iter().map(|pad| pad.end - pad.start).max().unwrap_or(0);
        prop_assert!(pad_max < 4096);

        // Table indices follow file order without gaps.
        let mut blocks = 0;
        for (slot, index) in slots.iter().zip(&layout.table_index) {
            prop_assert_eq!(*index, (slot.bytes > block_bytes).then_some(blocks));
            blocks += index.map_or(0, |_| slot.bytes.div_ceil(block_bytes));
        }
        prop_assert_eq!(layout.table.map_or(0, |table| table.count), blocks);
    }
}

#[test]
fn one_layout_by_hand() {
    let slot = |key: &'static str, dtype, shape: &[u64], bytes| Slot {
        key: key.into(),
        dtype,
        shape: shape.into(),
        bytes,
    };
    let slots = [slot("a", Dtype::F32, &[3], 12), slot("b", Dtype::U8, &[5000], 5000)];
    let layout = lay_out(&slots, 4096).unwrap();
    let header = concat!(
        r#"{"__metadata__":{"format":"pt","waystation":"1.0"},"#,
        r#""a":{"data_offsets":[0,12],"dtype":"F32","shape":[3]},"#,
        r#""__pad__.0":{"data_offsets":[12,256],"dtype":"U8","shape":[244]},"#,
        r#""b":{"data_offsets":[256,5256],"dtype":"U8","shape":[5000]},"#,
        r#""__pad__.1":{"data_offsets":[5256,5376],"dtype":"U8","shape":[120]},"#,
        r#""__crc__":{"data_offsets":[5376,5384],"dtype":"U32","shape":[2]},"#,
        r#""__pad__.2":{"data_offsets":[5384,8192],"dtype":"U8","shape":[2808]}}"#,
    );
    let mut expected = 4088_u64.to_le_bytes().to_vec();
    expected.extend(header.bytes());
    expected.resize(4096, b' ');
    assert_eq!(layout.header, expected);
    assert_eq!(layout.offsets, [4096, 4352]);
    assert_eq!(layout.table_index, [None, Some(0)]);
    assert_eq!(layout.bytes, 4096 + 8192);
    assert_eq!(layout.pads, [4108..4352, 9352..9472, 9480..12_288]);
}

#[test]
fn a_shard_has_a_chunk_and_a_bounded_header() {
    let error = lay_out(&[], 4096).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::LayoutMismatch, Some(rule::SHARD_CHUNKS)));

    let key = "k".repeat(1 << 20);
    let slot =
        Slot { key: key.into(), dtype: Dtype::U8, shape: [256].as_slice().into(), bytes: 256 };
    let few = vec![slot.clone(); 63];
    assert!(lay_out(&few, 4096).is_ok());
    let error = lay_out(&vec![slot; 64], 4096).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some(rule::SHARD_HEADER_SIZE)));

    let huge =
        |bytes| Slot { key: "k".into(), dtype: Dtype::U8, shape: [bytes].as_slice().into(), bytes };
    assert_eq!(lay_out(&[huge(u64::MAX)], 4096).unwrap_err().code(), Code::Limit);
}
