//! Every call of a save, a commit, a keeper, a salvage, a copy and a claim fails once, with every error
//! that a file system has for it, or is the first of a device that is gone: the answer is a typed
//! error, the session is poisoned, the old checkpoint stays whole, no fsync is repeated, and the
//! same done again succeeds.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and this one prints what it did"
)]

mod support;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use waystation_format::{Class, Code, Dtype, Error, Result, names};
use waystation_reader::{NoProgress, latest, verify};
use waystation_store::testing::{CrashingFs, Errno, FailingFs, Image, Op};
use waystation_store::{DirStore, MemoryFs, Store};
use waystation_writer::{
    CommitOptions, Fate, GcPolicy, SalvageOptions, SessionOptions, SessionPlan, commit, copy_into,
    gc, make_attempt, salvage,
};

use support::*;

fn models() -> Vec<Model> {
    vec![
        Model::param("embed.weight", Dtype::F32, &[30]),
        Model::param("long", Dtype::U8, &[5000]),
        Model::new(optimizer("long", "adam.m"), Dtype::F32, &[10]),
    ]
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It does nothing.
    Fails(Errno),
    /// It is done, and the caller hears of an error.
    ReplyLost(Errno),
    /// It does nothing, and neither does any call after it: the device is gone.
    Dies(Errno),
}

const FULL: [Errno; 2] = [Errno::NOSPC, Errno::DQUOT];
const GONE: [Errno; 2] = [Errno::NOENT, Errno::STALE];
/// Of what opens: no descriptors are left, or it is gone.
const OPENS: [Errno; 4] = [Errno::NOENT, Errno::STALE, Errno::MFILE, Errno::NFILE];
/// Of what changes a directory: the disk is full, or was made read-only after an error.
const CHANGES: [Errno; 3] = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS];
/// Of what takes away.
const TAKES: [Errno; 2] = [Errno::STALE, Errno::ROFS];

/// Every call after the root is open, and what it may answer beside what each may.
const CALLS: [(Op, &[Errno]); 17] = [
    (Op::OpenDir, &OPENS),
    (Op::MakeDir, &CHANGES),
    (Op::List, &GONE),
    (Op::Stat, &[Errno::STALE]),
    (Op::OpenRead, &OPENS),
    (Op::Create, &[Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::ROFS]),
    (Op::StatFile, &[Errno::STALE]),
    (Op::ReadAt, &[Errno::STALE]),
    (Op::WriteAt, &FULL),
    (Op::Allocate, &FULL),
    (Op::SyncFile, &FULL),
    (Op::Close, &FULL),
    (Op::SyncDir, &FULL),
    (Op::Link, &CHANGES),
    (Op::Rename, &CHANGES),
    (Op::Unlink, &TAKES),
    (Op::RemoveDir, &TAKES),
];

/// Every call, and how it goes wrong.
fn faults() -> Vec<(Op, Fault)> {
    let mut faults = Vec::new();
    for (op, own) in CALLS {
        let errors = [Errno::IO, Errno::INTR].into_iter().chain(own.iter().copied());
        faults.extend(errors.map(|errno| (op, Fault::Fails(errno))));
        faults.push((op, Fault::Dies(Errno::IO)));
        if matches!(
            op,
            Op::MakeDir | Op::Create | Op::Link | Op::Rename | Op::Unlink | Op::RemoveDir
        ) {
            faults.push((op, Fault::ReplyLost(Errno::IO)));
        }
    }
    faults
}

/// What is done: on a run, which may fail.
type Work<'w> = dyn Fn(&Arc<dyn Store>) -> Result<()> + 'w;

/// What came of all faults.
#[derive(Default)]
struct Counts {
    trials: usize,
    /// The error was answered, by code.
    refused: BTreeMap<&'static str, usize>,
    /// It succeeded all the same: called again, read back, or of no weight.
    survived: usize,
    calls: BTreeMap<String, usize>,
    /// Sessions that were used again after their error, and said that they are dead.
    poisoned: usize,
}

thread_local! {
    /// As in [`Counts`]: of this test.
    static POISONED: Cell<usize> = const { Cell::new(0) };
}

/// What is done on a disk, and what is there before and afterwards.
struct Sweep<'p> {
    what: &'p str,
    image: &'p Image,
    /// On a disk without hard links.
    renames: bool,
    /// The latest before, and when it is done.
    latest: [&'p str; 2],
    /// A checkpoint that stays whole, whatever becomes of the rest.
    stays: &'p str,
    work: &'p Work<'p>,
    /// What a user does after an error, and the latest then.
    again: &'p Work<'p>,
    at_last: &'p str,
}

