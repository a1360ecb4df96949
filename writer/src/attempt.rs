//! What a job agrees on once, and the directories of its saves.
//!
//! It knows timelines, nonces and names. It must not know what is written into an attempt.

use std::sync::Arc;

use waystation_format::common::{Common, Topology, Version};
use waystation_format::features::Features;
use waystation_format::value_tree::hex;
use waystation_format::{Attempt, Code, Digest, Error, Incarnation, Result, limits, names, rule};
use waystation_store::{Kind, Put, Store};

use crate::put;

use crate::session;

/// What all processes of a job know from its start: made by one, given to all (by the launcher or
/// one broadcast).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPlan {
    /// Name of the run.
    pub run: String,
    /// One above the highest timeline that was in the run when the job started.
    pub timeline: u32,
    /// Drawn at random for this job.
    pub nonce: [u8; 16],
    /// Number of writers, 0…N−1.
    pub writers: u32,
    /// The job's axes and their sizes.
    pub topology: Topology,
    /// The manifest digest of the checkpoint that the job resumed from.
    pub parent: Option<Digest>,
    /// Bytes that one CRC of a shard's table covers: a power of two, 2^12 … 2^24.
    pub block_bytes: u64,
}

impl SessionPlan {
    /// A plan for a job that starts now: a timeline above every one in `run`, claimed there so that
    /// no job that starts at the same moment has it too, and a fresh nonce.
    /// No parent, blocks of the default size; both are public members.
    ///
    /// # Errors
    ///
    /// `limit` when the run is out of timelines; the store's.
    pub fn next_in(
        run: &Arc<dyn Store>,
        name: impl Into<String>,
        writers: u32,
        topology: Topology,
    ) -> Result<Self> {
        let nonce = draw()?;
        let timeline = claim(run, &nonce)?;
        Ok(Self { timeline, ..Self::with_nonce(nonce, name.into(), writers, topology) })
    }

    /// A plan for a checkpoint that stands alone: of timeline 1 and a fresh nonce, and nothing is claimed,
    /// for no job can be there beside it.
    ///
    /// # Errors
    ///
    /// Those of the system's source of random bytes.
    pub fn alone(name: impl Into<String>, writers: u32, topology: Topology) -> Result<Self> {
        Ok(Self::with_nonce(draw()?, name.into(), writers, topology))
    }

    fn with_nonce(nonce: [u8; 16], run: String, writers: u32, topology: Topology) -> Self {
        Self {
            run,
            timeline: 1,
            nonce,
            writers,
            topology,
            parent: None,
            block_bytes: limits::BLOCK_BYTES_DEFAULT,
        }
    }

    /// Whether every save of this plan could say what it says, for a plan that others made or changed.
    ///
    /// # Errors
    ///
    /// `bad-argument` for no writers; what the members break, as `bad-member` for a block length that is none.
    pub fn check(&self) -> Result<()> {
        if self.writers == 0 {
            let message = "expected at least one writer, found 0";
            return Err(Error::rule(Code::BadArgument, rule::PART_WRITER, message));
        }
        session::check_common(&self.common(0, 0), 0, Incarnation(0))
    }

    /// The attempt of the save of `step`, the job's save number `counter` (from 0).
    ///
    /// Steps ascend within a timeline. For one that is saved again take the next counter whose attempt is greater than
    /// that of the save before (11): `latest` takes the greatest.
    #[must_use]
    pub fn attempt(&self, step: u64, counter: u64) -> Attempt {
        Attempt::derive(self.timeline, &self.nonce, step, counter)
    }

    /// What every part of that save states.
    #[must_use]
    pub fn common(&self, step: u64, counter: u64) -> Common {
        Common {
            attempt: self.attempt(step, counter),
            block_bytes: self.block_bytes,
            features: Features::default(),
            parent: self.parent,
            run: self.run.clone(),
            step,
            topology: self.topology.clone(),
            version: Version::CURRENT,
            writers: self.writers,
        }
    }
}

