//! Chapters 18.1 and 18.3: positions and ends of epochs, and the canary of a cursor.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::Cases;
use super::asking::here;
use super::held::{Wrong, bent, recipe, wrong_forms};
use super::items::{bare, canary, identity, leaf, offering, restored, root, stop, train, wrap};
use super::orders::{randperm, sampler};
use super::vectors;
use crate::bend::Bend;
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    epochs(cases);
    bounds(cases);
}

/// How epochs end.
fn epochs(cases: &mut Cases) {
    let padded = |n: u64, unit: u64, epoch: u64| {
        let row =
            json!({"epoch": epoch, "epoch_end": {"rule": "pad", "unit": unit}, "n": n, "seed": 42});
        vectors::order("torch.utils.data.DistributedSampler", &row)
    };
    let torch = |n: u64| randperm(n, json!(42), "seed+epoch");
    let pad = |unit: u64| json!({"rule": "pad", "unit": unit});
    let drop = |unit: u64| json!({"rule": "drop-last", "unit": unit});
    let (zero, one) = (sampler(10, 42, 0), sampler(10, 42, 1));
    let rows: Vec<(&str, &str, Value, u64, Vec<u64>)> = vec![
        (
            "drop-last",
            "The last records of an epoch that fill no unit are dropped.",
            leaf(10, torch(10), 0, drop(4), 6),
            6,
            [&zero[6..8], &one[..8]].concat(),
        ),
        (
            "pad",
            "An epoch is padded from its own beginning.",
            leaf(10, torch(10), 0, pad(4), 9),
            9,
            [&padded(10, 4, 0)[9..], &padded(10, 4, 1)].concat(),
        ),
        (
            "pad-around",
            "An epoch of three records is padded to eight: its order is gone round more than once.",
            leaf(3, torch(3), 0, pad(8), 2),
            2,
            [&padded(3, 8, 0)[2..], &padded(3, 8, 1)].concat(),
        ),
        (
            "wrap",
            "After the last item of an epoch comes the first of the next.",
            leaf(10, identity(10), 7, wrap(), 9),
            79,
            vec![9, 0, 1],
        ),
        (
            "at-the-end",
            "All items of an epoch are consumed: the cursor stays there, and the next item is the next epoch's.",
            leaf(10, torch(10), 0, drop(4), 8),
            8,
            one[..5].to_vec(),
        ),
        (
            "stop",
            "A cursor that ends with its epoch, two items before.",
            leaf(10, identity(10), 0, stop(), 8),
            8,
            vec![8, 9],
        ),
        (
            "ended",
            "A cursor that has ended: nothing comes, and the canary has no items.",
            leaf(10, identity(10), 0, stop(), 10),
            10,
            vec![],
        ),
        (
            "largest-epoch",
            "The last epoch that a record can count; what comes is computed beyond it.",
            leaf(3, identity(3), MAX, wrap(), 2),
            MAX,
            vec![2, 0, 1, 2],
        ),
        (
            "largest-seed-and-epoch",
            "The seed 2^53 - 1 in epoch 2^53 - 1: their sum has 54 bits.",
            leaf(1, randperm(1, json!(MAX), "seed+epoch"), MAX, wrap(), 1),
            MAX,
            vec![0, 0],
        ),
        (
            "fewer-than-source",
            "An order of the first three of ten records.",
            leaf(10, identity(3), 0, wrap(), 2),
            2,
            vec![2, 0],
        ),
    ];
    for (slug, what, node, consumed, items) in rows {
        restored(
            cases,
            (&format!("epoch-{slug}"), &["cursor.canary", "cursor.position"]),
            what,
            &root(&node, consumed, &bare(&items)),
        );
    }
    let many: Vec<u64> = (0..65_536).map(|at| at % 10).collect();
    restored(
        cases,
        ("canary-longest", &["cursor.canary-there", "cursor.canary"]),
        "A canary over 65536 items, as many as it may cover.",
        &root(&leaf(10, identity(10), 0, wrap(), 0), 0, &bare(&many)),
    );
}

const MAX: u64 = (1 << 53) - 1;

