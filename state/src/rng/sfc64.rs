//! Doty-Humphrey's Small Fast Chaotic engine of 64 bits, as NumPy has it.
//!
//! It knows the engine and its four words.

use waystation_format::Result;

use super::fields::{Fields, join_u64s};

/// Three words of chaos and a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sfc64(pub(super) [u64; 4]);

impl Sfc64 {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self> {
        fields.u64s().map(Self)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        join_u64s(&self.0)
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        let [a, b, c, counter] = self.0;
        let out = a.wrapping_add(b).wrapping_add(counter);
        self.0 = [
            b ^ (b >> 11),
            c.wrapping_add(c << 3),
            c.rotate_left(24).wrapping_add(out),
            counter.wrapping_add(1),
        ];
        out
    }
}
