//! Chapter 18.5: how ranks of any topology share the next batch.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::{Ask, here, place, said};
use super::held::{Wrong, files, recipe, wrong_forms};
use super::items::{bare, exact, identity, leaf, line, offering, root, stop, train, wrap};
use super::lanes;
use crate::bend::straight;
use crate::case::Effect;
use crate::files::Files;

pub(super) fn add(cases: &mut Cases) {
    by_rule(cases);
    over_axes(cases);
    at_the_end(cases);
    refused(cases);
    forms(cases);
}

/// Records 4, 5, … of twenty in batches of six, shared along `axes`.
fn batches(rule: &str, axes: &[&str]) -> Value {
    let node = leaf(20, identity(20), 0, wrap(), 4);
    let mut value = root(&node, 4, &bare(&[4, 5, 6, 7, 8, 9, 10]));
    value["partition"] = json!({"axes": axes, "batch": 6, "rule": rule});
    value
}

fn sharing(value: &Value, share: &[u64]) -> Value {
    let mut cursor = exact(value);
    cursor["share"] = json!(share);
    said(&[], &[cursor], &[])
}

fn asking(ask: Ask, value: &Value) -> Value {
    offering(ask.share(), value).request()
}

/// `bare` on a topology of two axes, with the cursor.
fn on_two_axes(value: &Value) -> Files {
    let mut recipe = recipe(&[train(value.clone())]);
    recipe.topology = vec![("dp".into(), 2), ("tp".into(), 2)];
    straight(&recipe)
}

