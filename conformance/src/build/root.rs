//! Pages and manifest of parts (chapter 8), before they are files.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use waystation_format::limits;

use super::parts::{common, numbers};
use super::{canonical, key, record_key};
use crate::recipe::Recipe;

/// What readers read, as values. Digests and lengths come when it is sealed.
#[derive(Clone, Debug)]
pub struct Root {
    /// Pages of tensors.
    pub tensors: Vec<Value>,
    /// Pages of records.
    pub records: Vec<Value>,
    /// The manifest, its `parts`, `tensors` and `records` without `bytes` and `sha256`.
    pub manifest: Value,
}

/// Derives the root of parts that agree.
#[must_use]
pub fn root(recipe: &Recipe, parts: &[Value]) -> Root {
    let mut entries: BTreeMap<String, Value> = BTreeMap::new();
    let mut records: BTreeMap<String, Value> = BTreeMap::new();
    for (writer, part) in parts.iter().enumerate() {
        for entry in list(&part["entries"]) {
            let merged = entries.entry(key(entry)).or_insert_with(|| {
                let mut first = entry.clone();
                if let Some(chunks) = first.get_mut("chunks") {
                    *chunks = json!([]);
                }
                first
            });
            for chunk in list(&entry["chunks"]) {
                let mut chunk = chunk.clone();
                if let Some(members) = chunk.as_array_mut() {
                    members.insert(0, writer.into());
                }
                if let Some(chunks) = merged["chunks"].as_array_mut() {
                    chunks.push(chunk);
                }
            }
        }
        for record in list(&part["records"]) {
            records.insert(record_key(record), record.clone());
        }
    }
    for entry in entries.values_mut() {
        if let Some(chunks) = entry.get_mut("chunks").and_then(Value::as_array_mut) {
            chunks.sort_by_key(|chunk| numbers(&chunk[3]));
        }
    }
    let (tensor_pages, tensor_firsts) = pages("tensors", "entries", &entries);
    let (record_pages, record_firsts) = pages("records", "records", &records);
    let mut manifest = common(recipe, "manifest");
    let listed: Vec<Value> = parts
        .iter()
        .map(|part| {
            json!({"attachments": part["attachments"], "extensions": part["extensions"],
                "inc": part["inc"], "shards": part["shards"]})
        })
        .collect();
    let own = json!({
        "contents": contents(&entries), "omitted": omitted(parts), "parts": listed,
        "features": features(parts), "records": record_firsts, "tensors": tensor_firsts,
    });
    manifest.extend(own.as_object().cloned().unwrap_or_default());
    Root { tensors: tensor_pages, records: record_pages, manifest: Value::Object(manifest) }
}

/// The pages, and what the manifest lists of each.
fn pages(kind: &str, member: &str, keyed: &BTreeMap<String, Value>) -> (Vec<Value>, Vec<Value>) {
    let mut pages: Vec<Value> = Vec::new();
    let mut firsts = Vec::new();
    let mut length = 0;
    for (key, value) in keyed {
        let more = canonical(value).len() + 1;
        match pages.last_mut() {
            Some(page) if length + more <= limits::PAGE_TARGET_BYTES as usize => {
                page[member].as_array_mut().expect("a list of its own making").push(value.clone());
                length += more;
            }
            _ => {
                let page = json!({"format": "waystation", "kind": kind, "page": pages.len(),
                    "version": "1.0", member: [value]});
                length = canonical(&page).len();
                pages.push(page);
                let first: Value = serde_json::from_str(key).expect("a key is canonical JSON");
                firsts.push(json!({"first": first}));
            }
        }
    }
    (pages, firsts)
}

fn contents(entries: &BTreeMap<String, Value>) -> Value {
    let mut counts: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for entry in entries.values().filter(|entry| entry.get("of").is_none()) {
        let component = entry.get("component").and_then(Value::as_str).unwrap_or("main");
        let role = entry["role"].as_str().unwrap_or_default();
        *counts.entry(component).or_default().entry(role).or_default() += 1;
    }
    let listed = counts.into_iter().map(|(component, roles)| {
        json!([component, roles.into_iter().collect::<Vec<(&str, u64)>>()])
    });
    listed.collect()
}

fn omitted(parts: &[Value]) -> Value {
    let mut merged: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for one in parts.iter().flat_map(|part| list(&part["omitted"])) {
        let text = |member: &str| one[member].as_str().unwrap_or_default();
        let names = merged.entry((text("component"), text("reason"))).or_default();
        names.extend(list(&one["names"]).iter().filter_map(Value::as_str));
    }
    let listed = merged.into_iter().map(|((component, reason), names)| {
        json!({"component": component, "names": names, "reason": reason})
    });
    listed.collect()
}

fn features(parts: &[Value]) -> Value {
    let all = |member: &str| -> BTreeSet<&str> {
        let lists = parts.iter().flat_map(|part| list(&part["features"][member]));
        lists.filter_map(Value::as_str).collect()
    };
    let required = all("required");
    let optional: Vec<&str> = all("optional").difference(&required).copied().collect();
    json!({"optional": optional, "required": required})
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
