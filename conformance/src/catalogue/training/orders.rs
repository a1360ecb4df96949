//! Chapter 18.4: orders, against what PyTorch and Grain gave.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::here;
use super::held::{Wrong, bent, blob, blob_identity, longs, recipe, wrong_forms};
use super::items::{bare, leaf, offering, restored, restored_files, root, train, wrap};
use super::vectors;
use crate::bend::{Bend, straight};
use crate::case::Effect;
use crate::recipe::Recipe;

pub(super) fn add(cases: &mut Cases) {
    frameworks(cases);
    tensors(cases);
    forms(cases);
}

/// An order of `torch.randperm`.
pub(super) fn randperm(n: u64, seed: Value, rule: &str) -> Value {
    json!({"algorithm": "torch.randperm-cpu", "n": n, "seed": seed, "seed_rule": rule})
}

/// An order of Grain.
pub(super) fn shuffle(n: u64, seed: u64, rule: &str, rounds: u64) -> Value {
    json!({"algorithm": "grain.index_shuffle", "n": n, "rounds": rounds, "seed": seed, "seed_rule": rule})
}

/// A root at a position of an epoch that has consumed as much as that says.
fn standing(order: &Value, records: u64, (epoch, position): (u64, u64), items: &[u64]) -> Value {
    let node = leaf(records, order.clone(), epoch, wrap(), position);
    root(&node, position, &bare(items))
}

/// What real frameworks gave.
fn frameworks(cases: &mut Cases) {
    let torch =
        |seed: &Value, n: u64| vectors::order("torch.randperm-cpu", &json!({"n": n, "seed": seed}));
    let largest = json!({"int": "18446744073709551615"});
    let (zero, max) = (torch(&json!(0), 10), torch(&largest, 10));
    let (first, second) = (torch(&json!(42), 10), sampler(10, 42, 1));
    let grain = |n: u64, seed: u64, rounds: u64| {
        vectors::order("grain.index_shuffle", &json!({"n": n, "rounds": rounds, "seed": seed}))
    };
    let dataset = |seed: u64, epoch: u64| {
        let row = json!({"epoch": epoch, "n": 10, "seed": seed, "seed_rule": "seed+epoch"});
        vectors::order("grain.MapDataset.shuffle", &row)
    };
    let both = |a: &[u64], b: &[u64]| [a, b].concat();
    type Row<'a> = (&'a str, &'a str, Value, (u64, u64), Vec<u64>);
    let rows: Vec<Row<'_>> = vec![
        (
            "randperm",
            "torch.randperm(10), seed 0",
            randperm(10, json!(0), "seed"),
            (0, 0),
            zero.clone(),
        ),
        (
            "randperm-thousand",
            "torch.randperm(1000), its first sixteen",
            randperm(1000, json!(42), "seed"),
            (0, 0),
            torch(&json!(42), 1000),
        ),
        (
            "randperm-100003",
            "torch.randperm(100003), its first sixteen",
            randperm(100_003, json!(42), "seed"),
            (0, 0),
            torch(&json!(42), 100_003),
        ),
        (
            "randperm-seed-above-32",
            "torch.randperm with a seed of 33 bits, of which the generator takes the lower 32",
            randperm(10, json!(4_294_967_338_u64), "seed"),
            (0, 0),
            torch(&json!(4_294_967_338_u64), 10),
        ),
        (
            "randperm-same-seed",
            "torch.randperm whose epochs have one seed",
            randperm(10, json!(42), "seed"),
            (0, 8),
            both(&first[8..], &first),
        ),
        (
            "randperm-next-seed",
            "torch.randperm whose epochs count up the seed, as set_epoch does",
            randperm(10, json!(42), "seed+epoch"),
            (0, 8),
            both(&first[8..], &second),
        ),
        (
            "randperm-seed-wraps",
            "torch.randperm with the seed 2^64 - 1, whose next epoch has the seed 0",
            randperm(10, largest, "seed+epoch"),
            (0, 7),
            both(&max[7..], &zero),
        ),
        (
            "grain-thousand",
            "Grain's index_shuffle of 1000, its first sixteen",
            shuffle(1000, 42, "seed", 4),
            (0, 0),
            grain(1000, 42, 4),
        ),
        ("grain-6-rounds", "Grain's, 6 rounds", shuffle(7, 42, "seed", 6), (0, 0), grain(7, 42, 6)),
        ("grain-8-rounds", "Grain's, 8 rounds", shuffle(7, 42, "seed", 8), (0, 0), grain(7, 42, 8)),
        (
            "grain-32-rounds",
            "Grain's, 32 rounds",
            shuffle(7, 0, "seed", 32),
            (0, 0),
            grain(7, 0, 32),
        ),
        (
            "grain-1024-rounds",
            "Grain's of one record, as many rounds as there may be",
            shuffle(1, 7, "seed", 1024),
            (3, 0),
            vec![0, 0, 0],
        ),
        (
            "grain-next-seed",
            "Grain's, whose epochs count up the seed",
            shuffle(10, 42, "seed+epoch", 4),
            (1, 5),
            both(&dataset(42, 1)[5..], &dataset(42, 2)),
        ),
        (
            "grain-seed-wraps",
            "Grain's with the seed 2^32 - 1, whose next epoch has the seed 0",
            shuffle(10, 4_294_967_295, "seed+epoch", 4),
            (0, 9),
            both(&dataset(4_294_967_295, 0)[9..], &dataset(4_294_967_295, 1)),
        ),
        (
            "grain-no-permutation",
            "Grain's of 2^16 + 1 records, whose last element is the first again",
            shuffle(65_537, 42, "seed", 4),
            (0, 65_536),
            both(&[43043], &grain(65_537, 42, 4)),
        ),
        (
            "grain-2-32",
            "Grain's of 2^32 records, the most that it takes",
            shuffle(1 << 32, 42, "seed", 4),
            (0, (1 << 32) - 1),
            both(&[3_014_573_046], &grain(1 << 32, 42, 4)),
        ),
    ];
    for (slug, what, order, place, items) in rows {
        let records = order["n"].as_u64().unwrap_or_default();
        restored(
            cases,
            (&format!("order-{slug}"), &["cursor.canary", "order.form"]),
            &format!("An order: {what}."),
            &standing(&order, records, place, &items),
        );
    }
}