/// Does the work once for each call that it makes and each fault of it.
fn sweep(plan: &Sweep<'_>) {
    let Sweep { what, image, renames, latest: may, stays, work, again, at_last } = *plan;
    let before = POISONED.get();
    let mut counts = Counts::default();
    for (op, fault) in faults() {
        for nth in 1.. {
            let memory = image.memory();
            let fs = FailingFs::new(memory.clone());
            let run = DirStore::open(Arc::new(fs.clone()), Path::new("")).unwrap();
            let run: Arc<dyn Store> = Arc::new(run);
            if renames {
                fs.fail_always(Op::Link, Errno::OPNOTSUPP);
            }
            match fault {
                Fault::Fails(errno) => fs.fail(op, nth, errno),
                Fault::ReplyLost(errno) => fs.lose_reply(op, nth, errno),
                Fault::Dies(errno) => {
                    let dying = fs.clone();
                    fs.before(op, nth, move || {
                        CALLS.iter().for_each(|(op, _)| dying.fail_always(*op, errno));
                    });
                }
            }
            let done = work(&run);
            let log = fs.log();
            let failed = |line: &&String| {
                line.ends_with(" failed") && !(renames && line.starts_with("link"))
            };
            let Some(hit) = log.iter().find(failed) else {
                assert!(done.is_ok(), "{what}, {op:?} {nth} was never made: {done:?}");
                break;
            };
            let place = format!("{what}, {fault:?} at {hit:?}");
            counts.trials += 1;
            *counts.calls.entry(format!("{op:?}")).or_default() += 1;
            match &done {
                Ok(()) => counts.survived += 1,
                Err(e) => {
                    check_typed(e, fault, &place);
                    *counts.refused.entry(e.code().as_str()).or_default() += 1;
                }
            }
            check_synced_once(&log, &place);
            check_latest(&memory, if done.is_ok() { &may[1..] } else { &may }, &place);
            check_whole(&memory, stays, &place);
            let run = memory.store();
            again(&run).unwrap_or_else(|e| panic!("{place}: again: {e}"));
            check_latest(&memory, &[at_last], &place);
            check_whole(&memory, stays, &place);
        }
    }
    counts.poisoned = POISONED.get() - before;
    println!(
        "{what}: {} faults, {} survived, {} sessions poisoned, refused {:?}; by call {:?}",
        counts.trials, counts.survived, counts.poisoned, counts.refused, counts.calls
    );
    assert!(counts.trials > 30, "{what}: {}", counts.trials);
    let died = counts.refused.values().sum::<usize>();
    assert!(died > 20, "{what}: {died}");
    if what.starts_with("a save") {
        assert!(counts.poisoned > 20, "{what}: {}", counts.poisoned);
    }
}

/// An error of the environment is one of that class, and a full disk is called so.
fn check_typed(e: &Error, fault: Fault, place: &str) {
    let gone = matches!(fault, Fault::Fails(Errno::NOENT));
    let typed = e.class() == Class::Io
        || e.code() == Code::CommitUnknown
        // After a lost reply the name is there.
        || matches!(fault, Fault::ReplyLost(_)) && e.code() == Code::Exists
        // What is said not to be there is missing.
        || gone && matches!(e.code(), Code::FileMissing | Code::NotFound);
    assert!(typed, "{place}: {e}");
    let full = matches!(fault, Fault::Fails(Errno::NOSPC | Errno::DQUOT));
    assert!(!full || matches!(e.code(), Code::IoFull | Code::CommitUnknown), "{place}: {e}");
    assert!(!e.message().is_empty());
}

/// After a failed fsync the pages are called clean: a second one would succeed and say nothing.
fn check_synced_once(log: &[String], place: &str) {
    for (at, line) in log.iter().enumerate() {
        let Some(failed) = line.strip_suffix(" failed") else { continue };
        if failed.starts_with("fsync ") {
            assert!(!log[at + 1..].iter().any(|line| line.starts_with(failed)), "{place}: {log:?}");
        }
    }
}

/// `latest` is one of `may`, and whole in every byte.
fn check_latest(memory: &MemoryFs, may: &[&str], place: &str) {
    let found = latest(&memory.store()).unwrap_or_else(|e| panic!("{place}: {e}"));
    assert!(may.contains(&found.name.as_str()), "{place}: {}", found.name);
    check_whole(memory, &found.name, place);
}

/// The checkpoint `name` is whole in every byte.
fn check_whole(memory: &MemoryFs, name: &str, place: &str) {
    let store = memory.store().dir(name).unwrap().unwrap_or_else(|| panic!("{place}: no {name}"));
    let report = verify(&store, &Default::default()).unwrap();
    assert!(report.findings.is_empty(), "{place}: {:?}", report.findings);
    check_equal(&store, &models());
}

fn plan_of(timeline: u32) -> SessionPlan {
    let mut plan = plan(&MemoryFs::new().store(), 1);
    (plan.timeline, plan.nonce) = (timeline, [7; 16]);
    plan
}

