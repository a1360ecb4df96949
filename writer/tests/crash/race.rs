//! Two at once on one disk that loses power: committers, a committer and a writer whose part has a
//! name that is not durable, a committer and a keeper.

use std::sync::Arc;

use waystation_format::{Code, Result};
use waystation_store::Store;
use waystation_store::testing::{Bound, CrashingFs, Image};
use waystation_writer::{Committed, GcPolicy, gc};

use super::job::{Job, WRITERS};
use super::save::{committed_at, may, with_old};
use super::turns::{self, Schedule};
use super::world::{Broken, Tally, World};

const BOUND: Bound = if cfg!(feature = "sweep") {
    super::BOUND
} else {
    Bound { exhaustive: 3, sampled: 1, seed: 11 }
};
/// More than any of these makes.
const ALL: usize = 1 << 20;
/// Calls that a commit makes here, at least.
const CALLS: usize = 60;
/// Schedules with two switches, by chance.
const SAMPLED: usize = if cfg!(feature = "sweep") { 400 } else { 12 };
/// Of all calls at which the other comes in, one in so many.
const STRIDE: usize = if cfg!(feature = "sweep") { 1 } else { 5 };

/// The second comes in at every call of the first and goes to its end; then schedules with two
/// switches, drawn at random.
fn schedules() -> Vec<Schedule> {
    let mut all: Vec<Schedule> =
        (0..CALLS).step_by(STRIDE).map(|first| vec![(0, first), (1, ALL)]).collect();
    let mut random = 1_u64;
    let mut draw = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % CALLS
    };
    all.extend((0..SAMPLED).map(|_| vec![(0, draw()), (1, 1 + draw()), (0, 1 + draw()), (1, ALL)]));
    all
}

/// A durable attempt with all its parts beside the old checkpoint.
fn with_parts(old: &Job, new: &Job) -> Image {
    let fs = with_old(old);
    new.write_parts(&fs.store()).unwrap();
    fs.crash(fs.points()).nothing_more()
}

/// Nobody has to repair.
fn nothing(_: &mut World, _: &Image, _: &super::world::Seen, _: usize) -> Result<(), String> {
    Ok(())
}

#[test]
fn two_committers_at_once() {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let parts = with_parts(&old, &new);
    let mut world = World::of(&[&old, &new]);
    let mut tally = Tally::default();
    let schedules = schedules();
    for schedule in &schedules {
        let fs = CrashingFs::on(&parts);
        let commit = |run: &Arc<dyn Store>| new.commit(run);
        let [(one, first), (other, second)] = turns::run(&fs, schedule, [&commit, &commit]);
        assert_eq!(one.unwrap().digest, other.unwrap().digest, "{schedule:?}");
        let may =
            may(&old.name(), &new.name(), committed_at(&fs.log(), &new.name()), first.min(second));
        tally.add(world.crash_everywhere(&fs, 0, &BOUND, &may, &mut nothing));
    }
    println!("two committers: {} schedules", schedules.len());
    tally.hold("two committers", 30);
}

/// A committer that waits sees the last part before its writer has made the name durable.
#[test]
fn a_committer_ahead_of_the_last_writer() {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let fs = with_old(&old);
    let run = fs.store();
    let attempt = new.make(&run).unwrap();
    for writer in 0..WRITERS - 1 {
        new.finish(&attempt, writer).unwrap();
    }
    let most = fs.crash(fs.points()).nothing_more();
    let mut world = World::of(&[&old, &new]);
    let mut tally = Tally::default();
    let (mut early, mut late) = (0, 0);
    for first in 0..CALLS {
        let fs = CrashingFs::on(&most);
        let writer = |run: &Arc<dyn Store>| {
            let attempt = run.dir(&new.name())?.unwrap();
            new.finish(&attempt, WRITERS - 1).map(|_| None)
        };
        let committer = |run: &Arc<dyn Store>| new.commit(run).map(Some);
        let work: [turns::Work<'_, Result<Option<Committed>>>; 2] = [&writer, &committer];
        let [(wrote, _), (committed, done)] = turns::run(&fs, &vec![(0, first), (1, ALL)], work);
        // A committer may have been there before its last look.
        match (wrote, committed) {
            (Ok(_), Ok(_)) => late += 1,
            (Ok(_), Err(e)) if e.code() == Code::WriterMissing => {
                early += 1;
                continue;
            }
            other => panic!("{first}: {other:?}"),
        }
        let may = may(&old.name(), &new.name(), committed_at(&fs.log(), &new.name()), done);
        tally.add(world.crash_everywhere(&fs, 0, &BOUND, &may, &mut nothing));
    }
    println!("a committer ahead of the last writer: {late} times, {early} times too early");
    assert!(early > 10 && late > 2, "{early} {late}");
    tally.hold("a committer ahead of the last writer", 30);
}

/// The keeper sees a new checkpoint that is not yet durable, and removes the old one.
#[test]
fn a_keeper_beside_a_committer() {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let parts = with_parts(&old, &new);
    let mut world = World::of(&[&old, &new]);
    let mut tally = Tally::default();
    let mut removed = 0;
    let schedules = schedules();
    for schedule in &schedules {
        let fs = CrashingFs::on(&parts);
        let committer = |run: &Arc<dyn Store>| new.commit(run).map(drop);
        let keeper = |run: &Arc<dyn Store>| gc(run, &GcPolicy::keep_last(1)).map(drop);
        let [(committed, done), (kept, _)] = turns::run(&fs, schedule, [&committer, &keeper]);
        committed.unwrap();
        kept.unwrap();
        removed += usize::from(fs.log().contains(&format!("rmdir {}", old.name())));
        let may = may(&old.name(), &new.name(), committed_at(&fs.log(), &new.name()), done);
        tally.add(world.crash_everywhere(&fs, 0, &BOUND, &may, &mut nothing));
    }
    println!(
        "a keeper beside a committer: {} schedules, {removed} removed the old",
        schedules.len()
    );
    assert!(removed > 0);
    tally.hold("a keeper beside a committer", 30);
    assert!(!tally.broken.contains_key(&Broken::Lost));
}
