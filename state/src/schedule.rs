//! Values of the schedules that the specification computes (16.4).
//!
//! It knows formulas. It must not know which hyper-parameter a schedule drives.

use waystation_format::records::{Float, Schedule};
use waystation_format::{Code, Error, Result, ScheduleAlgorithm, rule};

/// The numbers of a schedule; those that its algorithm does not have are not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    /// The value at the top.
    pub base: f64,
    /// The value at the end.
    pub floor: f64,
    /// The position at which the top is reached.
    pub warmup: u64,
    /// The position from which the value is the floor.
    pub total: u64,
}

/// Compares the values of a computed schedule; of any other nothing is known.
///
/// # Errors
///
/// [`Code::CanaryMismatch`], with the pointer within `value`.
pub fn check(schedule: &Schedule) -> Result<()> {
    let Some(computed) = schedule.computed()? else { return Ok(()) };
    for (index, line) in computed.lines.iter().enumerate() {
        let shape = Shape {
            base: line.base.to_f64(),
            floor: line.floor.map_or(0.0, Float::to_f64),
            warmup: computed.warmup,
            total: computed.total,
        };
        let expected = value(computed.algorithm, &shape, schedule.position);
        let agrees = match line.last_value {
            Float::F32(bits) => agrees_f32(f32::from_bits(bits), expected, &shape),
            Float::F64(bits) => agrees_f64(f64::from_bits(bits), expected, &shape),
        };
        if !agrees {
            let message = format!(
                "expected {expected:e} after {} {} of {}, found {:e}",
                schedule.position,
                schedule.unit.as_str(),
                computed.algorithm,
                line.last_value.to_f64()
            );
            return Err(Error::rule(Code::CanaryMismatch, rule::SCHEDULE_CANARY, message)
                .at_pointer(format!("/last_value/{index}")));
        }
    }
    Ok(())
}

/// The value in force at a position, in the schedule's own unit.
#[must_use]
pub fn value(algorithm: ScheduleAlgorithm, shape: &Shape, position: u64) -> f64 {
    let Shape { base, floor, warmup, total } = *shape;
    if algorithm == ScheduleAlgorithm::Constant {
        return base;
    }
    if position < warmup {
        return base * number(position) / number(warmup);
    }
    if algorithm == ScheduleAlgorithm::LinearWarmup {
        return base;
    }
    if position >= total {
        return floor;
    }
    // warmup <= position < total, so the length is not 0.
    let x = number(position.saturating_sub(warmup)) / number(total.saturating_sub(warmup));
    if algorithm == ScheduleAlgorithm::LinearWarmupLinear {
        base + (floor - base) * x
    } else {
        floor + (base - floor) * (1.0 + (std::f64::consts::PI * x).cos()) / 2.0
    }
}

/// Whether a recorded `f64` is the computed value, within the bound for libraries' cosines and for
/// formulas of another order.
#[must_use]
pub fn agrees_f64(recorded: f64, computed: f64, shape: &Shape) -> bool {
    within(recorded, computed, shape, (-40, -48))
}

/// Whether a recorded `f32` is the computed value, within the bound for values held in 32 bits.
#[must_use]
pub fn agrees_f32(recorded: f32, computed: f64, shape: &Shape) -> bool {
    within(f64::from(recorded), computed, shape, (-20, -20))
}

/// The bound has a share of the value and one of the schedule's height: near its end the value comes
/// of numbers that cancel out. NaN is within no bound.
fn within(recorded: f64, computed: f64, shape: &Shape, powers: (i32, i32)) -> bool {
    let height = shape.base.abs().max(shape.floor.abs());
    let bound = computed.abs() * 2_f64.powi(powers.0) + height * 2_f64.powi(powers.1);
    (recorded - computed).abs() <= bound
}

