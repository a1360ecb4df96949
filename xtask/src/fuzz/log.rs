//! What was run so far. A run adds a line to `fuzz/log.tsv`, which is not committed; `table` moves these into `fuzz/runs.tsv`, which
//! is, a line for each target and sanitizer, and makes the table in `fuzz/README.md` of it.

use std::collections::BTreeMap;
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
    /// The most that one run had at its end.
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

/// What one line says: a target, a sanitizer, and counts.
struct Line<'l> {
    target: &'l str,
    sanitizer: &'l str,
    executions: u64,
    seconds: u64,
    edges: u64,
    corpus: u64,
}

impl<'l> Line<'l> {
    /// `target`, `executions`, `seconds`, `edges`, `corpus`, `sanitizer`, between tabs; others are passed over.
    fn read(line: &'l str) -> Option<Self> {
        let words: Vec<&str> = line.split('\t').collect();
        let [target, executions, seconds, edges, corpus, sanitizer] = *words.as_slice() else {
            return None;
        };
        let number = |word: &str| word.parse().ok();
        Some(Self {
            target,
            sanitizer,
            executions: number(executions)?,
            seconds: number(seconds)?,
            edges: number(edges)?,
            corpus: number(corpus)?,
        })
    }
}

fn log(fuzz: &Fuzz) -> PathBuf {
    fuzz.folder().join("log.tsv")
}

fn runs(fuzz: &Fuzz) -> PathBuf {
    fuzz.folder().join("runs.tsv")
}

/// Every line, those that are committed first; nothing where nothing was run.
pub(super) fn read(fuzz: &Fuzz) -> String {
    let text = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    text(runs(fuzz)) + &text(log(fuzz))
}

/// Adds a run.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn add(fuzz: &Fuzz, outcome: &Outcome) -> Result<()> {
    let Outcome { target, executions, seconds, edges, corpus, asan, .. } = outcome;
    let path = log(fuzz);
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let sanitizer = if *asan { "asan" } else { "none" };
    writeln!(file, "{target}\t{executions}\t{seconds}\t{edges}\t{corpus}\t{sanitizer}")
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// The sums of a target.
pub(super) fn sum(text: &str, target: &str) -> Sum {
    let mut sum = Sum::default();
    for line in text.lines().filter_map(Line::read).filter(|line| line.target == target) {
        sum.executions = sum.executions.saturating_add(line.executions);
        sum.seconds = sum.seconds.saturating_add(line.seconds);
        // The sanitizer has edges of its own.
        if line.sanitizer == "asan" {
            sum.asan_seconds = sum.asan_seconds.saturating_add(line.seconds);
        } else {
            sum.edges = sum.edges.max(line.edges);
            sum.corpus = sum.corpus.max(line.corpus);
        }
    }
    sum
}

/// One line for each target and sanitizer.
fn together(text: &str) -> String {
    let mut all: BTreeMap<(&str, &str), [u64; 4]> = BTreeMap::new();
    for line in text.lines().filter_map(Line::read) {
        let [executions, seconds, edges, corpus] =
            all.entry((line.target, line.sanitizer)).or_default();
        *executions = executions.saturating_add(line.executions);
        *seconds = seconds.saturating_add(line.seconds);
        *edges = line.edges.max(*edges);
        *corpus = line.corpus.max(*corpus);
    }
    let mut out = String::new();
    for ((target, sanitizer), [executions, seconds, edges, corpus]) in all {
        let _ = writeln!(out, "{target}\t{executions}\t{seconds}\t{edges}\t{corpus}\t{sanitizer}");
    }
    out
}

/// Moves the log into the runs that are committed, and writes the table into the README; with `check` says whether the table is that of
/// the committed runs.
///
/// # Errors
/// A README without a place for it; with `check`, another table.
pub(super) fn write_table(fuzz: &Fuzz, check: bool) -> Result<()> {
    let failed = |path: &PathBuf, e: std::io::Error| format!("{}: {e}", path.display());
    let (runs, log) = (runs(fuzz), log(fuzz));
    if !check {
        fs::write(&runs, together(&read(fuzz))).map_err(|e| failed(&runs, e))?;
        match fs::remove_file(&log) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(&log, e)),
            _ => {}
        }
    }
    let path = fuzz.folder().join("README.md");
    let text = fs::read_to_string(&path).map_err(|e| failed(&path, e))?;
    let (before, rest) = text.split_once(BEGIN).ok_or("fuzz/README.md has no table")?;
    let (_, after) = rest.split_once(END).ok_or("the table of fuzz/README.md has no end")?;
    let committed = fs::read_to_string(&runs).map_err(|e| failed(&runs, e))?;
    let table = table(&committed, &fuzz.targets()?);
    let text_now = format!("{before}{BEGIN}{table}{END}{after}");
    if text_now == text {
        return Ok(());
    }
    if check {
        return Err(
            "fuzz/README.md has another table than fuzz/runs.tsv gives: cargo xtask fuzz table"
                .to_owned(),
        );
    }
    fs::write(&path, text_now).map_err(|e| failed(&path, e))
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
        let log = "page\t100\t60\t7\t8\tnone\nopen\t1\t1\t1\t1\tnone\npage\t50\t30\t9\t10\tasan\npage\t1\t1\t6\t9\tnone\nof another form\n";
        let expected = Sum { executions: 151, seconds: 91, asan_seconds: 30, edges: 7, corpus: 9 };
        assert_eq!(sum(log, "page"), expected);
        assert!(table(log, &["page".to_owned()]).contains("| `page` | 151 | 2 | 0 | 7 | 9 |"));
        let once = together(log);
        assert_eq!(
            once,
            "open\t1\t1\t1\t1\tnone\npage\t50\t30\t9\t10\tasan\npage\t101\t61\t7\t9\tnone\n"
        );
        assert_eq!(together(&once), once);
        assert_eq!(sum(&once, "page"), expected);
    }
}
