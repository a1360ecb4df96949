//! PyTorch's stateless keys: two words of 64 bits, the seed and the offset in blocks.
//!
//! Not to be taken for the 16 bytes of a generator on CUDA, whose offset counts outputs.

use waystation_format::{Result, RngAlgorithm};

use super::super::fields::{Fields, join_u64s};
use super::super::stream::StreamState;

/// Reads the form.
///
/// # Errors
///
/// None: every key is one.
pub fn from_words(key: [u64; 2]) -> Result<StreamState> {
    StreamState::new(RngAlgorithm::Philox4x32TorchKey, join_u64s(&key))
}

/// Writes the form.
///
/// # Errors
///
/// [`Code::BadArgument`](waystation_format::Code::BadArgument) for another algorithm or any cache,
/// `bad-rng-state` for an illegal state.
pub fn to_words(stream: &StreamState) -> Result<[u64; 2]> {
    stream.expect("torch-key", &[RngAlgorithm::Philox4x32TorchKey], &[])?;
    Fields::new(stream.algorithm, &stream.state)?.u64s()
}
