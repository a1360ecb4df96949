//! Writing the forms of records as JSON values.
//!
//! It knows how counts, names, lists and identities stand. It must not know any kind of record.

use crate::common::Coordinate;
use crate::identity::Identity;
use crate::json::Value;
use crate::value_tree::{Tree, identity_value};

/// An object of the members that are there.
pub(crate) fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let there = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect())
}

/// A count. One above 2^53 − 1 becomes an integer that no text may have.
pub(crate) fn count(count: u64) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// A string.
pub(crate) fn text(text: impl Into<String>) -> Value {
    Value::Str(text.into())
}

/// A list.
pub(crate) fn list<T>(items: &[T], item: impl FnMut(&T) -> Value) -> Value {
    Value::List(items.iter().map(item).collect())
}

/// `[[name, tree], …]`.
pub(crate) fn named_list(items: &[(String, Tree)]) -> Value {
    list(items, |(name, tree)| Value::List(vec![text(name.as_str()), tree.to_value()]))
}

/// `[[axis, index], …]`.
pub(crate) fn coordinate(coordinate: &Coordinate) -> Value {
    list(coordinate, |(axis, index)| Value::List(vec![text(axis.as_str()), count(*index)]))
}

/// `{"tensor":<identity>}`.
pub(crate) fn tensor(identity: &Identity) -> Value {
    object([("tensor", Some(identity_value(identity)))])
}