/// What `DistributedSampler` gave of an epoch, over all ranks.
pub(super) fn sampler(n: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let row =
        json!({"epoch": epoch, "epoch_end": {"rule": "pad", "unit": 1}, "n": n, "seed": seed});
    vectors::order("torch.utils.data.DistributedSampler", &row)
}

/// Orders that are written out.
fn explicit(ordinals: Value, n: u64) -> Value {
    json!({"algorithm": "explicit", "n": n, "ordinals": ordinals})
}

fn tensors(cases: &mut Cases) {
    restored(
        cases,
        ("order-explicit", &["order.domain", "cursor.canary"]),
        "An order that is written out, with one record twice and most not at all.",
        &standing(&explicit(json!([8, 8, 0]), 3), 9, (0, 1), &[8, 0, 8, 8, 0]),
    );
    restored(
        cases,
        ("order-explicit-longer", &["order.domain"]),
        "An order that is written out and longer than its source.",
        &standing(&explicit(json!([0, 1, 1, 0, 1]), 5), 2, (0, 3), &[0, 1, 0]),
    );
    let in_tensor = explicit(json!({"tensor": blob_identity("order")}), 4);
    let value = standing(&in_tensor, 9, (0, 1), &[2, 8, 0, 7]);
    let held = |numbers: &[u64], members: &Value| -> Recipe {
        let mut recipe = recipe(&[train(value.clone())]);
        let mut entry = json!({"dtype": "U64", "shape": [numbers.len()]});
        for (name, value) in members.as_object().into_iter().flatten() {
            entry[name] = value.clone();
        }
        blob(&mut recipe, "order", &longs(numbers), &entry);
        recipe
    };
    let good = held(&[7, 2, 8, 0], &json!({}));
    restored_files(
        cases,
        ("order-tensor", &["order.tensor", "cursor.canary"]),
        "An order whose ordinals stand in a tensor.",
        &value,
        straight(&good),
    );
    let mut refused = |slug: &str, rules: &[&str], fault: &str, recipe: &Recipe, code| {
        cases
            .case(&format!("resume/order-tensor-{slug}"), rules, fault)
            .over("bare")
            .effect(Effect::WrongResume)
            .request(offering(here(), &value).request())
            .rejects_recipe(recipe, &Bend::new("another tensor"), &[code]);
    };
    let dangling: [(&str, &str, Recipe); 4] = [
        (
            "shorter",
            "The tensor of an order has one ordinal less than n.",
            held(&[7, 2, 8], &json!({})),
        ),
        (
            "longer",
            "The tensor of an order has one ordinal more than n.",
            held(&[7, 2, 8, 0, 0], &json!({})),
        ),
        (
            "bytes",
            "The tensor of an order is of dtype U8.",
            held(&[7, 2, 8, 0], &json!({"dtype": "U8", "shape": [32]})),
        ),
        (
            "valid",
            "The tensor of an order has a padded shape.",
            held(&[7, 2, 8, 0], &json!({"valid": [3]})),
        ),
    ];
    for (slug, fault, recipe) in dangling {
        refused(slug, &["order.tensor"], fault, &recipe, Code::Dangling);
    }
    refused(
        "beyond",
        &["order.tensor", "order.domain"],
        "An ordinal in the tensor of an order is the number of records.",
        &held(&[7, 2, 9, 0], &json!({})),
        Code::BadPosition,
    );
    refused(
        "far-beyond",
        &["order.tensor", "order.domain"],
        "An ordinal in the tensor of an order is 2^64 - 1, which some languages take for -1.",
        &held(&[7, 2, u64::MAX, 0], &json!({})),
        Code::BadPosition,
    );
    cases
        .case(
            "resume/order-tensor-missing",
            &["order.tensor"],
            "The tensor of an order is not there.",
        )
        .over("bare")
        .effect(Effect::WrongResume)
        .request(offering(here(), &value).request())
        .rejects_recipe(
            &good,
            &bent(&good, &train(value.clone()), "/value/order/ordinals/tensor/2", &json!("none")),
            &[Code::Dangling],
        );
}

