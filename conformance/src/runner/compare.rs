//! Whether an answer holds what is expected of it, and where it does not. Knows JSON and the
//! protocol's rule of comparison only.

use serde_json::{Map, Value};

use super::answer::shortened;

/// Differences that are told; more help nobody.
const MOST: usize = 12;
/// Lists longer than this are not searched for what is missing: that takes the square of it.
const SEARCHED: usize = 2000;

/// The places at which `got` is not what `expected` says, first the first, each in a line.
///
/// Members that `expected` has must be there and equal, and others may be; lists have equal lengths.
/// `hex` may be left out. A record is the object in its page, so within `records` of the answer nothing is added.
#[must_use]
pub fn differences(expected: &Value, got: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(expected, got, Members::AndMore, &mut String::new(), &mut found);
    found
}

/// Which members an object may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    /// Those expected, and others that an adapter likes to give.
    AndMore,
    /// Those expected, and a `value`, which cases leave out that would be too large.
    Record,
    /// Those expected.
    Exactly,
}

impl Members {
    /// Of what stands as `name` at `place`.
    fn within(self, place: &str, name: &str) -> Self {
        match self {
            Self::AndMore if place.is_empty() && name == "records" => Self::Record,
            Self::AndMore => self,
            Self::Record | Self::Exactly => Self::Exactly,
        }
    }

    /// Names in `there` that are too many.
    fn excess<'v>(
        self,
        wanted: &'v Map<String, Value>,
        there: &'v Map<String, Value>,
    ) -> impl Iterator<Item = (&'v String, &'v Value)> {
        let more = there.iter().filter(move |(name, _)| !wanted.contains_key(*name));
        more.filter(move |(name, _)| match self {
            Self::AndMore => false,
            Self::Record => *name != "value",
            Self::Exactly => true,
        })
    }
}

fn walk(
    expected: &Value,
    got: &Value,
    members: Members,
    place: &mut String,
    found: &mut Vec<String>,
) {
    if found.len() >= MOST {
        return;
    }
    let equal = |expected: &Value, got: &Value| equal(expected, got, members);
    match (expected, got) {
        (Value::Object(wanted), Value::Object(there)) => {
            for (name, value) in members.excess(wanted, there) {
                say(found, place, &format!("expected no {name:?}, found {}", shortened(value)));
            }
            for (name, value) in wanted {
                let (before, within) = (place.len(), members.within(place, name));
                place.push('/');
                place.push_str(&name.replace('~', "~0").replace('/', "~1"));
                match there.get(name) {
                    Some(other) => walk(value, other, within, place, found),
                    None if name == "hex" && members == Members::AndMore => {}
                    None => {
                        say(found, place, &format!("expected {}, found nothing", shortened(value)))
                    }
                }
                place.truncate(before);
            }
        }
        (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
            if wanted.len() > 1 && !equal(expected, got) && reordered(wanted, there, members) {
                say(found, place, "the same elements in another order");
                return;
            }
            for (at, (value, other)) in wanted.iter().zip(there).enumerate() {
                let before = place.len();
                place.push('/');
                place.push_str(&at.to_string());
                walk(value, other, members, place, found);
                place.truncate(before);
            }
        }
        (Value::Array(wanted), Value::Array(there)) => {
            say(
                found,
                place,
                &format!("expected {} elements, found {}", wanted.len(), there.len()),
            );
            if wanted.len().max(there.len()) <= SEARCHED {
                let lacks = wanted.iter().filter(|value| !there.iter().any(|o| equal(value, o)));
                for value in lacks.take(MOST) {
                    say(found, place, &format!("is not there: {}", shortened(value)));
                }
                let more = there.iter().filter(|other| !wanted.iter().any(|v| equal(v, other)));
                for other in more.take(MOST) {
                    say(found, place, &format!("is too much: {}", shortened(other)));
                }
            }
        }
        _ if expected == got => {}
        _ => {
            say(
                found,
                place,
                &format!("expected {}, found {}", shortened(expected), shortened(got)),
            );
        }
    }
}

