//! Copies: the same files, proven on their way, the commit file last.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::sync::Arc;

use waystation_format::{Code, names};
use waystation_reader::NoProgress;
use waystation_store::testing::{Errno, Op};
use waystation_store::{MemoryFs, Store};
use waystation_writer::{CommitOptions, commit, copy, copy_into, pin, reject};

use support::*;

fn original() -> (MemoryFs, String, Arc<dyn Store>, Vec<Model>) {
    let (memory, run) = memory_run();
    let models = sample(2);
    let (name, attempt, _) = save(&run, &plan(&run, 2), 5, &models).unwrap();
    (memory, name, attempt, models)
}

fn names_in(store: &Arc<dyn Store>) -> Vec<String> {
    store.list().unwrap().into_iter().map(|listed| listed.name).collect()
}

#[test]
fn a_copy_has_the_same_files() {
    let (memory, name, from, models) = original();
    pin(&from, "here").unwrap();
    reject(&from, "bad").unwrap();
    let (fs, far, run) = failing_run();
    let copied = copy_into(&from, &run, &name, &NoProgress).unwrap();
    let to = run.dir(&name).unwrap().unwrap();
    check_equal(&to, &models);
    let expected: Vec<String> =
        names_in(&from).into_iter().filter(|name| name != "pin-here").collect();
    assert_eq!(names_in(&to), expected);
    for file in &expected {
        let path = format!("{name}/{file}");
        assert_eq!(memory.bytes(&path).unwrap(), far.bytes(&path).unwrap(), "{file}");
    }
    assert_eq!(copied.digest, open(&from).digest());
    assert_eq!(copied.files, u64::try_from(expected.len() - 1).unwrap(), "all but the marker");
    let changes = fs.changes();
    let place = |end: &str| changes.iter().position(|line| line.ends_with(end)).unwrap();
    let commit = place("/waystation.commit");
    assert!(place("/rejected") < commit && place("/manifest.json") < commit);
    let syncs = |line: &&String| **line == format!("fsync {name}");
    assert_eq!(changes[..commit].iter().filter(syncs).count(), 2);
    // All that the parts name has its bytes and its name before any part is there.
    let synced = changes.iter().position(|line| syncs(&line)).unwrap();
    let last = |begin: &str| {
        let begin = format!("{begin} {name}/");
        changes.iter().rposition(|line| line.starts_with(&begin) && line.ends_with(".safetensors"))
    };
    assert!(last("close").unwrap() < synced);
    let first = changes.iter().position(|line| line.contains("/part-")).unwrap();
    assert!(synced < first && first < commit);
    assert_eq!(changes[commit..].iter().filter(syncs).count(), 1);
    assert_eq!(changes.last().unwrap(), "fsync .");
}

#[test]
fn a_name_that_is_there_is_left_alone() {
    let (_, name, from, _) = original();
    let (_, run) = memory_run();
    run.make_dir(&name).unwrap();
    assert_eq!(copy_into(&from, &run, &name, &NoProgress).unwrap_err().code(), Code::Exists);
    let to = run.make_dir("other").unwrap();
    to.put_new("file", b"").map(drop).unwrap();
    assert_eq!(copy(&from, &to, &NoProgress).unwrap_err().code(), Code::Exists);
}

#[test]
fn what_is_no_checkpoint_is_not_copied() {
    let (_, from) = memory_run();
    let (_, run) = memory_run();
    assert_eq!(copy_into(&from, &run, "x", &NoProgress).unwrap_err().code(), Code::NotCommitted);
    assert!(names_in(&run).is_empty());
}

/// One bit of every named file.
#[test]
fn damage_is_seen_on_the_way_and_leaves_no_checkpoint() {
    let (memory, name, from, _) = original();
    for file in names_in(&from) {
        let path = format!("{name}/{file}");
        let good = memory.bytes(&path).unwrap();
        for at in (0..good.len()).step_by(211).chain([good.len() - 1]) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            memory.set(&path, bad).unwrap();
            let (_, run) = memory_run();
            let error = copy_into(&from, &run, "copy", &NoProgress).unwrap_err();
            assert!(error.location().file.is_some(), "{file} {at}: {error}");
            if let Some(to) = run.dir("copy").unwrap() {
                assert!(to.stat(names::COMMIT).unwrap().is_none(), "{file} {at}");
            }
        }
        memory.set(&path, good).unwrap();
    }
}

/// Nobody wants a copy of what a keeper removes, and its marker comes while the copy is made.
#[test]
fn what_is_removed_meanwhile_is_not_copied() {
    let (memory, name, from, _) = original();
    let (fs, _, run) = failing_run();
    fs.before(Op::Link, 1, move || memory.set(format!("{name}/deleted"), b"".to_vec()).unwrap());
    let error = copy_into(&from, &run, "copy", &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::Deleted);
    assert!(run.dir("copy").unwrap().unwrap().stat(names::COMMIT).unwrap().is_none());
}

#[test]
fn whatever_call_fails_there_is_no_half_copy() {
    let (_, name, from, models) = original();
    for op in [Op::MakeDir, Op::Create, Op::WriteAt, Op::SyncFile, Op::Close, Op::SyncDir, Op::Link]
    {
        for nth in 1.. {
            let (fs, memory, run) = failing_run();
            fs.fail(op, nth, Errno::IO);
            let copied = copy_into(&from, &run, &name, &NoProgress);
            let hit = fs.log().iter().any(|line| line.ends_with(" failed"));
            assert_eq!(copied.is_err(), hit, "{op:?} {nth}");
            let linked = fs.changes().iter().any(|line| line.ends_with(names::COMMIT));
            if let Some(to) = memory.store().dir(&name).unwrap()
                && !linked
            {
                assert!(to.stat(names::COMMIT).unwrap().is_none());
                // Nor does anybody make a checkpoint of it that is not the whole one.
                if commit(&to, &CommitOptions::default(), &NoProgress).is_ok() {
                    check_equal(&to, &models);
                }
            }
            if !hit {
                break;
            }
        }
    }
}

#[test]
fn a_copy_in_a_run_keeps_its_name() {
    let (_, _, from, _) = original();
    let (_, run) = memory_run();
    let other = "step-000000000006-0000000100000000";
    let error = copy_into(&from, &run, other, &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::NameDisagrees);
    assert!(names_in(&run).is_empty());
    copy_into(&from, &run, "alone", &NoProgress).unwrap();
}
