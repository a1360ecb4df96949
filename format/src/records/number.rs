//! Value trees that are numbers.
//!
//! It knows how wide an integer and how exact a float a record may hold. It must not know what
//! they count or measure.

use crate::value_tree::Tree;

/// An integer of any size, in the one form that it has in a value tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Integer {
    /// Within ±(2^53 − 1).
    Int(i64),
    /// Beyond, in decimal.
    Big(String),
}

impl Integer {
    /// An integer of up to 128 bits.
    #[must_use]
    pub fn new(value: i128) -> Self {
        match Tree::int(value) {
            Tree::Int(small) => Self::Int(small),
            _ => Self::Big(value.to_string()),
        }
    }

    /// The integer that `tree` is, if it is one.
    #[must_use]
    pub fn of(tree: &Tree) -> Option<Self> {
        match tree {
            Tree::Int(small) => Some(Self::Int(*small)),
            Tree::BigInt(digits) => Some(Self::Big(digits.clone())),
            _ => None,
        }
    }

    /// As a value tree.
    #[must_use]
    pub fn to_tree(&self) -> Tree {
        match self {
            Self::Int(small) => Tree::Int(*small),
            Self::Big(digits) => Tree::BigInt(digits.clone()),
        }
    }

    /// The number, if it lies from 0 to 2^64 − 1.
    #[must_use]
    pub fn to_u64(&self) -> Option<u64> {
        match self {
            Self::Int(small) => u64::try_from(*small).ok(),
            Self::Big(digits) => digits.parse().ok(),
        }
    }
}

impl From<u64> for Integer {
    fn from(value: u64) -> Self {
        Self::new(i128::from(value))
    }
}

/// A float, as its IEEE 754 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// A binary64.
    F64(u64),
    /// A binary32.
    F32(u32),
}

impl Float {
    /// The float that `tree` is, if it is one.
    #[must_use]
    pub fn of(tree: &Tree) -> Option<Self> {
        match tree {
            Tree::F64(bits) => Some(Self::F64(*bits)),
            Tree::F32(bits) => Some(Self::F32(*bits)),
            _ => None,
        }
    }

    /// As a value tree.
    #[must_use]
    pub fn to_tree(self) -> Tree {
        match self {
            Self::F64(bits) => Tree::F64(bits),
            Self::F32(bits) => Tree::F32(bits),
        }
    }

    /// The number; a binary32 is one exactly.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::F64(bits) => f64::from_bits(bits),
            Self::F32(bits) => f64::from(f32::from_bits(bits)),
        }
    }
}

impl From<f64> for Float {
    fn from(value: f64) -> Self {
        Self::F64(value.to_bits())
    }
}

impl From<f32> for Float {
    fn from(value: f32) -> Self {
        Self::F32(value.to_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_say_whether_they_fit() {
        assert_eq!(Integer::from(u64::MAX), Integer::Big(u64::MAX.to_string()));
        for value in [0, 1, (1 << 53) - 1, 1 << 53, u64::MAX] {
            assert_eq!(Integer::from(value).to_u64(), Some(value));
            assert_eq!(Integer::of(&Integer::from(value).to_tree()), Some(Integer::from(value)));
        }
        assert_eq!(Integer::new(-1).to_u64(), None);
        assert_eq!(Integer::new(-(1 << 60)).to_u64(), None);
        assert_eq!(Integer::new(1 << 64).to_u64(), None);
        assert_eq!(Integer::Big("9".repeat(60)).to_u64(), None);
    }

    #[test]
    fn floats_keep_their_bits() {
        let nan = Float::F32(0x7f80_0001);
        assert_eq!(Float::of(&nan.to_tree()), Some(nan));
        assert_eq!(Float::from(0.1_f32).to_f64(), f64::from(0.1_f32));
        assert_eq!(Float::from(0.1), Float::F64(0x3fb9_9999_9999_999a));
        assert_eq!(Float::of(&Tree::Int(1)), None);
    }
}
