//! Chapter 18.1: data that is read shard by shard, along lanes.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::here;
use super::held::{Wrong, bent, blob, blob_identity, longs, recipe, wrong_forms};
use super::items::{
    SHA, bare, identity, offering, restored, restored_files, root, stop, train, wrap,
};
use super::orders::randperm;
use crate::bend::{Bend, straight};
use crate::case::Effect;
use crate::recipe::Recipe;

pub(super) fn add(cases: &mut Cases) {
    walked(cases);
    forms(cases);
    records(cases);
}

/// Shards of 3, 0, 2 and 4 records: ordinals 0 to 2, none, 3 and 4, 5 to 8.
fn shards() -> Value {
    json!([3, 0, 2, 4])
}

/// A node over [`shards`] in an order, with lanes as given.
fn node(order: Value, epoch_end: Value, lanes: &[(u64, u64)], next_lane: u64) -> Value {
    json!({"epoch": 0, "epoch_end": epoch_end, "kind": "sharded-lanes", "lanes": lanes,
        "next_lane": next_lane, "order": order,
        "source": {"records": 9, "sha256": SHA, "shards": shards()}})
}

/// Two lanes at their beginning, in batches of six shared by lane.
pub(super) fn shared() -> Value {
    let node = node(identity(4), wrap(), &[(0, 0), (3, 0)], 0);
    let mut value = root(&node, 0, &bare(&[0, 5, 1, 6, 2, 7, 3, 8, 4]));
    value["partition"] = json!({"axes": ["dp"], "batch": 6, "rule": "by-lane"});
    value
}

/// The sequences were worked out by hand.
fn walked(cases: &mut Cases) {
    let explicit = || json!({"algorithm": "explicit", "n": 4, "ordinals": [2, 0, 3, 1]});
    let mut epochs = node(randperm(3, json!(42), "seed+epoch"), wrap(), &[(0, 0)], 0);
    // PyTorch's orders of three: 0 2 1 with the seed 42, 1 0 2 with 43.
    epochs["source"] = json!({"records": 4, "sha256": SHA, "shards": [1, 2, 1]});
    let rows: Vec<(&str, &str, Value, u64, Vec<u64>)> = vec![
        (
            "two",
            "Two lanes take turns; one skips an empty shard, and when it has read everything the other goes on alone, up to the next epoch.",
            node(identity(4), wrap(), &[(0, 1), (3, 1)], 0),
            2,
            vec![1, 6, 2, 7, 3, 8, 4, 0, 5, 1],
        ),
        (
            "turn",
            "It is the second lane's turn.",
            node(identity(4), wrap(), &[(0, 2), (3, 1)], 1),
            3,
            vec![6, 2, 7, 3, 8, 4, 0],
        ),
        (
            "turn-of-none",
            "It is the turn of a lane that has read everything: the next that has a record gives it.",
            node(identity(4), wrap(), &[(2, 1), (5, 0)], 1),
            8,
            vec![4, 0, 5, 1],
        ),
        (
            "order",
            "Shards come in an order of their own; the last place of the second lane is an empty shard.",
            node(explicit(), wrap(), &[(0, 0), (1, 0)], 0),
            0,
            vec![3, 0, 4, 1, 5, 2, 6, 7, 8, 3, 0],
        ),
        (
            "stop",
            "The cursor ends with its epoch.",
            node(explicit(), stop(), &[(2, 2), (5, 0)], 0),
            7,
            vec![7, 8],
        ),
        (
            "ended",
            "All lanes have read everything, and no epoch follows.",
            node(identity(4), stop(), &[(4, 0), (5, 0)], 0),
            9,
            vec![],
        ),
        (
            "end-of-epoch",
            "All lanes have read everything, and the next item is the next epoch's.",
            node(identity(4), wrap(), &[(4, 0), (5, 0)], 1),
            9,
            vec![0, 5, 1],
        ),
        (
            "more-than-shards",
            "More lanes than shards: some never have a record.",
            node(identity(4), wrap(), &[(0, 0), (6, 0), (2, 0), (3, 0), (4, 0)], 0),
            0,
            vec![0, 3, 5, 1, 4, 6, 2, 7, 8, 0],
        ),
        (
            "epochs",
            "One lane, and another order of shards in the next epoch.",
            epochs,
            0,
            vec![0, 3, 1, 2, 1, 2, 0, 3],
        ),
    ];
    for (slug, what, node, consumed, items) in rows {
        restored(
            cases,
            (&format!("lanes-{slug}"), &["cursor.lanes", "cursor.lane-record", "cursor.canary"]),
            what,
            &root(&node, consumed, &bare(&items)),
        );
    }
    let mut nothing = node(identity(4), wrap(), &[(4, 0), (5, 0)], 0);
    nothing["source"]["shards"] = json!([0, 0, 0, 9]);
    nothing["order"] = json!({"algorithm": "explicit", "n": 4, "ordinals": [0, 1, 2, 0]});
    restored(
        cases,
        ("lanes-nothing", &["cursor.canary"]),
        "No shard of the order has a record: nothing comes, in no epoch.",
        &root(&nothing, 0, &[]),
    );
}

