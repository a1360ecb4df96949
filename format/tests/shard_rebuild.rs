//! Shards of a part, laid out again: what a conforming writer states is accepted, any other
//! number is refused at its place.

// A test may stop at the first surprise, and its numbers are its own.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation
)]

use waystation_format::features::Features;
use waystation_format::part::{CrcTable, Part, PartContent, Producer, ShardEntry};
use waystation_format::shard::{Layout, Slot, lay_out, layouts_of, slot_of};
use waystation_format::{
    Attempt, Chunk, Code, Common, Dtype, Entry, Error, Identity, Incarnation, Region, Role,
    ShardClass, Tensor, Topology, Version, rule,
};

const BLOCK: u64 = 4096;

fn region(at: &[u64], extent: &[u64]) -> Region {
    Region { at: at.into(), extent: extent.into() }
}

fn companion() -> Tensor {
    let mut identity = Identity::param("w");
    (identity.role, identity.slot) = (Role::Quant, "scale".into());
    let mut tensor = Tensor::new(identity, Dtype::F32, &[64, 100]);
    tensor.block = Some(64);
    tensor
}

/// Tensors with their chunks' boxes: two model shards' worth and one of state.
fn tensors() -> Vec<(Tensor, Vec<Region>)> {
    let whole = |tensor: Tensor| {
        let region = Region::whole(&tensor.shape);
        (tensor, vec![region])
    };
    vec![
        whole(Tensor::new(Identity::param("a \"q\""), Dtype::F32, &[3])),
        (
            Tensor::new(Identity::param("b"), Dtype::BF16, &[100, 64]),
            vec![region(&[0, 0], &[50, 64]), region(&[50, 0], &[50, 64])],
        ),
        whole(Tensor::new(Identity::buffer("c"), Dtype::F4E2M1, &[7])),
        whole(Tensor::new(Identity::buffer("d"), Dtype::U8, &[])),
        whole(companion()),
    ]
}

fn number_of(class: ShardClass) -> u32 {
    u32::from(class == ShardClass::State)
}

/// What a conforming writer declares: one shard of each class, chunks in the tensors' order.
fn content() -> PartContent {
    let tensors = tensors();
    let mut entries: Vec<Tensor> = tensors.iter().map(|(tensor, _)| tensor.clone()).collect();
    let mut shards = Vec::new();
    for class in [ShardClass::Model, ShardClass::State] {
        let mine: Vec<(usize, &Region)> = tensors
            .iter()
            .enumerate()
            .filter(|(_, (tensor, _))| tensor.identity.role.class() == class)
            .flat_map(|(i, (_, regions))| regions.iter().map(move |region| (i, region)))
            .collect();
        let slots: Vec<Slot<'_>> =
            mine.iter().map(|(i, region)| slot_of(&tensors[*i].0, region).unwrap()).collect();
        let layout = lay_out(&slots, BLOCK).unwrap();
        for (n, (i, region)) in mine.into_iter().enumerate() {
            entries[i].chunks.push(Chunk {
                writer: 0,
                shard: number_of(class),
                offset: layout.offsets[n],
                region: region.clone(),
                crc32c: 0,
                table_index: layout.table_index[n],
            });
        }
        let table = layout.table;
        shards.push(ShardEntry {
            bytes: layout.bytes,
            class,
            crc_table: table.map(|t| CrcTable { count: t.count, crc32c: 0, offset: t.offset }),
        });
    }
    PartContent {
        common: Common {
            attempt: Attempt { timeline: 1, nonce: 2 },
            block_bytes: BLOCK,
            features: Features::default(),
            parent: None,
            run: "run".into(),
            step: 1,
            topology: Topology(Vec::new()),
            version: Version { major: 1, minor: 0 },
            writers: 1,
        },
        writer: 0,
        inc: Incarnation(3),
        attachments: Vec::new(),
        shards,
        extensions: Vec::new(),
        inventory: None,
        omitted: Vec::new(),
        producer: Producer::default(),
        entries: entries.into_iter().map(Entry::Tensor).collect(),
        records: Vec::new(),
    }
}

fn layouts(content: PartContent) -> Result<Vec<Layout>, Error> {
    let part: Part = content.into_part()?;
    layouts_of(&part)
}

