//! Boxes of a global shape: regions that are asked for, chunks that are stored.
//!
//! It knows starts, extents and the row-major order. It must not know dtypes, bytes or files.

use std::fmt;

use crate::dims::{Dims, elements};
use crate::rule;
use crate::{Code, Error, Result};

/// A box: `extent[i]` elements from `at[i]` on along axis `i`. Both have the rank of the shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Region {
    /// The first element along each axis.
    pub at: Dims,
    /// The number of elements along each axis.
    pub extent: Dims,
}

impl Region {
    /// The box whose first corner is `at`, with `extent` elements along each axis; both have one number an axis.
    #[must_use]
    pub fn new(at: &[u64], extent: &[u64]) -> Self {
        Self { at: Dims::from_slice(at), extent: Dims::from_slice(extent) }
    }

    /// The box that is all of `shape`.
    #[must_use]
    pub fn whole(shape: &[u64]) -> Self {
        Self { at: shape.iter().map(|_| 0).collect(), extent: Dims::from_slice(shape) }
    }

    /// The number of elements in it.
    ///
    /// # Errors
    /// [`Code::Limit`] when it does not fit 64 bits.
    pub fn elements(&self) -> Result<u64> {
        elements(&self.extent)
    }

    /// Checks that it has the rank of `shape` and lies within it. An extent may be 0.
    ///
    /// # Errors
    /// [`Code::BadRegion`] when not.
    pub fn check_within(&self, shape: &[u64]) -> Result<()> {
        if self.is_within(shape) {
            return Ok(());
        }
        let message = format!("expected a region within the shape {shape:?}, found {self}");
        Err(Error::rule(Code::BadRegion, rule::READ_REGION, message))
    }

    /// True when it has the rank of `shape` and lies within it.
    #[must_use]
    pub fn is_within(&self, shape: &[u64]) -> bool {
        self.at.len() == shape.len()
            && self.extent.len() == shape.len()
            && self
                .axes()
                .zip(shape)
                .all(|((at, n), &size)| at.checked_add(n).is_some_and(|end| end <= size))
    }

    /// What two boxes of one shape have in common, if that is at least one element.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.at.len() != other.at.len() {
            return None;
        }
        let mut common = Self::default();
        for ((a, n), (b, m)) in self.axes().zip(other.axes()) {
            let begin = a.max(b);
            let end = a.checked_add(n)?.min(b.checked_add(m)?);
            let extent = end.checked_sub(begin).filter(|&n| n > 0)?;
            common.at.push(begin);
            common.extent.push(extent);
        }
        Some(common)
    }

    /// True when every element of `other`, a box of the same shape, is in this one.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.at.len() == other.at.len()
            && (other.extent.contains(&0)
                || self.axes().zip(other.axes()).all(|((a, n), (b, m))| {
                    a <= b
                        && matches!((a.checked_add(n), b.checked_add(m)),
                            (Some(end), Some(other_end)) if other_end <= end)
                }))
    }

    /// Its elements within the packed box of `shape`, as the fewest contiguous runs in ascending
    /// order, each `(first, count)` in elements of that box.
    ///
    /// # Errors
    /// As [`check_within`](Self::check_within); [`Code::Limit`] when the shape's elements do not
    /// fit 64 bits.
    pub fn runs(&self, shape: &[u64]) -> Result<Runs> {
        Runs::new(self, shape)
    }

    /// `(at, extent)` of each axis.
    fn axes(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + ExactSizeIterator + '_ {
        self.at.iter().copied().zip(self.extent.iter().copied())
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}+{:?}", self.at.as_slice(), self.extent.as_slice())
    }
}

/// Contiguous runs of a region, made by [`Region::runs`].
#[derive(Clone, Debug)]
pub struct Runs {
    /// First element of the next run.
    next: u64,
    /// Elements of each run.
    count: u64,
    /// Runs still to come.
    left: u64,
    /// The axes to step along, outermost first.
    axes: SmallAxes,
}

type SmallAxes = smallvec::SmallVec<[Axis; 4]>;

#[derive(Clone, Debug)]
struct Axis {
    /// Elements from one index to the next.
    stride: u64,
    extent: u64,
    /// The present index, counted from the region's start.
    index: u64,
}

impl Runs {
    fn new(region: &Region, shape: &[u64]) -> Result<Self> {
        region.check_within(shape)?;
        elements(shape)?;
        let mut runs = Self { next: 0, count: 1, left: 1, axes: SmallAxes::new() };
        if region.extent.contains(&0) {
            runs.left = 0;
            return Ok(runs);
        }
        // From here on no extent is 0, so no axis is 0 and every product below divides or is at
        // most the number of the shape's elements, which fits.
        let mut stride: u64 = 1;
        for ((at, extent), &size) in region.axes().zip(shape).rev() {
            runs.next = runs.next.saturating_add(at.saturating_mul(stride));
            if runs.axes.is_empty() && runs.count == stride {
                runs.count = runs.count.saturating_mul(extent);
            } else if extent > 1 {
                runs.axes.insert(0, Axis { stride, extent, index: 0 });
                runs.left = runs.left.saturating_mul(extent);
            }
            stride = stride.saturating_mul(size);
        }
        Ok(runs)
    }

    /// The elements of every run.
    #[must_use]
    pub fn run_elements(&self) -> u64 {
        self.count
    }
}

