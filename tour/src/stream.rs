//! The random stream behind dropout: the same on every rank, saved with each checkpoint.
//!
//! It knows one engine, what is drawn from it in a step, and its state. It must not know samples.

use waystation_format::{Code, Error, Result, RngAlgorithm};
use waystation_state::rng::{Engine, StreamState, canary};

/// Outputs of 64 bits.
const ALGORITHM: RngAlgorithm = RngAlgorithm::Xoshiro256PlusPlus;
/// Of 65,536 draws, so many drop a unit.
const DROPPED: u64 = 6_554;
/// What a unit that is kept is multiplied by, so that sums stay as large on average.
const KEPT: f32 = 65_536.0 / 58_982.0;
/// Outputs that a checkpoint foretells.
const CANARY: usize = 4;

/// A stream of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    engine: Engine,
}

impl Stream {
    /// # Errors
    /// None: the algorithm is known.
    pub(crate) fn seeded(seed: u64) -> Result<Self> {
        Ok(Self { engine: Engine::seeded(ALGORITHM, seed)? })
    }

    /// One factor for each of `units` units: mostly a little above 1, now and then 0.
    pub(crate) fn mask(&mut self, units: usize) -> Vec<f32> {
        let factor = |out: u64| if out >> 48 < DROPPED { 0.0 } else { KEPT };
        self.draw(units).into_iter().map(factor).collect()
    }

    /// Numbers between -1 and 1.
    pub(crate) fn spread(&mut self, count: usize) -> Vec<f32> {
        let signed = |out: u64| (out >> 40) as f32 / 8_388_608.0 - 1.0;
        self.draw(count).into_iter().map(signed).collect()
    }

    pub(crate) fn draw(&mut self, count: usize) -> Vec<u64> {
        self.engine.draw(count)
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        ALGORITHM.as_str()
    }

    /// All that the next draws follow from.
    ///
    /// # Errors
    /// None: this engine has a state after every draw.
    pub(crate) fn state(&self) -> Result<Vec<u8>> {
        self.engine.encode()
    }

    /// The next outputs, which whoever restores the state compares with those that it gives.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub(crate) fn canary(&self) -> Result<Vec<String>> {
        canary(ALGORITHM, &self.state()?, CANARY)
    }

    /// The stream at a state whose canary was compared by whoever restored it.
    ///
    /// # Errors
    /// `not-exact` for a stream of another form, `bad-rng-state`.
    pub(crate) fn at(saved: &StreamState) -> Result<Self> {
        if saved.algorithm != ALGORITHM || !saved.caches.is_empty() {
            let (found, caches) = (saved.algorithm, saved.caches.len());
            let message =
                format!("expected {ALGORITHM} without caches, found {found} with {caches}");
            return Err(Error::new(Code::NotExact, message));
        }
        Ok(Self { engine: saved.engine()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_goes_on_from_its_state_and_foretells_it() {
        let mut stream = Stream::seeded(11).unwrap();
        stream.mask(1000);
        let saved = StreamState::new(ALGORITHM, stream.state().unwrap()).unwrap();
        let canary = stream.canary().unwrap();
        let mut again = Stream::at(&saved).unwrap();
        let drawn = again.draw(100);
        assert_eq!(drawn, stream.draw(100));
        let spelt: Vec<String> = drawn[..4].iter().map(|out| format!("{out:016x}")).collect();
        assert_eq!(spelt, canary);
    }

    #[test]
    fn a_stream_of_another_engine_is_refused() {
        let other = RngAlgorithm::ChaCha8;
        let state = Engine::seeded(other, 11).unwrap().encode().unwrap();
        let saved = StreamState::new(other, state).unwrap();
        assert_eq!(Stream::at(&saved).unwrap_err().code(), Code::NotExact);
    }

    #[test]
    fn one_unit_in_ten_is_dropped() {
        let mask = Stream::seeded(1).unwrap().mask(100_000);
        let dropped = mask.iter().filter(|factor| **factor == 0.0).count();
        assert!((9_700..10_300).contains(&dropped), "{dropped}");
        let mean = mask.iter().sum::<f32>() / 100_000.0;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
    }
}
