//! `page`: a page and the manifest that names it. What is read has one text, and every tensor in it is covered.

use serde_json::Value;
use waystation_conformance::build::{key, record_key};
use waystation_format::entry_json::Place;
use waystation_format::json::Encoder;
use waystation_format::manifest::PageRef;
use waystation_format::page::{RecordPage, TensorPage};
use waystation_format::{Digest, Entry, Manifest};

use crate::{goldens, judge, memory, part};

/// Reads `<manifest>\n<page>`, or a page alone under the manifest of the first golden, as page 0 of tensors and of records.
///
/// What the manifest says of the page is made to fit before, so that length and digest hide nothing behind them.
///
/// # Panics
/// If a page that is read has another text, or a tensor that is not covered exactly once; if a refusal names no rule; if memory
/// goes beyond [`memory::DECODING`].
pub fn run(data: &[u8]) {
    let split = data.iter().position(|&byte| byte == b'\n');
    let (manifest, page) = split.map_or((&[][..], data), |at| (&data[..at], &data[at + 1..]));
    let mut manifest = Manifest::parse(manifest).unwrap_or_else(|_| goldens::manifest());
    let stated =
        |first: String| PageRef { bytes: page.len() as u64, first, sha256: Digest::of(page) };
    let value: Value = serde_json::from_slice(page).unwrap_or(Value::Null);
    let first = |list: &str, key: fn(&Value) -> String| match value
        .get(list)
        .and_then(|list| list.get(0))
    {
        Some(first) => key(first),
        None => String::new(),
    };
    manifest.tensors.truncate(1);
    manifest.records.truncate(1);
    manifest.tensors.splice(.., [stated(first("entries", key))]);
    manifest.records.splice(.., [stated(first("records", record_key))]);
    tensors(page, &manifest);
    records(page, &manifest);
}

fn tensors(page: &[u8], manifest: &Manifest) {
    let (parsed, peak) = memory::peak(|| TensorPage::parse(page, manifest, 0));
    memory::DECODING.check(peak, page.len(), "a page of tensors");
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(e) => {
            judge::within(&e, page.len());
            return judge::refusal(&e);
        }
    };
    for entry in &parsed.entries {
        if let Entry::Tensor(tensor) = entry {
            part::covered(tensor);
            for chunk in &tensor.chunks {
                let shard =
                    manifest.shard(chunk.writer, chunk.shard).expect("a shard of the manifest");
                let bytes = tensor.chunk_bytes(&chunk.region).expect("counted");
                assert!(
                    chunk.offset + bytes <= shard.bytes,
                    "{}: a chunk leaves its shard",
                    entry.key()
                );
                let role = tensor.identity.role;
                assert_eq!(shard.class, role.class(), "{}: in a shard of others", entry.key());
                let block = manifest.common.block_bytes;
                assert_eq!(chunk.table_index.is_some(), bytes > block, "{}: a table", entry.key());
                if let Some(first) = chunk.table_index {
                    let count = shard.crc_table.map_or(0, |table| table.count);
                    let end = first + bytes.div_ceil(block);
                    assert!(end <= count, "{}: CRCs beyond the table", entry.key());
                }
            }
        }
    }
    let keys: Vec<String> = parsed.entries.iter().map(Entry::key).collect();
    judge::ascending(&keys, "a page of tensors");
    let last = keys.last().expect("a page is not empty");
    let parses = |manifest: &Manifest| TensorPage::parse(page, manifest, 0).is_ok();
    assert!(!parses(&before(manifest, last)), "a page goes on into the next");
    let text = written("tensors", "entries", manifest, |json| {
        parsed.entries.iter().for_each(|entry| entry.encode(json, Place::Page));
    });
    assert!(text == page, "a page of tensors with two texts");
    judge::canonical(page, "a page of tensors");
}

fn records(page: &[u8], manifest: &Manifest) {
    let (parsed, peak) = memory::peak(|| RecordPage::parse(page, manifest, 0));
    memory::DECODING.check(peak, page.len(), "a page of records");
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(e) => {
            judge::within(&e, page.len());
            return judge::refusal(&e);
        }
    };
    let text = written("records", "records", manifest, |json| {
        parsed.records.iter().for_each(|record| json.raw(&record.json));
    });
    assert!(text == page, "a page of records with two texts");
    judge::canonical(page, "a page of records");
    let keys: Vec<String> = parsed.records.iter().map(|record| record.key.key()).collect();
    judge::ascending(&keys, "a page of records");
    let last = keys.last().expect("a page is not empty");
    let parses = |manifest: &Manifest| RecordPage::parse(page, manifest, 0).is_ok();
    assert!(!parses(&before(manifest, last)), "a page goes on into the next");
    for record in &parsed.records {
        record.typed().expect("a record that was checked says something");
    }
}

/// The manifest with one page more, which begins with that key.
fn before(manifest: &Manifest, first: &str) -> Manifest {
    let mut manifest = manifest.clone();
    for pages in [&mut manifest.tensors, &mut manifest.records] {
        pages
            .extend(pages.first().cloned().map(|page| PageRef { first: first.to_owned(), ..page }));
    }
    manifest
}

/// The text of a page, by chapter 8.2.
fn written(kind: &str, list: &str, manifest: &Manifest, items: impl Fn(&mut Encoder)) -> Vec<u8> {
    let mut members = ["format", "kind", "page", "version", list];
    members.sort_unstable();
    let mut json = Encoder::new();
    json.begin_object();
    for name in members {
        json.member(name);
        match name {
            "format" => json.string("waystation"),
            "kind" => json.string(kind),
            "page" => json.uint(0),
            "version" => json.display(&manifest.common.version),
            _ => {
                json.begin_array();
                items(&mut json);
                json.end_array();
            }
        }
    }
    json.end_object();
    json.into_bytes()
}
