//! Processes that get in each other's way: committers at once, writers that come back, jobs that
//! outlive their successors, copies cut short. Real processes on real files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that cannot go on should say where"
)]

mod processes;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use waystation_format::{Code, Incarnation, names};
use waystation_reader::{NoProgress, latest};
use waystation_store::open_path;
use waystation_writer::{SalvageOptions, commit, salvage};

use processes::content::WRITERS;
use processes::deck::Deck;
use processes::stop_at::{Among, Moment, Stop};
use processes::{End, Job, Process, Role};

/// What these tests start as processes of their own.
#[test]
#[ignore = "a role that the other tests start"]
fn process() {
    processes::play();
}

fn before_change(nth: u64) -> Option<Stop> {
    Some(Stop { among: Among::Changes, nth, moment: Moment::Before })
}

/// A run with a checkpoint.
fn run() -> (TempDir, Job) {
    let directory = tempfile::tempdir().unwrap();
    let old = Job::next(directory.path(), 1);
    old.save();
    (directory, old)
}

/// An attempt with all its parts.
fn parts(path: &Path, step: u64) -> Job {
    let job = Job::next(path, step);
    job.start(Role::Coordinator).succeed();
    let writers: Vec<Process> = (0..WRITERS).map(|n| job.start(Role::Writer(n))).collect();
    writers.into_iter().for_each(|writer| drop(writer.succeed()));
    job
}

#[test]
fn two_committers_at_once_both_succeed() {
    let (directory, _) = run();
    for round in 0..20 {
        let job = parts(directory.path(), 2 + round);
        let both = [job.start_free(Role::Committer), job.start_free(Role::Waiting)];
        let [one, other] = both.map(Process::succeed);
        assert_eq!(one, other);
        job.check_latest();
    }
}

/// Every time the other one is a change further, from neck and neck to long done, or has half of
/// its bytes in a file.
#[test]
fn two_committers_at_every_distance_both_succeed() {
    let (directory, _) = run();
    let counts = {
        let job = parts(directory.path(), 2);
        let mut committer = job.start(Role::Committer);
        assert!(matches!(committer.end(), End::Done(_)));
        committer.counts()
    };
    let mut stops = Deck::new(counts, Among::Changes, &[Moment::Before]).all;
    stops.extend(Deck::new(counts, Among::Writes, &[Moment::Half]).all);
    for (step, stop) in (3..).zip(stops) {
        let job = parts(directory.path(), step);
        let mut first = job.start_at(Role::Committer, Some(stop));
        assert!(first.stopped());
        let second = job.start(Role::Committer).succeed();
        job.check_latest();
        first.resume();
        assert_eq!(first.succeed(), second, "{stop}");
        job.check_latest();
    }
}

#[test]
fn a_restarted_writer_does_not_rejoin() {
    let (directory, old) = run();
    let job = Job::next(directory.path(), 2);
    job.start(Role::Coordinator).succeed();
    // Its first shard is there and nothing else.
    let mut writer = job.start_at(Role::Writer(1), before_change(2));
    assert!(writer.stopped());
    assert_eq!(writer.kill(), End::Killed);
    job.start(Role::Writer(1)).fail(Code::Exists, "writer.restart");
    // All it had to write is there.
    job.start(Role::Writer(2)).succeed();
    job.start(Role::Writer(2)).fail(Code::Exists, "writer.restart");
    job.start(Role::Writer(0)).succeed();
    let message = job.start(Role::Committer).fail(Code::WriterMissing, "part.all-writers");
    assert!(message.ends_with("that of writer 1 is missing"), "{message}");
    old.check_latest();
    // Nor into what is a checkpoint.
    old.start(Role::Writer(1)).fail(Code::Exists, "writer.restart");
    old.check_latest();
    let next = Job::next(directory.path(), 2);
    next.save();
    next.check_latest();
}

/// The launcher lost sight of a writer and started it again while it still lives: both look before
/// either has a file.
#[test]
fn one_writer_twice_is_no_checkpoint() {
    let (directory, old) = run();
    let job = Job::next(directory.path(), 2);
    job.start(Role::Coordinator).succeed();
    job.start(Role::Writer(0)).succeed();
    job.start(Role::Writer(2)).succeed();
    let mut twins = [1, 1].map(|writer| job.start_at(Role::Writer(writer), before_change(1)));
    for twin in &mut twins {
        assert!(twin.stopped());
        twin.resume();
    }
    let [one, other] = twins.map(Process::succeed);
    assert_ne!(one, other);
    job.start(Role::Committer).fail(Code::DuplicateWriter, "part.one-per-writer");
    let attempt = job.attempt().unwrap();
    let refused = salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap_err();
    assert_eq!((refused.code(), refused.rule_id()), (Code::Ambiguous, Some("salvage.verify")));
    old.check_latest();
}

/// The same with one incarnation for both: files are made exclusively.
#[test]
fn two_writers_never_share_a_file() {
    let (directory, old) = run();
    let job = Job::next(directory.path(), 2);
    job.start(Role::Coordinator).succeed();
    let inc = Incarnation(7);
    let mut late = job.start_as(Role::Writer(1), before_change(1), inc);
    assert!(late.stopped());
    job.start_as(Role::Writer(1), None, inc).succeed();
    late.resume();
    assert!(matches!(late.end(), End::Failed { code, .. } if code == Code::Exists.as_str()));
    assert_eq!(late.counts().writes, 0);
    for writer in [0, 2] {
        job.start(Role::Writer(writer)).succeed();
    }
    old.check_latest();
    job.start(Role::Committer).succeed();
    job.check_latest();
}

