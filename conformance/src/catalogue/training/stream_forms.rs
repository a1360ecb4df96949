//! Chapter 17: the form of a record of a stream, and streams that nobody knows.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::{here, said};
use super::held::{Wrong, bent, files, placed, recipe, record, right_forms, wrong_forms};
use super::streams::value;
use super::vectors;
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    wrong_forms(cases, &full(), &wrong());
    wrong_forms(cases, &unknown(json!("aa"), 1), &wrong_of_unknown());
    wrong_forms(
        cases,
        &record("rng", "dropout", value(&vectors::stream("jax-rbg/42"), "require")),
        &[(
            "rng-canary-of-rbg",
            &["rng.canary-there"],
            "A jax-rbg key, whose outputs are the backend's business, has a canary.",
            "/value/next_raw",
            json!(["00000000", "00000000", "00000000", "00000000"]),
            Code::BadMember,
        )],
    );
    right(cases);
    carried(cases);
    alike(cases);
}

/// A record with every member.
fn full() -> Value {
    let mut all = value(&vectors::stream("numpy/PCG64/7-mid-half"), "fork");
    all["fork"] =
        json!({"coordinate": [["ep", 3], ["dp", 7]], "manifest": "ab".repeat(32), "step": 900});
    all["origin"] = json!({"form": "numpy.PCG64", "framework": "numpy",
        "initial_seed": {"int": "340282366920938463463374607431768211455"}, "version": "2.4.6"});
    all["purpose"] = json!("augmentation");
    all["seed_rule"] = json!({"root": 7, "rule": "seed_sequence"});
    record("rng", "dropout", all)
}

/// A stream of an algorithm that is not in the table.
fn unknown(output: Value, outputs: usize) -> Value {
    record(
        "rng",
        "dropout",
        json!({"algorithm": "vendor/later", "caches": [{"bits": "00", "kind": "vendor/cache"}],
            "next_raw": vec![output; outputs], "on_reshape": "require", "state": ""}),
    )
}

