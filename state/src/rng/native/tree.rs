//! Reading and building the value trees of frameworks' forms.
//!
//! It knows trees, and says what was expected where. Which members a form has, its file knows.

use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Code, Error, Result};

/// Longer texts are told by their length.
const SHOWN: usize = 40;

/// A form that is not what the framework writes: `expected` says what, and what was found.
#[cold]
pub(super) fn bad(what: &str, expected: &str) -> Error {
    Error::new(Code::BadRngState, format!("{what}: expected {expected}"))
}

/// As [`bad`], where `found` stands instead.
#[cold]
pub(super) fn bad_tree(what: &str, expected: &str, found: &Tree) -> Error {
    let found = match found {
        Tree::Null => "nothing".to_owned(),
        Tree::Bool(truth) => truth.to_string(),
        Tree::Str(text) if text.len() <= SHOWN => format!("{text:?}"),
        Tree::Str(text) => format!("a string of {} bytes", text.len()),
        Tree::Int(value) => value.to_string(),
        Tree::BigInt(digits) if digits.len() <= SHOWN => digits.clone(),
        Tree::BigInt(digits) => format!("an integer of {} digits", digits.len()),
        Tree::F64(_) | Tree::F32(_) => "a float".to_owned(),
        Tree::List(items) | Tree::Tuple(items) => format!("a list of {}", items.len()),
        Tree::Map(members) => format!("a map of {}", members.len()),
        Tree::Bytes(_) | Tree::Tensor(_) | Tree::Type(..) => "another value".to_owned(),
    };
    bad(what, &format!("{expected}, found {found}"))
}

/// The members of a map, each looked up by its name.
pub(super) struct Members<'t> {
    what: &'static str,
    pairs: &'t [(MapKey, Tree)],
}

impl<'t> Members<'t> {
    /// The members of `tree`, called `what`, which may be no others than `names`.
    pub(super) fn of(tree: &'t Tree, what: &'static str, names: &[&str]) -> Result<Self> {
        let Tree::Map(pairs) = tree else { return Err(bad_tree(what, "a map", tree)) };
        for (key, _) in pairs {
            match key {
                MapKey::Str(name) if names.contains(&name.as_str()) => {}
                other => {
                    let found = format!("no members but {}, found {other:?}", names.join(", "));
                    return Err(bad(what, &found));
                }
            }
        }
        Ok(Self { what, pairs })
    }

    pub(super) fn find(&self, name: &str) -> Option<&'t Tree> {
        let named = |key: &MapKey| matches!(key, MapKey::Str(text) if text == name);
        self.pairs.iter().find(|(key, _)| named(key)).map(|(_, value)| value)
    }

    pub(super) fn get(&self, name: &str) -> Result<&'t Tree> {
        self.find(name).ok_or_else(|| bad(self.what, &format!("a member {name}, found none")))
    }
}

/// An integer from 0 to `most`, also as a string of decimal digits: so it comes from tools whose
/// JSON would lose it.
pub(super) fn uint(tree: &Tree, what: &str, most: u128) -> Result<u128> {
    let value = match tree {
        Tree::Int(value) => u128::try_from(*value).ok(),
        Tree::BigInt(digits) => digits.parse().ok(),
        Tree::Str(digits) => {
            digits.parse().ok().filter(|value: &u128| value.to_string() == *digits)
        }
        _ => None,
    };
    value
        .filter(|value| *value <= most)
        .ok_or_else(|| bad_tree(what, &format!("an integer from 0 to {most}"), tree))
}

pub(super) fn u64(tree: &Tree, what: &str) -> Result<u64> {
    let value = uint(tree, what, u128::from(u64::MAX))?;
    Ok(u64::try_from(value).unwrap_or(u64::MAX))
}

pub(super) fn u32(tree: &Tree, what: &str) -> Result<u32> {
    let value = uint(tree, what, u128::from(u32::MAX))?;
    Ok(u32::try_from(value).unwrap_or(u32::MAX))
}

/// A flag that is spelled 0 or 1, or `False` or `True`.
pub(super) fn flag(tree: &Tree, what: &str) -> Result<bool> {
    match tree {
        Tree::Bool(value) => Ok(*value),
        Tree::Int(0) => Ok(false),
        Tree::Int(1) => Ok(true),
        _ => Err(bad_tree(what, "0 or 1", tree)),
    }
}

/// The bits of a binary64.
pub(super) fn float(tree: &Tree, what: &str) -> Result<u64> {
    match tree {
        Tree::F64(bits) => Ok(*bits),
        _ => Err(bad_tree(what, "a float", tree)),
    }
}

/// The items of a list or tuple.
pub(super) fn items<'t>(tree: &'t Tree, what: &str) -> Result<&'t [Tree]> {
    match tree {
        Tree::List(items) | Tree::Tuple(items) => Ok(items),
        _ => Err(bad_tree(what, "a list", tree)),
    }
}

/// Exactly N words of 32 bits.
pub(super) fn u32s<const N: usize>(items: &[Tree], what: &str) -> Result<[u32; N]> {
    let words: Vec<u32> = items.iter().map(|item| u32(item, what)).collect::<Result<_>>()?;
    let found = words.len();
    words.try_into().map_err(|_| bad(what, &format!("{N} integers, found {found}")))
}

/// Exactly N words of 64 bits.
pub(super) fn u64s<const N: usize>(items: &[Tree], what: &str) -> Result<[u64; N]> {
    let words: Vec<u64> = items.iter().map(|item| u64(item, what)).collect::<Result<_>>()?;
    let found = words.len();
    words.try_into().map_err(|_| bad(what, &format!("{N} integers, found {found}")))
}

/// An integer as a tree.
pub(super) fn int(value: impl Into<u128>) -> Tree {
    let value = value.into();
    match i128::try_from(value) {
        Ok(value) => Tree::int(value),
        Err(_) => Tree::BigInt(value.to_string()),
    }
}

/// Integers as a tree.
pub(super) fn list<I: Into<u128>>(values: impl IntoIterator<Item = I>) -> Tree {
    Tree::List(values.into_iter().map(int).collect())
}

/// A map of named members, in this order.
pub(super) fn map(members: impl IntoIterator<Item = (&'static str, Tree)>) -> Tree {
    let pair = |(name, value): (&str, Tree)| (MapKey::Str(name.to_owned()), value);
    Tree::Map(members.into_iter().map(pair).collect())
}
