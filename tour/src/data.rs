//! Where training stands in its data: a cursor over shuffled epochs of windows of the text.
//!
//! It knows the order of an epoch and the position in it. It counts samples of completed steps over
//! all ranks together, so it is the same whatever their number.

use waystation_format::records::Cursor;
use waystation_format::records::cursor::{
    Canary, EpochEnd, Item, Node, Order, Partition, PermutedIndex, SeedRule, ShareRule, Source,
};
use waystation_format::{Code, Digest, Error, Result, rule};
use waystation_state::rng::Mt19937;

use crate::text;

/// Seed of the shuffling; each epoch adds its number.
const SEED: u64 = 1;
/// Samples that the cursor foretells.
const CANARY: usize = 16;

/// A place in the data.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    windows: u64,
    /// Samples of a step: an epoch ends where no more whole step follows.
    batch: u64,
    pub(crate) epoch: u64,
    position: u64,
    pub(crate) consumed: u64,
    order: Vec<u64>,
}

impl Data {
    pub(crate) fn new(windows: usize, batch: usize) -> Self {
        Self::at(windows as u64, batch as u64, 0, 0, 0)
    }

    fn at(windows: u64, batch: u64, epoch: u64, position: u64, consumed: u64) -> Self {
        let order = permutation(windows, SEED.wrapping_add(epoch));
        Self { windows, batch, epoch, position, consumed, order }
    }

    /// The next `count` samples: where their windows begin.
    pub(crate) fn next(&self, count: usize) -> Vec<u64> {
        let mut ahead = self.clone();
        let mut next = Vec::new();
        for _ in 0..count {
            let at = usize::try_from(ahead.position).unwrap_or(usize::MAX);
            next.extend(ahead.order.get(at));
            ahead.advance(1);
        }
        next
    }

    pub(crate) fn advance(&mut self, count: u64) {
        let left_out = self.windows.checked_rem(self.batch).unwrap_or(0);
        let epoch = self.windows.saturating_sub(left_out);
        for _ in 0..count {
            self.position = self.position.saturating_add(1);
            if self.position >= epoch {
                self.position = 0;
                self.epoch = self.epoch.saturating_add(1);
                self.order = permutation(self.windows, SEED.wrapping_add(self.epoch));
            }
        }
        self.consumed = self.consumed.saturating_add(count);
    }

    /// As a checkpoint says it.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor {
            augment: None,
            consumed: Some(self.consumed),
            next: Some(self.canary()),
            partition: Some(Partition {
                axes: vec!["dp".to_owned()],
                batch: self.batch,
                rule: ShareRule::Contiguous,
            }),
            root: Node::PermutedIndex(PermutedIndex {
                epoch: self.epoch,
                epoch_end: EpochEnd::DropLast { unit: self.batch },
                n: self.windows,
                order: Order::TorchRandpermCpu { seed: SEED, seed_rule: SeedRule::SeedPlusEpoch },
                position: self.position,
                source: Source {
                    name: None,
                    records: self.windows,
                    sha256: Digest::of(&text::raw()),
                },
            }),
        }
    }

    /// The place that a checkpoint says.
    ///
    /// # Errors
    /// `source-changed` when it is one in other data; `canary-mismatch` when the next samples are
    /// not those that it foretells.
    pub(crate) fn restore(&mut self, cursor: &Cursor) -> Result<()> {
        let Node::PermutedIndex(node) = &cursor.root else {
            return Err(Error::new(Code::NotExact, "expected a cursor of this trainer"));
        };
        let consumed = cursor.consumed.unwrap_or(0);
        let there = Self::at(self.windows, self.batch, node.epoch, node.position, consumed);
        let ours = there.cursor();
        let Node::PermutedIndex(own) = &ours.root else {
            return Err(Error::new(Code::NotExact, "expected a cursor of this trainer"));
        };
        if node.source != own.source {
            let message = "expected the text that was trained on";
            return Err(Error::rule(Code::SourceChanged, rule::CURSOR_SOURCE, message));
        }
        if ours != *cursor {
            let message = "expected the samples that come next to be those that were recorded";
            return Err(Error::rule(Code::CanaryMismatch, rule::CURSOR_CANARY, message));
        }
        *self = there;
        Ok(())
    }

    fn canary(&self) -> Canary {
        let next = self.next(CANARY);
        let bytes: Vec<u8> = next.iter().flat_map(|at| at.to_le_bytes()).collect();
        Canary {
            count: next.len() as u64,
            first: next.iter().take(4).map(|&at| Item::leaf(at)).collect(),
            sha256: Digest::of(&bytes),
        }
    }
}

fn permutation(n: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..n).collect();
    let mut stream = Mt19937::init_genrand(u32::try_from(seed).unwrap_or(0));
    for at in 0..order.len().saturating_sub(1) {
        let left = order.len().saturating_sub(at);
        let draw = usize::try_from(stream.next_u32()).unwrap_or(0);
        order.swap(at, at.saturating_add(draw.checked_rem(left).unwrap_or(0)));
    }
    order
}
