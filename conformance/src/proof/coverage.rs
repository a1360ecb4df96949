//! Rules beside cases: which accept, which reject, and which notice that a check is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use waystation_format::registry::rules::RULES;
use waystation_format::{Error, Result, rule};

use super::{lines, python};
use crate::case::{Case, Outcome};
use crate::catalogue::untestable::{Half, UNTESTABLE};
use crate::runner::{self, Options, Unwatched, Verdict};

/// All rules.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// In the order of the chapters.
    pub rows: Vec<Row>,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its id.
    pub rule: &'static str,
    /// Cases that keep it and come near.
    pub accepts: Vec<String>,
    /// Cases that break it.
    pub rejects: Vec<String>,
    /// How a reader lacks it: `check`, or the name of a fault.
    pub faults: Vec<String>,
    /// Cases that such a reader does not pass: not all, but those that were put to it together with the first.
    pub noticed: BTreeSet<String>,
    /// What is not shown, and why.
    pub reasons: Vec<(Half, &'static str)>,
}

impl Row {
    fn is_excused(&self, half: Half) -> bool {
        self.reasons.iter().any(|(what, _)| *what == half || *what == Half::Both)
    }

    /// What is neither shown nor excused.
    #[must_use]
    pub fn holes(&self) -> Vec<&'static str> {
        let mut holes = Vec::new();
        if self.accepts.is_empty() && !self.is_excused(Half::Accepted) {
            holes.push("no case keeps it");
        }
        // A rule without a code says what a reader does, and no checkpoint can break it.
        let can_break = rule::find(self.rule).is_some_and(|rule| !rule.codes.is_empty());
        if can_break && self.rejects.is_empty() && !self.is_excused(Half::Refused) {
            holes.push("no case breaks it");
        }
        if self.noticed.is_empty() && !self.is_excused(Half::Noticed) {
            holes.push("a reader without it passes");
        }
        // An excuse for what is shown misleads.
        let shown = |half: Half| match half {
            Half::Accepted => !self.accepts.is_empty(),
            Half::Refused => !self.rejects.is_empty(),
            Half::Noticed => !self.noticed.is_empty(),
            Half::Both => !self.noticed.is_empty(),
        };
        if self.reasons.iter().any(|(half, _)| shown(*half)) {
            holes.push("excused, and shown");
        }
        holes
    }
}

/// Puts the cases of each rule to readers that lack it: those of `without.py` in `folder`, on `threads` threads.
///
/// # Errors
///
/// A reader that cannot be started, or a case that cannot be written.
pub fn coverage(cases: &[Case], folder: &Path, threads: usize) -> Result<Coverage> {
    let script = folder.join("without.py");
    let checks: BTreeSet<String> = lines(&python(&script, &["--rules"]))?.into_iter().collect();
    let mut faults: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines(&python(&script, &["--mutations"]))? {
        if let [name, rule, ..] = line.split('\t').collect::<Vec<_>>().as_slice() {
            faults.entry((*rule).to_owned()).or_default().push((*name).to_owned());
        }
    }
    let mut rows: Vec<Row> = RULES.iter().map(|rule| row(rule.id, cases)).collect();
    for row in &mut rows {
        if checks.contains(row.rule) {
            row.faults.push("check".to_owned());
        }
        row.faults.extend(faults.remove(row.rule).unwrap_or_default());
    }
    let next = AtomicUsize::new(0);
    let noticed = Mutex::new(Vec::new());
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((position, row)) =
                    rows.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed))
                {
                    match notice(row, cases, &script) {
                        Ok(found) => lock(&noticed).push((position, found)),
                        Err(e) => *lock(&failed) = Some(e.in_file(row.rule)),
                    }
                }
            });
        }
    });
    if let Some(e) = lock(&failed).take() {
        return Err(e);
    }
    let noticed = std::mem::take(&mut *lock(&noticed));
    for (position, found) in noticed {
        if let Some(row) = rows.get_mut(position) {
            row.noticed = found;
        }
    }
    Ok(Coverage { rows })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn row(rule: &'static str, cases: &[Case]) -> Row {
    let of = |case: &&Case| case.expect.rules.iter().any(|id| id == rule);
    let ids = |chosen: Vec<&Case>| chosen.iter().map(|case| case.expect.id.clone()).collect();
    let accepts = cases.iter().filter(|case| case.expect.outcome == Outcome::Accept).filter(of);
    let rejects = cases.iter().filter(|case| case.expect.outcome == Outcome::Reject).filter(of);
    Row {
        rule,
        accepts: ids(accepts.collect()),
        rejects: ids(rejects.collect()),
        faults: Vec::new(),
        noticed: BTreeSet::new(),
        reasons: UNTESTABLE
            .iter()
            .filter(|(id, _, _)| *id == rule)
            .map(|(_, half, why)| (*half, *why))
            .collect(),
    }
}

