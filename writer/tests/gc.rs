//! Keepers: what they remove, in which order, and what they never touch.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use waystation_format::{Code, Dtype, names};
use waystation_reader::{Marks, NoProgress, latest};
use waystation_store::testing::{CrashingFs, Errno, FailingFs, Op};
use waystation_store::{DirStore, Kind, PosixFs, Put, Store, open_path};
use waystation_writer::{
    CommitOptions, Fate, GcPolicy, GcReport, SessionPlan, Why, abandon, commit, delete, gc,
    make_attempt, pin, reject, unpin,
};

use support::*;

fn small() -> Vec<Model> {
    vec![Model::param("w", Dtype::F32, &[10])]
}

fn checkpoint(run: &Arc<dyn Store>, plan: &SessionPlan, step: u64) -> String {
    save(run, plan, step, &small()).unwrap().0
}

/// What a run holds beside claims of timelines, which are no business of a keeper.
fn names_in(run: &Arc<dyn Store>) -> Vec<String> {
    let names = run.list().unwrap().into_iter().map(|listed| listed.name);
    names.filter(|name| names::parse_timeline_claim(name).is_none()).collect()
}

fn whys(report: &GcReport) -> BTreeMap<String, Why> {
    report.items.iter().map(|item| (item.name.clone(), item.why)).collect()
}

#[test]
fn the_last_ones_and_every_tenth_are_kept() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let saved: Vec<String> = (1..=12).map(|i| checkpoint(&run, &plan, i * 5)).collect();
    let mut policy = GcPolicy::keep_last(2);
    policy.keep_every = Some(20);
    policy.dry_run = true;
    let planned = gc(&run, &policy).unwrap();
    assert_eq!(names_in(&run), saved, "a dry run removes nothing");
    policy.dry_run = false;
    let report = gc(&run, &policy).unwrap();
    assert_eq!(whys(&report), whys(&planned));
    let kept: Vec<&String> = [3, 7, 10, 11].iter().map(|&i| &saved[i]).collect();
    assert_eq!(names_in(&run).iter().collect::<Vec<_>>(), kept);
    assert_eq!(whys(&report)[&saved[11]], Why::Latest);
    assert_eq!(whys(&report)[&saved[10]], Why::Last);
    assert_eq!(whys(&report)[&saved[3]], Why::Every);
    assert_eq!(whys(&report)[&saved[4]], Why::Older);
    assert_eq!(latest(&run).unwrap().name, saved[11]);
}

#[test]
fn keeping_none_keeps_the_latest() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let saved: Vec<String> = (1..=3).map(|step| checkpoint(&run, &plan, step)).collect();
    gc(&run, &GcPolicy::keep_last(0)).unwrap();
    assert_eq!(names_in(&run), saved[2..]);
}

#[test]
fn a_newer_timeline_comes_before_a_higher_step() {
    let (_, run) = memory_run();
    let old = checkpoint(&run, &plan(&run, 1), 900);
    let new = checkpoint(&run, &plan(&run, 1), 600);
    let report = gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert_eq!(names_in(&run), std::slice::from_ref(&new));
    assert_eq!(whys(&report)[&old], Why::Older);
}

#[test]
fn pinned_ones_stay_and_rejected_ones_do_not_count() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let saved: Vec<String> = (1..=5).map(|step| checkpoint(&run, &plan, step)).collect();
    let at = |i: usize| run.dir(&saved[i]).unwrap().unwrap();
    pin(&at(0), "paper").unwrap();
    reject(&at(4), "loss spike").unwrap();
    let report = gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert_eq!(names_in(&run), [saved[0].clone(), saved[3].clone()]);
    assert_eq!(whys(&report)[&saved[0]], Why::Pinned);
    assert_eq!(whys(&report)[&saved[4]], Why::Rejected);
    assert_eq!(whys(&report)[&saved[3]], Why::Latest);
    unpin(&at(0), "paper").unwrap();
    gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert_eq!(names_in(&run), [saved[3].clone()]);
}