#[test]
fn what_a_writer_lays_out_is_laid_out_again() {
    let content = content();
    let stated = content.shards.clone();
    let layouts = layouts(content).unwrap();
    assert_eq!(layouts.len(), 2);
    for (layout, stated) in layouts.iter().zip(stated) {
        assert_eq!(layout.bytes, stated.bytes);
        assert_eq!(layout.header.len() as u64, layout.data_start);
    }
    assert!(layouts[0].table.is_some() && layouts[1].table.is_none());

    let text = |n: usize| String::from_utf8(layouts[n].header[8..].to_vec()).unwrap();
    let model = text(0);
    assert!(model.contains(r#""a \"q\"":{"data_offsets":[0,12],"dtype":"F32","shape":[3]}"#));
    assert!(
        model.contains(
            r#""__ws__:[[\"main\",\"param\",\"b\",\"\",\"\",[]],[50,0]]":{"data_offsets":"#
        )
    );
    assert!(model.contains(r#""dtype":"BF16","shape":[50,64]}"#));
    assert!(model.contains(r#""__ws__:[[\"main\",\"buffer\",\"c\",\"\",\"\",[]],[0]]":{"#));
    assert!(model.contains(r#""dtype":"U8","shape":[4]}"#));
    assert!(model.contains(r#""d":{"#) && model.contains(r#""dtype":"U8","shape":[]}"#));
    // 6400 elements in blocks of 64: one dimension of 100.
    let state = text(1);
    assert!(state.contains(
        r#"\"quant\",\"w\",\"scale\",\"\",[]],[0,0]]":{"data_offsets":[0,400],"dtype":"F32","shape":[100]}"#
    ));
}

#[test]
fn only_a_whole_plain_weight_stands_under_its_name() {
    let plain = Tensor::new(Identity::param("w"), Dtype::F32, &[4, 2]);
    let whole = Region::whole(&[4, 2]);
    assert_eq!(slot_of(&plain, &whole).unwrap().key, "w");
    let piece = slot_of(&plain, &region(&[0, 0], &[2, 2])).unwrap();
    assert_eq!(piece.key, r#"__ws__:[["main","param","w","","",[]],[0,0]]"#);

    let changed = |change: &dyn Fn(&mut Tensor)| {
        let mut tensor = plain.clone();
        change(&mut tensor);
        slot_of(&tensor, &whole).unwrap().key.into_owned()
    };
    let keys = [
        changed(&|t| t.identity.role = Role::Master),
        changed(&|t| t.identity.component = "critic".into()),
        changed(&|t| t.identity.scope = vec![("tp".into(), 1)]),
        changed(&|t| t.identity.name = "__w".into()),
        changed(&|t| t.valid = Some([4, 1].as_slice().into())),
        changed(&|t| t.dtype = Dtype::F4E2M1),
    ];
    for key in keys {
        assert!(key.starts_with("__ws__:[["), "{key}");
    }
    assert_eq!(changed(&|t| t.identity.role = Role::Buffer), "w");
}

/// The error after a change to a good part: code, rule and pointer.
fn refused(change: impl FnOnce(&mut PartContent)) -> (Code, Option<&'static str>, String) {
    let mut content = content();
    change(&mut content);
    let error = layouts(content).unwrap_err();
    (error.code(), error.rule_id(), error.location().pointer.clone().unwrap_or_default())
}

/// The chunks of the tensor that is named.
fn chunks<'a>(content: &'a mut PartContent, name: &str) -> &'a mut Vec<Chunk> {
    let tensors = content.entries.iter_mut().filter_map(|entry| match entry {
        Entry::Tensor(tensor) => Some(tensor),
        Entry::Alias(_) => None,
    });
    let mut named = tensors.filter(|tensor| tensor.identity.name == name);
    &mut named.next().unwrap().chunks
}

#[test]
fn any_other_number_is_refused_at_its_place() {
    let mismatch =
        |pointer: &str| (Code::LayoutMismatch, Some(rule::SHARD_LAYOUT), pointer.to_owned());
    // In the order of keys: buffers c and d, params a and b, then quant.
    let b = "/entries/3/chunks/1";
    let found = refused(|part| chunks(part, "b")[1].offset += 256);
    assert_eq!(found, mismatch(&format!("{b}/1")));
    let found = refused(|part| chunks(part, "b")[1].table_index = Some(1));
    assert_eq!(found, mismatch(&format!("{b}/5")));
    let found = refused(|part| part.shards[0].bytes += 4096);
    assert_eq!(found, mismatch("/shards/0/bytes"));
    let found = refused(|part| {
        part.shards[0].crc_table.as_mut().unwrap().offset += 256;
    });
    assert_eq!(found, mismatch("/shards/0/crc_table"));
    let found = refused(|part| {
        part.shards[0].crc_table.as_mut().unwrap().count += 1;
    });
    assert_eq!(found, mismatch("/shards/0/crc_table"));
    let found = refused(|part| {
        part.shards[1].crc_table = Some(CrcTable { count: 1, crc32c: 0, offset: 4096 });
    });
    assert_eq!(found, mismatch("/shards/1/crc_table"));
}

#[test]
fn a_shard_without_chunks_is_refused() {
    let found = refused(|part| part.shards.push(part.shards[1]));
    let expected = (Code::LayoutMismatch, Some(rule::SHARD_CHUNKS), "/shards/2".to_owned());
    assert_eq!(found, expected);
}

#[test]
fn a_chunk_of_another_shard_or_class_is_refused() {
    assert_eq!(refused(|part| chunks(part, "d")[0].shard = 2).0, Code::BadChunk);
    assert_eq!(refused(|part| chunks(part, "d")[0].shard = 1).0, Code::BadChunk);
}
