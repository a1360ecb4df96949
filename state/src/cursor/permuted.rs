//! A permuted index: the records of a source in an order, epoch after epoch.
//!
//! It knows where epochs end. Which ordinal stands where is the order's business.

use waystation_format::records::cursor::{EpochEnd, Item, PermutedIndex};
use waystation_format::{Code, Error, Result, rule};

use crate::Budget;
use crate::order::{Epoch, Order};

/// How far the leaf is walked. At the end of an epoch it stays there until the next item.
#[derive(Clone, Debug)]
pub(super) struct Permuted {
    node: PermutedIndex,
    order: Order,
    /// E: items of an epoch, at least 1.
    items: u64,
    /// The ordinals of the epoch, once one was asked for.
    drawn: Option<Epoch>,
    weight: u64,
}

impl Permuted {
    pub(super) fn new(node: PermutedIndex, order: Order, weight: u64) -> Result<Self> {
        let items = node.epoch_end.items(node.n).unwrap_or(0);
        if items == 0 || node.position > items {
            let message = format!(
                "expected a position within an epoch of at least 1 item, found {} of {items}",
                node.position
            );
            return Err(Error::rule(Code::BadPosition, rule::CURSOR_POSITION, message));
        }
        Ok(Self { node, order, items, drawn: None, weight })
    }

    pub(super) fn has_next(&self) -> bool {
        self.node.position < self.items || self.node.epoch_end != EpochEnd::Stop
    }

    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<Option<Item>> {
        if !self.has_next() {
            return Ok(None);
        }
        if self.node.position == self.items {
            self.begin(self.node.epoch.saturating_add(1), budget);
        }
        let drawn = self.drawn.get_or_insert_with(|| self.order.epoch(self.node.epoch));
        let place = self.node.position.checked_rem(self.node.n).unwrap_or(0);
        let ordinal = drawn.at(place, budget)?;
        self.node.position = self.node.position.saturating_add(1);
        Ok(Some(Item::leaf(ordinal)))
    }

    /// However many, it costs one step.
    pub(super) fn skip(&mut self, count: u64, budget: &mut Budget) -> Result<u64> {
        budget.take(1)?;
        let left = self.items.saturating_sub(self.node.position);
        if count <= left {
            self.node.position = self.node.position.saturating_add(count);
            return Ok(count);
        }
        if self.node.epoch_end == EpochEnd::Stop {
            self.node.position = self.items;
            return Ok(left);
        }
        // Whole epochs after this one; the last of them is stayed in at its end.
        let beyond = count.saturating_sub(left).saturating_sub(1);
        let epochs = beyond.checked_div(self.items).unwrap_or(0).saturating_add(1);
        let epoch = self.node.epoch.saturating_add(epochs);
        let within = beyond.checked_rem(self.items).unwrap_or(0);
        self.begin(epoch, budget);
        self.node.position = within.saturating_add(1);
        Ok(count)
    }

    pub(super) fn to_node(&self) -> PermutedIndex {
        self.node.clone()
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    pub(super) fn held(&self) -> u64 {
        self.drawn.as_ref().map_or(0, Epoch::held)
    }

    fn begin(&mut self, epoch: u64, budget: &mut Budget) {
        budget.release(self.held());
        self.drawn = None;
        self.node.epoch = epoch;
        self.node.position = 0;
    }
}