/// On a real file system, whose directories know when they changed.
#[test]
fn uncommitted_ones_go_when_succeeded_or_stale() {
    let directory = tempfile::tempdir().unwrap();
    let run = open_path(directory.path()).unwrap();
    let first = plan(&run, 1);
    let (lost, _) = make_attempt(&run, &first, 3, 0).unwrap();
    let second = plan(&run, 1);
    let good = checkpoint(&run, &second, 2);
    let (young, _) = write_parts(&run, &second, 9, &small()).unwrap();
    let mut policy = GcPolicy::keep_last(1);
    policy.uncommitted_older_than = Some(Duration::from_secs(3600));
    let report = gc(&run, &policy).unwrap();
    assert_eq!(whys(&report)[&lost], Why::Succeeded);
    assert_eq!(whys(&report)[&young], Why::Writing);
    assert_eq!(names_in(&run), [good.clone(), young.clone()]);
    std::thread::sleep(Duration::from_millis(20));
    policy.uncommitted_older_than = Some(Duration::from_millis(10));
    let report = gc(&run, &policy).unwrap();
    assert_eq!(whys(&report)[&young], Why::Stale);
    assert_eq!(names_in(&run), [good]);
}

/// Nobody resumes from it, but it is all that there is.
#[test]
fn a_rejected_one_stays_while_there_is_no_better_one() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let name = checkpoint(&run, &plan, 1);
    reject(&run.dir(&name).unwrap().unwrap(), "bad").unwrap();
    let report = gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert_eq!(whys(&report)[&name], Why::NothingBetter);
    let better = checkpoint(&run, &plan, 2);
    gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert_eq!(names_in(&run), [better]);
}

/// Nothing committed yet: the only attempt is being written.
#[test]
fn a_first_save_is_left_alone() {
    let (_, run) = memory_run();
    let (name, _) = write_parts(&run, &plan(&run, 1), 9, &small()).unwrap();
    let report = gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert_eq!(whys(&report)[&name], Why::Writing);
    assert_eq!(names_in(&run), [name]);
}

#[test]
fn a_directory_goes_in_an_order_that_never_shows_half_of_it() {
    let (fs, _, run) = failing_run();
    let plan = plan(&run, 1);
    let victim = checkpoint(&run, &plan, 1);
    let kept = checkpoint(&run, &plan, 2);
    fs.clear_log();
    gc(&run, &GcPolicy::keep_last(1)).unwrap();
    let changes = masked(&fs.changes(), &victim);
    let kept = format!("fsync {kept}");
    let kept = masked(std::slice::from_ref(&kept), &victim).remove(0);
    let expected = [
        kept.as_str(),
        "fsync .",
        "create @/deleted",
        "fsync @/deleted",
        "close @/deleted",
        "fsync @",
        "unlink @/waystation.commit",
        "fsync @",
        "unlink @/attachment-00000-00000",
        "unlink @/manifest.json",
        "unlink @/model-00000-00000.safetensors",
        "unlink @/part-00000",
        "unlink @/records-00000.json",
        "unlink @/tensors-00000.json",
        "fsync @",
        "unlink @/deleted",
        "rmdir @",
        "fsync .",
    ];
    assert_eq!(changes, expected);
}

/// A keeper that dies anywhere leaves nothing that is taken for a checkpoint and is not whole, and
/// the next one finishes.
#[test]
fn whatever_call_fails_the_next_keeper_goes_on() {
    for op in [Op::Create, Op::SyncFile, Op::Close, Op::SyncDir, Op::Unlink, Op::RemoveDir] {
        for nth in 1.. {
            let disk = tempfile::tempdir().unwrap();
            let fs = FailingFs::new(PosixFs);
            let run = DirStore::open(Arc::new(fs.clone()), disk.path()).unwrap();
            let run: Arc<dyn Store> = Arc::new(run);
            let plan = plan(&run, 1);
            checkpoint(&run, &plan, 1);
            let kept = checkpoint(&run, &plan, 2);
            fs.clear_log();
            fs.fail(op, nth, Errno::IO);
            let report = gc(&run, &GcPolicy::keep_last(1));
            let hit = fs.log().iter().any(|line| line.ends_with(" failed"));
            fs.heal();
            let failed = |report: &GcReport| {
                report.items.iter().any(|item| matches!(item.fate, Fate::Failed(_)))
            };
            assert_eq!(hit, report.as_ref().map_or(true, failed), "{op:?} {nth}");
            let run = open_path(disk.path()).unwrap();
            assert_eq!(latest(&run).unwrap().name, kept);
            let mut policy = GcPolicy::keep_last(1);
            policy.uncommitted_older_than = Some(Duration::ZERO);
            policy.begun_older_than = Duration::ZERO;
            std::thread::sleep(Duration::from_millis(20));
            assert!(!failed(&gc(&run, &policy).unwrap()));
            assert_eq!(names_in(&run), [kept], "{op:?} {nth}");
            if !hit {
                break;
            }
        }
    }
}

