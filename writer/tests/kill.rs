//! Jobs of real processes, killed 300 times by SIGKILL: in every window of the specification's table of
//! crash points, at every call and at any time. The old checkpoint is always there, the new one
//! only when it is whole, and the run goes on.
//!
//! What SIGKILL cannot show is a lost page cache; the order of fsyncs is checked elsewhere.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and this one reports what it met"
)]

mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use tempfile::TempDir;
use waystation_format::{Code, Digest, names, rule};
use waystation_reader::{NoProgress, State, latest, list};
use waystation_store::{Store, open_path};
use waystation_writer::{CommitOptions, GcPolicy, SalvageOptions, commit, gc, salvage};

use processes::content::{self, Rng, WRITERS};
use processes::deck::{AROUND, Deck};
use processes::stop_at::{Among, Counts, Moment, Stop};
use processes::window::{Found, Window};
use processes::{End, Job, Process, Role};

/// Of all: stopped at a call and killed there.
const STEPPED: usize = 220;
/// Of all: killed after a random time.
const TIMED: usize = 80;
/// Of all: with a shard on disk and no commit file.
const BETWEEN: usize = 150;
/// Kills in every window up to W8, at least.
const EACH: usize = 4;

/// What these tests start as processes of their own.
#[test]
#[ignore = "a role that the other tests start"]
fn process() {
    processes::play();
}

/// Where each kind of process may be stopped.
struct Decks {
    coordinator: Deck,
    /// By writer: every call; every change; every write in its middle.
    writers: Vec<[Deck; 3]>,
    committer_changes: Deck,
    committer_calls: Deck,
}

impl Decks {
    fn new(coordinator: Counts, writers: &[Counts], committer: Counts) -> Self {
        let writer = |&writer: &Counts| {
            [
                Deck::new(writer, Among::Calls, &AROUND),
                Deck::new(writer, Among::Changes, &AROUND),
                Deck::new(writer, Among::Writes, &[Moment::Half]),
            ]
        };
        Self {
            coordinator: Deck::new(coordinator, Among::Calls, &AROUND),
            writers: writers.iter().map(writer).collect(),
            committer_changes: Deck::new(committer, Among::Changes, &AROUND),
            committer_calls: Deck::new(committer, Among::Calls, &AROUND),
        }
    }
}

/// How a job is stopped.
#[derive(Clone, Copy, Debug)]
enum How {
    /// In the coordinator.
    Coordinator,
    /// In the writer that comes so many after the first; later ones never start.
    WriterAfter(u32),
    /// In one of the writers, while the others go on to their end.
    WriterAmong,
    /// At a change of the committer.
    CommitterChange,
    /// At any call of the committer.
    CommitterCall,
    /// All at once after a random time.
    TimedAll,
    /// One at a random time, while the others go on to their end.
    TimedOne,
}

impl How {
    fn is_timed(self) -> bool {
        matches!(self, Self::TimedAll | Self::TimedOne)
    }
}

/// One row of the table that is printed.
#[derive(Debug, Default)]
struct Row {
    stepped: usize,
    timed: usize,
    old: usize,
    new: usize,
    commit: usize,
    salvage: usize,
    retry: usize,
}

struct Sweep {
    directory: TempDir,
    run: Arc<dyn Store>,
    rng: Rng,
    decks: Decks,
    /// Of a whole job.
    duration: Duration,
    latest: Job,
    step: u64,
    /// Recoveries of attempts with all parts, and of those without.
    turns: usize,
    rows: BTreeMap<Window, Row>,
    kills: usize,
    processes: usize,
    between: usize,
    temporaries: usize,
}

