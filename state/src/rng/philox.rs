//! The Philox engines of Salmon and others (Random123): ten rounds over a counter, by a key.
//!
//! It knows both widths and what NumPy and PyTorch keep of a stream: the counter, and what of its
//! last block is not drawn yet.

use waystation_format::Result;

use super::fields::{Fields, halves, halves_wide, join_u64s};

const ROUNDS: u32 = 10;

/// The block of a counter of four 64-bit words, the least significant first.
fn block_64(counter: [u64; 4], mut key: [u64; 2]) -> [u64; 4] {
    let mut words = counter;
    for _ in 0..ROUNDS {
        let [a, b, c, d] = words;
        let [low_a, high_a] = product(0xd2e7_470e_e14c_6c93, a);
        let [low_c, high_c] = product(0xca5a_8263_9512_1157, c);
        let [k0, k1] = key;
        words = [high_c ^ b ^ k0, low_c, high_a ^ d ^ k1, low_a];
        key = [k0.wrapping_add(0x9e37_79b9_7f4a_7c15), k1.wrapping_add(0xbb67_ae85_84ca_a73b)];
    }
    words
}

/// The block of a counter of four 32-bit words, the least significant first.
fn block_32(counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut words = counter;
    for _ in 0..ROUNDS {
        let [a, b, c, d] = words;
        let [low_a, high_a] = halves(u64::from(a).wrapping_mul(0xd251_1f53));
        let [low_c, high_c] = halves(u64::from(c).wrapping_mul(0xcd9e_8d57));
        let [k0, k1] = key;
        words = [high_c ^ b ^ k0, low_c, high_a ^ d ^ k1, low_a];
        key = [k0.wrapping_add(0x9e37_79b9), k1.wrapping_add(0xbb67_ae85)];
    }
    words
}

/// The low and the high half of a product.
fn product(a: u64, b: u64) -> [u64; 2] {
    halves_wide(u128::from(a).wrapping_mul(u128::from(b)))
}

/// NumPy's Philox4x64: a counter of 256 bits, raised before each block, and the last block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numpy {
    pub(super) counter: [u64; 4],
    pub(super) key: [u64; 2],
    pub(super) buffer: [u64; 4],
    /// How many of the block are drawn, at most 4.
    pub(super) buffer_pos: u32,
}

impl Numpy {
    /// The stream of a key from its beginning.
    pub(super) fn begin(key: [u64; 2]) -> Self {
        Self { counter: [0; 4], key, buffer: [0; 4], buffer_pos: 4 }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self> {
        let philox = Self {
            counter: fields.u64s()?,
            key: fields.u64s()?,
            buffer: fields.u64s()?,
            buffer_pos: fields.u32()?,
        };
        if philox.buffer_pos > 4 {
            let found = philox.buffer_pos;
            return Err(fields.illegal(&format!("expected buffer_pos at most 4, found {found}")));
        }
        match fields.u32()? {
            0 => Ok(philox),
            found => Err(fields.illegal(&format!("expected 0 in the last field, found {found}"))),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut state = join_u64s(self.counter.iter().chain(&self.key).chain(&self.buffer));
        state.extend(self.buffer_pos.to_le_bytes());
        state.extend([0; 4]);
        state
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        let at = usize::try_from(self.buffer_pos).unwrap_or(usize::MAX);
        if let Some(word) = self.buffer.get(at) {
            self.buffer_pos = self.buffer_pos.saturating_add(1);
            return *word;
        }
        for word in &mut self.counter {
            *word = word.wrapping_add(1);
            if *word != 0 {
                break;
            }
        }
        self.buffer = block_64(self.counter, self.key);
        self.buffer_pos = 1;
        let [first, ..] = self.buffer;
        first
    }
}

/// PyTorch's Philox4x32: subsequence 0 of a seed, from a block on. It wraps at 2^64 blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Torch {
    pub(super) seed: u64,
    /// The block that the next output is of.
    pub(super) block: u64,
    /// How many of its outputs are drawn, below 4.
    pub(super) drawn: u8,
}

impl Torch {
    /// The stream of `seed` from block `block` on.
    pub(super) fn at(seed: u64, block: u64) -> Self {
        Self { seed, block, drawn: 0 }
    }

    /// The next output, of a stream of `blocks` blocks after which it begins anew; 0 is 2^64.
    pub(super) fn next_u32(&mut self, blocks: u64) -> u32 {
        let [low, high] = halves(self.block);
        let words = block_32([low, high, 0, 0], halves(self.seed));
        let word = words.get(usize::from(self.drawn)).copied().unwrap_or_default();
        self.drawn = self.drawn.wrapping_add(1) % 4;
        if self.drawn == 0 {
            self.block = self.block.wrapping_add(1);
            if self.block == blocks {
                self.block = 0;
            }
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that Random123 publishes: counters and keys of zeros, of ones, of π.
    #[test]
    fn published_blocks() {
        assert_eq!(block_32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            block_32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            block_32(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
        assert_eq!(
            block_64([0; 4], [0; 2]),
            [
                0x1655_4d9e_ca36_314c,
                0xdb20_fe9d_672d_0fdc,
                0xd7e7_72ce_e186_176b,
                0x7e68_b68a_ec7b_a23b
            ]
        );
        assert_eq!(
            block_64([u64::MAX; 4], [u64::MAX; 2]),
            [
                0x87b0_92c3_013f_e90b,
                0x438c_3c67_be8d_0224,
                0x9cc7_d7c6_9cd7_77b6,
                0xa09c_aebf_594f_0ba0
            ]
        );
    }
}