/// The first cases of the rule that a reader without it does not pass, those that break it before those that keep it.
fn notice(row: &Row, cases: &[Case], script: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let named: Vec<&String> = row.rejects.iter().chain(&row.accepts).collect();
    for fault in &row.faults {
        let words = if fault == "check" { vec![row.rule] } else { vec!["--mutation", fault] };
        let mut options = Options::new(python(script, &words));
        options.level = 3;
        // A few at a time: one that notices is enough.
        for some in named.chunks(CASES_AT_ONCE) {
            let some: Vec<Case> = some
                .iter()
                .filter_map(|id| cases.iter().find(|case| case.expect.id == **id))
                .cloned()
                .collect();
            let report = runner::run(&some, &options, None, &Unwatched)?;
            let missed = report
                .results
                .into_iter()
                .filter(|case| matches!(case.verdict, Verdict::Fail | Verdict::Crash));
            let before = found.len();
            found.extend(missed.map(|case| case.id));
            if found.len() > before {
                break;
            }
        }
    }
    Ok(found)
}

/// Cases that are put to a reader with one fault before it is looked whether any noticed.
const CASES_AT_ONCE: usize = 12;

/// How a reader lacked the rule when it was noticed. Which cases notice is not said: of a reader that is broken, how many
/// differs with the load of the machine.
fn noticed(row: &Row, reason: Option<String>) -> String {
    if row.noticed.is_empty() {
        return reason.unwrap_or_else(|| "—".to_owned());
    }
    let named: Vec<String> = row.faults.iter().map(|fault| format!("`{fault}`")).collect();
    named.join(", ")
}

impl Coverage {
    /// Rules with something neither shown nor excused.
    #[must_use]
    pub fn holes(&self) -> Vec<String> {
        let holes = self.rows.iter().filter(|row| !row.holes().is_empty());
        holes.map(|row| format!("{}: {}", row.rule, row.holes().join("; "))).collect()
    }

    /// The table, in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "# Rules and cases\n\nGenerated by `cargo xtask conformance`. A rule is shown when some case keeps it, some case breaks it, and \
             a reader that lacks\njust this rule (the Python reader with its check switched off, or with a fault that stands for the lack) does not pass.\n\n\
             | rule | kept by | broken by | noticed without |\n|---|---|---|---|\n",
        );
        for row in &self.rows {
            let reason = |half: Half| {
                let found =
                    row.reasons.iter().find(|(what, _)| *what == half || *what == Half::Both);
                found.map(|(_, why)| (*why).to_owned())
            };
            let cell = |ids: Vec<&String>, half: Half| match ids.as_slice() {
                [] => reason(half).unwrap_or_else(|| "—".to_owned()),
                [one] => format!("`{one}`"),
                [one, rest @ ..] => format!("`{one}` and {}", rest.len()),
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                row.rule,
                cell(row.accepts.iter().collect(), Half::Accepted),
                cell(row.rejects.iter().collect(), Half::Refused),
                noticed(row, reason(Half::Noticed)),
            );
        }
        text
    }
}
