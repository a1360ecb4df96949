//! `order` from the outside: ordinals as the frameworks give them, and what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "a test says where it fails by panicking"
)]

mod support;

use serde_json::json;
use support::Program;

const TORCH: &str = "order --algorithm torch.randperm-cpu";
const GRAIN: &str = "order --algorithm grain.index_shuffle";

#[test]
fn ordinals_one_a_line() {
    let program = Program::new();
    let lines = |arguments: &str| -> Vec<u64> {
        let ran = program.run(arguments);
        assert_eq!(ran.exit, 0, "{}", ran.err);
        ran.out.lines().map(|line| line.parse().unwrap()).collect()
    };
    assert_eq!(lines(&format!("{TORCH} --n 10 --seed 42")), [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]);
    assert_eq!(lines(&format!("{TORCH} --n 10 --seed 42 --start 7 --count 2")), [9, 3]);
    assert_eq!(lines(&format!("{TORCH} --n 10 --seed 40 --epoch 2 --count 3")), [2, 6, 1]);
    assert_eq!(lines(&format!("{GRAIN} --n 1000 --seed 42 --count 4")), [394, 591, 809, 524]);
    assert_eq!(
        lines(&format!("{GRAIN} --n 4294967296 --seed 42 --start 4294967295")),
        [3_014_573_046]
    );
    assert_eq!(lines("order --algorithm identity --n 3 --epoch 9"), [0, 1, 2]);
}

#[test]
fn one_object_with_a_digest() {
    let program = Program::new();
    let all = program.json(&format!("{TORCH} --n 1000 --seed 42 --count 1000"), 0);
    assert_eq!(all["sha256"], "ac5c22de20fc5d169c3080fbf2719977f1c5e187f76217d18f95047e3cf159d6");
    let few = program.json(&format!("{GRAIN} --n 3 --seed 41 --epoch 1"), 0);
    let sha256 = "ab25350e3e65efebe24584461683ecda68725576e825e550038b90e7b1479946";
    assert_eq!(
        few,
        json!({
            "algorithm": "grain.index_shuffle", "n": 3, "seed": 41, "epoch": 1,
            "ordinals": [0, 1, 2], "sha256": sha256,
        })
    );
    let identity = program.json("order --algorithm identity --n 5 --count 1", 0);
    assert_eq!((&identity["seed"], &identity["epoch"]), (&json!(null), &json!(null)));
}

#[test]
fn what_is_refused_says_why() {
    let program = Program::new();
    for (arguments, says) in [
        (format!("{TORCH} --n 10"), "--seed"),
        (format!("{TORCH} --n 0 --seed 1"), "--n"),
        (format!("{TORCH} --n 10 --seed 1 --start 10"), "--start"),
        (format!("{TORCH} --n 10 --seed 1 --rounds 4"), "--rounds"),
        (format!("{TORCH} --n 10 --seed 1 --count 0"), "--count"),
        (format!("{GRAIN} --n 10 --seed 4294967296"), "--seed"),
        (format!("{GRAIN} --n 10 --seed 1 --rounds 5"), "--rounds"),
        (format!("{GRAIN} --n 4294967297 --seed 1"), "--n"),
        ("order --algorithm identity --n 10 --seed 1".to_owned(), "--seed"),
        (format!("{TORCH} --n 10 --seed -1"), "expected an integer from 0 to 18446744073709551615"),
        (format!("{TORCH} --n 10 --seed 18446744073709551616"), "from 0 to 18446744073709551615"),
        (
            "order --algorithm explicit --n 10".to_owned(),
            "its ordinals stand in the record; expected one of identity, torch.randperm-cpu",
        ),
        (
            "order --algorithm python.shuffle --n 10".to_owned(),
            "it is carried in records, not computed; expected one of identity, torch.randperm-cpu",
        ),
        (
            "order --algorithm pyhton.shuffle --n 10".to_owned(),
            "'--algorithm <ID>': expected one of",
        ),
    ] {
        let ran = program.run(&arguments);
        assert_eq!(ran.exit, 2, "{arguments}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(says), "{arguments}: {}", ran.err);
    }
    // More than fits any memory is refused before it is tried.
    let ran = program.run(&format!("{TORCH} --n 9007199254740991 --seed 1"));
    assert_eq!(ran.exit, 1, "{}", ran.err);
    assert!(ran.err.contains("limit:"), "{}", ran.err);
}
