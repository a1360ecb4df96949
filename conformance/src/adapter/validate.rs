//! Every breach of a checkpoint.

use serde_json::{Value, json};
use waystation_format::Result;
use waystation_reader::{VerifyOptions, verify};
use waystation_store::open_path;

use super::{Request, said_of};

pub(super) fn answer(request: &Request) -> Result<Value> {
    let store = open_path(&request.path("path")?)?;
    let report = verify(&store, &VerifyOptions { threads: 1, ..VerifyOptions::default() })?;
    let findings: Vec<Value> = report.findings.iter().map(said_of).collect();
    Ok(json!({ "findings": findings }))
}
