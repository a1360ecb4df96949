//! Definitions of chapters 4 to 7: tensors, chunks, aliases, and what parts and the manifest's
//! `parts` have in common.

use serde_json::{Map, Value, json};

use super::{Defs, Limits, hex, integer, list, object, or_null, to, tuple};
use crate::Result;
use crate::registry::{Presence, Registry};

pub(super) fn defs(registry: &Registry, limits: &Limits<'_>) -> Result<Defs> {
    let max_integer = limits.get("max-integer")?;
    let attachment = object([("bytes", to("count")), ("path", path(limits)?), ("sha256", hex(64))]);
    // Where things lie in a shard is a matter of depth V, and no reader looks at it before.
    let table =
        object([("count", integer(1, max_integer)), ("crc32c", hex(8)), ("offset", to("count"))]);
    let shard = object([
        ("bytes", to("count")),
        ("class", json!({ "enum": ["model", "state"] })),
        ("crc_table", or_null(&table)),
    ]);
    let extension =
        object([("on_rewrite", json!({ "enum": ["keep", "drop"] })), ("value", json!(true))]);
    let names = json!({ "type": "array", "items": to("name"), "minItems": 1, "uniqueItems": true });
    let omitted = object([
        ("component", to("name")),
        ("names", names),
        ("reason", json!({ "enum": ["frozen", "base", "other"] })),
    ]);
    let alias = object([
        ("component?", to("other_component")),
        ("name", to("name")),
        ("native?", native()),
        ("of", to("identity_key")),
        ("role", json!({ "enum": ["param", "buffer"] })),
    ]);
    Ok(Defs::from_iter(
        [
            ("attachments", list(&attachment, 0, Some(limits.get("attachments-per-writer")?))),
            ("shards", list(&shard, 0, Some(limits.get("shards-per-writer")?))),
            (
                "extensions",
                json!({
                    "type": "object",
                    "propertyNames": to("feature"),
                    "additionalProperties": extension,
                }),
            ),
            ("omitted", list(&omitted, 0, None)),
            // `main` is left out.
            ("other_component", json!({ "allOf": [to("name")], "not": { "const": "main" } })),
            ("alias", alias),
            ("part_tensor", tensor(registry, limits, chunk(limits, false)?)?),
            ("page_tensor", tensor(registry, limits, chunk(limits, true)?)?),
            ("part_entry", entry("part_tensor")),
            ("page_entry", entry("page_tensor")),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    ))
}

/// An alias has `of`, a tensor has not.
fn entry(tensor: &str) -> Value {
    json!({
        "if": { "type": "object", "required": ["of"] },
        "then": to("alias"),
        "else": to(tensor),
    })
}

/// A logical path: plain components, none of them `.` or `..`.
fn path(limits: &Limits<'_>) -> Result<Value> {
    let component = format!(
        r"(?!\.{{1,2}}(?:/|$))[A-Za-z0-9._ -]{{1,{}}}",
        limits.get("path-component-bytes")?
    );
    Ok(json!({
        "type": "string",
        "minLength": 1,
        "maxLength": limits.get("path-bytes")?,
        "pattern": format!("^{component}(?:/{component})*$"),
    }))
}

/// A chunk, with the writer in front when it stands in a page. Numbers that refer have no limit of their own.
fn chunk(limits: &Limits<'_>, in_page: bool) -> Result<Value> {
    let dimensions = limits.get("dimensions")?;
    let max_integer = limits.get("max-integer")?;
    let rest = [
        to("count"),
        to("count"),
        list(&to("count"), 0, Some(dimensions)),
        list(&integer(1, max_integer), 0, Some(dimensions)),
        hex(8),
        to("count"),
    ];
    if !in_page {
        return Ok(tuple(5, rest));
    }
    let [shard, offset, at, extent, crc, index] = rest;
    Ok(tuple(6, [to("count"), shard, offset, at, extent, crc, index]))
}

fn tensor(registry: &Registry, limits: &Limits<'_>, chunk: Value) -> Result<Value> {
    let dimensions = limits.get("dimensions")?;
    let max_integer = limits.get("max-integer")?;
    let axis = or_null(&integer(0, limits.last("dimensions")?));
    let shape = list(&to("count"), 0, Some(dimensions));
    let mut out = object([
        ("axes?", list(&axis, 0, Some(dimensions))),
        ("block?", integer(1, max_integer)),
        ("chunks", list(&chunk, 0, Some(limits.get("chunks")?))),
        ("component?", to("other_component")),
        ("dtype", to("dtype")),
        ("name", to("name")),
        ("native?", native()),
        ("owner?", to("name")),
        ("role", to("role")),
        ("scope?", to("coordinate")),
        ("shape", shape.clone()),
        ("slot?", to("name")),
        ("valid?", shape),
    ]);
    if let Some(out) = out.as_object_mut() {
        out.insert("dependentRequired".to_owned(), json!({ "axes": ["slot"] }));
        out.insert("allOf".to_owned(), Value::Array(by_role(registry)));
    }
    Ok(out)
}

/// How frameworks called a tensor or alias.
fn native() -> Value {
    let step = json!({ "anyOf": [{ "type": "string" }, to("count")] });
    list(&tuple(2, [to("name"), list(&step, 1, Some(64))]), 1, None)
}

/// What each role requires and forbids.
fn by_role(registry: &Registry) -> Vec<Value> {
    let mut out = Vec::new();
    for role in &registry.roles {
        let mut required = Vec::new();
        let mut properties = Map::new();
        for (member, presence) in [("slot", role.slot), ("owner", role.owner)] {
            match presence {
                Presence::Required => required.push(member),
                Presence::Optional => {}
                Presence::Forbidden => {
                    properties.insert(member.to_owned(), json!(false));
                }
            }
        }
        if role.id != "quant" {
            properties.insert("block".to_owned(), json!(false));
        }
        if role.id == "blob" {
            properties.insert("dtype".to_owned(), json!({ "enum": ["U8", "U64"] }));
            properties.insert("shape".to_owned(), json!({ "minItems": 1, "maxItems": 1 }));
        }
        out.push(json!({
            "if": { "properties": { "role": { "const": role.id } } },
            "then": { "required": required, "properties": properties },
        }));
    }
    out
}
