//! Shares tensors out among writers: which boxes each one holds, as a pure function of identities,
//! shapes and lengths, so that all writers agree without talking.
//!
//! It knows sizes and blocks. It must not know files, nor where the tensors are now.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use waystation_format::{Code, Dims, Error, Region, Result, Tensor, arith, crc, limits, rule};

/// Tensors above this part of a writer's fair share are cut.
const SHARE_PARTS: u64 = 8;

/// No tensor is cut into pieces shorter than this, in bytes.
const LEAST_PIECE_BYTES: u64 = 1 << 20;

/// A box of a tensor that one writer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Position of the tensor among those given.
    pub tensor: usize,
    /// The box.
    pub region: Region,
    /// Its bytes.
    pub bytes: u64,
}

/// The writer to which something whole belongs: the same on every rank, spread over the writers.
/// For tensors that every rank holds alike and one has to store. Writers are counted from 0; 0 of
/// none is 0.
#[must_use]
pub fn owner(identity_key: &str, writers: u32) -> u32 {
    crc::crc32c(identity_key.as_bytes()).checked_rem(writers).unwrap_or(0)
}

/// Shares `tensors` out among `writers`: the result holds the pieces of each writer, ascending by
/// tensor and box. The pieces of a tensor cover it exactly. Large tensors are cut along one axis,
/// small ones stay whole, and writers get nearly equal bytes. A flat companion is cut where the
/// tensor is that it accompanies, on block boundaries only.
///
/// Only identity, dtype, shape and block are looked at; chunks are not.
///
/// # Errors
/// `bad-argument` for no writers or more than the limit; `limit` when sizes do not fit 64 bits.
pub fn share(tensors: &[&Tensor], writers: u32) -> Result<Vec<Vec<Piece>>> {
    if writers == 0 || u64::from(writers) > limits::WRITERS {
        let message = format!("expected 1 to {} writers, found {writers}", limits::WRITERS);
        return Err(Error::rule(Code::BadArgument, rule::LIMIT_VALUE, message));
    }
    let mut total = 0_u64;
    for tensor in tensors {
        let bytes = tensor.chunk_bytes(&Region::whole(&tensor.shape))?;
        total = arith::add(total, bytes, "bytes of all tensors")?;
    }
    let parts = u64::from(writers).saturating_mul(SHARE_PARTS);
    let piece_bytes = total.div_ceil(parts).max(LEAST_PIECE_BYTES);
    let mut bundles = Vec::new();
    for group in groups(tensors) {
        cut(tensors, &group, piece_bytes, u64::from(writers), &mut bundles)?;
    }
    Ok(deal(bundles, writers))
}

/// Pieces of one group that are the same box, and so go to one writer.
struct Bundle {
    bytes: u64,
    /// The key of the group's first tensor and the box: decides between equals.
    key: String,
    at: Dims,
    pieces: Vec<Piece>,
}

/// Tensors that must be cut alike: one that is flat accompanies the others of its name and shape.
fn groups(tensors: &[&Tensor]) -> Vec<Vec<usize>> {
    type Name<'t> = (&'t str, &'t str, &'t [(String, u64)], &'t [u64]);
    let mut named: BTreeMap<Name<'_>, Vec<usize>> = BTreeMap::new();
    for (at, tensor) in tensors.iter().enumerate() {
        let identity = &tensor.identity;
        let key: Name<'_> = (&identity.component, &identity.name, &identity.scope, &tensor.shape);
        named.entry(key).or_default().push(at);
    }
    let mut groups = Vec::new();
    for members in named.into_values() {
        let flat =
            members.iter().any(|&at| tensors.get(at).is_some_and(|tensor| tensor.block.is_some()));
        if flat {
            groups.push(members);
        } else {
            groups.extend(members.into_iter().map(|at| vec![at]));
        }
    }
    groups
}