#[test]
fn a_subdirectory_stays_with_its_directory() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let victim = checkpoint(&run, &plan, 1);
    let kept = checkpoint(&run, &plan, 2);
    let directory = run.dir(&victim).unwrap().unwrap();
    directory.make_dir("notes").unwrap();
    let report = gc(&run, &GcPolicy::keep_last(1)).unwrap();
    let fate = &report.items[0].fate;
    assert!(matches!(fate, Fate::Left { subdirectory } if subdirectory == "notes"), "{fate:?}");
    assert_eq!(names_in(&run), [victim, kept]);
    let left: Vec<String> = names_in(&directory);
    assert_eq!(left, ["deleted", "notes"]);
}

/// A marker that was put or taken away is so after a power cut.
#[test]
fn markers_are_durable() {
    let fs = CrashingFs::new();
    let run = fs.store();
    let name = checkpoint(&run, &plan(&run, 1), 1);
    let kept = || {
        let left = fs.crash(fs.points()).nothing_more().memory().store();
        Marks::of(&*left.dir(&name).unwrap().unwrap()).unwrap()
    };
    let attempt = run.dir(&name).unwrap().unwrap();
    pin(&attempt, "a").unwrap();
    assert_eq!(kept().pins, ["a"]);
    reject(&attempt, "a spike").unwrap();
    assert_eq!(kept().rejected.as_deref(), Some("a spike"));
    unpin(&attempt, "a").unwrap();
    assert!(kept().pins.is_empty());
}

/// Somebody pins while the keeper is at work: one of the two sees the other.
#[test]
fn a_pin_that_comes_late_saves_the_checkpoint() {
    let (fs, memory, run) = failing_run();
    let plan = plan(&run, 1);
    let victim = checkpoint(&run, &plan, 1);
    checkpoint(&run, &plan, 2);
    let other = memory.store().dir(&victim).unwrap().unwrap();
    fs.before(Op::Create, 1, move || pin(&other, "late").unwrap());
    let report = gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert!(matches!(report.items[0].fate, Fate::Kept));
    assert_eq!(report.items[0].why, Why::Pinned);
    check_equal(&run.dir(&victim).unwrap().unwrap(), &small());
    // A marker that a power cut brings back would hide what was spared.
    let changes = masked(&fs.changes(), &victim);
    let back = changes.iter().rposition(|line| line == "unlink @/deleted").unwrap();
    assert_eq!(changes[back + 1], "fsync @");
}

#[test]
fn a_pin_that_comes_too_late_is_refused() {
    let (fs, memory, run) = failing_run();
    let name = checkpoint(&run, &plan(&run, 1), 1);
    let directory = run.dir(&name).unwrap().unwrap();
    fs.before(Op::Link, 1, move || {
        memory.set(format!("{name}/deleted"), Vec::new()).unwrap();
    });
    assert_eq!(pin(&directory, "late").unwrap_err().code(), Code::Deleted);
}

#[test]
fn markers_say_what_they_are_asked_to() {
    let (memory, run) = memory_run();
    let plan = plan(&run, 1);
    let name = checkpoint(&run, &plan, 1);
    let directory = run.dir(&name).unwrap().unwrap();
    for bad in ["", "a/b", "ä", &"x".repeat(65)] {
        assert_eq!(pin(&directory, bad).unwrap_err().code(), Code::BadArgument);
    }
    pin(&directory, "a").unwrap();
    pin(&directory, "a").unwrap();
    unpin(&directory, "a").unwrap();
    assert_eq!(unpin(&directory, "a").unwrap_err().code(), Code::NotFound);
    assert_eq!(reject(&directory, &"x".repeat(4097)).unwrap_err().code(), Code::BadArgument);
    reject(&directory, "bad data").unwrap();
    reject(&directory, "bad data").unwrap();
    assert_eq!(reject(&directory, "other").unwrap_err().code(), Code::Exists);
    assert_eq!(memory.bytes(format!("{name}/rejected")).unwrap(), b"bad data");
    assert_eq!(latest(&run).unwrap_err().code(), Code::NoneResumable);
    let (_, uncommitted) = make_attempt(&run, &plan, 2, 0).unwrap();
    assert_eq!(pin(&uncommitted, "a").unwrap_err().code(), Code::NotCommitted);
}