#[test]
fn three_hundred_kills() {
    let seed = env::var("WAYSTATION_KILL_SEED").map_or(7, |seed| seed.parse().unwrap());
    let begin = Instant::now();
    let mut sweep = Sweep::new(seed);
    let mut plan = vec![How::Coordinator; 10];
    plan.extend([How::WriterAfter(0); 55]);
    plan.extend([How::WriterAfter(1); 30]);
    plan.extend([How::WriterAfter(2); 30]);
    plan.extend([How::WriterAmong; 30]);
    // All of them, so that no window is left out.
    plan.extend([How::CommitterChange; 50]);
    plan.extend([How::CommitterCall; 15]);
    assert_eq!(plan.len(), STEPPED);
    plan.extend([How::TimedAll; 55]);
    plan.extend([How::TimedOne; 25]);
    assert_eq!(plan.len(), STEPPED + TIMED);
    for at in (1..plan.len()).rev() {
        plan.swap(at, sweep.rng.below(at as u64 + 1) as usize);
    }
    for how in plan {
        while !sweep.round(how) {}
    }
    sweep.report(seed, begin.elapsed());
    assert_eq!(sweep.kills, STEPPED + TIMED);
    assert!(sweep.between >= BETWEEN, "{}", sweep.between);
    for (window, name, _) in &Window::TABLE[1..9] {
        let kills = sweep.rows.get(window).map_or(0, |row| row.stepped + row.timed);
        assert!(kills >= EACH, "{kills} in {name}");
    }
}

impl Sweep {
    /// A run with one checkpoint, and how many calls and how long a save takes.
    fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let count = |process: &mut Process| {
            assert!(matches!(process.end(), End::Done(_)), "{:?}", process.said);
            process.counts()
        };
        // Each alone in its run: among attempts and files of others it makes more calls, never fewer.
        let alone = (0..WRITERS).map(|writer| {
            let empty = tempfile::tempdir().unwrap();
            let job = Job::next(empty.path(), 1);
            job.start(Role::Coordinator).succeed();
            count(&mut job.start(Role::Writer(writer)))
        });
        let writers: Vec<Counts> = alone.collect();
        let job = Job::next(path, 1);
        let coordinator = count(&mut job.start(Role::Coordinator));
        for writer in 0..WRITERS {
            job.start(Role::Writer(writer)).succeed();
        }
        let committer = count(&mut job.start(Role::Committer));
        let mut sweep = Self {
            run: open_path(path).unwrap(),
            rng: Rng(seed),
            decks: Decks::new(coordinator, &writers, committer),
            duration: Duration::ZERO,
            latest: job.clone(),
            step: 1,
            turns: 0,
            rows: BTreeMap::new(),
            kills: 0,
            processes: 0,
            between: 0,
            temporaries: 0,
            directory,
        };
        let took: BTreeSet<Duration> = (0..5).map(|_| sweep.time_job()).collect();
        sweep.duration = *took.iter().nth(took.len() / 2).unwrap();
        println!(
            "calls, changes, writes: coordinator {coordinator}, first writer {}, committer \
             {committer}; a job takes {:.0?}",
            writers[0], sweep.duration
        );
        sweep
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn next_job(&mut self) -> Job {
        self.step += 1;
        Job::next(self.path(), self.step)
    }

    /// A whole save as the timed rounds do it, and how long it took.
    fn time_job(&mut self) -> Duration {
        let job = self.next_job();
        let begin = Instant::now();
        assert!(matches!(job.start_free(Role::Coordinator).end(), End::Done(_)));
        for mut process in start_all(&job) {
            assert!(matches!(process.end(), End::Done(_)), "{:?}", process.said);
        }
        let took = begin.elapsed();
        self.latest = job.clone();
        took
    }

    /// One job, its death, and what comes after it. False when it lived, which is no kill.
    fn round(&mut self, how: How) -> bool {
        let job = self.next_job();
        let (killed, dead) = match how {
            How::TimedAll => self.time_out(&job, true),
            How::TimedOne => self.time_out(&job, false),
            _ => self.stop(&job, how),
        };
        let (window, found) = Window::of(&job, &dead);
        drop(dead);
        let is_new = found.commit;
        let latest = if is_new { job.check_latest() } else { self.latest.check_latest() };
        let skipped: Vec<(&str, Code)> =
            latest.skipped.iter().map(|(name, e)| (name.as_str(), e.code())).collect();
        if is_new || window == Window::Before {
            assert_eq!(skipped, [], "{how:?}");
        } else {
            assert_eq!(skipped, [(job.name().as_str(), Code::NotCommitted)], "{how:?}");
        }
        if killed > 0 {
            self.kills += 1;
            self.processes += killed;
            self.between += usize::from(found.shards > 0 && !found.commit);
            self.temporaries += usize::from(found.temporaries > 0);
            let row = self.rows.entry(window).or_default();
            *(if how.is_timed() { &mut row.timed } else { &mut row.stepped }) += 1;
            *(if is_new { &mut row.new } else { &mut row.old }) += 1;
        }
        self.recover(&job, window, &found);
        self.collect(&job);
        killed > 0
    }

