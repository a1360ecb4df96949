//! What else happens to a run while somebody is at work in it: readers that meet errors while a keeper
//! removes, directories that are renamed or removed, clocks that are wrong.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and this one prints what it did"
)]

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use waystation_format::{Class, Dtype, names};
use waystation_reader::{State, latest, list};
use waystation_store::testing::{CrashingFs, Errno, FailingFs, Op};
use waystation_store::{DirStore, PosixFs, Store, open_path};
use waystation_writer::{GcPolicy, SessionPlan, Why, gc, make_attempt};

use support::*;

fn models() -> Vec<Model> {
    vec![Model::param("w", Dtype::F32, &[30])]
}

/// Whatever a reader is told while a keeper removes the older ones, it finds the one that is kept or
/// hears of the error: never that there is none, which would be a fresh start.
#[test]
fn a_reader_that_meets_an_error_beside_a_keeper_takes_no_run_for_an_empty_one() {
    let disk = CrashingFs::new();
    let run = disk.store();
    let plan = plan(&run, 1);
    let saved: Vec<String> =
        (1..=3).map(|step| save_in_order(&run, &plan, step, &models()).unwrap()).collect();
    let image = disk.crash(disk.points()).nothing_more();
    let calls = [Op::OpenDir, Op::List, Op::Stat, Op::OpenRead, Op::StatFile, Op::ReadAt];
    let errors = [
        Errno::IO,
        Errno::INTR,
        Errno::ACCESS,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOTCONN,
        Errno::STALE,
    ];
    let (mut found, mut refused) = (0, 0);
    for op in calls {
        for errno in errors {
            for nth in 1.. {
                for listing in [false, true] {
                    let memory = image.memory();
                    let fs = FailingFs::new(memory.clone());
                    let reader = DirStore::open(Arc::new(fs.clone()), Path::new("")).unwrap();
                    let reader: Arc<dyn Store> = Arc::new(reader);
                    let keeper = memory.store();
                    fs.before(op, nth, move || {
                        gc(&keeper, &GcPolicy::keep_last(1)).unwrap();
                    });
                    fs.fail(op, nth, errno);
                    let place = format!("{op:?} {nth} {errno:?}");
                    if listing {
                        // Those that went may be in the list, as what they were or as unknown.
                        let Ok(listed) = list(&reader) else { continue };
                        let kept = listed.iter().find(|attempt| attempt.name == saved[2]).unwrap();
                        let known =
                            matches!(kept.state, State::Complete { .. } | State::Unreadable(_));
                        assert!(known, "{place}: {:?}", kept.state);
                        continue;
                    }
                    match latest(&reader) {
                        Ok(latest) => {
                            assert_eq!(latest.name, saved[2], "{place}");
                            found += 1;
                        }
                        Err(e) => {
                            assert_eq!(e.class(), Class::Io, "{place}: {e}");
                            refused += 1;
                        }
                    }
                    fs.heal();
                    assert_eq!(latest(&reader).unwrap().name, saved[2], "{place}");
                }
                // As many calls as a reader makes of any kind where it passes over two.
                if nth == 30 {
                    break;
                }
            }
        }
    }
    println!("a reader beside a keeper: found {found} times, refused {refused} times");
    assert!(found > 100 && refused > 60, "{found} {refused}");
}

/// Does `work` for every call before which somebody may come in between, and says how often that was.
fn each_change(mut work: impl FnMut(Op, usize) -> bool) -> usize {
    let ops = [
        Op::MakeDir,
        Op::Create,
        Op::Allocate,
        Op::WriteAt,
        Op::SyncFile,
        Op::Close,
        Op::SyncDir,
        Op::Link,
        Op::Unlink,
        Op::OpenDir,
        Op::List,
    ];
    let mut hits = 0;
    for op in ops {
        for nth in 1.. {
            if !work(op, nth) {
                assert!(nth > 1, "{op:?} was never called");
                break;
            }
            hits += 1;
        }
    }
    hits
}

