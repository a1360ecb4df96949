//! A save of three writers beside an older checkpoint, with every crash and every repair; the table
//! of crash points in the specification says what is seen here.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use waystation_store::testing::{CrashingFs, Image};

use super::job::{Job, WRITERS};
use super::repair::{self, is_open};
use super::windows::{Met, Windows, table};
use super::world::{Seen, World};
use super::{BOUND, REPAIRED};

/// A disk with a durable checkpoint of an older step.
pub fn with_old(old: &Job) -> CrashingFs {
    let fs = CrashingFs::new();
    old.save(&fs.store()).unwrap();
    CrashingFs::on(&fs.crash(fs.points()).nothing_more())
}

/// The crash point from which on an attempt may be the latest, by its commit file.
pub fn committed_at(log: &[String], name: &str) -> usize {
    let file = format!(" {name}/waystation.commit");
    log.iter().position(|line| line.contains(&file)).map_or(usize::MAX, |at| at + 1)
}

/// What `latest` may answer at a crash point: the old one before the commit file is put, the new one
/// after the commit reported success, either in between.
pub fn may(old: &str, new: &str, put: usize, done: usize) -> impl Fn(usize) -> Vec<String> + use<> {
    let (old, new) = (old.to_owned(), new.to_owned());
    move |point| {
        let old = (point < done).then(|| old.clone());
        let new = (point >= put).then(|| new.clone());
        old.into_iter().chain(new).collect()
    }
}

/// Which repairs made a checkpoint; the next job and a keeper always have to.
#[derive(Clone, Copy)]
struct Repaired {
    commit: bool,
    salvage: bool,
}

#[test]
fn a_save_of_three_writers_beside_an_older_checkpoint() {
    let (old, new) = (Job::new(1, 1), Job::new(1, 2));
    let next = new.next();
    let fs = with_old(&old);
    let digest = new.save(&fs.store()).unwrap().digest;
    let rows = table();
    let log = fs.log();
    let windows = Windows::of(&rows, &log, &new.name());
    let settled = windows.begin("W5")
        + log[windows.begin("W5")..]
            .iter()
            .position(|line| *line == format!("fsync {}", new.name()))
            .unwrap();
    let put = committed_at(&log, &new.name());
    let may = may(&old.name(), &new.name(), put, fs.points());
    let mut world = World::of(&[&old, &new, &next]);
    let mut met: BTreeMap<String, Met> = BTreeMap::new();
    let mut repaired: HashMap<u64, Repaired> = HashMap::new();
    let mut repair = |world: &mut World, image: &Image, seen: &Seen, point: usize| {
        let Some(window) = windows.at(point) else { return Ok(()) };
        let met = met.entry(window.to_owned()).or_default();
        met.states += 1;
        let is_new = seen.latest.as_ref() == Ok(&new.name());
        met.latest.insert(if is_new { "new" } else { "old" }.to_owned());
        let count = repair::parts(image, &new.name());
        let linked = match window {
            "W1" | "W2" | "W3" => 0,
            "W4" => 1,
            _ => WRITERS as usize,
        };
        if count < linked {
            met.parts_lost += 1;
            if point > settled {
                return Err(format!("{count} of {WRITERS} parts are left"));
            }
        }
        let every = |window| windows.begin(window);
        let chosen = point < every("W2")
            || point >= every("W5")
            || seen.fingerprint.is_multiple_of(REPAIRED);
        if is_open(seen, &new.name()) && chosen {
            let done = match repaired.get(&seen.fingerprint) {
                Some(done) => *done,
                None => {
                    let old = old.name();
                    let commit = repair::make(world, image, &new, &old, Job::commit)?;
                    let salvage = repair::make(world, image, &new, &old, Job::salvage)?;
                    repair::retry_and_collect(world, image, &next, &may(point))?;
                    let done = Repaired { commit, salvage };
                    if !image.was_read() {
                        repaired.insert(seen.fingerprint, done);
                    }
                    done
                }
            };
            if count >= linked {
                met.repair("commit", done.commit);
                met.repair("salvage", done.salvage);
            }
            met.repair("gc", true);
        }
        if is_new {
            let again = CrashingFs::on(image);
            let committed = new.commit(&again.store()).map_err(|e| e.to_string())?;
            if committed.digest != digest || !committed.already {
                return Err(format!("committed again as {committed:?}"));
            }
        }
        Ok(())
    };
    let tally = world.crash_everywhere(&fs, 0, &BOUND, &may, &mut repair);
    tally.hold("a save of three writers", 1000);
    for (window, met) in &met {
        println!(
            "  {window}: {} states, latest {:?}, repairs (worked, not) {:?}, {} lack a part's name",
            met.states, met.latest, met.repairs, met.parts_lost
        );
    }
    for row in &rows {
        let met = &met[&row.id];
        let latest: BTreeSet<String> = row.latest.iter().cloned().collect();
        assert_eq!(met.latest, latest, "{}", row.id);
        // Where a commit file may be there or not, nothing needs repair: either is whole.
        if !latest.contains("new") {
            let repairs: BTreeSet<String> = row.repairs.iter().cloned().collect();
            assert_eq!(met.works(), repairs, "{}: {:?}", row.id, met.repairs);
        } else {
            assert!(row.repairs.is_empty(), "{}", row.id);
        }
    }
}
