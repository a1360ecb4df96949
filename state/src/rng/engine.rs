//! One engine over all registered algorithms: from a canonical state to raw outputs and back.
//!
//! It knows which engine an algorithm names. Caches of samplers and frameworks' own forms are not
//! its business.

use waystation_format::{Code, Error, Result, RngAlgorithm, rule};

use super::chacha::ChaCha;
use super::fields::{Fields, join_u32s, join_u64s};
use super::fork::SplitMix64;
use super::mt19937::Mt19937;
use super::pcg::{Pcg64, Pcg128};
use super::sfc64::Sfc64;
use super::xoshiro::Xoshiro256PlusPlus;
use super::{fields, philox, threefry};

/// Blocks after which PyTorch's offset on CUDA, a count of outputs in 64 bits, begins anew.
const CUDA_BLOCKS: u64 = 1 << 62;
/// As it is with an offset in blocks: after 2^64 of them.
const ALL_BLOCKS: u64 = 0;

/// A stream's engine, at some place of its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    algorithm: RngAlgorithm,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Mt19937(Box<Mt19937>),
    Pcg128(Pcg128),
    Pcg64(Pcg64),
    PhiloxNumpy(philox::Numpy),
    PhiloxTorch(philox::Torch),
    PhiloxMps(philox::Torch, [u32; 7]),
    Sfc64(Sfc64),
    Threefry([u32; 2]),
    Rbg([u32; 4]),
    ChaCha(ChaCha),
    Xoshiro(Xoshiro256PlusPlus),
}

impl Engine {
    /// Reads a canonical state.
    ///
    /// # Errors
    ///
    /// [`Code::BadRngState`] for a state of another length than the registry says, and for one
    /// that the algorithm cannot be in.
    pub fn decode(algorithm: RngAlgorithm, state: &[u8]) -> Result<Self> {
        let mut fields = Fields::new(algorithm, state)?;
        let kind = match algorithm {
            RngAlgorithm::Mt19937 => Kind::Mt19937(Box::new(Mt19937::decode(state)?)),
            RngAlgorithm::Pcg64XslRr | RngAlgorithm::Pcg64Dxsm => {
                Kind::Pcg128(Pcg128::decode(&mut fields)?)
            }
            RngAlgorithm::Pcg32XshRr => Kind::Pcg64(Pcg64::decode(&mut fields)?),
            RngAlgorithm::Philox4x64Numpy => Kind::PhiloxNumpy(philox::Numpy::decode(&mut fields)?),
            RngAlgorithm::Philox4x32TorchCuda => {
                let (seed, offset) = (fields.u64()?, fields.u64()?);
                if offset % 4 != 0 {
                    let message = format!("expected an offset divisible by 4, found {offset}");
                    return Err(fields.illegal(&message));
                }
                Kind::PhiloxTorch(philox::Torch::at(seed, offset / 4))
            }
            RngAlgorithm::Philox4x32TorchKey => {
                Kind::PhiloxTorch(philox::Torch::at(fields.u64()?, fields.u64()?))
            }
            RngAlgorithm::Philox4x32TorchMps => {
                let philox = philox::Torch::at(fields.u64()?, fields.u64()?);
                Kind::PhiloxMps(philox, fields.u32s()?)
            }
            RngAlgorithm::Sfc64 => Kind::Sfc64(Sfc64::decode(&mut fields)?),
            RngAlgorithm::Threefry2x32JaxPartitionable | RngAlgorithm::Threefry2x32JaxSplit => {
                Kind::Threefry(fields.u32s()?)
            }
            RngAlgorithm::JaxRbg | RngAlgorithm::JaxUnsafeRbg => Kind::Rbg(fields.u32s()?),
            RngAlgorithm::ChaCha8 | RngAlgorithm::ChaCha12 | RngAlgorithm::ChaCha20 => {
                Kind::ChaCha(ChaCha::decode(&mut fields)?)
            }
            RngAlgorithm::Xoshiro256PlusPlus => {
                Kind::Xoshiro(Xoshiro256PlusPlus::decode(&mut fields)?)
            }
            _ => return Err(fields.illegal("expected an algorithm that this version draws from")),
        };
        Ok(Self { algorithm, kind })
    }

