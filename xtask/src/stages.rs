//! `cargo xtask test`: everything that must hold before a change lands, one stage after another.
//! Knows which tools prove what; their output goes to the terminal untouched.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Result, deny, python_package, real_model, suite, tree};

/// A stage does its work and says in an error what failed.
type Work = fn(&Path) -> Result<Outcome>;

enum Outcome {
    Passed,
    /// It passed, but for something that could not be looked at, and why.
    PassedBut(String),
    /// There is nothing to run, and why.
    Absent(String),
}

/// In order: quick ones first, so that a slip is seen in seconds.
const STAGES: [(&str, Work); 12] = [
    ("fmt", |root| cargo(root, &["fmt", "--all", "--check"])),
    ("tree", |root| tree::run(root).map(|()| Outcome::Passed)),
    ("gen", |root| crate::generate(root, true).map(|()| Outcome::Passed)),
    ("deny", dependencies),
    ("clippy", |root| {
        cargo(
            root,
            &[
                "clippy",
                "--locked",
                "--workspace",
                "--all-targets",
                "--all-features",
                "--",
                "-Dwarnings",
            ],
        )
    }),
    ("doc", doc),
    ("test", |root| cargo(root, &["test", "--locked", "--workspace"])),
    ("python", python),
    ("sweep", sweep),
    ("model", model),
    ("proof", |root| suite::prove(root, true).map(|()| Outcome::Passed)),
    ("package", |root| python_package::test(root).map(|()| Outcome::Passed)),
];

/// Runs the stages named in `only`, or all, and stops at the first failure.
///
/// # Errors
/// The stage that failed, or a name that is no stage.
pub(crate) fn run(root: &Path, only: &[&str]) -> Result<()> {
    let names: Vec<&str> = STAGES.iter().map(|(name, _)| *name).collect();
    if let Some(other) = only.iter().find(|name| !names.contains(name)) {
        return Err(format!("no stage {other}; there are {}", names.join(", ")));
    }
    let mut summary = Vec::new();
    let mut failed = None;
    for (name, work) in STAGES {
        if !only.is_empty() && !only.contains(&name) {
            continue;
        }
        if failed.is_some() {
            summary.push(format!("{name:<8} not run"));
            continue;
        }
        println!("\n=== {name} ===");
        let before = tree::strays(root)?;
        let start = Instant::now();
        let done = work(root).and_then(|outcome| clean(root, &before).map(|()| outcome));
        let time = seconds(start.elapsed());
        match done {
            Ok(Outcome::Passed) => summary.push(format!("{name:<8} passed {time}")),
            Ok(Outcome::PassedBut(why)) => {
                println!("{why}");
                summary.push(format!("{name:<8} passed {time}, but {why}"));
            }
            Ok(Outcome::Absent(why)) => {
                println!("{why}");
                summary.push(format!("{name:<8} ABSENT: {why}"));
            }
            Err(why) => {
                summary.push(format!("{name:<8} FAILED {time}"));
                failed = Some((name, why));
            }
        }
    }
    println!("\n=== summary ===\n{}", summary.join("\n"));
    match failed {
        None => Ok(()),
        Some((name, why)) => Err(format!("stage {name} failed: {why}")),
    }
}

/// Fails where there are files that were not there before: what runs in somebody's tree leaves nothing in it.
fn clean(root: &Path, before: &BTreeSet<String>) -> Result<()> {
    let left: Vec<String> = tree::strays(root)?.difference(before).cloned().collect();
    if left.is_empty() { Ok(()) } else { Err(format!("it left behind {}", left.join(", "))) }
}

/// What is depended on. The tool takes minutes to build, so it is not fetched here.
fn dependencies(root: &Path) -> Result<Outcome> {
    Ok(match deny::run(root)? {
        deny::Outcome::Passed => Outcome::Passed,
        deny::Outcome::NoAdvisories(why) => Outcome::PassedBut(why),
        deny::Outcome::Absent(why) => Outcome::Absent(why),
    })
}

/// Documentation without broken links.
fn doc(root: &Path) -> Result<Outcome> {
    let mut command = cargo_command(root);
    command.args(["doc", "--locked", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-Dwarnings");
    status(command)
}

/// Fails when unittest finds nothing to run: by itself it would call that fine.
const COUNT_TESTS: &str = "import sys, unittest
found = unittest.defaultTestLoader.discover(sys.argv[1]).countTestCases()
sys.exit(None if found else 'no tests in ' + sys.argv[1])";

/// The independent reader in Python and its own tests.
fn python(root: &Path) -> Result<Outcome> {
    let folder = "conformance/adapters/python";
    if !root.join(folder).is_dir() {
        return Ok(Outcome::Absent(format!("{folder} is not there")));
    }
    let mut count = Command::new("python3");
    count.args(["-B", "-c", COUNT_TESTS, folder]).current_dir(root);
    status(count)?;
    let mut command = Command::new("python3");
    command.args(["-B", "-m", "unittest", "discover", "-v", "-s", folder]).current_dir(root);
    status(command)
}

/// Every bit of a small checkpoint flipped, power lost at every call, and hundreds of real kills:
/// optimized, or it takes an hour.
fn sweep(root: &Path) -> Result<Outcome> {
    let tests = ["--test", "every_bit", "--test", "crash", "--test", "kill", "--test", "power"];
    let mut command = cargo_command(root);
    command.args([
        "test",
        "--locked",
        "--release",
        "-p",
        "waystation-writer",
        "--features",
        "sweep",
    ]);
    command.args(tests).args(["--", "--nocapture"]);
    status(command)
}

/// The whole way of a real model, beside other readers of its shards.
fn model(root: &Path) -> Result<Outcome> {
    let fetched = real_model::fetch(root)?;
    let mut command = cargo_command(root);
    command.args(["test", "--locked", "--release", "-p", "waystation-cli"]);
    command.args(["--features", "real-model", "--test", "real_model", "--test", "memory"]);
    command.args(["--", "--nocapture"]);
    command.env("WAYSTATION_REAL_MODEL", fetched.model).env("WAYSTATION_PYTHON", fetched.python);
    status(command)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    let mut command = cargo_command(root);
    command.args(arguments);
    status(command)
}

/// The cargo that runs this program.
fn cargo_command(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn status(mut command: Command) -> Result<Outcome> {
    let shown = format!("{command:?}");
    let status = command.status().map_err(|e| format!("{shown}: {e}"))?;
    if status.success() { Ok(Outcome::Passed) } else { Err(format!("{shown}: {status}")) }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stage_leaves_is_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let before = tree::strays(root).unwrap();
        let left = root.join(format!("left-{}", std::process::id()));
        std::fs::write(&left, "").unwrap();
        let why = clean(root, &before);
        std::fs::remove_file(&left).unwrap();
        assert!(why.unwrap_err().contains("left-"));
        clean(root, &before).unwrap();
    }

    #[test]
    fn an_unknown_stage_is_named() {
        let why = run(Path::new("."), &["fmt", "lint"]).unwrap_err();
        assert!(why.contains("lint") && why.contains("clippy"), "{why}");
    }
}
