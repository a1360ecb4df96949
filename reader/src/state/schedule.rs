//! Schedules: the values of a record against those of its position.
//!
//! It knows which numbers of a record go into which formula. The formulas are those of
//! `waystation-state`.

use waystation_format::records::{Float, Schedule};
use waystation_format::{Code, Error, Result, rule};
use waystation_state::schedule::{Shape, agrees_f32, agrees_f64, value};

/// Compares the values of a computed schedule; of any other nothing is known.
///
/// # Errors
/// `canary-mismatch`, with the pointer within `value`.
pub(crate) fn check_schedule(schedule: &Schedule) -> Result<()> {
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