fn wrong() -> Vec<Wrong<'static>> {
    use Code::{BadMember, BadName, Limit};
    const FORM: &[&str] = &["rng.form"];
    let form = |slug, fault, pointer, value| (slug, FORM, fault, pointer, value, BadMember);
    let name = |slug, fault, pointer| {
        (slug, &["identity.name", "rng.form"][..], fault, pointer, json!(""), BadName)
    };
    let half = || json!({"bits": "e0bc5427", "kind": "numpy/u32-half"});
    let normal = || json!({"bits": "3fe01d94424d92ff", "kind": "torch/normal-f64"});
    vec![
        form("rng-without-state", "A stream has no state.", "/value/state", Value::Null),
        form("rng-without-canary", "A stream has no `next_raw`.", "/value/next_raw", Value::Null),
        form("rng-without-caches", "A stream has no `caches`.", "/value/caches", Value::Null),
        form(
            "rng-without-on-reshape",
            "A stream does not say what becomes of it on another topology.",
            "/value/on_reshape",
            Value::Null,
        ),
        form("rng-unknown-member", "A stream has a member more.", "/value/seed", json!(7)),
        form(
            "rng-on-reshape-other",
            "A stream is to be copied on another topology, which is none of the three words.",
            "/value/on_reshape",
            json!("copy"),
        ),
        form("rng-state-half-byte", "The state has half a byte.", "/value/state", json!("abc")),
        form(
            "rng-state-upper-case",
            "The state has upper-case digits.",
            "/value/state",
            json!("AB"),
        ),
        form("rng-state-number", "The state is a number.", "/value/state", json!(17)),
        form(
            "rng-state-bytes",
            "The state is a value tree of bytes.",
            "/value/state",
            json!({"bytes": "ab"}),
        ),
        form(
            "rng-state-tensor-name",
            "The state is a tensor by its name alone.",
            "/value/state",
            json!({"tensor": "rng/dropout"}),
        ),
        (
            "rng-state-beyond-inline",
            &["rng.form", "limit.value"],
            "The state has 8193 bytes in the record.",
            "/value/state",
            "00".repeat(8193).into(),
            Limit,
        ),
        form("rng-cache-twice", "A cache stands twice.", "/value/caches", json!([half(), half()])),
        form(
            "rng-caches-unsorted",
            "Caches do not ascend by their kind.",
            "/value/caches",
            json!([normal(), half()]),
        ),
        form(
            "rng-cache-width",
            "A cached half of an output has 64 bits.",
            "/value/caches/0/bits",
            json!("00000000e0bc5427"),
        ),
        form(
            "rng-cache-empty",
            "A cache of 32 bits has none, though one that is not filled is left out.",
            "/value/caches/0/bits",
            json!(""),
        ),
        form(
            "rng-output-digits",
            "An output of 64 bits has eight digits.",
            "/value/next_raw/3",
            json!("84fbe10f"),
        ),
        form("rng-output-number", "An output is a number.", "/value/next_raw/3", json!(17)),
        (
            "rng-canary-short",
            &["rng.canary-there", "rng.form"],
            "A canary has three outputs.",
            "/value/next_raw",
            json!(["9f356226107f1209", "85745ba660265d29", "334f10a49b246897"]),
            BadMember,
        ),
        (
            "rng-canary-none",
            &["rng.canary-there", "rng.form"],
            "A canary has no outputs, though its algorithm has.",
            "/value/next_raw",
            json!([]),
            BadMember,
        ),
        (
            "rng-canary-beyond",
            &["rng.form", "limit.value"],
            "A canary has 65 outputs.",
            "/value/next_raw",
            json!(vec!["9f356226107f1209"; 65]),
            Limit,
        ),
        form(
            "rng-fork-without-manifest",
            "A fork does not say of which checkpoint.",
            "/value/fork/manifest",
            Value::Null,
        ),
        form(
            "rng-fork-axis-twice",
            "The coordinate of a fork has an axis twice.",
            "/value/fork/coordinate/0/0",
            json!("dp"),
        ),
        form(
            "rng-fork-digest-short",
            "The manifest of a fork is given by half its digest.",
            "/value/fork/manifest",
            "ab".repeat(16).into(),
        ),
        form(
            "rng-origin-seed-text",
            "The seed that is noted is a string.",
            "/value/origin/initial_seed",
            json!("7"),
        ),
        form(
            "rng-origin-seed-small-int",
            "The seed that is noted is small and stands as `int`.",
            "/value/origin/initial_seed",
            json!({"int": "7"}),
        ),
        form(
            "rng-origin-without-framework",
            "The origin names no framework.",
            "/value/origin/framework",
            Value::Null,
        ),
        form(
            "rng-seed-rule-number",
            "The rule by which a stream was seeded is a number.",
            "/value/seed_rule",
            json!(7),
        ),
        form(
            "rng-seed-rule-float",
            "The seed that a stream was seeded with is a float.",
            "/value/seed_rule/root",
            json!({"f64": "0000000000000000"}),
        ),
        name("rng-purpose-empty", "The purpose of a stream has no letter.", "/value/purpose"),
        name("rng-algorithm-empty", "The algorithm of a stream has no letter.", "/value/algorithm"),
        name("rng-cache-kind-empty", "The kind of a cache has no letter.", "/value/caches/0/kind"),
    ]
}

fn wrong_of_unknown() -> Vec<Wrong<'static>> {
    const FORM: &[&str] = &["rng.form"];
    let form = |slug, fault, pointer, value| (slug, FORM, fault, pointer, value, Code::BadMember);
    vec![
        form(
            "rng-unknown-output-empty",
            "An output of an unknown algorithm has no digit.",
            "/value/next_raw/0",
            json!(""),
        ),
        form(
            "rng-unknown-output-long",
            "An output of an unknown algorithm has 129 digits.",
            "/value/next_raw/0",
            "a".repeat(129).into(),
        ),
        form(
            "rng-unknown-cache-odd",
            "A cache of an unknown kind has half a byte.",
            "/value/caches/0/bits",
            json!("abc"),
        ),
        form(
            "rng-unknown-cache-long",
            "A cache of an unknown kind has 130 digits.",
            "/value/caches/0/bits",
            "a".repeat(130).into(),
        ),
    ]
}

