//! The forms by name, for whoever is told in words which it is.
//!
//! It knows which form is made of bytes and which of a tree, and what a form does not say of
//! itself. What a form looks like is its own file's business.

use std::fmt;

use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Code, Error, Result, RngAlgorithm};

use super::super::stream::StreamState;
use super::{jax, mlx, numpy, python, rust, torch_cpu, torch_cuda, torch_key, torch_mps};

/// A framework's form of a stream's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `get_state()` of a generator of PyTorch on the CPU: 5,056 bytes.
    TorchCpu,
    /// `get_state()` of one on CUDA or XPU: 16 bytes.
    TorchCuda,
    /// `get_state()` of one on MPS: 44 bytes.
    TorchMps,
    /// A key of `torch.func._random`: `[seed, offset]`.
    TorchKey,
    /// The state of a bit generator of NumPy: a map.
    Numpy,
    /// `RandomState.get_state()` of NumPy, a list or a map.
    NumpyLegacy,
    /// `random.getstate()` of Python: a list.
    Python,
    /// `jax.random.key_data(key).tolist()`, which says neither implementation nor flag.
    Jax,
    /// `mx.random.state[0].tolist()` of MLX, or the list of that one key.
    Mlx,
    /// The serialised form of `rand_chacha`, `rand_pcg` or `rand_xoshiro`, which does not say of
    /// which engine.
    Rust,
}

/// A state in a framework's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Native {
    /// Of a form that is made of bytes.
    Bytes(Vec<u8>),
    /// Of any other.
    Tree(Tree),
}

/// What some forms do not say of themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsaid {
    /// Of [`Form::Rust`]: which engine it is of.
    pub algorithm: Option<RngAlgorithm>,
    /// Of [`Form::Jax`]: the implementation of the key, by name or tag.
    pub implementation: Option<String>,
    /// Of [`Form::Jax`], of threefry2x32: the flag `jax_threefry_partitionable`.
    pub partitionable: Option<bool>,
}

impl Form {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::TorchCpu,
        Self::TorchCuda,
        Self::TorchMps,
        Self::TorchKey,
        Self::Numpy,
        Self::NumpyLegacy,
        Self::Python,
        Self::Jax,
        Self::Mlx,
        Self::Rust,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TorchCpu => "torch-cpu",
            Self::TorchCuda => "torch-cuda",
            Self::TorchMps => "torch-mps",
            Self::TorchKey => "torch-key",
            Self::Numpy => "numpy",
            Self::NumpyLegacy => "numpy-legacy",
            Self::Python => "python",
            Self::Jax => "jax",
            Self::Mlx => "mlx",
            Self::Rust => "rust",
        }
    }

    /// The form of this name.
    ///
    /// # Errors
    ///
    /// [`Code::BadArgument`] for another name.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.iter().find(|form| form.as_str() == name).copied().ok_or_else(|| {
            let all: Vec<&str> = Self::ALL.iter().map(|form| form.as_str()).collect();
            let message = format!("expected one of the forms {}, found {name:?}", all.join(", "));
            Error::new(Code::BadArgument, message)
        })
    }

    /// The numbers of bytes that it may have; none for a form that is a tree.
    #[must_use]
    pub const fn lengths(self) -> &'static [usize] {
        match self {
            Self::TorchCpu => &[torch_cpu::BYTES],
            Self::TorchCuda => &[16],
            Self::TorchMps => &[44, 36],
            _ => &[],
        }
    }

    /// Whether it is made of bytes.
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        !self.lengths().is_empty()
    }

    /// Reads a state.
    ///
    /// # Errors
    ///
    /// [`Code::BadRngState`] for what is not of the form, and for a state that its engine cannot be
    /// in; [`Code::BadArgument`] where something is unsaid that the form does not say.
    pub fn read(self, native: &Native, unsaid: &Unsaid) -> Result<StreamState> {
        let tree = match (native, self) {
            (Native::Bytes(bytes), Self::TorchCpu) => return torch_cpu::from_bytes(bytes),
            (Native::Bytes(bytes), Self::TorchCuda) => return torch_cuda::from_bytes(bytes),
            (Native::Bytes(bytes), Self::TorchMps) => return torch_mps::from_bytes(bytes),
            (Native::Bytes(_), _) => {
                return Err(bad(&format!("{self}: expected a tree, found bytes")));
            }
            (Native::Tree(tree), _) => tree,
        };
        match self {
            Self::TorchCpu | Self::TorchCuda | Self::TorchMps => {
                Err(bad(&format!("{self}: expected bytes, found a tree")))
            }
            Self::TorchKey => match words(tree)?.as_slice() {
                [seed, offset] => torch_key::from_words([*seed, *offset]),
                other => {
                    let found = other.len();
                    Err(bad(&format!("torch-key: expected [seed, offset], found {found}")))
                }
            },
            Self::Numpy => numpy::from_tree(tree),
            Self::NumpyLegacy => numpy::from_legacy_tree(tree),
            Self::Python => python_state(tree),
            Self::Jax => {
                let name = unsaid.implementation.as_deref().ok_or_else(|| {
                    let message = "expected an implementation, which the key data do not say";
                    Error::new(Code::BadArgument, message)
                })?;
                let implementation = jax::Implementation::named(name, unsaid.partitionable)?;
                jax::from_key_data(&words_32(tree)?, implementation)
            }
            Self::Mlx => {
                // The whole of `mx.random.state` is a list of the one key.
                let key = match tree {
                    Tree::List(items) if items.len() == 1 => items.first().unwrap_or(tree),
                    other => other,
                };
                match words_32(key)?.as_slice() {
                    [first, second] => mlx::from_words([*first, *second]),
                    other => {
                        let found = other.len();
                        Err(bad(&format!("mlx: expected a key of two words, found {found}")))
                    }
                }
            }
            Self::Rust => {
                let algorithm = unsaid.algorithm.ok_or_else(|| {
                    let message = "expected an algorithm, which the form does not say";
                    Error::new(Code::BadArgument, message)
                })?;
                rust::from_tree(algorithm, tree)
            }
        }
    }

    /// Writes a state. What the form does not say is not said; see [`unsaid`](Self::unsaid).
    ///
    /// # Errors
    ///
    /// [`Code::BadArgument`] for a state that the form cannot hold, [`Code::BadRngState`] for an
    /// illegal one.
    pub fn write(self, stream: &StreamState) -> Result<Native> {
        Ok(Native::Tree(match self {
            Self::TorchCpu => return torch_cpu::to_bytes(stream).map(Native::Bytes),
            Self::TorchCuda => return torch_cuda::to_bytes(stream).map(Native::Bytes),
            Self::TorchMps => return torch_mps::to_bytes(stream).map(Native::Bytes),
            Self::TorchKey => list(torch_key::to_words(stream)?),
            Self::Numpy => numpy::to_tree(stream)?,
            Self::NumpyLegacy => numpy::to_legacy_tree(stream)?,
            Self::Python => python::to_tree(stream)?,
            Self::Jax => list(jax::to_key_data(stream)?.0),
            Self::Mlx => list(mlx::to_words(stream)?),
            Self::Rust => rust::to_tree(stream)?,
        }))
    }

    /// What the form does not say of a state.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn unsaid(self, stream: &StreamState) -> Result<Unsaid> {
        Ok(match self {
            Self::Rust => Unsaid { algorithm: Some(stream.algorithm), ..Unsaid::default() },
            Self::Jax => {
                let implementation = jax::to_key_data(stream)?.1;
                let partitionable = match implementation {
                    jax::Implementation::Threefry { partitionable } => Some(partitionable),
                    _ => None,
                };
                let implementation = Some(implementation.name().to_owned());
                Unsaid { implementation, partitionable, ..Unsaid::default() }
            }
            _ => Unsaid::default(),
        })
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What `random.getstate()` gives; a part of it is told by its length.
fn python_state(tree: &Tree) -> Result<StreamState> {
    let words = |items: &[Tree]| items.iter().all(|item| matches!(item, Tree::Int(_)));
    match tree {
        Tree::List(items) | Tree::Tuple(items) if items.len() > 3 && words(items) => {
            Err(bad(&format!(
                "python: expected [3, [624 words, position], gauss_next], all that random.getstate() \
                 gives, found a list of {} integers: is it the middle one?",
                items.len()
            )))
        }
        _ => python::from_tree(tree),
    }
}

