//! Random streams: state and canary of a record.
//!
//! It knows where a state stands. Engines are those of `waystation-state`; what becomes of a stream on
//! another topology is the business of `restore`.

use waystation_format::Result;
use waystation_format::records::Stream;
use waystation_state::rng::check_canary;

use super::state_bytes;
use crate::checkpoint::Checkpoint;

/// The state's bytes, whose canary agrees where the algorithm has one. Of an algorithm that is not
/// registered only the tensor is looked at.
///
/// # Errors
/// `dangling`, `bad-rng-state`, `canary-mismatch`; those of reading the tensor.
pub(crate) fn check_stream(checkpoint: &Checkpoint, stream: &Stream) -> Result<Vec<u8>> {
    let algorithm = stream.known_algorithm();
    let state = state_bytes(checkpoint, &stream.state, algorithm)?;
    if let Some(algorithm) = algorithm {
        check_canary(algorithm, &state, &stream.next_raw)?;
    }
    Ok(state)
}
