//! Power fails while a job saves beside what another left behind, while a writer takes its attempt
//! back, while salvage makes a checkpoint of an attempt without a root, and while writers work one
//! after the other.

use std::sync::Arc;

use waystation_format::names;
use waystation_store::Store;
use waystation_store::testing::{CrashingFs, Image};
use waystation_writer::abandon;

use super::job::{Job, WRITERS};
use super::keep::roll_forward;
use super::repair::{self, collect, expect, is_open};
use super::save::{committed_at, may, with_old};
use super::world::{Left, Seen, World};
use super::{ALL_POINTS, BOUND, REPAIRED};

/// Makes what a job leaves behind.
type Leave = fn(&Job, &Arc<dyn Store>);

/// How far a job came that died.
const LEFT: [(&str, Leave); 3] = [
    ("two of three parts", |job, run| {
        let attempt = job.make(run).unwrap();
        (0..WRITERS - 1).for_each(|writer| job.finish(&attempt, writer).unwrap());
    }),
    ("all parts", |job, run| drop(job.write_parts(run).unwrap())),
    ("all but the commit file", |job, run| {
        job.save(run).unwrap();
        let attempt = run.dir(&job.name()).unwrap().unwrap();
        attempt.remove(names::COMMIT).unwrap();
        attempt.sync().unwrap();
    }),
];

/// The next job saves the step again, and its keeper removes what the dead one left. Whoever comes with
/// a late commit of the dead one's attempt changes nothing that is newer.
#[test]
fn a_retry_after_an_abandoned_attempt() {
    let (old, dead) = (Job::new(1, 1), Job::new(1, 2));
    let next = dead.next();
    let left = if ALL_POINTS { &LEFT[..] } else { &LEFT[1..2] };
    for (what, leave) in left {
        let base = with_old(&old);
        leave(&dead, &base.store());
        let fs = CrashingFs::on(&base.crash(base.points()).nothing_more());
        next.save(&fs.store()).unwrap();
        let saved = fs.points();
        collect(&fs.store()).unwrap();
        let put = committed_at(&fs.log(), &next.name());
        let may = may(&old.name(), &next.name(), put, saved);
        let mut world = World::of(&[&old, &dead, &next]);
        let mut repair = |world: &mut World, image: &Image, seen: &Seen, point: usize| {
            if point < saved && !seen.fingerprint.is_multiple_of(REPAIRED) {
                return Ok(());
            }
            let late = CrashingFs::on(image);
            roll_forward(world, &late, seen, &[&dead])?;
            let seen = world.look(&late.crash(late.points()).nothing_more());
            let mut may = may(point);
            may.push(dead.name());
            expect(world, &seen, &may)?;
            if point >= saved && seen.latest.as_ref() != Ok(&next.name()) {
                return Err(format!("a late commit made {:?} of it", seen.latest));
            }
            let last = CrashingFs::on(image);
            collect(&last.store())?;
            let seen = world.look(&last.crash(last.points()).nothing_more());
            may.pop();
            expect(world, &seen, &may)?;
            if point >= saved && seen.attempts.len() > 1 {
                return Err(format!("the keeper left {:?}", seen.attempts));
            }
            Ok(())
        };
        let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut repair);
        tally.hold(&format!("a retry beside {what}"), 500);
    }
}

/// What a writer took back never comes back, and its next save stands.
#[test]
fn a_save_after_an_attempt_that_its_writer_took_back() {
    let (old, dead, next) = (Job::new(1, 1), Job::new(1, 2), Job::new(1, 3));
    let base = with_old(&old);
    dead.write_parts(&base.store()).unwrap();
    let fs = CrashingFs::on(&base.crash(base.points()).nothing_more());
    abandon(&fs.store(), &dead.name()).unwrap();
    let gone = fs.points();
    next.save(&fs.store()).unwrap();
    let put = committed_at(&fs.log(), &next.name());
    let may = may(&old.name(), &next.name(), put, fs.points());
    let mut world = World::of(&[&old, &dead, &next]);
    let mut repair = |world: &mut World, image: &Image, seen: &Seen, point: usize| {
        if point >= gone && seen.attempts.contains_key(&dead.name()) {
            return Err(format!("it is back: {:?}", seen.attempts));
        }
        if point >= gone && !seen.fingerprint.is_multiple_of(REPAIRED) {
            return Ok(());
        }
        roll_forward(world, &CrashingFs::on(image), seen, &[&dead])
    };
    let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut repair);
    tally.hold("a save after an attempt that was taken back", 500);
}

/// Its committer died before it put a page.
#[test]
fn salvage_of_an_attempt_without_a_root() {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let base = with_old(&old);
    new.write_parts(&base.store()).unwrap();
    let fs = CrashingFs::on(&base.crash(base.points()).nothing_more());
    let digest = new.salvage(&fs.store()).unwrap().digest;
    let may = may(&old.name(), &new.name(), committed_at(&fs.log(), &new.name()), fs.points());
    let mut world = World::of(&[&old, &new]);
    let mut repair = |world: &mut World, image: &Image, _: &Seen, _: usize| {
        for make in [Job::salvage, Job::commit] {
            let again = CrashingFs::on(image);
            let done = make(&new, &again.store()).map_err(|e| e.to_string())?;
            if done.digest != digest {
                return Err("another digest".to_owned());
            }
            let seen = world.look(&again.crash(again.points()).nothing_more());
            expect(world, &seen, &[new.name()])?;
        }
        Ok(())
    };
    let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut repair);
    tally.hold("salvage of an attempt without a root", 50);
}

/// Each makes its files after the one before it is done: where the last part has its name, so have the
/// files that it stands for, and whoever commits makes the same of it.
#[test]
fn a_save_of_writers_one_after_the_other() {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let fs = with_old(&old);
    let attempt = new.make(&fs.store()).unwrap();
    (0..WRITERS).for_each(|writer| new.finish(&attempt, writer).unwrap());
    new.commit(&fs.store()).unwrap();
    let may = may(&old.name(), &new.name(), committed_at(&fs.log(), &new.name()), fs.points());
    let mut world = World::of(&[&old, &new]);
    let (mut made, mut missing) = (0, 0);
    let mut repair = |world: &mut World, image: &Image, seen: &Seen, _: usize| {
        if seen.attempts.get(&new.name()) == Some(&Left::Whole) || !is_open(seen, &new.name()) {
            return Ok(());
        }
        for how in [Job::commit, Job::salvage] {
            let done = repair::make(world, image, &new, &old.name(), how)?;
            *(if done { &mut made } else { &mut missing }) += 1;
        }
        Ok(())
    };
    let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut repair);
    tally.hold("a save of writers one after the other", 150);
    println!("  made {made} times of all parts, {missing} times a part was missing");
    assert!(made > 20 && missing > 100, "{made} {missing}");
}
