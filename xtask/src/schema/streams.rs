//! Definitions of chapter 17: random streams, with the digits that the registry gives.
//!
//! It knows lengths. Whether a state is legal and gives these outputs is beyond a schema.

use serde_json::{Value, json};

use super::{Defs, Limits, also, hex, list, object, to, words};
use crate::Result;
use crate::registry::Registry;

/// The fewest outputs in a canary.
const LEAST_OUTPUTS: u64 = 4;

pub(super) fn defs(registry: &Registry, limits: &Limits<'_>) -> Result<Defs> {
    let digits = limits.get("inline-bytes")?.saturating_mul(2);
    let outputs = limits.get("canary-outputs")?;
    let state = json!({
        "anyOf": [
            { "type": "string", "maxLength": digits, "pattern": "^(?:[0-9a-f]{2})*$" },
            object([("tensor", to("identity_key"))]),
        ],
    });
    let fork = object([
        ("coordinate", to("coordinate_or_empty")),
        ("manifest", hex(64)),
        ("step", to("count")),
    ]);
    let origin = object([
        ("form?", to("name")),
        ("framework", to("name")),
        ("initial_seed?", to("integer")),
        ("version?", to("name")),
    ]);
    let output = json!({ "type": "string", "pattern": "^[0-9a-f]{1,128}$" });
    let rng = object([
        ("algorithm", to("name")),
        ("caches", list(&cache(registry), 0, None)),
        ("fork?", fork),
        ("next_raw", list(&output, 0, Some(outputs))),
        ("on_reshape", words(&["require", "fork", "reinit"])),
        ("origin?", origin),
        ("purpose?", to("name")),
        ("seed_rule?", object([("root", to("integer")), ("rule", to("name"))])),
        ("state", state),
    ]);
    let rng = also(rng, "allOf", canaries(registry));
    Ok(Defs::from_iter([("rng".to_owned(), rng)]))
}

/// A cache has the digits of its kind.
fn cache(registry: &Registry) -> Value {
    let known: Vec<&str> = registry.caches.iter().map(|cache| cache.id.as_str()).collect();
    let bits = json!({ "type": "string", "pattern": "^(?:[0-9a-f]{2}){0,64}$" });
    let mut forms = vec![object([("bits", bits), ("kind", unknown(&known))])];
    forms.extend(registry.caches.iter().map(|cache| {
        object([("bits", hex(cache.bits.div_ceil(4))), ("kind", json!({ "const": cache.id }))])
    }));
    json!({ "anyOf": forms })
}

/// A canary has the digits of its algorithm, and none stands where there are no outputs.
fn canaries(registry: &Registry) -> Value {
    registry
        .algorithms
        .iter()
        .map(|algorithm| {
            let canary = if algorithm.canary {
                json!({ "items": hex(algorithm.width.div_ceil(4)), "minItems": LEAST_OUTPUTS })
            } else {
                json!({ "maxItems": 0 })
            };
            json!({
                "if": { "properties": { "algorithm": { "const": algorithm.id } } },
                "then": { "properties": { "next_raw": canary } },
            })
        })
        .collect()
}

/// A name that the registry does not have.
fn unknown(known: &[&str]) -> Value {
    json!({ "allOf": [to("name"), { "not": { "enum": known } }] })
}
