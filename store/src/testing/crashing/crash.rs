//! A moment at which power fails: which changes may be kept, and the disks that follow.
//!
//! It knows sets of changes. It must not know what a caller expects of them.

use super::book::Change;
use super::image::Image;

/// What else than zeros may be where a file's bytes did not get to the disk.
const STALE: u8 = 0xa5;

/// What is durable when power fails, and the changes of which each may be kept.
#[derive(Debug)]
pub struct Crash {
    durable: Image,
    pending: Vec<Change>,
}

/// How many sets of changes are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// With up to so many changes every subset of them.
    pub exhaustive: usize,
    /// With more of them: all, none, each alone, all but each, the first ones up to each, and so many
    /// drawn at random.
    pub sampled: usize,
    /// What the random ones follow from.
    pub seed: u64,
}

/// Whether every subset is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every one.
    Exhaustive,
    /// Those that [`Bound`] says.
    Sampled,
}

impl Crash {
    pub(super) fn new(durable: Image, pending: Vec<Change>) -> Self {
        Self { durable, pending }
    }

    /// Changes that are not durable: entries, lengths and pieces of writes.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The disks that may be left. Some are equal: a name that came and went may be lost twice.
    #[must_use]
    pub fn images(&self, bound: &Bound) -> (Coverage, Vec<Image>) {
        let (coverage, kept) = self.subsets(bound);
        let data = self.pending.iter().any(|change| !matches!(change, Change::Entry { .. }));
        let mut images = Vec::with_capacity(kept.len());
        for kept in kept {
            images.push(self.image(&kept, 0));
            // Without files that lost something both are the same.
            let lost = self
                .pending
                .iter()
                .zip(&kept)
                .any(|(change, kept)| !kept && matches!(change, Change::Data { .. }));
            if data && lost {
                images.push(self.image(&kept, STALE));
            }
        }
        (coverage, images)
    }

    /// The disk on which nothing is that was not synced.
    #[must_use]
    pub fn nothing_more(&self) -> Image {
        self.durable.clone()
    }

    /// The disk on which all is, as after a kill of all processes with power kept.
    #[must_use]
    pub fn everything(&self) -> Image {
        self.durable.with(&self.pending, 0)
    }

    fn image(&self, kept: &[bool], fill: u8) -> Image {
        let kept = self.pending.iter().zip(kept).filter(|(_, kept)| **kept);
        self.durable.with(kept.map(|(change, _)| change), fill)
    }

    fn subsets(&self, bound: &Bound) -> (Coverage, Vec<Vec<bool>>) {
        let count = self.pending.len();
        if count <= bound.exhaustive.min(20) {
            let all = 0..1_u64.checked_shl(shift(count)).unwrap_or(1);
            let bits = |set: u64| (0..count).map(|n| (set >> shift(n)) & 1 == 1).collect();
            return (Coverage::Exhaustive, all.map(bits).collect());
        }
        let mut sets: Vec<Vec<bool>> = Vec::new();
        for n in 0..count {
            sets.push((0..count).map(|at| at == n).collect());
            sets.push((0..count).map(|at| at != n).collect());
            sets.push((0..count).map(|at| at < n).collect());
        }
        sets.push(vec![true; count]);
        let mut random = bound.seed | 1;
        for _ in 0..bound.sampled {
            let mut set = Vec::with_capacity(count);
            for _ in 0..count {
                // xorshift64
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                set.push((random >> 40) & 1 == 1);
            }
            sets.push(set);
        }
        (Coverage::Sampled, sets)
    }
}

/// A count that is small enough to shift by.
fn shift(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