    /// Lets a process come to a call of its own, and kills it there. Gives the number of processes
    /// that died by SIGKILL, and all that took part after the coordinator.
    fn stop(&mut self, job: &Job, how: How) -> (usize, Vec<Process>) {
        if let How::Coordinator = how {
            let stop = self.decks.coordinator.draw(&mut self.rng);
            return (1, vec![kill_at(job, Role::Coordinator, stop)]);
        }
        job.start(Role::Coordinator).succeed();
        let first = self.rng.below(u64::from(WRITERS)) as u32;
        let writer = |n: u32| (first + n) % WRITERS;
        let nth = |n: u32| Role::Writer(writer(n));
        let mut took_part = Vec::new();
        match how {
            How::WriterAfter(before) => {
                took_part.extend((0..before).map(|n| finish(job, nth(n))));
                took_part.push(kill_at(job, nth(before), self.draw_writer(writer(before))));
            }
            How::WriterAmong => {
                let stop = self.draw_writer(first);
                let mut victim = job.start_at(nth(0), Some(stop));
                let others: Vec<Process> = (1..WRITERS).map(|n| job.start(nth(n))).collect();
                let stopped = victim.stopped();
                for mut other in others {
                    assert!(matches!(other.end(), End::Done(_)), "{:?}", other.said);
                    took_part.push(other);
                }
                assert!(stopped, "{stop}: {:?}", victim.said);
                assert_eq!(victim.kill(), End::Killed);
                took_part.push(victim);
            }
            _ => {
                took_part.extend((0..WRITERS).map(|n| finish(job, nth(n))));
                let deck = match how {
                    How::CommitterChange => &mut self.decks.committer_changes,
                    _ => &mut self.decks.committer_calls,
                };
                let stop = deck.draw(&mut self.rng);
                took_part.push(kill_at(job, Role::Committer, stop));
            }
        }
        (1, took_part)
    }

    fn draw_writer(&mut self, writer: u32) -> Stop {
        let deck = self.rng.below(3) as usize;
        self.decks.writers[writer as usize][deck].draw(&mut self.rng)
    }

    /// Runs the whole job at once and kills all of it, or one process, after a random time.
    fn time_out(&mut self, job: &Job, all: bool) -> (usize, Vec<Process>) {
        // Rather late than early: a good part of a job is starting processes.
        let share = (self.rng.below(1000) as f64 / 1000.0).sqrt();
        let end = Instant::now() + self.duration.mul_f64(share);
        let mut coordinator = job.start_free(Role::Coordinator);
        while coordinator.is_running() && Instant::now() < end {
            thread::sleep(Duration::from_micros(200));
        }
        if coordinator.kill() == End::Killed {
            return (1, vec![coordinator]);
        }
        let mut team = start_all(job);
        thread::sleep(end.saturating_duration_since(Instant::now()));
        if all {
            let ends: Vec<End> = team.iter_mut().map(Process::kill).collect();
            return (ends.iter().filter(|end| **end == End::Killed).count(), team);
        }
        let victim = self.rng.below(team.len() as u64) as usize;
        let mut killed = usize::from(team[victim].kill() == End::Killed);
        let committer = WRITERS as usize;
        for writer in &mut team[..committer] {
            writer.end();
        }
        // Without its part the committer would wait for long.
        if !Found::in_attempt(&job.attempt().unwrap()).has_all_parts() {
            killed += usize::from(team[committer].kill() == End::Killed);
        }
        team[committer].end();
        (killed, team)
    }

    /// What a user does next. Afterwards the job's save or that of a newer one is the latest.
    fn recover(&mut self, job: &Job, window: Window, found: &Found) {
        let options = job.options();
        let Some(attempt) = job.attempt() else { return self.retry(window) };
        if found.commit {
            let again = commit(&attempt, &options, &NoProgress).unwrap();
            assert!(again.already);
            assert_eq!(again.digest, latest(&self.run).unwrap().digest);
            self.latest = job.clone();
            return;
        }
        if !found.has_all_parts() {
            refused(&attempt, &options, found);
            return self.retry(window);
        }
        self.turns += 1;
        let digest = match self.turns % 3 {
            0 => self.commit(&attempt, &options, window),
            1 => self.salvage(job, &attempt, window),
            _ => {
                self.retry(window);
                let late = commit(&attempt, &options, &NoProgress).unwrap_err();
                assert_eq!((late.code(), late.rule_id()), (Code::Fenced, Some(rule::COMMIT_FENCE)));
                return drop(self.latest.check_latest());
            }
        };
        assert_eq!(job.check_latest().digest, digest);
        self.latest = job.clone();
    }

