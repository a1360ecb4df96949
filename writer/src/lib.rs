//! Lays out, writes, commits, salvages and removes attempts.
//!
//! It knows in which order files come into being and go: what must be durable before what. What
//! the bytes mean is the business of `waystation-format`; opening and verifying that of
//! `waystation-reader`.
//!
//! A save: the coordinator calls [`make_attempt`]; every writer makes a [`Session`], declares its
//! chunks, calls [`Session::lay_out`], writes through [`Writing`] and calls [`Writing::finish`];
//! anybody calls [`commit`].

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
mod marks;
mod poison;
mod put;
mod rewrite;
mod root;
mod salvage;
mod session;
mod stream;
mod workers;
mod writing;

pub use attempt::{SessionPlan, highest_timeline, make_attempt};
pub use commit::{CommitOptions, Committed, commit};
pub use copy::{Copied, copy, copy_into};
pub use decl::TensorDecl;
pub use gc::{Fate, GcItem, GcPolicy, GcReport, Why, delete, gc};
pub use marks::{pin, reject, unpin};
pub use rewrite::{ReshardOptions, reshard};
pub use salvage::{SalvageOptions, salvage};
pub use session::{ChunkId, Session, SessionOptions};
pub use stream::ChunkStream;
pub use writing::{Writing, Written};
