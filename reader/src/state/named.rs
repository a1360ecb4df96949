//! Tensors that records name: states too long for a record, and lists of numbers.
//!
//! It knows what such a tensor has to be. It must not know what its bytes mean.

use std::sync::Arc;

use waystation_format::records::rng::State;
use waystation_format::{
    Code, Dtype, Entry, Error, Identity, Result, RngAlgorithm, Role, arith, rule,
};
use waystation_state::Stop;

use crate::checkpoint::Checkpoint;
use crate::tensor::TensorRef;

/// The bytes of the state of a stream of `algorithm`. A tensor of another length than its states
/// have is not read: it may be of any; nor is one of an engine that is not registered.
///
/// # Errors
/// `dangling` when its tensor is not there or is another than it must be; `bad-rng-state` for its
/// length; those of reading it.
pub(crate) fn state_bytes(
    checkpoint: &Checkpoint,
    state: &State,
    algorithm: Option<RngAlgorithm>,
) -> Result<Vec<u8>> {
    let identity = match state {
        State::Inline(bytes) => return Ok(bytes.clone()),
        State::Tensor(identity) => identity,
    };
    let tensor = named(checkpoint, identity, Dtype::U8, None, rule::RNG_TENSOR)?;
    let Some(algorithm) = algorithm else { return Ok(Vec::new()) };
    let (expected, found) = (algorithm.state_bytes(), tensor.bytes()?);
    if u64::try_from(expected).ok() != Some(found) {
        let message = format!("{algorithm}: expected a state of {expected} bytes, found {found}");
        return Err(Error::rule(Code::BadRngState, rule::RNG_STATE, message));
    }
    tensor.read()
}

/// Looks for a tensor of `count` numbers that a cursor names, without reading it.
///
/// # Errors
/// `dangling` when it is not there or is another than it must be.
pub(crate) fn expect_numbers(
    checkpoint: &Checkpoint,
    identity: &Identity,
    count: u64,
) -> Result<()> {
    named(checkpoint, identity, Dtype::U64, Some(count), rule::ORDER_TENSOR).map(drop)
}

/// Bytes of numbers that are read at once.
const PIECE: u64 = 1 << 20;

/// The numbers of a tensor that a cursor names, `count` of them, unless `stop` is requested before.
///
/// # Errors
/// As [`state_bytes`]; `interrupted`.
pub(crate) fn numbers(
    checkpoint: &Checkpoint,
    identity: &Identity,
    count: u64,
    stop: Option<&Stop>,
) -> Result<Arc<[u64]>> {
    let tensor = named(checkpoint, identity, Dtype::U64, Some(count), rule::ORDER_TENSOR)?;
    // They may be most of what there is memory for, so they are held once.
    let count = arith::to_usize(count, "numbers of a tensor")?;
    let mut numbers: Arc<[u64]> = std::iter::repeat_n(0, count).collect();
    let mut slots = Arc::get_mut(&mut numbers).unwrap_or_default().iter_mut();
    tensor.stream(PIECE, &mut |bytes| {
        for (number, slot) in bytes.as_chunks::<8>().0.iter().zip(&mut slots) {
            *slot = u64::from_le_bytes(*number);
        }
        stop.map_or(Ok(()), Stop::go_on)
    })?;
    Ok(numbers)
}

/// The tensor of an identity, which is what it must be.
fn named<'c>(
    checkpoint: &'c Checkpoint,
    identity: &Identity,
    dtype: Dtype,
    count: Option<u64>,
    rule: &'static str,
) -> Result<TensorRef<'c>> {
    let dangling = |found: String| {
        let count = count.map_or_else(String::new, |count| format!(" of {count}"));
        let message = format!("expected a blob of {dtype}{count}, found {found}");
        Error::rule(Code::Dangling, rule, message).in_tensor(identity.key())
    };
    let found = checkpoint.find(identity)?;
    let entry = found.ok_or_else(|| dangling("nothing of its identity".to_owned()))?;
    let Entry::Tensor(tensor) = &*entry else {
        return Err(dangling("an alias".to_owned()));
    };
    let fits = tensor.identity.role == Role::Blob
        && tensor.dtype == dtype
        && tensor.valid.is_none()
        && tensor.shape.len() == 1
        && count.is_none_or(|count| tensor.shape.first() == Some(&count));
    if !fits {
        let shape = tensor.shape.to_vec();
        let role = tensor.identity.role;
        return Err(dangling(format!("a {role} of {} and shape {shape:?}", tensor.dtype)));
    }
    checkpoint.tensor_of(&entry)
}
