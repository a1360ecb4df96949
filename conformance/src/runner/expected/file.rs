//! The list as a file: read strictly, and rewritten with what its authors wrote beside the entries.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};
use waystation_format::{Code, Error, Result};

use super::Expected;
use crate::case::{Case, Profile};
use crate::runner::grade::Verdict;
use crate::runner::report::{CaseResult, Report};
use crate::runner::select::matches;

/// What the file consists of.
const ENTRIES: &str = "expected";

/// A list of expected failures.
#[derive(Clone, Debug)]
pub struct Expectations {
    document: DocumentMut,
    entries: Vec<Expected>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    #[serde(default)]
    expected: Vec<Expected>,
}

impl Expectations {
    /// The list in a file; with `make`, an empty one when there is no such file.
    ///
    /// # Errors
    /// [`Code::BadArgument`] for a file that is no such list, [`Code::NotFound`], and those of the system.
    pub fn read(path: &Path, make: bool) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if make && e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::io("read", e).in_file(path.display().to_string())),
        };
        Self::parse(&text).map_err(|why| {
            let why = format!("expected a list of expected failures, found {why}");
            Error::new(Code::BadArgument, why).in_file(path.display().to_string())
        })
    }

    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: DocumentMut =
            text.parse().map_err(|e: toml_edit::TomlError| e.to_string())?;
        let whole: Whole =
            toml_edit::de::from_document(document.clone()).map_err(|e| e.to_string())?;
        if document.get(ENTRIES).is_some_and(|item| !item.is_array_of_tables()) {
            return Err(format!("{ENTRIES} in another form than [[{ENTRIES}]]"));
        }
        if let Some(bare) = whole.expected.iter().find(|entry| entry.reason.trim().is_empty()) {
            return Err(format!("{} without a reason", bare.case));
        }
        Ok(Self { document, entries: whole.expected })
    }

    /// The entries in their order.
    #[must_use]
    pub fn entries(&self) -> &[Expected] {
        &self.entries
    }

    /// The file that says what `report` found, which was made with this list: entries of cases that pass, are
    /// skipped or do not exist are gone, failures that were not listed are there, patterns of which not all fail
    /// are taken apart. A crash in core is never listed. Reasons of new entries are what was seen.
    #[must_use]
    pub fn fixed(&self, cases: &[Case], report: &Report) -> String {
        let mut document = self.document.clone();
        let mut tables = match document.remove(ENTRIES) {
            Some(Item::ArrayOfTables(tables)) => tables,
            _ => ArrayOfTables::new(),
        };
        let old: Vec<Table> = tables.iter().cloned().collect();
        tables.clear();
        let mut listed: Vec<&str> = Vec::new();
        // Comments that belong to no entry, of which the entry below is gone.
        let mut above = String::new();
        for (entry, mut table) in self.entries.iter().zip(old) {
            let named: Vec<&str> = ids(cases).filter(|id| matches(&entry.case, id)).collect();
            let keep: Vec<&str> = named
                .iter()
                .copied()
                .filter(|id| !listed.contains(id) && stays(entry, id, report))
                .collect();
            listed.extend(&keep);
            let all = keep.len() == named.len() && !named.is_empty();
            if all && named.len() <= super::MOST_CASES {
                tables.push(with_more(table, &std::mem::take(&mut above)));
                continue;
            }
            if keep.is_empty() {
                above.push_str(apart(&table));
            }
            for id in keep {
                let mut one = with_more(table.clone(), &std::mem::take(&mut above));
                rename(&mut one, id);
                tables.push(one);
                // What is said of all of them is said once.
                table.decor_mut().set_prefix("\n");
            }
        }
        let new =
            report.results.iter().filter(|r| r.verdict == Verdict::Fail || excusable_crash(r));
        for result in new.filter(|result| !listed.contains(&result.id.as_str())) {
            let mut table = Table::new();
            table.insert("case", value(&result.id));
            table.insert("reason", value(seen(result)));
            if let Some(code) = &result.code {
                table.insert("code", value(code));
            }
            table.decor_mut().set_prefix("\n");
            tables.push(table);
        }
        if !tables.is_empty() {
            document.insert(ENTRIES, Item::ArrayOfTables(tables));
        }
        document.to_string()
    }
}

/// What stands above an entry and is not about it: all before the last empty line.
fn apart(table: &Table) -> &str {
    let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    prefix.rfind("\n\n").and_then(|at| prefix.get(..at.saturating_add(1))).unwrap_or_default()
}

fn with_more(mut table: Table, above: &str) -> Table {
    if !above.is_empty() {
        let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
        let prefix = format!("{above}{prefix}");
        table.decor_mut().set_prefix(prefix);
    }
    table
}

/// Puts another id in place of a pattern, and keeps the comment behind it.
fn rename(table: &mut Table, id: &str) {
    if let Some(case) = table.get_mut("case").and_then(Item::as_value_mut) {
        let decor = case.decor().clone();
        *case = id.into();
        *case.decor_mut() = decor;
    }
}

fn ids(cases: &[Case]) -> impl Iterator<Item = &str> {
    cases.iter().map(|case| case.expect.id.as_str())
}

/// Whether an entry is still true of a case: it failed as listed, or was not run.
fn stays(entry: &Expected, id: &str, report: &Report) -> bool {
    let Some(result) = report.results.iter().find(|result| result.id == id) else { return true };
    let code = entry.code.as_ref().is_none_or(|code| result.code.as_ref() == Some(code));
    match result.verdict {
        Verdict::ExpectedFailure | Verdict::Fail => code,
        Verdict::Crash => code && excusable_crash(result),
        Verdict::NotRun => true,
        Verdict::Pass | Verdict::Skip => false,
    }
}

fn excusable_crash(result: &CaseResult) -> bool {
    result.verdict == Verdict::Crash && result.profile != Profile::Core
}

fn seen(result: &CaseResult) -> String {
    let first = result.why.first().unwrap_or(&result.got);
    let line: String = first.chars().filter(|c| !c.is_control()).take(160).collect();
    format!("seen, not explained yet: {line}")
}
