//! A mixture: items of several nodes, always of the one that is furthest behind its share.
//!
//! It knows shares and which children have ended.

use waystation_format::Result;
use waystation_format::records::cursor::{Deficit, EndsWhen, Item, Mixture, Selection};

use super::live::Live;
use crate::Budget;

/// How far the mixture is walked.
#[derive(Clone, Debug)]
pub(super) struct Mixed {
    children: Vec<Live>,
    deficit: Deficit,
    /// Which children have a next item, once it was asked: only taking an item changes it.
    more: Option<Vec<bool>>,
}

impl Mixed {
    pub(super) fn new(children: Vec<Live>, deficit: Deficit) -> Self {
        Self { children, deficit, more: None }
    }

    pub(super) fn has_next(&mut self, budget: &mut Budget) -> Result<bool> {
        let end = self.deficit.end;
        let more = self.more(budget)?;
        Ok(match end {
            EndsWhen::First => more.iter().all(|more| *more),
            EndsWhen::All => more.iter().any(|more| *more),
        })
    }

    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<Option<Item>> {
        self.step(budget, |child, budget| child.next(budget))
            .map(|taken| taken.and_then(|(index, item)| Some(item?.of_child(index))))
    }

    /// Children are not asked which items they are.
    pub(super) fn skip(&mut self, count: u64, budget: &mut Budget) -> Result<u64> {
        let mut skipped = 0_u64;
        while skipped < count && self.step(budget, |child, budget| child.skip(1, budget))?.is_some()
        {
            skipped = skipped.saturating_add(1);
        }
        Ok(skipped)
    }

    pub(super) fn to_node(&self) -> Mixture {
        let children = self.children.iter().map(Live::to_node).collect();
        Mixture { children, selection: Selection::Deficit(self.deficit.clone()) }
    }

    pub(super) fn weight(&self) -> u64 {
        self.children.iter().fold(1, |sum, child| sum.saturating_add(child.weight()))
    }

    pub(super) fn held(&self) -> u64 {
        self.children.iter().fold(0, |sum, child| sum.saturating_add(child.held()))
    }

    /// Takes an item of the child whose turn it is: its number, and what `take` makes of it.
    fn step<T>(
        &mut self,
        budget: &mut Budget,
        take: impl FnOnce(&mut Live, &mut Budget) -> Result<T>,
    ) -> Result<Option<(u64, T)>> {
        if !self.has_next(budget)? {
            return Ok(None);
        }
        // Each child is looked at.
        budget.take(u64::try_from(self.children.len()).unwrap_or(u64::MAX))?;
        let Some(chosen) = self.chosen() else { return Ok(None) };
        let (Some(child), Some(count)) =
            (self.children.get_mut(chosen), self.deficit.taken.get_mut(chosen))
        else {
            return Ok(None);
        };
        let after = count.saturating_add(1);
        let taken = take(child, budget)?;
        *count = after;
        let more = child.has_next(budget)?;
        if let Some(slot) = self.more.as_mut().and_then(|all| all.get_mut(chosen)) {
            *slot = more;
        }
        Ok(Some((u64::try_from(chosen).unwrap_or(u64::MAX), taken)))
    }

    /// The first child of those whose `weight` × (T + 1) − `taken` × W is greatest.
    fn chosen(&self) -> Option<usize> {
        let more = self.more.as_deref().unwrap_or_default();
        let alive = || {
            let shares = self.deficit.weights.iter().zip(&self.deficit.taken);
            shares.zip(more).enumerate().filter(|(_, (_, more))| **more)
        };
        let (mut all_taken, mut all_weights) = (0_i128, 0_i128);
        for (_, ((weight, taken), _)) in alive() {
            // Below 2^10 × 2^53 and 2^10 × 2^32: no product reaches 2^127.
            all_taken = all_taken.saturating_add(i128::from(*taken));
            all_weights = all_weights.saturating_add(i128::from(*weight));
        }
        let mut best: Option<(usize, i128)> = None;
        for (index, ((weight, taken), _)) in alive() {
            let due = i128::from(*weight).saturating_mul(all_taken.saturating_add(1));
            let behind = due.saturating_sub(i128::from(*taken).saturating_mul(all_weights));
            if best.is_none_or(|(_, most)| behind > most) {
                best = Some((index, behind));
            }
        }
        best.map(|(index, _)| index)
    }

    fn more(&mut self, budget: &mut Budget) -> Result<&[bool]> {
        if self.more.is_none() {
            let more = self.children.iter_mut().map(|child| child.has_next(budget));
            self.more = Some(more.collect::<Result<_>>()?);
        }
        Ok(self.more.as_deref().unwrap_or_default())
    }
}
