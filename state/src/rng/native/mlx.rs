//! MLX: the one array of `mx.random.state`, a Threefry key of two words.
//!
//! MLX numbers a key's outputs as JAX does without `jax_threefry_partitionable`.

use waystation_format::{Result, RngAlgorithm};

use super::super::fields::{Fields, join_u32s};
use super::super::stream::StreamState;

/// Reads the form.
///
/// # Errors
///
/// None: every key is one.
pub fn from_words(key: [u32; 2]) -> Result<StreamState> {
    StreamState::new(RngAlgorithm::Threefry2x32JaxSplit, join_u32s(&key))
}

/// Writes the form.
///
/// # Errors
///
/// [`Code::BadArgument`](waystation_format::Code::BadArgument) for another algorithm or any cache,
/// `bad-rng-state` for an illegal state.
pub fn to_words(stream: &StreamState) -> Result<[u32; 2]> {
    stream.expect("mlx", &[RngAlgorithm::Threefry2x32JaxSplit], &[])?;
    Fields::new(stream.algorithm, &stream.state)?.u32s()
}
