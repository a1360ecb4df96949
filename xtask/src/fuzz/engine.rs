//! A fuzzer as a process: its flags, its progress, and what it says at the end. Knows libFuzzer's words.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Fuzz, done};
use crate::{Result, nightly};

/// How often progress is told.
const TOLD: Duration = Duration::from_secs(15);

/// What watches memory while a target runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sanitizer {
    /// Nothing: a stable toolchain will do.
    None,
    /// AddressSanitizer, which needs nightly.
    Address,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) target: String,
    pub(super) executions: u64,
    pub(super) seconds: u64,
    /// Edges of the program that its corpus reaches.
    pub(super) edges: u64,
    pub(super) corpus: u64,
    pub(super) failed: bool,
    /// Where the input lies that failed.
    pub(super) input: Option<String>,
    pub(super) asan: bool,
}

/// Fuzzes a target for a time.
///
/// # Errors
/// When there is no cargo-fuzz, or it does not build.
pub(super) fn run(
    fuzz: &Fuzz,
    target: &str,
    seconds: u64,
    sanitizer: Sanitizer,
) -> Result<Outcome> {
    let mut command = cargo_fuzz(fuzz, "run", target, sanitizer);
    let artifacts = fuzz.artifacts(target);
    std::fs::create_dir_all(&artifacts).map_err(|e| format!("{}: {e}", artifacts.display()))?;
    command.arg(fuzz.corpus(target)).arg("--");
    command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
    command.args(options(fuzz, target)?);
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{command:?}: {e}: is cargo-fuzz installed?"))?;
    let mut outcome = Outcome {
        target: target.to_owned(),
        asan: sanitizer == Sanitizer::Address,
        ..Outcome::default()
    };
    let mut told = Instant::now();
    let mut begun = None;
    if let Some(errors) = child.stderr.take() {
        for line in BufReader::new(errors).lines() {
            let line = line.map_err(|e| format!("{target}: {e}"))?;
            let progress = hear(&mut outcome, &line);
            if progress {
                begun.get_or_insert_with(Instant::now);
            }
            // Its own lines of progress come by the hundred.
            if !progress || told.elapsed() >= TOLD {
                println!("{line}");
                told = Instant::now();
            }
        }
    }
    let status = child.wait().map_err(|e| format!("{target}: {e}"))?;
    outcome.failed = !status.success();
    outcome.seconds = begun.map_or(0, |begun| begun.elapsed().as_secs());
    if outcome.failed && outcome.executions == 0 {
        return Err(format!("fuzz: {target} did not run: {status}"));
    }
    Ok(outcome)
}

/// Takes what a line says; whether it is one of progress.
fn hear(outcome: &mut Outcome, line: &str) -> bool {
    if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
        outcome.executions = count.trim().parse().unwrap_or(outcome.executions);
    }
    if let Some((_, input)) = line.split_once("Test unit written to ") {
        outcome.input = Some(input.to_owned());
    }
    let Some(rest) = line.strip_prefix('#') else { return false };
    let mut words = rest.split_whitespace();
    let Some(Ok(count)) = words.next().map(str::parse) else { return false };
    outcome.executions = count;
    while let Some(word) = words.next() {
        let number = |text: Option<&str>| text.and_then(|t| t.split('/').next()?.parse().ok());
        match word {
            "cov:" => outcome.edges = number(words.next()).unwrap_or(outcome.edges),
            "corp:" => outcome.corpus = number(words.next()).unwrap_or(outcome.corpus),
            _ => {}
        }
    }
    true
}

/// Makes an input that fails smaller.
///
/// # Errors
/// What cargo-fuzz says.
pub(super) fn minimize(fuzz: &Fuzz, target: &str, file: &Path) -> Result<()> {
    let mut command = cargo_fuzz(fuzz, "tmin", target, Sanitizer::None);
    done(command.arg(file))
}

/// Drops from a corpus what others reach as well.
///
/// # Errors
/// What cargo-fuzz says.
pub(super) fn shrink(fuzz: &Fuzz, target: &str) -> Result<()> {
    let mut command = cargo_fuzz(fuzz, "cmin", target, Sanitizer::Address);
    done(command.arg(fuzz.corpus(target)))
}

fn cargo_fuzz(fuzz: &Fuzz, verb: &str, target: &str, sanitizer: Sanitizer) -> Command {
    let mut command = match sanitizer {
        Sanitizer::None => super::cargo(&fuzz.root),
        Sanitizer::Address => nightly::cargo(&fuzz.root),
    };
    command.args(["fuzz", verb]);
    if sanitizer == Sanitizer::None {
        command.args(["-s", "none"]);
    }
    command.arg("--target-dir").arg(fuzz.target_dir()).arg(target);
    command
}

/// The flags of `fuzz/TARGET.options`, the file that other fuzzing services read as well.
fn options(fuzz: &Fuzz, target: &str) -> Result<Vec<String>> {
    let path = fuzz.folder().join(format!("{target}.options"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let flags = text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| {
        let (name, value) = (name.trim(), value.trim());
        match name {
            "dict" => format!("-dict={}", fuzz.folder().join("dict").join(value).display()),
            _ => format!("-{name}={value}"),
        }
    });
    Ok(flags.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_says_is_heard() {
        let mut outcome = Outcome::default();
        assert!(hear(
            &mut outcome,
            "#4096\tpulse  cov: 812 ft: 2300 corp: 120/8Kb lim: 4096 exec/s: 2048 rss: 90Mb"
        ));
        assert_eq!((outcome.executions, outcome.edges, outcome.corpus), (4096, 812, 120));
        assert!(!hear(&mut outcome, "stat::number_of_executed_units: 5000"));
        assert_eq!(outcome.executions, 5000);
        assert!(!hear(&mut outcome, "INFO: seed corpus: files: 3"));
        assert!(!hear(&mut outcome, "artifact_prefix='x/'; Test unit written to x/crash-0a"));
        assert_eq!(outcome.input.as_deref(), Some("x/crash-0a"));
    }
}
