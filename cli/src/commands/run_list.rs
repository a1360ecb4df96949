//! `list` and `latest`: what a run holds.

use serde_json::{Value, json};
use waystation_format::Result;
use waystation_reader::{Listed, State, VerifyOptions, latest as latest_of, list as list_run};

use super::{Context, open_run};
use crate::args::{Latest, List};
use crate::output;

pub(super) fn list(args: &List, context: &Context) -> Result<u8> {
    let run = open_run(&args.run)?;
    let all = list_run(&run)?;
    if context.json {
        let attempts: Vec<Value> = all.iter().map(as_json).collect();
        output::object(&json!({ "attempts": attempts }))?;
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
    let run = open_run(&args.run)?;
    let found = latest_of(&run)?;
    let path = args.run.join(&found.name).display().to_string();
    for (name, why) in &found.skipped {
        output::note(&format!("skipped {name}: {why}"));
    }
    let mut findings = Vec::new();
    if args.verify {
        let options =
            VerifyOptions { quick: false, threads: context.threads, progress: &context.bars };

        let report = waystation_reader::verify(&found.store, &options)?;
        context.bars.clear();
        findings = report.findings;
    }
    let skipped: Vec<Value> = found
        .skipped
        .iter()
        .map(|(name, why)| json!({ "name": name, "error": output::error_json(why) }))
        .collect();
    if context.json {
        let mut object = json!({
            "name": found.name, "path": path, "step": found.step,
            "digest": found.digest.to_string(), "skipped": skipped,
        });
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

fn as_json(listed: &Listed) -> Value {
    let (state, error) = match &listed.state {
        State::Complete { .. } => ("complete", None),
        State::Uncommitted => ("uncommitted", None),
        State::Deleted => ("deleted", None),
        State::Damaged(e) => ("damaged", Some(e)),
        State::Unsupported(e) => ("unsupported", Some(e)),
        State::Unreadable(e) => ("unreadable", Some(e)),
        _ => ("unknown", None),
    };
    let mut object = json!({
        "name": listed.name, "step": listed.step, "timeline": listed.attempt.timeline, "attempt": listed.attempt.to_string(), "state": state,
        "rejected": listed.marks.rejected, "pins": listed.marks.pins,
    });
    if let Some(map) = object.as_object_mut() {
        if let State::Complete { digest, bytes } = &listed.state {
            map.insert("digest".into(), json!(digest.to_string()));
            map.insert("bytes".into(), json!(bytes));
        }
        if let Some(error) = error {
            map.insert("error".into(), output::error_json(error));
        }
    }
    object
}
