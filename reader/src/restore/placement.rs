//! Which regions of a tensor a place holds.
//!
//! It knows the ways in which frameworks share tensors out, as functions of a shape and a rank. It
//! must not know how the tensor is stored.

use waystation_format::{Code, Error, Region, Result, dims, flat};
use waystation_state::cursor::Rank;

use super::Place;

/// How a tensor is shared out among the places of a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Every place holds all of it.
    Whole,
    /// Cut along a dimension of the tensor into pieces of ceil(size / world) indices, of which the
    /// last ones may be shorter or empty, as `torch.chunk` and DTensor do. Cuts apply in order: a
    /// dimension named again is cut within the piece.
    Split(Vec<Cut>),
    /// A contiguous range of the row-major order, in pieces of ceil(elements / world), as ZeRO does
    /// for one tensor at a time.
    Flat {
        /// The axes over which, outermost first.
        over: Vec<String>,
    },
}

/// A cut along one dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The dimension of the tensor, from 0.
    pub dim: usize,
    /// The axes of the topology over which, outermost first.
    pub over: Vec<String>,
}

impl Placement {
    /// The regions that `place` holds of a tensor of `shape`, in row-major order; none when it holds
    /// nothing of it.
    ///
    /// # Errors
    /// `bad-argument` for a dimension or axis that is not there; `limit` when the elements do not
    /// fit 64 bits.
    pub fn regions(&self, shape: &[u64], place: &Place) -> Result<Vec<Region>> {
        let regions = match self {
            Self::Whole => vec![Region::whole(shape)],
            Self::Split(cuts) => {
                let mut region = Region::whole(shape);
                for cut in cuts {
                    let Rank { rank, world } = place.rank(cut.over.iter().map(String::as_str))?;
                    narrow(&mut region, cut.dim, rank, world)?;
                }
                vec![region]
            }
            Self::Flat { over } => {
                let Rank { rank, world } = place.rank(over.iter().map(String::as_str))?;
                let (begin, end) = piece(dims::elements(shape)?, rank, world);
                flat::boxes_of_range(shape, begin, end)?
            }
        };
        Ok(regions.into_iter().filter(|region| !region.extent.contains(&0)).collect())
    }
}

fn narrow(region: &mut Region, dim: usize, rank: u64, world: u64) -> Result<()> {
    let axes = region.at.len();
    let (Some(at), Some(extent)) = (region.at.get_mut(dim), region.extent.get_mut(dim)) else {
        let message = format!("expected a dimension below {axes}, found {dim}");
        return Err(Error::new(Code::BadArgument, message));
    };
    let (begin, end) = piece(*extent, rank, world);
    // Both lie within the extent, which lies within the shape.
    *at = at.saturating_add(begin);
    *extent = end.saturating_sub(begin);
    Ok(())
}

/// Piece `rank` of `size` things in `world` pieces of equal length, the last ones shorter.
fn piece(size: u64, rank: u64, world: u64) -> (u64, u64) {
    let length = size.div_ceil(world.max(1));
    let begin = length.saturating_mul(rank).min(size);
    (begin, begin.saturating_add(length).min(size))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use waystation_format::{Topology, cover};

    use super::*;

    fn places(dp: u64, tp: u64) -> Vec<Place> {
        let topology = Topology(vec![("dp".to_owned(), dp), ("tp".to_owned(), tp)]);
        let all = (0..dp).flat_map(|d| (0..tp).map(move |t| (d, t)));
        all.map(|(d, t)| {
            let coordinate = vec![("dp".to_owned(), d), ("tp".to_owned(), t)];
            Place::new(topology.clone(), coordinate).unwrap()
        })
        .collect()
    }

    fn over(axes: &[&str]) -> Vec<String> {
        axes.iter().map(|axis| (*axis).to_owned()).collect()
    }

    #[test]
    fn pieces_are_those_of_torch_chunk() {
        let sizes = |size, world| -> Vec<u64> {
            (0..world).map(|rank| piece(size, rank, world)).map(|(a, b)| b - a).collect()
        };
        assert_eq!(sizes(10, 4), [3, 3, 3, 1]);
        assert_eq!(sizes(3, 4), [1, 1, 1, 0]);
        assert_eq!(sizes(0, 2), [0, 0]);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let place = &places(1, 1)[0];
        let cut = |dim, axis: &str| Placement::Split(vec![Cut { dim, over: over(&[axis]) }]);
        assert_eq!(cut(2, "dp").regions(&[4, 4], place).unwrap_err().code(), Code::BadArgument);
        assert_eq!(cut(1, "pp").regions(&[4, 4], place).unwrap_err().code(), Code::BadArgument);
        assert_eq!(Placement::Whole.regions(&[], place).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn all_places_together_hold_each_element_once(
            shape in prop::collection::vec(1_u64..7, 1..4),
            (dp, tp) in (1_u64..5, 1_u64..4),
            axis in any::<prop::sample::Index>(),
            way in 0..3,
        ) {
            let dim = axis.index(shape.len());
            let placement = match way {
                0 => Placement::Flat { over: over(&["tp", "dp"]) },
                1 => Placement::Split(vec![
                    Cut { dim: 0, over: over(&["tp"]) },
                    Cut { dim, over: over(&["dp"]) },
                ]),
                _ => Placement::Split(vec![Cut { dim, over: over(&["dp", "tp"]) }]),
            };
            let held: Vec<Region> = places(dp, tp)
                .iter()
                .flat_map(|place| placement.regions(&shape, place).unwrap())
                .collect();
            prop_assert!(cover::check_cover(&shape, held.iter()).is_ok());
        }
    }
}
