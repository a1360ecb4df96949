//! What a reader must find in a checkpoint of a recipe: the answers of `read` and `slice`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::parts::numbers;
use super::{cut, element_bits, flat, identity, key, record_key, sha256};
use crate::recipe::{Recipe, Whole, hex, unhex};

/// The answer of `read`.
#[must_use]
pub fn projection(recipe: &Recipe) -> Value {
    let mut tensors = BTreeMap::new();
    for (number, whole) in recipe.tensors.iter().enumerate() {
        let entry = Value::Object(whole.entry.clone());
        let mut said = named(&entry);
        said["dtype"] = entry["dtype"].clone();
        said["shape"] = entry["shape"].clone();
        match whole_bytes(recipe, number, whole) {
            Some(bytes) => add(&mut said, &bytes),
            None => add_refused(&mut said),
        }
        tensors.insert(key(&entry), said);
    }
    let mut aliases = BTreeMap::new();
    let mut records = BTreeMap::new();
    let mut attachments = BTreeMap::new();
    for writer in &recipe.writers {
        for alias in &writer.aliases {
            let mut said = named(alias);
            said["of"] = alias["of"].clone();
            aliases.insert(key(alias), said);
        }
        records.extend(writer.records.iter().map(|record| (record_key(record), record)));
        for attachment in &writer.attachments {
            let bytes = unhex(&attachment.hex);
            let said =
                json!({"path": attachment.path, "bytes": bytes.len(), "sha256": sha256(&bytes)});
            attachments.insert(&attachment.path, said);
        }
    }
    json!({
        "run": recipe.run, "step": recipe.step,
        "tensors": tensors.into_values().collect::<Vec<_>>(),
        "aliases": aliases.into_values().collect::<Vec<_>>(),
        "attachments": attachments.into_values().collect::<Vec<_>>(),
        "records": records.into_values().collect::<Vec<_>>(),
    })
}

/// The answer of `slice` for a tensor by its position.
///
/// # Panics
///
/// If it is a flat companion and the region not a run of whole blocks: that has another answer.
#[must_use]
pub fn slice(recipe: &Recipe, tensor: usize, start: &[u64], extent: &[u64]) -> Value {
    let whole = &recipe.tensors[tensor];
    let bytes = if extent.contains(&0) {
        Vec::new()
    } else if let Some(block) = flat::block(recipe, tensor) {
        flat::region(recipe, tensor, block, start, extent).expect("a run of whole blocks")
    } else {
        let shape = numbers(&whole.entry["shape"]);
        let bits = element_bits(&whole.entry["dtype"]);
        let count = shape.iter().product::<u64>() as usize;
        cut(&whole.data.bytes(count * bits), bits, &shape, start, extent)
    };
    let mut said = json!({"dtype": whole.entry["dtype"], "extent": extent});
    add(&mut said, &bytes);
    said
}

/// Adds what is said of bytes.
pub(super) fn add(said: &mut Value, bytes: &[u8]) {
    said["bytes"] = bytes.len().into();
    said["sha256"] = sha256(bytes).into();
    if bytes.len() <= 64 {
        said["hex"] = hex(bytes).into();
    }
}

fn add_refused(said: &mut Value) {
    said["bytes"] = Value::Null;
    said["sha256"] = Value::Null;
    said["refused"] = "block-boundary".into();
}

fn named(entry: &Value) -> Value {
    let six = identity(entry);
    json!({"component": six[0], "role": six[1], "name": six[2], "slot": six[3], "owner": six[4], "scope": six[5]})
}

/// A tensor packed as one chunk; none of a flat companion whose boxes are not runs of whole blocks.
fn whole_bytes(recipe: &Recipe, number: usize, whole: &Whole) -> Option<Vec<u8>> {
    if let Some(block) = flat::block(recipe, number) {
        return flat::whole(recipe, number, block);
    }
    let shape = numbers(&whole.entry["shape"]);
    let bits = element_bits(&whole.entry["dtype"]);
    Some(whole.data.bytes(shape.iter().product::<u64>() as usize * bits))
}
