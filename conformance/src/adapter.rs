//! The adapter of this project's own crates: one request a line in, one answer a line out.
//!
//! It knows the line protocol (`protocol.md`) and asks the reader's, the writer's and the state's crates. It decides nothing
//! about a checkpoint itself.

mod hello;
mod latest;
mod read;
mod request;
mod slice;
mod state;
mod validate;
mod write;

use std::io::{self, BufRead, Write};

use serde_json::{Map, Value, json};
use waystation_format::{Error, Result};

use request::{Request, bad_argument};

pub use write::save_recipe;

/// Answers until the input ends.
///
/// # Errors
/// Those of the two streams.
pub fn serve(input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        writeln!(output, "{}", answer(&line))?;
        output.flush()?;
    }
}

/// The answer to one line, whatever it holds.
#[must_use]
pub fn answer(line: &[u8]) -> Value {
    let request = match Request::parse(line) {
        Ok(request) => request,
        Err(e) => return json!({ "id": null, "error": said_of(&e) }),
    };
    let id = request.id();
    let Some(operation) = operation(&request) else {
        return json!({ "id": id, "skip": { "reason": "an operation that this adapter does not know" } });
    };
    match operation(&request) {
        Ok(ok) => json!({ "id": id, "ok": ok }),
        Err(e) => json!({ "id": id, "error": said_of(&e) }),
    }
}

type Operation = fn(&Request) -> Result<Value>;

fn operation(request: &Request) -> Option<Operation> {
    Some(match request.op() {
        "hello" => hello::answer,
        "read" => read::answer,
        "slice" => slice::answer,
        "validate" => validate::answer,
        "latest" => latest::answer,
        "state" => state::answer,
        "write" => write::answer,
        _ => return None,
    })
}

/// An error as the protocol has it.
fn said_of(e: &Error) -> Value {
    let mut said = Map::new();
    said.insert("code".to_owned(), json!(e.code().to_string()));
    said.insert("message".to_owned(), json!(e.message()));
    if let Some(rule) = e.rule_id() {
        said.insert("rule".to_owned(), json!(rule));
    }
    let place = e.location();
    if let Some(file) = &place.file {
        said.insert("file".to_owned(), json!(file));
    }
    if let Some(offset) = place.offset {
        said.insert("offset".to_owned(), json!(offset));
    }
    if let Some(pointer) = &place.pointer {
        said.insert("pointer".to_owned(), json!(pointer));
    }
    Value::Object(said)
}
