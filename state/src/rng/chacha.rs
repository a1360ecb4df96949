//! Bernstein's ChaCha with 8, 12 or 20 rounds as a stream of 32-bit outputs, as `rand_chacha` gives
//! and numbers them.
//!
//! It knows where in its outputs a stream stands. The position is kept here and not asked of the
//! crate, whose buffer shows positions beyond 2^68 where the stream begins anew.

use rand_chacha::{ChaCha8Rng, ChaCha12Rng, ChaCha20Rng};
use rand_core::{Rng as _, SeedableRng as _};
use waystation_format::{Result, RngAlgorithm};

use super::fields::Fields;

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

    /// The next `count` outputs, with the rounds of `algorithm`.
    pub(super) fn draw(&mut self, algorithm: RngAlgorithm, count: usize) -> Vec<u64> {
        /// The outputs from a place of a stream, by one of the crate's generators.
        macro_rules! draw {
            ($generator:ty) => {{
                let mut generator = <$generator>::from_seed(self.seed);
                generator.set_stream(self.stream);
                generator.set_word_pos(self.word_pos);
                (0..count).map(|_| u64::from(generator.next_u32())).collect()
            }};
        }
        let outputs = match algorithm {
            RngAlgorithm::ChaCha8 => draw!(ChaCha8Rng),
            RngAlgorithm::ChaCha12 => draw!(ChaCha12Rng),
            _ => draw!(ChaCha20Rng),
        };
        let drawn = u128::try_from(count).unwrap_or(u128::MAX);
        self.word_pos = self.word_pos.wrapping_add(drawn) % OUTPUTS;
        outputs
    }
}
