//! A checkpoint of records, and the one change to one of them.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::super::bases;
use crate::bend::{self, Bend, remove, set};
use crate::build;
use crate::case::{Effect, Op};
use crate::files::Files;
use crate::recipe::{Data, Recipe, Whole};

/// `bare` with these records beside its progress.
pub(super) fn recipe(records: &[Value]) -> Recipe {
    let mut recipe = bases::bare();
    recipe.writers[0].records.extend(records.iter().cloned());
    recipe
}

/// The files of [`recipe`].
pub(super) fn files(records: &[Value]) -> Files {
    bend::straight(&recipe(records))
}

/// A record without coordinate.
pub(super) fn record(kind: &str, name: &str, value: Value) -> Value {
    json!({"kind": kind, "name": name, "value": value})
}

/// A record of one place.
pub(super) fn placed(kind: &str, name: &str, coordinate: Value, value: Value) -> Value {
    json!({"coordinate": coordinate, "kind": kind, "name": name, "value": value})
}

/// Adds a tensor of role `blob` with these bytes; `members` go over those of its entry.
pub(super) fn blob(recipe: &mut Recipe, name: &str, bytes: &[u8], members: &Value) {
    let mut entry = json!({"dtype": "U8", "name": name, "role": "blob", "shape": [bytes.len()]});
    for (member, value) in members.as_object().into_iter().flatten() {
        entry[member] = value.clone();
    }
    let entry = entry.as_object().cloned().unwrap_or_default();
    recipe.tensors.push(Whole { entry, data: Data::Hex(crate::recipe::hex(bytes)) });
    bases::whole(recipe, 0, recipe.tensors.len() - 1);
}

/// The identity of a [`blob`].
pub(super) fn blob_identity(name: &str) -> Value {
    json!(["main", "blob", name, "", "", []])
}

/// Numbers as a tensor of dtype `U64` has them.
pub(super) fn longs(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A change of the record that stands at `index` among those of the recipe, in part and page alike. `value` null takes away.
pub(super) fn bent(recipe: &Recipe, record: &Value, pointer: &str, value: &Value) -> Bend {
    let mut keys: Vec<String> = recipe.writers[0].records.iter().map(build::record_key).collect();
    keys.sort();
    let key = build::record_key(record);
    let index = keys.iter().position(|found| *found == key).expect("a record of the recipe");
    let pointer = format!("/records/{index}{pointer}");
    let edit = || match value {
        Value::Null => remove(&pointer),
        value => set(&pointer, value.clone()),
    };
    Bend::new(&name_of(value)).part(0, edit()).page("records", 0, edit())
}

fn name_of(value: &Value) -> String {
    if value.is_null() { "taken away".to_owned() } else { "another value".to_owned() }
}

/// A form that a record must not have: slug, rules, what is wrong, where, what stands there (null:
/// nothing), code.
pub(super) type Wrong<'a> = (&'a str, &'a [&'a str], &'a str, &'a str, Value, Code);

/// Cases of `resume`, since a reader of weights may carry records unread: the record, changed in one place, must be refused when the checkpoint is read.
pub(super) fn wrong_forms(cases: &mut Cases, record: &Value, table: &[Wrong<'_>]) {
    let recipe = recipe(std::slice::from_ref(record));
    for (slug, rules, fault, pointer, value, code) in table {
        cases
            .case(&format!("resume/read-{slug}"), rules, fault)
            .op(Op::Read)
            .over("bare")
            .effect(Effect::WrongResume)
            .rejects_recipe(&recipe, &bent(&recipe, record, pointer, value), &[*code]);
    }
}

/// Cases of `resume`: forms of records that come near to a wrong one, or that are seldom, and are right.
pub(super) fn right_forms(cases: &mut Cases, table: &[(&str, &[&str], &str, Value)]) {
    for (slug, rules, what, record) in table {
        cases
            .case(&format!("resume/read-{slug}"), rules, what)
            .op(Op::Read)
            .over("bare")
            .effect(Effect::LostCheckpoint)
            .accepts_recipe(&recipe(std::slice::from_ref(record)));
    }
}