    fn commit(
        &mut self,
        attempt: &Arc<dyn Store>,
        options: &CommitOptions,
        window: Window,
    ) -> Digest {
        let committed = commit(attempt, options, &NoProgress).unwrap();
        assert!(!committed.already);
        self.rows.entry(window).or_default().commit += 1;
        committed.digest
    }

    fn salvage(&mut self, job: &Job, attempt: &Arc<dyn Store>, window: Window) -> Digest {
        let mut options = SalvageOptions::new();
        options.run = Some(Arc::clone(&self.run));
        options.name = Some(job.name());
        let salvaged = salvage(attempt, &options, &NoProgress).unwrap();
        assert!(!salvaged.already);
        self.rows.entry(window).or_default().salvage += 1;
        salvaged.digest
    }

    /// Saves the same step again, as a new job of a higher timeline.
    fn retry(&mut self, window: Window) {
        let job = Job::next(self.path(), self.step);
        job.save();
        self.latest = job.clone();
        self.latest.check_latest();
        self.rows.entry(window).or_default().retry += 1;
    }

    /// Removes what is dead, and never the latest.
    fn collect(&mut self, job: &Job) {
        let keep = 1 + self.kills % 2;
        gc(&self.run, &GcPolicy::keep_last(keep)).unwrap();
        let left = list(&self.run).unwrap();
        assert!(left.len() <= keep, "{left:?}");
        for attempt in &left {
            assert!(matches!(attempt.state, State::Complete { .. }), "{attempt:?}");
        }
        let latest = latest(&self.run).unwrap();
        assert_eq!(latest.name, self.latest.name());
        assert!(latest.skipped.is_empty());
        assert_eq!(job.attempt().is_some(), left.iter().any(|left| left.name == job.name()));
    }

    fn report(&self, seed: u64, took: Duration) {
        println!(
            "\nseed {seed}: {} kills ({} processes) in {took:.0?}, {} between the first shard and \
             the commit file, {} left a temporary\n",
            self.kills, self.processes, self.between, self.temporaries
        );
        println!(
            "{:<3} {:<20} {:>7} {:>5} | {:>4} {:>4} | {:>6} {:>7} {:>5}",
            "", "from", "stepped", "timed", "old", "new", "commit", "salvage", "retry"
        );
        for (window, name, from) in &Window::TABLE {
            let none = Row::default();
            let row = self.rows.get(window).unwrap_or(&none);
            println!(
                "{name:<3} {from:<20} {:>7} {:>5} | {:>4} {:>4} | {:>6} {:>7} {:>5}",
                row.stepped, row.timed, row.old, row.new, row.commit, row.salvage, row.retry
            );
        }
    }
}

/// The writers and a committer that waits for them, in this order.
fn start_all(job: &Job) -> Vec<Process> {
    let writers = (0..WRITERS).map(Role::Writer);
    writers.chain([Role::Waiting]).map(|role| job.start_free(role)).collect()
}

fn finish(job: &Job, role: Role) -> Process {
    let mut process = job.start(role);
    assert!(matches!(process.end(), End::Done(_)), "{:?}", process.said);
    process
}

fn kill_at(job: &Job, role: Role, stop: Stop) -> Process {
    let mut process = job.start_at(role, Some(stop));
    assert!(process.stopped(), "{role:?} {stop}: {:?}", process.said);
    assert_eq!(process.kill(), End::Killed);
    process
}

/// Nobody makes a checkpoint of an attempt without all parts.
fn refused(attempt: &Arc<dyn Store>, options: &CommitOptions, found: &Found) {
    let mut salvaging = SalvageOptions::new();
    salvaging.run.clone_from(&options.run);
    let errors = [
        commit(attempt, options, &NoProgress).unwrap_err(),
        salvage(attempt, &salvaging, &NoProgress).unwrap_err(),
    ];
    let missing = (0..WRITERS).filter(|writer| !found.parts.contains(writer));
    let missing: Vec<String> = missing.map(|writer| writer.to_string()).collect();
    let names = match missing.as_slice() {
        [one] => format!("that of writer {one} is missing"),
        more => format!("those of writers {} are missing", more.join(", ")),
    };
    for error in errors {
        assert_eq!(error.code(), Code::WriterMissing, "{error}");
        assert!(found.parts.is_empty() || error.message().ends_with(&names), "{error}");
    }
}

