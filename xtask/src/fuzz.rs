//! `cargo xtask fuzz`: a front to the targets in `fuzz/`. Knows which programs to run with which flags; what a target tests is its
//! own business.

mod coverage;
mod engine;
mod log;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use engine::{Outcome, Sanitizer};

const USAGE: &str = "usage: cargo xtask fuzz <verb>

  list                          the targets, with what each was fuzzed so far
  seeds [TARGET]                pack seeds from the conformance suite into fuzz/corpus
  run TARGET|all [--seconds N] [--asan]
                                fuzz for N seconds each, 60 if not said; without --asan a stable toolchain will do
  replay TARGET FILE…           run inputs once, without a fuzzer
  nightly [--seconds N]         with AddressSanitizer N seconds each (1200), then shrink each corpus; fails on a finding
  minimize TARGET FILE          make an input that fails smaller
  unpack FILE FOLDER            write the directory that an input of open, sources or differential stands for
  pack FOLDER FILE              make an input of a directory
  coverage [TARGET]             lines of the crates that the corpora reach
  table [--check]               add what was run to fuzz/runs.tsv, and write its table into fuzz/README.md

Fuzzing needs cargo-fuzz (`cargo install cargo-fuzz --locked`) and a C++ compiler; --asan, nightly and coverage a nightly toolchain,
coverage also its component llvm-tools. Inputs that fail are kept in fuzz/artifacts/TARGET.

Examples:
  cargo xtask fuzz seeds && cargo xtask fuzz run page --seconds 300
  cargo xtask fuzz replay open fuzz/artifacts/open/crash-…
  cargo xtask fuzz unpack fuzz/artifacts/open/crash-… /tmp/crash && waystation verify /tmp/crash
  cargo xtask fuzz run all --seconds 20          # what a pull request gets
";

/// Runs a verb.
///
/// # Errors
/// One sentence; the usage for words that are none.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let fuzz = Fuzz { root: root.to_path_buf() };
    match words {
        ["list"] => fuzz.list(),
        ["seeds"] => fuzz.seeds(None),
        ["seeds", target] => fuzz.seeds(Some(fuzz.known(target)?)),
        ["run", target, options @ ..] => {
            let (seconds, sanitizer) = options_of(options, 60)?;
            fuzz.run(&fuzz.chosen(target)?, seconds, sanitizer)
        }
        ["nightly", options @ ..] => {
            let (seconds, _) = options_of(options, 1200)?;
            fuzz.nightly(seconds)
        }
        ["replay", target, files @ ..] if !files.is_empty() => {
            fuzz.replay(fuzz.known(target)?, files)
        }
        ["minimize", target, file] => {
            engine::minimize(&fuzz, fuzz.known(target)?, &absolute(file)?)
        }
        [verb @ ("unpack" | "pack"), from, to] => fuzz.archive(verb, from, to),
        ["coverage"] => coverage::run(&fuzz, &fuzz.targets()?),
        ["coverage", target] => coverage::run(&fuzz, &[fuzz.known(target)?.to_owned()]),
        ["table"] => log::write_table(&fuzz, false),
        ["table", "--check"] => log::write_table(&fuzz, true),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(format!("fuzz: no verb {:?}\n\n{USAGE}", other.join(" "))),
    }
}

/// The fuzz crate, in its repository.
struct Fuzz {
    root: PathBuf,
}

impl Fuzz {
    fn folder(&self) -> PathBuf {
        self.root.join("fuzz")
    }

    /// Where what fuzzing builds lies: flags of its own must not throw other builds away.
    fn target_dir(&self) -> PathBuf {
        self.folder().join("target")
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.folder().join("corpus").join(target)
    }

    fn artifacts(&self, target: &str) -> PathBuf {
        self.folder().join("artifacts").join(target)
    }

    /// The targets: each has a program.
    fn targets(&self) -> Result<Vec<String>> {
        let folder = self.folder().join("fuzz_targets");
        let listed =
            std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let stem = |entry: std::fs::DirEntry| Some(entry.path().file_stem()?.to_str()?.to_owned());
        let mut names: Vec<String> = listed.flatten().filter_map(stem).collect();
        names.sort();
        Ok(names)
    }

