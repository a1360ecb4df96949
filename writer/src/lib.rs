//! Lays out, writes, commits, salvages and removes attempts.
//!
//! It knows in which order files come into being and go: what must be durable before what. What
//! the bytes mean is the business of `waystation-format`; opening and verifying that of
//! `waystation-reader`.
//!
//! A save: the coordinator calls [`make_attempt`]; every writer makes a [`Session`], declares its
//! chunks, calls [`Session::lay_out`], writes through [`Writing`] and calls [`Writing::finish`];
//! anybody calls [`commit`].
//!
//! ```
//! use waystation_format::common::Topology;
//! use waystation_format::identity::Identity;
//! use waystation_format::{Dtype, Region};
//! use waystation_reader::{Checkpoint, NoProgress, OpenOptions};
//! use waystation_store::MemoryFs;
//! use waystation_writer::{CommitOptions, Session, SessionPlan, TensorDecl, commit, make_attempt};
//!
//! # fn main() -> waystation_format::Result<()> {
//! let run = MemoryFs::new().store(); // or waystation_store::open_path("runs/a".as_ref())?
//! let topology = Topology(vec![("dp".to_owned(), 2)]);
//! let plan = SessionPlan::next_in(&run, "a", 2, topology)?; // once a job, given to all ranks
//! let (step, save) = (1000, 0);
//! let (name, attempt) = make_attempt(&run, &plan, step, save)?; // the coordinator
//!
//! let weight = TensorDecl::new(Identity::param("w"), Dtype::F32, &[4, 2]);
//! for writer in 0..2 {
//!     let mut session = Session::begin(attempt.clone(), plan.common(step, save), writer)?;
//!     let mut rows = Region::whole(&[2, 2]);
//!     rows.at[0] = u64::from(writer) * 2;
//!     let chunk = session.chunk(&weight, &rows)?;
//!     let writing = session.lay_out()?;
//!     writing.write_all(chunk, &[writer as u8; 16])?; // any thread, any order
//!     writing.finish()?; // durable, with its part
//! }
//! commit(&attempt, &CommitOptions::in_run(run, name), &NoProgress)?; // anybody
//!
//! let checkpoint = Checkpoint::open_store(attempt, OpenOptions::default())?;
//! let bytes = checkpoint.tensor(&Identity::param("w"))?.read()?;
//! assert_eq!(bytes, [[0; 16], [1; 16]].concat());
//! # Ok(())
//! # }
//! ```

mod attach;
mod attempt;
mod blocks;
mod check;
mod commit;
mod copy;
mod decl;
mod gather;
mod gc;
mod layout;
mod many;
mod marks;
mod plan_text;
mod poison;
mod put;
mod rewrite;
mod root;
mod salvage;
mod session;
mod state;
mod stream;
mod workers;
mod writing;

pub use attempt::{SessionPlan, highest_timeline, make_attempt};
pub use commit::{CommitOptions, Committed, commit};
pub use copy::{Copied, copy, copy_into};
pub use decl::TensorDecl;
pub use gc::{Fate, GcItem, GcPolicy, GcReport, Why, abandon, delete, gc};
pub use marks::{pin, reject, unpin};
pub use rewrite::{ReshardOptions, reshard};
pub use salvage::{SalvageOptions, salvage};
pub use session::{ChunkId, Session, SessionOptions};
pub use stream::ChunkStream;
pub use writing::{Writing, Written};

/// The README's quick start, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
