//! Layouts out of a fuzzer's bytes: boxes that cover a shape exactly.

use arbitrary::{Result, Unstructured};

/// Boxes of one shape.
const MOST_BOXES: usize = 7;

/// A box: where it begins, and its extent.
pub type Box = (Vec<u64>, Vec<u64>);

/// Cuts a shape into boxes, each cut through one box, so that every element lies in one of them. Of a shape without elements it is
/// the one box that has none.
///
/// # Errors
/// When the bytes are too few.
pub fn boxes(u: &mut Unstructured<'_>, shape: &[u64]) -> Result<Vec<Box>> {
    let mut boxes = vec![(vec![0; shape.len()], shape.to_vec())];
    if shape.contains(&0) || shape.is_empty() {
        return Ok(boxes);
    }
    for _ in 0..u.int_in_range(0..=MOST_BOXES - 1)? {
        let number = u.choose_index(boxes.len())?;
        let axis = u.choose_index(shape.len())?;
        let (at, extent) = &mut boxes[number];
        if extent[axis] > 1 {
            let first = u.int_in_range(1..=extent[axis] - 1)?;
            let (mut later, mut rest) = (at.clone(), extent.clone());
            later[axis] += first;
            rest[axis] -= first;
            extent[axis] = first;
            boxes.push((later, rest));
        }
    }
    Ok(boxes)
}

/// A region within a shape, perhaps without elements.
///
/// # Errors
/// When the bytes are too few.
pub fn region(u: &mut Unstructured<'_>, shape: &[u64]) -> Result<Box> {
    let mut region = Box::default();
    for &size in shape {
        let at = u.int_in_range(0..=size)?;
        region.0.push(at);
        region.1.push(u.int_in_range(0..=size - at)?);
    }
    Ok(region)
}

/// Flat runs of whole blocks that cover a line of `size` elements.
///
/// # Errors
/// When the bytes are too few.
pub fn runs(u: &mut Unstructured<'_>, size: u64, block: u64) -> Result<Vec<Box>> {
    let mut boxes = Vec::new();
    let mut begin = 0;
    while begin < size {
        let blocks = u.int_in_range(1..=size.div_ceil(block))?;
        let end =
            if boxes.len() + 1 == MOST_BOXES { size } else { (begin + blocks * block).min(size) };
        boxes.push((vec![begin], vec![end - begin]));
        begin = end;
    }
    Ok(boxes)
}
