//! `differential`: one directory, read by our reader and by the one in Python, which shares nothing with it but the specification.
//! Both accept it or both refuse it, for the same reason; and what they accept says the same.
//!
//! The other reader is a process that speaks the line protocol. It is started once, and again when it dies. Where there is no
//! `python3` the target says so and ends: a comparison that did not take place is not one that went well.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use arbitrary::Unstructured;
use serde_json::{Map, Value, json};
use waystation_conformance::adapter::answer;
use waystation_conformance::bend::straight;
use waystation_conformance::files::Files;
use waystation_conformance::runner::adapter::{Adapter, Limits};
use waystation_conformance::runner::answer::Answer;
use waystation_conformance::runner::compare::differences;
use waystation_conformance::runner::place::{Placed, Unplaced};
use waystation_reader::Stop;

use crate::{gen_archive, gen_mutation, gen_recipe};

/// An input that begins with this is a recipe and a mutation, any other a directory: no base has the number.
pub const RECIPE: u8 = 254;

static PYTHON: Mutex<Option<Adapter>> = Mutex::new(None);

/// Asks both readers about what the bytes stand for.
///
/// # Panics
/// If they disagree, if the other one crashes, or if there is none.
pub fn run(data: &[u8]) {
    let files = match data.split_first() {
        Some((&RECIPE, rest)) => match mutated(&mut Unstructured::new(rest)) {
            Ok(files) => files,
            Err(_) => return,
        },
        _ => gen_archive::decode(data).files,
    };
    compare(&files);
}

fn mutated(u: &mut Unstructured<'_>) -> arbitrary::Result<Files> {
    let recipe = gen_recipe::recipe(u)?;
    let files = straight(&recipe);
    let mutation = gen_mutation::mutation(u, &recipe, &files)?;
    Ok(mutation.apply(&recipe))
}

fn compare(files: &Files) {
    let placed = match Placed::new(files, &[]) {
        Ok(placed) => placed,
        // What no file system holds nobody reads.
        Err(Unplaced::NotHere(_) | Unplaced::Failed(_)) => return,
    };
    let folders: Vec<&str> =
        files.keys().filter_map(|path| path.split_once('/')).map(|(folder, _)| folder).collect();
    let Some(first) = folders.first() else {
        checkpoint(&placed.given());
        return;
    };
    agree("latest", &placed.given(), &[]);
    checkpoint(&placed.given().join(first));
}

fn checkpoint(path: &Path) {
    let read = agree("read", path, &[]);
    agree("validate", path, &[]);
    // Who asks for records alone need not open pages of tensors, and may (12.1).
    if read {
        agree("state", path, &[("topology", Value::Null)]);
    }
}

/// Both answers to one request; whether both accept.
fn agree(op: &str, path: &Path, more: &[(&str, Value)]) -> bool {
    let mut request = Map::new();
    request.insert("path".to_owned(), json!(path));
    request.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let ours = ours(op, &request);
    let theirs = theirs(op, request);
    let (a, b) = (verdict(op, &ours), verdict(op, &theirs));
    match (a, b) {
        (Ok(a), Ok(b)) => {
            let differ = differences(&a, &b);
            assert!(differ.is_empty(), "{op}: both accept it and say two things: {differ:#?}");
            true
        }
        (Err(a), Err(b)) => {
            // Both name breaches; those that both may meet first, one of them has met first.
            let alike = a == b
                || (at_data(&a) && at_data(&b))
                || op == "validate" && shares(&ours, &theirs);
            assert!(alike, "{op}: refused as {a} and as {b}:\n{ours}\n{theirs}");
            false
        }
        // A reader checks a chunk as a whole or block by block (10): one that does the one does not see what is wrong with the
        // CRCs of the other. A validator sees both, and is asked next.
        (Err(code), Ok(_)) | (Ok(_), Err(code)) if op == "read" && at_block(&code) => false,
        _ => panic!("{op}: one accepts it and one refuses it:\n{ours}\n{theirs}"),
    }
}

/// What is compared of an answer: what was found, or the code of the refusal.
fn verdict(op: &str, answer: &Value) -> Result<Value, String> {
    if let Some(code) = answer["error"]["code"].as_str() {
        return Err(code.to_owned());
    }
    let ok = &answer["ok"];
    match (op, ok["findings"].get(0)) {
        ("validate", Some(first)) => Err(first["code"].as_str().unwrap_or_default().to_owned()),
        _ => Ok(ok.clone()),
    }
}

fn at_block(code: &str) -> bool {
    matches!(code, "crc-mismatch" | "crc-table-mismatch")
}

/// What is read at depth R has no order of its own (12.2): tensors, attachments and targets are met in any order.
fn at_data(code: &str) -> bool {
    at_block(code) || matches!(code, "digest-mismatch" | "bad-alias" | "length-mismatch")
}

/// Whether the first finding of each is among those of the other: which of the breaches that one change makes come first is free.
fn shares(ours: &Value, theirs: &Value) -> bool {
    let codes = |answer: &Value| -> Vec<Value> {
        let findings = answer["ok"]["findings"].as_array().cloned();
        findings.unwrap_or_default().into_iter().map(|finding| finding["code"].clone()).collect()
    };
    let (a, b) = (codes(ours), codes(theirs));
    a.first().is_some_and(|first| b.contains(first))
        || b.first().is_some_and(|first| a.contains(first))
}

fn ours(op: &str, request: &Map<String, Value>) -> Value {
    let mut whole = request.clone();
    whole.insert("id".to_owned(), json!(1));
    whole.insert("op".to_owned(), json!(op));
    answer(Value::Object(whole).to_string().as_bytes())
}

fn theirs(op: &str, request: Map<String, Value>) -> Value {
    let mut python = PYTHON.lock().unwrap_or_else(PoisonError::into_inner);
    let mut adapter = python.take().unwrap_or_else(start);
    let sent = adapter.send(op, request);
    let received = sent.and_then(|id| adapter.receive(id, limits().time));
    match received {
        Ok(answer) => {
            *python = Some(adapter);
            match answer {
                Answer::Ok(ok) => json!({"ok": ok}),
                Answer::Refused(refusal) => json!({"error": refusal.whole}),
                Answer::Skip { reason, .. } => panic!("the other reader does not {op}: {reason}"),
            }
        }
        // It is dropped, and so killed: the next input starts another.
        Err(crash) => panic!("the other reader crashed: {crash}\n{}", adapter.errors_since(0)),
    }
}

fn start() -> Adapter {
    let script = script();
    let command: Vec<OsString> = vec!["python3".into(), "-B".into(), script.clone().into()];
    Adapter::start(&command, limits(), &Stop::new()).unwrap_or_else(|e| {
        panic!("the reader in Python does not start ({}): {e}", script.display())
    })
}

/// Where the adapter lies: in the source tree, or where `WAYSTATION_PYTHON_ADAPTER` says.
fn script() -> PathBuf {
    std::env::var_os("WAYSTATION_PYTHON_ADAPTER").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/adapters/python/adapter.py"),
        PathBuf::from,
    )
}

fn limits() -> Limits {
    Limits {
        time: Duration::from_secs(60),
        processor: Duration::from_secs(1 << 20),
        ..Limits::default()
    }
}
