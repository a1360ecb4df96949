//! Averages of parameters (16.3).
//!
//! It knows what an average's tensors do not say: decay and number of updates. It must not know
//! the tensors.

use super::number::Float;
use super::read::Reader;
use super::write;
use crate::json::Value;
use crate::{Result, rule};

const READER: Reader = Reader::new(rule::EMA_FORM);

/// The `value` of a record of kind `ema`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ema {
    /// What an update keeps of the average, where one number holds for all updates.
    pub decay: Option<Float>,
    /// Updates so far.
    pub updates: u64,
}

impl Ema {
    /// Reads the `value` of a record.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`](crate::Code::BadMember) for another form, with the pointer from the top
    /// of `value`.
    pub fn parse(value: &Value) -> Result<Self> {
        let mut members = READER.object(value)?;
        let ema = Self {
            decay: members.optional("decay", |value| READER.float(value))?,
            updates: members.required("updates", |value| READER.count(value))?,
        };
        members.end()?;
        Ok(ema)
    }

    /// The `value` of a record; [`parse`](Self::parse) checks it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        write::object([
            ("decay", self.decay.map(|decay| decay.to_tree().to_value())),
            ("updates", Some(write::count(self.updates))),
        ])
    }
}
