//! Reading the forms of records: objects of listed members, lists, counts, names, hex.
//!
//! It knows how a breach is reported: what is of another type, unknown or missing breaks the rules
//! of chapter 2, whatever else is wrong the one rule that the reader was made for, at the pointer
//! from the top of the value that was given. Names, what an identity says and value trees have
//! rules of their own. It must not know any kind of record.

use std::collections::HashSet;
use std::iter::Peekable;
use std::slice;

use super::number::{Float, Integer};
use crate::common::Coordinate;
use crate::digest::Digest;
use crate::identity::{Identity, check_name};
use crate::json::{Value, pointer_step};
use crate::value_tree::Tree;
use crate::{Code, Error, Result, limits, rule};

/// Reads values whose form is one rule's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    rule: &'static str,
}

impl Reader {
    /// For a form that `rule` gives.
    pub(crate) const fn new(rule: &'static str) -> Self {
        Self { rule }
    }

    /// The breach, at the value itself.
    #[cold]
    pub(crate) fn bad(self, message: impl Into<String>) -> Error {
        Error::rule(Code::BadMember, self.rule, message)
    }

    /// Enters an object; its members are asked for in ascending order of their names.
    pub(crate) fn object(self, value: &Value) -> Result<Members<'_>> {
        let members = value.as_object().ok_or_else(|| self.bad_type("an object", value))?;
        Ok(Members { rest: members.iter().peekable() })
    }

    /// A list; `item` is given each element and its position.
    pub(crate) fn list<'v, T>(
        self,
        value: &'v Value,
        mut item: impl FnMut(usize, &'v Value) -> Result<T>,
    ) -> Result<Vec<T>> {
        let Value::List(items) = value else { return Err(self.bad_type("an array", value)) };
        let read = |(index, value)| item(index, value).map_err(|error| error.in_item(index));
        items.iter().enumerate().map(read).collect()
    }

    /// As [`list`](Self::list), of at most `most` elements by the form itself.
    pub(crate) fn list_up_to<'v, T>(
        self,
        value: &'v Value,
        most: u64,
        item: impl FnMut(usize, &'v Value) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.list_most(value, most, Code::BadMember, item)
    }

    /// As [`list`](Self::list), of at most `most` elements by a limit of chapter 14.
    pub(crate) fn list_limited<'v, T>(
        self,
        value: &'v Value,
        most: u64,
        item: impl FnMut(usize, &'v Value) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.list_most(value, most, Code::Limit, item)
    }

    fn list_most<'v, T>(
        self,
        value: &'v Value,
        most: u64,
        code: Code,
        mut item: impl FnMut(usize, &'v Value) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.list(value, |index, value| {
            let read = item(index, value)?;
            if u64::try_from(index).is_ok_and(|index| index < most) {
                return Ok(read);
            }
            let message = format!("expected at most {most} elements, found one more");
            Err(Error::rule(code, self.rule, message))
        })
    }

    /// An array of two elements; `form` says in words which.
    pub(crate) fn pair<'v, A, B>(
        self,
        value: &'v Value,
        form: &str,
        first: impl FnOnce(&'v Value) -> Result<A>,
        second: impl FnOnce(&'v Value) -> Result<B>,
    ) -> Result<(A, B)> {
        let Value::List(items) = value else { return Err(self.bad_type(form, value)) };
        let mut items = items.iter();
        let short = || self.bad(format!("expected {form}, found fewer items"));
        let first =
            items.next().ok_or_else(short).and_then(|v| first(v).map_err(|e| e.in_item(0)))?;
        let second =
            items.next().ok_or_else(short).and_then(|v| second(v).map_err(|e| e.in_item(1)))?;
        match items.next() {
            None => Ok((first, second)),
            Some(_) => Err(self.bad(format!("expected {form}, found more items"))),
        }
    }

    /// A count: an integer from 0 to 2^53 − 1.
    pub(crate) fn count(self, value: &Value) -> Result<u64> {
        match value {
            Value::Int(found) => u64::try_from(*found)
                .ok()
                .filter(|count| *count <= limits::MAX_INTEGER)
                .ok_or_else(|| {
                    let message = format!("expected a count, found {found}");
                    Error::rule(Code::BadMember, rule::JSON_TYPES, message)
                }),
            _ => Err(self.bad_type("a count", value)),
        }
    }

    /// A count of at most `most`, which is the limit `name` of chapter 14.
    pub(crate) fn count_limited(self, value: &Value, most: u64, name: &str) -> Result<u64> {
        match self.count(value)? {
            count if count <= most => Ok(count),
            count => {
                let message = format!("expected at most {most} ({name}), found {count}");
                Err(Error::rule(Code::Limit, self.rule, message))
            }
        }
    }

    /// A string.
    pub(crate) fn text(self, value: &Value) -> Result<&str> {
        match value {
            Value::Str(text) => Ok(text),
            _ => Err(self.bad_type("a string", value)),
        }
    }

    /// A name, with its own code; `what` says of what.
    pub(crate) fn name(self, value: &Value, what: &str) -> Result<String> {
        let text = self.text(value)?;
        check_name(text, what)?;
        Ok(text.to_owned())
    }

    /// One of a few words; `wanted` lists them.
    pub(crate) fn word<T>(
        self,
        value: &Value,
        wanted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T> {
        let text = self.text(value)?;
        parse(text).ok_or_else(|| self.bad(format!("expected {wanted}, found {text:?}")))
    }

    /// From `least` to `most` lower-case hex digits.
    pub(crate) fn hex(self, value: &Value, least: usize, most: usize) -> Result<&str> {
        let text = self.text(value)?;
        let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digits && (least..=most).contains(&text.len()) {
            return Ok(text);
        }
        let found = if digits { format!("{}", text.len()) } else { "other characters".to_owned() };
        Err(self.bad(if least == most {
            format!("expected {most} hex digits, found {found}")
        } else {
            format!("expected {least} to {most} hex digits, found {found}")
        }))
    }

    /// At most `inline-bytes` bytes in hex.
    pub(crate) fn bytes(self, value: &Value) -> Result<Vec<u8>> {
        let text = self.hex(value, 0, usize::MAX)?;
        let (pairs, odd) = text.as_bytes().as_chunks::<2>();
        if u64::try_from(pairs.len()).is_ok_and(|bytes| bytes > limits::INLINE_BYTES) {
            let message = format!(
                "expected at most {} bytes (inline-bytes), found {}",
                limits::INLINE_BYTES,
                pairs.len()
            );
            return Err(Error::rule(Code::Limit, self.rule, message));
        }
        let byte = |pair: &[u8; 2]| {
            std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
        };
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes.filter(|_| odd.is_empty()).ok_or_else(|| {
            self.bad(format!("expected an even number of hex digits, found {}", text.len()))
        })
    }

    /// A SHA-256: 64 hex digits.
    pub(crate) fn digest(self, value: &Value) -> Result<Digest> {
        self.word(value, "64 hex digits", Digest::from_hex)
    }

    /// A value tree that is an integer.
    pub(crate) fn integer(self, value: &Value) -> Result<Integer> {
        Integer::of(&Tree::parse(value)?)
            .ok_or_else(|| self.bad("expected a value tree that is an integer, found another"))
    }

    /// A value tree that is a float.
    pub(crate) fn float(self, value: &Value) -> Result<Float> {
        Float::of(&Tree::parse(value)?)
            .ok_or_else(|| self.bad("expected a value tree that is a float, found another"))
    }

    /// A list of `[name, tree]` whose names are distinct.
    pub(crate) fn named_list(self, value: &Value) -> Result<Vec<(String, Tree)>> {
        let mut seen = HashSet::new();
        self.list(value, |_, item| {
            let name = |value| self.name(value, "name in a list");
            let (name, tree) = self.pair(item, "[name, tree]", name, Tree::parse)?;
            if !seen.insert(name.clone()) {
                return Err(self.bad(format!("expected each name once, found {name:?} again")));
            }
            Ok((name, tree))
        })
    }

    /// `[[axis, index], …]`, each axis once; whether a topology has them is not checked.
    pub(crate) fn coordinate(self, value: &Value) -> Result<Coordinate> {
        let mut seen = HashSet::new();
        self.list(value, |_, item| {
            let axis = |value| self.name(value, "axis name");
            let (axis, index) =
                self.pair(item, "[axis, index]", axis, |value| self.count(value))?;
            if !seen.insert(axis.clone()) {
                return Err(self.bad(format!("expected each axis once, found {axis:?} again")));
            }
            Ok((axis, index))
        })
    }

    /// `{"tensor":<identity>}`, checked as an alias's target. Neither its scope nor whether the
    /// tensor exists is checked.
    pub(crate) fn tensor(self, value: &Value) -> Result<Identity> {
        let mut members = self.object(value)?;
        let identity = members
            .required("tensor", |value| value.encode().and_then(|key| Identity::parse_key(&key)))?;
        members.end()?;
        Ok(identity)
    }

    #[cold]
    pub(crate) fn bad_type(self, wanted: &str, value: &Value) -> Error {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Int(_) => "an integer",
            Value::Str(_) => "a string",
            Value::List(_) => "an array",
            Value::Object(_) => "an object",
        };
        let message = format!("expected {wanted}, found {found}");
        Error::rule(Code::BadMember, rule::JSON_TYPES, message)
    }
}

