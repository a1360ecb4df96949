//! Definitions of chapter 16: the kinds of records that say numbers.
//!
//! It knows the members of each. What joins several members, or records, is beyond a schema.

use serde_json::{Value, json};

use super::{Defs, also, list, object, to, tuple, words};
use crate::registry::Registry;

pub(super) fn defs(registry: &Registry) -> Defs {
    let progress = object([
        ("batch?", to("count")),
        ("epoch?", to("count")),
        ("iteration?", to("count")),
        ("optimizer_step", to("count")),
        ("samples?", to("count")),
        ("skipped?", to("count")),
        ("tokens?", to("count")),
    ]);
    let scaler = object([
        ("backoff", to("float")),
        ("good_steps", to("count")),
        ("growth", to("float")),
        ("hysteresis?", to("count")),
        ("interval", to("count")),
        ("scale", to("float")),
        ("skipped?", to("count")),
    ]);
    Defs::from_iter(
        [
            ("progress", progress),
            ("optimizer", optimizer()),
            ("param_list", param_list()),
            ("ema", object([("decay?", to("float")), ("updates", to("count"))])),
            ("schedule", schedule(registry)),
            ("scaler", scaler),
            ("uncaptured", object([("kind", to("name")), ("reason", to("name"))])),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    )
}

fn param_list() -> Value {
    let params = list(&tuple(2, [to("name"), to("name")]), 0, None);
    also(params, "uniqueItems", json!(true))
}

fn optimizer() -> Value {
    let group = object([
        ("hyper", to("named_list")),
        ("implementation?", to("named_list")),
        ("name", to("name")),
        ("params", to("param_list")),
    ]);
    let steps = |params: &Value| {
        object([("params", params.clone()), ("step", to("count")), ("stored_as", to("name"))])
    };
    let all = list(&steps(&json!({ "const": "all" })), 1, Some(1));
    let listed = list(&steps(&to("param_list")), 0, None);
    object([
        ("algorithm", to("name")),
        ("groups", list(&group, 0, None)),
        ("masters?", object([("cast", words(&["nearest-even", "stochastic", "other"]))])),
        ("steps", json!({ "anyOf": [all, listed] })),
    ])
}

/// Which keys the parameters of a computed schedule have is told for each; that each stands once,
/// and how many floats a list has, is beyond a schema.
fn schedule(registry: &Registry) -> Value {
    const UNITS: [&str; 4] = ["optimizer_steps", "samples", "tokens", "epochs"];
    let position = object([("unit", words(&UNITS)), ("value", to("count"))]);
    let schedule = object([
        ("algorithm", to("name")),
        ("last_value", list(&to("tree"), 0, None)),
        ("parameters", to("tree")),
        ("position", position),
    ]);
    let floats = object([("list", list(&to("float"), 0, None))]);
    let floats = json!({ "anyOf": [to("float"), floats] });
    let computed = registry.schedules.iter().map(|computed| {
        let names: Vec<&str> = computed.parameters.split(", ").collect();
        let pair = |name: &&str| {
            let counted = matches!(*name, "warmup" | "total");
            let value = if counted { to("count") } else { floats.clone() };
            tuple(2, [json!({ "const": name }), value])
        };
        let pairs: Vec<Value> = names.iter().map(pair).collect();
        let count = u64::try_from(names.len()).unwrap_or(u64::MAX);
        let map = list(&json!({ "anyOf": pairs }), count, Some(count));
        json!({
            "if": { "properties": { "algorithm": { "const": computed.id } } },
            "then": { "properties": {
                "last_value": { "items": to("float") },
                "parameters": object([("map", map)]),
            } },
        })
    });
    also(schedule, "allOf", computed.collect())
}
