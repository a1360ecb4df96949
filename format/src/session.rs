//! What identifies a save: the timeline of its job, the attempt, and each writer's incarnation.
//!
//! It knows how these are derived and spelled. It must not draw random numbers or look at a run:
//! the nonce and the timeline are agreed by the job, outside.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// One save of one job: what an attempt's directory is named by, after its step.
///
/// Ordered by timeline, then nonce; spelled as 16 hex digits, the timeline first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// One above the highest timeline that the job saw in the run when it started.
    pub timeline: u32,
    /// What tells apart attempts of one timeline.
    pub nonce: u32,
}

impl Attempt {
    /// The attempt of the save of `step`, the job's save number `counter` (from 0), for the
    /// 128-bit nonce that the job drew when it started.
    #[must_use]
    pub fn derive(timeline: u32, nonce: &[u8; 16], step: u64, counter: u64) -> Self {
        let text = format!("{:032x} {step} {counter}", u128::from_le_bytes(reversed(nonce)));
        let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let [a, b, c, d, ..] = digest;
        // Hex digits are most significant first, so the first digest byte is the top one.
        Self { timeline, nonce: u32::from_le_bytes([d, c, b, a]) }
    }

    /// Reads 16 lower-case hex digits; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bits = parse_hex16(text)?;
        let timeline = u32::try_from(bits >> 32).ok()?;
        let nonce = u32::try_from(bits & 0xffff_ffff).ok()?;
        Some(Self { timeline, nonce })
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}{:08x}", self.timeline, self.nonce)
    }
}

/// The number that a writer process draws at random for the names of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// Reads 16 lower-case hex digits; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex16(text).map(Self)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

fn parse_hex16(text: &str) -> Option<u64> {
    let spelled =
        text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if spelled { u64::from_str_radix(text, 16).ok() } else { None }
}

/// The nonce's bytes are spelled in order, so the first is the most significant.
fn reversed(nonce: &[u8; 16]) -> [u8; 16] {
    let mut bytes = *nonce;
    bytes.reverse();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_round_trip_and_order_by_timeline() {
        let attempt = Attempt { timeline: 3, nonce: 0x90ab_12cd };
        assert_eq!(attempt.to_string(), "0000000390ab12cd");
        assert_eq!(Attempt::parse("0000000390ab12cd"), Some(attempt));
        assert!(attempt < Attempt { timeline: 4, nonce: 0 });
    }

    #[test]
    fn only_sixteen_lower_case_digits_are_an_attempt() {
        for text in [
            "",
            "0000000390AB12CD",
            "0000000390ab12c",
            "0000000390ab12cd0",
            "+000000390ab12cd",
            "00000003 0ab12cd",
        ] {
            assert_eq!(Attempt::parse(text), None, "{text:?}");
            assert_eq!(Incarnation::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_attempt_is_the_digest_of_nonce_step_and_counter() {
        let nonce = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        // printf '000102030405060708090a0b0c0d0eff 1000 7' | sha256sum
        let attempt = Attempt::derive(2, &nonce, 1000, 7);
        assert_eq!(attempt.to_string(), "000000022dd7d155");
        assert_ne!(Attempt::derive(2, &nonce, 1000, 8), attempt);
        assert_ne!(Attempt::derive(2, &nonce, 1001, 7), attempt);
    }

    #[test]
    fn incarnations_round_trip() {
        assert_eq!(Incarnation(0xab).to_string(), "00000000000000ab");
        assert_eq!(Incarnation::parse("ffffffffffffffff"), Some(Incarnation(u64::MAX)));
    }
}
