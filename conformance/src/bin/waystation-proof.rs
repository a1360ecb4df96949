//! Runs all that the suite claims of itself, and writes or compares the tables that say so.
//!
//! It knows the adapters beneath `ROOT/conformance/adapters`, and the Rust one beside itself.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;

use waystation_conformance::catalogue;
use waystation_conformance::proof::{self, Reader};
use waystation_conformance::runner::matrix::{Party, matrix};
use waystation_conformance::runner::{Limits, Report, Unwatched};
use waystation_format::Error;

const USAGE: &str = "usage: waystation-proof (--write | --check) ROOT

  Puts every case to the implementations of this project, to readers that are wrong on purpose, and to readers that
  lack one rule each; fails when one that is right fails, one that is wrong passes, or a rule is not shown.

  --write ROOT   also write ROOT/conformance/coverage.md and the table in ROOT/README.md
  --check ROOT   compare them instead
";
const BEGIN: &str = "<!-- gen:conformance -->\n";
const END: &str = "<!-- /gen -->";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--write", root] => prove(Path::new(root), true),
        ["--check", root] => prove(Path::new(root), false),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            eprintln!("waystation-proof:\n  {}", wrong.join("\n  "));
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("waystation-proof: {message}");
            ExitCode::from(3)
        }
    }
}

/// What is wrong, in sentences.
fn prove(root: &Path, write: bool) -> Result<Vec<String>, String> {
    let cases = catalogue::cases();
    let adapters = root.join("conformance/adapters");
    println!("{} cases", cases.len());
    let mut wrong = Vec::new();

    let all = implementations(&adapters)?;
    let reports = proof::readers(&cases, &all, &Unwatched).map_err(said)?;
    for (reader, report) in &reports {
        judge(reader, report, &mut wrong);
    }
    let parties: Vec<Party> = all
        .iter()
        .map(|one| Party { name: one.name.clone(), command: one.command.clone() })
        .collect();
    let matrix = matrix(&cases, &parties, Limits::default(), &Unwatched).map_err(said)?;
    if !matrix.is_fine() {
        wrong.push(format!("not everyone reads what everyone writes:\n{}", matrix.text()));
    }
    let table = format!("{}\n{}", proof::table(&reports), matrix.markdown());
    println!("\n{table}");

    for caught in proof::broken(&cases, &adapters.join("broken/adapter.py")).map_err(said)? {
        println!("{:<22} caught by {:>3}, {}", caught.name, caught.by.len(), first(&caught.by));
        if caught.by.is_empty() {
            wrong.push(format!("{} is caught by no case", caught.name));
        }
        wrong.extend(caught.wrong.iter().map(|case| format!("{}: {case}", caught.name)));
    }

    let threads = thread::available_parallelism().map_or(1, usize::from);
    let coverage = proof::coverage(&cases, &adapters.join("python"), threads).map_err(said)?;
    println!("\n{} rules, {} with holes", coverage.rows.len(), coverage.holes().len());
    wrong.extend(coverage.holes());

    keep(&root.join("conformance/coverage.md"), &coverage.markdown(), write, &mut wrong)?;
    let readme = root.join("README.md");
    let text = read(&readme)?;
    let new = between(&text, &table).ok_or_else(|| format!("README.md lacks {BEGIN}"))?;
    keep(&readme, &new, write, &mut wrong)?;
    Ok(wrong)
}

/// Our own crates, the independent readers, and what runs them.
fn implementations(adapters: &Path) -> Result<Vec<Reader>, String> {
    let here = std::env::current_exe().map_err(|e| e.to_string())?;
    let rust = here.with_file_name("waystation-adapter");
    if !rust.is_file() {
        return Err(format!("{} is not there: build it first", rust.display()));
    }
    let of = |name: &str, command: Vec<PathBuf>| Reader {
        name: name.to_owned(),
        command: command.into_iter().map(Into::into).collect(),
        level: 3,
    };
    let mut all = vec![
        of("Rust crates", vec![rust]),
        of(
            "Python reader",
            vec!["python3".into(), "-B".into(), adapters.join("python/adapter.py")],
        ),
    ];
    let script = adapters.join("javascript/adapter.mjs");
    if script.is_file() {
        // The table in the README has it, so its absence is a failure and no footnote.
        Command::new("node").arg("--version").output().map_err(|e| {
            format!(
                "node cannot be started ({e}): install Node.js, which runs {}",
                script.display()
            )
        })?;
        all.push(of("JavaScript reader", vec!["node".into(), script]));
    }
    Ok(all)
}

fn judge(reader: &Reader, report: &Report, wrong: &mut Vec<String>) {
    wrong.extend(report.reasons().iter().map(|why| format!("{}: {why}", reader.name)));
    for result in &report.results {
        use waystation_conformance::runner::Verdict;
        if matches!(result.verdict, Verdict::Fail | Verdict::Crash) {
            let why = result.why.first().map_or("", String::as_str);
            wrong.push(format!(
                "{}: {}: expected {}, got {} {why}",
                reader.name, result.id, result.expected, result.got
            ));
        }
        if result.verdict == Verdict::NotRun {
            println!("NOT RUN {}: {} ({})", reader.name, result.id, result.got);
        }
    }
}

fn keep(path: &Path, text: &str, write: bool, wrong: &mut Vec<String>) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    if write {
        println!("wrote {}", path.display());
        return fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()));
    }
    wrong.push(format!(
        "{} is not what the suite says: cargo xtask conformance --write",
        path.display()
    ));
    Ok(())
}

fn between(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn first(ids: &[String]) -> &str {
    ids.first().map_or("none", String::as_str)
}

fn said(error: Error) -> String {
    error.to_string()
}
