//! `list` and `latest`: what a run holds.

use serde_json::json;
use waystation_format::{Code, Error, Result};
use waystation_reader::{State, VerifyOptions, latest as latest_of, list as list_run};

use super::Context;
use crate::args::{Latest, List};
use crate::operations::{self, open_run};
use crate::output;

pub(super) fn list(args: &List, context: &Context) -> Result<u8> {
    let run = open_run(&args.run)?;
    let all = list_run(&run)?;
    if context.json {
        output::object(&json!({ "attempts": operations::list_json(&all) }))?;
        return Ok(0);
    }
    if all.is_empty() {
        output::line("no attempts")?;
    }
    // What `latest` answers, when it answers: the newest timeline first, not the greatest step.
    let latest = latest_of(&run).ok().map(|latest| latest.name);
    for listed in &all {
        let mut line = format!(
            "{}  step {:>9}  timeline {:>3}  {}",
            listed.name,
            listed.step,
            listed.attempt.timeline,
            state_text(&listed.state)
        );
        if latest.as_ref() == Some(&listed.name) {
            line.push_str("  latest");
        }
        if let Some(reason) = &listed.marks.rejected {
            line.push_str(&format!("  rejected: {reason}"));
        }
        for pin in &listed.marks.pins {
            line.push_str(&format!("  pin-{pin}"));
        }
        output::line(&line)?;
    }
    Ok(0)
}

pub(super) fn latest(args: &Latest, context: &Context) -> Result<u8> {
    let found = match operations::latest(&args.run) {
        Err(e) if args.or_nothing && is_fresh(&e, args)? => {
            output::note(&format!("nothing to resume from: {}", e.message()));
            if context.json {
                output::object(&json!({ "name": null, "path": null }))?;
            }
            return Ok(0);
        }
        found => found?,
    };
    let path = found.path.display().to_string();
    for (name, why) in &found.latest.skipped {
        output::note(&format!("skipped {name}: {why}"));
    }
    let mut findings = Vec::new();
    if args.verify {
        let options =
            VerifyOptions { quick: false, threads: context.threads, progress: &context.bars };

        let report = waystation_reader::verify(&found.latest.store, &options)?;
        context.bars.clear();
        findings = report.findings;
    }
    if context.json {
        let mut object = found.json();
        if args.verify
            && let Some(object) = object.as_object_mut()
        {
            object.insert("ok".into(), json!(findings.is_empty()));
            object.insert("findings".into(), findings.iter().map(output::error_json).collect());
        }
        output::object(&object)?;
    } else if findings.is_empty() {
        output::line(&path)?;
    } else {
        for finding in &findings {
            output::note(&finding.to_string());
        }
        let advice = "do not resume from it; `waystation reject` makes `latest` pass over it";
        output::note(&format!("{path} is damaged: {advice}"));
    }
    Ok(findings.iter().map(output::exit_code).max().unwrap_or(0))
}

/// Whether a job begins where this is the answer: nothing was ever committed, or there is no run yet.
fn is_fresh(e: &Error, args: &Latest) -> Result<bool> {
    let there = || args.run.try_exists().map_err(|e| Error::io("look for the run", e));
    match e.code() {
        Code::NoCheckpoint => Ok(true),
        Code::NotFound => Ok(!there()?),
        _ => Ok(false),
    }
}

fn state_text(state: &State) -> String {
    match state {
        State::Complete { bytes, .. } => format!("complete     {:>10}", output::bytes(*bytes)),
        State::Uncommitted => "uncommitted".to_owned(),
        State::Deleted => "deleted".to_owned(),
        State::Damaged(e) => format!("damaged: {e}"),
        State::Unsupported(e) => format!("unsupported: {e}"),
        State::Unreadable(e) => format!("unreadable: {e}"),
        _ => "unknown".to_owned(),
    }
}
