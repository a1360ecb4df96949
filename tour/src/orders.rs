//! What a rank is told at its start, and what it tells.
//!
//! It knows the words only.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use waystation_format::common::Topology;
use waystation_format::{Code, Digest, Error, Result};
use waystation_writer::SessionPlan;

use crate::fault::Fault;

/// What a rank does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// The run's directory.
    pub(crate) run: PathBuf,
    pub(crate) plan: Plan,
    /// The checkpoint to go on from: its name in the run and its digest.
    pub(crate) resume: Option<(String, String)>,
    /// The last step to take.
    pub(crate) until: u64,
    /// Save after each multiple of so many steps, and at last.
    pub(crate) save_every: u64,
    /// Wait for ever in the middle of the save of this step.
    pub(crate) hold_at: Option<u64>,
    /// Do this wrong once, after resuming.
    pub(crate) fault: Option<Fault>,
}

/// What the ranks of a job agree on: a [`SessionPlan`] on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    run: String,
    timeline: u32,
    nonce: [u8; 16],
    writers: u32,
    topology: Vec<(String, u64)>,
    parent: Option<String>,
    block_bytes: u64,
}

/// What a rank tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// It has restored its share of a checkpoint: numbers that it read, and what comes next.
    Resumed { rank: usize, numbers: usize, dropout: String, sample: u64 },
    /// A step is done. By rank 0.
    Step { step: u64, loss: u32 },
    /// A checkpoint is committed. By rank 0.
    Saved { step: u64, name: String, digest: String },
    /// It waits in the middle of a save.
    Holding { rank: usize, name: String },
    /// It did all it was told.
    Done { rank: usize },
    /// It could not.
    Failed { rank: usize, code: String, message: String },
}

impl From<&SessionPlan> for Plan {
    fn from(plan: &SessionPlan) -> Self {
        Self {
            run: plan.run.clone(),
            timeline: plan.timeline,
            nonce: plan.nonce,
            writers: plan.writers,
            topology: plan.topology.0.clone(),
            parent: plan.parent.map(|digest| digest.to_string()),
            block_bytes: plan.block_bytes,
        }
    }
}

impl Plan {
    /// # Errors
    /// `bad-argument` when the parent is no digest.
    pub(crate) fn session(&self) -> Result<SessionPlan> {
        let parent = match &self.parent {
            Some(text) => Some(digest(text)?),
            None => None,
        };
        Ok(SessionPlan {
            run: self.run.clone(),
            timeline: self.timeline,
            nonce: self.nonce,
            writers: self.writers,
            topology: Topology(self.topology.clone()),
            parent,
            block_bytes: self.block_bytes,
        })
    }
}

/// # Errors
/// `bad-argument` when it is none.
pub(crate) fn digest(text: &str) -> Result<Digest> {
    Digest::from_hex(text)
        .ok_or_else(|| Error::new(Code::BadArgument, format!("expected a digest, found {text:?}")))
}
