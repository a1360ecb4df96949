//! Resume state from the outside: `inspect --state` for this topology and another, `diff` and
//! `verify` of what records say.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    unreachable_pub,
    dead_code,
    reason = "a test says where it fails by panicking"
)]

mod support;

use serde_json::{Value, json};
use support::Program;

/// The worked example of the specification: dp=2, a stream that varies over it, a cursor.
const EXAMPLE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../spec/example/step-000000001000-000000018280808e");
const SOURCE: &str = "train=12000:8b574fc88002b4e0754d9114c8d4eab3ca40195d21e935456d09ddf4b520337d";

fn grades(object: &Value) -> Vec<(&str, &str)> {
    let graded = object["resume"].as_array().unwrap();
    graded.iter().map(|g| (g["kind"].as_str().unwrap(), g["grade"].as_str().unwrap())).collect()
}

#[test]
fn records_are_told_in_words_and_graded() {
    let ran = Program::new().run(&format!("inspect {EXAMPLE} --state"));
    assert_eq!(ran.exit, 0, "{}", ran.err);
    for line in [
        "progress main  step 1000, epoch 2, samples 32000",
        "cursor train  permuted-index identity, epoch 2, at 8000 of 12000 records",
        "optimizer main  adamw, 1 group, 1 param, step 1000",
        "rng dropout dp=1  philox4x32-10/torch-cuda, next 6ec7056b 62129d9b ebdefcb0 …, fork",
        "rng dropout  exact-if-axes-unchanged",
    ] {
        assert!(ran.out.contains(line), "{line}\n{}", ran.out);
    }
}

#[test]
fn a_place_of_the_same_topology_gets_all_exactly() {
    let program = Program::new();
    let same = format!("inspect {EXAMPLE} --state --topology dp=2 --place dp=1 --demand exact");
    let object = program.json(&format!("{same} --source {SOURCE}"), 0);
    assert!(grades(&object).iter().all(|(_, grade)| *grade == "exact"), "{object}");
    let stream = &object["streams"][0];
    assert_eq!(stream["state"], "2b00000000000000a00f000000000000");
    assert_eq!(stream["next_raw"][0], "6ec7056b");
    assert_eq!(object["cursors"][0]["cursor"]["position"], 8000);
    // Its raw outputs are what `rng next` draws of the state.
    let drawn = program.json(
        "rng next --algorithm philox4x32-10/torch-cuda --state-hex 2b00000000000000a00f000000000000 --count 5",
        0,
    );
    assert_eq!(drawn["next_raw"], stream["next_raw"]);
}

#[test]
fn another_topology_forks_or_is_refused() {
    let program = Program::new();
    let other = format!("inspect {EXAMPLE} --state --topology dp=3 --place dp=2 --source {SOURCE}");
    let object = program.json(&other, 0);
    assert_eq!(grades(&object)[3], ("rng", "fork"));
    let again = program.json(&format!("{other} --demand fork"), 0);
    assert_eq!(again["streams"], object["streams"], "two who resume so agree");
    let refused = program.json(&format!("{other} --demand exact"), 1);
    assert_eq!(refused["error"]["code"], "not-exact");
    assert_eq!(refused["error"]["record"], r#"["rng","dropout",[["dp",0]]]"#);
    let left_out = program.json(&format!("{other} --demand exact --leave-out dropout"), 0);
    assert_eq!(grades(&left_out)[0], ("cursor", "exact"));
}

#[test]
fn other_data_and_bad_places_are_refused() {
    let program = Program::new();
    let state = format!("inspect {EXAMPLE} --state");
    let place = format!("{state} --topology dp=2 --place dp=0");
    let changed = SOURCE.replace("12000", "12001");
    let refused = program.json(&format!("{place} --source {changed}"), 1);
    assert_eq!(refused["error"]["code"], "source-changed");
    for bad in [
        "--topology dp=2 --place dp=2",
        "--topology dp=2 --place tp=0",
        "--topology dp --place dp=0",
        "--topology dp=2 --place dp=0 --source train",
        "--topology dp=2 --place dp=0 --demand perfect",
    ] {
        let refused = program.json(&format!("{state} {bad}"), 2);
        assert_eq!(refused["error"]["code"], "bad-argument", "{bad}");
    }
    // A topology without a place is a mistake of the command line.
    assert_eq!(program.run(&format!("{state} --topology dp=2")).exit, 2);
}

#[test]
fn diff_names_the_places_of_records_that_differ() {
    let program = Program::new();
    let toured = program.run("tour --keep kept --quiet");
    assert_eq!(toured.exit, 0, "{}{}", toured.out, toured.err);
    let mut saved: Vec<String> = std::fs::read_dir(program.path("kept/run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    saved.sort();
    let pair = format!("diff kept/run/{} kept/run/{}", saved[0], saved[1]);
    let ran = program.run(&pair);
    assert_eq!(ran.exit, 1, "{}", ran.err);
    for place in [
        r#"record ["progress","main",[]] /value/optimizer_step: 5 and 10"#,
        r#"record ["schedule","main",[]] /value/position/value: 5 and 10"#,
        r#"record ["cursor","train",[]] /value/consumed: 240 and 480"#,
        r#"record ["rng","dropout",[]] /value/next_raw/0: "#,
    ] {
        assert!(ran.out.contains(place), "{place}\n{}", ran.out);
    }
    let object = program.json(&pair, 1);
    let records = object["differences"].as_array().unwrap();
    let records = records.iter().filter(|one| one["what"] == "record");
    assert!(records.clone().count() > 4, "{object}");
    assert!(records.clone().all(|one| one["how"].as_str().unwrap().starts_with("/value/")));
    assert_eq!(program.json(&format!("verify kept/run/{}", saved[0]), 0)["notes"], json!([]));
}
