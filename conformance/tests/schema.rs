//! The schemas of messages, cases and reports say what these are: everything that is made here fits.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::fs;
use std::path::Path;

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use support::{case, options};
use waystation_conformance::adapter::answer;
use waystation_conformance::explain::explain;
use waystation_conformance::runner::place::{Placed, Unplaced};
use waystation_conformance::runner::{self, Expectations, Unwatched};
use waystation_conformance::{case::Op, catalogue};

fn schema(name: &str) -> Value {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(format!("{name}.schema.json"));
    let value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    jsonschema::draft202012::meta::validate(&value).unwrap();
    value
}

fn validator(schema: &Value) -> Validator {
    jsonschema::validator_for(schema).unwrap()
}

fn fits(validator: &Validator, value: &Value, what: &str) {
    let wrong: Vec<String> = validator.iter_errors(value).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{what}: {wrong:?}: {value}");
}

#[test]
fn every_case_fits() {
    let expect = validator(&schema("expect"));
    let cases = catalogue::cases();
    assert!(cases.len() > 100);
    for case in &cases {
        fits(&expect, &json!(case.expect), &case.expect.id);
    }
    for (member, value) in [
        ("more", json!(1)),
        ("op", json!("hello")),
        ("id", json!("core/A")),
        ("codes", Value::Null),
    ] {
        let case = cases.iter().find(|case| !case.expect.codes.is_empty()).unwrap();
        let mut wrong = json!(case.expect);
        wrong[member] = value;
        assert!(!expect.is_valid(&wrong), "{member}");
    }
}

/// What a place names is among the files, and can be shown.
#[test]
fn every_case_is_explained() {
    for case in catalogue::cases() {
        let id = &case.expect.id;
        let text = explain(&case);
        assert!(text.starts_with(id.as_str()) && text.len() < 64 << 10, "{id}: {}", text.len());
        let Some(place) = &case.expect.place else { continue };
        let file = case.given.get(&place.file);
        if let Some(offset) = place.offset {
            let length = file.unwrap_or_else(|| panic!("{id}: {place:?}")).len();
            assert!(offset <= u64::try_from(length).unwrap(), "{id}: {place:?} of {length}");
            assert!(text.contains("\n> "), "{id}: {text}");
        }
        // A twin is shown by its first difference, which is what its checksums meet.
        let fitted = case.expect.made.fixed_up != Some(false);
        if let Some(pointer) = place.pointer.as_ref().filter(|_| fitted) {
            let file = file.unwrap_or_else(|| panic!("{id}: {place:?}"));
            // What is no JSON, or lacks the member, is shown by its offset or by what is around it.
            if let Ok(value) = serde_json::from_slice::<Value>(file) {
                let above = pointer.rsplit_once('/').map_or("", |(above, _)| above);
                assert!(value.pointer(above).is_some(), "{id}: {place:?}");
            }
        }
        // A name that is none of the files is one that is missing, or that a step makes.
        if file.is_none() && case.expect.setup.is_empty() {
            let missing = ["file-missing", "not-committed", "commit-grammar"];
            let missing = missing.iter().any(|code| case.expect.codes.iter().any(|c| c == code));
            assert!(missing, "{id}: {place:?} of {:?}", case.given.keys());
        }
    }
}

/// What is asked in each case, and what our own adapter answers.
#[test]
fn requests_and_answers_fit() {
    let request = validator(&schema("request"));
    let whole = schema("answer");
    let answers = validator(&whole);
    let of = |op: &str| {
        let mut schema = whole.clone();
        schema["$ref"] = json!(format!("#/$defs/{op}"));
        for member in ["required", "properties", "oneOf", "type", "$id"] {
            schema.as_object_mut().unwrap().remove(member);
        }
        validator(&schema)
    };
    let ops = ["hello", "read", "slice", "validate", "latest", "state"].map(|op| (op, of(op)));
    let hello = json!({"id": 1, "op": "hello", "protocol": 1, "spec": "1.0"});
    let mut asked = vec![hello];
    let mut kept = Vec::new();
    for case in catalogue::cases().into_iter().step_by(7) {
        let op = json!(case.expect.op);
        let mut message = Map::from_iter([("id".to_owned(), json!(1)), ("op".to_owned(), op)]);
        let placed = match Placed::new(&case.given, &case.expect.setup) {
            Ok(placed) => placed,
            Err(Unplaced::NotHere(_)) => continue,
            Err(Unplaced::Failed(e)) => panic!("{e}"),
        };
        let (member, path) = if case.expect.op == Op::Write {
            ("out", placed.root().join("out"))
        } else {
            ("path", placed.given())
        };
        message.insert(member.to_owned(), json!(path));
        message.extend(case.expect.request.clone());
        asked.push(Value::Object(message));
        kept.push(placed);
    }
    for message in &asked {
        fits(&request, message, "the request");
        let said = answer(message.to_string().as_bytes());
        fits(&answers, &said, &message.to_string());
        let op = ops.iter().find(|(op, _)| message["op"] == *op);
        if let (Some(ok), Some((_, validator))) = (said.get("ok"), op) {
            fits(validator, ok, &message.to_string());
        }
    }
    for wrong in [
        json!({"id": 1}),
        json!({"id": 1, "ok": {}, "skip": {"reason": ""}}),
        json!({"id": "1", "ok": {}}),
    ] {
        assert!(!answers.is_valid(&wrong), "{wrong}");
    }
}

#[test]
fn reports_fit() {
    let report = validator(&schema("report"));
    let cases = ["ok", "right-code", "skip", "exit", "other-code"].map(case);
    let list = "[[expected]]\ncase = \"core/other-code\"\nreason = \"x\"\nissue = \"y\"\n\
                [[expected]]\ncase = \"core/ok\"\nreason = \"x\"\n";
    let list = Expectations::parse(list).unwrap();
    let found = runner::run(&cases, &options(), Some(&list), &Unwatched).unwrap();
    let found = json!(found);
    fits(&report, &found, "the report");
    assert_eq!(found["problems"][0]["case"], "core/ok");
    assert_eq!(found["results"][4]["issue"], "y");
    let mut wrong = found;
    wrong["results"][0]["verdict"] = json!("fine");
    assert!(!report.is_valid(&wrong));
}
