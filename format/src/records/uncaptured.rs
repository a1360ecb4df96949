//! What was used and is not in the checkpoint (16.7).
//!
//! It knows that something is missing and why. It must not know what becomes of the run without.

use super::read::Reader;
use super::write;
use crate::json::Value;
use crate::{Result, rule};

const READER: Reader = Reader::new(rule::UNCAPTURED_FORM);

/// The `value` of a record of kind `uncaptured`, which has the name of what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncaptured {
    /// The kind of record that it would have had.
    pub kind: String,
    /// Why it was not captured.
    pub reason: String,
}

impl Uncaptured {
    /// Reads the `value` of a record.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`](crate::Code::BadMember) for another form, with the pointer from the top
    /// of `value`.
    pub fn parse(value: &Value) -> Result<Self> {
        let mut members = READER.object(value)?;
        let uncaptured = Self {
            kind: members.required("kind", |value| READER.name(value, "record kind"))?,
            reason: members.required("reason", |value| READER.name(value, "reason"))?,
        };
        members.end()?;
        Ok(uncaptured)
    }

    /// The `value` of a record; [`parse`](Self::parse) checks it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        write::object([
            ("kind", Some(write::text(self.kind.as_str()))),
            ("reason", Some(write::text(self.reason.as_str()))),
        ])
    }
}