impl Iterator for Runs {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        self.left = self.left.checked_sub(1)?;
        let run = (self.next, self.count);
        // An odometer whose every reading is an element of the shape, so nothing wraps.
        for axis in self.axes.iter_mut().rev() {
            axis.index = axis.index.saturating_add(1);
            if axis.index < axis.extent {
                self.next = self.next.saturating_add(axis.stride);
                break;
            }
            axis.index = 0;
            let back = axis.stride.saturating_mul(axis.extent.saturating_sub(1));
            self.next = self.next.saturating_sub(back);
        }
        Some(run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.left) {
            Ok(left) => (left, Some(left)),
            Err(_) => (usize::MAX, None),
        }
    }
}

impl Runs {
    /// Walks these runs and those of the same box elsewhere side by side: (first here, first there, elements) of each
    /// piece that is contiguous on both sides.
    #[must_use]
    pub fn beside(self, other: Runs) -> Beside {
        Beside { here: (self, (0, 0)), there: (other, (0, 0)) }
    }
}

/// Pieces that are contiguous on both sides, in order; made by [`Runs::beside`].
#[derive(Clone, Debug)]
pub struct Beside {
    /// Runs to come, and what is left of the one begun.
    here: (Runs, (u64, u64)),
    there: (Runs, (u64, u64)),
}

impl Iterator for Beside {
    type Item = (u64, u64, u64);

    fn next(&mut self) -> Option<(u64, u64, u64)> {
        for (runs, begun) in [&mut self.here, &mut self.there] {
            if begun.1 == 0 {
                *begun = runs.next()?;
            }
        }
        let ((_, here), (_, there)) = (&mut self.here, &mut self.there);
        let count = here.1.min(there.1);
        let piece = (here.0, there.0, count);
        for begun in [here, there] {
            *begun = (begun.0.saturating_add(count), begun.1.saturating_sub(count));
        }
        Some(piece)
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "numbers of the tests' own")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn region(at: &[u64], extent: &[u64]) -> Region {
        Region { at: at.into(), extent: extent.into() }
    }

    /// A shape of up to four axes and a region within it.
    fn shape_and_region() -> impl Strategy<Value = (Vec<u64>, Region)> {
        prop::collection::vec((1u64..5, any::<u64>(), any::<u64>()), 0..5).prop_map(|axes| {
            let shape: Vec<u64> = axes.iter().map(|a| a.0).collect();
            let at: Dims = axes.iter().map(|a| a.1 % a.0).collect();
            let extent = axes.iter().zip(&at).map(|(a, at)| 1 + a.2 % (a.0 - at)).collect();
            (shape, Region { at, extent })
        })
    }

    /// Flat indices in `shape` of the elements of `region`, one by one.
    fn naive(shape: &[u64], region: &Region) -> Vec<u64> {
        let total: u64 = shape.iter().product();
        (0..total)
            .filter(|&flat| {
                let mut rest = flat;
                (0..shape.len()).rev().all(|axis| {
                    let index = rest % shape[axis];
                    rest /= shape[axis];
                    index >= region.at[axis] && index - region.at[axis] < region.extent[axis]
                })
            })
            .collect()
    }

    proptest! {
        #[test]
        fn runs_are_the_elements_and_maximal((shape, region) in shape_and_region()) {
            let runs: Vec<(u64, u64)> = region.runs(&shape).unwrap().collect();
            let flat: Vec<u64> = runs.iter().flat_map(|&(at, n)| at..at + n).collect();
            prop_assert_eq!(flat, naive(&shape, &region));
            for pair in runs.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 < pair[1].0, "{:?}", pair);
            }
        }

        #[test]
        fn intersection_is_the_common_elements(
            (shape, a) in shape_and_region(),
            seed in prop::collection::vec(any::<u64>(), 8),
        ) {
            let at: Dims = shape.iter().zip(&seed).map(|(n, s)| s % n).collect();
            let extent =
                shape.iter().zip(&at).zip(&seed[4..]).map(|((n, at), s)| 1 + s % (n - at)).collect();
            let b = Region { at, extent };
            let in_b = naive(&shape, &b);
            let both: Vec<u64> =
                naive(&shape, &a).into_iter().filter(|i| in_b.contains(i)).collect();
            let common = a.intersect(&b);
            let found = common.as_ref().map(|c| naive(&shape, c)).unwrap_or_default();
            prop_assert_eq!(&found, &both);
            prop_assert_eq!(a.contains(&b), both.len() == in_b.len());
        }
    }

    #[test]
    fn no_axes_are_one_element() {
        let whole = Region::whole(&[]);
        assert_eq!(whole.elements().unwrap(), 1);
        assert_eq!(whole.runs(&[]).unwrap().collect::<Vec<_>>(), [(0, 1)]);
        assert_eq!(whole.intersect(&whole), Some(whole.clone()));
    }

    #[test]
    fn an_empty_region_has_no_runs() {
        let empty = region(&[1, 4], &[2, 0]);
        assert_eq!(empty.runs(&[3, 4]).unwrap().count(), 0);
        assert_eq!(empty.intersect(&Region::whole(&[3, 4])), None);
    }

    #[test]
    fn what_leaves_the_shape_is_refused() {
        for (at, extent, shape) in [
            (&[0u64][..], &[5u64][..], &[4u64][..]),
            (&[u64::MAX], &[2], &[4]),
            (&[0, 0], &[1, 1], &[4]),
            (&[0], &[1, 1], &[4]),
            (&[5], &[0], &[4]),
        ] {
            let error = region(at, extent).check_within(shape).unwrap_err();
            assert_eq!(error.code(), Code::BadRegion);
        }
    }

    #[test]
    fn runs_of_a_shape_too_large_to_count_are_refused() {
        let shape = [1 << 40, 1 << 40];
        let error = region(&[0, 0], &[1, 1]).runs(&shape).unwrap_err();
        assert_eq!(error.code(), Code::Limit);
    }
}
