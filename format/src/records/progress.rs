//! How far training has come (16.1).
//!
//! It knows the counts and that there is one such record. The checkpoint's step is for its callers to
//! bring.

use super::read::Reader;
use super::write;
use crate::common::Coordinate;
use crate::json::Value;
use crate::{Code, Error, Result, rule};

const READER: Reader = Reader::new(rule::PROGRESS_FORM);

/// The name of the one record of this kind.
pub const NAME: &str = "main";

/// The `value` of a record of kind `progress`. What the trainer does not count is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Samples of one optimizer step, now.
    pub batch: Option<u64>,
    /// Completed epochs.
    pub epoch: Option<u64>,
    /// Passes through the training loop.
    pub iteration: Option<u64>,
    /// Completed optimizer steps: the checkpoint's step.
    pub optimizer_step: u64,
    /// Samples of completed optimizer steps.
    pub samples: Option<u64>,
    /// Passes that the loss scaler skipped.
    pub skipped: Option<u64>,
    /// Tokens of completed optimizer steps.
    pub tokens: Option<u64>,
}

impl Progress {
    /// Checks that it is of the checkpoint's step, in completed optimizer steps.
    ///
    /// # Errors
    ///
    /// [`Code::StateDisagree`] when not, with the pointer from the top of `value`.
    pub fn check_step(&self, step: u64) -> Result<()> {
        if self.optimizer_step == step {
            return Ok(());
        }
        let message =
            format!("expected the checkpoint's step {step}, found {}", self.optimizer_step);
        let error = Error::rule(Code::StateDisagree, rule::PROGRESS_STEP, message);
        Err(error.at_pointer("/optimizer_step"))
    }

    /// Reads the `value` of a record.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`] for another form, with the pointer from the top
    /// of `value`.
    pub fn parse(value: &Value) -> Result<Self> {
        let count = |value| READER.count(value);
        let mut members = READER.object(value)?;
        let progress = Self {
            batch: members.optional("batch", count)?,
            epoch: members.optional("epoch", count)?,
            iteration: members.optional("iteration", count)?,
            optimizer_step: members.required("optimizer_step", count)?,
            samples: members.optional("samples", count)?,
            skipped: members.optional("skipped", count)?,
            tokens: members.optional("tokens", count)?,
        };
        members.end()?;
        Ok(progress)
    }

    /// The `value` of a record; [`parse`](Self::parse) checks it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let count = |count: Option<u64>| count.map(write::count);
        write::object([
            ("batch", count(self.batch)),
            ("epoch", count(self.epoch)),
            ("iteration", count(self.iteration)),
            ("optimizer_step", Some(write::count(self.optimizer_step))),
            ("samples", count(self.samples)),
            ("skipped", count(self.skipped)),
            ("tokens", count(self.tokens)),
        ])
    }
}

/// Checks that a record of this kind is the one of the job.
pub(super) fn check_key(name: &str, coordinate: &Coordinate) -> Result<()> {
    if !coordinate.is_empty() {
        let message = format!("expected progress without a coordinate, found {coordinate:?}");
        return Err(READER.bad(message).in_member("coordinate"));
    }
    if name == NAME {
        return Ok(());
    }
    let message = format!("expected progress of the name {NAME:?}, found {name:?}");
    Err(READER.bad(message).in_member("name"))
}
