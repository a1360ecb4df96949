//! Random streams: the engines that the registry names, and what of them travels.
//!
//! It knows raw outputs and states. Distributions, and who draws from a stream, are not its
//! business.

mod mt19937;

pub use mt19937::Mt19937;
