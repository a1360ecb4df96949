//! What a computation that a record asks for may cost.
//!
//! It knows two sums, of steps and of bytes held, and a wish to stop. What a step is, who computes
//! says.

use waystation_format::{Code, Error, Result, limits, rule};

use crate::Stop;

/// Steps between two looks whether to stop: some milliseconds.
const LOOK: u64 = 1 << 16;

/// Steps that may still be taken, and bytes that may still be held.
///
/// A record is small and may ask for any amount of work; whoever gives a budget bounds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    steps: u64,
    bytes: u64,
    stop: Option<Stop>,
    /// Steps since the last look whether to stop.
    unlooked: u64,
}

impl Budget {
    /// So many steps, and so many bytes at once.
    #[must_use]
    pub const fn new(steps: u64, bytes: u64) -> Self {
        Self { steps, bytes, stop: None, unlooked: 0 }
    }

    /// What a validator spends on one canary: `canary-steps`, and a gibibyte.
    #[must_use]
    pub const fn of_validator() -> Self {
        Self::new(limits::CANARY_STEPS, 1 << 30)
    }

    /// As much as is asked for: for the cursor of one's own training, which goes on as long as
    /// training does, and for one that a restore has compared. Not for records of which nothing is
    /// known yet.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self::new(u64::MAX, u64::MAX)
    }

    /// Steps that may still be taken.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Bytes that may still be held.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The same, until `stop` is requested: what it is spent on ends then, `interrupted`.
    #[must_use]
    pub fn until(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// What ends it before it is spent.
    #[must_use]
    pub const fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// Takes `count` steps.
    ///
    /// # Errors
    ///
    /// [`Code::Limit`] under `cursor.canary-steps` when fewer are left; [`Code::Interrupted`] when
    /// it is to stop.
    pub fn take(&mut self, count: u64) -> Result<()> {
        self.steps =
            self.steps.checked_sub(count).ok_or_else(|| over("steps", count, self.steps))?;
        self.step(count)
    }

    /// Does `count` steps that are taken already: who takes many at once says here how far it is.
    ///
    /// # Errors
    ///
    /// [`Code::Interrupted`] when it is to stop.
    pub fn step(&mut self, count: u64) -> Result<()> {
        self.unlooked = self.unlooked.saturating_add(count);
        if self.unlooked < LOOK {
            return Ok(());
        }
        self.stop.as_ref().map_or(Ok(()), Stop::go_on)?;
        self.unlooked = 0;
        Ok(())
    }

    /// Holds `bytes` more.
    ///
    /// # Errors
    ///
    /// [`Code::Limit`] under `cursor.canary-steps` when fewer are left.
    pub fn hold(&mut self, bytes: u64) -> Result<()> {
        self.bytes =
            self.bytes.checked_sub(bytes).ok_or_else(|| over("bytes", bytes, self.bytes))?;
        Ok(())
    }

    /// Gives back bytes that were held.
    pub fn release(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cold]
fn over(what: &str, wanted: u64, left: u64) -> Error {
    let message = format!(
        "expected a computation within its budget of {what}, found {wanted} more and {left} left"
    );
    Error::rule(Code::Limit, rule::CURSOR_CANARY_STEPS, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_was_stopped_stays_so() {
        let stop = Stop::new();
        let mut budget = Budget::unlimited().until(stop.clone());
        budget.take(LOOK).unwrap();
        stop.request();
        // Between two looks nothing is asked.
        budget.take(LOOK - 1).unwrap();
        for _ in 0..3 {
            assert_eq!(budget.take(1).unwrap_err().code(), Code::Interrupted);
        }
        assert_eq!(budget.clone().step(1).unwrap_err().code(), Code::Interrupted);
    }
}