fn name_of(plan: &SessionPlan, step: u64) -> String {
    names::attempt_dir(step, &plan.attempt(step, step))
}

/// A save by one writer on one thread, which after an error of its session uses it once more.
fn write_all(run: &Arc<dyn Store>, plan: &SessionPlan, step: u64) -> Result<()> {
    let (_, attempt) = make_attempt(run, plan, step, step)?;
    let (mut session, chunks) = declare(&attempt, plan, step, 0, &models())?;
    if let Err(e) = session.attach_bytes("more", b"bytes") {
        assert_eq!(session.attach_bytes("again", b"bytes").unwrap_err().code(), Code::Poisoned);
        assert_eq!(session.lay_out().map(drop).unwrap_err().code(), Code::Poisoned);
        POISONED.set(POISONED.get() + 1);
        return Err(e);
    }
    let mut options = SessionOptions::default();
    options.threads = 1;
    session.set_options(options);
    let writing = session.lay_out()?;
    for (at, (id, bytes)) in chunks.iter().enumerate() {
        if let Err(e) = writing.write_all(*id, bytes) {
            let (other, bytes) = &chunks[(at + 1) % chunks.len()];
            let dead = writing.write_all(*other, bytes).unwrap_err();
            assert_eq!(dead.code(), Code::Poisoned);
            assert_eq!(writing.finish().unwrap_err().code(), Code::Poisoned);
            POISONED.set(POISONED.get() + 1);
            return Err(e);
        }
    }
    writing.finish().map(drop)
}

fn commit_it(run: &Arc<dyn Store>, name: &str) -> Result<()> {
    let attempt = run.dir(name)?.ok_or_else(|| Error::new(Code::NotFound, "no attempt"))?;
    let mut options = CommitOptions::in_run(Arc::clone(run), name);
    options.threads = 1;
    commit(&attempt, &options, &NoProgress).map(drop)
}

fn save_it(run: &Arc<dyn Store>, plan: &SessionPlan, step: u64) -> Result<()> {
    write_all(run, plan, step)?;
    commit_it(run, &name_of(plan, step))
}

/// A disk on which this was done.
fn disk(work: impl Fn(&Arc<dyn Store>)) -> Image {
    let fs = CrashingFs::new();
    work(&fs.store());
    fs.crash(fs.points()).nothing_more()
}

#[test]
fn a_save() {
    let (plan, next) = (plan_of(1), plan_of(2));
    let image = disk(|run| save_it(run, &plan, 1).unwrap());
    for (what, renames) in [("a save", false), ("a save without links", true)] {
        sweep(&Sweep {
            what,
            image: &image,
            renames,
            latest: [&name_of(&plan, 1), &name_of(&plan, 2)],
            stays: &name_of(&plan, 1),
            work: &|run| save_it(run, &plan, 2),
            // What failed is dead: the next attempt is another.
            again: &|run| save_it(run, &next, 2),
            at_last: &name_of(&next, 2),
        });
    }
}

/// Beside an old checkpoint an attempt with all its parts.
fn with_parts(plan: &SessionPlan) -> Image {
    disk(|run| {
        save_it(run, plan, 1).unwrap();
        write_all(run, plan, 2).unwrap();
    })
}

#[test]
fn a_commit() {
    let plan = plan_of(1);
    let (old, new) = (name_of(&plan, 1), name_of(&plan, 2));
    let work = |run: &Arc<dyn Store>| commit_it(run, &new);
    for (what, renames) in [("a commit", false), ("a commit without links", true)] {
        sweep(&Sweep {
            what,
            image: &with_parts(&plan),
            renames,
            latest: [&old, &new],
            stays: &old,
            work: &work,
            again: &work,
            at_last: &new,
        });
    }
}

#[test]
fn a_salvage() {
    let plan = plan_of(1);
    let (old, new) = (name_of(&plan, 1), name_of(&plan, 2));
    let broken = {
        let fs = CrashingFs::on(&with_parts(&plan));
        let attempt = fs.store().dir(&new).unwrap().unwrap();
        let file = attempt.create("tensors-00000.json", None).unwrap();
        file.write_at(b"other", 0).unwrap();
        fs.crash(fs.points()).everything()
    };
    let work = |run: &Arc<dyn Store>| {
        let attempt = run.dir(&new)?.ok_or_else(|| Error::new(Code::NotFound, "no attempt"))?;
        let mut options = SalvageOptions::new();
        options.run = Some(Arc::clone(run));
        options.name = Some(new.clone());
        options.discard_root = true;
        salvage(&attempt, &options, &NoProgress).map(drop)
    };
    for (what, renames) in [("a salvage", false), ("a salvage without links", true)] {
        sweep(&Sweep {
            what,
            image: &broken,
            renames,
            latest: [&old, &new],
            stays: &old,
            work: &work,
            again: &work,
            at_last: &new,
        });
    }
}

