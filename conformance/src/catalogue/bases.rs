//! The recipes that cases begin from, small and each with a reason.

use serde_json::{Map, Value, json};

use crate::bend;
use crate::files::Files;
use crate::recipe::{Attachment, Data, Recipe, Whole, Writer, hex};

/// No data at all: a tensor without elements and one record. For what is wrong in metadata.
#[must_use]
pub fn bare() -> Recipe {
    let mut recipe = empty();
    add(&mut recipe, json!({"dtype": "F32", "name": "none", "role": "param", "shape": [0, 3]}), 1);
    place(&mut recipe, 0, "none", &[0, 0], &[0, 3]);
    recipe.writers[0].records.push(progress());
    recipe
}

/// One writer, one shard of each class: a parameter, its moment, an alias, an attachment, records.
#[must_use]
pub fn small() -> Recipe {
    let mut recipe = empty();
    add(&mut recipe, json!({"dtype": "F32", "name": "w", "role": "param", "shape": [4, 6]}), 2);
    add(&mut recipe, json!({"dtype": "I64", "name": "count", "role": "buffer", "shape": []}), 3);
    add(
        &mut recipe,
        json!({"axes": [0, 1], "dtype": "F32", "name": "w", "owner": "adam", "role": "optimizer",
            "shape": [4, 6], "slot": "adam.m"}),
        4,
    );
    for number in 0..recipe.tensors.len() {
        whole(&mut recipe, 0, number);
    }
    recipe.writers[0]
        .aliases
        .push(json!({"name": "head", "of": ["main", "param", "w", "", "", []], "role": "param"}));
    recipe.writers[0].records.extend([progress(), adam()]);
    recipe.writers[0]
        .attachments
        .push(Attachment { path: "config.json".into(), hex: hex(b"{}\n") });
    recipe
}

/// Two writers that share tensors, split by rows and by columns; state that differs by rank; all
/// that two parts must agree on.
#[must_use]
pub fn two() -> Recipe {
    let mut recipe = empty();
    recipe.topology = vec![("dp".into(), 2), ("tp".into(), 2)];
    recipe.writers.push(Writer::default());
    add(&mut recipe, json!({"dtype": "F32", "name": "w", "role": "param", "shape": [4, 6]}), 5);
    add(&mut recipe, json!({"dtype": "BF16", "name": "v", "role": "param", "shape": [5, 3]}), 6);
    add(
        &mut recipe,
        json!({"axes": [0, 1], "dtype": "F32", "name": "w", "owner": "adam", "role": "optimizer",
            "shape": [4, 6], "slot": "adam.m"}),
        7,
    );
    for rank in 0..2 {
        let entry = json!({"dtype": "U8", "name": "seen", "role": "extension", "shape": [5],
            "scope": [["dp", rank]], "slot": "vendor/seen"});
        add(&mut recipe, entry, 8 + rank);
        whole(&mut recipe, rank as usize, 3 + rank as usize);
        recipe.writers[rank as usize].records.push(json!({"coordinate": [["dp", rank]],
            "kind": "value", "name": "rank", "value": {"map": [["at", rank]]}}));
    }
    for (writer, from) in [(0, 0), (1, 3)] {
        recipe.writers[writer].boxes.push((0, vec![0, from], vec![4, 3]));
    }
    for (writer, from, rows) in [(0, 0, 3), (1, 3, 2)] {
        recipe.writers[writer].boxes.push((1, vec![from, 0], vec![rows, 3]));
    }
    for (writer, from) in [(0, 0), (1, 2)] {
        recipe.writers[writer].boxes.push((2, vec![from, 0], vec![2, 6]));
    }
    for writer in &mut recipe.writers {
        let of = json!(["main", "param", "w", "", "", []]);
        writer.aliases.push(json!({"name": "head", "of": of, "role": "param"}));
        writer.records.extend([progress(), adam()]);
    }
    recipe.writers[0].attachments.push(Attachment { path: "tok/a.txt".into(), hex: hex(b"a") });
    recipe.writers[1].attachments.push(Attachment { path: "tok/b".into(), hex: String::new() });
    recipe
}

/// A chunk of more than one block, so that there is a table of block CRCs.
#[must_use]
pub fn blocks() -> Recipe {
    let mut recipe = empty();
    add(
        &mut recipe,
        json!({"dtype": "BF16", "name": "big", "role": "param", "shape": [66, 64]}),
        10,
    );
    add(&mut recipe, json!({"dtype": "U8", "name": "b", "role": "param", "shape": [3]}), 11);
    whole(&mut recipe, 0, 0);
    whole(&mut recipe, 0, 1);
    recipe
}