/// A word of 64 bits: bare, as records spell large ones, or as a string of decimal digits.
///
/// # Errors
///
/// [`Code::BadRngState`] for anything else.
pub fn one_word(tree: &Tree) -> Result<u64> {
    let digits = |text: &str| text.parse().ok().filter(|word: &u64| word.to_string() == text);
    let word = match tree {
        Tree::Int(value) => u64::try_from(*value).ok(),
        Tree::BigInt(text) | Tree::Str(text) => digits(text),
        Tree::Map(members) => match members.as_slice() {
            [(MapKey::Str(name), Tree::Str(text))] if name == "int" => digits(text),
            _ => None,
        },
        _ => None,
    };
    word.ok_or_else(|| bad("expected an integer from 0 to 2^64 - 1, found another value"))
}

fn words(tree: &Tree) -> Result<Vec<u64>> {
    match tree {
        Tree::List(items) | Tree::Tuple(items) => items.iter().map(one_word).collect(),
        _ => Err(bad("expected a list of integers, found another value")),
    }
}

fn words_32(tree: &Tree) -> Result<Vec<u32>> {
    let narrow = |word| {
        u32::try_from(word).map_err(|_| bad(&format!("expected integers below 2^32, found {word}")))
    };
    words(tree)?.into_iter().map(narrow).collect()
}

fn list<I: Into<u64>>(values: impl IntoIterator<Item = I>) -> Tree {
    Tree::List(values.into_iter().map(|value| Tree::int(i128::from(value.into()))).collect())
}

#[cold]
fn bad(message: &str) -> Error {
    Error::new(Code::BadRngState, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Engine;

    #[test]
    fn every_form_comes_back_and_says_what_it_leaves_unsaid() {
        for (form, algorithm) in [
            (Form::TorchCpu, RngAlgorithm::Mt19937),
            (Form::Numpy, RngAlgorithm::Pcg64XslRr),
            (Form::NumpyLegacy, RngAlgorithm::Mt19937),
            (Form::Python, RngAlgorithm::Mt19937),
            (Form::Jax, RngAlgorithm::Threefry2x32JaxSplit),
            (Form::Rust, RngAlgorithm::ChaCha12),
        ] {
            assert_eq!(Form::named(form.as_str()).unwrap(), form);
            let engine = Engine::seeded(algorithm, 11).unwrap();
            let mut stream = StreamState::new(algorithm, engine.encode().unwrap()).unwrap();
            stream.initial_seed = (form == Form::TorchCpu).then_some(11);
            let native = form.write(&stream).unwrap();
            assert_eq!(matches!(native, Native::Bytes(_)), form.is_bytes(), "{form}");
            let unsaid = form.unsaid(&stream).unwrap();
            assert_eq!(form.read(&native, &unsaid).unwrap(), stream, "{form}");
            if matches!(form, Form::Jax | Form::Rust) {
                let error = form.read(&native, &Unsaid::default()).unwrap_err();
                assert_eq!(error.code(), Code::BadArgument, "{form}");
            }
        }
        assert_eq!(Form::named("torch").unwrap_err().code(), Code::BadArgument);
    }
}
