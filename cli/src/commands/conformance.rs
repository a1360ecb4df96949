//! `conformance`: the suite's runner on a terminal. What a case is and what an answer is worth is
//! `waystation-conformance`'s business.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::json;
use waystation_conformance::case::{Case, Profile};
use waystation_conformance::runner::matrix::matrix;
use waystation_conformance::runner::report::SPEC;
use waystation_conformance::runner::{
    self, CaseResult, Expectations, Options, Report, Selection, Watcher,
};
use waystation_conformance::{catalogue, explain, export, runner::report};
use waystation_format::{Code, Error, Result};
use waystation_reader::Stop;

use super::Context;
use crate::args::{
    Conformance, ConformanceAction, ConformanceExplain, ConformanceExport, ConformanceList,
    ConformanceMatrix, ConformanceRun, ConformanceVerify, ProfileArg,
};
use crate::output;
use crate::progress::Bars;

pub(super) fn run(args: &Conformance, context: &Context) -> Result<u8> {
    let cases = catalogue::cases();
    match &args.action {
        ConformanceAction::Run(args) => put(args, &cases, context),
        ConformanceAction::List(args) => list(args, &cases, context),
        ConformanceAction::Explain(args) => explain(args, &cases, context),
        ConformanceAction::Export(args) => export(args, &cases, context),
        ConformanceAction::Verify(args) => verify(args, &cases, context),
        ConformanceAction::Matrix(args) => self::matrix_of(args, &cases, context),
    }
}

fn profiles(args: &[ProfileArg]) -> Vec<Profile> {
    args.iter().map(|arg| arg.profile()).collect()
}

fn put(args: &ConformanceRun, cases: &[Case], context: &Context) -> Result<u8> {
    let expected = args.expect.as_deref().map(|path| Expectations::read(path, args.fix));
    let expected = expected.transpose()?;
    let options = Options {
        adapter: args.adapter.clone(),
        selection: Selection { profiles: profiles(&args.profile), cases: args.cases.clone() },
        level: args.level,
        isolate: args.isolate,
        kills: args.kills,
        limits: args.limits.limits(),
    };
    if let Some(dir) = &args.report {
        // Not found out after all cases were run.
        fs::create_dir_all(dir)
            .map_err(|e| Error::io("make a directory", e).in_file(dir.display().to_string()))?;
    }
    let found = runner::run(cases, &options, expected.as_ref(), &context.bars)?;
    context.bars.clear();
    if context.json {
        output::object(&json!(found))?;
    } else {
        for line in report::text(&found).lines() {
            output::line(line)?;
        }
    }
    // What was found is told, also where it cannot be kept.
    if let Some(dir) = &args.report {
        found.write(dir)?;
    }
    match (&args.expect, expected) {
        (Some(path), Some(list)) if args.fix => fix(path, &list, cases, &found),
        _ => Ok(u8::from(!found.fine)),
    }
}

/// Rewrites the list; what it cannot put right stays wrong.
fn fix(path: &Path, list: &Expectations, cases: &[Case], found: &Report) -> Result<u8> {
    let text = list.fixed(cases, found);
    if fs::read_to_string(path).ok().as_ref() != Some(&text) {
        replace(path, &text)
            .map_err(|e| Error::io("write", e).in_file(path.display().to_string()))?;
        output::note(&format!("waystation: wrote {}", path.display()));
    }
    let left = found.beyond_listing();
    for reason in &left {
        output::note(&format!("waystation: cannot be listed: {reason}"));
    }
    Ok(u8::from(!left.is_empty()))
}

/// The whole file or the one before.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = fs::File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

fn list(args: &ConformanceList, cases: &[Case], context: &Context) -> Result<u8> {
    let selection = Selection { profiles: profiles(&args.profile), cases: Vec::new() };
    let chosen: Vec<&Case> = cases.iter().filter(|case| selection.chooses(case)).collect();
    if context.json {
        let cases: Vec<_> = chosen.iter().map(|case| &case.expect).collect();
        output::object(
            &json!({ "spec": SPEC, "suite": env!("CARGO_PKG_VERSION"), "cases": cases }),
        )?;
        return Ok(0);
    }
    let width = chosen.iter().map(|case| case.expect.id.len()).max().unwrap_or(0);
    for case in &chosen {
        output::line(&format!("{:width$}  {}", case.expect.id, case.expect.fault))?;
    }
    Ok(0)
}

fn explain(args: &ConformanceExplain, cases: &[Case], context: &Context) -> Result<u8> {
    let case = cases.iter().find(|case| case.expect.id == args.id).ok_or_else(|| {
        let near =
            cases.iter().map(|case| case.expect.id.as_str()).filter(|id| id.contains(&args.id));
        let near: Vec<&str> = near.take(5).collect();
        let advice = if near.is_empty() {
            String::new()
        } else {
            format!("; there are {}", near.join(", "))
        };
        Error::new(
            Code::BadArgument,
            format!("expected the id of a case, found {:?}{advice}", args.id),
        )
    })?;
    let text = explain::explain(case);
    if context.json {
        output::object(&json!({ "expect": case.expect, "text": text }))?;
        return Ok(0);
    }
    text.lines().try_for_each(output::line)?;
    Ok(0)
}

fn export(args: &ConformanceExport, cases: &[Case], context: &Context) -> Result<u8> {
    let files = export::export(cases, &args.dir)?;
    if context.json {
        output::object(&json!({ "cases": cases.len(), "files": files }))?;
    } else {
        output::line(&format!("{}: {} cases in {files} files", args.dir.display(), cases.len()))?;
    }
    Ok(0)
}

fn verify(args: &ConformanceVerify, cases: &[Case], context: &Context) -> Result<u8> {
    let found = export::differences(cases, &args.dir)?;
    if context.json {
        output::object(&json!({ "ok": found.is_empty(), "differences": found }))?;
    } else if found.is_empty() {
        output::line(&format!("{}: ok, {} cases", args.dir.display(), cases.len()))?;
    } else {
        found.iter().try_for_each(|line| output::line(line))?;
    }
    Ok(u8::from(!found.is_empty()))
}

fn matrix_of(args: &ConformanceMatrix, cases: &[Case], context: &Context) -> Result<u8> {
    let found = matrix(cases, &args.adapter, args.limits.limits(), &context.bars)?;
    context.bars.clear();
    if context.json {
        output::object(&json!(found))?;
    } else {
        let text = if args.markdown { found.markdown() } else { found.text() };
        text.lines().try_for_each(output::line)?;
    }
    Ok(u8::from(!found.is_fine()))
}

impl Watcher for Bars {
    fn begin(&self, cases: usize) {
        self.begin_count("cases", u64::try_from(cases).unwrap_or(u64::MAX));
    }

    fn done(&self, _result: &CaseResult) {
        self.step();
    }

    fn advance(&self) {
        self.step();
    }

    fn stop(&self) -> Stop {
        self.wish().clone()
    }
}
