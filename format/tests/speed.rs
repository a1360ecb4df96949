//! How long the metadata of a checkpoint of a million chunks takes. Run by hand, in release:
//! `cargo test -p waystation-format --release --test speed -- --ignored --nocapture`.

// Numbers and indices here are the tests' own; printing is the purpose.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::print_stdout
)]

use std::time::Instant;

use waystation_format::derive::{Derived, derive};
use waystation_format::json::check_canonical;
use waystation_format::page::TensorPage;
use waystation_format::part::{Producer, ShardEntry};
use waystation_format::{
    Attempt, Chunk, Common, Digest, Dtype, Entry, Features, Identity, Incarnation, Manifest, Part,
    PartContent, Region, ShardClass, Tensor, Topology, Version,
};

const WRITERS: u32 = 64;
const TENSORS: u64 = 15_625;

fn content(writer: u32) -> PartContent {
    let tensor = |number: u64| {
        let name = format!("model.layers.{}.mlp.experts.{}.weight", number / 100, number % 100);
        let mut tensor = Tensor::new(Identity::param(name), Dtype::BF16, &[1024, 64]);
        let region = Region {
            at: [u64::from(writer) * 16, 0].as_slice().into(),
            extent: [16, 64].as_slice().into(),
        };
        let offset = 2_097_152 + number * 2048;
        let crc32c = (number as u32).wrapping_mul(0x9e37_79b9);
        tensor.chunks = vec![Chunk { writer, shard: 0, offset, region, crc32c, table_index: None }];
        Entry::Tensor(tensor)
    };
    PartContent {
        common: Common {
            attempt: Attempt { timeline: 1, nonce: 7 },
            block_bytes: 262_144,
            features: Features::default(),
            parent: None,
            run: "speed".to_owned(),
            step: 1,
            topology: Topology(vec![("dp".to_owned(), 64)]),
            version: Version::CURRENT,
            writers: WRITERS,
        },
        writer,
        inc: Incarnation(u64::from(writer)),
        attachments: vec![],
        shards: vec![ShardEntry { bytes: 1 << 30, class: ShardClass::Model, crc_table: None }],
        extensions: vec![],
        inventory: None,
        omitted: vec![],
        producer: Producer::default(),
        entries: (0..TENSORS).map(tensor).collect(),
        records: vec![],
    }
}

#[test]
#[ignore = "a measurement"]
fn a_million_chunks() {
    let timed = |what: &str, bytes: usize, start: Instant| {
        let seconds = start.elapsed().as_secs_f64();
        println!("{what}: {seconds:.3} s, {:.0} MB/s", bytes as f64 / seconds / 1e6);
    };
    let start = Instant::now();
    let raw: Vec<Vec<u8>> = (0..WRITERS).map(|writer| content(writer).encode().unwrap()).collect();
    let bytes = raw.iter().map(Vec::len).sum();
    timed("encode parts", bytes, start);

    let start = Instant::now();
    let parts: Vec<Part> = raw.into_iter().map(|raw| Part::parse(raw).unwrap()).collect();
    timed("parse parts", bytes, start);

    let start = Instant::now();
    let mut pages = Vec::new();
    let manifest = derive(&parts, &mut |derived| {
        if let Derived::TensorsPage { bytes, .. } = derived {
            pages.push(bytes.to_vec());
        }
        Ok(())
    })
    .unwrap();
    let bytes = pages.iter().map(Vec::len).sum();
    timed("derive", bytes, start);

    let start = Instant::now();
    let digests: Vec<Digest> = pages.iter().map(|page| Digest::of(page)).collect();
    timed("digest of pages", bytes, start);
    assert_eq!(digests.len(), pages.len());

    let start = Instant::now();
    pages.iter().for_each(|page| assert!(check_canonical(page).is_ok()));
    timed("canonical form of pages", bytes, start);

    let start = Instant::now();
    let manifest = Manifest::parse(&manifest).unwrap();
    let parsed: Vec<TensorPage> = (0..)
        .zip(&pages)
        .map(|(number, page)| TensorPage::parse(page, &manifest, number).unwrap())
        .collect();
    timed("parse pages, cover and all", bytes, start);

    let start = Instant::now();
    for entry in parsed.iter().flat_map(|page| &page.entries) {
        if let Entry::Tensor(tensor) = entry {
            tensor.check_cover().unwrap();
        }
    }
    timed("cover alone", bytes, start);
}
