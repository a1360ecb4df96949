//! JSON between Python and the specification's own forms.
//!
//! Python's `json` prints members in any order and with spaces; the format's own parser takes
//! canonical text only. This module knows how to bring one to the other. It must not know any
//! member.

use waystation_format::json::Value;
use waystation_format::{Code, Error, Result, limits, rule};

/// Reads any JSON text whose numbers are integers, as all in the specification's forms are.
///
/// # Errors
/// `bad-argument` for what is no JSON, or has floats or larger integers than metadata may hold.
pub(crate) fn value(text: &str) -> Result<Value> {
    let parsed = serde_json::from_str(text).map_err(|error| {
        Error::new(Code::BadArgument, format!("expected JSON of the specification's form: {error}"))
    })?;
    from_serde(parsed, limits::JSON_DEPTH)
}

fn from_serde(parsed: serde_json::Value, levels: u64) -> Result<Value> {
    let deeper = || {
        levels.checked_sub(1).ok_or_else(|| {
            let message = format!("expected at most {} levels, found more", limits::JSON_DEPTH);
            Error::rule(Code::Limit, rule::JSON_DEPTH, message)
        })
    };
    Ok(match parsed {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(truth) => Value::Bool(truth),
        serde_json::Value::String(text) => Value::Str(text),
        serde_json::Value::Number(number) => Value::Int(integer(&number)?),
        serde_json::Value::Array(items) => {
            let inner = deeper()?;
            let items = items.into_iter().map(|item| from_serde(item, inner));
            Value::List(items.collect::<Result<_>>()?)
        }
        serde_json::Value::Object(members) => {
            let inner = deeper()?;
            let members =
                members.into_iter().map(|(name, item)| Ok((name, from_serde(item, inner)?)));
            Value::Object(members.collect::<Result<_>>()?)
        }
    })
}

/// An integer that metadata may hold.
fn integer(number: &serde_json::Number) -> Result<i64> {
    let within = |value: &i64| value.unsigned_abs() <= limits::MAX_INTEGER;
    number.as_i64().filter(within).ok_or_else(|| {
        let message = format!(
            "expected integers within 2^53, larger ones and floats as the specification spells them \
             (16.6), found {number}"
        );
        Error::new(Code::BadArgument, message)
    })
}
