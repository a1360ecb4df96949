//! Where two records of one key differ: a pointer for each place, with both values.
//!
//! It knows JSON. What a place means is the record's chapter's business.

use waystation_format::Result;
use waystation_format::json::{Value, pointer_step};
use waystation_format::record::Record;

/// Places that are told of one record; the rest is counted.
const PLACES: usize = 20;
/// Characters of a value that are shown.
const SHOWN: usize = 48;

/// One line on each place, at most [`PLACES`], and one on how many more there are.
pub(super) fn differences(a: &Record, b: &Record) -> Result<Vec<String>> {
    let mut places = Vec::new();
    walk(&a.value()?, &b.value()?, &mut "/value".to_owned(), &mut places);
    let more = places.len().saturating_sub(PLACES);
    places.truncate(PLACES);
    if more > 0 {
        places.push(format!("and {more} more places"));
    }
    Ok(places)
}

/// Depth is bounded by that of canonical JSON.
fn walk(a: &Value, b: &Value, at: &mut String, places: &mut Vec<String>) {
    let length = at.len();
    match (a, b) {
        _ if a == b => {}
        (Value::Object(x), Value::Object(y)) => {
            let mut names: Vec<&str> = x.keys().chain(y.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                at.push('/');
                at.push_str(&pointer_step(name));
                both(x.get(name), y.get(name), at, places);
                at.truncate(length);
            }
        }
        (Value::List(x), Value::List(y)) => {
            for index in 0..x.len().max(y.len()) {
                at.push_str(&format!("/{index}"));
                both(x.get(index), y.get(index), at, places);
                at.truncate(length);
            }
        }
        _ => places.push(format!("{at}: {} and {}", shown(a), shown(b))),
    }
}

fn both(a: Option<&Value>, b: Option<&Value>, at: &mut String, places: &mut Vec<String>) {
    match (a, b) {
        (Some(a), Some(b)) => walk(a, b, at, places),
        (Some(a), None) => places.push(format!("{at}: {} only in the first", shown(a))),
        (None, Some(b)) => places.push(format!("{at}: {} only in the second", shown(b))),
        (None, None) => {}
    }
}

/// A value in few characters. States differ anywhere, so both ends are shown.
fn shown(value: &Value) -> String {
    let Ok(text) = value.encode() else { return "a value".to_owned() };
    let count = text.chars().count();
    if count <= SHOWN {
        return text;
    }
    let half = SHOWN / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count.saturating_sub(half)).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: &str) -> Record {
        Record::new("x.kind", "n", Vec::new(), &Value::parse(value).unwrap()).unwrap()
    }

    #[test]
    fn each_place_is_named_with_both_values() {
        let a = record(r#"{"a":1,"b":{"c":[1,2]},"d":"x","same":[1]}"#);
        let b = record(r#"{"a":2,"b":{"c":[1,3,4]},"e":null,"same":[1]}"#);
        assert_eq!(
            differences(&a, &b).unwrap(),
            [
                "/value/a: 1 and 2",
                "/value/b/c/1: 2 and 3",
                "/value/b/c/2: 4 only in the second",
                r#"/value/d: "x" only in the first"#,
                "/value/e: null only in the second",
            ]
        );
        assert_eq!(differences(&a, &a).unwrap(), [""; 0]);
    }

    #[test]
    fn long_values_and_long_lists_are_cut() {
        let list = |n: i64| {
            let items: Vec<String> = (0..30).map(|i| (i + n).to_string()).collect();
            record(&format!(r#"{{"l":[{}]}}"#, items.join(",")))
        };
        let lines = differences(&list(0), &list(1)).unwrap();
        assert_eq!((lines.len(), lines[PLACES].as_str()), (PLACES + 1, "and 10 more places"));
        let state = |end: &str| record(&format!(r#"{{"s":"{}{end}"}}"#, "0".repeat(5000)));
        let lines = differences(&state("a"), &state("b")).unwrap();
        assert!(lines[0].ends_with("0000b\""), "{}", lines[0]);
        assert!(lines[0].len() < 150);
    }
}
