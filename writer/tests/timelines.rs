//! Jobs that start in one run at one moment: each has a timeline of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say where"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;

use waystation_format::{Code, Topology, names};
use waystation_reader::NoProgress;
use waystation_store::testing::{Errno, FailingFs, Op};
use waystation_store::{DirStore, MemoryFs, Put, Store, open_path};
use waystation_writer::{CommitOptions, Session, SessionPlan, commit, make_attempt};

fn plan(run: &Arc<dyn Store>) -> SessionPlan {
    SessionPlan::next_in(run, "r", 1, Topology(Vec::new())).unwrap()
}

fn save(run: &Arc<dyn Store>, plan: &SessionPlan, step: u64) -> waystation_format::Result<()> {
    let (name, attempt) = make_attempt(run, plan, step, 0)?;
    Session::begin(Arc::clone(&attempt), plan.common(step, 0), 0)?.lay_out()?.finish()?;
    commit(&attempt, &CommitOptions::in_run(Arc::clone(run), name), &NoProgress).map(drop)
}

fn claims(run: &Arc<dyn Store>) -> Vec<u32> {
    let listed = run.list().unwrap();
    let mut claims: Vec<u32> =
        listed.iter().filter_map(|listed| names::parse_timeline_claim(&listed.name)).collect();
    claims.sort_unstable();
    claims
}

#[test]
fn jobs_that_start_before_either_saves_do_not_share_a_timeline() {
    let run = MemoryFs::new().store();
    let (first, second) = (plan(&run), plan(&run));
    assert_eq!((first.timeline, second.timeline), (1, 2));
    // Who claimed and never saves fences nobody.
    save(&run, &first, 5).unwrap();
    save(&run, &second, 3).unwrap();
    let fenced = save(&run, &first, 6).unwrap_err();
    assert_eq!(fenced.code(), Code::Fenced);
}

#[test]
fn jobs_that_start_at_one_moment_do_not_share_a_timeline() {
    let directory = tempfile::tempdir().unwrap();
    for round in 1..=10_u32 {
        let barrier = Barrier::new(4);
        let taken: BTreeSet<u32> = thread::scope(|scope| {
            let start = || {
                let run = open_path(directory.path()).unwrap();
                barrier.wait();
                plan(&run).timeline
            };
            let jobs: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            jobs.into_iter().map(|job| job.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 4, "round {round}: {taken:?}");
    }
    let run = open_path(directory.path()).unwrap();
    assert_eq!(claims(&run), (1..=40).collect::<Vec<u32>>());
}

/// A claim far above, with none between: below it would be a job that the other fences.
#[test]
fn a_job_takes_a_timeline_above_every_claim() {
    let run = MemoryFs::new().store();
    save(&run, &plan(&run), 1).unwrap();
    let put = run.put_new(&names::timeline_claim(7), b"000102030405060708090a0b0c0d0e0f").unwrap();
    assert_eq!(put, Put::Created);
    assert_eq!(plan(&run).timeline, 8);
}

/// On a disk that can neither link nor rename without replacing, another job's claim may come over one
/// that was just put: it is read back.
#[test]
fn a_claim_that_another_replaced_is_not_had() {
    let memory = MemoryFs::new();
    let fs = FailingFs::new(memory.clone());
    fs.fail_always(Op::Link, Errno::OPNOTSUPP);
    fs.before(Op::SyncDir, 1, move || {
        memory.set(names::timeline_claim(1), b"000102030405060708090a0b0c0d0e0f".to_vec()).unwrap();
    });
    let run: Arc<dyn Store> = Arc::new(DirStore::open(Arc::new(fs), Path::new("")).unwrap());
    assert_eq!(plan(&run).timeline, 2);
    assert_eq!(claims(&run), [1, 2]);
}

#[test]
fn claims_that_attempts_stand_for_are_removed() {
    let run = MemoryFs::new().store();
    let plans = [plan(&run), plan(&run), plan(&run)];
    save(&run, &plans[1], 1).unwrap();
    assert_eq!(plan(&run).timeline, 4);
    assert_eq!(claims(&run), [2, 3, 4]);
}
