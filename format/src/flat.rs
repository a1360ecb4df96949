//! A range of a flattened tensor as boxes of its shape.
//!
//! Optimizers that shard a flat buffer own ranges of the row-major order; the format stores
//! boxes. It knows shapes only. It must not know writers, dtypes or bytes.

use crate::dims::{Dims, elements};
use crate::region::Region;
use crate::{Code, Error, Result};

/// The elements `begin..end` of the row-major order of `shape` as boxes.
///
/// The boxes are disjoint, each is a contiguous run of that order, they stand in its order, and
/// there are at most `2N - 1` for `N` axes (one for no axes). Where a box could be larger only
/// by breaking one of these, it is not.
///
/// # Errors
/// [`Code::BadRegion`] when the range is reversed or leaves the shape; [`Code::Limit`] when the
/// shape's elements do not fit 64 bits.
pub fn boxes_of_range(shape: &[u64], begin: u64, end: u64) -> Result<Vec<Region>> {
    let total = elements(shape)?;
    if begin > end || end > total {
        let message = format!("expected a range within 0..{total}, found {begin}..{end}");
        return Err(Error::new(Code::BadRegion, message));
    }
    let mut boxes = Vec::new();
    let mut next = begin;
    // From a position take the largest box that is a run: along the outermost axis on whose
    // grid the position lies and of which a whole index still fits. Going up, an axis ends at
    // its own end and so is met once; coming down, once more; the outermost one only once.
    while next < end {
        let (region, count) = largest_run(shape, next, end);
        boxes.push(region);
        next = next.saturating_add(count);
    }
    Ok(boxes)
}

/// The largest box that begins at flat element `next`, is one run and ends at or before `end`,
/// and its elements. The range is not empty and within the shape, so no axis is 0.
fn largest_run(shape: &[u64], next: u64, end: u64) -> (Region, u64) {
    let mut at = Dims::from_elem(0, shape.len());
    let mut extent = Dims::from_elem(1, shape.len());
    let left = end.saturating_sub(next);
    // The box so far: all of the axes inside, one index of the others.
    let (mut count, mut stride, mut rest) = (1_u64, 1_u64, next);
    for ((at, extent), &size) in at.iter_mut().zip(&mut extent).zip(shape).rev() {
        // `rest` counts indices of this axis and those outside it, `stride` the elements of each.
        let index = rest.checked_rem(size).unwrap_or(0);
        rest = rest.checked_div(size).unwrap_or(0);
        let fits = left.checked_div(stride).unwrap_or(0);
        if count == stride && fits > 0 {
            *extent = size.saturating_sub(index).min(fits);
            count = stride.saturating_mul(*extent);
        }
        *at = index;
        stride = stride.saturating_mul(size);
    }
    (Region { at, extent }, count)
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "numbers of the tests' own")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape_and_range() -> impl Strategy<Value = (Vec<u64>, u64, u64)> {
        (prop::collection::vec(1u64..6, 0..6), any::<u64>(), any::<u64>()).prop_map(
            |(shape, a, b)| {
                let total: u64 = shape.iter().product();
                let (a, b) = (a % (total + 1), b % (total + 1));
                (shape, a.min(b), a.max(b))
            },
        )
    }

    proptest! {
        #[test]
        fn boxes_are_the_range_in_order((shape, begin, end) in shape_and_range()) {
            let boxes = boxes_of_range(&shape, begin, end).unwrap();
            let mut next = begin;
            for region in &boxes {
                let runs: Vec<(u64, u64)> = region.runs(&shape).unwrap().collect();
                prop_assert_eq!(runs.len(), 1, "{} is not one run", region);
                prop_assert_eq!(runs[0].0, next);
                next += runs[0].1;
            }
            prop_assert_eq!(next, end);
            let bound = (2 * shape.len()).saturating_sub(1).max(1);
            prop_assert!(boxes.len() <= bound, "{} boxes", boxes.len());
        }
    }

    #[test]
    fn the_bound_is_reached_and_not_passed() {
        let boxes = boxes_of_range(&[4, 4, 4], 1, 63).unwrap();
        assert_eq!(boxes.len(), 5);
        assert_eq!(boxes_of_range(&[4, 4, 4], 0, 64).unwrap(), [Region::whole(&[4, 4, 4])]);
    }

    #[test]
    fn empty_and_scalar_shapes() {
        assert_eq!(boxes_of_range(&[], 0, 1).unwrap(), [Region::whole(&[])]);
        assert!(boxes_of_range(&[3, 0], 0, 0).unwrap().is_empty());
    }

    #[test]
    fn ranges_outside_are_refused() {
        assert_eq!(boxes_of_range(&[4], 0, 5).unwrap_err().code(), Code::BadRegion);
        assert_eq!(boxes_of_range(&[4], 3, 2).unwrap_err().code(), Code::BadRegion);
    }
}
