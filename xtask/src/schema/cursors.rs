//! Definitions of chapter 18: cursors, their nodes and orders.
//!
//! It knows the members of each. How deep nodes go, and what joins numbers of several members, is
//! beyond a schema.

use serde_json::{Value, json};

use super::{Defs, Limits, also, extended, hex, integer, list, object, to, tuple, words};
use crate::Result;
use crate::registry::Registry;

/// The largest seed of an order of 32 bits, and the largest weight.
const U32: u64 = 0xffff_ffff;
/// Children of a mixture.
const CHILDREN: u64 = 1024;

pub(super) fn defs(registry: &Registry, limits: &Limits<'_>) -> Result<Defs> {
    let last = limits.get("max-integer")?;
    let inline = limits.get("inline-ordinals")?;
    let counts = list(&to("count"), 0, Some(inline));
    let next = object([
        ("count", integer(0, limits.get("canary-items")?)),
        ("first", list(&to("item"), 0, Some(4))),
        ("sha256", hex(64)),
    ]);
    let axes = also(list(&to("name"), 0, None), "uniqueItems", json!(true));
    let partition = object([
        ("axes", axes),
        ("batch", to("size")),
        ("rule", words(&["round-robin", "contiguous", "by-lane"])),
    ]);
    let root = [
        ("augment?", words(&["none", "per-record", "worker-stream"])),
        ("next?", next),
        ("partition?", partition),
    ];
    let consumed = [("consumed", to("count"))];
    let roots: Vec<Value> =
        nodes(inline).into_iter().map(|node| extended(extended(node, &root), &consumed)).collect();
    let opaque_root = extended(opaque(), &root);
    let mut all_nodes = nodes(inline);
    all_nodes.push(opaque());
    let mut all_roots = roots;
    all_roots.push(opaque_root);
    let item = json!({
        "anyOf": [to("count"), { "type": "array", "items": to("count"), "minItems": 2 }],
    });
    Ok(Defs::from_iter(
        [
            ("cursor", json!({ "anyOf": all_roots })),
            ("node", json!({ "anyOf": all_nodes })),
            ("size", integer(1, last)),
            ("item", item),
            ("piece", tuple(3, [to("item"), to("count"), to("size")])),
            (
                "source",
                object([("name?", to("name")), ("records", to("size")), ("sha256", hex(64))]),
            ),
            ("numbers", json!({ "anyOf": [counts, object([("tensor", to("identity_key"))])] })),
            ("order", json!({ "anyOf": orders(registry, true) })),
            ("window_order", json!({ "anyOf": orders(registry, false) })),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    ))
}

/// All nodes but the opaque one, which differs at the root.
fn nodes(inline: u64) -> Vec<Value> {
    let kind = |kind: &str| json!({ "const": kind });
    let cut = object([("rule", words(&["drop-last", "pad"])), ("unit", to("size"))]);
    let uncut = object([("rule", words(&["wrap", "stop"]))]);
    let permuted = object([
        ("epoch", to("count")),
        ("epoch_end", json!({ "anyOf": [cut, uncut] })),
        ("kind", kind("permuted-index")),
        ("order", to("order")),
        ("position", to("count")),
        ("source", to("source")),
    ]);
    let sharded = object([
        ("name?", to("name")),
        ("records", to("size")),
        ("sha256", hex(64)),
        ("shards", to("numbers")),
    ]);
    let lanes = object([
        ("epoch", to("count")),
        ("epoch_end", uncut),
        ("kind", kind("sharded-lanes")),
        ("lanes", list(&tuple(2, [to("count"), to("count")]), 1, Some(inline))),
        ("next_lane", to("count")),
        ("order", to("order")),
        ("source", sharded),
    ]);
    let deficit = object([
        ("algorithm", kind("deficit")),
        ("end", words(&["first", "all"])),
        ("taken", list(&to("count"), 1, Some(CHILDREN))),
        ("weights", list(&integer(1, U32), 1, Some(CHILDREN))),
    ]);
    let selection = json!({ "anyOf": [deficit, other(&["deficit"], &[])] });
    let mixture = object([
        ("children", list(&to("node"), 1, Some(CHILDREN))),
        ("kind", kind("mixture")),
        ("selection", selection),
    ]);
    let window = object([
        ("anchor", to("node")),
        ("index", to("count")),
        ("kind", kind("window-shuffle")),
        ("order", to("window_order")),
        ("replay", to("count")),
        ("reverse", json!({ "type": "boolean" })),
        ("window", to("size")),
    ]);
    let stored = object([
        ("buffer", list(&to("item"), 0, None)),
        ("child", to("node")),
        ("kind", kind("window-shuffle")),
        ("order", to("window_order")),
    ]);
    let pack = |algorithm: Value, leftover: Value| {
        object([
            ("algorithm", algorithm),
            ("child", to("node")),
            ("kind", kind("pack")),
            ("leftover", leftover),
            ("length", to("size")),
            ("tail", words(&["drop", "keep"])),
            ("tokenizer?", hex(64)),
        ])
    };
    const SPLIT: &str = "concat-then-split";
    let split = pack(kind(SPLIT), json!({ "anyOf": [to("piece"), { "type": "null" }] }));
    let packed = pack(unknown(&[SPLIT]), list(&to("piece"), 0, None));
    vec![permuted, lanes, mixture, window, stored, split, packed]
}

fn opaque() -> Value {
    let pair = tuple(2, [json!({ "type": "string" }), to("tree")]);
    object([
        ("fingerprint", object([("map", list(&pair, 0, None))])),
        ("kind", json!({ "const": "opaque" })),
        ("media_type", to("name")),
        ("state", to("tree")),
    ])
}

/// The forms of an order; within a window n is known, and no list can be given.
fn orders(registry: &Registry, sized: bool) -> Vec<Value> {
    let computed = registry.orders.iter().filter(|order| order.computed);
    let known: Vec<&str> = computed.map(|order| order.id.as_str()).collect();
    let n = if sized { ("n", to("size")) } else { ("n?", json!(false)) };
    let named = |id: &str, parameters: &[(&str, Value)]| {
        let form = object([("algorithm", json!({ "const": id })), n.clone()]);
        extended(form, parameters)
    };
    let rule = || words(&["seed", "seed+epoch"]);
    // What is beyond 2^53 − 1 and below 2^64 has 16 to 20 digits.
    let long = json!({ "type": "string", "pattern": "^[1-9][0-9]{15,19}$" });
    let seed = json!({ "anyOf": [to("count"), object([("int", long)])] });
    let rounds = json!({ "type": "integer", "minimum": 4, "maximum": 1024, "multipleOf": 2 });
    let mut forms = vec![
        named("identity", &[]),
        named("torch.randperm-cpu", &[("seed", seed), ("seed_rule", rule())]),
        named(
            "grain.index_shuffle",
            &[("rounds", rounds), ("seed", integer(0, U32)), ("seed_rule", rule())],
        ),
        other(&known, std::slice::from_ref(&n)),
    ];
    if sized {
        forms.push(named("explicit", &[("ordinals", to("numbers"))]));
    }
    forms
}

/// An object of another algorithm than these: any members besides.
fn other(known: &[&str], more: &[(&str, Value)]) -> Value {
    let mut form = extended(object([("algorithm", unknown(known))]), more);
    if let Some(form) = form.as_object_mut() {
        form.remove("additionalProperties");
    }
    form
}

/// A name that is none of these.
fn unknown(known: &[&str]) -> Value {
    json!({ "allOf": [to("name"), { "not": { "enum": known } }] })
}