/// A run at `to` with the same files as the one at `from`.
fn copy_run(from: &Path, to: &Path) {
    for attempt in list(&open_path(from).unwrap()).unwrap() {
        let (from, to) = (from.join(&attempt.name), to.join(&attempt.name));
        fs::create_dir(&to).unwrap();
        for file in open_path(&from).unwrap().list().unwrap() {
            fs::copy(from.join(&file.name), to.join(&file.name)).unwrap();
        }
    }
}

/// Kills a process before and after every change that it makes, each time in a copy of the run, and
/// hands the run to `check`. Gives the number of kills.
fn kill_everywhere(job: &Job, role: Role, check: impl Fn(&Job, Stop)) -> usize {
    let in_copy = |work: &mut dyn FnMut(&Job)| {
        let directory = tempfile::tempdir().unwrap();
        copy_run(&job.path, directory.path());
        work(&job.at(directory.path()));
    };
    let mut stops = Vec::new();
    in_copy(&mut |job| {
        let mut process = job.start(role);
        assert!(matches!(process.end(), End::Done(_)), "{:?}", process.said);
        stops = Deck::new(process.counts(), Among::Changes, &AROUND).all;
    });
    for &stop in &stops {
        in_copy(&mut |job| {
            drop(kill_at(job, role, stop));
            check(job, stop);
        });
    }
    stops.len()
}

/// A keeper that dies while it deletes leaves nothing that passes for a checkpoint, and the next
/// one ends its work.
#[test]
fn a_keeper_killed_at_every_change() {
    let directory = tempfile::tempdir().unwrap();
    let [older, dead, kept] = [1, 2, 3].map(|step| {
        let job = Job::next(directory.path(), step);
        job.save();
        job
    });
    fs::remove_file(dead.path.join(dead.name()).join(names::COMMIT)).unwrap();
    let kills = kill_everywhere(&kept, Role::Keeper, |job, stop| {
        let run = open_path(&job.path).unwrap();
        job.check_latest();
        for attempt in list(&run).unwrap() {
            let name = &attempt.name;
            match attempt.state {
                State::Complete { .. } => assert!(*name != dead.name(), "{stop}"),
                State::Uncommitted | State::Deleted => assert!(*name != job.name(), "{stop}"),
                other => panic!("{stop}: {name} is {other:?}"),
            }
        }
        if let Some(older) = older.at(&job.path).attempt()
            && older.stat(names::COMMIT).unwrap().is_some()
            && older.stat(names::DELETED).unwrap().is_none()
        {
            content::check(&older, 1, 1);
        }
        job.start(Role::Keeper).succeed();
        let left: Vec<String> = list(&run).unwrap().into_iter().map(|left| left.name).collect();
        assert_eq!(left, [job.name()], "{stop}");
        job.check_latest();
    });
    println!("a keeper: {kills} kills");
}

/// Salvage that dies while it replaces a broken root never leaves a commit file above it.
#[test]
fn salvage_killed_at_every_change() {
    let directory = tempfile::tempdir().unwrap();
    let old = Job::next(directory.path(), 1);
    old.save();
    let broken = Job::next(directory.path(), 2);
    broken.save();
    let attempt = broken.path.join(broken.name());
    for name in [names::MANIFEST, "tensors-00000.json"] {
        let mut bytes = fs::read(attempt.join(name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(attempt.join(name), bytes).unwrap();
    }
    let kills = kill_everywhere(&broken, Role::Salvager, |job, stop| {
        let run = open_path(&job.path).unwrap();
        let found = latest(&run).unwrap();
        if found.name == job.name() {
            job.check_latest();
        } else {
            old.at(&job.path).check_latest();
            let why: Vec<Code> = found.skipped.iter().map(|(_, e)| e.code()).collect();
            assert!(
                matches!(why[..], [Code::DigestMismatch | Code::NotCommitted]),
                "{stop} {why:?}"
            );
        }
        job.start(Role::Salvager).succeed();
        job.check_latest();
    });
    println!("salvage: {kills} kills");
}