fn forms(cases: &mut Cases) {
    use Code::{BadMember, BadPosition};
    let value = root(&node(identity(4), wrap(), &[(0, 1), (3, 1)], 0), 2, &bare(&[1, 6, 2, 7, 3]));
    let lanes: &[&str] = &["cursor.lanes"];
    let form: &[&str] = &["cursor.form"];
    let table: Vec<Wrong<'_>> = vec![
        (
            "lanes-next-beyond",
            lanes,
            "It is the turn of a lane that there is not.",
            "/value/next_lane",
            json!(2),
            BadPosition,
        ),
        ("lanes-none", lanes, "There are no lanes.", "/value/lanes", json!([]), BadPosition),
        (
            "lanes-place-of-other",
            lanes,
            "A lane stands at a place of another one.",
            "/value/lanes/1/0",
            json!(2),
            BadPosition,
        ),
        (
            "lanes-place-below",
            lanes,
            "The second lane stands at a place below its first.",
            "/value/lanes/1",
            json!([0, 0]),
            BadPosition,
        ),
        (
            "lanes-place-beyond",
            lanes,
            "A lane that has read everything stands beyond its first place of S or more.",
            "/value/lanes/0",
            json!([6, 0]),
            BadPosition,
        ),
        (
            "lanes-record-past-end",
            lanes,
            "A lane that has read everything stands at record 1.",
            "/value/lanes/0",
            json!([4, 1]),
            BadPosition,
        ),
        (
            "lanes-shards-sum",
            lanes,
            "The shards have one record less than the source.",
            "/value/source/shards/3",
            json!(3),
            BadPosition,
        ),
        (
            "lanes-shards-sum-wraps",
            lanes,
            "The sum of the shards is that of the source only modulo 2^64.",
            "/value",
            wrapping(),
            BadPosition,
        ),
        (
            "lanes-shards-number",
            lanes,
            "There is a shard more than the order has places.",
            "/value/source/shards",
            json!([3, 0, 2, 4, 0]),
            BadPosition,
        ),
        (
            "lanes-order-beyond",
            &["order.domain"],
            "The order of shards names a shard that there is not.",
            "/value/order",
            json!({"algorithm": "explicit", "n": 4, "ordinals": [0, 1, 2, 4]}),
            BadPosition,
        ),
        (
            "lanes-pad",
            form,
            "An epoch of lanes is padded.",
            "/value/epoch_end",
            json!({"rule": "pad", "unit": 4}),
            BadMember,
        ),
        (
            "lanes-unit",
            form,
            "An epoch of lanes has a unit.",
            "/value/epoch_end/unit",
            json!(4),
            BadMember,
        ),
        (
            "lanes-three-numbers",
            form,
            "A lane has three numbers.",
            "/value/lanes/0",
            json!([0, 1, 0]),
            BadMember,
        ),
        (
            "lanes-without-shards",
            form,
            "A source of lanes does not say how its shards are long.",
            "/value/source/shards",
            Value::Null,
            BadMember,
        ),
        (
            "lanes-position",
            form,
            "A cursor of lanes has a position besides.",
            "/value/position",
            json!(2),
            BadMember,
        ),
    ];
    wrong_forms(cases, &train(value), &table);
}

/// Shards of 2^53 - 1 records, whose sum is 2^64 + 9.
fn wrapping() -> Value {
    let mut counts = vec![(1_u64 << 53) - 1; 2048];
    counts.push(2048 + 9);
    let mut node = node(identity(2049), wrap(), &[(0, 1), (3, 1)], 0);
    node["source"]["shards"] = json!(counts);
    root(&node, 2, &bare(&[1, 6, 2, 7, 3]))
}

/// What needs the order, or a tensor.
fn records(cases: &mut Cases) {
    let value = root(&node(identity(4), wrap(), &[(0, 1), (3, 1)], 0), 2, &bare(&[1, 6, 2, 7, 3]));
    let mut inline = |slug: &str, fault: &str, lane: Value| {
        let record = train(value.clone());
        let held = recipe(std::slice::from_ref(&record));
        cases
            .case(&format!("resume/lanes-{slug}"), &["cursor.lane-record"], fault)
            .over("bare")
            .effect(Effect::WrongResume)
            .request(offering(here(), &value).request())
            .rejects_recipe(
                &held,
                &bent(&held, &record, "/value/lanes/1", &lane),
                &[Code::BadPosition],
            );
    };
    inline("record-beyond", "A lane stands behind the last record of its shard.", json!([3, 4]));
    inline("empty-shard", "A lane stands at an empty shard.", json!([1, 0]));

    let mut in_tensor = value.clone();
    in_tensor["source"]["shards"] = json!({"tensor": blob_identity("shards")});
    let held = |counts: &[u64]| -> Recipe {
        let mut recipe = recipe(&[train(in_tensor.clone())]);
        let entry = json!({"dtype": "U64", "shape": [counts.len()]});
        blob(&mut recipe, "shards", &longs(counts), &entry);
        recipe
    };
    restored_files(
        cases,
        ("lanes-tensor", &["order.tensor", "cursor.lanes"]),
        "The lengths of shards stand in a tensor.",
        &in_tensor,
        straight(&held(&[3, 0, 2, 4])),
    );
    let rows: [(&str, &str, &str, &[u64], Code); 4] = [
        (
            "sum",
            "cursor.lane-record",
            "The sum of a tensor of shards is one more than the records.",
            &[3, 0, 2, 5],
            Code::BadPosition,
        ),
        (
            "sum-wraps",
            "cursor.lane-record",
            "The sum of a tensor of shards is that of the records modulo 2^64.",
            &[3, 1 << 63, 2, (1 << 63) + 4],
            Code::BadPosition,
        ),
        ("short", "order.tensor", "A tensor of shards lacks one.", &[3, 0, 6], Code::Dangling),
        (
            "record",
            "cursor.lane-record",
            "A lane stands behind the last record of its shard, of which a tensor has the length.",
            &[7, 0, 1, 1],
            Code::BadPosition,
        ),
    ];
    for (slug, rule, fault, counts, code) in rows {
        cases
            .case(&format!("resume/lanes-tensor-{slug}"), &[rule], fault)
            .over("bare")
            .effect(Effect::WrongResume)
            .request(offering(here(), &in_tensor).request())
            .rejects_recipe(&held(counts), &Bend::new("other shards"), &[code]);
    }
}
