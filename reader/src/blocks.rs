//! Which blocks of a chunk hold any element of a box.
//!
//! It knows the row-major order and blocks of bytes. It must not know files, CRCs or tensors.

use std::ops::Range;

use waystation_format::Region;

/// The bytes `0..len` of a packed box of `extent`, cut into blocks of `block` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks<'a> {
    pub(crate) extent: &'a [u64],
    /// Bits of an element.
    pub(crate) bits: u64,
    pub(crate) len: u64,
    pub(crate) block: u64,
}

impl Blocks<'_> {
    /// Adds the byte ranges of the blocks that hold an element of `part`, a box within `extent`:
    /// whole blocks, neighbours joined, ascending.
    ///
    /// Steps are bounded by the number of blocks, not of runs: along an axis whose stride is at
    /// most a block, every block between the first start and the last holds a start.
    pub(crate) fn touched(&self, part: &Region, out: &mut Vec<Range<u64>>) {
        // Of each axis: its stride, and the elements from the first to the last one of `part`
        // within one index of it. All are below the elements of `extent`, which are counted.
        let mut axes = Vec::with_capacity(self.extent.len());
        let (mut stride, mut span) = (1_u64, 1_u64);
        for ((&at, &extent), &size) in part.at.iter().zip(&part.extent).zip(self.extent).rev() {
            if extent == 0 {
                return;
            }
            let reach = extent.saturating_sub(1).saturating_mul(stride);
            axes.push(Axis { at, extent, stride, inner: span });
            span = span.saturating_add(reach);
            stride = stride.saturating_mul(size);
        }
        axes.reverse();
        self.walk(&axes, 0, span, out);
    }

    /// `first` is the element at the beginning of the axes outside; `span` reaches from the first
    /// to the last element of the axes inside, once their `at` is added.
    fn walk(&self, axes: &[Axis], first: u64, span: u64, out: &mut Vec<Range<u64>>) {
        let dense = axes.iter().all(|axis| {
            axis.extent == 1
                || axis.stride.saturating_mul(self.bits) <= self.block.saturating_mul(8)
        });
        match axes.split_first() {
            Some((axis, inner)) if !dense => {
                for index in axis.at..axis.at.saturating_add(axis.extent) {
                    let at = first.saturating_add(index.saturating_mul(axis.stride));
                    self.walk(inner, at, axis.inner, out);
                }
            }
            _ => {
                let begin = axes.iter().fold(first, |first, axis| {
                    first.saturating_add(axis.at.saturating_mul(axis.stride))
                });
                self.push(begin, begin.saturating_add(span), out);
            }
        }
    }

    fn push(&self, begin: u64, end: u64, out: &mut Vec<Range<u64>>) {
        let begin = begin.saturating_mul(self.bits) / 8;
        let end = end.saturating_mul(self.bits).div_ceil(8);
        let begin = begin.checked_div(self.block).unwrap_or(0).saturating_mul(self.block);
        let end = end.checked_next_multiple_of(self.block).unwrap_or(u64::MAX).min(self.len);
        match out.last_mut() {
            Some(last) if begin <= last.end && last.start <= begin => last.end = last.end.max(end),
            _ => out.push(begin..end),
        }
    }
}

struct Axis {
    at: u64,
    extent: u64,
    stride: u64,
    /// Elements from the first to the last one within one index of this axis.
    inner: u64,
}

/// Sorts ranges and joins those that meet.
pub(crate) fn join(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let meet = next.start <= last.end;
        if meet {
            last.end = last.end.max(next.end);
        }
        meet
    });
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "numbers of the tests' own")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn exactly_the_blocks_that_hold_an_element(
            axes in prop::collection::vec((1u64..6, any::<u64>(), any::<u64>()), 0..5),
            bits in prop::sample::select(vec![1u64, 2, 4, 6, 8, 16, 32, 64, 128]),
            block in 1u64..40,
        ) {
            let extent: Vec<u64> = axes.iter().map(|a| a.0).collect();
            let at: Vec<u64> = axes.iter().map(|a| a.1 % a.0).collect();
            let part = Region {
                extent: axes.iter().zip(&at).map(|(a, at)| 1 + a.2 % (a.0 - at)).collect(),
                at: at.into(),
            };
            let total: u64 = extent.iter().product();
            let len = (total * bits).div_ceil(8);
            let mut wanted = vec![false; usize::try_from(len.div_ceil(block)).unwrap()];
            for (first, count) in part.runs(&extent).unwrap() {
                for bit in first * bits..(first + count) * bits {
                    wanted[usize::try_from(bit / 8 / block).unwrap()] = true;
                }
            }
            let mut found = Vec::new();
            Blocks { extent: &extent, bits, len, block }.touched(&part, &mut found);
            let mut expected: Vec<Range<u64>> = Vec::new();
            for (i, _) in wanted.iter().enumerate().filter(|(_, wanted)| **wanted) {
                let begin = u64::try_from(i).unwrap() * block;
                expected.push(begin..(begin + block).min(len));
            }
            join(&mut expected);
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn steps_follow_blocks_and_not_runs() {
        // A column of a tall matrix: 2^40 runs in one block-aligned span.
        let extent = [1 << 40, 2];
        let part = Region { at: (&[0u64, 0][..]).into(), extent: (&[1u64 << 40, 1][..]).into() };
        let mut found = Vec::new();
        let blocks = Blocks { extent: &extent, bits: 8, len: 1 << 41, block: 4096 };
        blocks.touched(&part, &mut found);
        assert_eq!(found.as_slice(), std::slice::from_ref(&(0..1 << 41)));
    }
}
