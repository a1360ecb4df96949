//! Elements as bits, so that types of four bits and of sixty-four are one case. Slow, and plain.

use serde_json::Value;
use waystation_format::Dtype;

/// Bits of an element of the dtype that an entry names; one byte's where the registry has no such.
#[must_use]
pub fn element_bits(dtype: &Value) -> usize {
    let known = dtype.as_str().and_then(Dtype::from_id);
    known.map_or(8, |dtype| dtype.bits() as usize)
}

/// The box of `extent` at `at` out of a tensor of `shape`, packed as a chunk of its own.
#[must_use]
pub fn cut(bytes: &[u8], bits: usize, shape: &[u64], at: &[u64], extent: &[u64]) -> Vec<u8> {
    let count = extent.iter().product::<u64>() as usize;
    let mut out = vec![0_u8; (count * bits).div_ceil(8)];
    for number in 0..count {
        let mut rest = number as u64;
        let mut place = 0_u64;
        let mut stride = 1_u64;
        for axis in (0..shape.len()).rev() {
            place += (at[axis] + rest % extent[axis]) * stride;
            rest /= extent[axis];
            stride *= shape[axis];
        }
        for bit in 0..bits {
            let from = place as usize * bits + bit;
            let to = number * bits + bit;
            out[to / 8] |= (bytes[from / 8] >> (from % 8) & 1) << (to % 8);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibbles_of_a_column_are_packed_anew() {
        // Rows 1 2 3 and 4 5 6, least significant nibble first.
        let bytes = [0x21, 0x43, 0x65];
        assert_eq!(cut(&bytes, 4, &[2, 3], &[0, 1], &[2, 1]), [0x52]);
        assert_eq!(cut(&bytes, 4, &[2, 3], &[1, 0], &[1, 3]), [0x54, 0x06]);
    }
}
