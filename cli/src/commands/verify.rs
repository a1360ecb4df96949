//! `verify`: every rule and byte, one finding a line.

use waystation_format::Result;

use super::Context;
use crate::args::Verify;
use crate::{operations, output};

pub(super) fn run(args: &Verify, context: &Context) -> Result<u8> {
    let report = operations::verify(&args.checkpoint, args.quick, &context.work())?;
    context.bars.clear();
    // An environment that failed says nothing about the checkpoint, so it outranks findings.
    let exit = report.findings.iter().map(output::exit_code).max().unwrap_or(0);
    if context.json {
        output::object(&report.json())?;
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
