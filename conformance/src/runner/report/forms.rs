//! A report in the forms that people and other tools read: text, Markdown, JUnit's XML, a badge.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{CaseResult, Counts, ProfileResult, Report, Status};
use crate::case::Level;
use crate::runner::grade::Verdict;

/// For a terminal: the failures, then a line for each profile, then why the run is not fine.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for result in report.results.iter().filter(|result| is_told(result)) {
        let _ = writeln!(out, "{:<7} {}  {}", word(result), result.id, result.fault);
        if result.verdict == Verdict::NotRun {
            let _ = writeln!(out, "        {}", result.got);
            continue;
        }
        let _ =
            writeln!(out, "        expected {}\n        got      {}", result.expected, result.got);
        for why in &result.why {
            let _ = writeln!(out, "        {why}");
        }
        for line in result.stderr.iter().flat_map(|text| tail(text)) {
            let _ = writeln!(out, "        | {line}");
        }
    }
    if !out.is_empty() {
        out.push('\n');
    }
    let _ = writeln!(out, "{:<11} {:<11} level  {COLUMNS}", "profile", "");
    for profile in report.profiles.iter().filter(|profile| profile.all.total > 0) {
        let (status, level) = (standing(profile), reached(profile));
        let _ = writeln!(
            out,
            "{:<11} {status:<11} {level:>5}  {}",
            profile.profile,
            row(&profile.all, 5)
        );
    }
    let _ = writeln!(out, "{:<11} {:<11} {:>5}  {}", "all", "", "", row(&report.counts(), 5));
    out.push_str("level: what all refusals reached; 1 refused, 2 with a code of the right class, 3 with the right code\n");
    if !report.limits.measured {
        out.push_str("\nMemory and processor time were not limited: there is no /proc here.\n");
    }
    let reasons = report.reasons();
    if !reasons.is_empty() {
        let _ = writeln!(out, "\nNot fine:");
        for reason in reasons {
            let _ = writeln!(out, "  {reason}");
        }
    }
    out
}

const COLUMNS: &str = "total  pass known  fail crash  skip  not run  left out";

fn row(counts: &Counts, width: usize) -> String {
    let Counts { total, pass, expected_failure, fail, crash, skip, not_run, left_out } = counts;
    format!(
        "{total:>width$} {pass:>width$} {expected_failure:>width$} {fail:>width$} {crash:>width$} {skip:>width$} \
         {not_run:>8} {left_out:>9}"
    )
}

/// What a person must look at.
fn is_told(result: &CaseResult) -> bool {
    matches!(result.verdict, Verdict::Fail | Verdict::Crash | Verdict::NotRun)
}

fn word(result: &CaseResult) -> &'static str {
    match (result.verdict, result.level) {
        (Verdict::Fail, Level::Recommended) => "should",
        (Verdict::Fail, Level::Optional) => "may",
        (Verdict::Pass, _) => "pass",
        (Verdict::ExpectedFailure, _) => "known",
        (Verdict::Fail, Level::Required) => "FAIL",
        (Verdict::Crash, _) => "CRASH",
        (Verdict::Skip, _) => "skip",
        (Verdict::NotRun, _) => "NOT RUN",
    }
}

/// The last lines of what an adapter said.
fn tail(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(8)..).map(<[_]>::to_vec).unwrap_or_default()
}

/// A claim whose cases were not all chosen is neither shown nor disproved by a run that passes.
fn standing(profile: &ProfileResult) -> String {
    let Counts { total, pass, left_out, .. } = profile.required;
    if !profile.claimed {
        "not claimed".to_owned()
    } else if profile.status == Status::Partial && pass.saturating_add(left_out) == total {
        "not all run".to_owned()
    } else {
        profile.status.to_string()
    }
}

fn reached(profile: &ProfileResult) -> String {
    profile.reached.map(|level| level.to_string()).unwrap_or_default()
}

/// A summary in Markdown, as build systems show it.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let who = &report.adapter.implementation;
    let mut out = format!(
        "# {} {}: Waystation {}\n\nSuite {}, refusals to be right at level {}.\n\n",
        plain(&who.name),
        plain(&who.version),
        report.spec,
        report.suite,
        report.level
    );
    out.push_str("| profile | | level | total | pass | known failures | fail | crash | skip | not run | left out |\n");
    out.push_str("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for profile in report.profiles.iter().filter(|profile| profile.all.total > 0) {
        let Counts { total, pass, expected_failure, fail, crash, skip, not_run, left_out } =
            profile.all;
        let (status, level) = (standing(profile), reached(profile));
        let _ = writeln!(
            out,
            "| {} | {status} | {level} | {total} | {pass} | {expected_failure} | {fail} | {crash} | {skip} | {not_run} | {left_out} |",
            profile.profile
        );
    }
    let reasons = report.reasons();
    if !reasons.is_empty() {
        out.push_str("\n## Not fine\n\n");
        for reason in reasons {
            let _ = writeln!(out, "* {}", plain(&reason));
        }
    }
    let told = |result: &&CaseResult| !matches!(result.verdict, Verdict::Pass | Verdict::Skip);
    let mut rows = report.results.iter().filter(told).peekable();
    if rows.peek().is_some() {
        out.push_str("\n## Cases that did not pass\n\n| case | | what is in it | expected | got |\n|---|---|---|---|---|\n");
        for result in rows {
            let cells = [&result.fault, &result.expected, &result.got].map(|cell| plain(cell));
            let (word, [fault, expected, got]) = (word(result), cells);
            let _ = writeln!(out, "| `{}` | {word} | {fault} | {expected} | {got} |", result.id);
        }
    }
    let _ = writeln!(out, "\nAdapter: {}", plain(&report.command.join(" ")));
    out
}

