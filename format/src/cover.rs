//! The proof that a tensor's chunks hold every element exactly once.
//!
//! It knows boxes of one shape. It must not know which writer or shard holds them.
//!
//! # Why this is a proof
//!
//! Let f(x) be the number of chunks that hold element x, and 0 outside the shape; the chunks
//! cover exactly when f is the indicator of the shape. Give each corner of a box the sign
//! (-1)^(number of upper sides) and let c(x) be the sum of the signs of all chunks' corners at x.
//! The indicator of an interval [a, b) rises by 1 at a and falls by 1 at b, so c is what f
//! becomes when it is differenced once along each axis. Summing again along each axis gives f
//! back, for f is 0 far below. Hence c determines f, and the chunks cover exactly if and only if
//! c equals the corners of the whole shape. An axis along which all boxes span the shape is the
//! same factor on both sides and is left out.
//!
//! Holding c takes 2^k corners a chunk, which a hostile page could turn into memory. So c is
//! not held but compared as a polynomial: with one variable X(axis, coordinate) for each
//! coordinate, the corners of a box are the product over the axes of (X(axis, a) - X(axis, b)),
//! and distinct corners are distinct monomials. The difference of both sides is evaluated at a
//! random point of the field of 2^61 - 1 elements. If it is the zero polynomial the result is 0:
//! an exact cover is never refused. If not, its coefficients are below the field's size, so it
//! stays non-zero in the field, and a polynomial of degree k is 0 at a random point with
//! probability at most k / 2^61, which is below 2^-57 for 8 axes (Schwartz-Zippel). The point is
//! a keyed hash whose key this process draws at random, so nobody can aim at it. Time is linear
//! in chunks and memory constant, whatever the boxes are.

use std::hash::{BuildHasher, RandomState};

use smallvec::SmallVec;

use crate::dims::elements;
use crate::region::Region;
use crate::rule;
use crate::{Code, Error, Result, limits};

/// Checks that `boxes`, in any order, cover `shape` exactly once.
///
/// # Errors
/// [`Code::BadChunk`] for a box of another rank, with an extent of 0 or outside the shape;
/// [`Code::Limit`] when the boxes split more axes than `split-axes` or the shape's elements do not
/// fit 64 bits; [`Code::CoverGap`] when they have fewer elements than the shape;
/// [`Code::CoverOverlap`] when they have at least as many and do not cover it exactly once.
pub fn check_cover<'a>(
    shape: &[u64],
    boxes: impl ExactSizeIterator<Item = &'a Region> + Clone,
) -> Result<()> {
    let total = u128::from(elements(shape)?);
    let mut volume: u128 = 0;
    let mut is_split: SmallVec<[bool; 16]> = shape.iter().map(|_| false).collect();
    for region in boxes.clone() {
        check_box(shape, region)?;
        for ((split, extent), size) in is_split.iter_mut().zip(&region.extent).zip(shape) {
            *split |= extent < size;
        }
        // At most 2^64 boxes of at most 2^64 elements, which the shape bounds.
        volume = volume.saturating_add(u128::from(region.elements()?));
    }
    let axes: SmallVec<[usize; 8]> =
        is_split.iter().enumerate().filter_map(|(axis, &split)| split.then_some(axis)).collect();
    if axes.len() as u64 > limits::SPLIT_AXES {
        let found =
            format!("expected at most {} split axes, found {}", limits::SPLIT_AXES, axes.len());
        return Err(Error::rule(Code::Limit, rule::CHUNK_SPLIT, found));
    }
    if volume < total {
        let found = format!("expected {total} elements in {shape:?}, found {volume}");
        return Err(Error::rule(Code::CoverGap, rule::COVER_GAP, found));
    }
    let exact = volume == total
        && match axes.as_slice() {
            // Every box is the whole, and their elements are those of one.
            [] => true,
            &[axis] => is_in_line(axis, boxes.clone()) || corners_agree(shape, &axes, boxes),
            _ => corners_agree(shape, &axes, boxes),
        };
    if exact {
        return Ok(());
    }
    let found = format!(
        "expected each of {total} elements of {shape:?} in exactly one chunk, found {volume} in chunks that overlap"
    );
    Err(Error::rule(Code::CoverOverlap, rule::COVER_EXACT, found))
}

