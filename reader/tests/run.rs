//! Which attempt of a run is the one to resume from, and what is said of the others.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests: a failure is a panic"
)]

mod support;

use std::path::Path;
use std::sync::Arc;

use support::{Files, Making, put_all, small};
use waystation_format::{Attempt, Code, names};
use waystation_reader::run::{self, State};
use waystation_store::testing::{Errno, FailingFs, Op};
use waystation_store::{DirStore, MemoryFs, Put, Store};

fn making(timeline: u32, step: u64, nonce: u32) -> Making {
    let progress = format!(r#"{{"optimizer_step":{step}}}"#);
    let mut making = Making::new(1).record("progress", "main", &progress);
    making.step = step;
    making.attempt = Attempt { timeline, nonce };
    making
}

fn add(run: &dyn Store, making: &Making, change: impl FnOnce(&mut Files)) -> String {
    let name = names::attempt_dir(making.step, &making.attempt);
    let mut files = making.files();
    change(&mut files);
    put_all(&*run.make_dir(&name).unwrap(), &files);
    name
}

fn mark(name: &str, text: &str) -> impl FnOnce(&mut Files) {
    move |files| drop(files.insert(name.to_owned(), text.as_bytes().to_vec()))
}

fn skipped(latest: &run::Latest) -> Vec<(&str, Code)> {
    latest.skipped.iter().map(|(name, e)| (name.as_str(), e.code())).collect()
}

#[test]
fn an_empty_run_has_no_checkpoint() {
    let run = MemoryFs::new().store();
    assert_eq!(run::latest(&run).unwrap_err().code(), Code::NoCheckpoint);
    assert!(run::list(&run).unwrap().is_empty());
    // Other names are not looked at, whatever they hold.
    put_all(&*run.make_dir("step-1000").unwrap(), &small().files());
    assert_eq!(run.put_new("lost+found", b"x").unwrap(), Put::Created);
    assert_eq!(run::latest(&run).unwrap_err().code(), Code::NoCheckpoint);
    assert!(run::list(&run).unwrap().is_empty());
}

#[test]
fn the_timeline_counts_before_the_step_and_the_step_before_the_attempt() {
    let run = MemoryFs::new().store();
    let first = add(&*run, &making(1, 900, 7), |_| {});
    assert_eq!(run::latest(&run).unwrap().name, first);
    let second = add(&*run, &making(2, 600, 7), |_| {});
    assert_eq!(run::latest(&run).unwrap().name, second);
    let third = add(&*run, &making(2, 600, 0x8000_0000), |_| {});
    let latest = run::latest(&run).unwrap();
    assert_eq!((latest.name.as_str(), latest.step), (third.as_str(), 600));
    assert!(latest.skipped.is_empty());
    let fourth = add(&*run, &making(2, 1000, 1), |_| {});
    let latest = run::latest(&run).unwrap();
    assert_eq!(latest.name, fourth);
    let options = waystation_reader::OpenOptions::new();
    let opened = waystation_reader::Checkpoint::open_store(latest.store, options).unwrap();
    assert_eq!(opened.digest(), latest.digest);
    let names: Vec<String> = run::list(&run).unwrap().into_iter().map(|l| l.name).collect();
    assert_eq!(names, [second, third, first, fourth]);
}

#[test]
fn what_is_not_complete_is_passed_over_and_reported() {
    let run = MemoryFs::new().store();
    let good = add(&*run, &making(1, 1, 1), |_| {});
    let uncommitted = add(&*run, &making(1, 2, 1), |files| drop(files.remove(names::COMMIT)));
    let deleted = add(&*run, &making(1, 3, 1), mark("deleted", ""));
    let rejected = add(&*run, &making(1, 4, 1), mark("rejected", "loss is NaN"));
    let missing = add(&*run, &making(1, 5, 1), |files| {
        let page = support::name_of(files, "records-");
        files.remove(&page);
    });
    // A copy under another name.
    let renamed = names::attempt_dir(6, &Attempt { timeline: 1, nonce: 1 });
    put_all(&*run.make_dir(&renamed).unwrap(), &making(1, 1, 1).files());
    // A file that looks like an attempt, and a pinned good one with an older step.
    let file = names::attempt_dir(7, &Attempt { timeline: 1, nonce: 1 });
    assert_eq!(run.put_new(&file, b"").unwrap(), Put::Created);
    let pinned = add(&*run, &making(1, 0, 1), mark("pin-best", ""));

    let latest = run::latest(&run).unwrap();
    assert_eq!(latest.name, good);
    assert_eq!(
        skipped(&latest),
        [
            (renamed.as_str(), Code::NameDisagrees),
            (missing.as_str(), Code::FileMissing),
            (rejected.as_str(), Code::Rejected),
            (deleted.as_str(), Code::Deleted),
            (uncommitted.as_str(), Code::NotCommitted),
        ]
    );
    assert!(latest.skipped[2].1.message().contains("loss is NaN"));

    let listed = run::list(&run).unwrap();
    let state = |name: &str| listed.iter().find(|l| l.name == name).unwrap();
    assert!(matches!(state(&good).state, State::Complete { bytes: 1.., .. }));
    assert_eq!(state(&pinned).marks.pins, ["best"]);
    assert!(matches!(state(&pinned).state, State::Complete { .. }));
    assert_eq!(state(&rejected).marks.rejected.as_deref(), Some("loss is NaN"));
    assert!(matches!(state(&rejected).state, State::Complete { .. }));
    assert!(matches!(state(&uncommitted).state, State::Uncommitted));
    assert!(matches!(state(&deleted).state, State::Deleted));
    assert!(matches!(&state(&missing).state, State::Damaged(e) if e.code() == Code::FileMissing));
    assert!(matches!(&state(&renamed).state, State::Damaged(e) if e.code() == Code::NameDisagrees));
    assert!(listed.iter().all(|listed| listed.name != file));
}

#[test]
fn checkpoints_that_are_all_lost_are_no_fresh_start() {
    let run = MemoryFs::new().store();
    // What died before its first commit, or is being removed, is one.
    let uncommitted = add(&*run, &making(1, 2, 1), |files| drop(files.remove(names::COMMIT)));
    let deleted = add(&*run, &making(1, 3, 1), mark("deleted", ""));
    let e = run::latest(&run).unwrap_err();
    assert_eq!((e.code(), e.rule_id()), (Code::NoCheckpoint, Some("run.latest")));
    assert!([&uncommitted, &deleted].iter().all(|name| e.message().contains(*name)), "{e}");

    let missing = add(&*run, &making(1, 1, 1), |files| {
        let page = support::name_of(files, "records-");
        files.remove(&page);
    });
    let e = run::latest(&run).unwrap_err();
    assert_eq!((e.code(), e.rule_id()), (Code::NoneResumable, Some("run.none")));
    assert!(e.message().contains("none of the 1 in the run"), "{e}");
    assert!(e.message().contains(&format!("; {missing}: file-missing: ")), "{e}");

    let rejected = add(&*run, &making(1, 0, 1), mark("rejected", "x"));
    let e = run::latest(&run).unwrap_err();
    assert_eq!(e.code(), Code::NoneResumable);
    assert!(e.message().contains("none of the 2 in the run") && e.message().contains(&rejected));

    // A long run does not make a long message.
    for step in 10..20 {
        add(&*run, &making(1, step, 1), mark("rejected", "x"));
    }
    let e = run::latest(&run).unwrap_err();
    assert!(e.message().ends_with("; and 6 more"), "{e}");

    add(&*run, &making(1, 0, 2), |_| {});
    assert_eq!(run::latest(&run).unwrap().skipped.len(), 13);
}

#[test]
fn a_newer_one_that_this_reader_does_not_support_is_an_error() {
    let run = MemoryFs::new().store();
    let old = add(&*run, &making(1, 1, 1), |_| {});
    let newer = add(&*run, &making(2, 1, 1), |files| {
        let text = String::from_utf8(files[names::MANIFEST].clone()).unwrap();
        let raw = text.replace("\"version\":\"1.0\"", "\"version\":\"2.0\"").into_bytes();
        support::commit(files, raw);
    });
    let e = run::latest(&run).unwrap_err();
    assert_eq!(e.code(), Code::UnsupportedVersion);
    assert!(e.location().file.as_deref().unwrap().starts_with(&newer));
    let listed = run::list(&run).unwrap();
    assert!(matches!(listed[1].state, State::Unsupported(_)));
    // Rejected, it does not matter.
    let directory = run.dir(&newer).unwrap().unwrap();
    assert_eq!(directory.put_new("rejected", b"").unwrap(), Put::Created);
    assert_eq!(run::latest(&run).unwrap().name, old);
}

#[test]
fn an_error_of_the_system_is_not_absence() {
    let memory = MemoryFs::new();
    let run = memory.store();
    let old = add(&*run, &making(1, 1, 1), |_| {});
    let new = add(&*run, &making(1, 2, 1), |_| {});
    let failing = Arc::new(FailingFs::new(memory));
    let store: Arc<dyn Store> =
        Arc::new(DirStore::open(Arc::clone(&failing), Path::new("/")).unwrap());
    for (op, file) in [
        (Op::OpenDir, String::new()),
        (Op::List, String::new()),
        (Op::Stat, "/manifest.json".to_owned()),
        (Op::OpenRead, "/waystation.commit".to_owned()),
        (Op::ReadAt, "/waystation.commit".to_owned()),
        (Op::ReadAt, "/manifest.json".to_owned()),
    ] {
        failing.fail_on(op, &format!("{new}{file}"), Errno::IO);
        let e = run::latest(&store).unwrap_err();
        assert_eq!(e.code(), Code::Io, "{op:?} {file}");
        assert!(e.location().file.as_deref().unwrap().contains(&new), "{e}");
        let listed = run::list(&store).unwrap();
        assert!(matches!(listed[1].state, State::Unreadable(_)), "{op:?} {file}");
        assert!(matches!(listed[0].state, State::Complete { .. }));
        failing.heal();
        // An older one that cannot be read does not matter.
        failing.fail_on(op, &format!("{old}{file}"), Errno::IO);
        assert_eq!(run::latest(&store).unwrap().name, new);
        failing.heal();
    }
    failing.fail_always(Op::List, Errno::ACCESS);
    assert_eq!(run::latest(&store).unwrap_err().code(), Code::IoDenied);
}

/// The newer one is complete and the older one gone, but not yet when the run was listed.
#[test]
fn a_keeper_at_work_leaves_no_moment_without_a_checkpoint() {
    let memory = MemoryFs::new();
    let failing = Arc::new(FailingFs::new(memory.clone()));
    let run: Arc<dyn Store> =
        Arc::new(DirStore::open(Arc::clone(&failing), Path::new("/")).unwrap());
    let old = add(&*run, &making(1, 1, 0), |_| {});
    let new = making(2, 1, 0);
    let files = new.files();
    let name = add(&*run, &new, |files| drop(files.remove(names::COMMIT)));
    let commit = files[names::COMMIT].clone();
    let (to, new) = (memory, name.clone());
    // The first directory opened is the newer one, the second the older one.
    failing.before(Op::OpenDir, 2, move || {
        to.set(format!("{new}/{}", names::COMMIT), commit).unwrap();
        to.set(format!("{old}/{}", names::DELETED), Vec::new()).unwrap();
    });
    assert_eq!(run::latest(&run).unwrap().name, name);
}