#[test]
fn a_keeper() {
    let plan = plan_of(1);
    let kept = name_of(&plan, 3);
    let image = disk(|run| {
        for step in 1..=3 {
            save_it(run, &plan, step).unwrap();
        }
    });
    let keep = |run: &Arc<dyn Store>| {
        let mut policy = GcPolicy::keep_last(1);
        policy.begun_older_than = Duration::ZERO;
        for item in gc(run, &policy)?.items {
            if let Fate::Failed(e) = item.fate {
                return Err(e);
            }
        }
        Ok(())
    };
    let again = |run: &Arc<dyn Store>| {
        keep(run)?;
        for listed in run.list()?.iter().filter(|listed| listed.name != kept) {
            let left = run.dir(&listed.name)?.unwrap().list()?;
            // A directory without anything may be one that a job has just made.
            assert!(left.is_empty(), "{} has {left:?}", listed.name);
        }
        Ok(())
    };
    sweep(&Sweep {
        what: "a keeper",
        image: &image,
        renames: false,
        latest: [&kept, &kept],
        stays: &kept,
        work: &keep,
        again: &again,
        at_last: &kept,
    });
}

#[test]
fn a_copy() {
    let plan = plan_of(1);
    let (old, new, other) = (name_of(&plan, 1), name_of(&plan, 2), name_of(&plan, 3));
    let far = MemoryFs::new().store();
    for step in [2, 3] {
        save_it(&far, &plan, step).unwrap();
    }
    let copy = |run: &Arc<dyn Store>, name: &str| {
        let from = far.dir(name)?.unwrap();
        copy_into(&from, run, name, &NoProgress).map(drop)
    };
    sweep(&Sweep {
        what: "a copy",
        image: &disk(|run| save_it(run, &plan, 1).unwrap()),
        renames: false,
        latest: [&old, &new],
        stays: &old,
        work: &|run| copy(run, &new),
        // The directory of one that failed is not taken again.
        again: &|run| copy(run, &other),
        at_last: &other,
    });
}

/// Claims of timelines by jobs that start: none is had twice.
#[test]
fn a_claim() {
    let plan = plan_of(1);
    let old = name_of(&plan, 1);
    // What the job has that met the fault; the attempt has 1.
    let taken = Cell::new(1);
    let claim = |run: &Arc<dyn Store>| {
        taken.set(1);
        taken.set(try_plan(run, 1)?.timeline);
        assert!(taken.get() > 1, "the attempt has it");
        Ok(())
    };
    let again = |run: &Arc<dyn Store>| {
        let (first, second) = (try_plan(run, 1)?.timeline, try_plan(run, 1)?.timeline);
        assert!(taken.get() < first && first < second, "{} {first} {second}", taken.get());
        Ok(())
    };
    sweep(&Sweep {
        what: "a claim",
        image: &disk(|run| save_it(run, &plan, 1).unwrap()),
        renames: false,
        latest: [&old, &old],
        stays: &old,
        work: &claim,
        again: &again,
        at_last: &old,
    });
}

/// Reads and writes of one byte at a time, and of none.
#[test]
fn short_transfers() {
    let plan = plan_of(1);
    let image = disk(|run| save_it(run, &plan, 1).unwrap());
    let (old, new) = (name_of(&plan, 1), name_of(&plan, 2));
    for bytes in [1, 7, 4095, 0] {
        let memory = image.memory();
        let fs = FailingFs::new(memory.clone());
        let run = DirStore::open(Arc::new(fs.clone()), Path::new("")).unwrap();
        fs.limit_transfer(bytes);
        let run: Arc<dyn Store> = Arc::new(run);
        let saved = save_it(&run, &plan, 2);
        let place = format!("{bytes} bytes at a time");
        if bytes == 0 {
            assert_eq!(saved.unwrap_err().code(), Code::Io);
            check_latest(&memory, &[&old], &place);
        } else {
            saved.unwrap();
            check_latest(&memory, &[&new], &place);
        }
    }
    // A disk that fills, after every number of bytes that matters.
    let mut full = 0;
    for space in (0..20_000).step_by(499) {
        let memory = image.memory();
        let fs = FailingFs::new(memory.clone());
        let run = DirStore::open(Arc::new(fs.clone()), Path::new("")).unwrap();
        fs.limit_space(space);
        let run: Arc<dyn Store> = Arc::new(run);
        match save_it(&run, &plan, 2) {
            Ok(()) => check_latest(&memory, &[&new], "enough space"),
            Err(e) => {
                assert_eq!(e.code(), Code::IoFull, "{space}: {e}");
                check_latest(&memory, &[&old], "no space");
                full += 1;
            }
        }
    }
    println!("a full disk: {full} times");
    assert!(full > 10, "{full}");
}
