//! Data cursors: the canary of a record, and walking on from it.

use std::sync::Arc;

use waystation_format::records::Cursor;
use waystation_format::{Code, Identity, Result, rule};
use waystation_state::Budget;
use waystation_state::cursor::{Tensors, Walk, check_canary};

use super::numbers;
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

/// The tensors of a checkpoint that its cursors name.
struct Named<'c>(&'c Checkpoint);

impl Tensors for Named<'_> {
    fn numbers(&self, tensor: &Identity, count: u64) -> Result<Arc<[u64]>> {
        numbers(self.0, tensor, count).map(Arc::from)
    }
}

/// Compares the canary of a cursor with the items that come.
///
/// # Errors
/// `canary-mismatch`, `bad-position`, `dangling`; those of reading a tensor.
pub(crate) fn check_cursor(
    checkpoint: &Checkpoint,
    cursor: &Cursor,
    budget: Budget,
) -> Result<Compared> {
    match check_canary(cursor, &Named(checkpoint), budget) {
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
    /// `dangling`, `limit` when the budget is spent; those of reading a tensor.
    pub fn walk(&self, cursor: &Cursor, budget: Budget) -> Result<Walk> {
        Walk::new(cursor, &Named(self), budget)
    }
}
