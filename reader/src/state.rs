//! The checks of depth R on records of resume state: what is compared before anything is restored
//! from one, and when everything is verified.
//!
//! It knows where the bytes are that a record names. What a state gives is the business of
//! `waystation-state`; grades are that of `restore`.

mod cursor;
mod named;
mod stream;

pub(crate) use cursor::{CanarySteps, Compared, check_cursor};
pub(crate) use named::{expect_numbers, numbers, state_bytes};
pub(crate) use stream::check_stream;
