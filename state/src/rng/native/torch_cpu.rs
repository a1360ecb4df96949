//! PyTorch's generator on the CPU: `Generator.get_state()`, 5,056 bytes.
//!
//! It is a C structure in the order of a little-endian machine:
//!
//! | at | field |
//! |---|---|
//! | 0 | initial seed, u64 |
//! | 8 | outputs left before the next twist, plus 1: i32 |
//! | 12 | seeded, i32: 1 |
//! | 16 | the next word, u64 |
//! | 24 | 624 words, u64 each |
//! | 5016 | an unused f64: 0 |
//! | 5024 | the cached normal, f64 |
//! | 5032 | an unused f64: 0 |
//! | 5040 | whether the f64 is valid, i32, and 4 bytes of padding |
//! | 5048 | the cached normal, f32 |
//! | 5052 | whether the f32 is valid, bool, and 3 bytes of padding |

use waystation_format::{Code, Error, Result, RngAlgorithm, RngCache};

use super::super::fields::join_u64s;
use super::super::mt19937::Mt19937;
use super::super::stream::{Cache, StreamState};
use super::tree::bad;

/// Bytes of the form.
pub const BYTES: usize = 5056;
const WHAT: &str = "torch-cpu";

/// Reads the form.
///
/// # Errors
///
/// [`Code::BadRngState`] for anything that PyTorch does not write: another length, a generator
/// that is not seeded, counts that disagree, words of more than 32 bits, unused fields or padding
/// that are not 0, a state in which a Mersenne Twister cannot be.
pub fn from_bytes(bytes: &[u8]) -> Result<StreamState> {
    let length =
        || bad(WHAT, &format!("{BYTES} bytes of a little-endian machine, found {}", bytes.len()));
    let whole: &[u8; BYTES] = bytes.try_into().map_err(|_| length())?;
    let (words, _) = whole.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let [initial_seed, counts, next, words @ .., x, y, rho, y_valid, float] = words.as_slice()
    else {
        return Err(length());
    };
    if counts >> 32 != 1 {
        return Err(bad(WHAT, &format!("seeded to be 1, found {}", counts >> 32)));
    }
    let left = counts & 0xffff_ffff;
    let pos = match 625_u64.checked_sub(left) {
        Some(pos) if left > 0 && pos > 0 => pos,
        _ => return Err(bad(WHAT, &format!("left from 1 to 624, found {left}"))),
    };
    // A generator that was just seeded stands before the twist, and says 0.
    if *next != pos && (*next, pos) != (0, 624) {
        return Err(bad(WHAT, &format!("next to be 625 - left, that is {pos}, found {next}")));
    }
    for (name, unused) in [("normal_x", x), ("normal_rho", rho)] {
        if *unused != 0 {
            return Err(bad(
                WHAT,
                &format!("the unused field {name} to be 0, found {unused:016x}"),
            ));
        }
    }
    let key: Option<Vec<u32>> = words.iter().map(|word| u32::try_from(*word).ok()).collect();
    let key = key.and_then(|key| key.try_into().ok());
    let key = key.ok_or_else(|| bad(WHAT, "words of at most 32 bits, found a larger one"))?;
    let engine = Mt19937::new(key, u32::try_from(pos).unwrap_or(u32::MAX))?;

    let mut stream = StreamState::new(RngAlgorithm::Mt19937, engine.encode())?;
    stream.initial_seed = Some(*initial_seed);
    let (f32_bits, f32_valid) = (float & 0xffff_ffff, float >> 32);
    let caches =
        [(RngCache::TorchNormalF32, f32_bits, f32_valid), (RngCache::TorchNormalF64, *y, *y_valid)];
    for (kind, bits, valid) in caches {
        match (valid, bits) {
            (1, _) => stream.caches.push(Cache::new(kind, bits)),
            (0, 0) => {}
            (0, _) => return Err(bad(WHAT, &format!("a cache {kind} that is not valid to be 0"))),
            _ => {
                return Err(bad(WHAT, &format!("the flag of {kind} to be 0 or 1, and no padding")));
            }
        }
    }
    Ok(stream)
}

/// Writes the form.
///
/// # Errors
///
/// [`Code::BadArgument`] for another algorithm, for caches of other frameworks, without an initial
/// seed, which the form holds and users read, and at a position 0 that PyTorch cannot reach.
/// [`Code::BadRngState`] for an illegal state.
pub fn to_bytes(stream: &StreamState) -> Result<Vec<u8>> {
    let known = [RngCache::TorchNormalF32, RngCache::TorchNormalF64];
    stream.expect(WHAT, &[RngAlgorithm::Mt19937], &known)?;
    let engine = Mt19937::decode(&stream.state)?.before_twist().ok_or_else(|| {
        Error::new(
            Code::BadArgument,
            "torch-cpu: cannot hold position 0 of words that no twist gives",
        )
    })?;
    let seed = stream.initial_seed.ok_or_else(|| {
        Error::new(Code::BadArgument, "torch-cpu: expected an initial seed, which the form holds")
    })?;
    let pos = u64::from(engine.pos());
    let filled = |kind| stream.cache(kind).map_or([0, 0], |bits| [bits, 1]);
    let [y, y_valid] = filled(RngCache::TorchNormalF64);
    let [float, float_valid] = filled(RngCache::TorchNormalF32);
    let mut words = vec![seed, 625_u64.saturating_sub(pos) | 1 << 32, pos];
    words.extend(engine.key().iter().copied().map(u64::from));
    words.extend([0, y, 0, y_valid, (float & 0xffff_ffff) | float_valid << 32]);
    Ok(join_u64s(&words))
}
