//! Power fails while a keeper removes, while salvage replaces a root, and while a copy is made.

use std::sync::Arc;

use waystation_format::names;
use waystation_reader::NoProgress;
use waystation_store::testing::{CrashingFs, Image};
use waystation_store::{MemoryFs, Store};
use waystation_writer::{SalvageOptions, copy_into, reject, salvage};

use super::BOUND;
use super::job::{Job, WRITERS};
use super::repair::{self, collect, expect, is_open};
use super::save::{committed_at, may, with_old};
use super::support::try_plan;
use super::world::{Left, Seen, World};

/// What a job does before its first save, of every attempt that it finds open: commit it, whatever
/// it is. Only what was saved may come of it.
pub fn roll_forward(
    world: &mut World,
    fs: &CrashingFs,
    seen: &Seen,
    jobs: &[&Job],
) -> Result<(), String> {
    for job in jobs.iter().filter(|job| is_open(seen, &job.name())) {
        let all =
            repair::parts(&fs.crash(fs.points()).everything(), &job.name()) == WRITERS as usize;
        let committed = job.commit(&fs.store());
        if committed.is_ok() && !all {
            return Err(format!("{} was committed without a part", job.name()));
        }
    }
    let seen = world.look(&fs.crash(fs.points()).everything());
    for (name, left) in &seen.attempts {
        if matches!(left, Left::Damaged(_) | Left::Mixed(_)) {
            return Err(format!("after another commit {name} is {left:?}"));
        }
    }
    Ok(())
}

/// An older one, a rejected one that is newer, and one that a dead job left with all its parts: all
/// go. None comes back, also not by another commit, and the next keeper ends the work.
#[test]
fn a_keeper() {
    let (older, dead, kept, bad) = (Job::new(1, 1), Job::new(1, 9), Job::new(2, 3), Job::new(2, 5));
    let image = {
        let fs = CrashingFs::new();
        let run = fs.store();
        older.save(&run).unwrap();
        dead.write_parts(&run).unwrap();
        kept.save(&run).unwrap();
        bad.save(&run).unwrap();
        reject(&run.dir(&bad.name()).unwrap().unwrap(), "a spike").unwrap();
        fs.crash(fs.points()).nothing_more()
    };
    let mut world = World::of(&[&older, &dead, &kept, &bad]);
    let fs = CrashingFs::on(&image);
    collect(&fs.store()).unwrap();
    let done = fs.points();
    let may = |_| vec![kept.name()];
    let mut repair = |world: &mut World, image: &Image, seen: &Seen, point: usize| {
        let again = CrashingFs::on(image);
        roll_forward(world, &again, seen, &[&older, &dead, &bad])?;
        let seen = world.look(&again.crash(again.points()).everything());
        expect(world, &seen, &[kept.name()])?;
        for image in repair::few(&again, seen.fingerprint) {
            let seen = world.look(&image);
            expect(world, &seen, &[kept.name()])?;
        }
        let last = CrashingFs::on(image);
        collect(&last.store())?;
        let seen = world.look(&last.crash(last.points()).nothing_more());
        expect(world, &seen, &[kept.name()])?;
        // Without marker and files a directory may be one that a job has just made.
        for name in seen.attempts.keys().filter(|name| **name != kept.name()) {
            let left = last.store().dir(name).unwrap().unwrap().list().unwrap();
            if point == done || !left.is_empty() {
                return Err(format!("the next keeper left {name} with {left:?}"));
            }
        }
        Ok(())
    };
    let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut repair);
    tally.hold("a keeper", 100);
}

/// A manifest and a page of other bytes under a commit file, beside an older checkpoint.
#[test]
fn salvage_of_a_broken_root() {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let base = with_old(&old);
    new.save(&base.store()).unwrap();
    let attempt = base.store().dir(&new.name()).unwrap().unwrap();
    for name in [names::MANIFEST, "tensors-00000.json"] {
        attempt.remove(name).unwrap();
        attempt.create(name, None).unwrap().write_at(b"lost", 0).unwrap();
    }
    let broken = base.crash(base.points()).everything();
    let mut world = World::of(&[&old, &new]);
    world.damaged = Some(new.name());
    let fs = CrashingFs::on(&broken);
    let salvage = |run: &Arc<dyn Store>| {
        let mut options = SalvageOptions::new();
        options.run = Some(Arc::clone(run));
        options.discard_root = true;
        let attempt = run.dir(&new.name()).unwrap().unwrap();
        salvage(&attempt, &options, &NoProgress)
    };
    let digest = salvage(&fs.store()).unwrap().digest;
    let may = may(&old.name(), &new.name(), committed_at(&fs.log(), &new.name()), fs.points());
    // Its commit file went first: after that nothing stands above what is not whole.
    let gone = format!("unlink {}/{}", new.name(), names::COMMIT);
    let gone = fs.log().iter().position(|line| *line == gone).unwrap();
    let mut repair = |world: &mut World, image: &Image, seen: &Seen, point: usize| {
        // The line after it is the fsync.
        if point >= gone + 2 && matches!(seen.attempts[&new.name()], Left::Damaged(_)) {
            return Err(format!("{:?}", seen.attempts));
        }
        let again = CrashingFs::on(image);
        let done = salvage(&again.store()).map_err(|e| e.to_string())?;
        if done.digest != digest {
            return Err("another digest".to_owned());
        }
        let seen = world.look(&again.crash(again.points()).nothing_more());
        expect(world, &seen, &[new.name()])
    };
    // A commit file that is put the second time.
    let put = fs.log().iter().rposition(|line| line.ends_with("/waystation.commit")).unwrap();
    let may = |point: usize| if point <= put { vec![old.name()] } else { may(point) };
    let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut repair);
    tally.hold("salvage of a broken root", 15);
}

/// A copy that is cut short is no checkpoint, and another's commit does not make one of it that is
/// not whole.
#[test]
fn a_copy() {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let far = MemoryFs::new().store();
    new.save(&far).unwrap();
    let from = far.dir(&new.name()).unwrap().unwrap();
    let fs = with_old(&old);
    copy_into(&from, &fs.store(), &new.name(), &NoProgress).unwrap();
    let may = may(&old.name(), &new.name(), committed_at(&fs.log(), &new.name()), fs.points());
    let mut world = World::of(&[&old, &new]);
    let mut repair = |world: &mut World, image: &Image, seen: &Seen, _: usize| {
        let again = CrashingFs::on(image);
        roll_forward(world, &again, seen, &[&new])
    };
    let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut repair);
    tally.hold("a copy", 200);
}

/// A timeline that a job was given is never given again, whatever is lost.
#[test]
fn a_claim() {
    let old = Job::new(1, 1);
    let fs = with_old(&old);
    let claim = |fs: &CrashingFs| try_plan(&fs.store(), WRITERS).map(|plan| plan.timeline);
    let first = claim(&fs).unwrap();
    let done = fs.points();
    let second = claim(&fs).unwrap();
    assert_eq!((first, second), (2, 3));
    let last = fs.points();
    let mut world = World::of(&[&old]);
    let mut repair = |_: &mut World, image: &Image, _: &Seen, point: usize| {
        let next = claim(&CrashingFs::on(image)).map_err(|e| e.to_string())?;
        let above = match point {
            _ if point >= last => second,
            _ if point >= done => first,
            _ => 1,
        };
        if next > above { Ok(()) } else { Err(format!("{next} was given twice")) }
    };
    let may = |_| vec![old.name()];
    let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut repair);
    tally.hold("a claim", 4);
}
