//! Chapters 18 and 19: the data and the fingerprints that a caller has for a cursor.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::{here, no_topology, said};
use super::held::{files, record};
use super::items::{SHA, bare, exact, line, offering, root, train};
use super::nodes::mixture;
use super::restoring::{answered, not_restored, refused};

pub(super) fn add(cases: &mut Cases) {
    sources(cases);
    fingerprints(cases);
    augmented(cases);
}

fn sources(cases: &mut Cases) {
    let cursor = root(&line(9, 2), 2, &bare(&[2, 3, 4]));
    let given = files(&[train(cursor.clone())]);
    let rules: &[&str] = &["cursor.source"];
    let other = "5b".repeat(32);
    let changed = Code::SourceChanged;
    refused(
        cases,
        "source-other-digest",
        rules,
        "The caller has other data.",
        here().source("train", 9, &other),
        &given,
        changed,
    );
    refused(
        cases,
        "source-other-records",
        rules,
        "The caller has more records under the same digest.",
        here().source("train", 10, SHA),
        &given,
        changed,
    );
    refused(
        cases,
        "source-other-any-grade",
        rules,
        "The caller has other data and puts up with `none`.",
        here().source("train", 9, &other).demand("none"),
        &given,
        changed,
    );
    let one_of = here().source("train", 9, &other).source("train", 9, SHA);
    answered(
        cases,
        "source-one-of-two",
        rules,
        "The caller has two sources, of which the cursor reads one.",
        one_of,
        &given,
        said(&[], &[exact(&cursor)], &[]),
    );
    refused(
        cases,
        "source-not-offered",
        &["restore.grade", "restore.demand"],
        "The caller says nothing of its data: what it reads may be anything.",
        here(),
        &given,
        Code::NotExact,
    );
    refused(
        cases,
        "source-of-other-cursor",
        &["restore.grade", "restore.demand"],
        "The caller has the data for a cursor of another name.",
        here().source("train", 9, SHA),
        &files(&[record("cursor", "validation", cursor.clone()), train(cursor.clone())]),
        Code::NotExact,
    );
    answered(
        cases,
        "source-not-offered-any-grade",
        &["restore.grade"],
        "The caller says nothing of its data, and puts up with it.",
        here().demand("none"),
        &given,
        said(&[], &[not_restored("train")], &[]),
    );
    answered(
        cases,
        "grades-of-cursor",
        &["restore.grade"],
        "No topology is asked about: sources count as offered.",
        no_topology(),
        &given,
        said(&[], &[json!({"grade": "exact", "name": "train"})], &[]),
    );

    let mut second = line(9, 0);
    second["source"]["sha256"] = other.as_str().into();
    let node = mixture(&[line(9, 2), second], &[1, 1], &[0, 0], "first");
    let both = root(&node, 0, &[vec![0, 2], vec![1, 0]]);
    let mixed = files(&[train(both.clone())]);
    answered(
        cases,
        "source-each-of-two",
        rules,
        "A mixture of two sources, both of which the caller has.",
        offering(here(), &both),
        &mixed,
        said(&[], &[exact(&both)], &[]),
    );
    refused(
        cases,
        "source-one-missing",
        rules,
        "A mixture of two sources, of which the caller has one.",
        here().source("train", 9, SHA),
        &mixed,
        changed,
    );
}

fn opaque(fingerprint: Value) -> Value {
    json!({"fingerprint": fingerprint, "kind": "opaque", "media_type": "application/x-loader",
        "state": {"map": [["_index", 7], ["_seed", {"int": "18446744073709551615"}]]}})
}

