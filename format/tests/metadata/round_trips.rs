//! What is written is read back the same, and no change of a byte passes unseen as another text.

use proptest::prelude::*;
use proptest::sample::Index;
use waystation_format::entry_json::Place;
use waystation_format::json::{Encoder, Value as Tree};
use waystation_format::manifest::{PageRef, PartSummary};
use waystation_format::page::TensorPage;
use waystation_format::part::{CrcTable, ShardEntry};
use waystation_format::{
    Chunk, Code, Digest, Dtype, Entry, Identity, Incarnation, Manifest, Native, NativeStep, Part,
    PartContent, Record, Region, Role, ShardClass, Tensor,
};

use crate::fixture;

const BLOCK: u64 = 4096;

/// A name with characters that are escaped, sorted oddly, or above the basic plane.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{1,3}", "[\"\\\\/~ é\u{ffff}😀]{1,3}"]
}

/// Cuts a shape into a grid of boxes: along each axis one cut at most.
fn grid(shape: &[u64], cuts: &[Index]) -> Vec<Region> {
    let mut boxes = vec![Region { at: [].as_slice().into(), extent: [].as_slice().into() }];
    for (size, cut) in shape.iter().zip(cuts) {
        let cut = cut.index(usize::try_from(*size).unwrap_or(0).max(1)) as u64;
        let pieces = [(0, cut), (cut, size - cut)];
        boxes = boxes
            .iter()
            .flat_map(|outer| {
                pieces.iter().filter(|(_, extent)| *extent > 0).map(|(at, extent)| {
                    let mut inner = outer.clone();
                    inner.at.push(*at);
                    inner.extent.push(*extent);
                    inner
                })
            })
            .collect();
    }
    boxes
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let axes = prop::collection::vec((0_u64..40, any::<Index>()), 0..4);
    let dtype = prop::sample::select(Dtype::ALL);
    let role = prop::sample::select(Role::ALL);
    (role, name(), name(), dtype, axes, any::<bool>(), (1_u64..9, any::<Index>())).prop_map(
        |(role, name, other, dtype, axes, more, axis)| {
            let slot = matches!(role, Role::Optimizer | Role::Quant);
            let identity = Identity {
                role,
                component: if more { other.clone() } else { "main".to_owned() },
                slot: if slot { other.clone() } else { String::new() },
                owner: if matches!(role, Role::Optimizer | Role::Ema) {
                    other
                } else {
                    String::new()
                },
                scope: if more { vec![("tp".to_owned(), 3)] } else { vec![] },
                ..Identity::param(name.clone())
            };
            let blob = role == Role::Blob;
            let axes = if blob { vec![axis] } else { axes };
            let (shape, cuts): (Vec<u64>, Vec<_>) = axes.into_iter().unzip();
            let mut tensor = Tensor::new(identity, if blob { Dtype::U8 } else { dtype }, &shape);
            tensor.chunks = grid(&shape, &cuts).into_iter().map(unplaced).collect();
            tensor.block = (role == Role::Quant && more).then_some(7);
            if shape.iter().any(|size| *size > 0) && more {
                tensor.valid = Some(shape.iter().map(|size| size / 2).collect());
            }
            if slot && !shape.is_empty() {
                tensor.axes =
                    Some((0..shape.len()).map(|axis| (axis != 1).then_some(axis as u8)).collect());
            }
            if more {
                let path = vec![NativeStep::Index(0), NativeStep::Key(name.clone())];
                tensor.native = vec![Native { framework: name, path }];
            }
            tensor
        },
    )
}

fn unplaced(region: Region) -> Chunk {
    Chunk { writer: 0, shard: 0, offset: 0, region, crc32c: 0x0000_beef, table_index: None }
}

/// A part of such tensors, whose chunks are placed one after the other.
fn content(tensors: Vec<Tensor>, records: Vec<(String, i64)>) -> PartContent {
    let mut content = fixture::content();
    let mut ends = [0_u64; 2];
    let mut blocks = [0_u64; 2];
    content.entries.clear();
    for mut tensor in tensors {
        if content.entries.iter().any(|entry| entry.key() == tensor.identity.key()) {
            continue;
        }
        let state = tensor.identity.role.class() == ShardClass::State;
        let (end, block) = (&mut ends[usize::from(state)], &mut blocks[usize::from(state)]);
        for position in 0..tensor.chunks.len() {
            let bytes = tensor.chunk_bytes(&tensor.chunks[position].region).unwrap();
            let chunk = &mut tensor.chunks[position];
            (chunk.shard, chunk.offset) = (u32::from(state), *end);
            *end += bytes;
            if bytes > BLOCK {
                chunk.table_index = Some(*block);
                *block += bytes.div_ceil(BLOCK);
            }
        }
        content.entries.push(Entry::Tensor(tensor));
    }
    content.shards = [ShardClass::Model, ShardClass::State]
        .into_iter()
        .zip(ends.iter().zip(blocks))
        .map(|(class, (bytes, count))| ShardEntry {
            bytes: bytes + 4 * count,
            class,
            crc_table: (count > 0).then_some(CrcTable { count, crc32c: 0, offset: *bytes }),
        })
        .collect();
    let record = |(name, value): &(String, i64)| {
        let value = Tree::Object([("n".to_owned(), Tree::Int(*value))].into());
        Record::new("acme/count", name, vec![], &value).unwrap()
    };
    content.records = records.iter().map(record).collect();
    content.records.sort_by_key(|record| record.key.key());
    content.records.dedup_by_key(|record| record.key.key());
    content
}

