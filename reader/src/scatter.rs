//! Moves elements from a piece of a chunk to where they belong in a packed result.
//!
//! It knows the row-major order and bits, since elements of fewer than 8 bits may straddle the
//! ends of a piece. It must not know files or CRCs.

use waystation_format::{Code, Error, Region, Result, arith, flat, pack};

use crate::options::len;

/// A piece of a packed chunk.
#[derive(Debug)]
pub(crate) struct Packed<'a> {
    /// Bits of an element.
    pub(crate) bits: u64,
    /// The chunk's box.
    pub(crate) place: &'a Region,
    /// First byte of the piece within the chunk.
    pub(crate) first: u64,
    pub(crate) bytes: &'a [u8],
}

/// A result, all or a range of a packed box.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) region: &'a Region,
    /// What of `region` belongs to the result.
    pub(crate) boxes: &'a [Region],
    /// Elements of `region` before the result.
    pub(crate) skip: u64,
    /// Elements of the result.
    pub(crate) elements: u64,
}

/// Bits that are contiguous in a piece and in the result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) from: &'a [u8],
    /// First bit in `from`.
    pub(crate) from_bit: u64,
    /// First bit in the result.
    pub(crate) to_bit: u64,
    pub(crate) bits: u64,
    /// All bits of the result.
    pub(crate) total_bits: u64,
}

/// Takes runs, in no certain order.
pub(crate) type Emit<'e> = dyn FnMut(Run<'_>) -> Result<()> + 'e;

impl Run<'_> {
    /// Copies the run into `to`, which holds the bytes of the result from byte `first` on.
    pub(crate) fn copy_into(&self, to: &mut [u8], first: u64) -> Result<()> {
        let to_bit = self.to_bit.checked_sub(first.saturating_mul(8)).ok_or_else(outside)?;
        pack::copy_bits(self.from, self.from_bit, to, to_bit, self.bits).ok_or_else(outside)?;
        let end = self.to_bit.saturating_add(self.bits);
        if end == self.total_bits && !end.is_multiple_of(8) {
            // The last byte of the result: what belongs to no element is zero.
            let last = end.saturating_sub(first.saturating_mul(8)) / 8;
            let byte = usize::try_from(last).ok().and_then(|last| to.get_mut(last));
            *byte.ok_or_else(outside)? &= !(0xff_u8 << (end % 8));
        }
        Ok(())
    }
}

/// Gives each run of the piece's elements that belongs to the result.
pub(crate) fn scatter(piece: &Packed<'_>, result: &Wanted<'_>, emit: &mut Emit<'_>) -> Result<()> {
    let extent = &piece.place.extent;
    let first_bit = arith::mul(piece.first, 8, "bit of a chunk")?;
    let end_bit = arith::add(first_bit, arith::mul(len(piece.bytes), 8, "bits")?, "bit")?;
    let total = piece.place.elements()?;
    // Elements of which at least one bit is in the piece.
    let begin = first_bit.checked_div(piece.bits).unwrap_or(0).min(total);
    let end = arith::ceil_div(end_bit, piece.bits, "elements of a chunk")?.min(total);
    for mut part in flat::boxes_of_range(extent, begin, end)? {
        for (at, origin) in part.at.iter_mut().zip(&piece.place.at) {
            *at = arith::add(*at, *origin, "place in a tensor")?;
        }
        for wanted in result.boxes {
            if let Some(common) = part.intersect(wanted) {
                scatter_box(piece, (first_bit, end_bit), result, &common, emit)?;
            }
        }
    }
    Ok(())
}

/// The runs of one box that is in the piece (but for straddling bits) and in the result.
fn scatter_box(
    piece: &Packed<'_>,
    (first_bit, end_bit): (u64, u64),
    result: &Wanted<'_>,
    common: &Region,
    emit: &mut Emit<'_>,
) -> Result<()> {
    let total_bits = arith::mul(result.elements, piece.bits, "bits of a result")?;
    let sources = within(common, piece.place)?.runs(&piece.place.extent)?;
    let targets = within(common, result.region)?.runs(&result.region.extent)?;
    for (source, target, count) in sources.beside(targets) {
        // No product wraps: a chunk's and a result's bits are counted in 64 bits.
        let begin = source.saturating_mul(piece.bits);
        let end = begin.saturating_add(count.saturating_mul(piece.bits));
        let (from, until) = (begin.max(first_bit), end.min(end_bit));
        let to = target.checked_sub(result.skip).ok_or_else(outside)?;
        if from < until {
            emit(Run {
                from: piece.bytes,
                from_bit: from.saturating_sub(first_bit),
                to_bit: to.saturating_mul(piece.bits).saturating_add(from.saturating_sub(begin)),
                bits: until.saturating_sub(from),
                total_bits,
            })?;
        }
    }
    Ok(())
}

/// A box in the coordinates of one that contains it.
pub(crate) fn within(part: &Region, of: &Region) -> Result<Region> {
    let at = part.at.iter().zip(&of.at).map(|(&at, &origin)| arith::sub(at, origin, "place"));
    Ok(Region { at: at.collect::<Result<_>>()?, extent: part.extent.clone() })
}

#[cold]
fn outside() -> Error {
    Error::new(Code::BadArgument, "expected a run within its buffer, found one beyond it")
}
