//! Blackman's and Vigna's xoshiro256++.
//!
//! It knows the engine and its four words. That of `rand_xoshiro` shows its state through serde
//! only, so it judges this one in the tests instead of standing in for it.

use waystation_format::Result;

use super::fields::{Fields, join_u64s};

/// Four words, not all 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Xoshiro256PlusPlus(pub(super) [u64; 4]);

impl Xoshiro256PlusPlus {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self> {
        match fields.u64s()? {
            [0, 0, 0, 0] => Err(fields.illegal("expected a word that is not 0, found none")),
            words => Ok(Self(words)),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        join_u64s(&self.0)
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        let [mut a, mut b, mut c, mut d] = self.0;
        let out = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        c ^= a;
        d ^= b;
        b ^= c;
        a ^= d;
        c ^= shifted;
        self.0 = [a, b, c, d.rotate_left(45)];
        out
    }
}
