//! Cursors in the making: nodes, canaries over the items that are said to come, and what is answered.

use serde_json::{Map, Value, json};

use super::super::Cases;
use super::asking::{Ask, here, said};
use super::held::{files, longs, record};
use crate::build::sha256;
use crate::case::Effect;
use crate::files::Files;

/// The digest by which the sources of the cases go.
pub(super) const SHA: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// Items of leaves.
pub(super) fn bare(ordinals: &[u64]) -> Vec<Vec<u64>> {
    ordinals.iter().map(|&ordinal| vec![ordinal]).collect()
}

/// An item as records have it.
pub(super) fn written(item: &[u64]) -> Value {
    if item.len() == 1 { json!(item[0]) } else { json!(item) }
}

/// `next` over these items.
pub(super) fn canary(items: &[Vec<u64>]) -> Value {
    let first: Vec<Value> = items.iter().take(4).map(|item| written(item)).collect();
    json!({"count": items.len(), "first": first, "sha256": sha256(&longs(&items.concat()))})
}

/// A leaf at a position; `epoch_end` as in the record.
pub(super) fn leaf(
    records: u64,
    order: Value,
    epoch: u64,
    epoch_end: Value,
    position: u64,
) -> Value {
    json!({"epoch": epoch, "epoch_end": epoch_end, "kind": "permuted-index", "order": order,
        "position": position, "source": {"records": records, "sha256": SHA}})
}

/// Records one after another, of one epoch.
pub(super) fn line(records: u64, position: u64) -> Value {
    leaf(records, identity(records), 0, stop(), position)
}

/// The order of a [`line`].
pub(super) fn identity(n: u64) -> Value {
    json!({"algorithm": "identity", "n": n})
}

/// The end of a cursor with its epoch.
pub(super) fn stop() -> Value {
    json!({"rule": "stop"})
}

/// The next epoch with the next item.
pub(super) fn wrap() -> Value {
    json!({"rule": "wrap"})
}

/// The node as a root: with `consumed`, and `next` over the items.
pub(super) fn root(node: &Value, consumed: u64, items: &[Vec<u64>]) -> Value {
    let mut root = node.clone();
    root["consumed"] = consumed.into();
    root["next"] = canary(items);
    root
}

/// The record `train`.
pub(super) fn train(root: Value) -> Value {
    record("cursor", "train", root)
}

/// Asks with every source that the tree has.
pub(super) fn offering(mut ask: Ask, tree: &Value) -> Ask {
    let mut found = Vec::new();
    sources(tree, &mut found);
    for source in found {
        let records = source["records"].as_u64().unwrap_or_default();
        ask = ask.source("train", records, source["sha256"].as_str().unwrap_or_default());
    }
    ask
}

fn sources<'a>(tree: &'a Value, found: &mut Vec<&'a Map<String, Value>>) {
    match tree {
        Value::Object(members) => {
            if let Some(Value::Object(source)) = members.get("source")
                && !found.contains(&source)
            {
                found.push(source);
            }
            members.values().for_each(|value| sources(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| sources(value, found)),
        _ => {}
    }
}

/// What is said of a cursor that is restored and computed.
pub(super) fn exact(root: &Value) -> Value {
    json!({"grade": "exact", "name": "train", "next": root["next"]["first"],
        "position": root["consumed"]})
}

/// A case of `resume`: the cursor is restored exactly, and these items come next.
pub(super) fn restored(
    cases: &mut Cases,
    (slug, rules): (&str, &[&str]),
    what: &str,
    root: &Value,
) {
    restored_files(cases, (slug, rules), what, root, files(&[train(root.clone())]));
}

/// The same where there is more in the checkpoint than the record.
pub(super) fn restored_files(
    cases: &mut Cases,
    (slug, rules): (&str, &[&str]),
    what: &str,
    root: &Value,
    files: Files,
) {
    cases
        .case(&format!("resume/{slug}"), rules, what)
        .over("bare")
        .effect(Effect::WrongResume)
        .request(offering(here(), root).request())
        .answers_files(files, said(&[], &[exact(root)], &[]));
}
