//! Jobs of the tour: planned, started, listened to, and one of them killed in the middle of a save.
//!
//! It knows what the process that starts a job does with Waystation: decide once what to resume
//! from, and what all ranks agree on. Ranks do the rest.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use waystation_format::common::Topology;
use waystation_format::{Code, Error, Result, names};
use waystation_reader::{Latest, Progress, latest};
use waystation_store::{Store, open_or_make_path};
use waystation_writer::SessionPlan;

use crate::fault::Fault;
use crate::hub::{Job, Program};
use crate::orders::{Event, Orders, Plan};
use crate::report::{JobReport, KillReport};
use crate::tree;

/// The rank that is stopped in the middle of its save.
pub(crate) const HELD: usize = 2;
/// How long the others may take to finish theirs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// What SIGKILL is called by the system.
const SIGKILL: i32 = 9;

/// A job that is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) ranks: usize,
    /// The last step.
    pub(crate) until: u64,
    /// Save after each multiple of so many steps.
    pub(crate) save_every: u64,
    /// Stop one rank in the middle of the save of this step.
    pub(crate) hold_at: Option<u64>,
    /// What it does wrong after resuming.
    pub(crate) fault: Option<Fault>,
}

/// Where jobs of one run are started from.
pub(crate) struct Launcher<'l> {
    pub(crate) program: &'l Program,
    pub(crate) path: PathBuf,
    pub(crate) run: Arc<dyn Store>,
    pub(crate) progress: &'l dyn Progress,
}

/// A job that came to its end.
pub(crate) struct Ended {
    pub(crate) report: JobReport,
    /// What each rank told of resuming, in the order in which they told it.
    pub(crate) resumed: Vec<Event>,
    pub(crate) seconds: f64,
}

impl<'l> Launcher<'l> {
    /// Makes the run's directory.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn new(
        program: &'l Program,
        path: &Path,
        progress: &'l dyn Progress,
    ) -> Result<Self> {
        let run = open_or_make_path(path)?;
        Ok(Self { program, path: path.to_owned(), run, progress })
    }

    /// The checkpoint to resume from, `None` when the run has none yet.
    ///
    /// # Errors
    /// Those of the system: a disk that fails is not a fresh start.
    pub(crate) fn latest(&self) -> Result<Option<Latest>> {
        match latest(&self.run) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.code() == Code::NoCheckpoint => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Runs a job to its end.
    ///
    /// # Errors
    /// What a rank failed of.
    pub(crate) fn run(&self, spec: &Spec) -> Result<Ended> {
        let begin = Instant::now();
        let (mut job, mut report) = self.start(spec)?;
        let mut resumed = Vec::new();
        let mut done = 0_usize;
        while let Some(event) = job.next(self.progress)? {
            match event {
                Event::Done { .. } => done = done.saturating_add(1),
                Event::Resumed { .. } => resumed.push(event),
                other => hear(&mut report, &other),
            }
        }
        job.end()?;
        if done != spec.ranks {
            let message =
                format!("expected {} ranks to say that they are done, heard {done}", spec.ranks);
            return Err(Error::new(Code::Io, message));
        }
        Ok(Ended { report, resumed, seconds: begin.elapsed().as_secs_f64() })
    }

    /// Runs a job until one of its ranks stands in the middle of a save and the others have done
    /// their part of it, then kills all of them.
    ///
    /// # Errors
    /// What a rank failed of; `state-disagree` when what is left is not half a checkpoint.
    pub(crate) fn run_and_kill(&self, spec: &Spec) -> Result<(JobReport, KillReport)> {
        let (mut job, mut report) = self.start(spec)?;
        let name = loop {
            match job.next(self.progress)? {
                Some(Event::Holding { name, .. }) => break name,
                Some(event) => hear(&mut report, &event),
                None => return Err(not_half("a rank to stop in its save, all came to their end")),
            }
        };
        let attempt =
            self.run.dir(&name)?.ok_or_else(|| not_half("the attempt's directory, found none"))?;
        let others = spec.ranks.saturating_sub(1);
        let begin = Instant::now();
        while count(&tree::files(&*attempt)?, |name| names::parse_part(name).is_some()) < others {
            if begin.elapsed() > PATIENCE {
                return Err(not_half(
                    "the other ranks to finish their part of the save within a minute, found fewer",
                ));
            }
            thread::sleep(LOOK);
        }
        // Rank 0 is now waiting for the last part.
        check(&tree::files(&*attempt)?, spec.ranks)?;
        let signals = job.kill()?;
        // Nobody is left who could change it.
        let files = tree::files(&*attempt)?;
        let (shards, parts) = check(&files, spec.ranks)?;
        if signals.iter().any(|signal| *signal != Some(SIGKILL)) {
            return Err(not_half(&format!("all ranks to die of SIGKILL, found {signals:?}")));
        }
        let kill = KillReport {
            step: spec.hold_at.unwrap_or_default(),
            attempt: name,
            signals,
            files,
            shards,
            parts,
            committed: false,
            skipped: String::new(),
        };
        Ok((report, kill))
    }

    /// Decides what all ranks must agree on, and starts them.
    fn start(&self, spec: &Spec) -> Result<(Job, JobReport)> {
        let resume = self.latest()?;
        let ranks = u32::try_from(spec.ranks).unwrap_or(u32::MAX);
        let topology = Topology(vec![("dp".to_owned(), u64::from(ranks))]);
        let mut plan = SessionPlan::next_in(&self.run, "tour", ranks, topology)?;
        plan.parent = resume.as_ref().map(|from| from.digest);
        let orders: Vec<Orders> = (0..spec.ranks)
            .map(|rank| Orders {
                rank,
                ranks: spec.ranks,
                run: self.path.clone(),
                plan: Plan::from(&plan),
                resume: resume.as_ref().map(|from| (from.name.clone(), from.digest.to_string())),
                until: spec.until,
                save_every: spec.save_every,
                hold_at: spec.hold_at.filter(|_| rank == HELD),
                fault: spec.fault,
            })
            .collect();
        let report = JobReport {
            ranks: spec.ranks,
            resumed_from: resume.as_ref().map(|from| from.name.clone()),
            first: resume.map_or(0, |from| from.step).saturating_add(1),
            losses: Vec::new(),
            checkpoints: 0,
        };
        Ok((Job::start(self.program, &orders)?, report))
    }
}

