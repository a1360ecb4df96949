//! What the records of resume state mean: the engines behind random streams, the orders behind
//! data cursors, the values of schedules, and what each is on another topology.
//!
//! It computes and compares; it does no I/O. The forms of the records are `waystation-format`'s,
//! finding them in a checkpoint is the reader's business.

#![forbid(unsafe_code)]

mod budget;
pub mod cursor;
pub mod order;
pub mod rng;
pub mod schedule;
mod stop;

pub use budget::Budget;
pub use stop::Stop;