/// Cuts a group along the first axis that gives enough pieces, or else along its longest.
fn cut(
    tensors: &[&Tensor],
    group: &[usize],
    piece_bytes: u64,
    writers: u64,
    bundles: &mut Vec<Bundle>,
) -> Result<()> {
    let members: Vec<(usize, &Tensor)> =
        group.iter().filter_map(|&at| Some((at, *tensors.get(at)?))).collect();
    let Some((_, first)) = members.first() else { return Ok(()) };
    let shape = &first.shape;
    if shape.contains(&0) {
        // No elements, no boxes: the tensor is declared and nothing is held.
        return Ok(());
    }
    let whole = Region::whole(shape);
    let mut bytes = 0_u64;
    for (_, tensor) in &members {
        bytes = arith::add(bytes, tensor.chunk_bytes(&whole)?, "bytes of a group")?;
    }
    let wanted = bytes.div_ceil(piece_bytes).clamp(1, writers);
    let axis = axis_of(shape, &members, wanted)?;
    let size = shape.get(axis.number).copied().unwrap_or(1);
    let steps = size.div_ceil(axis.grain);
    let pieces = wanted.min(steps).max(1);
    for number in 0..pieces {
        let begin = share_of(steps, pieces, number).saturating_mul(axis.grain).min(size);
        let end =
            share_of(steps, pieces, number.saturating_add(1)).saturating_mul(axis.grain).min(size);
        let mut region = whole.clone();
        if let (Some(at), Some(extent)) =
            (region.at.get_mut(axis.number), region.extent.get_mut(axis.number))
        {
            *at = begin;
            *extent = end.saturating_sub(begin);
        }
        let mut bundle = Bundle {
            bytes: 0,
            key: first.identity.key(),
            at: region.at.clone(),
            pieces: Vec::with_capacity(members.len()),
        };
        for (at, tensor) in &members {
            let bytes = tensor.chunk_bytes(&region)?;
            bundle.bytes = arith::add(bundle.bytes, bytes, "bytes of pieces")?;
            bundle.pieces.push(Piece { tensor: *at, region: region.clone(), bytes });
        }
        bundles.push(bundle);
    }
    Ok(())
}

/// Where a group is cut: at multiples of `grain` along an axis.
#[derive(Clone, Copy)]
struct Axis {
    number: usize,
    grain: u64,
}

fn axis_of(shape: &[u64], members: &[(usize, &Tensor)], wanted: u64) -> Result<Axis> {
    let blocks: Vec<u64> = members.iter().filter_map(|(_, tensor)| tensor.block).collect();
    let mut best = Axis { number: 0, grain: shape.first().copied().unwrap_or(1).max(1) };
    let mut most = 1_u64;
    for (number, &size) in shape.iter().enumerate() {
        // Elements of one index of this axis.
        let inner = shape
            .iter()
            .skip(number.saturating_add(1))
            .try_fold(1_u64, |product, &n| arith::mul(product, n, "elements of a row"))?;
        let mut grain = 1_u64;
        for &block in &blocks {
            let rows = block.checked_div(gcd(block, inner)).unwrap_or(1);
            let common = gcd(grain, rows);
            grain = arith::mul(grain, rows.checked_div(common).unwrap_or(1), "rows of a block")?;
        }
        let steps = size.div_ceil(grain);
        if steps > most {
            most = steps;
            best = Axis { number, grain };
        }
        // Boxes of a flat companion must be runs: no axis inside one that is longer than 1.
        if most >= wanted || (!blocks.is_empty() && size > 1) {
            break;
        }
    }
    Ok(best)
}

/// Gives each bundle, largest first, to the writer that has the least.
fn deal(mut bundles: Vec<Bundle>, writers: u32) -> Vec<Vec<Piece>> {
    bundles.sort_by(|a, b| {
        b.bytes.cmp(&a.bytes).then_with(|| a.key.cmp(&b.key)).then_with(|| a.at.cmp(&b.at))
    });
    let mut hands: Vec<Vec<Piece>> = (0..writers).map(|_| Vec::new()).collect();
    let mut least: BinaryHeap<Reverse<(u64, usize)>> =
        (0..hands.len()).map(|writer| Reverse((0, writer))).collect();
    for mut bundle in bundles {
        let Some(Reverse((held, writer))) = least.pop() else { break };
        if let Some(hand) = hands.get_mut(writer) {
            hand.append(&mut bundle.pieces);
        }
        least.push(Reverse((held.saturating_add(bundle.bytes), writer)));
    }
    for hand in &mut hands {
        hand.sort_by(|a, b| (a.tensor, &a.region.at).cmp(&(b.tensor, &b.region.at)));
    }
    hands
}

/// The beginning of part `number` of `parts` nearly equal ones of `steps`.
fn share_of(steps: u64, parts: u64, number: u64) -> u64 {
    let at = u128::from(steps).saturating_mul(u128::from(number));
    let at = at.checked_div(u128::from(parts)).unwrap_or(0);
    u64::try_from(at).unwrap_or(u64::MAX)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a.checked_rem(b).unwrap_or(0));
    }
    a.max(1)
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "numbers of the tests' own")]
mod tests {
    use proptest::prelude::*;
    use waystation_format::cover::check_cover;
    use waystation_format::{Dtype, Identity, Role};

    use super::*;

