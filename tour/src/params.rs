//! The model's parameters as named tensors, and all of them as one flat list of numbers.
//!
//! It knows names, shapes and where each stands in the flat list; which rank owns which range of
//! it; and as which boxes a range of a tensor is saved. It must not know what the numbers are for.

use std::ops::Range;

use waystation_format::{Identity, Region, Result, Role, flat};

use crate::records;

/// One tensor of the model.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) shape: Vec<u64>,
    /// Where its numbers stand in the flat list.
    pub(crate) flat: Range<usize>,
    /// Whether weight decay pulls it towards zero: matrices yes, biases no.
    pub(crate) decays: bool,
}

/// All tensors, in the order in which they stand in the flat list.
#[derive(Clone, Debug)]
pub(crate) struct Params(pub(crate) Vec<Param>);

/// A box of a tensor, and where its numbers stand in the flat list: it is one run of them.
#[derive(Clone, Debug)]
pub(crate) struct Piece<'p> {
    pub(crate) param: &'p Param,
    pub(crate) region: Region,
    pub(crate) flat: Range<usize>,
}

impl Params {
    pub(crate) fn new(tensors: Vec<(&'static str, Vec<usize>, bool)>) -> Self {
        let mut end = 0_usize;
        let mut all = Vec::new();
        for (name, shape, decays) in tensors {
            let begin = end;
            end = begin.saturating_add(shape.iter().product());
            let shape = shape.iter().map(|&size| size as u64).collect();
            all.push(Param { name, shape, flat: begin..end, decays });
        }
        Self(all)
    }

    /// Numbers in the flat list.
    pub(crate) fn len(&self) -> usize {
        self.0.last().map_or(0, |param| param.flat.end)
    }

    /// The range of the flat list whose optimizer state `rank` of `ranks` keeps. It cuts through
    /// tensors wherever it falls, so every rank has as much as the next.
    pub(crate) fn owned(&self, rank: usize, ranks: usize) -> Range<usize> {
        share(self.len(), rank, ranks)
    }

    /// A range of the flat list as boxes of tensors: what a checkpoint stores.
    ///
    /// # Errors
    /// None for a range within the list.
    pub(crate) fn pieces(&self, range: &Range<usize>) -> Result<Vec<Piece<'_>>> {
        let mut pieces = Vec::new();
        for param in &self.0 {
            let begin = range.start.max(param.flat.start);
            let end = range.end.min(param.flat.end);
            if begin >= end {
                continue;
            }
            let within = |at: usize| at.saturating_sub(param.flat.start) as u64;
            let mut at = begin;
            for region in flat::boxes_of_range(&param.shape, within(begin), within(end))? {
                let elements = usize::try_from(region.elements()?).unwrap_or(usize::MAX);
                let next = at.saturating_add(elements);
                pieces.push(Piece { param, region, flat: at..next });
                at = next;
            }
        }
        Ok(pieces)
    }
}

impl Param {
    /// Which tensor of a checkpoint it is.
    pub(crate) fn identity(&self) -> Identity {
        Identity::param(self.name)
    }

    /// Which tensor of a checkpoint a moment of the optimizer `main` is.
    pub(crate) fn moment(&self, slot: &str) -> Identity {
        Identity {
            role: Role::Optimizer,
            slot: slot.to_owned(),
            owner: records::MAIN.to_owned(),
            ..self.identity()
        }
    }
}

/// Share `rank` of `count` things among `ranks`: nearly equal, in order, nothing left over.
pub(crate) fn share(count: usize, rank: usize, ranks: usize) -> Range<usize> {
    let bound = |rank: usize| {
        let below = count.saturating_mul(rank.min(ranks));
        below.checked_div(ranks).unwrap_or(0)
    };
    bound(rank)..bound(rank.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Params {
        Params::new(vec![("a", vec![3, 5], true), ("b", vec![7], false), ("c", vec![2, 4], true)])
    }

    #[test]
    fn shares_are_everything_once() {
        for ranks in 1..9 {
            let mut next = 0;
            for rank in 0..ranks {
                let share = share(48, rank, ranks);
                assert_eq!(share.start, next);
                assert!(share.len().abs_diff(48 / ranks) <= 1);
                next = share.end;
            }
            assert_eq!(next, 48);
        }
    }

    #[test]
    fn pieces_are_the_range_in_order() {
        let params = some();
        assert_eq!(params.len(), 30);
        for ranks in 1..7 {
            for rank in 0..ranks {
                let owned = params.owned(rank, ranks);
                let mut next = owned.start;
                for piece in params.pieces(&owned).unwrap() {
                    assert_eq!(piece.flat.start, next);
                    assert!(piece.region.is_within(&piece.param.shape));
                    next = piece.flat.end;
                }
                assert_eq!(next, owned.end);
            }
        }
    }
}
