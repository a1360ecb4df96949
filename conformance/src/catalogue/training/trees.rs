//! Chapter 18: the members of nodes and roots, packs, and cursors that are carried and not computed.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::{here, said};
use super::held::{Wrong, files, recipe, right_forms, wrong_forms};
use super::items::{bare, identity, leaf, line, offering, restored, root, stop, train, wrap};
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    packs(cases);
    trees(cases);
    most_children(cases);
    carried(cases);
}

/// The least node that there is.
fn opaque() -> Value {
    json!({"fingerprint": {"map": []}, "kind": "opaque", "media_type": "x", "state": null})
}

/// A shuffle buffer that is stored.
fn buffer() -> Value {
    json!({"buffer": [4, 1, 0], "child": line(20, 5), "kind": "window-shuffle",
        "order": {"algorithm": "python.shuffle"}})
}

/// Sequences of 2048 tokens of a line of documents.
fn pack() -> Value {
    json!({"algorithm": "concat-then-split", "child": line(20, 7), "kind": "pack",
        "leftover": [6, 2048, 952], "length": 2048, "tail": "drop"})
}

/// The node as a root without canary.
fn uncomputed(node: &Value, consumed: u64) -> Value {
    let mut value = node.clone();
    value["consumed"] = consumed.into();
    value
}

fn packs(cases: &mut Cases) {
    use Code::BadMember;
    let form: &[&str] = &["cursor.form"];
    let wrong = |slug, fault, pointer, value| (slug, form, fault, pointer, value, BadMember);
    let table: Vec<Wrong<'_>> = vec![
        (
            "pack-leftover-empty",
            &["cursor.leftover"],
            "What is left of a record has no tokens.",
            "/value/leftover/2",
            json!(0),
            Code::BadPosition,
        ),
        wrong(
            "pack-leftover-two",
            "What is left of a record is two numbers.",
            "/value/leftover",
            json!([6, 2048]),
        ),
        wrong(
            "pack-leftover-list",
            "concat-then-split has two pieces left.",
            "/value/leftover",
            json!([[6, 0, 1], [7, 0, 1]]),
        ),
        wrong("pack-length-zero", "Sequences have no tokens.", "/value/length", json!(0)),
        wrong("pack-tail-other", "The last sequence is padded.", "/value/tail", json!("pad")),
        wrong(
            "pack-tokenizer-name",
            "The tokenizer is given by a name.",
            "/value/tokenizer",
            json!("gpt2"),
        ),
        wrong("pack-without-child", "A pack stands over nothing.", "/value/child", Value::Null),
    ];
    wrong_forms(cases, &train(uncomputed(&pack(), 3)), &table);
    let with = |pointer: &str, value: Value| {
        let mut pack = uncomputed(&pack(), 3);
        *pack.pointer_mut(pointer).expect("a member") = value;
        train(pack)
    };
    let mut noted = with("/algorithm", json!("best-fit"));
    noted["value"]["leftover"] = json!([[6, 2048, 952], [[1, 7], 0, 3]]);
    noted["value"]["tokenizer"] = "ab".repeat(32).into();
    noted["value"]["next"] =
        json!({"count": 2, "first": [[6, 2048, 952], [1, 7, 0, 3]], "sha256": "00".repeat(32)});
    right_forms(
        cases,
        &[
            (
                "pack",
                &["cursor.leftover", "cursor.form"],
                "Sequences of a line of documents, of the last of which something is left.",
                train(uncomputed(&pack(), 3)),
            ),
            (
                "pack-leftover-long",
                &["cursor.leftover"],
                "More is left of a record than a sequence has.",
                with("/leftover", json!([6, 0, 5000])),
            ),
            (
                "pack-leftover-null",
                &["cursor.leftover"],
                "Nothing is left.",
                with("/leftover", Value::Null),
            ),
            (
                "pack-other",
                &["cursor.leftover", "cursor.form", "cursor.canary"],
                "Another way of packing, with pieces left of items of two numbers, and a canary that nobody compares.",
                noted,
            ),
            (
                "window-buffer",
                &["cursor.form"],
                "A shuffle buffer that is stored.",
                train(uncomputed(&buffer(), 2)),
            ),
        ],
    );
}