    fn known<'t>(&self, target: &'t str) -> Result<&'t str> {
        let all = self.targets()?;
        if all.iter().any(|name| name == target) {
            return Ok(target);
        }
        Err(format!("fuzz: no target {target}; there are {}", all.join(", ")))
    }

    fn chosen(&self, target: &str) -> Result<Vec<String>> {
        if target == "all" { self.targets() } else { Ok(vec![self.known(target)?.to_owned()]) }
    }

    fn list(&self) -> Result<()> {
        let log = log::read(self);
        for target in self.targets()? {
            let seeds = std::fs::read_dir(self.corpus(&target)).map_or(0, Iterator::count);
            let sum = log::sum(&log, &target);
            println!(
                "{target:<14} {seeds:>6} in its corpus  {:>12} executions  {:>6.1} minutes",
                sum.executions,
                sum.minutes()
            );
        }
        Ok(())
    }

    fn seeds(&self, only: Option<&str>) -> Result<()> {
        let mut command = cargo(&self.root);
        command.args(["run", "--quiet", "--release", "-p", "waystation-fuzz"]);
        command.args(["--bin", "waystation-fuzz-seeds", "--"]).arg(self.folder().join("corpus"));
        command.args(only);
        done(&mut command)
    }

    fn replay(&self, target: &str, files: &[&str]) -> Result<()> {
        let mut command = cargo(&self.root);
        command.args(["run", "--quiet", "-p", "waystation-fuzz", "--bin", target, "--"]);
        for file in files {
            command.arg(absolute(file)?);
        }
        done(&mut command)
    }

    fn archive(&self, verb: &str, from: &str, to: &str) -> Result<()> {
        let mut command = cargo(&self.root);
        command.args(["run", "--quiet", "-p", "waystation-fuzz", "--bin"]);
        command.args(["waystation-fuzz-archive", "--", verb]);
        done(command.arg(absolute(from)?).arg(absolute(to)?))
    }

    /// Fuzzes targets one after the other, and says what came of it. One that does not run keeps none after it from running.
    fn run(&self, targets: &[String], seconds: u64, sanitizer: Sanitizer) -> Result<()> {
        let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
        for (number, target) in (1_usize..).zip(targets) {
            println!("=== {target} ({number} of {}), {seconds} s ===", targets.len());
            if std::fs::read_dir(self.corpus(target)).is_err() {
                self.seeds(Some(target))?;
            }
            match engine::run(self, target, seconds, sanitizer) {
                Ok(outcome) => {
                    log::add(self, &outcome)?;
                    outcomes.push(outcome);
                }
                Err(why) => failed.push(why),
            }
        }
        println!(
            "\n{:<14} {:>12} {:>8} {:>8} {:>8}",
            "target", "executions", "seconds", "edges", "corpus"
        );
        for Outcome { target, executions, seconds, edges, corpus, failed, .. } in &outcomes {
            let finding = if *failed { "  FINDING" } else { "" };
            println!("{target:<14} {executions:>12} {seconds:>8} {edges:>8} {corpus:>8}{finding}");
        }
        for Outcome { target, input, .. } in outcomes.iter().filter(|outcome| outcome.failed) {
            let input = input.as_deref().unwrap_or("no input, see above");
            failed.push(format!("a finding in {target}: {input}"));
        }
        all_went_well(&failed)
    }

    fn nightly(&self, seconds: u64) -> Result<()> {
        let targets = self.targets()?;
        let mut failed: Vec<String> =
            self.run(&targets, seconds, Sanitizer::Address).err().into_iter().collect();
        for target in &targets {
            failed.extend(engine::shrink(self, target).err());
        }
        all_went_well(&failed)
    }
}

fn options_of(words: &[&str], seconds: u64) -> Result<(u64, Sanitizer)> {
    let mut chosen = (seconds, Sanitizer::None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--asan" => chosen.1 = Sanitizer::Address,
            "--seconds" => {
                let number = words.next().and_then(|text| text.parse().ok());
                chosen.0 = number.ok_or("fuzz: expected a number after --seconds")?;
            }
            other => return Err(format!("fuzz: no option {other}\n\n{USAGE}")),
        }
    }
    Ok(chosen)
}

/// The cargo that runs this program.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn all_went_well(failed: &[String]) -> Result<()> {
    if failed.is_empty() { Ok(()) } else { Err(format!("fuzz: {}", failed.join("\n  "))) }
}

/// A path that a person gives is one from where they are; programs run at the root.
fn absolute(path: &str) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| format!("{path}: {e}"))
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_others_refused() {
        assert_eq!(options_of(&[], 60).unwrap(), (60, Sanitizer::None));
        assert_eq!(options_of(&["--asan", "--seconds", "5"], 60).unwrap(), (5, Sanitizer::Address));
        assert!(options_of(&["--seconds"], 60).is_err());
        assert!(options_of(&["--hours", "1"], 60).is_err());
    }
}
