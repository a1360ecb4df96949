//! The crates of `rand` as judges of the engines that bear their names, from many states.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test says where it fails by panicking"
)]

use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::{Lcg64Xsh32, Lcg128CmDxsm64, Lcg128Xsl64};
use rand_xoshiro::Xoshiro256PlusPlus;
use waystation_format::RngAlgorithm;
use waystation_state::rng::Engine;

/// Draws of the engine from `state`, and the state after them.
fn ours(algorithm: RngAlgorithm, state: &[u8], count: usize) -> (Vec<u64>, Vec<u8>) {
    let mut engine = Engine::decode(algorithm, state).unwrap();
    let draws = engine.draw(count);
    (draws, engine.encode().unwrap())
}

fn chacha_state(seed: [u8; 32], stream: u64, word_pos: u128) -> Vec<u8> {
    [&seed[..], &stream.to_le_bytes(), &word_pos.to_le_bytes()].concat()
}

/// Positions near 0, near the carry of the block counter's low word, and near the end.
fn positions() -> impl Strategy<Value = u128> {
    let near = |middle: u128| (0_u128..200).prop_map(move |by| (middle + by) % (1 << 68));
    prop_oneof![near(0), near((1 << 36) - 100), near((1 << 68) - 100), 0_u128..1 << 68]
}

macro_rules! chacha {
    ($test:ident, $crate_rng:ty, $algorithm:expr) => {
        proptest! {
            #[test]
            fn $test(seed: [u8; 32], stream: u64, word_pos in positions(), count in 0_usize..300) {
                let mut judge = <$crate_rng>::from_seed(seed);
                judge.set_stream(stream);
                judge.set_word_pos(word_pos);
                let expected: Vec<u64> = (0..count).map(|_| u64::from(judge.next_u32())).collect();
                let state = chacha_state(seed, stream, word_pos);
                let (draws, after) = ours($algorithm, &state, count);
                prop_assert_eq!(draws, expected);
                // Where the stream begins anew the judge shows positions beyond its end.
                let shown = judge.get_word_pos() % (1 << 68);
                prop_assert_eq!(after, chacha_state(judge.get_seed(), judge.get_stream(), shown));
            }
        }
    };
}

chacha!(chacha8, rand_chacha::ChaCha8Rng, RngAlgorithm::ChaCha8);
chacha!(chacha12, rand_chacha::ChaCha12Rng, RngAlgorithm::ChaCha12);
chacha!(chacha20, rand_chacha::ChaCha20Rng, RngAlgorithm::ChaCha20);

proptest! {
    #[test]
    fn pcg64(state: u128, stream: u128, count in 0_usize..100) {
        let (stream, inc) = (stream >> 1, stream | 1);
        let from = [state.to_le_bytes(), inc.to_le_bytes()].concat();

        let mut judge = Lcg128Xsl64::from_state(state, stream);
        let expected: Vec<u64> = (0..count).map(|_| judge.next_u64()).collect();
        let (draws, after) = ours(RngAlgorithm::Pcg64XslRr, &from, count);
        prop_assert_eq!(draws, expected);
        prop_assert_eq!(after, [judge.state().to_le_bytes(), inc.to_le_bytes()].concat());

        let mut judge = Lcg128CmDxsm64::from_state(state, stream);
        let expected: Vec<u64> = (0..count).map(|_| judge.next_u64()).collect();
        let (draws, after) = ours(RngAlgorithm::Pcg64Dxsm, &from, count);
        prop_assert_eq!(draws, expected);
        prop_assert_eq!(after, [judge.state().to_le_bytes(), inc.to_le_bytes()].concat());
    }

    #[test]
    fn pcg32(state: u64, stream: u64, count in 0_usize..100) {
        let (stream, inc) = (stream >> 1, stream | 1);
        let mut judge = Lcg64Xsh32::from_state(state, stream);
        let expected: Vec<u64> = (0..count).map(|_| u64::from(judge.next_u32())).collect();
        let from = [state.to_le_bytes(), inc.to_le_bytes()].concat();
        let (draws, after) = ours(RngAlgorithm::Pcg32XshRr, &from, count);
        prop_assert_eq!(draws, expected);
        prop_assert_eq!(after, [judge.state().to_le_bytes(), inc.to_le_bytes()].concat());
    }

    #[test]
    fn xoshiro(seed: [u8; 32], count in 0_usize..100) {
        prop_assume!(seed != [0; 32]);
        let mut judge = Xoshiro256PlusPlus::from_seed(seed);
        let expected: Vec<u64> = (0..count).map(|_| judge.next_u64()).collect();
        let (draws, after) = ours(RngAlgorithm::Xoshiro256PlusPlus, &seed, count);
        prop_assert_eq!(draws, expected);
        let shown = serde_json::to_value(&judge).unwrap();
        let words: Vec<u64> = serde_json::from_value(shown["s"].clone()).unwrap();
        prop_assert_eq!(after, words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>());
    }
}

/// The rule of forks spreads a seed as the crate does, from outputs of SplitMix64.
#[test]
fn a_forked_xoshiro_is_the_seeded_one() {
    for seed in [0, 1, 42, u64::MAX] {
        let mut judge = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut forked = Engine::seeded(RngAlgorithm::Xoshiro256PlusPlus, seed).unwrap();
        assert_eq!(forked.draw(1), [judge.next_u64()]);
    }
}
