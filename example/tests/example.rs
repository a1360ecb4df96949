//! The example against the format's own rules, against safetensors, and against the copy in the
//! specification.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests fail by panicking, and their sizes are small"
)]

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::SafeTensors;
use waystation_example::{annotate, content, directory, files};
use waystation_format::crc::crc32c;
use waystation_format::entry::{Entry, Tensor};
use waystation_format::manifest::{FileKind, Manifest};
use waystation_format::page::{RecordPage, TensorPage};
use waystation_format::part::Part;
use waystation_format::shard::layouts_of;
use waystation_format::{Digest, commit_file, names};

fn by_name() -> BTreeMap<String, Vec<u8>> {
    files().into_iter().collect()
}

fn manifest(files: &BTreeMap<String, Vec<u8>>) -> Manifest {
    Manifest::parse(&files[names::MANIFEST]).unwrap()
}

fn tensors(files: &BTreeMap<String, Vec<u8>>) -> Vec<Tensor> {
    let page = TensorPage::parse(&files["tensors-00000.json"], &manifest(files), 0).unwrap();
    let tensor = |entry| match entry {
        Entry::Tensor(tensor) => Some(tensor),
        Entry::Alias(alias) => {
            assert_eq!(alias, content::alias());
            None
        }
    };
    page.entries.into_iter().filter_map(tensor).collect()
}

#[test]
fn it_is_what_the_specification_shows() {
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec");
    for (name, bytes) in files() {
        let path = spec.join("example").join(directory()).join(&name);
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name}: generate the example again");
    }
    let chapter = std::fs::read_to_string(spec.join("appendix-b-example.md")).unwrap();
    assert_eq!(annotate::chapter(&directory(), &files()).unwrap(), chapter);
}

#[test]
fn every_file_is_named_and_is_as_stated() {
    let mut files = by_name();
    let manifest = manifest(&files);
    let root = Digest::of(&files[names::MANIFEST]);
    assert_eq!(commit_file::parse(&files.remove(names::COMMIT).unwrap()).unwrap(), root);
    files.remove(names::MANIFEST);
    for named in manifest.named_files().unwrap() {
        let bytes = files.remove(&named.name).unwrap();
        assert_eq!(bytes.len() as u64, named.bytes, "{}", named.name);
        assert!(named.digest.is_none_or(|digest| digest == Digest::of(&bytes)), "{}", named.name);
    }
    assert!(files.is_empty(), "{files:?}");
}

#[test]
fn every_chunk_has_its_crc_and_the_elements_that_the_content_says() {
    let files = by_name();
    let manifest = manifest(&files);
    let tensors = tensors(&files);
    assert_eq!(tensors.len(), 5);
    for content in content::tensors() {
        let identity = &content.tensor.identity;
        let tensor = tensors.iter().find(|tensor| tensor.identity == *identity).unwrap();
        let mut elements = Vec::new();
        for chunk in &tensor.chunks {
            let part = &manifest.parts[chunk.writer as usize];
            let class = part.shards[chunk.shard as usize].class;
            let file = &files[&names::shard(class, chunk.writer, part.inc, chunk.shard)];
            let begin = chunk.offset as usize;
            let end = begin + tensor.chunk_bytes(&chunk.region).unwrap() as usize;
            assert_eq!(crc32c(&file[begin..end]), chunk.crc32c);
            if let (Some(index), Some(table)) =
                (chunk.table_index, part.shards[chunk.shard as usize].crc_table)
            {
                let table = &file[table.offset as usize..];
                for (n, block) in file[begin..end].chunks(4096).enumerate() {
                    let at = 4 * (index as usize + n);
                    assert_eq!(table[at..at + 4], crc32c(block).to_le_bytes());
                }
            }
            elements.extend_from_slice(&file[begin..end]);
        }
        assert_eq!(elements, content.elements, "{}", identity.key());
    }
}

#[test]
fn headers_and_pads_are_rebuilt_from_the_parts_and_safetensors_opens_the_shards() {
    let files = by_name();
    let manifest = manifest(&files);
    let mut whole = Vec::new();
    for named in manifest.named_files().unwrap() {
        let FileKind::Part { writer } = named.kind else { continue };
        let part = Part::parse(files[&named.name].clone()).unwrap();
        assert_eq!((part.writer, part.file_name()), (writer, named.name));
        for (n, layout) in (0..).zip(layouts_of(&part).unwrap()) {
            let class = part.shards[n as usize].class;
            let shard = &files[&names::shard(class, writer, part.inc, n)];
            assert_eq!(layout.bytes, shard.len() as u64);
            assert_eq!(&shard[..layout.header.len()], layout.header);
            for pad in &layout.pads {
                let pad = pad.start as usize..pad.end as usize;
                assert!(shard[pad].iter().all(|byte| *byte == 0));
            }
            let names = SafeTensors::deserialize(shard).unwrap();
            let plain = |name: &&str| !name.starts_with("__");
            whole.extend(names.names().into_iter().filter(plain).map(ToOwned::to_owned));
        }
    }
    whole.sort();
    assert_eq!(whole, ["embed.weight", "steps_seen"]);
}

#[test]
fn records_are_merged_and_their_canaries_are_those_of_the_state() {
    let files = by_name();
    let page = RecordPage::parse(&files["records-00000.json"], &manifest(&files), 0).unwrap();
    let keys: Vec<String> = page.records.iter().map(|record| record.key.key()).collect();
    assert_eq!(
        keys,
        [
            r#"["cursor","train",[]]"#,
            r#"["optimizer","main",[]]"#,
            r#"["progress","main",[]]"#,
            r#"["rng","dropout",[["dp",0]]]"#,
            r#"["rng","dropout",[["dp",1]]]"#,
            r#"["value","torch.lr_scheduler",[]]"#,
        ]
    );
    for (record, seed) in page.records.iter().filter(|record| record.key.kind == "rng").zip(42..) {
        let words: Vec<String> = (1000..1002)
            .flat_map(|block| philox(block, seed))
            .map(|w| format!("\"{w:08x}\""))
            .collect();
        let next = format!("\"next_raw\":[{}]", words[..5].join(","));
        assert!(record.json.contains(&next), "{} {next}", record.json);
    }
}

/// Block `counter` of subsequence 0 of Philox4x32-10 under the key `seed`.
fn philox(counter: u32, seed: u32) -> [u32; 4] {
    let (mut c, mut k) = ([counter, 0, 0, 0], [seed, 0]);
    for _ in 0..10 {
        let (a, b) = (0xd251_1f53 * u64::from(c[0]), 0xcd9e_8d57 * u64::from(c[2]));
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
    }
    c
}
