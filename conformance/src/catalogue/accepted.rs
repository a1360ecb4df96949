//! Checkpoints that must be read: each base, and each freedom that the specification leaves to writers.

use serde_json::json;

use super::{Cases, bases, layouts};
use crate::bend::{Bend, set};
use crate::build;
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    let layouts = layouts::LAYOUTS.iter().map(|&(base, rules, what, _)| (base, rules, what));
    for (base, rules, what) in BASES.into_iter().chain(layouts) {
        cases
            .case(&format!("core/{base}"), rules, what)
            .effect(Effect::LostCheckpoint)
            .accepts(base);
        cases
            .case(&format!("extended/{base}"), VALID, what)
            .effect(Effect::LostCheckpoint)
            .accepts(base);
    }
    freedoms(cases);
}

/// What a validator must find kept in each of them.
const VALID: &[&str] = &[
    "verify.all",
    "shard.layout",
    "shard.header",
    "shard.pads",
    "shard.chunks",
    "integrity.all",
    "integrity.blocks",
    "integrity.part",
    "integrity.manifest",
    "derive.function",
];

const BASES: [(&str, &[&str], &str); 4] = [
    (
        "bare",
        &["json.canonical", "commit.file"],
        "A checkpoint without a byte of data: a tensor without elements, and a record.",
    ),
    (
        "small",
        &["read.packed", "alias.target", "attachment.digest"],
        "One writer with a parameter, its moment, a tied weight, an attachment and records.",
    ),
    (
        "two",
        &["cover.exact", "derive.tensors", "derive.records"],
        "Two writers that share tensors by rows and by columns, with state of each rank.",
    ),
    (
        "blocks",
        &["chunk.table-index", "integrity.table"],
        "A chunk of more than one block, with its table of CRCs.",
    ),
];

fn freedoms(cases: &mut Cases) {
    let bare = build::projection(&bases::bare());
    cases
        .case(
            "core/minor-version",
            &["version.minor"],
            "The checkpoint is of version 1.9, which has nothing that 1.0 lacks.",
        )
        .effect(Effect::LostCheckpoint)
        .accepts_as("bare", &Bend::new("a later minor version").version("1.9"), bare.clone());
    cases
        .case(
            "core/feature-optional-unknown",
            &["feature.optional"],
            "An optional feature that no reader knows, with data of it.",
        )
        .effect(Effect::LostCheckpoint)
        .accepts_as(
            "bare",
            &Bend::new("an optional feature")
                .part(0, set("/features/optional", json!(["example.org/later"])))
                .part(
                    0,
                    set(
                        "/extensions/example.org~1later",
                        json!({"on_rewrite": "drop", "value": [1]}),
                    ),
                )
                .manifest(set("/features/optional", json!(["example.org/later"])))
                .manifest(set(
                    "/parts/0/extensions/example.org~1later",
                    json!({"on_rewrite": "drop", "value": [1]}),
                )),
            bare.clone(),
        );
}