#[test]
fn one_checkpoint_is_deleted_unless_it_is_kept() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let saved: Vec<String> = (1..=3).map(|step| checkpoint(&run, &plan, step)).collect();
    pin(&run.dir(&saved[0]).unwrap().unwrap(), "a").unwrap();
    let code = |name: &str| delete(&run, name).unwrap_err().code();
    assert_eq!(code(&saved[0]), Code::Kept);
    assert_eq!(code(&saved[2]), Code::Kept);
    assert_eq!(code("step-000000000009-0000000100000000"), Code::NotFound);
    let (writing, _) = make_attempt(&run, &plan, 9, 0).unwrap();
    assert_eq!(code(&writing), Code::Kept);
    run.remove_dir(&writing).unwrap();
    delete(&run, &saved[1]).unwrap();
    assert_eq!(names_in(&run), [saved[0].clone(), saved[2].clone()]);
}

#[test]
fn the_only_writer_takes_back_what_it_did_not_finish() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let saved = checkpoint(&run, &plan, 1);
    let code = |name: &str| abandon(&run, name).unwrap_err().code();
    assert_eq!(code(&saved), Code::Kept, "it is committed");
    assert_eq!(code("other"), Code::NotFound);
    for parts in [false, true] {
        let (name, attempt) = if parts {
            write_parts(&run, &plan, 2, &small()).unwrap()
        } else {
            make_attempt(&run, &plan, 2, 0).unwrap()
        };
        assert_eq!(attempt.put_new("anything", b"x").unwrap(), Put::Created);
        assert_eq!(delete(&run, &name).unwrap_err().code(), Code::Kept, "as a keeper may not");
        abandon(&run, &name).unwrap();
        assert_eq!(names_in(&run), std::slice::from_ref(&saved));
        abandon(&run, &name).unwrap();
    }
    let (name, attempt) = make_attempt(&run, &plan, 3, 0).unwrap();
    assert_eq!(attempt.put_new("deleted", b"").unwrap(), Put::Created);
    assert_eq!(code(&name), Code::Kept, "a keeper is at work");
}

#[test]
fn a_full_disk_keeps_nothing_that_has_no_part() {
    for parts in [false, true] {
        let (fs, _, run) = failing_run();
        let plan = plan(&run, 1);
        let (name, attempt) = if parts {
            write_parts(&run, &plan, 2, &small()).unwrap()
        } else {
            make_attempt(&run, &plan, 2, 0).unwrap()
        };
        assert_eq!(attempt.put_new("shard", b"x").unwrap(), Put::Created);
        fs.fail(Op::Create, 1, Errno::NOSPC);
        let done = abandon(&run, &name);
        if parts {
            // Somebody may be about to commit it, and there is no marker to tell them.
            assert_eq!(done.unwrap_err().code(), Code::IoFull);
            assert_eq!(names_in(&run), [name]);
        } else {
            done.unwrap();
            assert!(names_in(&run).is_empty());
        }
    }
}

#[test]
fn deleting_one_spares_what_is_for_people_to_look_at() {
    let (fs, run) = memory_run();
    let plan = plan(&run, 1);
    let first = checkpoint(&run, &plan, 1);
    reject(&run.dir(&first).unwrap().unwrap(), "bad").unwrap();
    assert_eq!(delete(&run, &first).unwrap_err().code(), Code::Kept, "there is no other");
    let saved: Vec<String> = (2..=3).map(|step| checkpoint(&run, &plan, step)).collect();
    fs.set(format!("{}/manifest.json", saved[0]), b"{}").unwrap();
    assert_eq!(delete(&run, &saved[0]).unwrap_err().code(), Code::Kept, "it is damaged");
    delete(&run, &first).unwrap();
    assert_eq!(names_in(&run), saved);
}

/// What stands above it is no reason to remove the last one that is whole.
#[test]
fn damaged_ones_do_not_count() {
    let (fs, run) = memory_run();
    let plan = plan(&run, 1);
    let saved: Vec<String> = (1..=3).map(|step| checkpoint(&run, &plan, step)).collect();
    fs.set(format!("{}/manifest.json", saved[1]), b"{}").unwrap();
    run.dir(&saved[2]).unwrap().unwrap().remove("tensors-00000.json").unwrap();
    let report = gc(&run, &GcPolicy::keep_last(1)).unwrap();
    let whys: Vec<Why> = report.items.iter().map(|item| item.why).collect();
    assert_eq!(whys, [Why::Latest, Why::Damaged, Why::Damaged]);
    assert_eq!(names_in(&run), saved);
    assert_eq!(latest(&run).unwrap().name, saved[0]);
}