/// Members of nodes and roots.
fn trees(cases: &mut Cases) {
    use Code::{BadMember, BadName};
    let form: &[&str] = &["cursor.form"];
    let wrong = |slug, fault, pointer, value| (slug, form, fault, pointer, value, BadMember);
    let mut value = root(&leaf(9, identity(9), 0, stop(), 2), 2, &bare(&[2, 3, 4, 5, 6]));
    value["augment"] = json!("per-record");
    value["source"]["name"] = json!("corpus");
    let table: Vec<Wrong<'_>> = vec![
        wrong(
            "cursor-kind-other",
            "A node is of a kind that there is not.",
            "/value/kind",
            json!("stream"),
        ),
        wrong("cursor-without-kind", "A node has no kind.", "/value/kind", Value::Null),
        wrong(
            "cursor-without-consumed",
            "A cursor does not say how much was consumed.",
            "/value/consumed",
            Value::Null,
        ),
        wrong(
            "cursor-augment-other",
            "Records are changed in a way that there is not.",
            "/value/augment",
            json!("always"),
        ),
        wrong("cursor-unknown-member", "A node has a member more.", "/value/shuffle", json!(true)),
        wrong("cursor-records-zero", "A source has no records.", "/value/source/records", json!(0)),
        wrong(
            "cursor-source-digest-short",
            "The digest of a source is cut.",
            "/value/source/sha256",
            json!("5a5a"),
        ),
        wrong(
            "cursor-source-without-digest",
            "A source has no digest.",
            "/value/source/sha256",
            Value::Null,
        ),
        (
            "cursor-source-name-empty",
            &["identity.name"],
            "The name of a source has no letter.",
            "/value/source/name",
            json!(""),
            BadName,
        ),
        wrong(
            "cursor-epoch-end-other",
            "Epochs end by a rule that there is not.",
            "/value/epoch_end",
            json!({"rule": "repeat"}),
        ),
        wrong(
            "cursor-unit-missing",
            "An epoch is padded to nothing.",
            "/value/epoch_end",
            json!({"rule": "pad"}),
        ),
        wrong(
            "cursor-unit-zero",
            "An epoch is padded to a multiple of 0.",
            "/value/epoch_end",
            json!({"rule": "pad", "unit": 0}),
        ),
        wrong(
            "cursor-unit-surplus",
            "An epoch that wraps has a unit.",
            "/value/epoch_end",
            json!({"rule": "wrap", "unit": 4}),
        ),
        wrong("cursor-position-negative", "A position is negative.", "/value/position", json!(-1)),
        wrong(
            "cursor-canary-item-in-list",
            "An item of one number stands in a list.",
            "/value/next/first/0",
            json!([2]),
        ),
        wrong(
            "cursor-canary-item-empty",
            "An item has no numbers.",
            "/value/next/first/0",
            json!([]),
        ),
        wrong(
            "cursor-canary-without-digest",
            "A canary has no digest.",
            "/value/next/sha256",
            Value::Null,
        ),
    ];
    wrong_forms(cases, &train(value.clone()), &table);
    restored(
        cases,
        ("cursor-every-member", &["cursor.form"]),
        "A leaf with every member; what changes records depends on nothing but seed, epoch and record.",
        &value,
    );
    let table: Vec<Wrong<'_>> = vec![
        wrong(
            "opaque-consumed",
            "An opaque root says how much was consumed.",
            "/value/consumed",
            json!(2),
        ),
        wrong(
            "opaque-fingerprint-list",
            "A fingerprint is a list.",
            "/value/fingerprint",
            json!({"list": []}),
        ),
        wrong(
            "opaque-fingerprint-key",
            "A fingerprint has a key that is a number.",
            "/value/fingerprint",
            json!({"map": [[1, 2]]}),
        ),
        wrong(
            "opaque-without-fingerprint",
            "An opaque node has no fingerprint.",
            "/value/fingerprint",
            Value::Null,
        ),
        (
            "opaque-media-type-empty",
            &["identity.name"],
            "The media type has no letter.",
            "/value/media_type",
            json!(""),
            BadName,
        ),
        (
            "opaque-state-no-tree",
            &["value.form"],
            "The state is a bare list.",
            "/value/state",
            json!([1]),
            BadMember,
        ),
    ];
    wrong_forms(cases, &train(opaque()), &table);
}

/// What a loader says of cursors that chapter 18 does not compute.
fn carried(cases: &mut Cases) {
    let noted = json!({"algorithm": "numpy.legacy.permutation", "generator": "RandomState", "n": 10, "seed": 42});
    let rows = [
        ("order", "an order that is only noted", leaf(10, noted, 0, wrap(), 2)),
        (
            "order-unknown",
            "an order that nobody knows",
            leaf(10, json!({"algorithm": "vendor/order", "n": 10}), 0, wrap(), 2),
        ),
        ("buffer", "a stored shuffle buffer", buffer()),
        ("pack", "a pack", pack()),
        (
            "selection",
            "a mixture by a selection that nobody knows",
            json!({"children": [line(9, 1)], "kind": "mixture", "selection": {"algorithm": "vendor/random"}}),
        ),
    ];
    for (slug, what, node) in rows {
        let value = uncomputed(&node, 2);
        let files = files(&[train(value.clone())]);
        let none = json!({"grade": "none", "name": "train", "next": null, "position": null});
        cases
            .case(
                &format!("resume/carried-{slug}"),
                &["restore.grade", "cursor.canary"],
                &format!("A cursor with {what} is not restored, and the caller puts up with it."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(offering(here().demand("none"), &value).request())
            .answers_files(files.clone(), said(&[], &[none], &[]));
        cases
            .case(
                &format!("resume/carried-{slug}-demanded"),
                &["restore.demand"],
                &format!("A cursor with {what} is not restored, and `exact` is demanded."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(offering(here(), &value).request())
            .rejects_files(files, &[Code::NotExact]);
    }
}

fn most_children(cases: &mut Cases) {
    let mixture = |count: usize| {
        train(json!({"children": vec![opaque(); count], "consumed": 0, "kind": "mixture",
            "selection": {"algorithm": "vendor/random", "seed": {"any": "thing"}}}))
    };
    cases
        .case(
            "extended/mixture-1024-children",
            &["cursor.form"],
            "A mixture of 1024 children by a selection that nobody knows.",
        )
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .accepts_recipe(&recipe(&[mixture(1024)]));
}