/// Canaries and positions of a leaf.
fn bounds(cases: &mut Cases) {
    let torch =
        || leaf(10, randperm(10, json!(42), "seed"), 0, json!({"rule": "drop-last", "unit": 4}), 2);
    let value = root(&torch(), 12, &bare(&[1, 8, 4, 5, 0, 9, 2]));
    let record = train(value);
    let position: &[&str] = &["cursor.position"];
    let table: Vec<Wrong<'_>> = vec![
        (
            "cursor-position-beyond",
            position,
            "A position is one beyond the items of an epoch.",
            "/value/position",
            json!(9),
            Code::BadPosition,
        ),
        (
            "cursor-unit-beyond",
            position,
            "An epoch whose last records are dropped has no items left.",
            "/value/epoch_end/unit",
            json!(11),
            Code::BadPosition,
        ),
        (
            "cursor-consumed-less",
            position,
            "Less was consumed of all epochs than of this one.",
            "/value/consumed",
            json!(1),
            Code::BadPosition,
        ),
        (
            "cursor-without-canary",
            &["cursor.canary-there"],
            "A computed cursor has no `next`.",
            "/value/next",
            Value::Null,
            Code::BadMember,
        ),
        (
            "cursor-canary-first-short",
            &["cursor.canary-there"],
            "A canary over seven items writes three of them.",
            "/value/next/first",
            json!([1, 8, 4]),
            Code::BadMember,
        ),
        (
            "cursor-canary-first-long",
            &["cursor.canary-there"],
            "A canary writes five of its items.",
            "/value/next/first",
            json!([1, 8, 4, 5, 0]),
            Code::BadMember,
        ),
        (
            "cursor-canary-beyond",
            &["cursor.canary-there", "limit.value"],
            "A canary covers 65537 items.",
            "/value/next/count",
            json!(65_537),
            Code::Limit,
        ),
    ];
    wrong_forms(cases, &record, &table);
    let held = recipe(std::slice::from_ref(&record));
    let mut mismatch = |slug: &str, fault: &str, pointer: &str, value: Value| {
        cases
            .case(&format!("resume/cursor-{slug}"), &["cursor.canary", "restore.canary"], fault)
            .over("bare")
            .effect(Effect::WrongResume)
            .request(offering(here(), &record).request())
            .rejects_recipe(
                &held,
                &bent(&held, &record, &format!("/value{pointer}"), &value),
                &[Code::CanaryMismatch],
            );
    };
    let seven = |items: [u64; 7]| canary(&bare(&items));
    mismatch(
        "position-one-behind",
        "The position is one less than the canary's: a record would be seen twice.",
        "/position",
        json!(1),
    );
    mismatch(
        "position-one-ahead",
        "The position is one more than the canary's: a record would be skipped.",
        "/position",
        json!(3),
    );
    mismatch("other-seed", "The seed is another one.", "/order/seed", json!(43));
    mismatch(
        "other-epoch-rule",
        "The canary is of an epoch that drops its last records, the cursor's does not.",
        "/epoch_end",
        wrap(),
    );
    mismatch(
        "canary-digest",
        "The first items of the canary are right, its digest is not.",
        "/next/sha256",
        "00".repeat(32).into(),
    );
    mismatch(
        "canary-first",
        "The digest of the canary is right, an item that it writes is not.",
        "/next/first/3",
        json!(4),
    );
    mismatch(
        "canary-fifth",
        "Only the fifth item of the canary is another one.",
        "/next",
        seven([1, 8, 4, 5, 3, 9, 2]),
    );
    mismatch(
        "canary-swapped",
        "Two items of the canary are swapped.",
        "/next",
        seven([8, 1, 4, 5, 0, 9, 2]),
    );
    mismatch(
        "canary-empty",
        "The canary has no items, and the cursor goes on.",
        "/next",
        canary(&[]),
    );
    let short = train(root(&leaf(10, identity(10), 0, stop(), 8), 8, &bare(&[8, 9, 0])));
    let held = recipe(std::slice::from_ref(&short));
    cases
        .case(
            "resume/cursor-canary-past-end",
            &["cursor.canary"],
            "The canary has three items of a cursor that ends after two.",
        )
        .over("bare")
        .effect(Effect::WrongResume)
        .request(offering(here(), &short).request())
        .rejects_recipe(&held, &Bend::new("an item more"), &[Code::CanaryMismatch]);
}
