//! Changes of finished files, by the place that a base's metadata gives.

use serde_json::{Value, json};

use super::base_files;
use crate::bend::{Bend, set};
use crate::build;
use crate::files::Files;

/// Names of writer 0's first shards, where a base has one of each class.
pub(super) const MODEL: &str = "model-00000-1111111111111111-00000.safetensors";
pub(super) const STATE: &str = "state-00000-1111111111111111-00001.safetensors";

/// The first byte of a shard that is not of its header, in bases of few tensors.
pub(super) const DATA: usize = 4096;

/// Inverts a bit of a file.
pub(super) fn flip(file: &str, offset: usize, bit: u8) -> Bend {
    let file = file.to_owned();
    Bend::new("a bit inverted").files(move |files| of(files, &file)[offset] ^= 1 << bit)
}

/// Puts bytes over those of a file.
pub(super) fn put(bend: Bend, file: &str, offset: usize, bytes: &[u8]) -> Bend {
    let (file, bytes) = (file.to_owned(), bytes.to_vec());
    bend.files(move |files| {
        of(files, &file)[offset..offset + bytes.len()].copy_from_slice(&bytes);
    })
}

/// Moves bytes of a file, and leaves zeros behind.
pub(super) fn shift(bend: Bend, file: &str, from: usize, length: usize, to: usize) -> Bend {
    let file = file.to_owned();
    bend.files(move |files| {
        let bytes = of(files, &file);
        let moved = bytes[from..from + length].to_vec();
        bytes[from..from + length].fill(0);
        bytes[to..to + length].copy_from_slice(&moved);
    })
}

/// Replaces text in the header of a shard; spaces after the header give way, or fill up.
pub(super) fn header(file: &str, old: &str, new: &str) -> Bend {
    let (file, old, new) = (file.to_owned(), old.to_owned(), new.to_owned());
    Bend::new("another header").files(move |files| {
        let bytes = of(files, &file);
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
        let text = std::str::from_utf8(&bytes[8..8 + length]).expect("a header is text");
        assert!(text.contains(&old), "no {old} in {text}");
        let mut replaced = text.trim_end().replacen(&old, &new, 1).into_bytes();
        replaced.resize(length, b' ');
        bytes[8..8 + length].copy_from_slice(&replaced);
    })
}

/// Where a chunk of a base's writer 0 lies in its shard, and how long it is, by entry and number.
pub(super) fn spot(base: &str, entry: usize, chunk: usize) -> (usize, usize) {
    let files = base_files(base);
    let page: Value =
        serde_json::from_slice(&files["tensors-00000.json"]).expect("a page of the suite is JSON");
    let entry = &page["entries"][entry];
    let chunk = &entry["chunks"][chunk];
    let offset = chunk[2].as_u64().expect("an offset") as usize;
    let extent = chunk[4].as_array().expect("an extent");
    let count: u64 = extent.iter().filter_map(Value::as_u64).product();
    (offset, (count as usize * build::element_bits(&entry["dtype"])).div_ceil(8))
}

/// Bytes of a file of a base.
pub(super) fn bytes(base: &str, file: &str, offset: usize, length: usize) -> Vec<u8> {
    base_files(base)[file][offset..offset + length].to_vec()
}

/// States something else of writer 0's first shard, in part and manifest alike.
pub(super) fn stated(bend: Bend, member: &str, value: &Value) -> Bend {
    bend.part(0, set(&format!("/shards/0/{member}"), value.clone()))
        .manifest(set(&format!("/parts/0/shards/0/{member}"), value.clone()))
}

/// A table as parts and manifest state it.
pub(super) fn table(raw: &[u8], offset: usize) -> Value {
    json!({"count": raw.len() / 4, "crc32c": build::crc(raw), "offset": offset})
}

pub(super) fn of<'a>(files: &'a mut Files, name: &str) -> &'a mut Vec<u8> {
    files.get_mut(name).unwrap_or_else(|| panic!("no file {name}"))
}
