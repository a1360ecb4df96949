//! Opens, verifies and reads Waystation checkpoints.
//!
//! [`Checkpoint`] opens one and finds what is in it; [`TensorRef`] reads a tensor; [`Plan`] is the
//! same without I/O, for other backends; [`verify()`] checks every rule and byte; [`run`] lists the
//! attempts of a run and finds the one to resume from; [`restore`] gives the state of training to a
//! place of any topology; [`reshard`] shares tensors out among writers. Reads are positional and
//! checked; only [`map`] maps files.
//!
//! The crate knows files and how to get at what they hold. What their bytes mean is the business
//! of `waystation-format`, and it writes nothing.

mod attachment;
mod blocks;
mod cache;
mod checkpoint;
mod complete;
mod links;
pub mod map;
mod options;
mod pages;
mod parallel;
mod plan;
pub mod progress;
mod read;
pub mod reshard;
pub mod restore;
pub mod run;
mod scatter;
mod shards;
mod source;
mod state;
mod tensor;
pub mod verify;

pub use attachment::Attachment;
pub use checkpoint::Checkpoint;
pub use map::{MappedCheckpoint, PrivateView, View};
pub use options::OpenOptions;
pub use plan::{Plan, PlannedRead, Want};
pub use progress::{NoProgress, Progress};
pub use run::{Latest, Listed, Marks, State, latest, list};
pub use tensor::TensorRef;
pub use verify::{Note, Report, VerifyOptions, verify};
pub use waystation_state::Stop;
