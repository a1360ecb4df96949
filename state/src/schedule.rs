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
            Float::F32(bits) => agrees_f32(f32::from_bits(bits), expected),
            Float::F64(bits) => agrees_f64(f64::from_bits(bits), expected),
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

/// Whether a recorded `f64` is the computed value, within the bound for libraries' cosines.
#[must_use]
pub fn agrees_f64(recorded: f64, computed: f64) -> bool {
    within(recorded, computed, 2_f64.powi(-40))
}

/// Whether a recorded `f32` is the computed value, within the bound for values held in 32 bits.
#[must_use]
pub fn agrees_f32(recorded: f32, computed: f64) -> bool {
    within(f64::from(recorded), computed, 2_f64.powi(-20))
}

/// NaN is within no bound.
fn within(recorded: f64, computed: f64, bound: f64) -> bool {
    (recorded - computed).abs() <= computed.abs() * bound
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
            assert!(agrees_f64(at(algorithm, 50), 5e-4), "{algorithm}");
            assert!(agrees_f64(at(algorithm, 100), 1e-3), "{algorithm}");
        }
        assert_eq!(at(ScheduleAlgorithm::LinearWarmup, 5000), 1e-3);
        for algorithm in
            [ScheduleAlgorithm::LinearWarmupLinear, ScheduleAlgorithm::LinearWarmupCosine]
        {
            assert!(agrees_f64(at(algorithm, 550), (1e-3 + 1e-5) / 2.0), "{algorithm}");
            assert_eq!(at(algorithm, 1000), 1e-5);
            assert_eq!(at(algorithm, 1 << 52), 1e-5);
        }
    }

    #[test]
    fn a_position_one_step_off_is_seen_in_f64_and_f32() {
        let algorithm = ScheduleAlgorithm::LinearWarmupCosine;
        for position in [1, 99, 101, 500, 998] {
            let (now, next) = (at(algorithm, position), at(algorithm, position + 1));
            assert!(agrees_f64(now, now) && !agrees_f64(next, now), "{position}");
            #[expect(clippy::cast_possible_truncation, reason = "the framework's rounding")]
            let (now32, next32) = (now as f32, next as f32);
            assert!(agrees_f32(now32, now) && !agrees_f32(next32, now), "{position}");
        }
        assert!(!agrees_f64(f64::NAN, 1.0));
    }

    #[test]
    fn warm_ups_and_slopes_of_no_length_divide_by_nothing() {
        let shape = Shape { warmup: 0, total: 0, ..SHAPE };
        assert_eq!(value(ScheduleAlgorithm::LinearWarmupCosine, &shape, 0), 1e-5);
        let shape = Shape { warmup: 7, total: 7, ..SHAPE };
        assert_eq!(value(ScheduleAlgorithm::LinearWarmupLinear, &shape, 7), 1e-5);
    }
}
