//! What a user does after a crash, and a second crash on the way.

use std::sync::Arc;

use waystation_format::{Code, names};
use waystation_store::Store;
use waystation_store::testing::{Bound, CrashingFs, Image};
use waystation_writer::{Committed, GcPolicy, gc};

use super::job::{Job, WRITERS};
use super::world::{Left, Seen, World};

/// Writers whose part is in the attempt.
pub fn parts(image: &Image, name: &str) -> usize {
    let Ok(Some(attempt)) = image.memory().store().dir(name) else { return 0 };
    let listed = attempt.list().unwrap();
    listed.iter().filter(|listed| names::parse_part(&listed.name).is_some()).count()
}

/// How to make a checkpoint of an attempt.
pub type Make = fn(&Job, &Arc<dyn Store>) -> waystation_format::Result<Committed>;

/// Repairs on a disk that has the attempt without a commit file, and looks at disks that a second
/// crash leaves. Whether it worked: it has to where all parts are there.
///
/// # Errors
/// What should not be.
pub fn make(
    world: &mut World,
    image: &Image,
    job: &Job,
    old: &str,
    make: Make,
) -> Result<bool, String> {
    let fs = CrashingFs::on(image);
    let done = make(job, &fs.store());
    let all = parts(image, &job.name()) == WRITERS as usize;
    match done {
        Err(e) if !all && e.code() == Code::WriterMissing => return Ok(false),
        Err(e) => return Err(format!("of {} parts: {e}", parts(image, &job.name()))),
        Ok(_) if !all => return Err("made of too few parts".to_owned()),
        Ok(_) => {}
    }
    let done = world.look(&fs.crash(fs.points()).nothing_more());
    expect(world, &done, &[job.name()])?;
    // The same once more, with power lost on the way.
    let may = [old.to_owned(), job.name()];
    for image in few(&fs, image.fingerprint()) {
        let seen = world.look(&image);
        expect(world, &seen, &may)?;
        let again = CrashingFs::on(&image);
        make(job, &again.store()).map_err(|e| format!("after a second crash: {e}"))?;
        let seen = world.look(&again.crash(again.points()).nothing_more());
        expect(world, &seen, &[job.name()])?;
    }
    Ok(true)
}

/// The next job saves the step, and a keeper removes what the dead one left.
///
/// # Errors
/// What should not be.
pub fn retry_and_collect(
    world: &mut World,
    image: &Image,
    next: &Job,
    may: &[String],
) -> Result<(), String> {
    let fs = CrashingFs::on(image);
    let run = fs.store();
    next.save(&run).map_err(|e| format!("the next job: {e}"))?;
    let saved = fs.points();
    collect(&run)?;
    let alone = |world: &mut World, image: &Image| {
        let seen = world.look(image);
        expect(world, &seen, &[next.name()])?;
        match seen.attempts.len() {
            1 => Ok(()),
            _ => Err(format!("the keeper left {:?}", seen.attempts)),
        }
    };
    alone(world, &fs.crash(fs.points()).nothing_more())?;
    let mut may = may.to_vec();
    may.push(next.name());
    for (point, image) in few_points(&fs, image.fingerprint()) {
        let seen = world.look(&image);
        expect(world, &seen, if point >= saved { &may[may.len() - 1..] } else { &may })?;
        if point >= saved {
            let again = CrashingFs::on(&image);
            collect(&again.store())?;
            alone(world, &again.crash(again.points()).nothing_more())?;
        }
    }
    Ok(())
}

/// A keeper of one checkpoint, which goes on with what another began.
pub fn collect(run: &Arc<dyn Store>) -> Result<(), String> {
    let mut policy = GcPolicy::keep_last(1);
    policy.begun_older_than = std::time::Duration::ZERO;
    let report = gc(run, &policy).map_err(|e| format!("a keeper: {e}"))?;
    let failed =
        report.items.iter().find(|item| matches!(item.fate, waystation_writer::Fate::Failed(_)));
    failed.map_or(Ok(()), |item| Err(format!("a keeper: {item:?}")))
}

/// # Errors
/// What is seen and may not be.
pub fn expect(world: &World, seen: &Seen, may: &[String]) -> Result<(), String> {
    match world.judge(seen, may).first() {
        None => Ok(()),
        Some((broken, why)) => Err(format!("{broken:?}: {why}; {:?}", seen.attempts)),
    }
}

/// A few disks out of all crashes since power came, by chance.
pub fn few(fs: &CrashingFs, seed: u64) -> Vec<Image> {
    few_points(fs, seed).into_iter().map(|(_, image)| image).collect()
}

/// With their crash points.
pub fn few_points(fs: &CrashingFs, seed: u64) -> Vec<(usize, Image)> {
    let mut random = seed | 1;
    let mut draw = |below: usize| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let mut few = Vec::new();
    for _ in 0..2 {
        let point = draw(fs.points() + 1);
        let bound = Bound { exhaustive: 4, sampled: 2, seed: seed.rotate_left(point as u32) };
        let mut images = fs.crash(point).images(&bound).1;
        few.push((point, images.swap_remove(draw(images.len()))));
    }
    few
}

/// Whether the attempt is there and has no commit file.
pub fn is_open(seen: &Seen, name: &str) -> bool {
    seen.attempts.get(name) == Some(&Left::Uncommitted)
}
