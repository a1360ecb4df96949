//! What a reader must find in a checkpoint of a recipe: the answers of `read` and `slice`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::parts::{flat_bytes, numbers};
use super::{cut, element_bits, identity, key, record_key, sha256};
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

/// The answer of `slice` for a tensor by its position; no flat companion.
#[must_use]
pub fn slice(recipe: &Recipe, tensor: usize, start: &[u64], extent: &[u64]) -> Value {
    let whole = &recipe.tensors[tensor];
    let shape = numbers(&whole.entry["shape"]);
    let bits = element_bits(&whole.entry["dtype"]);
    let count = shape.iter().product::<u64>() as usize;
    let bytes = cut(&whole.data.bytes(count * bits), bits, &shape, start, extent);
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
    let shape = numbers(&whole.entry["shape"]);
    let bits = element_bits(&whole.entry["dtype"]);
    let count = shape.iter().product::<u64>();
    let Some(block) = whole.entry.get("block").and_then(Value::as_u64) else {
        return Some(whole.data.bytes(count as usize * bits));
    };
    let boxes = recipe.writers.iter().flat_map(|writer| &writer.boxes);
    let mut runs = Vec::new();
    for (_, at, extent) in boxes.filter(|(tensor, _, _)| *tensor == number) {
        let (begin, length) = run(&shape, at, extent)?;
        let ends = begin + length == count || (begin + length).is_multiple_of(block);
        if !begin.is_multiple_of(block) || !ends {
            return None;
        }
        runs.push((begin, (length.div_ceil(block) as usize * bits).div_ceil(8)));
    }
    // The boxes' bytes stand as listed; the whole has them by place.
    let bytes = flat_bytes(recipe, number, bits);
    let mut listed = Vec::new();
    let mut rest = bytes.as_slice();
    for (begin, length) in runs {
        let (mine, others) = rest.split_at(length);
        listed.push((begin, mine));
        rest = others;
    }
    listed.sort_unstable();
    Some(listed.into_iter().flat_map(|(_, bytes)| bytes.to_vec()).collect())
}

/// First element and number of elements of a box that is one run of the flattened shape.
fn run(shape: &[u64], at: &[u64], extent: &[u64]) -> Option<(u64, u64)> {
    // After the first axis that has more than one index, all must be whole.
    let mut narrow = false;
    let mut begin = 0;
    for axis in 0..shape.len() {
        if narrow && extent[axis] != shape[axis] {
            return None;
        }
        narrow |= extent[axis] > 1;
        begin = begin * shape[axis] + at[axis];
    }
    Some((begin, extent.iter().product()))
}
