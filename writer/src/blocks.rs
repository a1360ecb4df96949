//! Which blocks of a writer's chunks are written, and their CRCs.
//!
//! It knows numbers of blocks. It must not know files: a block counts as written when its writer
//! says so, after the write.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nobody has written the block.
const EMPTY: u64 = 0;
/// Somebody is about to.
const CLAIMED: u64 = 1 << 32;
/// It is written; the low half is its CRC-32C.
const WRITTEN: u64 = 2 << 32;

/// The blocks of all chunks of a writer, one after the other.
#[derive(Debug)]
pub(crate) struct Blocks(Vec<AtomicU64>);

impl Blocks {
    /// `count` blocks that nobody has written.
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(EMPTY)).collect())
    }

    /// Takes the blocks `first..first + count` for one writer: all of them, or, when somebody has
    /// one already or they are not there, none.
    pub(crate) fn claim(&self, first: usize, count: usize) -> bool {
        let Some(blocks) = self.range(first, count) else { return false };
        for (taken, block) in blocks.iter().enumerate() {
            let claimed =
                block.compare_exchange(EMPTY, CLAIMED, Ordering::AcqRel, Ordering::Acquire);
            if claimed.is_err() {
                for ours in blocks.iter().take(taken) {
                    ours.store(EMPTY, Ordering::Release);
                }
                return false;
            }
        }
        true
    }

    /// Says that a claimed block is written and has this CRC.
    pub(crate) fn set(&self, block: usize, crc: u32) {
        if let Some(block) = self.0.get(block) {
            block.store(WRITTEN | u64::from(crc), Ordering::Release);
        }
    }

    /// The CRCs of the blocks `first..first + count`; `None` where one is not written.
    pub(crate) fn crcs(
        &self,
        first: usize,
        count: usize,
    ) -> impl Iterator<Item = Option<u32>> + '_ {
        self.range(first, count).into_iter().flatten().map(|block| {
            let state = block.load(Ordering::Acquire);
            u32::try_from(state & 0xffff_ffff).ok().filter(|_| state & WRITTEN != 0)
        })
    }

    fn range(&self, first: usize, count: usize) -> Option<&[AtomicU64]> {
        self.0.get(first..first.checked_add(count)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_one_writer() {
        let blocks = Blocks::new(5);
        assert!(blocks.claim(1, 2));
        assert!(!blocks.claim(0, 2), "the second is taken");
        assert!(blocks.claim(0, 1), "a claim that failed took nothing");
        assert!(!blocks.claim(4, 2), "beyond the end");
        blocks.set(1, 0);
        blocks.set(2, u32::MAX);
        let crcs: Vec<_> = blocks.crcs(0, 4).collect();
        assert_eq!(crcs, [None, Some(0), Some(u32::MAX), None]);
        assert!(!blocks.claim(1, 1), "written");
    }
}