#[test]
fn what_is_no_directory_takes_no_timeline() {
    let (fs, run) = memory_run();
    fs.set("step-000000000001-ffffffff00000000", b"").unwrap();
    let plan = plan(&run, 1);
    assert_eq!(plan.timeline, 1);
    checkpoint(&run, &plan, 1);
}

/// A slow committer finishes between the keeper's look and its marker.
#[test]
fn what_was_committed_meanwhile_is_kept() {
    for by_age in [true, false] {
        // A real one, whose directories know when they changed.
        let disk = tempfile::tempdir().unwrap();
        let failing = FailingFs::new(PosixFs);
        let run = DirStore::open(Arc::new(failing.clone()), disk.path()).unwrap();
        let run: Arc<dyn Store> = Arc::new(run);
        let early = plan(&run, 1);
        let (name, attempt) = write_parts(&run, &early, 9, &small()).unwrap();
        // Committed by its directory alone, as a tool may: nothing fences that.
        let mut options = CommitOptions::default();
        options.name = Some(name.clone());
        let mut policy = GcPolicy::keep_last(1);
        if by_age {
            policy.uncommitted_older_than = Some(Duration::ZERO);
            std::thread::sleep(Duration::from_millis(20));
        } else {
            checkpoint(&run, &plan(&run, 1), 1);
        }
        let committer = attempt.clone();
        failing.before(Op::Create, 1, move || {
            commit(&committer, &options, &NoProgress).unwrap();
        });
        let report = gc(&run, &policy).unwrap();
        assert_eq!(whys(&report)[&name], Why::Committed);
        check_equal(&attempt, &small());
        if by_age {
            assert_eq!(latest(&run).unwrap().name, name);
        }
    }
}

/// Two keepers at once: one marks between the other's look and its marker.
#[test]
fn of_two_keepers_one_goes_on() {
    let (fs, memory, run) = failing_run();
    let plan = plan(&run, 1);
    let victim = checkpoint(&run, &plan, 1);
    checkpoint(&run, &plan, 2);
    let marker = format!("{victim}/deleted");
    fs.before(Op::Create, 1, move || memory.set(marker, Vec::new()).unwrap());
    let report = gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert!(matches!(report.items[0].fate, Fate::Kept));
    assert_eq!(report.items[0].why, Why::Elsewhere);
    assert!(run.dir(&victim).unwrap().unwrap().stat(names::COMMIT).unwrap().is_some());
    // The other died there: whoever comes when that is sure finishes.
    let mut policy = GcPolicy::keep_last(1);
    assert_eq!(whys(&gc(&run, &policy).unwrap())[&victim], Why::Elsewhere);
    assert_eq!(delete(&run, &victim).unwrap_err().code(), Code::Kept);
    policy.begun_older_than = Duration::ZERO;
    assert_eq!(whys(&gc(&run, &policy).unwrap())[&victim], Why::Begun);
    assert_eq!(names_in(&run).len(), 1);
}

/// A keeper that slept long spares its victim between the other's look and its removal: what was
/// committed there meanwhile was answered for.
#[test]
fn a_removal_that_was_taken_back_is_not_gone_on_with() {
    let (fs, memory, run) = failing_run();
    let plan = plan(&run, 1);
    let spared = checkpoint(&run, &plan, 1);
    checkpoint(&run, &plan, 2);
    memory.set(format!("{spared}/deleted"), Vec::new()).unwrap();
    let sleeper = memory.store().dir(&spared).unwrap().unwrap();
    // What is kept is made durable after all was looked at, before anything is removed.
    fs.before(Op::SyncDir, 1, move || assert!(sleeper.remove(names::DELETED).unwrap()));
    let mut policy = GcPolicy::keep_last(1);
    policy.begun_older_than = Duration::ZERO;
    let report = gc(&run, &policy).unwrap();
    assert_eq!(whys(&report)[&spared], Why::Elsewhere);
    assert!(matches!(report.items[0].fate, Fate::Kept));
    let attempt = run.dir(&spared).unwrap().unwrap();
    assert!(attempt.stat(names::DELETED).unwrap().is_none());
    check_equal(&attempt, &small());
}

