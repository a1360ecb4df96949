//! Flat companions of block-quantised tensors: which stored elements a region needs.
//!
//! A flat companion has one element for each run of `block` elements of a chunk of the tensor that
//! it accompanies. This module knows shapes, chunks and blocks. It must not know what a scale or
//! a codebook means, nor their dtype.

use std::ops::Range;

use crate::region::Region;
use crate::{Code, Error, Result, arith, rule};

/// Elements that one chunk of a flat companion gives to a region of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Position of the chunk among those given.
    pub chunk: usize,
    /// First of them in the chunk.
    pub from: u64,
    /// First of them in the result.
    pub to: u64,
    /// How many, at least 1.
    pub elements: u64,
}

/// What a region of a flat companion is put together from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Elements of the result: one for each block of the region.
    pub elements: u64,
    /// In the order of the chunks.
    pub shares: Vec<Share>,
}

/// Elements that a chunk of a flat companion stores: one for each block, the last perhaps not full.
///
/// # Errors
/// [`Code::BadIdentity`] when `block` is 0; [`Code::Limit`] when the box's elements do not fit
/// 64 bits.
pub fn stored_elements(block: u64, region: &Region) -> Result<u64> {
    check_block(block)?;
    arith::ceil_div(region.elements()?, block, "blocks of a chunk")
}

/// The elements of `chunks`, boxes of `shape` in any order, that make up `region`.
///
/// # Errors
/// [`Code::BadRegion`] when `region` is not within `shape`; [`Code::BlockBoundary`] when it or a
/// chunk that it meets is not a run of the flattened shape that begins and ends on blocks;
/// [`Code::BadIdentity`] when `block` is 0.
pub fn shares<'a>(
    shape: &[u64],
    block: u64,
    region: &Region,
    chunks: impl IntoIterator<Item = &'a Region>,
) -> Result<Shares> {
    check_block(block)?;
    region.check_within(shape)?;
    if region.extent.contains(&0) {
        return Ok(Shares { elements: 0, shares: Vec::new() });
    }
    let total = crate::dims::elements(shape)?;
    let wanted = blocks_run(shape, total, block, region)?;
    let mut shares = Vec::new();
    for (chunk, stored) in chunks.into_iter().enumerate() {
        if region.intersect(stored).is_none() {
            continue;
        }
        let held = blocks_run(shape, total, block, stored)?;
        // In blocks; two boxes that are runs meet where their runs do.
        let begin = wanted.start.max(held.start);
        let end = wanted.end.min(held.end);
        shares.push(Share {
            chunk,
            from: arith::sub(begin, held.start, "block in a chunk")?,
            to: arith::sub(begin, wanted.start, "block in a region")?,
            elements: arith::sub(end, begin, "blocks of a share")?,
        });
    }
    let elements = arith::sub(wanted.end, wanted.start, "blocks of a region")?;
    Ok(Shares { elements, shares })
}

/// The blocks of the flattened shape, which has `total` elements, that `region` consists of.
fn blocks_run(shape: &[u64], total: u64, block: u64, region: &Region) -> Result<Range<u64>> {
    let mut runs = region.runs(shape)?;
    if let (Some((begin, count)), None) = (runs.next(), runs.next()) {
        let end = arith::add(begin, count, "end of a run")?;
        if begin.is_multiple_of(block) && (end.is_multiple_of(block) || end == total) {
            let first = arith::ceil_div(begin, block, "first block")?;
            return Ok(first..arith::ceil_div(end, block, "end of the last block")?);
        }
    }
    let message = format!(
        "expected a run of {shape:?} that begins and ends on blocks of {block}, found {region}"
    );
    Err(Error::rule(Code::BlockBoundary, rule::COMPANION_REGION, message))
}

