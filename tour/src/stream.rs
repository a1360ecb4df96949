//! The random stream behind dropout: the same on every rank, saved with each checkpoint.
//!
//! It knows one engine, what is drawn from it in a step, and its state. It must not know samples.

use waystation_format::{Code, Error, Result};

/// Of 65,536 draws, so many drop a unit.
const DROPPED: u64 = 6_554;
/// What a unit that is kept is multiplied by, so that sums stay as large on average.
const KEPT: f32 = 65_536.0 / 58_982.0;
/// Outputs that a checkpoint foretells.
const CANARY: usize = 4;

/// A stream of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    s: [u64; 4],
}

impl Stream {
    pub(crate) fn seeded(seed: u64) -> Self {
        let mut state = seed;
        Self { s: [0; 4].map(|_: u64| split_mix(&mut state)) }
    }

    /// One factor for each of `units` units: mostly a little above 1, now and then 0.
    pub(crate) fn mask(&mut self, units: usize) -> Vec<f32> {
        self.draw(units)
            .into_iter()
            .map(|out| if out >> 48 < DROPPED { 0.0 } else { KEPT })
            .collect()
    }

    /// Numbers between -1 and 1.
    pub(crate) fn spread(&mut self, count: usize) -> Vec<f32> {
        let signed = |out: u64| (out >> 40) as f32 / 8_388_608.0 - 1.0;
        self.draw(count).into_iter().map(signed).collect()
    }

    pub(crate) fn draw(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next()).collect()
    }

    pub(crate) fn state(&self) -> Vec<u8> {
        self.s.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn canary(&self) -> Vec<String> {
        self.clone().draw(CANARY).iter().map(|out| format!("{out:016x}")).collect()
    }

    pub(crate) fn restore(state: &[u8], next: &[String]) -> Result<Self> {
        let mut s = [0; 4];
        for (word, bytes) in s.iter_mut().zip(state.chunks(8)) {
            *word = bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        }
        let stream = Self { s };
        if stream.canary() != next {
            return Err(Error::new(Code::CanaryMismatch, "the stream differs"));
        }
        Ok(stream)
    }

    fn next(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.s;
        let out = s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0);
        let (s2, s3) = (s2 ^ s0, s3 ^ s1);
        self.s = [s0 ^ s3, s1 ^ s2, s2 ^ s1.wrapping_shl(17), s3.rotate_left(45)];
        out
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
