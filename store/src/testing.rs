//! What tests of stores, readers and writers need: a disk that fails on demand, and a check that a
//! store keeps its promises.
//!
//! Nothing here panics: [`store_conforms`] says in words which promise is broken.

mod conforms;
mod failing;

pub use conforms::store_conforms;
pub use failing::{FailingDir, FailingFile, FailingFs, Op};
/// The system's error numbers, for faults.
pub use rustix::io::Errno;