/// Forms of orders.
fn forms(cases: &mut Cases) {
    use Code::{BadMember, BadPosition};
    const FORM: &[&str] = &["order.form"];
    const DOMAIN: &[&str] = &["order.domain"];
    let torch = train(standing(&randperm(10, json!(42), "seed"), 10, (0, 0), &sampler(10, 42, 0)));
    let form = |slug, fault, pointer, value| (slug, FORM, fault, pointer, value, BadMember);
    let domain = |slug, fault, pointer, value| (slug, DOMAIN, fault, pointer, value, BadPosition);
    let of_torch: Vec<Wrong<'_>> = vec![
        form(
            "order-without-seed",
            "A computed order has no seed.",
            "/value/order/seed",
            Value::Null,
        ),
        form(
            "order-without-seed-rule",
            "A computed order does not say how epochs are seeded.",
            "/value/order/seed_rule",
            Value::Null,
        ),
        form(
            "order-unknown-member",
            "A computed order has a parameter that it does not take.",
            "/value/order/rounds",
            json!(4),
        ),
        form(
            "order-seed-negative",
            "The seed of an order is negative.",
            "/value/order/seed",
            json!(-1),
        ),
        form(
            "order-seed-2-64",
            "The seed of torch.randperm is 2^64.",
            "/value/order/seed",
            json!({"int": "18446744073709551616"}),
        ),
        form(
            "order-seed-float",
            "The seed of an order is a float.",
            "/value/order/seed",
            json!({"f64": "4045000000000000"}),
        ),
        form(
            "order-seed-rule-other",
            "Epochs are seeded by a rule that there is not.",
            "/value/order/seed_rule",
            json!("epoch"),
        ),
        form(
            "order-algorithm-missing",
            "An order has no algorithm.",
            "/value/order/algorithm",
            Value::Null,
        ),
        form("order-n-zero", "An order has no records.", "/value/order/n", json!(0)),
        domain(
            "order-n-beyond-source",
            "An order has one record more than its source.",
            "/value/order/n",
            json!(11),
        ),
    ];
    wrong_forms(cases, &torch, &of_torch);
    let grain = train(standing(&shuffle(7, 42, "seed", 6), 7, (0, 0), &[4, 6, 1, 2]));
    let of_grain: Vec<Wrong<'_>> = vec![
        form("order-rounds-odd", "Grain's order has five rounds.", "/value/order/rounds", json!(5)),
        form("order-rounds-two", "Grain's order has two rounds.", "/value/order/rounds", json!(2)),
        form(
            "order-rounds-1026",
            "Grain's order has 1026 rounds.",
            "/value/order/rounds",
            json!(1026),
        ),
        form(
            "order-seed-2-32",
            "The seed of Grain's order is 2^32.",
            "/value/order/seed",
            json!(1_u64 << 32),
        ),
    ];
    wrong_forms(cases, &grain, &of_grain);
    let wide = (1_u64 << 32) + 1;
    let mut node = leaf(wide, shuffle(1 << 32, 42, "seed", 4), 0, wrap(), 0);
    node["source"]["records"] = wide.into();
    wrong_forms(
        cases,
        &train(root(&node, 0, &bare(&[1_696_202_226]))),
        &[domain(
            "order-n-beyond-2-32",
            "Grain's order has 2^32 + 1 records.",
            "/value/order/n",
            json!(wide),
        )],
    );
    let listed = train(standing(&explicit(json!([8, 8, 0]), 3), 9, (0, 0), &[8, 8, 0]));
    let of_list: Vec<Wrong<'_>> = vec![
        domain(
            "order-ordinal-beyond",
            "An ordinal is the number of records.",
            "/value/order/ordinals/1",
            json!(9),
        ),
        domain(
            "order-ordinals-short",
            "A list of ordinals has one less than n.",
            "/value/order/ordinals",
            json!([8, 8]),
        ),
        domain(
            "order-ordinals-long",
            "A list of ordinals has one more than n.",
            "/value/order/ordinals",
            json!([8, 8, 0, 0]),
        ),
        (
            "order-ordinals-beyond-inline",
            &["order.form", "limit.value"],
            "A list of ordinals has 65537 of them.",
            "/value/order",
            explicit(json!(vec![0; 65_537]), 65_537),
            Code::Limit,
        ),
    ];
    wrong_forms(cases, &listed, &of_list);
}
