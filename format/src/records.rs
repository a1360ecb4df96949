//! What records of registered kinds say (chapters 16 to 18), read from their `value` and written
//! back.
//!
//! It knows the form of each kind and what of it can be checked by looking at the record alone. It
//! must not know engines, orders or other records, nor look into a kind that is not registered.

pub mod number;
mod read;
mod write;