fn sorted(content: &PartContent) -> Vec<Entry> {
    let mut entries = content.entries.clone();
    entries.sort_by_key(Entry::key);
    entries
}

/// The page of such a part, and a manifest for it.
fn page(content: &PartContent, part: &Part) -> (Vec<u8>, Manifest) {
    let entries = sorted(content);
    let mut json = Encoder::new();
    json.begin_object();
    json.member("entries");
    json.begin_array();
    entries.iter().for_each(|entry| entry.encode(&mut json, Place::Page));
    json.end_array();
    for (name, value) in [("format", "waystation"), ("kind", "tensors")] {
        json.member(name);
        json.string(value);
    }
    json.member("page");
    json.uint(0);
    json.member("version");
    json.string("1.0");
    json.end_object();
    let bytes = json.into_bytes();
    let tensors =
        PageRef { bytes: bytes.len() as u64, first: entries[0].key(), sha256: Digest::of(&bytes) };
    let summary = PartSummary {
        attachments: content.attachments.clone(),
        bytes: part.raw().len() as u64,
        extensions: content.extensions.clone(),
        inc: Incarnation(7),
        sha256: part.digest(),
        shards: content.shards.clone(),
    };
    let manifest = Manifest {
        common: content.common.clone(),
        contents: vec![],
        omitted: content.omitted.clone(),
        parts: vec![summary],
        records: vec![],
        tensors: vec![tensors],
    };
    (bytes, manifest)
}

proptest! {
    #[test]
    fn parts_pages_and_manifests_are_read_as_written(
        tensors in prop::collection::vec(tensor(), 1..8),
        records in prop::collection::vec((name(), -9..9_i64), 0..5),
    ) {
        let content = content(tensors, records);
        let part = content.clone().into_part().unwrap();
        prop_assert_eq!(&Part::parse(part.raw().to_vec()).unwrap().digest(), &part.digest());
        let entries: Vec<Entry> = part.entries().map(Result::unwrap).collect();
        prop_assert_eq!(&entries, &sorted(&content));
        let records: Vec<Record> = part.records().map(Result::unwrap).collect();
        prop_assert_eq!(&records, &content.records);
        prop_assert_eq!(&part.shards, &content.shards);
        prop_assert_eq!(&part.common, &content.common);

        let (bytes, manifest) = page(&content, &part);
        prop_assert_eq!(&Manifest::parse(&manifest.encode().unwrap()).unwrap(), &manifest);
        let page = TensorPage::parse(&bytes, &manifest, 0).unwrap();
        prop_assert_eq!(&page.entries, &entries);
    }

    #[test]
    fn the_order_in_which_a_part_is_filled_does_not_matter(seed in any::<u64>()) {
        let mut content = fixture::content();
        let expected = content.clone().encode().unwrap();
        let turn = usize::try_from(seed % 7).unwrap();
        content.entries.rotate_left(turn);
        content.records.rotate_left(turn % 3);
        for entry in &mut content.entries {
            if let Entry::Tensor(tensor) = entry {
                tensor.chunks.reverse();
            }
        }
        prop_assert_eq!(content.encode().unwrap(), expected);
    }

    #[test]
    fn a_changed_part_is_another_part_or_none(place in any::<Index>(), byte in any::<u8>()) {
        let mut bytes = fixture::content().encode().unwrap();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        match Part::parse(bytes.clone()) {
            Ok(part) => prop_assert_eq!(part.raw(), &bytes[..]),
            Err(error) => {
                prop_assert!(error.rule_id().is_some(), "{error}");
                let place = error.location();
                let canonical = error.code() != Code::NotCanonical;
                prop_assert!(if canonical { place.pointer.is_some() } else { place.offset.is_some() }, "{error}");
            }
        }
    }
}
