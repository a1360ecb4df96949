//! What the tour found, for programs.
//!
//! It knows results only.

use std::path::PathBuf;

use serde::Serialize;

/// What the tour did and whether everything was equal.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether every loss and the final state were equal, bit for bit.
    pub equal: bool,
    /// Optimizer steps of the training.
    pub steps: u64,
    /// Samples of a step.
    pub batch: usize,
    /// Numbers that the model learns.
    pub parameters: usize,
    /// Losses of the run that nobody interrupted, by step.
    pub reference: Vec<f32>,
    /// The jobs of the interrupted run, in order.
    pub jobs: Vec<JobReport>,
    /// How the first of them ended.
    pub kill: KillReport,
    /// What was compared.
    pub compared: Compared,
    /// Wall time.
    pub seconds: f64,
    /// Where the files are, when they were kept.
    pub kept: Option<PathBuf>,
}

/// One job: some rank processes that trained from a checkpoint, or from the start, to their end.
#[derive(Clone, Debug, Serialize)]
pub struct JobReport {
    /// Its processes.
    pub ranks: usize,
    /// The checkpoint that it went on from.
    pub resumed_from: Option<String>,
    /// Its first step.
    pub first: u64,
    /// Losses of its steps.
    pub losses: Vec<f32>,
    /// Checkpoints that it committed.
    pub checkpoints: usize,
}

/// A job that was killed in the middle of a save.
#[derive(Clone, Debug, Serialize)]
pub struct KillReport {
    /// The step that it was saving.
    pub step: u64,
    /// The attempt's directory.
    pub attempt: String,
    /// The signal that each rank died of.
    pub signals: Vec<Option<i32>>,
    /// What was left, by name.
    pub files: Vec<(String, u64)>,
    /// Shards among them: at least one.
    pub shards: usize,
    /// Parts among them: fewer than ranks.
    pub parts: usize,
    /// Whether there was a commit file: never.
    pub committed: bool,
    /// What the reader said of the attempt when it was asked for the latest checkpoint.
    pub skipped: String,
}

/// Comparison with the run that nobody interrupted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Compared {
    /// Losses that were compared.
    pub losses: usize,
    /// Those that differ.
    pub different_losses: usize,
    /// The first one.
    pub first_difference: Option<Difference>,
    /// Numbers of the final state that were compared.
    pub numbers: usize,
    /// Those that differ.
    pub different_numbers: usize,
    /// Records of the final state that were compared.
    pub records: usize,
    /// Those that differ, by key.
    pub different_records: Vec<String>,
}

/// A loss that differs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The step.
    pub step: u64,
    /// Ranks of the job that computed it.
    pub ranks: usize,
    /// What it was without interruption.
    pub expected: f32,
    /// What it was here.
    pub found: f32,
}
