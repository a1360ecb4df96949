//! A case in words: what is in it, what is asked, what must come, what the specification says about it, and the
//! place of the fault. For whoever looks for his bug.

use std::fmt::Write as _;

use serde_json::Value;
use waystation_format::rule;

use crate::case::{Case, Effect, Level, Op, Outcome, Place, Step};
use crate::runner::grade::expectation;

/// Bytes in a row of a dump.
const ROW: usize = 16;
/// Rows before and after the fault's.
const AROUND: usize = 3;
/// Lines of JSON that are shown.
const LINES: usize = 24;

/// Everything about the case, as text.
#[must_use]
pub fn explain(case: &Case) -> String {
    let expect = &case.expect;
    let level = match expect.level {
        Level::Required => "required",
        Level::Recommended => "recommended: a failure is reported and fails nothing",
        Level::Optional => "optional: a failure is reported and fails nothing",
    };
    let mut out = format!("{}\n{}\n\n", expect.id, expect.fault);
    let _ = writeln!(out, "profile   {}, {level}", expect.profile);
    let _ = writeln!(out, "expected  {}", expectation(expect));
    if let Some(class) = expect.class.as_deref().filter(|_| expect.outcome == Outcome::Reject) {
        let _ =
            writeln!(out, "levels    1 any refusal, 2 a code of class {class}, 3 one of the codes");
    }
    if let Some(latitude) = &expect.latitude {
        let _ = writeln!(out, "latitude  {latitude}");
    }
    if let Some(effect) = expect.effect {
        let _ = writeln!(out, "at stake  {}", at_stake(effect));
    }
    if let Some(origin) = &expect.origin {
        let _ = writeln!(out, "seen in   {origin}");
    }
    if !expect.features.is_empty() {
        let _ = writeln!(out, "needs     {}", expect.features.join(", "));
    }
    let made = &expect.made;
    let parts = [made.base.as_deref(), made.mutation.as_deref()];
    let made_of: Vec<&str> = parts.into_iter().flatten().collect();
    if !made_of.is_empty() {
        let fixed = match made.fixed_up {
            Some(true) => "; everything after it was recomputed",
            Some(false) => "; nothing else was changed",
            None => "",
        };
        let _ = writeln!(out, "made      {}{fixed}", made_of.join(", "));
    }
    if let Some(twin) = &made.twin {
        let _ = writeln!(out, "twin      {twin}");
    }
    request(&mut out, case);
    if let Some(answer) = &expect.answer {
        let _ = writeln!(
            out,
            "\nThe answer, as far as it is compared:\n\n{}",
            indented(&lines(answer))
        );
    }
    if let Some(place) = &expect.place {
        out.push_str(&show(place, case));
    }
    for id in &expect.rules {
        let _ = match rule::find(id) {
            Some(rule) => {
                writeln!(out, "\n[{id}] {} (spec/{})\n  {}", rule.actor, rule.chapter, rule.text)
            }
            None => writeln!(out, "\n[{id}]"),
        };
    }
    out
}

fn request(out: &mut String, case: &Case) {
    let expect = &case.expect;
    let op = serde_json::to_value(expect.op).unwrap_or_default();
    let place = if expect.op == Op::Write { "out" } else { "path" };
    let mut request = serde_json::Map::new();
    request.insert("id".to_owned(), Value::from(1));
    request.insert("op".to_owned(), op);
    request.insert(
        place.to_owned(),
        Value::from(format!("…/{}", if place == "out" { "out" } else { "given" })),
    );
    request.extend(expect.request.clone());
    let _ = writeln!(out, "\nThe request:\n\n{}", indented(&lines(&Value::Object(request))));
    if !case.given.is_empty() {
        out.push_str("\nThe files:\n\n");
        for (path, bytes) in &case.given {
            let _ = writeln!(out, "  {:>9}  {path}", bytes.len());
        }
    }
    for step in &expect.setup {
        let _ = writeln!(out, "  then {}", words(step));
    }
}

