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
    "derive.tensors",
    "derive.aliases",
    "derive.records",
    "derive.keep",
    "derive.sizes",
    "page.cut",
    "manifest.contents",
    "part.name",
    "part.entries",
    "part.records",
    "part.writer",
    "part.inventory",
    "part.omitted",
    "part.session",
    "part.one-per-writer",
    "part.all-writers",
    "attachment.unique",
    "record.grid",
    "tensor.unused-bits",
    "identity.one-name",
    "dir.others",
];

const BASES: [(&str, &[&str], &str); 4] = [
    (
        "bare",
        &[
            "json.canonical",
            "json.encoding",
            "json.one-value",
            "json.members",
            "json.ascii-members",
            "json.integers",
            "json.strings",
            "json.literals",
            "json.unknown-member",
            "json.types",
            "commit.file",
            "commit.absent",
            "integrity.manifest",
            "common.format",
            "version.form",
            "version.major",
            "feature.required",
            "feature.form",
            "manifest.parts",
            "manifest.firsts",
            "page.number",
            "page.order",
            "page.digest",
            "open.page-version",
            "dir.present",
            "dir.length",
            "dir.case",
            "dir.regular",
            "dir.computed-names",
            "security.beneath",
            "security.no-paths",
            "run.deleted",
            "open.memory",
            "identity.left-out",
            "record.value",
            "record.order",
        ],
        "A checkpoint without a byte of data: a tensor without elements, and a record.",
    ),
    (
        "small",
        &[
            "read.packed",
            "alias.target",
            "alias.role",
            "alias.form",
            "alias.elements",
            "attachment.digest",
            "attachment.path",
            "identity.role",
            "identity.name",
            "identity.slot",
            "identity.owner",
            "identity.order",
            "chunk.nonempty",
            "intro.never-fill",
            "integrity.chunk",
            "open.find",
            "tensor.axes",
            "tensor.rank",
        ],
        "One writer with a parameter, its moment, a tied weight, an attachment and records.",
    ),
    (
        "two",
        &[
            "cover.exact",
            "cover.gap",
            "chunk.rank",
            "chunk.bounds",
            "chunk.shard",
            "chunk.order",
            "chunk.apart",
            "chunk.split",
            "shard.class",
            "derive.tensors",
            "derive.records",
            "record.coordinate",
            "identity.scope",
            "common.topology",
            "attachment.unique",
            "value.form",
        ],
        "Two writers that share tensors by rows and by columns, with state of each rank.",
    ),
    (
        "blocks",
        &["chunk.table-index", "integrity.table", "part.table", "common.block-bytes"],
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
