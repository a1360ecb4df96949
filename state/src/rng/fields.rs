//! Canonical states as bytes: fields one after another, little-endian, without padding.
//!
//! It knows integers and lengths. Which fields a state has, the engines know.

use waystation_format::{Code, Error, Result, RngAlgorithm, rule};

/// An illegal state of `algorithm`; `message` says what was expected and what was found.
#[cold]
pub(super) fn illegal(algorithm: RngAlgorithm, message: &str) -> Error {
    Error::rule(Code::BadRngState, rule::RNG_STATE, format!("{algorithm}: {message}"))
}

/// Reads the fields of a state in their order.
pub(super) struct Fields<'s> {
    algorithm: RngAlgorithm,
    state: &'s [u8],
    rest: &'s [u8],
}

impl<'s> Fields<'s> {
    /// The fields of a state of `algorithm`.
    ///
    /// # Errors
    ///
    /// [`Code::BadRngState`] when it has another length than the registry says.
    pub(super) fn new(algorithm: RngAlgorithm, state: &'s [u8]) -> Result<Self> {
        let fields = Self { algorithm, state, rest: state };
        if state.len() == algorithm.state_bytes() { Ok(fields) } else { Err(fields.wrong_length()) }
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.wrong_length())?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128> {
        self.bytes().map(u128::from_le_bytes)
    }

    pub(super) fn u32s<const N: usize>(&mut self) -> Result<[u32; N]> {
        let mut words = [0; N];
        words.iter_mut().try_for_each(|word| self.u32().map(|field| *word = field))?;
        Ok(words)
    }

    pub(super) fn u64s<const N: usize>(&mut self) -> Result<[u64; N]> {
        let mut words = [0; N];
        words.iter_mut().try_for_each(|word| self.u64().map(|field| *word = field))?;
        Ok(words)
    }

    /// An illegal state of this algorithm.
    #[cold]
    pub(super) fn illegal(&self, message: &str) -> Error {
        illegal(self.algorithm, message)
    }

    #[cold]
    fn wrong_length(&self) -> Error {
        let (expected, found) = (self.algorithm.state_bytes(), self.state.len());
        self.illegal(&format!("expected a state of {expected} bytes, found {found}"))
    }
}

/// These words, one after another.
pub(super) fn join_u32s<'w>(words: impl IntoIterator<Item = &'w u32>) -> Vec<u8> {
    words.into_iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// These words, one after another.
pub(super) fn join_u64s<'w>(words: impl IntoIterator<Item = &'w u64>) -> Vec<u8> {
    words.into_iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The low and the high half of a word.
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is asked for")]
pub(super) const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// The low and the high half of a word.
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is asked for")]
pub(super) const fn halves_wide(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}
