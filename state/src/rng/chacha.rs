//! Bernstein's ChaCha with 8, 12 or 20 rounds as a stream of 32-bit outputs, as `rand_chacha`
//! numbers them.
//!
//! It knows the block function, and a position of 68 bits. The crate is not used here: its buffer
//! shows positions beyond 2^68 where the stream begins anew. It judges this engine in the tests.

use waystation_format::Result;

use super::fields::{Fields, halves};

/// Outputs of a stream: 2^64 blocks of 16.
const OUTPUTS: u128 = 1 << 68;

/// A seed, a stream of it, and how many of its outputs are drawn, below 2^68.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChaCha {
    pub(super) seed: [u8; 32],
    pub(super) stream: u64,
    pub(super) word_pos: u128,
}

impl ChaCha {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self> {
        let chacha =
            Self { seed: fields.bytes()?, stream: fields.u64()?, word_pos: fields.u128()? };
        if chacha.word_pos >= OUTPUTS {
            let found = chacha.word_pos;
            return Err(fields.illegal(&format!("expected word_pos below 2^68, found {found}")));
        }
        Ok(chacha)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut state = self.seed.to_vec();
        state.extend(self.stream.to_le_bytes());
        state.extend(self.word_pos.to_le_bytes());
        state
    }

    pub(super) fn next_u32(&mut self, double_rounds: u32) -> u32 {
        let block = u64::try_from(self.word_pos >> 4).unwrap_or(u64::MAX);
        let word = usize::try_from(self.word_pos & 15).unwrap_or(usize::MAX);
        self.word_pos = self.word_pos.wrapping_add(1) % OUTPUTS;
        let words = self.block(block, double_rounds);
        words.get(word).copied().unwrap_or_default()
    }

    fn block(&self, counter: u64, double_rounds: u32) -> [u32; 16] {
        let (seed, _) = self.seed.as_chunks::<4>();
        let mut begin = [0; 16];
        let words = b"expand 32-byte k".as_chunks::<4>().0.iter().chain(seed);
        let tail = [halves(counter), halves(self.stream)];
        let all = words.map(|word| u32::from_le_bytes(*word)).chain(tail.into_iter().flatten());
        begin.iter_mut().zip(all).for_each(|(word, value)| *word = value);
        let mut end = begin;
        for _ in 0..double_rounds {
            double_round(&mut end);
        }
        end.iter_mut().zip(begin).for_each(|(word, start)| *word = word.wrapping_add(start));
        end
    }
}

/// A round over the columns of the square, and one over its diagonals.
fn double_round(square: &mut [u32; 16]) {
    quarter_round(square, 0, 4, 8, 12);
    quarter_round(square, 1, 5, 9, 13);
    quarter_round(square, 2, 6, 10, 14);
    quarter_round(square, 3, 7, 11, 15);
    quarter_round(square, 0, 5, 10, 15);
    quarter_round(square, 1, 6, 11, 12);
    quarter_round(square, 2, 7, 8, 13);
    quarter_round(square, 3, 4, 9, 14);
}

#[expect(clippy::indexing_slicing, reason = "its eight calls stand above, with indices below 16")]
fn quarter_round(square: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    for (left, right) in [(16, 12), (8, 7)] {
        square[a] = square[a].wrapping_add(square[b]);
        square[d] = (square[d] ^ square[a]).rotate_left(left);
        square[c] = square[c].wrapping_add(square[d]);
        square[b] = (square[b] ^ square[c]).rotate_left(right);
    }
}