/// Text that means nothing but itself in a cell of a table.
pub(in crate::runner) fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(300) {
        match c {
            '|' | '`' | '<' | '>' | '*' | '_' | '[' | ']' | '\\' | '&' | '~' | '#' => {
                out.extend(['\\', c])
            }
            c if c.is_control() || turns(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Characters that turn the direction of those around them, so that they read otherwise.
fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// XML as JUnit writes it: one suite for each profile, one test for each case that was chosen.
#[must_use]
pub fn junit(report: &Report) -> String {
    let mut out = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"waystation\">\n",
    );
    for profile in &report.profiles {
        let results = || report.results.iter().filter(|r| r.profile == profile.profile);
        let many =
            |verdicts: &[Verdict]| results().filter(|r| verdicts.contains(&r.verdict)).count();
        if results().next().is_none() {
            continue;
        }
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">",
            profile.profile,
            results().count(),
            many(&[Verdict::Fail]),
            many(&[Verdict::Crash]),
            many(&[Verdict::Skip, Verdict::NotRun, Verdict::ExpectedFailure])
        );
        for result in results() {
            test(&mut out, result);
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn test(out: &mut String, result: &CaseResult) {
    let (seconds, rest) = (result.millis / 1000, result.millis % 1000);
    let (profile, id) = (result.profile, escaped(&result.id));
    let _ = write!(
        out,
        "    <testcase classname=\"{profile}\" name=\"{id}\" time=\"{seconds}.{rest:03}\""
    );
    let got = escaped(&result.got);
    let told = || {
        let why = result.why.join("\n");
        escaped(&format!(
            "{}\nexpected {}\ngot {}\n{why}",
            result.fault, result.expected, result.got
        ))
    };
    let inner = match result.verdict {
        Verdict::Pass => {
            out.push_str("/>\n");
            return;
        }
        Verdict::Fail => format!("<failure message=\"{got}\">{}</failure>", told()),
        Verdict::Crash => format!("<error message=\"{got}\">{}</error>", told()),
        Verdict::Skip | Verdict::NotRun => format!("<skipped message=\"{got}\"/>"),
        Verdict::ExpectedFailure => {
            let reason = escaped(result.reason.as_deref().unwrap_or_default());
            format!("<skipped message=\"expected failure: {reason}\"/>")
        }
    };
    let errors = result.stderr.as_deref().map(escaped);
    let errors = errors.map(|text| format!("<system-err>{text}</system-err>")).unwrap_or_default();
    let _ = writeln!(out, ">{inner}{errors}</testcase>");
}

/// Text in XML; characters that XML cannot hold are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c < ' ' || turns(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// What shields.io makes a badge of: the profiles that are conformant, or that some fail.
#[must_use]
pub fn badge(report: &Report) -> Value {
    let with = |status| report.profiles.iter().filter(move |p| p.claimed && p.status == status);
    let names = |status| with(status).map(|p| p.profile.to_string()).collect::<Vec<_>>().join(", ");
    let (message, color) = if !report.fine || with(Status::Failing).next().is_some() {
        match names(Status::Failing) {
            failing if failing.is_empty() => ("failing".to_owned(), "red"),
            failing => (format!("{failing} failing"), "red"),
        }
    } else if with(Status::Conformant).next().is_some() {
        let level = with(Status::Conformant).filter_map(|p| p.reached).min();
        let level = level.map(|level| format!(", level {level}")).unwrap_or_default();
        (
            format!("{}{level}", names(Status::Conformant)),
            if with(Status::Partial).next().is_some() { "yellowgreen" } else { "brightgreen" },
        )
    } else {
        match names(Status::Partial) {
            // Only cases on which no claim depends.
            none if none.is_empty() => ("no claim run".to_owned(), "lightgrey"),
            partial => (format!("{partial} partial"), "yellow"),
        }
    };
    json!({
        "schemaVersion": 1, "label": format!("waystation {}", report.spec), "message": message, "color": color,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_case_says_does_not_leave_its_place() {
        assert_eq!(escaped("<a b=\"&\">\n\u{1}"), "&lt;a b=&quot;&amp;&quot;&gt;&#10;\u{fffd}");
        assert_eq!(plain("a|b\n`c`&lt;\u{202e}"), "a\\|b \\`c\\`\\&lt; ");
        assert_eq!(escaped("a\u{202e}b"), "a\u{fffd}b");
    }
}
