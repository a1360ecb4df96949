//! The Threefry-2x32 function of Salmon and others (Random123) with twenty rounds, and the two
//! orders in which JAX numbers its outputs.
//!
//! It knows keys and outputs. A key is never moved by drawing; splitting one is a framework's
//! business.

use super::fields::halves;

/// The block of a counter of two words.
fn block(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let [k0, k1] = key;
    let mut keys = [k0, k1, k0 ^ k1 ^ 0x1bd1_1bda];
    let [mut x0, mut x1] = [counter[0].wrapping_add(k0), counter[1].wrapping_add(k1)];
    for group in 1..=5_u32 {
        let turns = if group % 2 == 1 { [13, 15, 26, 6] } else { [17, 29, 16, 24] };
        for turn in turns {
            x0 = x0.wrapping_add(x1);
            x1 = x1.rotate_left(turn) ^ x0;
        }
        keys.rotate_left(1);
        x0 = x0.wrapping_add(keys[0]);
        x1 = x1.wrapping_add(keys[1]).wrapping_add(group);
    }
    [x0, x1]
}

/// `count` outputs in the order of `jax_threefry_partitionable`: each of a block of its own.
pub(super) fn partitionable(key: [u32; 2], count: usize) -> Vec<u32> {
    let output = |(index, _): (u64, usize)| {
        let [low, high] = halves(index);
        let [x0, x1] = block(key, [high, low]);
        x0 ^ x1
    };
    (0..).zip(0..count).map(output).collect()
}

/// `count` outputs in the order without that flag: the numbers below `count`, cut in two halves,
/// are the two words of the counters. Of an odd count the last counter is filled up with 0, and
/// what it gives is left out.
///
/// JAX splits the key where `count` is 2^32 − 1 or more; that is not done here.
pub(super) fn split(key: [u32; 2], count: usize) -> Vec<u32> {
    let half = count.div_ceil(2);
    let word = |index: usize| {
        let [low, _] = halves(u64::try_from(index).unwrap_or(u64::MAX));
        low
    };
    let blocks = (0..half).map(|index| {
        let partner = index.saturating_add(half);
        block(key, [word(index), if partner < count { word(partner) } else { 0 }])
    });
    let (mut outputs, seconds): (Vec<u32>, Vec<u32>) = blocks.map(|[a, b]| (a, b)).unzip();
    outputs.extend(seconds);
    outputs.truncate(count);
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that Random123 publishes: counters and keys of zeros, of ones, of π.
    #[test]
    fn published_blocks() {
        assert_eq!(block([0; 2], [0; 2]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(block([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(
            block([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]),
            [0xc492_3a9c, 0x483d_f7a0]
        );
    }

    #[test]
    fn an_odd_count_is_filled_up_with_zero() {
        let key = [1, 2];
        let [first, fourth] = block(key, [0, 3]);
        let [second, fifth] = block(key, [1, 4]);
        let [third, _] = block(key, [2, 0]);
        assert_eq!(split(key, 5), [first, second, third, fourth, fifth]);
        assert_eq!(split(key, 1), [block(key, [0, 0])[0]]);
        assert_eq!(split(key, 0), []);
    }
}
