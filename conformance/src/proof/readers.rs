//! Implementations that are right: each passes everything that it claims, as exactly as the suite can ask.

use std::ffi::OsString;
use std::fmt::Write as _;

use waystation_format::Result;

use crate::case::Case;
use crate::runner::report::{PROFILES, Status};
use crate::runner::{self, Options, Report, Watcher};

/// An implementation.
#[derive(Clone, Debug)]
pub struct Reader {
    /// What it is called in tables.
    pub name: String,
    /// The adapter.
    pub command: Vec<OsString>,
    /// Level at which it must pass.
    pub level: u8,
}

/// A report of each, in order.
///
/// # Errors
///
/// An adapter that cannot be started, or a case that cannot be written.
pub fn readers(
    cases: &[Case],
    readers: &[Reader],
    watcher: &dyn Watcher,
) -> Result<Vec<(Reader, Report)>> {
    let mut reports = Vec::new();
    for reader in readers {
        let mut options = Options::new(reader.command.clone());
        options.level = reader.level;
        let report = runner::run(cases, &options, None, watcher)?;
        reports.push((reader.clone(), report));
    }
    Ok(reports)
}

/// Implementations beside profiles, in Markdown: how many cases each passes, and how exactly refusals are right.
#[must_use]
pub fn table(reports: &[(Reader, Report)]) -> String {
    let mut text = String::from("| implementation |");
    for profile in PROFILES {
        let _ = write!(text, " {profile} |");
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(PROFILES.len()));
    text.push('\n');
    for (reader, report) in reports {
        let _ = write!(text, "| {} |", reader.name);
        for profile in &report.profiles {
            // What cannot be run as this user is told apart; the table is the same for everyone.
            let all = &profile.all;
            let passed = all.pass.saturating_add(all.not_run);
            let cell = match profile.status {
                Status::NotRun => "—".to_owned(),
                _ if passed == all.total => {
                    let level = profile.reached.map(|level| format!(", level {level}"));
                    format!("all {}{}", all.total, level.unwrap_or_default())
                }
                status => format!("{status}: {passed} of {}", all.total),
            };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}
