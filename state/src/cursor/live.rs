//! A node that is walked.
//!
//! It knows what all kinds have in common, and nothing of how any of them chooses its next item.

use waystation_format::Result;
use waystation_format::records::cursor::{Item, Node};

use super::lanes::Lanes;
use super::mixture::Mixed;
use super::permuted::Permuted;
use super::shuffle::Shuffled;
use crate::Budget;

/// Integers that are copied in a step.
const COPIED: u64 = 64;

/// A computed node, and how far it is walked.
#[derive(Clone, Debug)]
pub(super) enum Live {
    Permuted(Permuted),
    Lanes(Lanes),
    Mixed(Box<Mixed>),
    Shuffled(Box<Shuffled>),
}

impl Live {
    /// Whether there is a next item.
    pub(super) fn has_next(&mut self, budget: &mut Budget) -> Result<bool> {
        match self {
            Self::Permuted(leaf) => Ok(leaf.has_next()),
            Self::Lanes(leaf) => Ok(leaf.has_next()),
            Self::Mixed(mixed) => mixed.has_next(budget),
            Self::Shuffled(shuffled) => shuffled.has_next(budget),
        }
    }

    /// Consumes the next item, if there is one.
    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<Option<Item>> {
        match self {
            Self::Permuted(leaf) => leaf.next(budget),
            Self::Lanes(leaf) => leaf.next(budget),
            Self::Mixed(mixed) => mixed.next(budget),
            Self::Shuffled(shuffled) => shuffled.next(budget),
        }
    }

    /// Consumes up to `count` items unseen, and says how many there were.
    pub(super) fn skip(&mut self, count: u64, budget: &mut Budget) -> Result<u64> {
        match self {
            Self::Permuted(leaf) => leaf.skip(count, budget),
            Self::Mixed(mixed) => mixed.skip(count, budget),
            Self::Lanes(_) | Self::Shuffled(_) => {
                let mut skipped = 0_u64;
                while skipped < count && self.next(budget)?.is_some() {
                    skipped = skipped.saturating_add(1);
                }
                Ok(skipped)
            }
        }
    }

    /// As the record says it.
    pub(super) fn to_node(&self) -> Node {
        match self {
            Self::Permuted(leaf) => Node::PermutedIndex(leaf.to_node()),
            Self::Lanes(leaf) => Node::ShardedLanes(leaf.to_node()),
            Self::Mixed(mixed) => Node::Mixture(mixed.to_node()),
            Self::Shuffled(shuffled) => Node::WindowShuffle(shuffled.to_node()),
        }
    }

    /// Integers that [`to_node`](Self::to_node) copies.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Permuted(leaf) => leaf.weight(),
            Self::Lanes(leaf) => leaf.weight(),
            Self::Mixed(mixed) => mixed.weight(),
            Self::Shuffled(shuffled) => shuffled.weight(),
        }
    }

    /// Steps that a copy of [`to_node`](Self::to_node) costs.
    pub(super) fn steps_to_copy(&self) -> u64 {
        self.weight().div_ceil(COPIED)
    }

    /// Bytes that are held of the budget.
    pub(super) fn held(&self) -> u64 {
        match self {
            Self::Permuted(leaf) => leaf.held(),
            Self::Lanes(leaf) => leaf.held(),
            Self::Mixed(mixed) => mixed.held(),
            Self::Shuffled(shuffled) => shuffled.held(),
        }
    }

    /// How many lanes it has, if it is read along lanes.
    pub(super) fn lanes(&self) -> Option<u64> {
        match self {
            Self::Lanes(leaf) => Some(leaf.lanes()),
            _ => None,
        }
    }

    /// The lane that the last item came from.
    pub(super) fn lane(&self) -> u64 {
        match self {
            Self::Lanes(leaf) => leaf.last(),
            _ => 0,
        }
    }
}
