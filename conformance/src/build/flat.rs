//! Flat companions (5.5): which elements a box of blocks holds.

use serde_json::Value;

use super::parts::numbers;
use super::{cut, element_bits};
use crate::recipe::Recipe;

/// Elements of a block, if the tensor of that number is a flat companion.
pub(super) fn block(recipe: &Recipe, tensor: usize) -> Option<u64> {
    recipe.tensors[tensor].entry.get("block").and_then(Value::as_u64)
}

/// All elements of a companion packed, one a block; none where a box is not a run of whole blocks.
pub(super) fn whole(recipe: &Recipe, tensor: usize, block: u64) -> Option<Vec<u8>> {
    let boxes = recipe.writers.iter().flat_map(|writer| &writer.boxes);
    for (_, at, extent) in boxes.filter(|(number, _, _)| *number == tensor) {
        blocks(recipe, tensor, block, at, extent)?;
    }
    let entry = &recipe.tensors[tensor].entry;
    let count = numbers(&entry["shape"]).iter().product::<u64>().div_ceil(block);
    let bits = element_bits(&entry["dtype"]);
    Some(recipe.tensors[tensor].data.bytes(count as usize * bits))
}

/// The elements of a region, packed; none where it is not a run of whole blocks.
pub(super) fn region(
    recipe: &Recipe,
    tensor: usize,
    block: u64,
    at: &[u64],
    extent: &[u64],
) -> Option<Vec<u8>> {
    let (first, count) = blocks(recipe, tensor, block, at, extent)?;
    let bits = element_bits(&recipe.tensors[tensor].entry["dtype"]);
    let bytes = whole(recipe, tensor, block)?;
    let all = bytes.len() as u64 * 8 / bits as u64;
    Some(cut(&bytes, bits, &[all], &[first], &[count]))
}

/// The bytes of a box. Where boxes are not runs of whole blocks, `first` is how many bytes of
/// the data those listed before it took, and more of the same data is made up.
pub(super) fn box_bytes(
    recipe: &Recipe,
    tensor: usize,
    (at, extent): (&[u64], &[u64]),
    block: u64,
    first: &mut usize,
) -> Vec<u8> {
    if whole(recipe, tensor, block).is_some() {
        return region(recipe, tensor, block, at, extent).expect("runs, as just seen");
    }
    let bits = element_bits(&recipe.tensors[tensor].entry["dtype"]);
    let count = extent.iter().product::<u64>().div_ceil(block) as usize;
    let end = *first + (count * bits).div_ceil(8);
    let bytes = recipe.tensors[tensor].data.bytes(end * 8)[*first..].to_vec();
    *first = end;
    cut(&bytes, bits, &[count as u64], &[0], &[count as u64])
}

/// First block and number of blocks of a box that is a run of whole ones.
fn blocks(
    recipe: &Recipe,
    tensor: usize,
    block: u64,
    at: &[u64],
    extent: &[u64],
) -> Option<(u64, u64)> {
    let shape = numbers(&recipe.tensors[tensor].entry["shape"]);
    let (begin, length) = run(&shape, at, extent)?;
    let ends =
        begin + length == shape.iter().product::<u64>() || (begin + length).is_multiple_of(block);
    (begin.is_multiple_of(block) && ends).then(|| (begin / block, length.div_ceil(block)))
}

/// First element and number of elements of a box that is one run of the flattened shape.
fn run(shape: &[u64], at: &[u64], extent: &[u64]) -> Option<(u64, u64)> {
    // After the first axis that has more than one index, all must be whole.
    let mut narrow = false;
    let mut begin = 0;
    for axis in 0..shape.len() {
        if narrow && extent[axis] != shape[axis] {
            return None;
        }
        narrow |= extent[axis] > 1;
        begin = begin * shape[axis] + at[axis];
    }
    Some((begin, extent.iter().product()))
}
