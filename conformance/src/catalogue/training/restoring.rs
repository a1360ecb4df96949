//! Chapter 19: what is demanded, left out and not captured, and what the answer is of a place.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::{Ask, here, no_topology, place, said};
use super::held::{files, placed, recipe, record};
use super::items::{SHA, bare, exact, leaf, line, offering, root, stop, train, wrap};
use super::streams::{self, value};
use super::vectors;
use crate::bend::straight;
use crate::case::Effect;
use crate::files::Files;

pub(super) fn add(cases: &mut Cases) {
    uncaptured(cases);
    left_out(cases);
    places(cases);
    together(cases);
    costly(cases);
}

pub(super) fn answered(
    cases: &mut Cases,
    slug: &str,
    rules: &[&str],
    what: &str,
    ask: Ask,
    given: &Files,
    answer: Value,
) {
    cases
        .case(&format!("resume/{slug}"), rules, what)
        .over("bare")
        .effect(Effect::WrongResume)
        .request(ask.request())
        .answers_files(given.clone(), answer);
}

pub(super) fn refused(
    cases: &mut Cases,
    slug: &str,
    rules: &[&str],
    fault: &str,
    ask: Ask,
    given: &Files,
    code: Code,
) {
    cases
        .case(&format!("resume/{slug}"), rules, fault)
        .over("bare")
        .effect(Effect::WrongResume)
        .request(ask.request())
        .rejects_files(given.clone(), &[code]);
}

/// A cursor that is not restored. Whether what comes next of it is said is free.
pub(super) fn not_restored(name: &str) -> Value {
    json!({"grade": "none", "name": name, "position": null})
}

fn missing(kind: &str, name: &str) -> Value {
    record(
        "uncaptured",
        name,
        json!({"kind": kind, "reason": "a loader that cannot say where it is"}),
    )
}

fn uncaptured(cases: &mut Cases) {
    let listed = |kind: &str, name: &str| said(&[], &[], &[json!({"kind": kind, "name": name})]);
    for kind in ["rng", "cursor"] {
        let given = files(&[missing(kind, "workers")]);
        refused(
            cases,
            &format!("uncaptured-{kind}"),
            &["restore.demand"],
            "Something that must be exact was not captured.",
            here(),
            &given,
            Code::NotExact,
        );
        refused(
            cases,
            &format!("uncaptured-{kind}-opaque"),
            &["restore.demand"],
            "Something was not captured, and counts as worse than opaque.",
            here().demand("opaque-same-topology"),
            &given,
            Code::NotExact,
        );
        answered(
            cases,
            &format!("uncaptured-{kind}-any-grade"),
            &["restore.demand", "restore.report"],
            "Something was not captured, and the caller is told.",
            here().demand("none"),
            &given,
            listed(kind, "workers"),
        );
        answered(
            cases,
            &format!("uncaptured-{kind}-left-out"),
            &["restore.demand", "restore.report"],
            "Something was not captured, the caller does without, and is told all the same.",
            here().without(&["workers"]),
            &given,
            listed(kind, "workers"),
        );
    }
    let given = files(&[missing("vendor/compile-cache", "inductor")]);
    answered(
        cases,
        "uncaptured-other",
        &["restore.demand"],
        "Neither a stream nor a cursor was not captured: nothing is demanded of it.",
        here(),
        &given,
        listed("vendor/compile-cache", "inductor"),
    );
    let given = files(&[missing("rng", "cuda"), missing("cursor", "train"), missing("rng", "a")]);
    let three = [("rng", "a"), ("rng", "cuda"), ("cursor", "train")]
        .map(|(kind, name)| json!({"kind": kind, "name": name}));
    answered(
        cases,
        "grades-of-uncaptured",
        &["restore.grade"],
        "No topology is asked about: what was not captured is listed by name.",
        no_topology(),
        &given,
        said(&[], &[], &three),
    );
}