/// How far the members of an object are read.
///
/// A member is asked for once, in ascending order of names, whether it must be there or not; so an
/// unknown one is seen at its place and a missing one where it would stand.
#[derive(Debug)]
pub(crate) struct Members<'v> {
    rest: Peekable<slice::Iter<'v, (String, Value)>>,
}

impl<'v> Members<'v> {
    /// The member `name`, which may be left out.
    pub(crate) fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'v Value) -> Result<T>,
    ) -> Result<Option<T>> {
        match self.rest.next_if(|(found, _)| found.as_str() <= name) {
            None => Ok(None),
            Some((found, value)) if found == name => {
                read(value).map(Some).map_err(|error| error.in_member(name))
            }
            Some((found, _)) => Err(unknown(found)),
        }
    }

    /// The member `name`, which must be there.
    pub(crate) fn required<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'v Value) -> Result<T>,
    ) -> Result<T> {
        self.optional(name, read)?.ok_or_else(|| missing(name))
    }

    /// Behind the last member that the form has.
    pub(crate) fn end(mut self) -> Result<()> {
        match self.rest.next() {
            None => Ok(()),
            Some((found, _)) => Err(unknown(found)),
        }
    }
}

/// A member that the form has and the object does not.
#[cold]
pub(crate) fn missing(name: &str) -> Error {
    let message = format!("expected a member {name:?}, found none");
    Error::rule(Code::BadMember, rule::JSON_UNKNOWN_MEMBER, message)
}

#[cold]
fn unknown(name: &str) -> Error {
    let message = format!("expected only the members of the form, found {name:?}");
    Error::rule(Code::BadMember, rule::JSON_UNKNOWN_MEMBER, message).in_member(name)
}

impl Error {
    /// What is wrong in an element of a list, as seen from the list.
    #[cold]
    pub(crate) fn in_item(self, index: usize) -> Self {
        self.under_pointer(&format!("/{index}"))
    }

    /// What is wrong in a member of an object, as seen from the object.
    #[cold]
    pub(crate) fn in_member(self, name: &str) -> Self {
        self.under_pointer(&format!("/{}", pointer_step(name)))
    }
}
