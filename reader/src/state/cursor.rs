//! Data cursors: the canary of a record, and walking on from it.
//!
//! It knows what comparing may cost. Which items come is for `waystation-state` to say, whether a
//! cursor is for a place the business of `restore`.

use std::sync::Arc;

use waystation_format::records::Cursor;
use waystation_format::{Code, Identity, Result, limits, rule};
use waystation_state::cursor::{Tensors, Walk, check_canary_within};
use waystation_state::{Budget, Stop};

use super::{expect_numbers, numbers};
use crate::checkpoint::Checkpoint;

/// What the comparison of a cursor's canary came to.
#[derive(Clone, Debug)]
pub(crate) enum Compared {
    /// The next items are those that it says.
    Agrees,
    /// The specification does not define its items.
    NotComputed,
    /// It takes more than it may cost, and what.
    LeftOut(String),
}

/// The tensors of a checkpoint that its cursors name, read until it is to stop.
struct Named<'c> {
    checkpoint: &'c Checkpoint,
    stop: Option<Stop>,
}

impl Tensors for Named<'_> {
    fn expect(&self, tensor: &Identity, count: u64) -> Result<()> {
        expect_numbers(self.checkpoint, tensor, count)
    }

    fn numbers(&self, tensor: &Identity, count: u64) -> Result<Arc<[u64]>> {
        numbers(self.checkpoint, tensor, count, self.stop.as_ref())
    }
}

/// Steps that the canaries of a checkpoint may take together where nobody says otherwise: a small
/// file has room for thousands of cursors.
const ALL_STEPS: u64 = 4 * limits::CANARY_STEPS;

/// What a validator spends on the canaries of one checkpoint.
#[derive(Debug)]
pub(crate) struct CanarySteps {
    left: u64,
    stop: Option<Stop>,
}

impl CanarySteps {
    /// Until `stop` is requested, if there is one.
    pub(crate) fn of_validator(stop: Option<&Stop>) -> Self {
        Self { left: ALL_STEPS, stop: stop.cloned() }
    }

    /// [`check_cursor`] within a validator's budget for one canary, and what is left for all.
    ///
    /// # Errors
    /// Those of [`check_cursor`].
    pub(crate) fn check_cursor(
        &mut self,
        checkpoint: &Checkpoint,
        cursor: &Cursor,
    ) -> Result<Compared> {
        self.within(|budget| check_cursor(checkpoint, cursor, budget))
    }

    fn within<T>(&mut self, check: impl FnOnce(&mut Budget) -> T) -> T {
        let one = Budget::of_validator();
        let steps = one.steps().min(self.left);
        let mut budget = Budget::new(steps, one.bytes());
        if let Some(stop) = &self.stop {
            budget = budget.until(stop.clone());
        }
        let checked = check(&mut budget);
        self.left = self.left.saturating_sub(steps.saturating_sub(budget.steps()));
        checked
    }
}

/// Compares the canary of a cursor with the items that come.
///
/// # Errors
/// `canary-mismatch`, `bad-position`, `dangling`, `interrupted`; those of reading a tensor.
pub(crate) fn check_cursor(
    checkpoint: &Checkpoint,
    cursor: &Cursor,
    budget: &mut Budget,
) -> Result<Compared> {
    let named = Named { checkpoint, stop: budget.stop().cloned() };
    match check_canary_within(cursor, &named, budget) {
        Ok(true) => Ok(Compared::Agrees),
        Ok(false) => Ok(Compared::NotComputed),
        Err(e) if e.code() == Code::Limit && e.rule_id() == Some(rule::CURSOR_CANARY_STEPS) => {
            Ok(Compared::LeftOut(e.message().to_owned()))
        }
        Err(e) => Err(e),
    }
}

impl Checkpoint {
    /// The items that come next of a cursor of this checkpoint, in the global order of all ranks.
    ///
    /// # Errors
    /// `not-exact` for a cursor that the specification does not compute; `bad-position`,
    /// `dangling`, `limit` when the budget is spent and `interrupted` when it is to stop; those of
    /// reading a tensor.
    pub fn walk(&self, cursor: &Cursor, budget: Budget) -> Result<Walk> {
        let named = Named { checkpoint: self, stop: budget.stop().cloned() };
        Walk::new(cursor, &named, budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_canaries_have_a_budget_together() {
        let mut all = CanarySteps::of_validator(None);
        let mut take = |steps| all.within(|budget| budget.take(steps).is_ok());
        assert!(!take(limits::CANARY_STEPS + 1));
        for _ in 0..3 {
            assert!(take(limits::CANARY_STEPS));
        }
        assert!(take(limits::CANARY_STEPS - 1));
        assert!(!take(2));
        assert!(take(1));
        assert!(!take(1));
    }
}