    /// The engine that a fork seeds with `seed` (section 17.5).
    ///
    /// # Errors
    ///
    /// [`Code::BadRngState`] for an algorithm that is registered but not known here; there is none.
    pub fn seeded(algorithm: RngAlgorithm, seed: u64) -> Result<Self> {
        let mut words = SplitMix64::new(seed);
        let [low, high] = fields::halves(seed);
        let kind = match algorithm {
            RngAlgorithm::Mt19937 => Kind::Mt19937(Box::new(Mt19937::init_by_array(&[low, high]))),
            RngAlgorithm::Pcg64XslRr | RngAlgorithm::Pcg64Dxsm => {
                Kind::Pcg128(Pcg128 { state: words.next_u128(), inc: words.next_u128() | 1 })
            }
            RngAlgorithm::Pcg32XshRr => {
                Kind::Pcg64(Pcg64 { state: words.next_u64(), inc: words.next_u64() | 1 })
            }
            RngAlgorithm::Philox4x64Numpy => Kind::PhiloxNumpy(philox::Numpy::begin(words.take())),
            RngAlgorithm::Philox4x32TorchCuda | RngAlgorithm::Philox4x32TorchKey => {
                Kind::PhiloxTorch(philox::Torch::at(seed, 0))
            }
            RngAlgorithm::Philox4x32TorchMps => {
                // As `manual_seed` leaves it.
                Kind::PhiloxMps(philox::Torch::at(seed, 0), [1, 1, 1, 1, 1, low, high])
            }
            RngAlgorithm::Sfc64 => {
                let [a, b, c] = words.take();
                Kind::Sfc64(Sfc64([a, b, c, 1]))
            }
            RngAlgorithm::Threefry2x32JaxPartitionable | RngAlgorithm::Threefry2x32JaxSplit => {
                Kind::Threefry([high, low])
            }
            RngAlgorithm::JaxRbg | RngAlgorithm::JaxUnsafeRbg => Kind::Rbg([high, low, high, low]),
            RngAlgorithm::ChaCha8 | RngAlgorithm::ChaCha12 | RngAlgorithm::ChaCha20 => {
                let mut key = [0; 32];
                let words: [u64; 4] = words.take();
                key.iter_mut().zip(join_u64s(&words)).for_each(|(byte, value)| *byte = value);
                Kind::ChaCha(ChaCha { seed: key, stream: 0, word_pos: 0 })
            }
            // No two outputs of SplitMix64 in a row are 0, so not all words are.
            RngAlgorithm::Xoshiro256PlusPlus => Kind::Xoshiro(Xoshiro256PlusPlus(words.take())),
            _ => {
                return Err(fields::illegal(algorithm, "expected an algorithm that is known here"));
            }
        };
        Ok(Self { algorithm, kind })
    }

    /// Its algorithm.
    #[must_use]
    pub fn algorithm(&self) -> RngAlgorithm {
        self.algorithm
    }

