//! Puts cases to an adapter, and says what its answers are worth.
//!
//! [`run`] is the whole of it: each case's files are made ([`place`]), the adapter is asked ([`adapter`]) and its
//! answer graded ([`grade`]); the [`report`] counts. [`expected`] is the list of failures that an implementation
//! knows of. What a case is, and what a checkpoint is, others know.

pub mod adapter;
pub mod answer;
pub mod compare;
pub mod expected;
pub mod grade;
mod lines;
pub mod matrix;
mod meter;
pub mod place;
pub mod reference;
pub mod report;
pub mod select;
mod session;
mod strict;
pub mod wrote;

pub use adapter::{Hello, Implementation, Limits};
pub use expected::Expectations;
pub use grade::{Level, Verdict};
pub use meter::Cost;
pub use report::{CaseResult, Report};
pub use select::Selection;
pub use session::{Options, Unwatched, Watcher, run};
