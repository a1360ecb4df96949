//! Random streams: the engines that the registry names, and what of them travels.
//!
//! It knows raw outputs and states. Distributions, and who draws from a stream, are not its
//! business.

mod chacha;
mod engine;
mod fields;
mod fork;
mod mt19937;
pub mod native;
mod pcg;
mod philox;
mod sfc64;
mod stream;
mod threefry;
mod xoshiro;

pub use engine::{Engine, canary, check_canary, spell};
pub use fork::fork_seed;
pub use mt19937::Mt19937;
pub use stream::{Cache, StreamState};
