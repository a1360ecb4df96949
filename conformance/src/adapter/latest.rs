//! Which attempt of a run is to be resumed.

use serde_json::{Value, json};
use waystation_format::{Code, Result};
use waystation_reader::latest;
use waystation_store::open_path;

use super::Request;

pub(super) fn answer(request: &Request) -> Result<Value> {
    let run = open_path(&request.path("path")?)?;
    match latest(&run) {
        Ok(found) => Ok(json!({ "name": found.name })),
        Err(e) if e.code() == Code::NoCheckpoint => Ok(json!({ "name": null })),
        Err(e) => Err(e),
    }
}