    /// The canonical state: what is drawn next follows from it.
    ///
    /// # Errors
    ///
    /// [`Code::BadRngState`] within a block of an algorithm that has states only between them
    /// ([`Block`](waystation_format::Advance::Block)): draw a multiple of four.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let between = |philox: &philox::Torch| match philox.drawn {
            0 => Ok(philox.block),
            drawn => Err(fields::illegal(
                self.algorithm,
                &format!("expected a multiple of 4 outputs drawn, found {drawn} more"),
            )),
        };
        Ok(match &self.kind {
            Kind::Mt19937(twister) => twister.encode(),
            Kind::Pcg128(pcg) => pcg.encode(),
            Kind::Pcg64(pcg) => pcg.encode(),
            Kind::PhiloxNumpy(philox) => philox.encode(),
            Kind::PhiloxTorch(philox) => {
                let block = between(philox)?;
                let cuda = self.algorithm == RngAlgorithm::Philox4x32TorchCuda;
                join_u64s(&[philox.seed, if cuda { block.wrapping_mul(4) } else { block }])
            }
            Kind::PhiloxMps(philox, aux) => {
                let mut state = join_u64s(&[philox.seed, between(philox)?]);
                state.extend(join_u32s(aux));
                state
            }
            Kind::Sfc64(sfc) => sfc.encode(),
            Kind::Threefry(key) => join_u32s(key),
            Kind::Rbg(key) => join_u32s(key),
            Kind::ChaCha(chacha) => chacha.encode(),
            Kind::Xoshiro(xoshiro) => xoshiro.encode(),
        })
    }

    /// The next `count` raw outputs, each zero-extended from the algorithm's width.
    ///
    /// Keys ([`Key`](waystation_format::Advance::Key)) are not moved on: what they give is a
    /// function of the key and of `count`. Algorithms without outputs (`has_canary` is false) give
    /// none.
    pub fn draw(&mut self, count: usize) -> Vec<u64> {
        let wide = |words: Vec<u32>| words.into_iter().map(u64::from).collect();
        match (&mut self.kind, self.algorithm) {
            (Kind::Rbg(_), _) => Vec::new(),
            (Kind::ChaCha(chacha), algorithm) => chacha.draw(algorithm, count),
            (Kind::Threefry(key), RngAlgorithm::Threefry2x32JaxSplit) => {
                wide(threefry::split(*key, count))
            }
            (Kind::Threefry(key), _) => wide(threefry::partitionable(*key, count)),
            (Kind::PhiloxTorch(key), RngAlgorithm::Philox4x32TorchKey) => {
                let mut stream = key.clone();
                (0..count).map(|_| u64::from(stream.next_u32(ALL_BLOCKS))).collect()
            }
            _ => (0..count).map(|_| self.next()).collect(),
        }
    }

    /// The next output of an engine that drawing moves on.
    fn next(&mut self) -> u64 {
        match (&mut self.kind, self.algorithm) {
            (Kind::Mt19937(twister), _) => u64::from(twister.next_u32()),
            (Kind::Pcg128(pcg), RngAlgorithm::Pcg64Dxsm) => pcg.next_dxsm(),
            (Kind::Pcg128(pcg), _) => pcg.next_xsl_rr(),
            (Kind::Pcg64(pcg), _) => u64::from(pcg.next_xsh_rr()),
            (Kind::PhiloxNumpy(philox), _) => philox.next_u64(),
            (Kind::PhiloxTorch(philox), _) => u64::from(philox.next_u32(CUDA_BLOCKS)),
            (Kind::PhiloxMps(philox, _), _) => u64::from(philox.next_u32(ALL_BLOCKS)),
            (Kind::Sfc64(sfc), _) => sfc.next_u64(),
            (Kind::Xoshiro(xoshiro), _) => xoshiro.next_u64(),
            // These are drawn many at a time.
            (Kind::Threefry(_) | Kind::Rbg(_) | Kind::ChaCha(_), _) => 0,
        }
    }
}

/// The canary of a state: its first `count` raw outputs as `next_raw` spells them, lower-case hex
/// of the algorithm's width. Empty where the algorithm has no outputs.
///
/// # Errors
///
/// [`Code::BadRngState`] as [`Engine::decode`].
pub fn canary(algorithm: RngAlgorithm, state: &[u8], count: usize) -> Result<Vec<String>> {
    let outputs = Engine::decode(algorithm, state)?.draw(count);
    Ok(outputs.into_iter().map(|output| spell(algorithm, output)).collect())
}

/// Compares a canary with what the state gives.
///
/// # Errors
///
/// [`Code::CanaryMismatch`] at the first output that differs, [`Code::BadRngState`] as
/// [`Engine::decode`].
pub fn check_canary(algorithm: RngAlgorithm, state: &[u8], next_raw: &[String]) -> Result<()> {
    let outputs = canary(algorithm, state, next_raw.len())?;
    for (index, recorded) in next_raw.iter().enumerate() {
        let given = outputs.get(index).map_or("none", String::as_str);
        if recorded != given {
            let message = format!(
                "{algorithm}: expected output {index} to be {recorded}, as recorded; the state gives {given}"
            );
            return Err(Error::rule(Code::CanaryMismatch, rule::RNG_CANARY, message));
        }
    }
    Ok(())
}

/// An output as `next_raw` spells it.
#[must_use]
pub fn spell(algorithm: RngAlgorithm, output: u64) -> String {
    let digits = usize::try_from(algorithm.width() / 4).unwrap_or_default();
    format!("{output:0digits$x}")
}