fn by_rule(cases: &mut Cases) {
    let rows: [(&str, &str, u64, u64, &[u64]); 9] = [
        ("round-robin", "alone", 1, 0, &[4, 5, 6, 7, 8, 9]),
        ("round-robin", "1-of-2", 2, 1, &[5, 7, 9]),
        ("round-robin", "2-of-3", 3, 2, &[6, 9]),
        ("round-robin", "1-of-4", 4, 1, &[5, 9]),
        ("round-robin", "3-of-4", 4, 3, &[7]),
        ("round-robin", "6-of-7", 7, 6, &[]),
        ("contiguous", "alone", 1, 0, &[4, 5, 6, 7, 8, 9]),
        ("contiguous", "1-of-2", 2, 1, &[7, 8, 9]),
        ("contiguous", "2-of-3", 3, 2, &[8, 9]),
    ];
    for (rule, slug, ranks, rank, share) in rows {
        let value = batches(rule, &["dp"]);
        cases
            .case(
                &format!("resume/share-{rule}-{slug}"),
                &["cursor.share", "cursor.partition"],
                &format!("Rank {rank} of {ranks} takes its items of a batch of six, `{rule}`."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(asking(place(&[("dp", ranks, rank)]), &value))
            .answers_files(files(&[train(value.clone())]), sharing(&value, share));
    }
    let value = lanes::shared();
    let rows: [(&str, u64, u64, &[u64]); 3] = [
        ("alone", 1, 0, &[0, 5, 1, 6, 2, 7]),
        ("0-of-2", 2, 0, &[0, 1, 2]),
        ("1-of-2", 2, 1, &[5, 6, 7]),
    ];
    for (slug, ranks, rank, share) in rows {
        cases
            .case(
                &format!("resume/share-by-lane-{slug}"),
                &["cursor.share", "cursor.partition"],
                &format!("Rank {rank} of {ranks} takes the items of its lanes."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(asking(place(&[("dp", ranks, rank)]), &value))
            .answers_files(files(&[train(value.clone())]), sharing(&value, share));
    }
}

/// Which number a rank has.
fn over_axes(cases: &mut Cases) {
    let at = || place(&[("dp", 2, 0), ("tp", 3, 1)]);
    type Row<'a> = (&'a str, &'a str, &'a [&'a str], Ask, &'a [u64]);
    let rows: [Row<'_>; 4] = [
        (
            "copies",
            "Ranks along an axis that is not listed take the same items.",
            &["dp"],
            at(),
            &[4, 6, 8],
        ),
        (
            "first-outermost",
            "Of two axes the first is the outer one: place 0, 1 of 2 × 3 is rank 1 of 6.",
            &["dp", "tp"],
            at(),
            &[5],
        ),
        (
            "other-order",
            "The axes stand in another order than in the topology: place 1, 0 of 3 × 2 is rank 2 of 6.",
            &["tp", "dp"],
            at(),
            &[6],
        ),
        (
            "no-axes",
            "No axis is listed: every rank takes the whole batch.",
            &[],
            at(),
            &[4, 5, 6, 7, 8, 9],
        ),
    ];
    for (slug, what, axes, ask, share) in rows {
        let value = batches("round-robin", axes);
        cases
            .case(&format!("resume/share-{slug}"), &["cursor.share", "cursor.partition"], what)
            .over("bare")
            .effect(Effect::WrongResume)
            .request(asking(ask, &value))
            .answers_files(on_two_axes(&value), sharing(&value, share));
    }
}

/// A last batch of three items, where six were asked for.
fn at_the_end(cases: &mut Cases) {
    let node = line(20, 17);
    for (rule, rank, share) in
        [("round-robin", 1, &[18][..]), ("contiguous", 0, &[17, 18, 19]), ("contiguous", 1, &[])]
    {
        let mut value = root(&node, 17, &bare(&[17, 18, 19]));
        value["partition"] = json!({"axes": ["dp"], "batch": 6, "rule": rule});
        cases
            .case(
                &format!("resume/share-last-{rule}-{rank}"),
                &["cursor.share"],
                &format!("The last batch has three items of six: rank {rank} of 2, `{rule}`."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(asking(place(&[("dp", 2, rank)]), &value))
            .answers_files(files(&[train(value.clone())]), sharing(&value, share));
    }
    let mut value = root(&leaf(20, identity(20), 0, stop(), 20), 20, &[]);
    value["partition"] = json!({"axes": ["dp"], "batch": 6, "rule": "contiguous"});
    cases
        .case("resume/share-ended", &["cursor.share"], "Nothing is left to be shared.")
        .over("bare")
        .effect(Effect::WrongResume)
        .request(asking(place(&[("dp", 2, 0)]), &value))
        .answers_files(files(&[train(value.clone())]), sharing(&value, &[]));
}

fn refused(cases: &mut Cases) {
    let lanes = lanes::shared();
    let rows: [(&str, &str, Value, Ask); 3] = [
        (
            "contiguous-of-4",
            "A batch of six in runs for four ranks",
            batches("contiguous", &["dp"]),
            place(&[("dp", 4, 0)]),
        ),
        ("by-lane-of-3", "Two lanes for three ranks", lanes, place(&[("dp", 3, 0)])),
        (
            "axis-gone",
            "The axis along which ranks share is gone",
            batches("round-robin", &["dp"]),
            place(&[("cp", 2, 0)]),
        ),
    ];
    for (slug, what, value, ask) in rows {
        let files = files(&[train(value.clone())]);
        cases
            .case(
                &format!("resume/share-{slug}"),
                &["cursor.share", "restore.never-round"],
                &format!("{what}: there is no such share, and none is made up."),
            )
            .over("bare")
            .effect(Effect::WrongResume)
            .request(asking(ask.clone().demand("none"), &value))
            .rejects_files(files.clone(), &[Code::NotExact]);
        cases
            .case(
                &format!("resume/share-{slug}-not-asked"),
                &["cursor.share", "restore.grade", "restore.never-round"],
                &format!("{what}, and no share is asked for: the cursor is exact."),
            )
            .over("bare")
            .effect(Effect::LostCheckpoint)
            .request(offering(ask, &value).request())
            .answers_files(files, said(&[], &[exact(&value)], &[]));
    }
    let value = root(&line(20, 4), 4, &bare(&[4, 5]));
    cases
        .case(
            "resume/share-without-partition",
            &["cursor.partition", "restore.grade"],
            "A share is asked for, and the cursor does not say how ranks share: none is given.",
        )
        .over("bare")
        .effect(Effect::WrongResume)
        .request(asking(here(), &value))
        .answers_files(files(&[train(value.clone())]), said(&[], &[exact(&value)], &[]));
}

fn forms(cases: &mut Cases) {
    let rules: &[&str] = &["cursor.partition"];
    let wrong = |slug, fault, pointer, value| (slug, rules, fault, pointer, value, Code::BadMember);
    let table: Vec<Wrong<'_>> = vec![
        wrong(
            "partition-other-axis",
            "Ranks share along an axis that the topology does not have.",
            "/value/partition/axes/0",
            json!("tp"),
        ),
        wrong(
            "partition-axis-twice",
            "Ranks share along an axis twice.",
            "/value/partition/axes",
            json!(["dp", "dp"]),
        ),
        wrong("partition-batch-zero", "A batch has no items.", "/value/partition/batch", json!(0)),
        wrong(
            "partition-by-lane-without-lanes",
            "Ranks share by lanes, and the cursor has none.",
            "/value/partition/rule",
            json!("by-lane"),
        ),
        wrong(
            "partition-other-rule",
            "Ranks share by a rule that there is not.",
            "/value/partition/rule",
            json!("random"),
        ),
        wrong(
            "partition-without-axes",
            "A partition lists no axes, not even none.",
            "/value/partition/axes",
            Value::Null,
        ),
        wrong(
            "partition-unknown-member",
            "A partition has a member more.",
            "/value/partition/world",
            json!(2),
        ),
    ];
    wrong_forms(cases, &train(batches("round-robin", &["dp"])), &table);
}