/// Checks one box against the shape.
fn check_box(shape: &[u64], region: &Region) -> Result<()> {
    if region.is_within(shape) && !region.extent.contains(&0) {
        return Ok(());
    }
    let (rule, expected) = if region.at.len() != shape.len() || region.extent.len() != shape.len() {
        (rule::CHUNK_RANK, "the rank")
    } else if region.extent.contains(&0) {
        (rule::CHUNK_NONEMPTY, "at least one element")
    } else {
        (rule::CHUNK_BOUNDS, "the bounds")
    };
    let message =
        format!("expected a chunk with {expected} of the shape {shape:?}, found {region}");
    Err(Error::rule(Code::BadChunk, rule, message))
}

/// True when the boxes, in their order, follow each other along `axis`, the only one that is
/// split, from 0 without gap or overlap. With the volume of the whole they then end at its end.
fn is_in_line<'a>(axis: usize, mut boxes: impl Iterator<Item = &'a Region>) -> bool {
    let mut end = 0;
    boxes.all(|region| match (region.at.get(axis), region.extent.get(axis)) {
        (Some(&at), Some(&extent)) if at == end => {
            end = at.saturating_add(extent);
            true
        }
        _ => false,
    })
}

/// True when the signed corners of the boxes are those of the whole shape; see the module.
fn corners_agree<'a>(
    shape: &[u64],
    axes: &[usize],
    boxes: impl Iterator<Item = &'a Region>,
) -> bool {
    let point = Point(RandomState::new());
    let whole = Region::whole(shape);
    let sum = boxes.fold(0, |sum, region| field::add(sum, point.corners(axes, region)));
    sum == point.corners(axes, &whole)
}

/// A random value for each variable X(axis, coordinate).
struct Point(RandomState);

impl Point {
    /// The polynomial of one box's signed corners at this point.
    fn corners(&self, axes: &[usize], region: &Region) -> u64 {
        axes.iter().fold(1, |product, &axis| {
            let at = region.at.get(axis).copied().unwrap_or(0);
            let end = region.extent.get(axis).map_or(at, |&extent| at.saturating_add(extent));
            let side = field::sub(self.value(axis, at), self.value(axis, end));
            field::mul(product, side)
        })
    }

    fn value(&self, axis: usize, coordinate: u64) -> u64 {
        field::reduce(u128::from(self.0.hash_one((axis, coordinate))))
    }
}

/// The integers modulo the prime 2^61 - 1; every argument but that of `reduce` is below it.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "61-bit numbers: sums fit 64 bits, products 128"
)]
mod field {
    const PRIME: u64 = (1 << 61) - 1;

    pub(super) fn add(a: u64, b: u64) -> u64 {
        let sum = a + b;
        if sum >= PRIME { sum - PRIME } else { sum }
    }

    pub(super) fn sub(a: u64, b: u64) -> u64 {
        if a >= b { a - b } else { a + PRIME - b }
    }

    pub(super) fn mul(a: u64, b: u64) -> u64 {
        reduce(u128::from(a) * u128::from(b))
    }

