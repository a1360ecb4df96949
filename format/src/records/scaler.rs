//! Loss scalers (16.5).
//!
//! It knows the scaler's numbers. It must not know when a step is skipped.

use super::number::Float;
use super::read::Reader;
use super::write;
use crate::json::Value;
use crate::{Result, rule};

const READER: Reader = Reader::new(rule::SCALER_FORM);

/// The `value` of a record of kind `scaler`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaler {
    /// What the scale is multiplied by after a step that overflowed.
    pub backoff: Float,
    /// Steps without overflow since the scale last changed.
    pub good_steps: u64,
    /// What the scale is multiplied by after `interval` good steps.
    pub growth: Float,
    /// Overflows that are still borne before the scale falls, where the trainer bears any.
    pub hysteresis: Option<u64>,
    /// Good steps before the scale grows.
    pub interval: u64,
    /// What the loss is multiplied by.
    pub scale: Float,
    /// Steps skipped so far, where they are counted.
    pub skipped: Option<u64>,
}

impl Scaler {
    /// Reads the `value` of a record.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`](crate::Code::BadMember) for another form, with the pointer from the top
    /// of `value`.
    pub fn parse(value: &Value) -> Result<Self> {
        let count = |value| READER.count(value);
        let float = |value| READER.float(value);
        let mut members = READER.object(value)?;
        let scaler = Self {
            backoff: members.required("backoff", float)?,
            good_steps: members.required("good_steps", count)?,
            growth: members.required("growth", float)?,
            hysteresis: members.optional("hysteresis", count)?,
            interval: members.required("interval", count)?,
            scale: members.required("scale", float)?,
            skipped: members.optional("skipped", count)?,
        };
        members.end()?;
        Ok(scaler)
    }

    /// The `value` of a record; [`parse`](Self::parse) checks it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let float = |float: Float| Some(float.to_tree().to_value());
        write::object([
            ("backoff", float(self.backoff)),
            ("good_steps", Some(write::count(self.good_steps))),
            ("growth", float(self.growth)),
            ("hysteresis", self.hysteresis.map(write::count)),
            ("interval", Some(write::count(self.interval))),
            ("scale", float(self.scale)),
            ("skipped", self.skipped.map(write::count)),
        ])
    }
}