/// A run on a real file system with one checkpoint, behind a disk that lets others in between.
fn real_run() -> (tempfile::TempDir, FailingFs<PosixFs>, Arc<dyn Store>, SessionPlan, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    fs::create_dir(&path).unwrap();
    let fs = FailingFs::new(PosixFs);
    let run: Arc<dyn Store> = Arc::new(DirStore::open(Arc::new(fs.clone()), &path).unwrap());
    let plan = plan(&run, 1);
    let old = save_in_order(&run, &plan, 1, &models()).unwrap();
    (directory, fs, run, plan, old)
}

/// Somebody renames the run, and an empty one takes its place: all that a save makes is in the one
/// that it began in.
#[test]
fn a_run_that_is_renamed_during_a_save_is_still_the_one() {
    let hits = each_change(|op, nth| {
        let (directory, fs, run, plan, _) = real_run();
        let (path, away) = (directory.path().join("run"), directory.path().join("away"));
        let (from, to) = (path.clone(), away.clone());
        fs.before(op, nth, move || {
            std::fs::rename(&from, &to).unwrap();
            std::fs::create_dir(&from).unwrap();
        });
        let saved = save_in_order(&run, &plan, 2, &models()).unwrap();
        let moved = away.exists();
        let real = if moved { &away } else { &path };
        let found = latest(&open_path(real).unwrap()).unwrap();
        assert_eq!(found.name, saved, "{op:?} {nth}");
        check_equal(&found.store, &models());
        assert!(!moved || fs::read_dir(&path).unwrap().next().is_none(), "{op:?} {nth}");
        moved
    });
    assert!(hits > 30, "{hits}");
}

/// Somebody removes the attempt, with all that is in it: no success is reported for it, and the older
/// checkpoint stays.
#[test]
fn an_attempt_that_is_removed_during_a_save_is_no_success() {
    let hits = each_change(|op, nth| {
        let (directory, fs, run, plan, old) = real_run();
        let path = directory.path().join("run");
        let attempt = path.join(names::attempt_dir(2, &plan.attempt(2, 2)));
        let (victim, hit) = (attempt.clone(), directory.path().join("hit"));
        let here = hit.clone();
        fs.before(op, nth, move || {
            // Before it is made and after it is gone there is nothing to remove.
            if std::fs::remove_dir_all(&victim).is_ok() {
                std::fs::write(&here, b"").unwrap();
            }
        });
        let reached = |fs: &FailingFs<PosixFs>| fs.log().len();
        let before = reached(&fs);
        let saved = save_in_order(&run, &plan, 2, &models());
        assert!(reached(&fs) > before);
        let found = latest(&open_path(&path).unwrap()).unwrap();
        if hit.exists() {
            assert!(saved.is_err(), "{op:?} {nth}");
            assert_eq!(found.name, old, "{op:?} {nth}");
            return true;
        }
        // It was not there yet, or the call was never made.
        assert_eq!(found.name, saved.unwrap(), "{op:?} {nth}");
        nth < 3
    });
    assert!(hits > 30, "{hits}");
}

/// Times in the future say that nobody knows: what may be at work is left.
#[test]
fn a_clock_that_was_ahead_makes_nothing_old() {
    let (directory, _, run, plan, old) = real_run();
    let (open, attempt) = make_attempt(&run, &plan, 5, 5).unwrap();
    assert!(attempt.put_new("notes", b"x").is_ok());
    let path = directory.path().join("run").join(&open);
    let ahead = SystemTime::now() + Duration::from_secs(3600);
    fs::File::open(path.join("notes")).unwrap().set_modified(ahead).unwrap();
    let mut policy = GcPolicy::keep_last(1);
    policy.uncommitted_older_than = Some(Duration::ZERO);
    std::thread::sleep(Duration::from_millis(20));
    let report = gc(&run, &policy).unwrap();
    let whys: Vec<Why> = report.items.iter().map(|item| item.why).collect();
    assert_eq!(whys, [Why::Latest, Why::Writing]);
    // Nor is a removal, of which a keeper that runs now may have put the marker.
    fs::write(path.join("deleted"), b"").unwrap();
    fs::File::open(path.join("deleted")).unwrap().set_modified(ahead).unwrap();
    policy.begun_older_than = Duration::from_millis(1);
    let report = gc(&run, &policy).unwrap();
    assert_eq!(report.items[1].why, Why::Elsewhere);
    assert_eq!(latest(&run).unwrap().name, old);
}
