//! Copies boxes of elements between packed buffers, whatever the width of an element.
//!
//! It knows bit widths, the row-major order and the packing of sub-byte elements (least
//! significant first, from the buffer's first byte). It must not know dtypes' meaning or files.

use crate::region::{Region, Runs};
use crate::rule;
use crate::{Code, Error, Result, arith};

/// The bytes of `elements` elements of `bits` bits, packed.
///
/// # Errors
/// [`Code::Limit`] when their bits do not fit 64 bits.
pub fn packed_bytes(bits: u32, elements: u64) -> Result<u64> {
    Ok(arith::mul(elements, u64::from(bits), "bits of a box")?.div_ceil(8))
}

/// True when the bits of `last_byte`, the last one of `elements` packed elements of `bits` bits,
/// that belong to no element are 0.
#[must_use]
pub fn unused_bits_zero(bits: u32, elements: u64, last_byte: u8) -> bool {
    // Only the count modulo 8 decides, so wrapping does not matter.
    let used = elements.wrapping_mul(u64::from(bits)) & 7;
    used == 0 || u64::from(last_byte) >> used == 0
}

/// Copies the elements of `what` from one packed box to another.
///
/// `from` holds the elements of `from_box`, `to` those of `to_box`; the three boxes are of one
/// global shape, `what` lies in both. An element has `bits` bits. Bits of `to` outside `what` stay
/// as they are, so unused ones are zero if the caller made them so. Longer buffers are allowed.
///
/// # Errors
/// [`Code::BadRegion`] when `what` is not within both boxes; [`Code::BadArgument`] when a buffer is
/// shorter than its box or `bits` is 0; [`Code::Limit`] when a box has more than 2^64 bits.
pub fn copy_region(
    bits: u32,
    from: &[u8],
    from_box: &Region,
    to: &mut [u8],
    to_box: &Region,
    what: &Region,
) -> Result<()> {
    let sources = runs_within(bits, from.len(), from_box, what)?;
    let targets = runs_within(bits, to.len(), to_box, what)?;
    if bits.is_multiple_of(8) {
        let width = u64::from(bits / 8);
        for_each_piece(sources, targets, width, |f, t, n| copy_bytes(from, f, to, t, n))
    } else {
        for_each_piece(sources, targets, u64::from(bits), |f, t, n| copy_bits(from, f, to, t, n))
    }
}

/// The runs of `what` in the buffer of `within`, which has `len` bytes.
fn runs_within(bits: u32, len: usize, within: &Region, what: &Region) -> Result<Runs> {
    if bits == 0 {
        return Err(Error::new(Code::BadArgument, "expected elements of at least 1 bit, found 0"));
    }
    let bytes = packed_bytes(bits, within.elements()?)?;
    if arith::to_usize(bytes, "bytes of a box")? > len {
        let message =
            format!("expected a buffer of {bytes} bytes for the box {within}, found {len}");
        return Err(Error::new(Code::BadArgument, message));
    }
    let relative =
        what.at.iter().zip(&within.at).map(|(&a, &b)| arith::sub(a, b, "start in a box")).collect();
    match relative {
        Ok(at) if what.at.len() == within.at.len() => {
            Region { at, extent: what.extent.clone() }.runs(&within.extent)
        }
        _ => {
            let message = format!("expected a region within the box {within}, found {what}");
            Err(Error::rule(Code::BadRegion, rule::READ_REGION, message))
        }
    }
}

/// Calls `copy(from, to, count)` for each piece that is contiguous on both sides; places and counts
/// are in units, `width` of them an element. Both sides have the same elements, so end together.
fn for_each_piece(
    sources: Runs,
    targets: Runs,
    width: u64,
    mut copy: impl FnMut(u64, u64, u64) -> Option<()>,
) -> Result<()> {
    for (source, target, count) in sources.beside(targets) {
        // No product wraps: every place is within a buffer whose bits were counted in 64 bits.
        let [from, to, units] = [source, target, count].map(|n| n.saturating_mul(width));
        copy(from, to, units).ok_or_else(|| {
            let message =
                format!("expected a run within its buffer, found {count} at {source}, {target}");
            Error::new(Code::BadArgument, message)
        })?;
    }
    Ok(())
}

/// Copies `count` bytes; none when a place is outside its buffer.
fn copy_bytes(from: &[u8], source: u64, to: &mut [u8], target: u64, count: u64) -> Option<()> {
    let count = usize::try_from(count).ok()?;
    let from = from.get(usize::try_from(source).ok()?..)?.get(..count)?;
    let to = to.get_mut(usize::try_from(target).ok()?..)?.get_mut(..count)?;
    to.copy_from_slice(from);
    Some(())
}

