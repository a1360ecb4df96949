//! A small model trained by several processes, killed in mid-save and resumed bit for bit: how a
//! trainer uses Waystation.
//!
//! [`tour`] tells and does all of it; [`rank()`] is what the processes do that it starts. To see
//! how a trainer saves and resumes, read `save.rs` and `resume.rs`, then `records.rs`, `reduce.rs`
//! (sums that do not depend on the number of ranks) and `jobs.rs` (what a launcher decides).
//!
//! The crate knows one model and one text. It must not know command lines.

#![forbid(unsafe_code)]

mod compare;
mod data;
mod fault;
mod hub;
mod jobs;
mod math;
mod model;
mod optimizer;
mod orders;
mod params;
mod plot;
mod rank;
mod records;
mod reduce;
mod report;
mod resume;
mod save;
mod story;
mod stream;
mod text;
mod trainer;
mod tree;
mod wire;
mod words;

pub use fault::Fault;
pub use hub::Program;
pub use rank::rank;
pub use report::{Compared, Difference, JobReport, KillReport, Report};
pub use story::{Options, tour};
pub use words::Say;
