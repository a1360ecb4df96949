//! What reaches the user: text made safe for a terminal, one JSON object, exit codes.
//! Knows errors and streams. It must not know commands.

use std::io::{self, Write};

use serde_json::{Value, json};
use waystation_format::{Class, Code, Error};

/// The exit status for an error, as the program's help says.
pub(crate) fn exit_code(error: &Error) -> u8 {
    match error.code() {
        Code::Interrupted => 130,
        Code::BadArgument | Code::BadRegion => 2,
        _ if error.class() == Class::Io => 3,
        _ => 1,
    }
}

/// An error or finding as JSON; places that are not known are left out.
pub(crate) fn error_json(error: &Error) -> Value {
    let mut object = serde_json::Map::new();
    object.insert("code".into(), json!(error.code().as_str()));
    object.insert("class".into(), json!(error.class().as_str()));
    let place = error.location();
    for (name, text) in [
        ("file", &place.file),
        ("pointer", &place.pointer),
        ("record", &place.record),
        ("tensor", &place.tensor),
    ] {
        if let Some(text) = text {
            object.insert(name.into(), json!(text));
        }
    }
    if let Some(offset) = place.offset {
        object.insert("offset".into(), json!(offset));
    }
    if let Some(rule) = error.rule_id() {
        object.insert("rule".into(), json!(rule));
    }
    object.insert("message".into(), json!(error.message()));
    object.insert("remedy".into(), json!(error.code().remedy()));
    Value::Object(object)
}

/// Names and messages may come from a hostile checkpoint: nothing in them may steer a terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// Control and bidirectional characters, all in the basic plane.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A byte count for people: three digits and a decimal unit.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::DecimalBytes(count).to_string()
}

/// Writes a line to standard output. A reader that went away (`| head`) is no error.
pub(crate) fn line(text: &str) -> waystation_format::Result<()> {
    write(printable(text).as_bytes())?;
    write(b"\n")
}

/// Writes one JSON object and a newline to standard output.
pub(crate) fn object(value: &Value) -> waystation_format::Result<()> {
    write(json_text(value).as_bytes())?;
    write(b"\n")
}

/// JSON of the same value in which nothing steers a terminal: such characters stand in strings only,
/// where an escape means the same.
pub(crate) fn json_text(value: &Value) -> String {
    let text = value.to_string();
    if !text.chars().any(steers) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { out.push_str(&format!("\\u{:04x}", u32::from(c))) } else { out.push(c) }
    }
    out
}

fn write(bytes: &[u8]) -> waystation_format::Result<()> {
    match io::stdout().lock().write_all(bytes) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::io("write to standard output", e))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error, where nothing more can be done about a failure.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes() {
        for (code, exit) in [
            (Code::CrcMismatch, 1),
            (Code::Exists, 1),
            (Code::NotFound, 1),
            (Code::BadArgument, 2),
            (Code::IoFull, 3),
            (Code::Interrupted, 130),
        ] {
            assert_eq!(exit_code(&Error::new(code, "")), exit, "{code}");
        }
    }

    #[test]
    fn terminals_are_not_steered() {
        assert_eq!(printable("a\u{1b}[2J\u{202e}é"), "a\\u{1b}[2J\\u{202e}é");
        let value = json!({ "name": "a\u{9b}2J\u{202e}\u{7f}é\n" });
        let text = json_text(&value);
        assert_eq!(text, r#"{"name":"a\u009b2J\u202e\u007fé\n"}"#);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
