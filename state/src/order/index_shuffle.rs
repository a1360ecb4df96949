//! The order `grain.index_shuffle`: a small cipher walked until it gives a number in range.
//!
//! It knows the cipher, whose rounds are those of Simon (Beaulieu and others, 2013), and its keys,
//! which come of C++'s `std::seed_seq`. Every place is computed by itself. It must not know epochs.

use waystation_format::Result;

use crate::Budget;

/// The cipher for one n and seed.
#[derive(Clone, Debug)]
pub(super) struct IndexShuffle {
    /// n − 1.
    last: u64,
    /// w: bits of half a block, 8 to 16.
    half: u32,
    keys: Vec<u32>,
    /// That a block costs: one for each four rounds.
    steps: u64,
}

impl IndexShuffle {
    /// `rounds` is even, from 4 to 1024; n at most 2^32.
    pub(super) fn new(n: u64, seed: u32, rounds: u16) -> Self {
        let last = n.saturating_sub(1);
        let bits = 64_u32.saturating_sub(last.saturating_sub(1).leading_zeros());
        let half = bits.div_ceil(2).clamp(8, 16);
        let steps = u64::from(rounds).div_ceil(4);
        // One element needs no keys.
        let keys = if last == 0 { vec![] } else { seed_sequence(seed, usize::from(rounds)) };
        Self { last, half, keys, steps }
    }

    /// The element at a place below n.
    pub(super) fn at(&self, place: u64, budget: &mut Budget) -> Result<u64> {
        if self.last == 0 {
            return Ok(0);
        }
        let mut block = place;
        loop {
            budget.take(self.steps)?;
            block = self.next(block);
            // Some block is: the cipher permutes blocks, so the walk comes back to where it began.
            if block <= self.last {
                return Ok(block);
            }
        }
    }

    /// The block after `block`, both of twice `half` bits.
    fn next(&self, block: u64) -> u64 {
        let mask = (1_u64 << self.half).wrapping_sub(1);
        let (mut high, mut low) = ((block >> self.half) & mask, block & mask);
        let (pairs, _) = self.keys.as_chunks::<2>();
        for [first, second] in pairs {
            high ^= self.mix(low, mask) ^ (u64::from(*first) & mask);
            low ^= self.mix(high, mask) ^ (u64::from(*second) & mask);
        }
        (high << self.half) | low
    }

    fn mix(&self, half: u64, mask: u64) -> u64 {
        let turned = |by: u32| {
            let by = by.checked_rem(self.half).unwrap_or(0);
            ((half << by) | (half >> self.half.saturating_sub(by))) & mask
        };
        (turned(1) & turned(8)) ^ turned(2)
    }
}

/// Whether element n − 1 is element 0 again: the width is one bit short there.
pub(super) fn leaves_out_the_last(n: u64) -> bool {
    let last = n.saturating_sub(1);
    last.is_power_of_two() && last >= 1 << 16 && last.trailing_zeros().is_multiple_of(2)
}

/// What C++'s `std::seed_seq` of one number generates into `count` words.
#[expect(clippy::indexing_slicing, reason = "each index is a remainder by the length")]
#[expect(clippy::arithmetic_side_effects, reason = "indices stay below four times the length")]
fn seed_sequence(seed: u32, count: usize) -> Vec<u32> {
    let mut words = vec![0x8b8b_8b8b_u32; count];
    let apart = match count {
        623.. => 11,
        68.. => 7,
        39.. => 5,
        7.. => 3,
        _ => count.saturating_sub(1) / 2,
    };
    let near = (count - apart) / 2;
    let far = near + apart;
    let mixed = |word: u32| word ^ (word >> 27);
    for step in 0..count {
        let (p, q, before) =
            ((step + near) % count, (step + far) % count, (step + count - 1) % count);
        let first = 1_664_525_u32.wrapping_mul(mixed(words[step] ^ words[p] ^ words[before]));
        let second = first.wrapping_add(match step {
            0 => 1,
            1 => seed.wrapping_add(1),
            _ => small(step),
        });
        words[p] = words[p].wrapping_add(first);
        words[q] = words[q].wrapping_add(second);
        words[step] = second;
    }
    for step in 0..count {
        let (p, q, before) =
            ((step + near) % count, (step + far) % count, (step + count - 1) % count);
        let sum = words[step].wrapping_add(words[p]).wrapping_add(words[before]);
        let first = 1_566_083_941_u32.wrapping_mul(mixed(sum));
        let second = first.wrapping_sub(small(step));
        words[p] ^= first;
        words[q] ^= second;
        words[step] = second;
    }
    words
}

/// A step, of which there are at most 1024.
fn small(step: usize) -> u32 {
    u32::try_from(step).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_a_seed_sequence() {
        let keys = |seed| seed_sequence(seed, 4);
        assert_eq!(keys(42), [0x2bd7_299e, 0xdcfa_5f8a, 0xc427_314d, 0x3a71_8a6d]);
        assert_eq!(keys(0), [0xb0a8_42fd, 0x0429_0315, 0x75a0_adfa, 0x1fb8_3b0f]);
    }

    #[test]
    fn one_bit_short() {
        for (n, short) in [(2, false), (5, false), ((1 << 16) + 1, true), ((1 << 17) + 1, false)] {
            assert_eq!(leaves_out_the_last(n), short, "{n}");
            let cipher = IndexShuffle::new(n, 7, 4);
            let mut budget = Budget::unlimited();
            let mut at = |place| cipher.at(place, &mut budget).unwrap();
            assert_eq!(at(0) == at(n - 1), short, "{n}");
        }
    }
}
