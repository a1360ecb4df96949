//! Where training stands in its data: a cursor over shuffled epochs of windows of the text.
//!
//! It knows the source and its order. The cursor counts samples over all ranks together, so it is
//! the same whatever their number; each rank takes its share of every batch.

use waystation_format::records::Cursor;
use waystation_format::records::cursor::{
    EpochEnd, Node, Order, Partition, PermutedIndex, SeedRule, ShareRule, Source,
};
use waystation_format::{Code, Digest, Error, Result};
use waystation_state::Budget;
use waystation_state::cursor::{NoTensors, Rank, Walk};

use crate::reduce::Place;
use crate::text;

/// Seed of the shuffling; each epoch adds its number.
const SEED: u64 = 1;
/// Samples that the cursor foretells.
const CANARY: u64 = 16;

/// A place in the data.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    walk: Walk,
}

impl Data {
    /// The beginning of the first epoch of `windows` samples, in batches of `batch`.
    ///
    /// # Errors
    /// None: the cursor is right.
    pub(crate) fn new(windows: usize, batch: usize) -> Result<Self> {
        let (windows, batch) = (windows as u64, batch as u64);
        let order = Order::TorchRandpermCpu { seed: SEED, seed_rule: SeedRule::SeedPlusEpoch };
        let source = Source { name: None, records: windows, sha256: Digest::of(&text::raw()) };
        Self::at(&Cursor {
            augment: None,
            consumed: Some(0),
            next: None,
            partition: Some(Partition {
                axes: vec!["dp".to_owned()],
                batch,
                rule: ShareRule::Contiguous,
            }),
            root: Node::PermutedIndex(PermutedIndex {
                epoch: 0,
                epoch_end: EpochEnd::DropLast { unit: batch },
                n: windows,
                order,
                position: 0,
                source,
            }),
        })
    }

    /// The place that a cursor says; its canary was compared by whoever restored it.
    ///
    /// # Errors
    /// `not-exact` for a cursor of another form.
    pub(crate) fn at(cursor: &Cursor) -> Result<Self> {
        Ok(Self { walk: Walk::new(cursor, &NoTensors, Budget::unlimited())? })
    }

    /// As a checkpoint says it: with the samples that come next, so that whoever restores it can
    /// compare them.
    ///
    /// # Errors
    /// None for this source.
    pub(crate) fn cursor(&self) -> Result<Cursor> {
        self.walk.cursor(CANARY)
    }

    /// Completed epochs, and samples over all of them.
    ///
    /// # Errors
    /// None for this source.
    pub(crate) fn progress(&self) -> Result<(u64, u64)> {
        let cursor = self.walk.cursor(1)?;
        Ok((leaf(&cursor)?.epoch, cursor.consumed.unwrap_or(0)))
    }

    /// What the samples are taken from: their number, and a digest of all of them.
    ///
    /// # Errors
    /// None for this source.
    pub(crate) fn source(&self) -> Result<(u64, Digest)> {
        let cursor = self.walk.cursor(1)?;
        let source = &leaf(&cursor)?.source;
        Ok((source.records, source.sha256))
    }

    /// The next `count` samples of all ranks, of which the rank of `place` takes its share: where
    /// their windows begin.
    ///
    /// # Errors
    /// `not-exact` when the ranks cannot share so many alike.
    pub(crate) fn share(&mut self, count: usize, place: Place) -> Result<Vec<u64>> {
        let batch = self.walk.batch(count as u64)?;
        let rank = Rank { rank: place.rank as u64, world: place.ranks as u64 };
        let share = batch.share(ShareRule::Contiguous, rank)?;
        Ok(share.iter().filter_map(|item| item.integers().first().copied()).collect())
    }

    /// The next sample of all.
    ///
    /// # Errors
    /// None for this source.
    pub(crate) fn peek(&self) -> Result<u64> {
        let mut ahead = self.clone();
        Ok(ahead.share(1, Place { rank: 0, ranks: 1 })?.first().copied().unwrap_or_default())
    }

    /// Steps over samples.
    ///
    /// # Errors
    /// None for this source.
    pub(crate) fn skip(&mut self, count: u64) -> Result<()> {
        self.walk.skip_items(count).map(drop)
    }
}

fn leaf(cursor: &Cursor) -> Result<&PermutedIndex> {
    match &cursor.root {
        Node::PermutedIndex(leaf) => Ok(leaf),
        _ => Err(Error::new(Code::NotExact, "expected a cursor of this trainer, found another")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn any_number_of_ranks_takes_the_same_samples_across_epochs() {
        let alone = Place { rank: 0, ranks: 1 };
        let mut one = Data::new(100, 12).unwrap();
        let all: Vec<u64> = (0..20).flat_map(|_| one.share(12, alone).unwrap()).collect();
        for ranks in [2, 3, 4, 6] {
            let mut each: Vec<Data> = (0..ranks).map(|_| Data::new(100, 12).unwrap()).collect();
            let mut found = Vec::new();
            for _ in 0..20 {
                for (rank, data) in each.iter_mut().enumerate() {
                    found.extend(data.share(12, Place { rank, ranks }).unwrap());
                }
            }
            assert_eq!(found, all, "{ranks} ranks");
        }
        // No sample twice in an epoch of 96, and another order in the next.
        let epochs: Vec<&[u64]> = all.chunks_exact(96).collect();
        for epoch in &epochs {
            assert_eq!(epoch.iter().collect::<BTreeSet<_>>().len(), 96);
        }
        assert_ne!(epochs[0], epochs[1]);
        assert_eq!(one.progress().unwrap(), (2, 240));
    }

    #[test]
    fn a_place_that_is_written_and_read_goes_on() {
        let alone = Place { rank: 0, ranks: 1 };
        let mut data = Data::new(100, 12).unwrap();
        data.skip(90).unwrap();
        let mut again = Data::at(&data.cursor().unwrap()).unwrap();
        assert_eq!(again.cursor().unwrap(), data.cursor().unwrap());
        assert_eq!(again.peek().unwrap(), data.peek().unwrap());
        assert_eq!(again.share(12, alone).unwrap(), data.share(12, alone).unwrap());
    }
}
