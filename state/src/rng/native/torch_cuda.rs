//! PyTorch's generators on CUDA and XPU: `get_state()`, 16 bytes.
//!
//! The seed, and how many outputs of 32 bits are used of each subsequence; which is the canonical
//! state. Not to be taken for a stateless key, whose second word counts blocks.

use waystation_format::{Result, RngAlgorithm};

use super::super::stream::StreamState;

/// Reads the form: seed u64, offset i64 in outputs, a multiple of 4.
///
/// # Errors
///
/// [`Code::BadRngState`](waystation_format::Code::BadRngState) for another length or offset.
pub fn from_bytes(bytes: &[u8]) -> Result<StreamState> {
    StreamState::new(RngAlgorithm::Philox4x32TorchCuda, bytes.to_vec())
}

/// Writes the form.
///
/// # Errors
///
/// [`Code::BadArgument`](waystation_format::Code::BadArgument) for another algorithm or any cache,
/// `bad-rng-state` for an illegal state.
pub fn to_bytes(stream: &StreamState) -> Result<Vec<u8>> {
    stream.expect("torch-cuda", &[RngAlgorithm::Philox4x32TorchCuda], &[])?;
    stream.engine()?.encode()
}