fn fingerprints(cases: &mut Cases) {
    let rules: &[&str] = &["cursor.opaque", "restore.grade"];
    let print =
        || json!({"map": [["ranks", 2], ["workers", 4], ["rate", {"f64": "3ff0000000000000"}]]});
    let given = files(&[train(opaque(print()))]);
    let handed =
        json!({"grade": "opaque-same-topology", "name": "train", "next": null, "position": null});
    let handed = || said(&[], std::slice::from_ref(&handed), &[]);
    let ask = |tree: Value| here().demand("opaque-same-topology").fingerprint("train", tree);
    answered(
        cases,
        "opaque-equal",
        rules,
        "An opaque cursor whose fingerprint the caller has.",
        ask(print()),
        &given,
        handed(),
    );
    let others = [
        (
            "value",
            "another number of workers",
            json!({"map": [["ranks", 2], ["workers", 8], ["rate", {"f64": "3ff0000000000000"}]]}),
        ),
        (
            "order",
            "its members in another order",
            json!({"map": [["workers", 4], ["ranks", 2], ["rate", {"f64": "3ff0000000000000"}]]}),
        ),
        (
            "more",
            "a member more",
            json!({"map": [["ranks", 2], ["workers", 4], ["rate", {"f64": "3ff0000000000000"}], ["epoch", 1]]}),
        ),
        (
            "type",
            "a number as a float of 32 bits",
            json!({"map": [["ranks", 2], ["workers", 4], ["rate", {"f32": "3f800000"}]]}),
        ),
    ];
    for (slug, what, tree) in others {
        refused(
            cases,
            &format!("opaque-other-{slug}"),
            &["cursor.opaque"],
            &format!("The caller's fingerprint has {what}."),
            ask(tree),
            &given,
            Code::SourceChanged,
        );
    }
    refused(
        cases,
        "opaque-other-any-grade",
        &["cursor.opaque"],
        "The caller's fingerprint is another one, and it puts up with `none`.",
        here().demand("none").fingerprint("train", json!({"map": []})),
        &given,
        Code::SourceChanged,
    );
    refused(
        cases,
        "opaque-not-offered",
        &["restore.grade", "restore.demand"],
        "The caller has no fingerprint, and wants the cursor.",
        here().demand("opaque-same-topology"),
        &given,
        Code::NotExact,
    );
    refused(
        cases,
        "opaque-demanded-exact",
        &["restore.demand"],
        "An opaque cursor is never exact.",
        here().fingerprint("train", print()),
        &given,
        Code::NotExact,
    );
    answered(
        cases,
        "opaque-not-offered-any-grade",
        &["restore.grade"],
        "The caller has no fingerprint, and does without.",
        here().demand("none"),
        &given,
        said(&[], &[not_restored("train")], &[]),
    );
    answered(
        cases,
        "grades-of-opaque",
        &["restore.grade"],
        "No topology is asked about: fingerprints count as offered.",
        no_topology(),
        &given,
        said(&[], &[json!({"grade": "opaque-same-topology", "name": "train"})], &[]),
    );

    let mut mixed = mixture(&[line(9, 2), opaque(print())], &[1, 1], &[0, 0], "first");
    mixed["consumed"] = json!(5);
    let within = files(&[train(mixed)]);
    let handed =
        json!({"grade": "opaque-same-topology", "name": "train", "next": null, "position": 5});
    answered(
        cases,
        "opaque-within",
        rules,
        "A mixture of a computed and an opaque child: fingerprint and source are offered.",
        ask(print()).source("train", 9, SHA),
        &within,
        said(&[], &[handed], &[]),
    );
    refused(
        cases,
        "opaque-within-source-missing",
        &["restore.grade", "restore.demand"],
        "A mixture of a computed and an opaque child: no source is offered.",
        ask(print()),
        &within,
        Code::NotExact,
    );
    let two = mixture(&[opaque(print()), opaque(json!({"map": []}))], &[1, 1], &[0, 0], "first");
    let mut two = two;
    two["consumed"] = json!(5);
    refused(
        cases,
        "opaque-two-prints",
        &["cursor.opaque"],
        "Two opaque nodes of one tree have different fingerprints, of which the caller's can be one only.",
        ask(print()),
        &files(&[train(two)]),
        Code::SourceChanged,
    );
}

fn augmented(cases: &mut Cases) {
    let with = |augment: &str| {
        let mut cursor = root(&line(9, 2), 2, &bare(&[2, 3, 4]));
        cursor["augment"] = augment.into();
        cursor
    };
    let none = with("none");
    answered(
        cases,
        "augment-none",
        &["restore.grade"],
        "Records are not changed at random.",
        offering(here(), &none),
        &files(&[train(none.clone())]),
        said(&[], &[exact(&none)], &[]),
    );
    let worker = with("worker-stream");
    let given = files(&[train(worker.clone())]);
    let mut graded = exact(&worker);
    graded["grade"] = json!("opaque-same-topology");
    answered(
        cases,
        "augment-worker-stream",
        &["restore.grade"],
        "Records are changed by streams of workers, which no other topology has: what comes next is said, and not exact.",
        offering(here().demand("opaque-same-topology"), &worker),
        &given,
        said(&[], &[graded], &[]),
    );
    refused(
        cases,
        "augment-worker-stream-demanded",
        &["restore.demand"],
        "Records are changed by streams of workers, and `exact` is demanded.",
        offering(here(), &worker),
        &given,
        Code::NotExact,
    );
    let mut wrong = worker;
    wrong["position"] = json!(1);
    refused(
        cases,
        "augment-worker-stream-canary",
        &["restore.canary", "cursor.canary"],
        "Records are changed by streams of workers, and the canary is another position's.",
        offering(here().demand("none"), &wrong),
        &files(&[train(wrong.clone())]),
        Code::CanaryMismatch,
    );
}
