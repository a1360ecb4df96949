//! A small tree of a JSON value, for what records carry.
//!
//! It knows JSON and nothing of records. Files are never read into it as a whole.

use super::{Cursor, Encoder, Kind, Map, check_canonical_value};
use crate::limits::JSON_DEPTH;
use crate::{Code, Error, Result, rule};

/// A JSON value with integers only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer within ±(2^53 - 1).
    Int(i64),
    /// A string.
    Str(String),
    /// An array.
    List(Vec<Value>),
    /// An object; names are of characters U+0020 to U+007E.
    Object(Map),
}

impl Value {
    /// Reads a canonical text.
    ///
    /// # Errors
    /// [`Code::NotCanonical`] or [`Code::Limit`], with the offset, when it is not canonical.
    pub fn parse(text: &str) -> Result<Self> {
        Self::read(&mut Cursor::new(check_canonical_value(text.as_bytes())?))
    }

    /// Reads the value at the cursor, whose text is canonical and so at most 100 levels deep.
    ///
    /// # Errors
    /// [`Code::NotCanonical`] only when the text is not what it must be.
    pub fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        Self::read_within(cursor, JSON_DEPTH)
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`Code::Limit`] when it is deeper than a text may be. That its integers and members' names
    /// have their form is seen when the whole text is checked.
    pub fn write(&self, json: &mut Encoder) -> Result<()> {
        self.write_within(json, JSON_DEPTH)
    }

    /// The canonical text.
    ///
    /// # Errors
    /// [`Code::Limit`] when it is deeper than a text may be, [`Code::NotCanonical`] when an
    /// integer or a member's name is outside its form.
    pub fn encode(&self) -> Result<String> {
        let mut json = Encoder::new();
        self.write(&mut json)?;
        let text = json.into_string();
        check_canonical_value(text.as_bytes())?;
        Ok(text)
    }

    /// The members, if it is an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The member `name` of an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }

    fn read_within(cursor: &mut Cursor<'_>, levels: u64) -> Result<Self> {
        Ok(match cursor.peek() {
            Some(Kind::Bool) => Self::Bool(cursor.bool()?),
            Some(Kind::Int) => Self::Int(cursor.int()?),
            Some(Kind::Str) => Self::Str(cursor.string()?.into_owned()),
            Some(Kind::Array) => {
                let inner = deeper(levels)?;
                let mut items = cursor.begin_array()?;
                let mut list = Vec::new();
                while cursor.next_item(&mut items)? {
                    list.push(Self::read_within(cursor, inner)?);
                }
                Self::List(list)
            }
            Some(Kind::Object) => {
                let inner = deeper(levels)?;
                let mut members = cursor.begin_object()?;
                let mut object = Map::new();
                while let Some(name) = cursor.next_member(&mut members)? {
                    object.insert(name.into_owned(), Self::read_within(cursor, inner)?);
                }
                Self::Object(object)
            }
            _ if cursor.null() => Self::Null,
            _ => return Err(cursor.bad_type(cursor.offset(), "a value")),
        })
    }

    fn write_within(&self, json: &mut Encoder, levels: u64) -> Result<()> {
        match self {
            Self::Null => json.null(),
            Self::Bool(value) => json.bool(*value),
            Self::Int(value) => json.int(*value),
            Self::Str(text) => json.string(text),
            Self::List(list) => {
                let inner = deeper(levels)?;
                json.begin_array();
                list.iter().try_for_each(|item| item.write_within(json, inner))?;
                json.end_array();
            }
            Self::Object(members) => {
                let inner = deeper(levels)?;
                json.begin_object();
                for (name, value) in members {
                    json.member(name);
                    value.write_within(json, inner)?;
                }
                json.end_object();
            }
        }
        Ok(())
    }
}

/// One level less than `levels`: bounds the recursion.
fn deeper(levels: u64) -> Result<u64> {
    levels.checked_sub(1).ok_or_else(|| {
        let message = format!("expected at most {JSON_DEPTH} levels of nesting, found more");
        Error::rule(Code::Limit, rule::JSON_DEPTH, message)
    })
}
