//! What tests of stores, readers and writers need: a disk that fails on demand, one that loses power,
//! and a check that a store keeps its promises.
//!
//! Nothing here panics: [`store_conforms`] says in words which promise is broken.

mod conforms;
mod crashing;
mod failing;
mod skipped;

pub use conforms::store_conforms;
pub use crashing::{Bound, Coverage, Crash, CrashingDir, CrashingFile, CrashingFs, Image};
pub use failing::{FailingDir, FailingFile, FailingFs, Op};
/// The system's error numbers, for faults.
pub use rustix::io::Errno;
pub use skipped::skipped;
