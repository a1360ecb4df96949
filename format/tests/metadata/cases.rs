//! Tables of one fault each: what is changed in a sound file, and what the answer must be.

use serde_json::{Value, json};
use waystation_format::{Code, Error, Result};

/// What is done to the value at a pointer.
pub(crate) enum Edit {
    Set(Value),
    /// Adds a member, or an item where the pointer's last step is a position.
    Add(Value),
    Remove,
}
use Edit::{Add, Remove, Set};

fn apply(file: &mut Value, pointer: &str, edit: &Edit) {
    let (parent, step) = pointer.rsplit_once('/').unwrap();
    let step = step.replace("~1", "/");
    let parent = file.pointer_mut(parent).expect(pointer);
    match (parent, edit) {
        (Value::Object(members), Set(value)) => {
            assert!(members.insert(step, value.clone()).is_some(), "{pointer}");
        }
        (Value::Object(members), Add(value)) => {
            assert!(members.insert(step, value.clone()).is_none(), "{pointer}");
        }
        (Value::Object(members), Remove) => assert!(members.remove(&step).is_some(), "{pointer}"),
        (Value::Array(items), edit) => {
            let position: usize = step.parse().unwrap();
            match edit {
                Set(value) => items[position] = value.clone(),
                Add(value) => items.insert(position, value.clone()),
                Remove => drop(items.remove(position)),
            }
        }
        _ => panic!("{pointer}"),
    }
}

pub(crate) type Case = (&'static str, Edit, Code, &'static str, &'static str);

/// Applies each case to `file` and compares the answer of `parse`.
pub(crate) fn check<T: std::fmt::Debug>(
    file: &Value,
    cases: Vec<Case>,
    parse: impl Fn(&Value) -> Result<T>,
) {
    parse(file).unwrap();
    let mut wrong = Vec::new();
    for (pointer, edit, code, rule, place) in cases {
        let mut broken = file.clone();
        apply(&mut broken, pointer, &edit);
        match parse(&broken) {
            Err(error) if answers(&error, code, rule, place) => {}
            other => {
                wrong.push(format!("{pointer}: wanted {code} {rule} at {place:?}, got {other:?}"))
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub(crate) fn answers(error: &Error, code: Code, rule: &str, place: &str) -> bool {
    let found = error.location().pointer.as_deref();
    error.code() == code && error.rule_id() == Some(rule) && found == Some(place)
}

/// A string that is too long for what has a limit below.
pub(crate) fn long(bytes: usize) -> Value {
    json!("x".repeat(bytes))
}
