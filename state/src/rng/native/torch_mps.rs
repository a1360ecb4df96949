//! PyTorch's generator on MPS: `get_state()`, 44 bytes: seven words of 32 bits, the seed, and the
//! offset in blocks.
//!
//! Older versions wrote 36 bytes without the offset: such a state does not say where it stands.

use waystation_format::{Result, RngAlgorithm};

use super::super::stream::StreamState;
use super::tree::bad;

/// Bytes of the seven words.
const AUX_BYTES: usize = 28;
const WHAT: &str = "torch-mps";

/// Reads the form.
///
/// # Errors
///
/// [`Code::BadRngState`](waystation_format::Code::BadRngState) for another length than 44 bytes.
pub fn from_bytes(bytes: &[u8]) -> Result<StreamState> {
    match (bytes.len(), bytes.split_at_checked(AUX_BYTES)) {
        (44, Some((aux, place))) => {
            StreamState::new(RngAlgorithm::Philox4x32TorchMps, [place, aux].concat())
        }
        (36, _) => {
            Err(bad(WHAT, "44 bytes, found 36: the form of older versions, which lacks the offset"))
        }
        (found, _) => Err(bad(WHAT, &format!("44 bytes, found {found}"))),
    }
}

/// Writes the form.
///
/// # Errors
///
/// [`Code::BadArgument`](waystation_format::Code::BadArgument) for another algorithm or any cache,
/// `bad-rng-state` for an illegal state.
pub fn to_bytes(stream: &StreamState) -> Result<Vec<u8>> {
    stream.expect(WHAT, &[RngAlgorithm::Philox4x32TorchMps], &[])?;
    let state = stream.engine()?.encode()?;
    let (place, aux) = state.split_at_checked(16).unwrap_or_default();
    Ok([aux, place].concat())
}