/// The recipe of a base by its name.
#[must_use]
pub fn named(name: &str) -> Option<Recipe> {
    Some(match name {
        "bare" => bare(),
        "small" => small(),
        "two" => two(),
        "blocks" => blocks(),
        _ => return super::layouts::named(name),
    })
}

/// Name of the older attempt of base `run`.
pub const OLDER: &str = "step-000000001000-0000000112345678";
/// Name of its newer one.
pub const NEWER: &str = "step-000000002000-000000019abcdef0";

/// The newer checkpoint of base `run`, of the same job.
#[must_use]
pub fn newer() -> Recipe {
    let mut recipe = small();
    recipe.step = 2000;
    recipe.attempt = "000000019abcdef0".into();
    recipe.writers[0].records[0]["value"]["optimizer_step"] = json!(2000);
    recipe
}

/// The name of an attempt.
#[must_use]
pub fn attempt(step: u64, id: &str) -> String {
    format!("step-{step:012}-{id}")
}

/// The files of a run that holds the checkpoint alone.
#[must_use]
pub fn run_of(recipe: &Recipe) -> Files {
    let name = attempt(recipe.step, &recipe.attempt);
    let files = bend::straight(recipe).into_iter();
    files.map(|(path, bytes)| (format!("{name}/{path}"), bytes)).collect()
}

/// The newer checkpoint of base `run-two`, by two writers.
#[must_use]
pub fn newer_two() -> Recipe {
    let mut recipe = two();
    recipe.step = 2000;
    recipe.attempt = "000000019abcdef0".into();
    for record in recipe.writers.iter_mut().flat_map(|writer| &mut writer.records) {
        if record["kind"] == "progress" {
            record["value"]["optimizer_step"] = json!(2000);
        }
    }
    recipe
}

/// The files of a base by its name: those of a recipe, or `run` or `run-two`, which hold two checkpoints.
#[must_use]
pub fn files(name: &str) -> Option<Files> {
    let newer = match name {
        "run" => newer(),
        "run-two" => newer_two(),
        _ => return Some(bend::straight(&named(name)?)),
    };
    let mut files = run_of(&bare());
    files.extend(run_of(&newer));
    Some(files)
}

/// One writer and nothing that it writes.
#[must_use]
pub fn empty() -> Recipe {
    Recipe {
        run: "golden".into(),
        step: 1000,
        attempt: "0000000112345678".into(),
        block_bytes: 4096,
        parent: None,
        topology: vec![("dp".into(), 1)],
        tensors: Vec::new(),
        writers: vec![Writer::default()],
    }
}

/// Adds a tensor; its number.
pub fn add(recipe: &mut Recipe, entry: Value, seed: u64) -> usize {
    let members: Map<String, Value> = entry.as_object().cloned().unwrap_or_default();
    recipe.tensors.push(Whole { entry: members, data: Data::Seed(seed) });
    recipe.tensors.len() - 1
}

/// Lets a writer write the whole of a tensor, by number.
pub fn whole(recipe: &mut Recipe, writer: usize, tensor: usize) {
    let shape = &recipe.tensors[tensor].entry["shape"];
    let extent: Vec<u64> = shape
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    recipe.writers[writer].boxes.push((tensor, vec![0; extent.len()], extent));
}

/// Lets a writer write a box of the tensor of that name.
fn place(recipe: &mut Recipe, writer: usize, name: &str, at: &[u64], extent: &[u64]) {
    let found = recipe.tensors.iter().position(|tensor| tensor.entry["name"] == name);
    let tensor = found.expect("a tensor that was added");
    recipe.writers[writer].boxes.push((tensor, at.to_vec(), extent.to_vec()));
}

/// The record that every checkpoint of a job has.
#[must_use]
pub fn progress() -> Value {
    json!({"kind": "progress", "name": "main", "value": {"optimizer_step": 1000}})
}

/// The record of an optimizer for the parameter `w`.
#[must_use]
pub fn adam() -> Value {
    json!({"kind": "optimizer", "name": "adam", "value": {"algorithm": "adam",
        "groups": [{"hyper": [["lr", {"f64": "3f50624dd2f1a9fc"}]], "name": "all", "params": [["main", "w"]]}],
        "steps": [{"params": "all", "step": 1000, "stored_as": "F32[]"}]}})
}