/// Notes what a rank told.
fn hear(report: &mut JobReport, event: &Event) {
    match event {
        Event::Step { loss, .. } => report.losses.push(f32::from_bits(*loss)),
        Event::Saved { .. } => report.checkpoints = report.checkpoints.saturating_add(1),
        _ => {}
    }
}

/// Checks that files are those of half a save: at least one shard, not all parts, no commit file.
/// The numbers of shards and parts.
fn check(files: &[(String, u64)], ranks: usize) -> Result<(usize, usize)> {
    let shards = count(files, |name| names::parse_shard(name).is_some());
    let parts = count(files, |name| names::parse_part(name).is_some());
    if shards == 0 {
        return Err(not_half("at least one shard, found none"));
    }
    if parts >= ranks {
        return Err(not_half("a rank whose part is missing, found the parts of all"));
    }
    if count(files, |name| name == names::COMMIT || name == names::MANIFEST) > 0 {
        return Err(not_half("no manifest and no commit file, found one"));
    }
    Ok((shards, parts))
}

fn count(files: &[(String, u64)], is: impl Fn(&str) -> bool) -> usize {
    files.iter().filter(|(name, _)| is(name)).count()
}

#[cold]
fn not_half(expected: &str) -> Error {
    Error::new(Code::StateDisagree, format!("expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<(String, u64)> {
        names.iter().map(|name| ((*name).to_owned(), 1)).collect()
    }

    #[test]
    fn half_a_save_is_told_from_a_whole_one_and_from_none() {
        const SHARD: &str = "model-00000-0123456789abcdef-00.safetensors";
        const PART: &str = "part-00000-0123456789abcdef.json";
        assert!(names::parse_shard(SHARD).is_some() || names::parse_part(PART).is_some());
        assert!(check(&named(&[]), 2).is_err());
        let shard = waystation_format::names::shard(
            waystation_format::ShardClass::Model,
            0,
            waystation_format::Incarnation(1),
            0,
        );
        assert_eq!(check(&named(&[&shard]), 2).unwrap(), (1, 0));
        assert!(check(&named(&[PART]), 2).is_err());
        assert_eq!(check(&named(&[&shard, PART]), 2).unwrap(), (1, 1));
        assert!(check(&named(&[&shard, PART]), 1).is_err());
        assert!(check(&named(&[&shard, names::COMMIT]), 2).is_err());
    }
}