fn left_out(cases: &mut Cases) {
    let stream = vectors::stream("numpy/PCG64/42");
    let mut damaged = stream.clone();
    damaged.next_raw = vectors::stream("numpy/PCG64/7-mid-half").next_raw;
    let keyed = |name: &str, stream| record("rng", name, value(stream, "require"));
    let none = json!({"algorithm": stream.algorithm, "grade": "none", "name": "dropout", "next_raw": [], "state": null});
    let given = files(&[keyed("dropout", &damaged), keyed("init", &stream)]);
    let answer = said(&[none, streams::exact("init", &stream)], &[], &[]);
    answered(
        cases,
        "left-out-damaged",
        &["restore.demand"],
        "A stream whose canary is wrong is left out: it is not looked into.",
        here().without(&["dropout"]),
        &given,
        answer,
    );
    refused(
        cases,
        "left-out-other",
        &["restore.canary", "rng.canary"],
        "A stream whose canary is wrong, where another one is left out.",
        here().without(&["init"]),
        &given,
        Code::CanaryMismatch,
    );
    refused(
        cases,
        "not-left-out-any-grade",
        &["restore.canary", "rng.canary"],
        "A stream whose canary is wrong, where the caller puts up with `none`.",
        here().demand("none"),
        &given,
        Code::CanaryMismatch,
    );
    let cursor = root(&line(9, 2), 2, &bare(&[3, 4, 5]));
    let given = files(&[train(cursor)]);
    let not = json!({"grade": "none", "name": "train", "position": null});
    answered(
        cases,
        "left-out-cursor",
        &["restore.demand"],
        "A cursor whose canary is wrong and whose source is not offered is left out.",
        here().without(&["train"]),
        &given,
        said(&[], &[not], &[]),
    );
    let mut varying =
        recipe(&[0, 1].map(|rank| {
            placed("rng", "dropout", json!([["dp", rank]]), value(&stream, "require"))
        }));
    varying.writers[0].records.push(keyed("init", &stream));
    varying.topology = vec![("dp".into(), 2)];
    refused(
        cases,
        "require-other-left-out",
        &["restore.require"],
        "A stream with `require` does not fit, and the caller does without another one.",
        place(&[("dp", 3, 0)]).demand("none").without(&["init"]),
        &straight(&varying),
        Code::NotExact,
    );
    refused(
        cases,
        "left-out-unknown",
        &["restore.demand"],
        "The caller does without a stream that there is not: it was meant for one of another name.",
        place(&[("dp", 2, 0)]).without(&["drop-out"]),
        &straight(&varying),
        Code::BadArgument,
    );
}

