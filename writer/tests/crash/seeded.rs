//! The simulation must be able to fail: each bug that is put in is seen, and as what it is.

use std::collections::BTreeSet;

use waystation_store::testing::{Bound, CrashingFs, Image};

use super::faulty::{self, Bug};
use super::job::{Job, WRITERS};
use super::repair::{self, is_open};
use super::save::{committed_at, may, with_old};
use super::world::{Broken, Seen, Tally, World};

const BOUND: Bound = Bound { exhaustive: 3, sampled: 2, seed: 3 };

/// A save with a bug, every crash of it, and another commit where all parts are there.
fn crash(world: &mut World, fs: &CrashingFs, old: &Job, new: &Job, bound: &Bound) -> Tally {
    let may = may(&old.name(), &new.name(), committed_at(&fs.log(), &new.name()), fs.points());
    let mut repair = |world: &mut World, image: &Image, seen: &Seen, _: usize| {
        let all = repair::parts(image, &new.name()) == WRITERS as usize;
        if !is_open(seen, &new.name()) || !all {
            return Ok(());
        }
        repair::make(world, image, new, &old.name(), Job::commit).map(drop)
    };
    // Before the last part nothing can be made of the attempt, whatever is lost; and where files are
    // not synced there is so much of that that the commit file has to be enough.
    let last = format!("{}/part-{:05}-", new.name(), WRITERS - 1);
    let last = fs.log().iter().position(|line| line.contains(&last)).unwrap();
    let put = committed_at(&fs.log(), &new.name());
    let from = if fs.crash(put).pending() > 20 { put - 1 } else { last };
    world.crash_everywhere(fs, from, bound, &may, &mut repair)
}

fn broken_by(bug: Bug) -> BTreeSet<Broken> {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let fs = with_old(&old);
    new.save(&faulty::store(&fs, bug)).unwrap();
    let tally = crash(&mut World::of(&[&old, &new]), &fs, &old, &new, &BOUND);
    println!("{bug:?}: {} states, {:?}", tally.states, tally.broken);
    tally.broken.into_keys().collect()
}

#[test]
fn nothing_is_broken_without_a_bug() {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let fs = with_old(&old);
    new.save(&fs.store()).unwrap();
    let tally = crash(&mut World::of(&[&old, &new]), &fs, &old, &new, &super::BOUND);
    tally.hold("no bug", 50);
}

#[test]
fn a_directory_that_is_not_synced() {
    let broken = broken_by(Bug::NoDirectorySync);
    assert!(broken.is_superset(&[Broken::Undone, Broken::Damaged].into()), "{broken:?}");
}

#[test]
fn files_that_are_not_synced() {
    let broken = broken_by(Bug::NoFileSync);
    assert!(
        broken.is_superset(&[Broken::Undone, Broken::Damaged, Broken::Mixed].into()),
        "{broken:?}"
    );
}

#[test]
fn a_commit_before_the_parts_are_synced() {
    let broken = broken_by(Bug::CommitBeforeSync);
    // Once it reported success all is synced: between the two it is not.
    assert!(broken.is_superset(&[Broken::Damaged, Broken::Mixed].into()), "{broken:?}");
    assert!(!broken.contains(&Broken::Undone), "{broken:?}");
}

#[test]
fn a_commit_file_before_the_manifest_is_synced() {
    let broken = broken_by(Bug::CommitBeforeManifest);
    assert_eq!(broken, [Broken::Damaged].into());
}

#[test]
fn files_that_are_written_under_their_name() {
    let broken = broken_by(Bug::InPlace);
    assert!(broken.is_superset(&[Broken::Damaged, Broken::Unrepaired].into()), "{broken:?}");
}

#[test]
fn a_rename_without_a_sync() {
    let broken = broken_by(Bug::RenameWithoutSync);
    assert!(broken.is_superset(&[Broken::Damaged, Broken::Undone].into()), "{broken:?}");
}

#[test]
fn an_error_of_close_that_is_ignored() {
    let broken = broken_by(Bug::IgnoredClose);
    assert!(broken.contains(&Broken::Mixed), "{broken:?}");
}

/// The same save once more into the same names, over the only checkpoint.
#[test]
fn names_that_are_used_again() {
    let old = Job::new(1, 1);
    let fs = with_old(&old);
    let run = faulty::store(&fs, Bug::ReusedNames);
    let attempt = old.make(&run).unwrap();
    // Past the check that no writer has been there: the bug is that it does not look.
    old.overwrite(&attempt).unwrap();
    let may = |_| vec![old.name()];
    let mut world = World::of(&[&old]);
    let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut |_, _, _, _| Ok(()));
    println!("ReusedNames: {} states, {:?}", tally.states, tally.broken);
    let broken: BTreeSet<Broken> = tally.broken.into_keys().collect();
    assert!(broken.contains(&Broken::Lost), "{broken:?}");
}
