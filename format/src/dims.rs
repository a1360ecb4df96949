//! Lists of one number per axis, and the count of elements that they span.
//!
//! It knows axes and products. It must not know tensors, dtypes or bytes.

use smallvec::SmallVec;

use crate::{Result, arith};

/// One number per axis, outermost first: a shape, a start, an extent. Up to four stand in place.
pub type Dims = SmallVec<[u64; 4]>;

/// The number of elements of a box of this shape: 1 for no axes, 0 when an axis is 0.
///
/// # Errors
/// [`Code::Limit`](crate::Code::Limit) when it does not fit 64 bits.
pub fn elements(shape: &[u64]) -> Result<u64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape.iter().try_fold(1, |product, &n| arith::mul(product, n, "number of elements"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_multiply_and_a_zero_wins() {
        assert_eq!(elements(&[]).unwrap(), 1);
        assert_eq!(elements(&[3, 4]).unwrap(), 12);
        assert_eq!(elements(&[u64::MAX, u64::MAX, 0]).unwrap(), 0);
        assert!(elements(&[u64::MAX, 2]).is_err());
    }
}
