//! Seeds of forked streams: one number for a stream at a new place, and the words that follow
//! from it.
//!
//! It knows the rule of section 17.5. When a stream is forked, a loader decides.

use waystation_format::Coordinate;
use waystation_format::common::encode_coordinate;
use waystation_format::digest::Hasher;
use waystation_format::json::Encoder;

/// What begins the text that is hashed.
const DOMAIN: &[u8] = b"resume-fork/1";

/// The seed of stream `stream` forked at `coordinate` from the checkpoint of `run` at `step`.
///
/// `coordinate` is the new place, restricted to the axes that the new topology has of those that
/// the stream varies over, in the new topology's order.
#[must_use]
pub fn fork_seed(run: &str, step: u64, stream: &str, coordinate: &Coordinate) -> u64 {
    let mut hash = Hasher::new();
    hash.update(DOMAIN);
    hash.update(run.as_bytes());
    hash.update(&step.to_le_bytes());
    hash.update(stream.as_bytes());
    hash.update(coordinate_text(coordinate).as_bytes());
    let digest = hash.finish();
    let seed = digest.as_bytes().first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(seed)
}

/// Canonical JSON of a coordinate.
fn coordinate_text(coordinate: &Coordinate) -> String {
    let mut json = Encoder::new();
    encode_coordinate(&mut json, coordinate);
    json.into_string()
}

/// Steele's, Lea's and Flood's SplitMix64: spreads a seed over as many words as are asked for.
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Two words, the low one first.
    pub(super) fn next_u128(&mut self) -> u128 {
        let low = u128::from(self.next_u64());
        low | u128::from(self.next_u64()) << 64
    }

    pub(super) fn take<const N: usize>(&mut self) -> [u64; N] {
        [0; N].map(|_: u64| self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outputs from the state 1234567 that several published implementations test against.
    #[test]
    fn published_words() {
        assert_eq!(
            SplitMix64::new(1_234_567).take(),
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431
            ]
        );
    }

    #[test]
    fn each_part_of_the_seed_counts() {
        let at = |axis: &str, index| vec![(axis.to_owned(), index)];
        let seed = fork_seed("run", 1000, "dropout", &at("dp", 2));
        for other in [
            fork_seed("run2", 1000, "dropout", &at("dp", 2)),
            fork_seed("run", 1001, "dropout", &at("dp", 2)),
            fork_seed("run", 1000, "dropout2", &at("dp", 2)),
            fork_seed("run", 1000, "dropout", &at("tp", 2)),
            fork_seed("run", 1000, "dropout", &at("dp", 3)),
            fork_seed("run", 1000, "dropout", &vec![]),
        ] {
            assert_ne!(seed, other);
        }
        assert_eq!(
            coordinate_text(&vec![("dp".into(), 2), ("é\"".into(), 0)]),
            r#"[["dp",2],["é\"",0]]"#
        );
    }
}
