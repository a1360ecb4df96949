//! AdamW on a range of the flat list of numbers, and its learning rate.
//!
//! It knows the update of a number from its gradient and its two moments. It must not know whose
//! range it is.

use crate::math::cos;

/// Settings of the optimizer, the same for all numbers but for the decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdamW {
    pub(crate) beta1: f64,
    pub(crate) beta2: f64,
    pub(crate) eps: f64,
    pub(crate) weight_decay: f64,
}

/// The learning rate by position: up on a straight line, down on half a cosine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) base: f64,
    pub(crate) floor: f64,
    pub(crate) warmup: u64,
    pub(crate) total: u64,
}

/// The running means that AdamW keeps of the gradient (`m`) and of its square (`v`).
pub(crate) struct Moments {
    pub(crate) m: Vec<f32>,
    pub(crate) v: Vec<f32>,
}

impl Moments {
    pub(crate) fn zero(count: usize) -> Self {
        Self { m: vec![0.0; count], v: vec![0.0; count] }
    }
}

impl AdamW {
    /// Moves `values` against `gradient`, both of the range that `moments` is of. `step` counts
    /// from 1; `decays` says of which numbers the size is held down.
    pub(crate) fn update(
        &self,
        step: u64,
        rate: f64,
        values: &mut [f32],
        gradient: &[f32],
        moments: &mut Moments,
        decays: &[bool],
    ) {
        let bias1 = 1.0 - power(self.beta1, step);
        let bias2 = 1.0 - power(self.beta2, step);
        let moments = moments.m.iter_mut().zip(&mut moments.v);
        for (((value, gradient), (m, v)), &decays) in
            values.iter_mut().zip(gradient).zip(moments).zip(decays)
        {
            let g = f64::from(*gradient);
            let mean = self.beta1 * f64::from(*m) + (1.0 - self.beta1) * g;
            let square = self.beta2 * f64::from(*v) + (1.0 - self.beta2) * g * g;
            *m = rounded(mean);
            *v = rounded(square);
            let decay = if decays { rate * self.weight_decay } else { 0.0 };
            let kept = f64::from(*value) * (1.0 - decay);
            let moved = rate * (mean / bias1) / ((square / bias2).sqrt() + self.eps);
            *value = rounded(kept - moved);
        }
    }
}

impl Schedule {
    /// The rate at position `at`.
    pub(crate) fn rate(&self, at: u64) -> f64 {
        let (at, warmup, total) = (at as f64, self.warmup as f64, self.total as f64);
        if at < warmup {
            return self.base * (at / warmup);
        }
        let done = ((at - warmup) / (total - warmup)).clamp(0.0, 1.0);
        self.floor + (self.base - self.floor) * 0.5 * (1.0 + cos(done * std::f64::consts::PI))
    }
}

/// `base` multiplied by itself, always from the left.
fn power(base: f64, times: u64) -> f64 {
    (0..times).fold(1.0, |product, _| product * base)
}

#[expect(clippy::cast_possible_truncation, reason = "to the nearest binary32, which is meant")]
fn rounded(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_is_as_long_as_the_rate() {
        let adam = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.5 };
        let mut values = [1.0, 1.0, -2.0];
        let mut moments = Moments::zero(3);
        adam.update(1, 0.1, &mut values, &[3.0, -4.0, 0.0], &mut moments, &[false, false, true]);
        assert!((values[0] - 0.9).abs() < 1e-6 && (values[1] - 1.1).abs() < 1e-6);
        assert!((values[2] + 1.9).abs() < 1e-6, "decay alone: {}", values[2]);
    }

    #[test]
    fn the_rate_rises_and_falls() {
        let schedule = Schedule { base: 0.01, floor: 0.001, warmup: 10, total: 110 };
        assert_eq!(schedule.rate(5), 0.005);
        assert!((schedule.rate(10) - 0.01).abs() < 1e-9);
        assert!((schedule.rate(60) - 0.0055).abs() < 1e-9);
        assert!((schedule.rate(110) - 0.001).abs() < 1e-9);
    }
}
