//! Which lines of the crates the corpora reach: the targets are built to count, and replay what fuzzing has gathered. Knows LLVM's
//! tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Fuzz, done};
use crate::{Result, nightly};

/// The crates whose lines are counted.
const CRATES: [&str; 5] = ["format", "state", "reader", "store", "writer"];

/// Replays the corpora and regressions of targets and prints the lines reached, of each target and of all together.
///
/// # Errors
/// When a tool is missing or fails.
pub(super) fn run(fuzz: &Fuzz, targets: &[String]) -> Result<()> {
    let tools = tools()?;
    let out = fuzz.target_dir().join("coverage");
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let mut build = nightly::cargo(&fuzz.root);
    build.args(["build", "--quiet", "-p", "waystation-fuzz"]);
    build.arg("--target-dir").arg(&out).env("RUSTFLAGS", "-C instrument-coverage -C opt-level=1");
    // What builds count of themselves is of no interest.
    build.env("LLVM_PROFILE_FILE", out.join("build-%m.profraw"));
    for target in targets {
        build.args(["--bin", target]);
    }
    done(&mut build)?;
    let mut merged = Vec::new();
    let head: Vec<String> = CRATES.iter().map(|name| format!("{name:>8}")).collect();
    println!("{:<14}{}", "", head.concat());
    for target in targets {
        let program = out.join("debug").join(target);
        let raw = out.join(format!("{target}.profraw"));
        let mut replay = Command::new(&program);
        replay.arg(fuzz.corpus(target)).arg(fuzz.folder().join("regressions").join(target));
        replay.env("LLVM_PROFILE_FILE", &raw).stdout(std::process::Stdio::null());
        done(&mut replay)?;
        let data = out.join(format!("{target}.profdata"));
        merge(&tools, &[raw], &data)?;
        println!("{target:<14}{}", percents(&tools, fuzz, &data, &[program])?);
        merged.push(data);
    }
    if targets.len() > 1 {
        let all = out.join("all.profdata");
        merge(&tools, &merged, &all)?;
        let programs: Vec<PathBuf> =
            targets.iter().map(|target| out.join("debug").join(target)).collect();
        println!("{:<14}{}", "together", percents(&tools, fuzz, &all, &programs)?);
    }
    Ok(())
}

fn merge(tools: &Path, raw: &[PathBuf], into: &Path) -> Result<()> {
    let mut command = Command::new(tools.join("llvm-profdata"));
    done(command.args(["merge", "--sparse", "-o"]).arg(into).args(raw))
}

/// The lines reached of each crate, in percent.
fn percents(tools: &Path, fuzz: &Fuzz, data: &Path, programs: &[PathBuf]) -> Result<String> {
    let mut command = Command::new(tools.join("llvm-cov"));
    command.args(["export", "--summary-only", "--instr-profile"]).arg(data);
    for program in programs {
        command.arg("--object").arg(program);
    }
    let output = command.output().map_err(|e| format!("llvm-cov: {e}"))?;
    if !output.status.success() {
        return Err(format!("llvm-cov: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let report: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("llvm-cov: {e}"))?;
    let files =
        report.pointer("/data/0/files").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut row = String::new();
    for name in CRATES {
        let source = fuzz.root.join(name).join("src");
        let of_crate = files.iter().filter(|file| {
            file.get("filename")
                .and_then(Value::as_str)
                .is_some_and(|path| Path::new(path).starts_with(&source))
        });
        let (mut lines, mut reached) = (0_u64, 0_u64);
        for file in of_crate {
            let number = |what: &str| {
                file.pointer(&format!("/summary/lines/{what}")).and_then(Value::as_u64).unwrap_or(0)
            };
            lines = lines.saturating_add(number("count"));
            reached = reached.saturating_add(number("covered"));
        }
        let percent = reached.saturating_mul(100).checked_div(lines).unwrap_or(0);
        row.push_str(&format!("{percent:>7}%"));
    }
    Ok(row)
}

/// Where the nightly toolchain keeps LLVM's tools.
fn tools() -> Result<PathBuf> {
    let mut command = Command::new("rustup");
    let output = command
        .args(["run", "nightly", "rustc", "--print", "target-libdir"])
        .output()
        .map_err(|e| format!("rustc: {e}"))?;
    let libraries = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let tools = Path::new(&libraries).parent().unwrap_or(Path::new("")).join("bin");
    if tools.join("llvm-cov").is_file() {
        return Ok(tools);
    }
    Err("fuzz: no llvm-cov: `rustup component add --toolchain nightly llvm-tools`".to_owned())
}