fn words(step: &Step) -> String {
    match step {
        Step::Symlink { path, target } => format!("{path} becomes a link to {target}"),
        Step::Link { path, target } => format!("{path} becomes another name of {target}"),
        Step::Fifo { path } => format!("{path} becomes a pipe that nobody writes to"),
        Step::Mkdir { path } => format!("{path} becomes a directory"),
        Step::Truncate { path, bytes } => {
            format!("{path} gets {bytes} bytes, with a hole or cut off")
        }
        Step::Rename { path, to } => format!("{path} is renamed to {to}"),
        Step::Deny { path } => format!("{path} may not be read any more"),
    }
}

fn at_stake(effect: Effect) -> &'static str {
    match effect {
        Effect::SilentCorruption => "other values than were saved are taken for them",
        Effect::WrongResume => "training goes on from a state that it never had",
        Effect::HalfWritten => "something that is not a checkpoint is taken for one",
        Effect::LostCheckpoint => "a checkpoint that is good is refused, or not found",
        Effect::Overread => "bytes outside the file or buffer are read",
        Effect::Exhaustion => "memory or time out of proportion",
        Effect::Escape => "files outside the directory are read or written",
        Effect::Ambiguity => "two implementations read two things from one file",
        Effect::Deception => "what a person sees is not what there is",
    }
}

/// The bytes or the JSON around a place.
fn show(place: &Place, case: &Case) -> String {
    let mut out = format!("\nThe fault: {}", place.file);
    let bytes = case.given.get(&place.file);
    if let Some(offset) = place.offset {
        let _ = writeln!(out, ", byte {offset}");
        if let Some(bytes) = bytes {
            let _ = write!(out, "\n{}", dump(bytes, usize::try_from(offset).unwrap_or(usize::MAX)));
        }
    } else if let Some(pointer) = &place.pointer {
        let _ = writeln!(out, ", {}", if pointer.is_empty() { "all of it" } else { pointer });
        let value = bytes.and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
        if let Some(value) = value.as_ref().and_then(|value| nearest(value, pointer)) {
            let _ = writeln!(out, "\n{}", indented(&lines(value)));
        }
    } else {
        out.push('\n');
    }
    out
}

/// The value at a pointer, or the nearest around a place where there is none.
fn nearest<'v>(value: &'v Value, pointer: &str) -> Option<&'v Value> {
    let mut pointer = pointer;
    loop {
        if let Some(found) = value.pointer(pointer) {
            return Some(found);
        }
        pointer = pointer.rsplit_once('/')?.0;
    }
}

fn lines(value: &Value) -> Vec<String> {
    let text = format!("{value:#}");
    let mut lines: Vec<String> = text.lines().take(LINES).map(str::to_owned).collect();
    let more = text.lines().count().saturating_sub(LINES);
    if more > 0 {
        lines.push(format!("… {more} lines more"));
    }
    lines
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Rows of hex and text around `at`, whose row is marked.
fn dump(bytes: &[u8], at: usize) -> String {
    let fault = at / ROW;
    let first = fault.saturating_sub(AROUND);
    let rows =
        bytes.chunks(ROW).enumerate().skip(first).take(AROUND.saturating_mul(2).saturating_add(1));
    let mut out = String::new();
    for (number, row) in rows {
        let mark = if number == fault { '>' } else { ' ' };
        let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = row
            .iter()
            .map(|b| if (0x20..0x7f).contains(b) { char::from(*b) } else { '.' })
            .collect();
        let start = number.saturating_mul(ROW);
        let width = ROW.saturating_mul(3);
        let _ = writeln!(out, "{mark} {start:08x}  {:<width$} {text}", hex.join(" "));
    }
    if at >= bytes.len() {
        let _ = writeln!(out, "> {:08x}  the end", bytes.len());
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dump_marks_the_row_of_the_fault() {
        let dump = dump(&(0..100).collect::<Vec<u8>>(), 65);
        assert_eq!(dump.lines().count(), 6);
        assert_eq!(
            dump.lines().find(|line| line.starts_with('>')).unwrap(),
            "> 00000040  40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f  @ABCDEFGHIJKLMNO"
        );
        assert!(super::dump(b"abc", 3).ends_with("> 00000003  the end\n"));
    }

    #[test]
    fn a_missing_member_shows_what_it_is_missing_from() {
        let value = json!({"a": {"b": 1}});
        assert_eq!(nearest(&value, "/a/c/d"), Some(&json!({"b": 1})));
        assert_eq!(nearest(&value, ""), Some(&value));
    }
}