/// Makes the directory of a save, durably. The coordinator calls it before any writer begins;
/// writers open the directory by the name that it returns.
///
/// # Errors
///
/// `exists` when it is there already: fatal, never to be written into; `fenced` when the run has a
/// higher timeline; the store's.
pub fn make_attempt(
    run: &Arc<dyn Store>,
    plan: &SessionPlan,
    step: u64,
    counter: u64,
) -> Result<(String, Arc<dyn Store>)> {
    if step > limits::STEP {
        let message = format!("expected a step up to {}, found {step}", limits::STEP);
        return Err(Error::rule(Code::Limit, rule::LIMIT_VALUE, message));
    }
    check_fence(run, plan.timeline)?;
    let name = names::attempt_dir(step, &plan.attempt(step, counter));
    let attempt = run.make_dir(&name).map_err(|e| match e.code() {
        Code::Exists => {
            let message = "expected an attempt that nobody has begun, found its directory";
            Error::rule(Code::Exists, rule::SESSION_DIRECTORY, message).in_file(&name)
        }
        _ => e,
    })?;
    run.sync()?;
    Ok((name, attempt))
}

/// The attempt of a program that writes the checkpoint of `original` again.
pub(crate) fn following(original: Attempt) -> Result<Attempt> {
    Ok(Attempt::derive(next(original.timeline)?, &draw()?, 0, 0))
}

/// Takes the lowest timeline that is above all attempts and claims in `run`, and is this job's alone.
fn claim(run: &Arc<dyn Store>, nonce: &[u8; 16]) -> Result<u32> {
    let bytes = hex(nonce);
    // What others took while this job looked; a listing may lag behind.
    let mut lost = 0;
    loop {
        let attempts = highest_timeline(run)?.unwrap_or(0);
        let claims = claims(run)?;
        let taken = claims.iter().copied().fold(attempts, u32::max).max(lost);
        let timeline = next(taken).map_err(|e| e.in_file(run.describe()))?;
        let name = names::timeline_claim(timeline);
        match run.put_new(&name, bytes.as_bytes()) {
            Ok(Put::Created) => {}
            Ok(Put::Exists) => {
                lost = timeline;
                continue;
            }
            // The reply may have been lost, and the claim be there.
            Err(doubt) if !put::equals(run, &name, bytes.as_bytes()).unwrap_or(false) => {
                return Err(doubt);
            }
            Err(_) => {}
        }
        run.sync()?;
        // A rename that cannot be told to replace nothing, where there are no links either, may have put
        // the claim of another over this one.
        if !put::equals(run, &name, bytes.as_bytes())? {
            lost = timeline;
            continue;
        }
        // Attempts stand for those below them. That one stays, which is no error, changes nothing.
        for old in claims.into_iter().filter(|old| *old < attempts) {
            drop(run.remove(&names::timeline_claim(old)));
        }
        return Ok(timeline);
    }
}

/// The timelines that jobs have claimed in `run`.
fn claims(run: &Arc<dyn Store>) -> Result<Vec<u32>> {
    let listed = run.list()?;
    Ok(listed.iter().filter_map(|listed| names::parse_timeline_claim(&listed.name)).collect())
}

fn next(timeline: u32) -> Result<u32> {
    timeline.checked_add(1).ok_or_else(|| {
        let message = "expected a timeline below 2^32 - 1, found the last one";
        Error::rule(Code::Limit, rule::SESSION_TIMELINE, message)
    })
}

fn draw() -> Result<[u8; 16]> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|e| Error::io("draw a nonce", e.into()))?;
    Ok(nonce)
}

/// The highest timeline of any attempt in `run`, committed or not; `None` without attempts.
///
/// # Errors
///
/// The store's.
pub fn highest_timeline(run: &Arc<dyn Store>) -> Result<Option<u32>> {
    Ok(highest(run)?.map(|(timeline, _)| timeline))
}

/// Stops a job that another has succeeded.
///
/// # Errors
///
/// `fenced` when `run` has an attempt of a timeline above `timeline`; the store's.
pub(crate) fn check_fence(run: &Arc<dyn Store>, timeline: u32) -> Result<()> {
    match highest(run)? {
        Some((higher, name)) if higher > timeline => {
            let message =
                format!("expected no timeline above {timeline} in the run, found {higher}");
            Err(Error::rule(Code::Fenced, rule::COMMIT_FENCE, message).in_file(name))
        }
        _ => Ok(()),
    }
}

fn highest(run: &Arc<dyn Store>) -> Result<Option<(u32, String)>> {
    // What has an attempt's name and is no directory is none.
    let listed = run.list()?.into_iter().filter(|listed| listed.stat.kind == Kind::Directory);
    let attempts = listed.filter_map(|listed| {
        let (_, attempt) = names::parse_attempt_dir(&listed.name)?;
        Some((attempt.timeline, listed.name))
    });
    Ok(attempts.max_by_key(|(timeline, _)| *timeline))
}
