//! Definitions of chapter 9: records and value trees.
//!
//! It knows which definition the value of a registered kind has; the definitions stand by chapter.

use serde_json::{Value, json};

use super::{Defs, Limits, also, hex, list, object, to, tuple};
use crate::Result;
use crate::registry::Registry;

pub(super) fn defs(registry: &Registry, limits: &Limits<'_>) -> Result<Defs> {
    let max_integer = limits.get("max-integer")?;
    let digits = limits.get("inline-bytes")?.saturating_mul(2);
    let record = object([
        ("coordinate?", to("coordinate")),
        ("kind", to("name")),
        ("name", to("name")),
        ("value", json!({ "type": "object" })),
    ]);
    // Each kind has a definition of its name.
    let mut kinds: Vec<Value> = registry
        .kinds
        .iter()
        .map(|kind| {
            json!({
                "if": { "properties": { "kind": { "const": kind.id } } },
                "then": { "properties": { "value": to(&kind.id) } },
            })
        })
        .collect();
    // There is one progress, for all.
    kinds.push(json!({
        "if": { "properties": { "kind": { "const": "progress" } } },
        "then": { "properties": { "coordinate": false, "name": { "const": "main" } } },
    }));
    let record = also(record, "allOf", json!(kinds));
    let bare = json!({
        "anyOf": [
            { "type": ["null", "boolean", "string"] },
            to("safe_integer"),
        ],
    });
    // Larger magnitudes than `max-integer` have 16 digits or more.
    let longest = limits.get("integer-digits")?.saturating_add(1);
    let long_integer =
        json!({ "type": "string", "maxLength": longest, "pattern": "^-?[1-9][0-9]{15,}$" });
    let key = json!({
        "anyOf": [{ "type": "string" }, to("safe_integer"), object([("int", to("long_integer"))])],
    });
    let pair = tuple(2, [key, to("tree")]);
    let float = one_of_members([("f64", hex(16)), ("f32", hex(8))]);
    let whole = json!({ "anyOf": [to("safe_integer"), object([("int", to("long_integer"))])] });
    let named = list(&tuple(2, [to("name"), to("tree")]), 0, None);
    let wrapped = one_of_members([
        ("int", to("long_integer")),
        ("f64", hex(16)),
        ("f32", hex(8)),
        (
            "bytes",
            json!({ "type": "string", "maxLength": digits, "pattern": "^(?:[0-9a-f]{2})*$" }),
        ),
        ("list", list(&to("tree"), 0, None)),
        ("tuple", list(&to("tree"), 0, None)),
        ("map", list(&pair, 0, None)),
        ("tensor", to("identity_key")),
        ("type", tuple(2, [json!({ "type": "string" }), to("tree")])),
    ]);
    Ok(Defs::from_iter(
        [
            ("record", record),
            (
                "safe_integer",
                json!({
                    "type": "integer",
                    "minimum": i64::try_from(max_integer).map_or(i64::MIN, i64::wrapping_neg),
                    "maximum": max_integer,
                }),
            ),
            ("long_integer", long_integer),
            ("bare", bare),
            ("float", float),
            ("integer", whole),
            ("named_list", named),
            ("wrapped", wrapped),
            ("tree", json!({ "anyOf": [to("bare"), to("wrapped")] })),
            ("value", json!({ "anyOf": [to("wrapped"), object([("tree", to("bare"))])] })),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    ))
}

/// An object with exactly one of these members.
fn one_of_members<const N: usize>(members: [(&str, Value); N]) -> Value {
    let properties: serde_json::Map<String, Value> =
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1,
    })
}