fn check_block(block: u64) -> Result<()> {
    if block > 0 {
        return Ok(());
    }
    let message = "expected a block of at least 1 element, found 0";
    Err(Error::rule(Code::BadIdentity, rule::COMPANION_ROLE, message))
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
    use crate::flat::boxes_of_range;

    proptest! {
        #[test]
        fn shares_are_the_blocks_of_the_region(
            rows in 1u64..9,
            columns in 1u64..9,
            block in 1u64..9,
            cuts in prop::collection::vec(0u64..9, 0..4),
            begin in 0u64..9,
            end in 0u64..9,
        ) {
            let shape = [rows, columns];
            let total = rows * columns;
            // Chunks of whole rows; the tensor's blocks are numbered by their place in it.
            let mut cuts: Vec<u64> = cuts.into_iter().map(|c| c.min(rows)).collect();
            cuts.extend([0, rows]);
            cuts.sort_unstable();
            cuts.dedup();
            let strip = |a: u64, b: u64| Region {
                at: [a, 0].as_slice().into(),
                extent: [b - a, columns].as_slice().into(),
            };
            let chunks: Vec<Region> = cuts.windows(2).map(|w| strip(w[0], w[1])).collect();
            let (begin, end) = (begin.min(end).min(rows), begin.max(end).min(rows));
            let region = strip(begin, end);

            let starts_on_block = |row: u64| (row * columns).is_multiple_of(block);
            let on_block = |row: u64| starts_on_block(row) || row == rows;
            let exact = begin == end
                || starts_on_block(begin) && on_block(end)
                    && cuts.windows(2)
                        .filter(|w| w[0] < end && w[1] > begin)
                        .all(|w| starts_on_block(w[0]) && on_block(w[1]));
            match shares(&shape, block, &region, &chunks) {
                Err(error) => {
                    prop_assert!(!exact);
                    prop_assert_eq!(error.code(), Code::BlockBoundary);
                }
                Ok(found) => {
                    prop_assert!(exact);
                    let mut result = vec![None; found.elements as usize];
                    for share in &found.shares {
                        let chunk = &chunks[share.chunk];
                        let first = chunk.at[0] * columns / block;
                        let stored = stored_elements(block, chunk).unwrap();
                        prop_assert!(share.from + share.elements <= stored);
                        for i in 0..share.elements {
                            let place = &mut result[(share.to + i) as usize];
                            prop_assert_eq!(place.replace(first + share.from + i), None);
                        }
                    }
                    let blocks = |row: u64| (row * columns).min(total).div_ceil(block);
                    let expected: Vec<Option<u64>> = if begin == end {
                        Vec::new()
                    } else {
                        (begin * columns / block..blocks(end)).map(Some).collect()
                    };
                    prop_assert_eq!(result, expected);
                }
            }
        }
    }

    #[test]
    fn a_chunk_that_is_no_run_is_refused_only_when_met() {
        let left = Region { at: [0, 0].as_slice().into(), extent: [2, 2].as_slice().into() };
        let right = Region { at: [0, 2].as_slice().into(), extent: [2, 2].as_slice().into() };
        let whole = Region::whole(&[2, 4]);
        let error = shares(&[2, 4], 2, &whole, [&left, &right]).unwrap_err();
        assert_eq!(error.rule_id(), Some(rule::COMPANION_REGION));
        let row = &boxes_of_range(&[2, 4], 0, 2).unwrap()[0];
        assert_eq!(shares(&[2, 4], 2, row, [&right]).unwrap().shares, []);
        assert!(shares(&[2, 4], 2, row, [&left, &right]).is_err());
    }

    #[test]
    fn blocks_that_are_not_full_at_the_end_count() {
        let whole = Region::whole(&[5]);
        let found = shares(&[5], 2, &whole, [&whole]).unwrap();
        assert_eq!(found.shares, [Share { chunk: 0, from: 0, to: 0, elements: 3 }]);
        assert_eq!(stored_elements(0, &whole).unwrap_err().code(), Code::BadIdentity);
    }
}
