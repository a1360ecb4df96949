//! Members of a request, each of the form that the protocol gives or `bad-argument`.
//!
//! It knows JSON and paths. It must not know operations.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use waystation_format::json;
use waystation_format::{Code, Coordinate, Error, Result};

/// A request: an object with an integer `id`.
#[derive(Clone, Debug)]
pub(super) struct Request(Map<String, Value>);

impl Request {
    /// Reads a line.
    pub(super) fn parse(line: &[u8]) -> Result<Self> {
        let members: Map<String, Value> = serde_json::from_slice(line).map_err(|e| {
            bad_argument(format!("expected one JSON object in one line, found {e}"))
        })?;
        if !members.get("id").is_some_and(|id| id.is_i64() || id.is_u64()) {
            return Err(bad_argument("expected an integer `id`, found none"));
        }
        Ok(Self(members))
    }

    pub(super) fn id(&self) -> Value {
        self.member("id").clone()
    }

    /// The operation, empty when there is none.
    pub(super) fn op(&self) -> &str {
        self.member("op").as_str().unwrap_or_default()
    }

    /// A member; null when it is not there.
    pub(super) fn member(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    /// An absolute path.
    pub(super) fn path(&self, name: &str) -> Result<PathBuf> {
        let text = self.member(name).as_str().unwrap_or_default();
        let path = Path::new(text);
        if !path.is_absolute() || text.contains('\0') {
            return Err(bad_argument(format!(
                "expected an absolute path as {name:?}, found {text:?}"
            )));
        }
        Ok(path.to_owned())
    }

    /// A list; empty when it is not there.
    pub(super) fn list(&self, name: &str) -> Result<&[Value]> {
        match self.member(name) {
            Value::Null => Ok(&[]),
            Value::Array(items) => Ok(items),
            _ => Err(bad_argument(format!("expected a list as {name:?}"))),
        }
    }

    /// Pairs of an axis and a number; `None` when there are none at all.
    pub(super) fn pairs(&self, name: &str) -> Result<Option<Coordinate>> {
        if self.member(name).is_null() {
            return Ok(None);
        }
        let pair = |item: &Value| match item.as_array().map(Vec::as_slice) {
            Some([axis, number]) => Some((axis.as_str()?.to_owned(), number.as_u64()?)),
            _ => None,
        };
        let pairs: Option<Vec<(String, u64)>> = self.list(name)?.iter().map(pair).collect();
        pairs
            .map(|pairs| Some(pairs.into_iter().collect()))
            .ok_or_else(|| bad_argument(format!("expected a list of [axis, number] as {name:?}")))
    }
}

/// A request that cannot be followed.
pub(super) fn bad_argument(message: impl Into<String>) -> Error {
    Error::new(Code::BadArgument, message)
}

/// A value as the format's own, which has no numbers but integers.
///
/// # Errors
/// `bad-argument` for another number.
pub(super) fn exact(value: &Value) -> Result<json::Value> {
    Ok(match value {
        Value::Null => json::Value::Null,
        Value::Bool(b) => json::Value::Bool(*b),
        Value::String(text) => json::Value::Str(text.clone()),
        Value::Number(number) => json::Value::Int(number.as_i64().ok_or_else(|| {
            bad_argument(format!("expected integers of 64 bits, found {number}"))
        })?),
        Value::Array(items) => json::Value::List(items.iter().map(exact).collect::<Result<_>>()?),
        Value::Object(members) => {
            let exact = |(name, value): (&String, &Value)| Ok((name.clone(), exact(value)?));
            json::Value::Object(members.iter().map(exact).collect::<Result<_>>()?)
        }
    })
}

/// A list of numbers.
pub(super) fn numbers(value: &Value) -> Option<Vec<i64>> {
    value.as_array()?.iter().map(Value::as_i64).collect()
}