fn say(found: &mut Vec<String>, place: &str, what: &str) {
    if found.len() < MOST {
        found.push(format!("{}: {what}", if place.is_empty() { "the answer" } else { place }));
    }
}

/// Whether `got` is what `expected` says, without telling where not.
fn equal(expected: &Value, got: &Value, members: Members) -> bool {
    match (expected, got) {
        (Value::Object(wanted), Value::Object(there)) => {
            let lax = |name: &str| name == "hex" && members == Members::AndMore;
            members.excess(wanted, there).next().is_none()
                && wanted.iter().all(|(name, value)| {
                    let within = members.within("/", name);
                    there.get(name).map_or(lax(name), |other| equal(value, other, within))
                })
        }
        (Value::Array(wanted), Value::Array(there)) => {
            wanted.len() == there.len()
                && wanted.iter().zip(there).all(|(v, o)| equal(v, o, members))
        }
        _ => expected == got,
    }
}

/// Whether two lists that differ hold the same elements.
fn reordered(wanted: &[Value], there: &[Value], members: Members) -> bool {
    if wanted.len() > SEARCHED {
        return false;
    }
    let mut left: Vec<&Value> = there.iter().collect();
    wanted.iter().all(|value| {
        let at = left.iter().position(|other| equal(value, other, members));
        at.map(|at| left.swap_remove(at)).is_some()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_expected_must_be_there_and_more_may() {
        let expected = json!({"step": 1, "tensors": [{"name": "w", "hex": "00"}]});
        assert!(
            differences(&expected, &json!({"more": 0, "step": 1, "tensors": [{"name": "w"}]}))
                .is_empty()
        );
        let got = json!({"step": 1.0, "tensors": [{"hex": "01"}]});
        assert_eq!(
            differences(&expected, &got),
            [
                "/step: expected 1, found 1.0",
                "/tensors/0/hex: expected \"00\", found \"01\"",
                "/tensors/0/name: expected \"w\", found nothing",
            ]
        );
    }

    #[test]
    fn a_record_is_all_of_its_object() {
        let expected = json!({"records": [{"kind": "value", "value": {"map": []}}, {"kind": "x"}]});
        assert!(differences(&expected, &expected).is_empty());
        let got =
            json!({"records": [{"kind": "value", "value": {"map": [], "set": 1}}, {"kind": "x"}]});
        let wrong = ["/records/0/value: expected no \"set\", found 1"];
        assert_eq!(differences(&expected, &got), wrong);
        let got = json!({"records": [{"kind": "value", "value": {"map": []}}, {"kind": "x", "value": {}}]});
        assert!(differences(&expected, &got).is_empty());
        let got = json!({"records": [{"kind": "value", "value": {"map": []}}, {"kind": "x", "coordinate": []}]});
        let wrong = ["/records/1: expected no \"coordinate\", found []"];
        assert_eq!(differences(&expected, &got), wrong);
        // Elsewhere an adapter may say more.
        assert!(differences(&json!({"a": [{}]}), &json!({"a": [{"set": 1}]})).is_empty());
    }

    #[test]
    fn lists_are_of_one_length_and_order() {
        assert_eq!(
            differences(&json!({"a": ["x", "y"]}), &json!({"a": ["y", "z", "w"]})),
            [
                "/a: expected 2 elements, found 3",
                "/a: is not there: \"x\"",
                "/a: is too much: \"z\"",
                "/a: is too much: \"w\"",
            ]
        );
        assert_eq!(
            differences(&json!(["x", "y"]), &json!(["y", "x"])),
            ["the answer: the same elements in another order"]
        );
        assert_eq!(differences(&json!(null), &json!({})), ["the answer: expected null, found {}"]);
    }

    #[test]
    fn not_more_is_told_than_somebody_reads() {
        let expected: Value = (0..100).map(|n| json!({"n": n})).collect();
        let got: Value = (0..100).map(|n| json!({"n": n + 1000})).collect();
        assert_eq!(differences(&expected, &got).len(), MOST);
    }
}
