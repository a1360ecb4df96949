//! Plain JSON as Python's `json` reads and prints it, with integers of any length and floats.
//!
//! It knows JSON and value trees. Lists and tuples are both arrays, as they are to Python's `json`.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Code, Error, Result};

/// Deeper than any framework's state.
const LEVELS: u32 = 16;

/// Reads one value.
///
/// # Errors
///
/// [`Code::BadRngState`] for what is no JSON, or nests deeper than states do.
pub fn parse(input: &[u8]) -> Result<Tree> {
    let raw: &RawValue = serde_json::from_slice(input).map_err(|error| match is_repr(input) {
        true => Error::new(Code::BadRngState, REPR),
        false => bad(error),
    })?;
    value(raw, LEVELS)
}

const REPR: &str = "expected JSON, found what Python's print() gives: print the state with \
                    json.dumps(state, default=lambda a: a.tolist())";

/// Whether what is no JSON looks like a tuple, a quoted string, an array or `None` of Python.
fn is_repr(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    text.trim_start().starts_with(['(', '\''])
        || ["{'", "['", "array(", "Array(", "None", "True", "False"]
            .iter()
            .any(|sign| text.contains(sign))
}

fn value(raw: &RawValue, levels: u32) -> Result<Tree> {
    let text = raw.get();
    let Some(inner) = levels.checked_sub(1) else {
        return Err(Error::new(Code::BadRngState, format!("expected at most {LEVELS} levels")));
    };
    Ok(match text.bytes().next() {
        Some(b'n') => Tree::Null,
        Some(b't') => Tree::Bool(true),
        Some(b'f') => Tree::Bool(false),
        Some(b'"') => Tree::Str(serde_json::from_str(text).map_err(bad)?),
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(bad)?;
            Tree::List(items.into_iter().map(|item| value(item, inner)).collect::<Result<_>>()?)
        }
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(bad)?;
            let pair = |(name, raw)| Ok((MapKey::Str(name), value(raw, inner)?));
            Tree::Map(members.into_iter().map(pair).collect::<Result<_>>()?)
        }
        _ if text.contains(['.', 'e', 'E']) => {
            Tree::f64(text.parse().map_err(|_| bad_number(text))?)
        }
        // JSON has no leading zeros, so the digits are the form's own.
        _ => text.parse().map_or_else(|_| Tree::BigInt(text.to_owned()), Tree::int),
    })
}

/// Prints a value as `json.dumps` does.
///
/// # Errors
///
/// [`Code::BadArgument`] for what JSON cannot say: infinities, NaNs, and the types that no form of
/// a stream has.
pub fn print(tree: &Tree) -> Result<String> {
    let mut out = String::new();
    write(&mut out, tree)?;
    Ok(out)
}

fn write(out: &mut String, tree: &Tree) -> Result<()> {
    match tree {
        Tree::Null => out.push_str("null"),
        Tree::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Tree::Str(text) => string(out, text),
        Tree::Int(value) => out.push_str(&value.to_string()),
        Tree::BigInt(digits) => out.push_str(digits),
        Tree::F64(bits) => out.push_str(&float(f64::from_bits(*bits))?),
        Tree::List(items) | Tree::Tuple(items) => {
            out.push('[');
            separated(out, items, write)?;
            out.push(']');
        }
        Tree::Map(members) => {
            out.push('{');
            separated(out, members, |out, (key, value)| {
                match key {
                    MapKey::Str(name) => string(out, name),
                    MapKey::Int(value) => string(out, &value.to_string()),
                    MapKey::BigInt(digits) => string(out, digits),
                }
                out.push_str(": ");
                write(out, value)
            })?;
            out.push('}');
        }
        _ => return Err(Error::new(Code::BadArgument, "plain JSON cannot say this value")),
    }
    Ok(())
}

fn separated<T>(
    out: &mut String,
    items: &[T],
    mut write: impl FnMut(&mut String, &T) -> Result<()>,
) -> Result<()> {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write(out, item)?;
    }
    Ok(())
}

fn string(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// The shortest decimal that reads back as the same number; its exponent has a sign and two digits.
fn float(value: f64) -> Result<String> {
    if !value.is_finite() {
        let message = format!("plain JSON cannot say the number {value}");
        return Err(Error::new(Code::BadArgument, message));
    }
    let text = format!("{value:?}");
    Ok(match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{}e{sign}{exponent:0>2}", digits.trim_end_matches(".0"))
        }
        None => text,
    })
}

#[cold]
fn bad(error: serde_json::Error) -> Error {
    Error::new(Code::BadRngState, format!("expected JSON: {error}"))
}

#[cold]
fn bad_number(text: &str) -> Error {
    Error::new(Code::BadRngState, format!("expected a number, found {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_prints_comes_back() {
        // Printed by Python's json.dumps.
        for text in [
            "[3, [1, 4294967295], null]",
            r#"{"a": 340282366920938463463374607431768211455, "b": [-9007199254740993, 0, -1]}"#,
            "[0.0, -0.0, 1.5230298564080254, 1e-05, 0.0001, 1e+16, 123456789012345.6, 5e-324]",
            "[1.7976931348623157e+308, -1.234e-100, 9007199254740992.0]",
            r#"["\u00e9\n", true, false]"#,
        ] {
            let tree = parse(text.as_bytes()).unwrap();
            assert_eq!(print(&tree).unwrap().replace('é', "\\u00e9"), text);
        }
    }

    #[test]
    fn what_python_prints_of_values_is_told_apart() {
        for (text, is) in [
            ("(3, (1, 2), None)", true),
            ("{'bit_generator': 'PCG64'}", true),
            ("['MT19937', array([1, 2], dtype=uint32), 624]", true),
            ("[3, [1, 2], None]", true),
            ("[3, [1, 2], ", false),
            ("", false),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.message().contains("json.dumps(state, default="), is, "{error}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(20) + &"]".repeat(20);
        for text in ["", "[1,]", "[NaN]", "[01]", "[1] 2", "nul", "\u{1}", "[+1]", &deep] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().code(), Code::BadRngState, "{text}");
        }
        assert!(parse(&[0xff]).is_err());
        assert!(print(&Tree::f64(f64::NAN)).is_err());
        assert!(print(&Tree::Bytes(vec![])).is_err());
    }
}