    /// `x` modulo the prime, for `x` below 2^122: 2^61 is 1, so high and low digits add up.
    #[expect(clippy::cast_possible_truncation, reason = "both digits have 61 bits")]
    pub(super) fn reduce(x: u128) -> u64 {
        let (low, high) = (x as u64 & PRIME, (x >> 61) as u64);
        add(low % PRIME, high % PRIME)
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "numbers of the tests' own"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn region(at: &[u64], extent: &[u64]) -> Region {
        Region { at: at.into(), extent: extent.into() }
    }

    /// What counting each element says.
    fn naive(shape: &[u64], boxes: &[Region]) -> Option<Code> {
        let total: u64 = shape.iter().product();
        let mut counts = vec![0; total as usize];
        let mut volume = 0;
        for region in boxes {
            for (first, n) in region.runs(shape).unwrap() {
                (first..first + n).for_each(|i| counts[i as usize] += 1);
                volume += n;
            }
        }
        if volume < total {
            Some(Code::CoverGap)
        } else {
            counts.iter().any(|&n| n != 1).then_some(Code::CoverOverlap)
        }
    }

    fn found(shape: &[u64], boxes: &[Region]) -> Option<Code> {
        check_cover(shape, boxes.iter()).err().map(|error| error.code())
    }

    /// Cuts the whole shape again and again: an exact cover.
    fn partition(shape: &[u64], cuts: &[(usize, usize, u64)]) -> Vec<Region> {
        let mut boxes = vec![Region::whole(shape)];
        for &(which, axis, place) in cuts {
            let which = which % boxes.len();
            let axis = axis % shape.len();
            let extent = boxes[which].extent[axis];
            if extent < 2 {
                continue;
            }
            let low = 1 + place % (extent - 1);
            let mut upper = boxes[which].clone();
            upper.at[axis] += low;
            upper.extent[axis] -= low;
            boxes[which].extent[axis] = low;
            boxes.push(upper);
        }
        boxes
    }

    type Case = (Vec<u64>, Vec<(usize, usize, u64)>, Vec<(usize, usize, u64)>);

    fn case() -> impl Strategy<Value = Case> {
        let cut = || (0usize..100, 0usize..4, 0u64..100);
        (
            prop::collection::vec(1u64..6, 1..5),
            prop::collection::vec(cut(), 0..24),
            prop::collection::vec(cut(), 0..3),
        )
    }

    proptest! {
        #[test]
        fn the_verdict_is_that_of_counting((shape, cuts, faults) in case()) {
            let mut boxes = partition(&shape, &cuts);
            boxes.reverse();
            for (which, kind, amount) in faults {
                if boxes.is_empty() {
                    break;
                }
                let (i, axis) = (which % boxes.len(), amount as usize % shape.len());
                match kind {
                    // Drop, repeat, move; or put one that is there in the place of another.
                    0 => drop(boxes.remove(i)),
                    1 => boxes.push(boxes[i].clone()),
                    2 => {
                        let room = shape[axis] - boxes[i].extent[axis];
                        boxes[i].at[axis] = amount % (room + 1);
                    }
                    _ => boxes[i] = boxes[amount as usize % boxes.len()].clone(),
                }
            }
            prop_assert_eq!(found(&shape, &boxes), naive(&shape, &boxes));
        }
    }

    #[test]
    fn hostile_overlaps_of_the_right_volume_are_seen() {
        // One strip twice and its neighbour never, on one axis and on two.
        let strips = |starts: &[u64]| -> Vec<Region> {
            starts.iter().map(|&at| region(&[at, 0], &[1, 6])).collect()
        };
        assert_eq!(found(&[4, 6], &strips(&[0, 1, 2, 3])), None);
        assert_eq!(found(&[4, 6], &strips(&[3, 1, 0, 2])), None);
        assert_eq!(found(&[4, 6], &strips(&[0, 1, 1, 3])), Some(Code::CoverOverlap));
        assert_eq!(found(&[4, 6], &strips(&[0, 1, 2])), Some(Code::CoverGap));
        let crossed = [region(&[0, 0], &[2, 4]), region(&[0, 0], &[4, 2])];
        assert_eq!(found(&[4, 4], &crossed), Some(Code::CoverOverlap));
        // A pinwheel has no straight cut through it and is exact.
        let pinwheel = [
            region(&[0, 0], &[1, 2]),
            region(&[0, 2], &[2, 1]),
            region(&[1, 0], &[2, 1]),
            region(&[1, 1], &[1, 1]),
            region(&[2, 1], &[1, 2]),
        ];
        assert_eq!(found(&[3, 3], &pinwheel), None);
    }

    #[test]
    fn no_axes_and_no_elements() {
        let one = Region::default();
        assert_eq!(found(&[], &[]), Some(Code::CoverGap));
        assert_eq!(found(&[], std::slice::from_ref(&one)), None);
        assert_eq!(found(&[], &[one.clone(), one]), Some(Code::CoverOverlap));
        assert_eq!(found(&[3, 0], &[]), None);
        assert_eq!(found(&[3, 0], &[region(&[0, 0], &[3, 0])]), Some(Code::BadChunk));
    }

    #[test]
    fn boxes_that_are_none_of_the_shape_are_refused() {
        for bad in [region(&[0], &[4, 4]), region(&[1, 0], &[4, 4]), region(&[0, 0], &[0, 4])] {
            assert_eq!(found(&[4, 4], &[bad]), Some(Code::BadChunk));
        }
        assert_eq!(found(&[u64::MAX, 2], &[]), Some(Code::Limit));
    }

    #[test]
    fn nine_split_axes_are_too_many() {
        let halves = |axes: usize| -> Vec<Region> {
            (0..1_u32 << axes)
                .map(|corner| {
                    let at: Vec<u64> = (0..axes).map(|a| u64::from(corner >> a & 1)).collect();
                    region(&at, &vec![1; axes])
                })
                .collect()
        };
        assert_eq!(found(&[2; 8], &halves(8)), None);
        assert_eq!(found(&[2; 9], &halves(9)), Some(Code::Limit));
        // Axes that nobody splits do not count.
        assert_eq!(found(&[2; 12], &[Region::whole(&[2; 12])]), None);
    }
}
