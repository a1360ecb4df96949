//! The few functions that training needs, built from additions, multiplications and divisions.
//!
//! Those are exactly rounded everywhere, and the compiler neither fuses nor reorders them, so a
//! run gives the same bits on any machine; the platform's own `exp` or `cos` would not promise
//! that. It knows numbers only.

use std::f32::consts::LOG2_E;
use std::f64::consts::{FRAC_PI_2, PI};

/// ln 2 in two pieces: the first has so few bits that a multiple of it is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Added to a small number it leaves the nearest integer in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

/// e to the power `x`; `x` is taken into -87…88, where the result is an ordinary number.
pub(crate) fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = x - whole * LN2_HIGH - whole * LN2_LOW;
    let series = 1.0 / 6.0 + rest * (1.0 / 24.0 + rest * (1.0 / 120.0 + rest * (1.0 / 720.0)));
    let fraction = 1.0 + rest * (1.0 + rest * (0.5 + rest * series));
    let power = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    fraction * f32::from_bits(power.wrapping_add(127).wrapping_shl(23))
}

/// The natural logarithm of a positive ordinary number.
pub(crate) fn ln(x: f32) -> f32 {
    // x = 2^power · fraction with the fraction around 1.
    let bits = x.to_bits().wrapping_sub(1.0_f32.to_bits());
    let half = 0x0040_0000_u32;
    let power = bits.wrapping_add(half) & 0xff80_0000;
    let fraction = f32::from_bits(x.to_bits().wrapping_sub(power));
    let power = (power.cast_signed() >> 23) as f32;
    let s = (fraction - 1.0) / (fraction + 1.0);
    let square = s * s;
    let series = 1.0 / 3.0 + square * (0.2 + square * (1.0 / 7.0 + square * (1.0 / 9.0)));
    let log = 2.0 * s * (1.0 + square * series);
    power * LN2_HIGH + (power * LN2_LOW + log)
}

/// The hyperbolic tangent.
pub(crate) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

/// The cosine of an angle of 0…π.
pub(crate) fn cos(angle: f64) -> f64 {
    if angle > FRAC_PI_2 {
        return -cos(PI - angle);
    }
    let square = angle * angle;
    // 1 - x²/2!·(1 - x²/(3·4)·(1 - …)), from the inside out.
    let terms = [20.0, 18.0, 16.0, 14.0, 12.0, 10.0, 8.0, 6.0, 4.0, 2.0];
    terms.iter().fold(1.0, |inner, n| 1.0 - square / ((n - 1.0) * n) * inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_close_to_the_platform_s() {
        for step in -860..860 {
            let x = step as f32 / 10.0;
            let (ours, theirs) = (exp(x), x.exp());
            assert!((ours - theirs).abs() <= 3e-7 * theirs, "exp({x}): {ours} {theirs}");
            assert!((tanh(x) - x.tanh()).abs() <= 3e-7, "tanh({x})");
            let (ours, theirs) = (ln(theirs), theirs.ln());
            assert!((ours - theirs).abs() <= 1e-6 * theirs.abs().max(1.0), "ln: {ours} {theirs}");
        }
        for step in 0..=1000 {
            let angle = f64::from(step) / 1000.0 * PI;
            assert!((cos(angle) - angle.cos()).abs() < 1e-14, "cos({angle})");
        }
    }
}
