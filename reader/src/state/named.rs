//! Tensors that records name: states too long for a record, and lists of numbers.
//!
//! It knows what such a tensor has to be. It must not know what its bytes mean.

use waystation_format::records::rng::State;
use waystation_format::{Code, Dtype, Entry, Error, Identity, Result, Role, rule};

use crate::checkpoint::Checkpoint;

/// The bytes of a stream's state.
///
/// # Errors
/// `dangling` when its tensor is not there or is another than it must be; those of reading it.
pub(crate) fn state_bytes(checkpoint: &Checkpoint, state: &State) -> Result<Vec<u8>> {
    match state {
        State::Inline(bytes) => Ok(bytes.clone()),
        State::Tensor(identity) => read(checkpoint, identity, Dtype::U8, None, rule::RNG_TENSOR),
    }
}

/// The numbers of a tensor that a cursor names, `count` of them.
///
/// # Errors
/// As [`state_bytes`].
pub(crate) fn numbers(
    checkpoint: &Checkpoint,
    identity: &Identity,
    count: u64,
) -> Result<Vec<u64>> {
    let bytes = read(checkpoint, identity, Dtype::U64, Some(count), rule::ORDER_TENSOR)?;
    let (numbers, _) = bytes.as_chunks::<8>();
    Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
}

fn read(
    checkpoint: &Checkpoint,
    identity: &Identity,
    dtype: Dtype,
    count: Option<u64>,
    rule: &'static str,
) -> Result<Vec<u8>> {
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
    checkpoint.tensor_of(&entry)?.read()
}
