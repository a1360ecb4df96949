//! Words that fuzzers try: members, ids, limits and keys, from the schemas and the registry. Knows the form of libFuzzer's dictionaries.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::registry::Registry;

/// File name and text of every dictionary; `schemas` are the generated schemas.
///
/// # Errors
/// A schema that is no JSON.
pub(crate) fn files(
    registry: &Registry,
    schemas: &[(&str, String)],
) -> crate::Result<Vec<(&'static str, String)>> {
    let mut words = Words::default();
    for (name, text) in schemas {
        let schema: Value = serde_json::from_str(text).map_err(|e| format!("{name}: {e}"))?;
        words.schema(&schema);
    }
    let ids = Ids(registry);
    let numbers = numbers(registry);
    let metadata = [&words.members, &words.constants, &ids.entries(), &numbers];
    let state = [&words.members, &words.constants, &ids.state(), &numbers];
    Ok(vec![
        (
            "metadata.dict",
            text("members of parts, pages and manifests, ids of entries, limits", &metadata),
        ),
        ("state.dict", text("members of records, ids of what training holds, limits", &state)),
        (
            "shard_header.dict",
            text("members and keys of shards' headers, dtypes", &[&ids.headers(), &numbers]),
        ),
        (
            "directory.dict",
            text(
                "names of files, and what stands in them",
                &[&names(), &words.members, &ids.entries()],
            ),
        ),
    ])
}

/// What schemas name.
#[derive(Default)]
struct Words {
    /// As they stand before a value: quoted, with a colon.
    members: BTreeSet<String>,
    constants: BTreeSet<String>,
}

impl Words {
    fn schema(&mut self, schema: &Value) {
        match schema {
            Value::Array(items) => items.iter().for_each(|item| self.schema(item)),
            Value::Object(members) => {
                for (name, value) in members {
                    match (name.as_str(), value) {
                        ("properties", Value::Object(properties)) => {
                            self.members
                                .extend(properties.keys().map(|name| format!("\"{name}\":")));
                        }
                        ("const", Value::String(word)) => _ = self.constants.insert(quoted(word)),
                        ("enum", Value::Array(words)) => {
                            self.constants
                                .extend(words.iter().filter_map(Value::as_str).map(quoted));
                        }
                        _ => {}
                    }
                    self.schema(value);
                }
            }
            _ => {}
        }
    }
}

/// Ids of the registry.
struct Ids<'r>(&'r Registry);

impl Ids<'_> {
    fn entries(&self) -> BTreeSet<String> {
        let Self(registry) = self;
        let dtypes = registry.dtypes.iter().map(|one| &one.id);
        let roles = registry.roles.iter().map(|one| &one.id);
        let slots = registry.slots.iter().map(|one| &one.id);
        let features = registry.features.iter().map(|one| &one.id);
        dtypes.chain(roles).chain(slots).chain(features).map(|id| quoted(id)).collect()
    }

    fn state(&self) -> BTreeSet<String> {
        let Self(registry) = self;
        let kinds = registry.kinds.iter().map(|one| &one.id);
        let algorithms = registry.algorithms.iter().map(|one| &one.id);
        let caches = registry.caches.iter().map(|one| &one.id);
        let orders = registry.orders.iter().map(|one| &one.id);
        let schedules = registry.schedules.iter().map(|one| &one.id);
        let all = kinds.chain(algorithms).chain(caches).chain(orders).chain(schedules);
        // Inputs name a kind or algorithm without quotes, too.
        all.flat_map(|id| [quoted(id), id.clone()]).collect()
    }

    fn headers(&self) -> BTreeSet<String> {
        let fixed = [
            "\"__metadata__\":",
            "\"data_offsets\":",
            "\"dtype\":",
            "\"shape\":",
            "__pad__.",
            "__crc__",
            "__ws__:",
            "[0,0]",
            "[]",
            "{\"format\":\"pt\",\"waystation\":\"1.0\"}",
            "\"F4\"",
        ];
        let dtypes = self.0.dtypes.iter().map(|dtype| quoted(&dtype.id));
        fixed.into_iter().map(str::to_owned).chain(dtypes).collect()
    }
}

/// Every limit, and the numbers beside it.
fn numbers(registry: &Registry) -> BTreeSet<String> {
    let near = |value: u64| [value.saturating_sub(1), value, value.saturating_add(1)];
    let powers = [1_u64 << 31, 1 << 32, 1 << 62, 1 << 63, u64::MAX];
    let limits = registry.limits.iter().map(|limit| limit.value);
    limits.chain(powers).flat_map(near).map(|number| number.to_string()).collect()
}

fn names() -> BTreeSet<String> {
    let all = [
        "waystation.commit",
        "manifest.json",
        "tensors-00000.json",
        "records-00000.json",
        "part-00000-",
        "model-00000-",
        "state-00000-",
        "attachment-00000-",
        ".safetensors",
        "deleted",
        "rejected",
        "pin-a",
        "tmp-",
        "timeline-00000001",
        "step-000000001000-",
        "  manifest.json\n",
        "../",
        "/",
    ];
    all.into_iter().map(str::to_owned).collect()
}

fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

fn text(doc: &str, words: &[&BTreeSet<String>]) -> String {
    let mut out = format!(
        "# Generated by `cargo xtask gen` from spec/registry and the schemas; do not edit.\n# {doc}\n"
    );
    let all: BTreeSet<&String> = words.iter().copied().flatten().collect();
    for word in all {
        let _ = writeln!(out, "\"{}\"", escaped(word));
    }
    out
}

/// As libFuzzer reads it: printable ASCII as itself, quotes and backslashes with one before them, all else in hex.
fn escaped(word: &str) -> String {
    let mut out = String::new();
    for byte in word.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            0x20..=0x7e => out.push(char::from(byte)),
            _ => _ = write!(out, "\\x{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_as_the_fuzzer_reads_them() {
        assert_eq!(escaped("\"a\":\n\\é"), r#"\"a\":\x0A\\\xC3\xA9"#);
    }

    #[test]
    fn members_and_constants_of_a_schema_are_found() {
        let schema = serde_json::json!({"properties": {"step": {"const": "x"}}, "anyOf": [{"enum": ["y", 1]}]});
        let mut words = Words::default();
        words.schema(&schema);
        assert_eq!(words.members, ["\"step\":".to_owned()].into());
        assert_eq!(words.constants, ["\"x\"".to_owned(), "\"y\"".to_owned()].into());
    }
}