#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53: see 16")]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { base: 1e-3, floor: 1e-5, warmup: 100, total: 1000 };

    fn at(algorithm: ScheduleAlgorithm, position: u64) -> f64 {
        value(algorithm, &SHAPE, position)
    }

    #[test]
    fn schedules_go_through_their_corners() {
        for algorithm in ScheduleAlgorithm::ALL.iter().copied() {
            if algorithm == ScheduleAlgorithm::Constant {
                assert_eq!(at(algorithm, 0), 1e-3);
                continue;
            }
            assert_eq!(at(algorithm, 0), 0.0, "{algorithm}");
            assert!(agrees_f64(at(algorithm, 50), 5e-4, &SHAPE), "{algorithm}");
            assert!(agrees_f64(at(algorithm, 100), 1e-3, &SHAPE), "{algorithm}");
        }
        assert_eq!(at(ScheduleAlgorithm::LinearWarmup, 5000), 1e-3);
        for algorithm in
            [ScheduleAlgorithm::LinearWarmupLinear, ScheduleAlgorithm::LinearWarmupCosine]
        {
            assert!(agrees_f64(at(algorithm, 550), (1e-3 + 1e-5) / 2.0, &SHAPE), "{algorithm}");
            assert_eq!(at(algorithm, 1000), 1e-5);
            assert_eq!(at(algorithm, 1 << 52), 1e-5);
        }
    }

    #[test]
    fn a_position_one_step_off_is_seen_in_f64_and_f32() {
        let algorithm = ScheduleAlgorithm::LinearWarmupCosine;
        for position in [1, 99, 101, 500, 998] {
            let (now, next) = (at(algorithm, position), at(algorithm, position + 1));
            assert!(agrees_f64(now, now, &SHAPE) && !agrees_f64(next, now, &SHAPE), "{position}");
            #[expect(clippy::cast_possible_truncation, reason = "the framework's rounding")]
            let (now32, next32) = (now as f32, next as f32);
            assert!(
                agrees_f32(now32, now, &SHAPE) && !agrees_f32(next32, now, &SHAPE),
                "{position}"
            );
        }
        assert!(!agrees_f64(f64::NAN, 1.0, &SHAPE));
    }

    /// The formulas of others, all the way to an end at 0, where their values come of numbers that
    /// cancel out.
    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "what a framework in 32 bits does")]
    fn what_frameworks_compute_in_another_order_agrees_to_the_last_step() {
        let total = 100_000;
        let shape = Shape { base: 1e-3, floor: 0.0, warmup: 0, total };
        let length = number(total);
        let (linear, cosine) =
            (ScheduleAlgorithm::LinearWarmupLinear, ScheduleAlgorithm::LinearWarmupCosine);
        let mut chained = shape.base;
        for position in 0..=total {
            let p = number(position);
            // As Hugging Face writes a line, PyTorch chains a cosine, and optax has it in 32 bits.
            let line = shape.base * (length - p) / length;
            let small = 0.5_f32 * (1.0 + (std::f32::consts::PI * (p / length) as f32).cos());
            let small = shape.base as f32 * small;
            assert!(agrees_f64(line, value(linear, &shape, position), &shape), "line {position}");
            let expected = value(cosine, &shape, position);
            assert!(agrees_f64(chained, expected, &shape), "chain {position}");
            assert!(agrees_f32(small, expected, &shape), "f32 {position}");
            let angle = |p: f64| (std::f64::consts::PI * p / length).cos();
            chained *= (1.0 + angle(p + 1.0)) / (1.0 + angle(p));
        }
        // And a step that is off is still seen where the value moves.
        let (now, next) = (value(cosine, &shape, 99_000), value(cosine, &shape, 99_001));
        assert!(!agrees_f64(next, now, &shape));
    }

    #[test]
    fn warm_ups_and_slopes_of_no_length_divide_by_nothing() {
        let shape = Shape { warmup: 0, total: 0, ..SHAPE };
        assert_eq!(value(ScheduleAlgorithm::LinearWarmupCosine, &shape, 0), 1e-5);
        let shape = Shape { warmup: 7, total: 7, ..SHAPE };
        assert_eq!(value(ScheduleAlgorithm::LinearWarmupLinear, &shape, 7), 1e-5);
    }
}