/// Copies `count` bits from bit `source` of `from` to bit `target` of `to`, bit 0 being the least
/// significant of the first byte; other bits of `to` stay as they are. None when a place is outside
/// its buffer; `to` may then hold a part.
#[must_use]
pub fn copy_bits(from: &[u8], source: u64, to: &mut [u8], target: u64, count: u64) -> Option<()> {
    // Up to the first whole byte of the target, its whole bytes, and what is left.
    let head = (target.wrapping_neg() & 7).min(count);
    copy_few_bits(from, source, to, target, head)?;
    let (source, target) = (source.saturating_add(head), target.saturating_add(head));
    let count = count.saturating_sub(head);
    copy_whole_bytes(from, source, to, target >> 3, count >> 3)?;
    let body = count & !7;
    copy_few_bits(from, source.saturating_add(body), to, target.saturating_add(body), count & 7)
}

/// Copies `count` bytes from bit `source` to byte `target`.
fn copy_whole_bytes(
    from: &[u8],
    source: u64,
    to: &mut [u8],
    target: u64,
    count: u64,
) -> Option<()> {
    let shift = source & 7;
    if shift == 0 || count == 0 {
        return copy_bytes(from, source >> 3, to, target, count);
    }
    let count = usize::try_from(count).ok()?;
    // Each byte has its low bits from one source byte and its high bits from the next.
    let low = from.get(usize::try_from(source >> 3).ok()?..)?;
    let high = low.get(1..=count)?;
    let to = to.get_mut(usize::try_from(target).ok()?..)?.get_mut(..count)?;
    let back = 8_u64.saturating_sub(shift);
    for ((byte, low), high) in to.iter_mut().zip(low).zip(high) {
        *byte = (low >> shift) | (high << back);
    }
    Some(())
}

