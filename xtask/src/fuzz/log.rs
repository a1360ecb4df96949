//! What was run so far: a line a run in `fuzz/log.tsv`, which is not committed, and the table in `fuzz/README.md` that is made of it.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use super::Fuzz;
use super::engine::Outcome;
use crate::Result;

const BEGIN: &str = "<!-- fuzz:table -->\n";
const END: &str = "<!-- /fuzz:table -->";

/// Sums of the runs of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) executions: u64,
    pub(super) seconds: u64,
    pub(super) asan_seconds: u64,
    /// Of the last run.
    pub(super) edges: u64,
    pub(super) corpus: u64,
}

impl Sum {
    pub(super) fn minutes(&self) -> f64 {
        minutes(self.seconds)
    }
}

#[expect(clippy::cast_precision_loss, reason = "minutes for people")]
fn minutes(seconds: u64) -> f64 {
    seconds as f64 / 60.0
}

fn path(fuzz: &Fuzz) -> PathBuf {
    fuzz.folder().join("log.tsv")
}

/// Every line; nothing where nothing was run.
pub(super) fn read(fuzz: &Fuzz) -> String {
    fs::read_to_string(path(fuzz)).unwrap_or_default()
}

/// Adds a run.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn add(fuzz: &Fuzz, outcome: &Outcome) -> Result<()> {
    let Outcome { target, executions, seconds, edges, corpus, failed, asan, .. } = outcome;
    let path = path(fuzz);
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let sanitizer = if *asan { "asan" } else { "none" };
    writeln!(file, "{target}\t{executions}\t{seconds}\t{edges}\t{corpus}\t{failed}\t{sanitizer}")
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// The sums of a target.
pub(super) fn sum(log: &str, target: &str) -> Sum {
    let mut sum = Sum::default();
    for line in log.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let number =
            |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        if words.first() == Some(&target) {
            sum.executions = sum.executions.saturating_add(number(1));
            sum.seconds = sum.seconds.saturating_add(number(2));
            if words.get(6) == Some(&"asan") {
                sum.asan_seconds = sum.asan_seconds.saturating_add(number(2));
            }
            (sum.edges, sum.corpus) = (number(3), number(4));
        }
    }
    sum
}

/// Writes the table into the README, or with `check` says whether it is there.
///
/// # Errors
/// A README without a place for it; with `check`, another table.
pub(super) fn write_table(fuzz: &Fuzz, check: bool) -> Result<()> {
    let path = fuzz.folder().join("README.md");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (before, rest) = text.split_once(BEGIN).ok_or("fuzz/README.md has no table")?;
    let (_, after) = rest.split_once(END).ok_or("the table of fuzz/README.md has no end")?;
    let text_now = format!("{before}{BEGIN}{}{END}{after}", table(&read(fuzz), &fuzz.targets()?));
    if text_now == text {
        return Ok(());
    }
    if check {
        return Err("fuzz/README.md has another table than fuzz/log.tsv gives".to_owned());
    }
    fs::write(&path, text_now).map_err(|e| format!("{}: {e}", path.display()))
}

fn table(log: &str, targets: &[String]) -> String {
    let mut out = String::from(
        "| target | executions | minutes | of them with ASan | edges | corpus |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for target in targets {
        let sum = sum(log, target);
        let _ = writeln!(
            out,
            "| `{target}` | {} | {:.0} | {:.0} | {} | {} |",
            sum.executions,
            sum.minutes(),
            minutes(sum.asan_seconds),
            sum.edges,
            sum.corpus
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_target_are_summed() {
        let log = "page\t100\t60\t7\t8\tfalse\tnone\nopen\t1\t1\t1\t1\tfalse\tnone\npage\t50\t30\t9\t10\ttrue\tasan\n";
        let expected = Sum { executions: 150, seconds: 90, asan_seconds: 30, edges: 9, corpus: 10 };
        assert_eq!(sum(log, "page"), expected);
        assert!(table(log, &["page".to_owned()]).contains("| `page` | 150 | 2 | 0 | 9 | 10 |"));
    }
}
