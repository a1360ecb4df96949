//! What adapters write is judged by what stands on disk, also when they are killed on the way.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{case, options, run, verdicts};
use waystation_conformance::case::{Case, Op, Outcome, Profile};
use waystation_conformance::files::Files;
use waystation_conformance::runner::{Verdict, reference};
use waystation_writer::Session;
use waystation_writer::{CommitOptions, SessionPlan, commit, make_attempt};

fn example() -> PathBuf {
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec/example");
    spec.join("step-000000001000-000000018280808e").canonicalize().unwrap()
}

/// A recipe that the adapter of the tests understands: to copy the example.
fn copy(more: Value) -> Case {
    let mut recipe = reference::save(&example()).unwrap();
    let writers = usize::try_from(recipe["writers"].as_u64().unwrap()).unwrap();
    recipe["writers"] = vec![json!({}); writers].into();
    recipe["step"] = 1000.into();
    recipe["copy"] = json!(example());
    recipe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut case = case("write");
    case.expect.id = "writer/copy".to_owned();
    case.expect.profile = Profile::Writer;
    case.expect.op = Op::Write;
    case.expect.request.insert("recipe".to_owned(), recipe);
    case.expect.answer = Some(json!({"projection": reference::content(&example()).unwrap()}));
    case.given = Files::new();
    case
}

#[test]
fn what_was_written_is_read() {
    let mut other = copy(json!({}));
    other.expect.answer.as_mut().unwrap()["projection"]["tensors"][0]["sha256"] = json!("00");
    let mut refused = copy(json!({}));
    refused.expect.outcome = Outcome::Reject;
    let linked = copy(json!({"link": true}));
    let deep = copy(json!({"directory": "attachments"}));
    let other_parent = copy(json!({"parent": "00".repeat(32)}));
    let cases = [
        copy(json!({})),
        copy(json!({"without": ["manifest.json"]})),
        other,
        refused,
        linked,
        deep,
        other_parent,
    ];
    let report = run(&cases, &options());
    let fail = Verdict::Fail;
    assert_eq!(verdicts(&report), [Verdict::Pass, fail, fail, fail, fail, fail, fail]);
    assert!(report.results[1].why[0].contains("file-missing"), "{:?}", report.results[1].why);
    assert!(report.results[2].why[0].contains("/tensors/0/sha256"), "{:?}", report.results[2].why);
    assert!(report.results[6].why[0].contains("/parent"), "{:?}", report.results[6].why);
}

/// A run with an older checkpoint, as `given`.
fn older() -> Files {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("run");
    let store = waystation_store::open_or_make_path(&path).unwrap();
    let plan = SessionPlan::next_in(&store, "demo", 1, Default::default()).unwrap();
    let (name, attempt) = make_attempt(&store, &plan, 1, 0).unwrap();
    let session = Session::begin(attempt.clone(), plan.common(1, 0), 0).unwrap();
    session.lay_out().unwrap().finish().unwrap();
    commit(&attempt, &CommitOptions::in_run(store, &name), &waystation_reader::NoProgress).unwrap();
    let mut files = BTreeMap::new();
    let mut folders = vec![path.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap().path();
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let name = entry.strip_prefix(&path).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(entry).unwrap());
            }
        }
    }
    files
}

fn durable(more: Value) -> Case {
    let mut case = copy(more);
    case.expect.id = "durability/copy".to_owned();
    case.expect.profile = Profile::Durability;
    case.given = older();
    case
}

#[test]
fn a_killed_save_leaves_the_old_checkpoint_or_the_new_one() {
    let good = durable(json!({"pause": 0.02}));
    let report = run(std::slice::from_ref(&good), &options());
    assert_eq!(verdicts(&report), [Verdict::Pass], "{:?}", report.results[0]);
    // One whose data come after the commit file looks the same when nobody kills it.
    let bad = durable(json!({"pause": 0.02, "data_last": true}));
    let mut unkilled = options();
    unkilled.kills = 0;
    assert_eq!(verdicts(&run(std::slice::from_ref(&bad), &unkilled)), [Verdict::Pass]);
    let mut often = options();
    often.kills = 8;
    let report = run(&[bad], &often);
    assert_eq!(verdicts(&report), [Verdict::Fail], "{:?}", report.results[0]);
    assert!(report.results[0].why[0].contains("killed"), "{:?}", report.results[0].why);
}