/// Places that are none, and what they are answered.
fn places(cases: &mut Cases) {
    let given = files(&[]);
    let ask = |topology: Value, coordinate: Value| json!({"topology": topology, "coordinate": coordinate});
    let rows = [
        (
            "axis-missing",
            "has no index along an axis",
            ask(json!([["dp", 2], ["tp", 2]]), json!([["dp", 0]])),
        ),
        (
            "axis-more",
            "has an index along an axis that the topology does not have",
            ask(json!([["dp", 2]]), json!([["dp", 0], ["tp", 0]])),
        ),
        (
            "axis-order",
            "has its axes in another order",
            ask(json!([["dp", 2], ["tp", 2]]), json!([["tp", 0], ["dp", 0]])),
        ),
        ("axis-twice", "has an axis twice", ask(json!([["dp", 2]]), json!([["dp", 0], ["dp", 1]]))),
        (
            "index-beyond",
            "has an index that is the size of its axis",
            ask(json!([["dp", 2]]), json!([["dp", 2]])),
        ),
    ];
    for (slug, what, request) in rows {
        cases
            .case(
                &format!("resume/place-{slug}"),
                &["restore.grade"],
                &format!("The place that is asked about {what}."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(request)
            .rejects_files(given.clone(), &[Code::BadArgument]);
    }
    answered(
        cases,
        "place-without-axes",
        &["restore.grade"],
        "A topology without axes has one place.",
        place(&[]),
        &given,
        said(&[], &[], &[]),
    );

    // Which record is a place's.
    let streams = ["numpy/PCG64/42", "numpy/PCG64/7-mid-half"].map(vectors::stream);
    let records = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(dp, tp)| {
        let stream = &streams[usize::from(dp == 1 && tp == 0)];
        placed("rng", "dropout", json!([["dp", dp], ["tp", tp]]), value(stream, "require"))
    });
    let mut recipe = recipe(&records);
    recipe.topology = vec![("dp".into(), 2), ("tp".into(), 2)];
    let given = straight(&recipe);
    answered(
        cases,
        "place-of-two-axes",
        &["restore.grade"],
        "The record of place 1, 0 is that of dp 1 and tp 0.",
        place(&[("dp", 2, 1), ("tp", 2, 0)]),
        &given,
        said(&[streams::exact("dropout", &streams[1])], &[], &[]),
    );
    refused(
        cases,
        "place-axes-swapped",
        &["restore.require"],
        "A new topology has both axes in another order, and one of another size.",
        place(&[("tp", 2, 1), ("dp", 4, 0)]).demand("none"),
        &given,
        Code::NotExact,
    );
}

/// Much of a trainer's state at once.
fn together(cases: &mut Cases) {
    let stream = vectors::stream("python/42-gauss");
    let shared = vectors::stream("torch-cuda/2a-4");
    let cursor = root(&leaf(9, super::items::identity(9), 1, wrap(), 8), 17, &bare(&[8, 0, 1]));
    let ended = root(&leaf(9, super::items::identity(9), 0, stop(), 9), 9, &[]);
    let mut recipe = recipe(&[
        train(cursor.clone()),
        record("cursor", "validation", ended.clone()),
        record("rng", "shared", value(&shared, "require")),
        record("vendor/kind", "train", json!({"anything": [1, 2]})),
    ]);
    for rank in 0..2 {
        let record = placed("rng", "workers", json!([["dp", rank]]), value(&stream, "fork"));
        recipe.writers[0].records.push(record);
    }
    recipe.topology = vec![("dp".into(), 2)];
    let ask = place(&[("dp", 2, 1)]).source("train", 9, SHA).source("validation", 9, SHA);
    let mut second = exact(&ended);
    second["name"] = json!("validation");
    let answer = said(
        &[streams::exact("shared", &shared), streams::exact("workers", &stream)],
        &[exact(&cursor), second],
        &[],
    );
    answered(
        cases,
        "together",
        &["restore.grade"],
        "Streams that are shared and that vary, two cursors, and a record of an unknown kind.",
        ask,
        &straight(&recipe),
        answer,
    );
}

/// A canary that costs more than anyone allows.
fn costly(cases: &mut Cases) {
    let records = (1 << 53) - 1;
    let order = super::orders::randperm(records, json!(42), "seed");
    let cursor = root(&leaf(records, order, 0, wrap(), 0), 0, &bare(&[1, 2, 3]));
    let given = files(&[train(cursor.clone())]);
    refused(
        cases,
        "cursor-costly",
        &["restore.canary", "restore.demand"],
        "The canary of an order of 2^53 - 1 records would have to be drawn from its beginning: the cursor is not restored.",
        offering(here(), &cursor),
        &given,
        Code::NotExact,
    );
    answered(
        cases,
        "cursor-costly-any-grade",
        &["restore.canary", "restore.grade"],
        "A cursor whose canary costs too much is graded none.",
        offering(here().demand("none"), &cursor),
        &given,
        said(&[], &[not_restored("train")], &[]),
    );
    cases
        .case(
            "extended/cursor-costly",
            &["cursor.canary-steps"],
            "A canary takes more than `canary-steps` steps: it is left out, which is no finding.",
        )
        .over("bare")
        .effect(Effect::Exhaustion)
        .accepts_recipe(&recipe(&[train(cursor)]));
}
