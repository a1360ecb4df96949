//! `verify`: every rule and byte, one finding a line.

use std::sync::Arc;

use serde_json::{Value, json};
use waystation_format::{Result, names};
use waystation_reader::{Checkpoint, VerifyOptions};
use waystation_store::Store;

use super::{Attempt, Context, open_attempt};
use crate::args::Verify;
use crate::output;

pub(super) fn run(args: &Verify, context: &Context) -> Result<u8> {
    let Attempt { store, name, .. } = open_attempt(&args.checkpoint)?;
    let options =
        VerifyOptions { quick: args.quick, threads: context.threads, progress: &context.bars };

    let report = waystation_reader::verify(&store, &options)?;
    context.bars.clear();
    let mut notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    if let (true, Some(name)) = (report.ok, name) {
        notes.extend(misnamed(store, &name, context)?);
    }
    // An environment that failed says nothing about the checkpoint, so it outranks findings.
    let exit = report.findings.iter().map(output::exit_code).max().unwrap_or(0);
    if context.json {
        let findings: Vec<Value> = report.findings.iter().map(output::error_json).collect();
        let ok = report.findings.is_empty();
        output::object(
            &json!({ "ok": ok, "quick": args.quick, "findings": findings, "notes": notes }),
        )?;
        return Ok(exit);
    }
    for finding in &report.findings {
        output::line(&finding.to_string())?;
    }
    for note in &notes {
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

/// A whole checkpoint under another name than its own is passed over by `latest` and `list`.
fn misnamed(store: Arc<dyn Store>, name: &str, context: &Context) -> Result<Option<String>> {
    let checkpoint = Checkpoint::open_store(store, context.open_options())?;
    let common = &checkpoint.manifest().common;
    let own = names::attempt_dir(common.step, &common.attempt);
    let note = || format!("name: a run passes over it, for its manifest says {own}");
    Ok((own != name).then(note))
}
