//! Random streams: state and canary of a record, and its neutral form.
//!
//! It knows what is registered. Engines are those of `waystation-state`; what becomes of a stream on
//! another topology is the business of `restore`.

use waystation_format::Result;
use waystation_format::records::Stream;
use waystation_state::rng::{Cache, StreamState, check_canary};

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

/// The stream in the neutral form.
///
/// # Errors
/// `Err` with the reason for an algorithm or cache that is not registered.
pub(crate) fn neutral(stream: &Stream, state: Vec<u8>) -> std::result::Result<StreamState, String> {
    let algorithm = stream
        .known_algorithm()
        .ok_or_else(|| format!("the algorithm {:?} is not registered", stream.algorithm))?;
    let mut caches = Vec::with_capacity(stream.caches.len());
    for cache in &stream.caches {
        let known = waystation_format::RngCache::from_id(&cache.kind);
        let bits = known.and_then(|_| u64::from_str_radix(&cache.bits, 16).ok());
        let bits = bits.ok_or_else(|| format!("the cache {:?} is not registered", cache.kind))?;
        caches.push(Cache { kind: cache.kind.clone(), bits });
    }
    let origin = stream.origin.as_ref();
    let initial_seed = origin.and_then(|origin| origin.initial_seed.as_ref()?.to_u64());
    Ok(StreamState { algorithm, state, caches, initial_seed })
}
