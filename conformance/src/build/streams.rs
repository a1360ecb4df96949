//! States of random streams by the shortest reading of chapter 17: how a Mersenne Twister is seeded,
//! and what a fork seeds. Knows no records, and draws nothing from any other engine.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::canonical;

const N: usize = 624;
const M: usize = 397;

/// The state of a Mersenne Twister that is seeded with one word and has drawn so many outputs.
#[must_use]
pub fn twister(word: u32, drawn: usize) -> Vec<u8> {
    stand(seeded(word), drawn)
}

/// Likewise, seeded with words.
#[must_use]
pub fn twister_of(words: &[u32], drawn: usize) -> Vec<u8> {
    let mut key = seeded(19_650_218);
    let mut at = 1;
    let mixed = |key: &[u32; N], at: usize, by: u32| {
        let before = key[at - 1];
        key[at] ^ (before ^ before >> 30).wrapping_mul(by)
    };
    let onward = |key: &mut [u32; N], at: usize| {
        if at + 1 == N {
            key[0] = key[N - 1];
            return 1;
        }
        at + 1
    };
    for number in 0..words.len().max(N) {
        let place = number % words.len();
        let more = words[place].wrapping_add(place as u32);
        key[at] = mixed(&key, at, 1_664_525).wrapping_add(more);
        at = onward(&mut key, at);
    }
    for _ in 1..N {
        key[at] = mixed(&key, at, 1_566_083_941).wrapping_sub(at as u32);
        at = onward(&mut key, at);
    }
    key[0] = 1 << 31;
    stand(key, drawn)
}

fn seeded(word: u32) -> [u32; N] {
    let mut key = [word; N];
    for at in 1..N {
        let before = key[at - 1];
        key[at] = (before ^ before >> 30).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
    }
    key
}

/// Where the key and position stand after so many outputs.
fn stand(mut key: [u32; N], drawn: usize) -> Vec<u8> {
    let mut pos = N;
    for _ in 0..drawn {
        if pos == N {
            for at in 0..N {
                let y = key[at] & 0x8000_0000 | key[(at + 1) % N] & 0x7fff_ffff;
                let odd = if y % 2 == 1 { 0x9908_b0df } else { 0 };
                key[at] = key[(at + M) % N] ^ y >> 1 ^ odd;
            }
            pos = 0;
        }
        pos += 1;
    }
    key.iter().chain([&(pos as u32)]).flat_map(|word| word.to_le_bytes()).collect()
}

/// The s of section 17.5.
#[must_use]
pub fn fork_seed(run: &str, step: u64, stream: &str, coordinate: &Value) -> u64 {
    let mut text = b"resume-fork/1".to_vec();
    text.extend_from_slice(run.as_bytes());
    text.extend_from_slice(&step.to_le_bytes());
    text.extend_from_slice(stream.as_bytes());
    text.extend_from_slice(canonical(coordinate).as_bytes());
    let digest = Sha256::digest(&text);
    digest.iter().take(8).rev().fold(0, |s, &byte| s << 8 | u64::from(byte))
}

/// The state that a fork with the seed s begins with.
///
/// # Panics
///
/// If the algorithm is not in the table of section 17.5.
#[must_use]
pub fn forked(algorithm: &str, s: u64) -> Vec<u8> {
    let w = split_mix(s);
    let (low, high) = (s as u32, (s >> 32) as u32);
    let longs = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let shorts = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    match algorithm {
        "mt19937" => twister_of(&[low, high], 0),
        "pcg64-xsl-rr" | "pcg64-dxsm" => longs(&[w[0], w[1], w[2] | 1, w[3]]),
        "pcg32-xsh-rr" => longs(&[w[0], w[1] | 1]),
        "philox4x64-10/numpy" => longs(&[0, 0, 0, 0, w[0], w[1], 0, 0, 0, 0, 4]),
        "philox4x32-10/torch-cuda" | "philox4x32-10/torch-key" => longs(&[s, 0]),
        "philox4x32-10/torch-mps" => [longs(&[s, 0]), shorts(&[1, 1, 1, 1, 1, low, high])].concat(),
        "sfc64" => longs(&[w[0], w[1], w[2], 1]),
        "threefry2x32-20/jax-partitionable" | "threefry2x32-20/jax-split" => shorts(&[high, low]),
        "jax-rbg" | "jax-unsafe-rbg" => shorts(&[high, low, high, low]),
        "chacha8/rand" | "chacha12/rand" | "chacha20/rand" => {
            longs(&[w[0], w[1], w[2], w[3], 0, 0, 0])
        }
        "xoshiro256++" => longs(&w),
        _ => panic!("no fork of {algorithm}"),
    }
}

fn split_mix(mut state: u64) -> [u64; 4] {
    [(); 4].map(|()| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}