/// A job is taken for dead and another begins; then the first one goes on.
#[test]
fn a_job_that_comes_back_is_fenced() {
    let (directory, _) = run();
    let zombie = Job::next(directory.path(), 9);
    zombie.start(Role::Coordinator).succeed();
    zombie.start(Role::Writer(0)).succeed();
    zombie.start(Role::Writer(1)).succeed();
    let mut asleep = zombie.start_at(Role::Writer(2), before_change(5));
    assert!(asleep.stopped());

    // It has saved less, and yet it is the one to go on from.
    let next = Job::next(directory.path(), 5);
    next.save();
    asleep.resume();
    asleep.succeed();
    zombie.start(Role::Committer).fail(Code::Fenced, "commit.fence");
    next.check_latest();
    let mut again = zombie.clone();
    again.step = 10;
    again.start(Role::Coordinator).fail(Code::Fenced, "commit.fence");
    next.check_latest();
    assert_eq!(zombie.attempt().unwrap().stat(names::MANIFEST).unwrap(), None);
}

/// A committer sleeps at every change while the next job begins and saves. When it wakes up it is
/// fenced, or was past the point; the newer job stays the latest either way.
#[test]
fn a_committer_that_comes_back_changes_nothing() {
    let (directory, _) = run();
    let changes = {
        let job = parts(directory.path(), 2);
        let mut committer = job.start(Role::Committer);
        assert!(matches!(committer.end(), End::Done(_)));
        committer.counts().changes
    };
    let (mut fenced, mut done) = (0, 0);
    for nth in 1..=changes {
        let zombie = parts(directory.path(), 100 + nth);
        let mut asleep = zombie.start_at(Role::Committer, before_change(nth));
        assert!(asleep.stopped());
        let next = Job::next(directory.path(), 3);
        next.save();
        asleep.resume();
        match asleep.end() {
            End::Failed { code, .. } if code == Code::Fenced.as_str() => fenced += 1,
            End::Done(_) => done += 1,
            other => panic!("{nth}: {other:?}"),
        }
        next.check_latest();
    }
    assert!(fenced > 0 && done > 0, "{fenced} fenced, {done} done");
}

/// The files of a checkpoint in the order of their names.
fn files(job: &Job) -> Vec<(String, PathBuf)> {
    let from = job.path.join(job.name());
    let names = open_path(&from).unwrap().list().unwrap().into_iter().map(|listed| listed.name);
    names.map(|name| (name.clone(), from.join(name))).collect()
}

/// Plain copying tools go by name: whenever one is cut, there is no checkpoint yet.
#[test]
fn a_copy_cut_short_is_no_checkpoint() {
    let (directory, old) = run();
    let far = tempfile::tempdir().unwrap();
    let job = Job::next(far.path(), 4);
    job.save();
    // Above the old one, or it would not come first.
    assert_eq!(job.timeline(), old.timeline());
    let to = directory.path().join(job.name());
    fs::create_dir(&to).unwrap();
    let files = files(&job);
    assert_eq!(files.last().unwrap().0, names::COMMIT);
    for (name, from) in &files {
        old.check_latest();
        let bytes = fs::read(from).unwrap();
        fs::write(to.join(name), &bytes[..bytes.len() / 2]).unwrap();
        if name != names::COMMIT {
            old.check_latest();
        }
        fs::write(to.join(name), &bytes).unwrap();
    }
    let copy = job.at(directory.path());
    copy.check_latest();
}

/// Copied in any other order, with the commit file before the rest: seen, and skipped.
#[test]
fn a_commit_file_without_the_rest_is_skipped() {
    let (directory, old) = run();
    let far = tempfile::tempdir().unwrap();
    let job = Job::next(far.path(), 4);
    job.save();
    let to = directory.path().join(job.name());
    fs::create_dir(&to).unwrap();
    let files = files(&job);
    for (name, from) in &files {
        fs::copy(from, to.join(name)).unwrap();
    }
    let run = open_path(directory.path()).unwrap();
    let skipped = || {
        let latest = latest(&run).unwrap();
        assert_eq!(latest.name, old.name());
        let [(name, why)] = &latest.skipped[..] else { panic!("{:?}", latest.skipped) };
        assert_eq!(*name, job.name());
        why.code()
    };
    let copy = job.at(directory.path());
    for (name, from) in &files {
        copy.check_latest();
        let there = to.join(name);
        fs::remove_file(&there).unwrap();
        let (missing, half) = match name.as_str() {
            names::COMMIT => (Code::NotCommitted, Code::CommitGrammar),
            names::MANIFEST => (Code::FileMissing, Code::DigestMismatch),
            _ => (Code::FileMissing, Code::LengthMismatch),
        };
        assert_eq!(skipped(), missing, "{name}");
        let bytes = fs::read(from).unwrap();
        fs::write(&there, &bytes[..bytes.len() / 2]).unwrap();
        assert_eq!(skipped(), half, "{name}");
        fs::write(&there, &bytes).unwrap();
    }
    // Only the commit file, as a tool in the wrong order begins.
    for (name, _) in files.iter().filter(|(name, _)| name != names::COMMIT) {
        fs::remove_file(to.join(name)).unwrap();
    }
    assert_eq!(skipped(), Code::FileMissing);
    old.check_latest();
    // No attempt of it either: there are no parts.
    let attempt = copy.attempt().unwrap();
    let refused = commit(&attempt, &copy.options(), &NoProgress).unwrap_err();
    assert_eq!(refused.code(), Code::WriterMissing);
}
