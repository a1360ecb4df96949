//! What each writer leaves: shards, attachments and its part (chapters 5 to 7).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::shard::{self, Piece};
use super::{canonical, crc, cut, element_bits, flat, sha256};
use crate::files::Files;
use crate::recipe::{Recipe, unhex};

/// Everything before the root.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The parts, by writer, not yet files.
    pub parts: Vec<Value>,
    /// Shards and attachments, by name.
    pub data: Files,
}

/// The draft of a recipe. `table` may change the block CRCs of a shard before they get their own.
#[must_use]
pub fn parts(recipe: &Recipe, table: &dyn Fn(&str, &mut Vec<u32>)) -> Draft {
    let mut draft = Draft { parts: Vec::new(), data: Files::new() };
    let mut taken = BTreeMap::new();
    for number in 0..recipe.writers.len() {
        let part = part(recipe, number, &mut taken, &mut draft.data, table);
        draft.parts.push(part);
    }
    draft
}

/// Six values, those left out filled in. Of an alias as much as of a tensor.
#[must_use]
pub fn identity(entry: &Value) -> Value {
    let or = |member: &str, nothing: Value| entry.get(member).cloned().unwrap_or(nothing);
    let scope = match entry.get("of") {
        Some(of) => of.get(5).cloned().unwrap_or_else(|| json!([])),
        None => or("scope", json!([])),
    };
    json!([
        or("component", "main".into()),
        or("role", Value::Null),
        or("name", Value::Null),
        or("slot", "".into()),
        or("owner", "".into()),
        scope
    ])
}

/// The identity key.
#[must_use]
pub fn key(entry: &Value) -> String {
    canonical(&identity(entry))
}

/// The record key.
#[must_use]
pub fn record_key(record: &Value) -> String {
    let coordinate = record.get("coordinate").cloned().unwrap_or_else(|| json!([]));
    canonical(&json!([record["kind"], record["name"], coordinate]))
}

/// Members that parts and manifest share.
pub(super) fn common(recipe: &Recipe, kind: &str) -> Map<String, Value> {
    let value = json!({
        "attempt": recipe.attempt, "block_bytes": recipe.block_bytes,
        "features": {"optional": [], "required": []}, "format": "waystation", "kind": kind,
        "parent": recipe.parent, "run": recipe.run, "step": recipe.step,
        "topology": recipe.topology, "version": "1.0", "writers": recipe.writers.len(),
    });
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// The incarnation of a writer, the same for everyone.
fn incarnation(number: usize) -> String {
    format!("{:016x}", 0x1111_1111_1111_1111_u64.wrapping_mul(number as u64 % 15 + 1))
}

fn part(
    recipe: &Recipe,
    number: usize,
    taken: &mut BTreeMap<usize, usize>,
    data: &mut Files,
    table: &dyn Fn(&str, &mut Vec<u32>),
) -> Value {
    let writer = &recipe.writers[number];
    let inc = incarnation(number);
    let mut entries: BTreeMap<String, Value> = BTreeMap::new();
    let mut pieces: BTreeMap<(&str, usize), Vec<Piece>> = BTreeMap::new();
    for (position, (tensor, at, extent)) in writer.boxes.iter().enumerate() {
        let entry = Value::Object(recipe.tensors[*tensor].entry.clone());
        let listed = entries.entry(key(&entry)).or_insert_with(|| {
            let mut entry = entry.clone();
            entry["chunks"] = json!([]);
            entry
        });
        // A box without elements lists the tensor, and has no chunk.
        if !extent.contains(&0) {
            let bytes = box_bytes(recipe, *tensor, at, extent, taken);
            let class = match listed["role"].as_str() {
                Some("param" | "buffer") => "model",
                _ => "state",
            };
            let (at, extent) = (at.clone(), extent.clone());
            let cut = writer.cuts.iter().filter(|cut| **cut <= position).count();
            pieces.entry((class, cut)).or_default().push(Piece { entry, at, extent, bytes });
        }
    }
    let mut shards = Vec::new();
    for ((class, _), pieces) in &pieces {
        let name = format!("{class}-{number:05}-{inc}-{:05}.safetensors", shards.len());
        let laid = shard::lay_out(pieces, recipe.block_bytes, &|crcs| table(&name, crcs));
        for (piece, (offset, index)) in pieces.iter().zip(laid.places) {
            let mut chunk =
                json!([shards.len(), offset, piece.at, piece.extent, crc(&piece.bytes)]);
            let chunk_list =
                entries.get_mut(&key(&piece.entry)).and_then(|e| e["chunks"].as_array_mut());
            if let (Some(index), Some(members)) = (index, chunk.as_array_mut()) {
                members.push(index.into());
            }
            chunk_list.expect("listed above").push(chunk);
        }
        shards.push(json!({"bytes": laid.bytes.len(), "class": class, "crc_table": laid.table}));
        data.insert(name, laid.bytes);
    }
    for entry in entries.values_mut() {
        if let Some(chunks) = entry["chunks"].as_array_mut() {
            chunks.sort_by_key(|chunk| numbers(&chunk[2]));
        }
    }
    entries.extend(writer.aliases.iter().map(|alias| (key(alias), alias.clone())));
    let mut attachments = Vec::new();
    for (position, attachment) in writer.attachments.iter().enumerate() {
        let bytes = unhex(&attachment.hex);
        attachments
            .push(json!({"bytes": bytes.len(), "path": attachment.path, "sha256": sha256(&bytes)}));
        data.insert(format!("attachment-{number:05}-{inc}-{position:05}"), bytes);
    }
    let mut records = writer.records.clone();
    records.sort_by_key(record_key);
    let mut part = common(recipe, "part");
    let own = json!({
        "attachments": attachments, "entries": entries.into_values().collect::<Vec<_>>(),
        "extensions": {}, "inc": inc, "inventory": null, "omitted": writer.omitted,
        "producer": {"name": "conformance", "version": "1"}, "records": records,
        "shards": shards, "writer": number,
    });
    part.extend(own.as_object().cloned().unwrap_or_default());
    part.extend(writer.members.clone());
    Value::Object(part)
}

/// The bytes of a box.
fn box_bytes(
    recipe: &Recipe,
    tensor: usize,
    at: &[u64],
    extent: &[u64],
    taken: &mut BTreeMap<usize, usize>,
) -> Vec<u8> {
    if let Some(block) = flat::block(recipe, tensor) {
        let first = taken.entry(tensor).or_default();
        return flat::box_bytes(recipe, tensor, (at, extent), block, first);
    }
    let whole = &recipe.tensors[tensor];
    let bits = element_bits(&whole.entry["dtype"]);
    let shape = numbers(&whole.entry["shape"]);
    let count = shape.iter().product::<u64>() as usize;
    cut(&whole.data.bytes(count * bits), bits, &shape, at, extent)
}

/// The integers of a list.
pub(super) fn numbers(list: &Value) -> Vec<u64> {
    let values = list.as_array().map(Vec::as_slice).unwrap_or_default();
    values.iter().filter_map(Value::as_u64).collect()
}
