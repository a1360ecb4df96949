//! JAX: `jax.random.key_data` of a key, the name of its implementation, and the flag
//! `jax_threefry_partitionable`.
//!
//! A seed would not do: what becomes of its upper half depends on another flag.

use waystation_format::{Code, Error, Result, RngAlgorithm};

use super::super::fields::{Fields, join_u32s};
use super::super::stream::StreamState;
use super::tree::bad;

/// An implementation of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// `threefry2x32`, tagged `fry`, and the flag `jax_threefry_partitionable`.
    Threefry {
        /// The flag: the same key gives other numbers without it.
        partitionable: bool,
    },
    /// `rbg`.
    Rbg,
    /// `unsafe_rbg`, tagged `urbg`.
    UnsafeRbg,
}

impl Implementation {
    /// The implementation with this name or tag; `partitionable` matters to Threefry only.
    ///
    /// # Errors
    ///
    /// [`Code::BadArgument`] for another name, and for Threefry when the flag is not given.
    pub fn named(name: &str, partitionable: Option<bool>) -> Result<Self> {
        match (name, partitionable) {
            ("threefry2x32" | "fry", Some(partitionable)) => Ok(Self::Threefry { partitionable }),
            ("threefry2x32" | "fry", None) => Err(Error::new(
                Code::BadArgument,
                "jax: expected the value of jax_threefry_partitionable, on which the outputs depend",
            )),
            ("rbg", _) => Ok(Self::Rbg),
            ("unsafe_rbg" | "urbg", _) => Ok(Self::UnsafeRbg),
            _ => Err(Error::new(
                Code::BadArgument,
                format!(
                    "jax: expected threefry2x32 (fry), rbg or unsafe_rbg (urbg), found {name:?}"
                ),
            )),
        }
    }

    /// Its name, as `jax.random.wrap_key_data` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Threefry { .. } => "threefry2x32",
            Self::Rbg => "rbg",
            Self::UnsafeRbg => "unsafe_rbg",
        }
    }

    fn algorithm(self) -> RngAlgorithm {
        match self {
            Self::Threefry { partitionable: true } => RngAlgorithm::Threefry2x32JaxPartitionable,
            Self::Threefry { partitionable: false } => RngAlgorithm::Threefry2x32JaxSplit,
            Self::Rbg => RngAlgorithm::JaxRbg,
            Self::UnsafeRbg => RngAlgorithm::JaxUnsafeRbg,
        }
    }
}

/// Reads the key data of one key: two words of Threefry, four of the others.
///
/// # Errors
///
/// [`Code::BadRngState`] for another number of words.
pub fn from_key_data(data: &[u32], implementation: Implementation) -> Result<StreamState> {
    let algorithm = implementation.algorithm();
    let (words, found) = (algorithm.state_bytes() / 4, data.len());
    if words != found {
        let name = implementation.name();
        return Err(bad("jax", &format!("{words} words of a key of {name}, found {found}")));
    }
    StreamState::new(algorithm, join_u32s(data))
}

/// Writes the key data of one key, and what it is a key of.
///
/// # Errors
///
/// [`Code::BadArgument`] for another algorithm or any cache, [`Code::BadRngState`] for an illegal
/// state.
pub fn to_key_data(stream: &StreamState) -> Result<(Vec<u32>, Implementation)> {
    let all = [
        Implementation::Threefry { partitionable: true },
        Implementation::Threefry { partitionable: false },
        Implementation::Rbg,
        Implementation::UnsafeRbg,
    ];
    stream.expect("jax", &all.map(Implementation::algorithm), &[])?;
    let mut fields = Fields::new(stream.algorithm, &stream.state)?;
    let words = (0..stream.state.len() / 4).map(|_| fields.u32()).collect::<Result<_>>()?;
    let implementation = all.into_iter().find(|it| it.algorithm() == stream.algorithm);
    let implementation = implementation.unwrap_or(Implementation::UnsafeRbg);
    Ok((words, implementation))
}