/// Copies `count` bits, at most 8, that lie in one byte of the target.
fn copy_few_bits(from: &[u8], source: u64, to: &mut [u8], target: u64, count: u64) -> Option<()> {
    if count == 0 {
        return Some(());
    }
    let (source_shift, target_shift) = (source & 7, target & 7);
    let index = usize::try_from(source >> 3).ok()?;
    let low = u16::from(*from.get(index)?);
    let spans = source_shift.saturating_add(count) > 8;
    let high = if spans { u16::from(*from.get(index.checked_add(1)?)?) } else { 0 };
    let value = (low | (high << 8)) >> source_shift;
    let mask = 0xff_u16 >> 8_u64.saturating_sub(count);
    let byte = to.get_mut(usize::try_from(target >> 3).ok()?)?;
    let [keep, set] =
        [!(mask << target_shift), (value & mask) << target_shift].map(|bits| bits.to_le_bytes()[0]);
    *byte = (*byte & keep) | set;
    Some(())
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
    use crate::Dtype;
    use crate::dims::Dims;

    /// The bits of element `i`, read one by one.
    fn element(bits: u32, packed: &[u8], i: u64) -> Vec<bool> {
        (i * u64::from(bits)..(i + 1) * u64::from(bits))
            .map(|bit| packed[(bit / 8) as usize] >> (bit % 8) & 1 == 1)
            .collect()
    }

    fn set_element(packed: &mut [u8], i: u64, value: &[bool]) {
        for (bit, &on) in (i * value.len() as u64..).zip(value) {
            let byte = &mut packed[(bit / 8) as usize];
            *byte = *byte & !(1 << (bit % 8)) | u8::from(on) << (bit % 8);
        }
    }

    /// Global coordinates of each element of a box, in its order.
    fn coordinates(region: &Region) -> Vec<Dims> {
        let mut all = vec![Dims::new()];
        for (at, n) in region.at.iter().zip(&region.extent) {
            all = all
                .into_iter()
                .flat_map(|prefix| {
                    (*at..at + n).map(move |index| {
                        let mut coordinate = prefix.clone();
                        coordinate.push(index);
                        coordinate
                    })
                })
                .collect();
        }
        all
    }

    fn naive(bits: u32, from: &[u8], a: &Region, to: &mut [u8], b: &Region, what: &Region) {
        let (sources, targets) = (coordinates(a), coordinates(b));
        for coordinate in coordinates(what) {
            let source = sources.iter().position(|c| *c == coordinate).unwrap() as u64;
            let target = targets.iter().position(|c| *c == coordinate).unwrap() as u64;
            set_element(to, target, &element(bits, from, source));
        }
    }

    /// Three boxes: the common part of two that overlap, and the two.
    fn boxes() -> impl Strategy<Value = (Region, Region, Region)> {
        prop::collection::vec((0u64..3, 0u64..3, 1u64..5, 0u64..3, 0u64..3), 0..4).prop_map(
            |axes| {
                let mut boxes = [Region::default(), Region::default(), Region::default()];
                for (before_a, before_b, common, after_a, after_b) in axes {
                    let starts = [3, 3 - before_a, 3 - before_b];
                    let ends = [3 + common, 3 + common + after_a, 3 + common + after_b];
                    for ((region, at), end) in boxes.iter_mut().zip(starts).zip(ends) {
                        region.at.push(at);
                        region.extent.push(end - at);
                    }
                }
                let [what, a, b] = boxes;
                (what, a, b)
            },
        )
    }

    proptest! {
        #[test]
        fn copies_are_those_of_single_bits((what, a, b) in boxes(), seed in any::<u64>()) {
            for dtype in Dtype::ALL {
                let bits = dtype.bits();
                let bytes = |region: &Region| {
                    packed_bytes(bits, region.elements().unwrap()).unwrap() as usize
                };
                let noise = |i: usize| (seed.wrapping_mul(i as u64 * 2 + 1) >> 32) as u8;
                let from: Vec<u8> = (0..bytes(&a)).map(noise).collect();
                let mut to: Vec<u8> = (7..bytes(&b) + 7).map(noise).collect();
                let mut expected = to.clone();
                naive(bits, &from, &a, &mut expected, &b, &what);
                copy_region(bits, &from, &a, &mut to, &b, &what).unwrap();
                prop_assert_eq!(&to, &expected, "{}", dtype.as_str());
            }
        }
    }

    #[test]
    fn long_runs_of_small_elements_shift() {
        let wide = Region { at: [0].as_slice().into(), extent: [1000].as_slice().into() };
        let what = Region { at: [1].as_slice().into(), extent: [997].as_slice().into() };
        for bits in [1, 2, 4, 6] {
            let from: Vec<u8> = (0..1000).map(|i| (i * 37 % 251) as u8).collect();
            let (mut to, mut expected) = (vec![0; 1000], vec![0; 1000]);
            naive(bits, &from, &wide, &mut expected, &what, &what);
            copy_region(bits, &from, &wide, &mut to, &what, &what).unwrap();
            assert_eq!(to, expected);
        }
    }

    #[test]
    fn misuse_is_refused() {
        let region =
            |at: u64, n: u64| Region { at: [at].as_slice().into(), extent: [n].as_slice().into() };
        let mut to = [0; 4];
        let mut code = |bits, from: &[u8], a: &Region, b: &Region, what: &Region| {
            copy_region(bits, from, a, &mut to, b, what).unwrap_err().code()
        };
        let (a, b) = (region(2, 4), region(0, 4));
        assert_eq!(code(8, &[0; 4], &a, &b, &region(1, 2)), Code::BadRegion);
        assert_eq!(code(8, &[0; 4], &a, &b, &region(3, 3)), Code::BadRegion);
        assert_eq!(code(8, &[0; 4], &a, &b, &Region::whole(&[])), Code::BadRegion);
        assert_eq!(code(8, &[0; 3], &a, &b, &region(2, 2)), Code::BadArgument);
        assert_eq!(code(16, &[0; 8], &a, &b, &region(2, 2)), Code::BadArgument);
        assert_eq!(code(0, &[0; 8], &a, &b, &region(2, 2)), Code::BadArgument);
        assert_eq!(code(64, &[0; 8], &region(0, 1 << 60), &b, &region(0, 2)), Code::Limit);
    }

    #[test]
    fn unused_bits_are_those_above() {
        assert!(unused_bits_zero(4, 3, 0x0f) && !unused_bits_zero(4, 3, 0x10));
        assert!(unused_bits_zero(6, 3, 0x03) && !unused_bits_zero(6, 3, 0x04));
        assert!(unused_bits_zero(8, 3, 0xff) && unused_bits_zero(2, 4, 0xff));
        assert!(unused_bits_zero(1, 0, 0xff));
    }

    #[test]
    fn lengths_round_up() {
        assert_eq!(packed_bytes(6, 3).unwrap(), 3);
        assert_eq!(packed_bytes(1, 9).unwrap(), 2);
        assert_eq!(packed_bytes(128, 0).unwrap(), 0);
        assert_eq!(packed_bytes(128, 1 << 60).unwrap_err().code(), Code::Limit);
    }
}
