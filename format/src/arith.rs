//! Checked arithmetic on sizes, each with the quantity's name in its error.
//!
//! It knows 64-bit numbers and the one rule that none may wrap (`limit.arithmetic`). It must not
//! know what the numbers measure: the caller says that in `what`.

use crate::rule;
use crate::{Code, Error, Result};

/// `a + b`.
///
/// # Errors
/// [`Code::Limit`] when the sum, called `what`, does not fit 64 bits.
pub fn add(a: u64, b: u64, what: &str) -> Result<u64> {
    a.checked_add(b).ok_or_else(|| wraps(a, "+", b, what))
}

/// `a - b`.
///
/// # Errors
/// [`Code::Limit`] when the difference, called `what`, is below zero.
pub fn sub(a: u64, b: u64, what: &str) -> Result<u64> {
    a.checked_sub(b).ok_or_else(|| wraps(a, "-", b, what))
}

/// `a * b`.
///
/// # Errors
/// [`Code::Limit`] when the product, called `what`, does not fit 64 bits.
pub fn mul(a: u64, b: u64, what: &str) -> Result<u64> {
    a.checked_mul(b).ok_or_else(|| wraps(a, "*", b, what))
}

/// The least multiple of `step` that is not below `x`.
///
/// # Errors
/// [`Code::Limit`] when it, called `what`, does not fit 64 bits, or `step` is zero.
pub fn align_up(x: u64, step: u64, what: &str) -> Result<u64> {
    if step == 0 {
        return Err(by_zero(x, what));
    }
    x.checked_next_multiple_of(step).ok_or_else(|| wraps(x, "aligned to", step, what))
}

/// The least integer that is not below `a / b`.
///
/// # Errors
/// [`Code::Limit`] when `b`, the divisor of what is called `what`, is zero.
pub fn ceil_div(a: u64, b: u64, what: &str) -> Result<u64> {
    if b == 0 {
        return Err(by_zero(a, what));
    }
    Ok(a.div_ceil(b))
}

/// `x` as an index of memory.
///
/// # Errors
/// [`Code::Limit`] when `x`, called `what`, is above what this machine addresses.
pub fn to_usize(x: u64, what: &str) -> Result<usize> {
    usize::try_from(x).map_err(|_| {
        let expected = format!("expected {what} that this machine can address, found {x}");
        Error::rule(Code::Limit, rule::LIMIT_ARITHMETIC, expected)
    })
}

#[cold]
fn wraps(a: u64, op: &str, b: u64, what: &str) -> Error {
    let message = format!("expected {what} within 64 bits, found {a} {op} {b}");
    Error::rule(Code::Limit, rule::LIMIT_ARITHMETIC, message)
}

#[cold]
fn by_zero(a: u64, what: &str) -> Error {
    let message = format!("expected {what} counted in steps above zero, found {a} in steps of 0");
    Error::rule(Code::Limit, rule::LIMIT_ARITHMETIC, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_computed() {
        assert_eq!(add(2, 3, "end").unwrap(), 5);
        assert_eq!(sub(3, 3, "gap").unwrap(), 0);
        assert_eq!(mul(7, 6, "bytes").unwrap(), 42);
        assert_eq!(align_up(4097, 4096, "end").unwrap(), 8192);
        assert_eq!(align_up(0, 256, "end").unwrap(), 0);
        assert_eq!(ceil_div(9, 8, "bytes").unwrap(), 2);
        assert_eq!(to_usize(9, "length").unwrap(), 9);
    }

    #[test]
    fn what_wraps_is_refused_by_name() {
        let wrapping = [
            add(u64::MAX, 1, "shard end"),
            sub(1, 2, "shard end"),
            mul(1 << 32, 1 << 32, "shard end"),
            align_up(u64::MAX, 4096, "shard end"),
            align_up(1, 0, "shard end"),
            ceil_div(1, 0, "shard end"),
        ];
        for result in wrapping {
            let error = result.unwrap_err();
            assert_eq!(error.code(), Code::Limit);
            assert_eq!(error.rule_id(), Some(rule::LIMIT_ARITHMETIC));
            assert!(error.message().contains("shard end"), "{error}");
        }
    }
}