fn right(cases: &mut Cases) {
    let mut most = unknown(json!("a".repeat(128)), 64);
    most["value"]["state"] = "5a".repeat(8192).into();
    most["value"]["caches"] = json!([{"bits": "", "kind": "vendor/a"},
        {"bits": "b".repeat(128), "kind": "vendor/b"}]);
    cases
        .case(
            "extended/rng-largest",
            &["rng.form", "limit.value"],
            "A stream of an unknown algorithm with the longest state, canary, outputs and cache.",
        )
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .accepts_recipe(&recipe(&[most]));
    right_forms(
        cases,
        &[
            (
                "rng-every-member",
                &["rng.form"],
                "A stream with every member, forked at a place of axes that this checkpoint does not have.",
                full(),
            ),
            (
                "rng-unknown-algorithm",
                &["rng.unknown", "rng.form", "rng.canary-there"],
                "A stream of an unknown algorithm without canary, state and much else.",
                unknown(json!(""), 0),
            ),
        ],
    );
}

/// What a loader says of streams that it cannot restore.
fn carried(cases: &mut Cases) {
    let stream = vectors::stream("numpy/PCG64/7-mid-half");
    let mut odd_cache = value(&stream, "require");
    odd_cache["caches"] = json!([{"bits": "00ff", "kind": "vendor/cache"}]);
    let streams = [
        (
            "unknown-algorithm",
            "A stream of an unknown algorithm",
            unknown(json!("0"), 1),
            "vendor/later",
        ),
        (
            "unknown-cache",
            "A stream of a known algorithm with a cache of an unknown kind",
            record("rng", "dropout", odd_cache),
            stream.algorithm.as_str(),
        ),
    ];
    for (slug, what, record, algorithm) in streams {
        let files = files(&[record]);
        let none = json!({"algorithm": algorithm, "grade": "none", "name": "dropout",
            "next_raw": [], "state": null});
        cases
            .case(
                &format!("resume/rng-{slug}"),
                &["rng.unknown", "restore.grade"],
                &format!("{what} is not restored, and the caller puts up with it."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(here().demand("none").request())
            .answers_files(files.clone(), said(&[none], &[], &[]));
        cases
            .case(
                &format!("resume/rng-{slug}-demanded"),
                &["restore.demand"],
                &format!("{what} is not restored, and `exact` is demanded."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(here().request())
            .rejects_files(files, &[Code::NotExact]);
    }
}

/// Agreement of the records of one stream.
fn alike(cases: &mut Cases) {
    let at = |index: u64, id: &str, on_reshape: &str| {
        let value = value(&vectors::stream(id), on_reshape);
        placed("rng", "dropout", json!([["dp", index]]), value)
    };
    let records = [at(0, "numpy/PCG64/42", "fork"), at(1, "numpy/PCG64/7-mid-half", "fork")];
    let mut recipe = recipe(&records);
    recipe.topology = vec![("dp".into(), 2)];
    cases
        .case(
            "extended/rng-alike",
            &["rng.alike", "record.grid"],
            "A stream of two places that differ in state and caches alone.",
        )
        .over("bare")
        .effect(Effect::LostCheckpoint)
        .accepts_recipe(&recipe);
    let dxsm = value(&vectors::stream("numpy/PCG64DXSM/42"), "fork");
    let changes = [
        ("algorithm", "are of different algorithms", "/value", dxsm),
        (
            "on-reshape",
            "want different things on another topology",
            "/value/on_reshape",
            json!("require"),
        ),
    ];
    for (slug, what, pointer, value) in changes {
        cases
            .case(
                &format!("extended/rng-alike-{slug}"),
                &["rng.alike"],
                &format!("The records of a stream {what}."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .rejects_recipe(
                &recipe,
                &bent(&recipe, &records[1], pointer, &value),
                &[Code::StateDisagree],
            );
    }
}
