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
        "cursor train  permuted-index identity, epoch 2, at 8000 of 12000 records, 32000 consumed",
        // As --source takes it.
        &format!("source      {SOURCE}\n"),
        "optimizer main  adamw, 1 group, 1 param, step 1000",
        "rng dropout dp=1  philox4x32-10/torch-cuda, next 6ec7056b 62129d9b ebdefcb0 …, fork",
        "rng dropout  exact-if-axes-unchanged",
    ] {
        assert!(ran.out.contains(line), "{line}\n{}", ran.out);
    }
}

#[test]
fn a_checkpoint_without_records_says_so() {
    let program = Program::new();
    program.checkpoint();
    let ran = program.run("inspect ckpt --state");
    assert!(ran.out.contains("no records: tensors can be loaded"), "{}", ran.out);
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
    let object = program.json(&format!("{other} --demand fork"), 0);
    assert_eq!(grades(&object)[3], ("rng", "fork"));
    assert_eq!(object["refused"], Value::Null);
    let stream = &object["streams"][0];
    assert_eq!(stream["caches"], json!([]));
    let fork = json!({ "coordinate": [["dp", 2]], "manifest": object["digest"], "step": 1000 });
    assert_eq!(stream["fork"], fork);
    let again = program.json(&format!("{other} --demand none"), 0);
    assert_eq!(again["streams"], object["streams"], "two who resume so agree");
    let left_out = program.json(&format!("{other} --demand exact --leave-out dropout"), 0);
    assert_eq!(grades(&left_out)[0], ("cursor", "exact"));
    let text = program.run(&format!("{other} --demand fork")).out;
    let lineage =
        format!(", forked for dp=2 at step 1000 of {}\n", object["digest"].as_str().unwrap());
    assert!(text.contains(&lineage), "{text}");
}

/// Exactness is demanded unless something else is said, as a trainer demands it; all grades are told.
#[test]
fn a_refusal_stands_beside_all_grades_and_says_how_to_go_on() {
    let program = Program::new();
    let place = format!("inspect {EXAMPLE} --state --topology dp=3 --place dp=2");
    for demand in ["", " --demand exact"] {
        let object = program.json(&format!("{place}{demand}"), 1);
        assert_eq!((grades(&object)[0], grades(&object)[3]), (("cursor", "none"), ("rng", "fork")));
        assert_eq!(object["refused"]["code"], "not-exact");
        assert_eq!(object["refused"]["rule"], "restore.demand");
        assert_eq!(object["refused"]["record"], r#"["cursor","train",[]]"#);
        assert!(object["refused"]["message"].is_string() && object.get("error").is_none());
    }
    let ran = program.run(&place);
    assert_eq!(ran.exit, 1);
    let reason =
        format!("resume      cursor train  none  (its source was not offered: --source {SOURCE})");
    assert!(ran.out.contains(&reason), "{}", ran.out);
    assert!(ran.out.contains("resume      rng dropout  fork  (axis"), "{}", ran.out);
    for part in [
        "not-exact: record [\"cursor\",\"train\",[]]: ",
        "refused too: rng \"dropout\" (fork: axis \"dp\" had 2 places and has 3",
        &format!("--source {SOURCE} offers the data; --demand fork takes"),
        "--leave-out dropout does without",
    ] {
        assert!(ran.err.contains(part), "{part}\n{}", ran.err);
    }
    // What is about the place names it.
    let ran = program.run(&format!("{place} --source {SOURCE}"));
    assert!(ran.err.contains(r#"record ["rng","dropout",[["dp",2]]]"#), "{}", ran.err);
    assert!(ran.err.contains("for rng \"dropout\" at dp=2, found fork"), "{}", ran.err);
}

#[test]
fn names_that_no_record_has_are_mistakes_of_the_command_line() {
    let program = Program::new();
    let place = format!("inspect {EXAMPLE} --state --topology dp=2 --place dp=1");
    let other = SOURCE.replace("train=", "trainx=");
    for (flags, says) in [
        (format!("--source {other}"), "\"trainx\"; there is train"),
        (format!("--source {SOURCE} --leave-out dropuot"), "\"dropuot\"; there is train, dropout"),
    ] {
        let refused = program.json(&format!("{place} {flags}"), 2);
        assert_eq!(refused["error"]["code"], "bad-argument");
        assert!(refused["error"]["message"].as_str().unwrap().ends_with(says), "{refused}");
    }
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

/// A cursor that says how a batch is shared: that of the tour.
#[test]
fn a_place_is_told_what_it_takes_of_a_batch() {
    let program = Program::new();
    let toured = program.run("tour --keep kept --quiet");
    assert_eq!(toured.exit, 0, "{}{}", toured.out, toured.err);
    let saved = support::file(&program.path("kept/run"), "step-000000000005-", "");
    let state = format!("inspect {} --state", saved.display());
    let of = |flags: &str, exit| program.json(&format!("{state} {flags}"), exit);
    let cursor = of("--topology dp=4 --place dp=0 --demand none", 0)["records"][0].clone();
    let source = &cursor["value"]["source"];
    let source =
        format!("--source train={}:{}", source["records"], source["sha256"].as_str().unwrap());
    let text = program.run(&state).out;
    assert!(text.contains(&source.replace("--source ", "source      ")), "{text}");

    // Some of the records are left out at the end of each epoch.
    assert!(text.contains("at 240 of 3532 records (the epoch ends at 3504)"), "{text}");

    // The shares of all ranks are the batch, whatever their number.
    for ranks in [1, 3, 4] {
        let mut batch = Vec::new();
        for rank in 0..ranks {
            let place = format!("--topology dp={ranks} --place dp={rank} {source} --share");
            let shared = of(&place, 0)["cursors"][0]["share"].clone();
            batch.extend(shared.as_array().unwrap().iter().cloned());
        }
        assert_eq!(batch.len(), 48, "{ranks}");
        assert_eq!(batch[..4], cursor["value"]["next"]["first"].as_array().unwrap()[..]);
    }
    let place = format!("--topology dp=4 --place dp=1 {source}");
    assert!(of(&place, 0)["cursors"][0].get("share").is_none());
    let text = program.run(&format!("{state} {place} --share"));
    let says =
        "cursor      train  rank 1 of 4: takes 12 of 48 items contiguously\nshare       train  ";
    assert!(text.out.contains(says), "{}", text.out);
    // The worked example says nothing of it.
    let says = "share       train  no partition is recorded";
    let own = "--topology dp=2 --place dp=1 --share";
    let text = program.run(&format!("inspect {EXAMPLE} --state {own} --source {SOURCE}"));
    assert!(text.exit == 0 && text.out.contains(says), "{}{}", text.out, text.err);

    // The grade does not depend on it; who asks for a share is refused.
    for (elsewhere, says) in [
        ("--topology ep=5 --place ep=1", "cannot share: axis \"dp\" is not there (cursor.share)"),
        (
            "--topology dp=5 --place dp=1",
            "cannot share 48 items contiguously among 5 (cursor.share)",
        ),
    ] {
        let text = program.run(&format!("{state} {elsewhere} {source}"));
        assert_eq!(text.exit, 0, "{}", text.err);
        assert!(text.out.contains(&format!("cursor      train  {says}\n")), "{}", text.out);
        let refused = of(&format!("{elsewhere} {source} --share"), 1);
        assert_eq!(grades(&refused)[0], ("cursor", "exact"));
        assert_eq!(refused["refused"]["code"], "not-exact");
        assert_eq!(refused["refused"]["rule"], "cursor.share");
        assert_eq!(refused["cursors"][0]["share"], Value::Null);
    }
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
