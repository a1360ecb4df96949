//! O'Neill's PCG engines: a linear congruential step, and an output function of its state.
//!
//! It knows three of them. The engines are short enough to stand here; those of `rand_pcg` judge
//! them in the tests.

use waystation_format::Result;

use super::fields::{Fields, halves, halves_wide};

const STEP_128: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
const STEP_DXSM: u64 = 0xda94_2042_e4dd_58b5;
const STEP_64: u64 = 0x5851_f42d_4c95_7f2d;

/// The state of the two engines of 128 bits; `inc` is odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pcg128 {
    pub(super) state: u128,
    pub(super) inc: u128,
}

/// The state of the engine of 64 bits; `inc` is odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pcg64 {
    pub(super) state: u64,
    pub(super) inc: u64,
}

impl Pcg128 {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self> {
        let pcg = Self { state: fields.u128()?, inc: fields.u128()? };
        if pcg.inc & 1 == 1 { Ok(pcg) } else { Err(even(fields)) }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        [self.state, self.inc].into_iter().flat_map(u128::to_le_bytes).collect()
    }

    /// XSL-RR: the output is of the state after the step.
    pub(super) fn next_xsl_rr(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(STEP_128).wrapping_add(self.inc);
        let [low, high] = halves_wide(self.state);
        let [turn, _] = halves(high >> 58);
        (high ^ low).rotate_right(turn)
    }

    /// CM-DXSM: the output is of the state before the step.
    pub(super) fn next_dxsm(&mut self) -> u64 {
        let [low, mut high] = halves_wide(self.state);
        self.state = self.state.wrapping_mul(u128::from(STEP_DXSM)).wrapping_add(self.inc);
        high ^= high >> 32;
        high = high.wrapping_mul(STEP_DXSM);
        high ^= high >> 48;
        high.wrapping_mul(low | 1)
    }
}

impl Pcg64 {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self> {
        let pcg = Self { state: fields.u64()?, inc: fields.u64()? };
        if pcg.inc & 1 == 1 { Ok(pcg) } else { Err(even(fields)) }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        [self.state, self.inc].into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// XSH-RR: the output is of the state before the step.
    pub(super) fn next_xsh_rr(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(STEP_64).wrapping_add(self.inc);
        let [mixed, _] = halves(((old >> 18) ^ old) >> 27);
        let [turn, _] = halves(old >> 59);
        mixed.rotate_right(turn)
    }
}

#[cold]
fn even(fields: &Fields<'_>) -> waystation_format::Error {
    fields.illegal("expected an odd inc, found an even one")
}
