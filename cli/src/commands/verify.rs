//! `verify`: every rule and byte, one finding a line.

use serde_json::{Value, json};
use waystation_format::Result;
use waystation_reader::VerifyOptions;

use super::Context;
use crate::args::Verify;
use crate::output;

pub(super) fn run(args: &Verify, context: &Context) -> Result<u8> {
    let store = waystation_store::open_path(&args.checkpoint)?;
    let options =
        VerifyOptions { quick: args.quick, threads: context.threads, progress: &context.bars };

    let report = waystation_reader::verify(&store, &options)?;
    context.bars.clear();
    // An environment that failed says nothing about the checkpoint, so it outranks findings.
    let exit = report.findings.iter().map(output::exit_code).max().unwrap_or(0);
    if context.json {
        let findings: Vec<Value> = report.findings.iter().map(output::error_json).collect();
        let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
        let ok = report.findings.is_empty();
        output::object(
            &json!({ "ok": ok, "quick": args.quick, "findings": findings, "notes": notes }),
        )?;
        return Ok(exit);
    }
    for finding in &report.findings {
        output::line(&finding.to_string())?;
    }
    for note in &report.notes {
        output::line(&format!("note: {note}"))?;
    }
    let path = args.checkpoint.display();
    match report.findings.len() {
        0 if args.quick => {
            output::line(&format!("{path}: ok (metadata and lengths; data not read)"))?
        }
        0 => output::line(&format!("{path}: ok, every byte"))?,
        1 => output::line(&format!("{path}: 1 finding"))?,
        n => output::line(&format!("{path}: {n} findings"))?,
    }
    Ok(exit)
}