/// Whoever deletes one keeps all others, also those that a keeper of the run would remove.
#[test]
fn what_stays_is_durable_before_one_is_deleted() {
    let (fs, _, run) = failing_run();
    let plan = plan(&run, 1);
    let saved: Vec<String> = (1..=4).map(|step| checkpoint(&run, &plan, step)).collect();
    fs.clear_log();
    delete(&run, &saved[1]).unwrap();
    let changes = fs.changes();
    let marked = changes.iter().position(|line| line.contains("/deleted")).unwrap();
    for kept in [&saved[0], &saved[2], &saved[3]] {
        assert!(changes[..marked].contains(&format!("fsync {kept}")), "{kept}: {changes:?}");
    }
}

/// What comes in while a directory is emptied does not stay for ever.
#[test]
fn a_directory_that_fills_again_stays_marked() {
    let (fs, memory, run) = failing_run();
    let plan = plan(&run, 1);
    let victim = checkpoint(&run, &plan, 1);
    checkpoint(&run, &plan, 2);
    let late = format!("{victim}/late");
    fs.before(Op::RemoveDir, 1, move || memory.set(late, Vec::new()).unwrap());
    let report = gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert!(matches!(report.items[0].fate, Fate::Failed(_)));
    let mut policy = GcPolicy::keep_last(1);
    policy.begun_older_than = Duration::ZERO;
    assert_eq!(whys(&gc(&run, &policy).unwrap())[&victim], Why::Begun);
    assert_eq!(names_in(&run).len(), 1);
}

/// A keeper does all its work between a committer's last file and its look for the marker.
#[test]
fn a_commit_into_a_directory_that_was_emptied_is_no_success() {
    let (failing, memory, run) = failing_run();
    let (name, attempt) = write_parts(&run, &plan(&run, 1), 9, &small()).unwrap();
    let keeper = memory.store().dir(&name).unwrap().unwrap();
    // The first makes the manifest last, the second the commit file, which came after the listing.
    failing.before(Op::SyncDir, 2, move || {
        for listed in keeper.list().unwrap() {
            if listed.name != names::COMMIT {
                keeper.remove(&listed.name).unwrap();
            }
        }
    });
    let options = CommitOptions::in_run(run, name);
    assert_eq!(commit(&attempt, &options, &NoProgress).unwrap_err().code(), Code::Deleted);
}

/// A keeper begins between a committer's look and its commit file.
#[test]
fn a_commit_into_an_attempt_that_is_removed_is_no_success() {
    let (failing, _, run) = failing_run();
    let (name, attempt) = write_parts(&run, &plan(&run, 1), 9, &small()).unwrap();
    let keeper = attempt.clone();
    failing.before(Op::Link, 3, move || {
        keeper.create(names::DELETED, None).unwrap().finish().unwrap();
    });
    let options = CommitOptions::in_run(run, name);
    let error = commit(&attempt, &options, &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::Deleted);
}

/// On a real file system: a link in place of a victim, and links within one.
#[test]
fn links_are_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    let inside = tempfile::tempdir().unwrap();
    let run = open_path(inside.path()).unwrap();
    let far = open_path(outside.path()).unwrap();
    let plan = plan(&run, 1);
    let old = checkpoint(&far, &plan, 1);
    let victim = checkpoint(&run, &plan, 2);
    let kept = checkpoint(&run, &plan, 3);
    std::os::unix::fs::symlink(outside.path().join(&old), inside.path().join(&old)).unwrap();
    std::fs::write(outside.path().join("precious"), b"x").unwrap();
    let link = inside.path().join(&victim).join("link");
    std::os::unix::fs::symlink(outside.path().join("precious"), link).unwrap();
    let directory = inside.path().join(&victim).join("tmp-dir");
    std::os::unix::fs::symlink(outside.path().join(&old), directory).unwrap();
    gc(&run, &GcPolicy::keep_last(1)).unwrap();
    assert_eq!(names_in(&run), [old.clone(), kept]);
    assert_eq!(run.stat(&old).unwrap().unwrap().kind, Kind::Other);
    assert!(outside.path().join("precious").exists());
    check_equal(&far.dir(&old).unwrap().unwrap(), &small());
    assert!(far.dir(&old).unwrap().unwrap().stat(names::COMMIT).unwrap().is_some());
}