    fn tensor(name: &str, shape: &[u64]) -> Tensor {
        Tensor::new(Identity::param(name), Dtype::F32, shape)
    }

    fn companion(of: &Tensor, block: u64) -> Tensor {
        let mut identity = of.identity.clone();
        identity.role = Role::Quant;
        identity.slot = "scale".to_owned();
        let mut tensor = Tensor::new(identity, Dtype::F32, &of.shape);
        tensor.block = Some(block);
        tensor
    }

    fn shared(tensors: &[Tensor], writers: u32) -> Vec<Vec<Piece>> {
        share(&tensors.iter().collect::<Vec<_>>(), writers).unwrap()
    }

    proptest! {
        #[test]
        fn pieces_cover_every_tensor(
            shapes in prop::collection::vec(prop::collection::vec(0u64..600, 0..4), 1..8),
            writers in 1u32..9,
            block in 1u64..300,
        ) {
            let mut tensors: Vec<Tensor> =
                shapes.iter().enumerate().map(|(i, s)| tensor(&format!("w{i}"), s)).collect();
            tensors.push(companion(&tensors[0], block));
            let hands = shared(&tensors, writers);
            prop_assert_eq!(hands.len(), usize::try_from(writers).unwrap());
            for (at, tensor) in tensors.iter().enumerate() {
                let pieces: Vec<&Region> = hands
                    .iter()
                    .flatten()
                    .filter(|piece| piece.tensor == at)
                    .map(|piece| &piece.region)
                    .collect();
                prop_assert!(check_cover(&tensor.shape, pieces.iter().copied()).is_ok());
            }
            // The companion has the boxes of its tensor, which fall on its blocks.
            let boxes = |at: usize| -> Vec<(usize, &Region)> {
                let all = hands.iter().enumerate();
                all.flat_map(|(w, hand)| hand.iter().map(move |piece| (w, piece)))
                    .filter(|(_, piece)| piece.tensor == at)
                    .map(|(w, piece)| (w, &piece.region))
                    .collect()
            };
            let last = tensors.len() - 1;
            prop_assert_eq!(boxes(0), boxes(last));
            let whole = Region::whole(&tensors[last].shape);
            let regions: Vec<&Region> = boxes(last).into_iter().map(|(_, region)| region).collect();
            let readable = waystation_format::companion::shares(
                &tensors[last].shape, block, &whole, regions,
            );
            prop_assert!(readable.is_ok());
        }
    }

    #[test]
    fn writers_get_nearly_equal_bytes() {
        let mut tensors = vec![tensor("embed", &[50_000, 1024])];
        for layer in 0..24 {
            for (name, shape) in [("q", [1024, 1024]), ("up", [4096, 1024]), ("down", [1024, 4096])]
            {
                tensors.push(tensor(&format!("{layer}.{name}"), &shape));
            }
            tensors.push(tensor(&format!("{layer}.norm"), &[1024]));
        }
        for writers in [1, 2, 3, 7, 8, 64] {
            let hands = shared(&tensors, writers);
            let sums: Vec<u64> = hands.iter().map(|h| h.iter().map(|p| p.bytes).sum()).collect();
            let mean = sums.iter().sum::<u64>() / u64::from(writers);
            let most = *sums.iter().max().unwrap();
            assert!(most <= mean + mean / 8, "{writers}: {most} over a mean of {mean}");
        }
    }

    #[test]
    fn the_order_of_tensors_does_not_matter() {
        let mut tensors: Vec<Tensor> =
            (0..20).map(|i| tensor(&format!("w{i}"), &[100 * (i % 5) + 300, 700])).collect();
        let names = |tensors: &[Tensor], hands: Vec<Vec<Piece>>| -> Vec<Vec<(String, Region)>> {
            let name = |piece: Piece| (tensors[piece.tensor].identity.name.clone(), piece.region);
            let mut all: Vec<Vec<(String, Region)>> =
                hands.into_iter().map(|hand| hand.into_iter().map(name).collect()).collect();
            all.iter_mut()
                .for_each(|hand| hand.sort_by(|a, b| (&a.0, &a.1.at).cmp(&(&b.0, &b.1.at))));
            all
        };
        let one = names(&tensors, shared(&tensors, 3));
        tensors.reverse();
        assert_eq!(one, names(&tensors, shared(&tensors, 3)));
    }

    #[test]
    fn no_writers_are_refused() {
        assert_eq!(share(&[], 0).unwrap_err().code(), Code::BadArgument);
        assert_eq!(owner("x", 0), 0);
        assert!(owner("[\"main\",\"param\",\"w\",\"\",\"\",[]]", 7) < 7);
    }
}
