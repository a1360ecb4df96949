//! What a run of the suite came to: `report.json`. Knows counts and words; the forms that other tools read are beside it.

mod forms;

pub(super) use forms::plain;
pub use forms::{badge, junit, markdown, text};

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use waystation_format::{Error, Result};

use super::adapter::{Hello, Limits};
use super::expected::Problem;
use super::grade::{Level, Verdict};
use super::select::matches;
use super::session::Options;
use crate::case::{self, Case, Effect, Outcome, Profile};

/// All profiles, in the order of the protocol.
pub const PROFILES: [Profile; 6] = [
    Profile::Core,
    Profile::Reshard,
    Profile::Resume,
    Profile::Writer,
    Profile::Durability,
    Profile::Extended,
];

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Core => "core",
            Self::Reshard => "reshard",
            Self::Resume => "resume",
            Self::Writer => "writer",
            Self::Durability => "durability",
            Self::Extended => "extended",
        })
    }
}

/// A report, members in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Of the report's own form.
    pub report: u32,
    /// Version of the suite.
    pub suite: String,
    /// Version of the specification.
    pub spec: String,
    /// What the adapter said of itself.
    pub adapter: Hello,
    /// How it was started.
    pub command: Vec<String>,
    /// How exactly refusals had to be right.
    pub level: Level,
    /// Whether every case had a process of its own.
    pub isolated: bool,
    /// What was asked for; empty for everything.
    pub profiles_asked: Vec<Profile>,
    /// Patterns of ids that were asked for; empty for everything.
    pub cases_asked: Vec<String>,
    /// What a case might take.
    pub limits: LimitsUsed,
    /// One for each profile of the suite.
    pub profiles: Vec<ProfileResult>,
    /// One for each case that was chosen and is of a profile claimed.
    pub results: Vec<CaseResult>,
    /// What is wrong with the list of expected failures, held against the results.
    pub problems: Vec<Problem>,
    /// Whether all that was asked for was run, and nothing is wrong that is not listed.
    pub fine: bool,
}

/// Limits as they were in force.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct LimitsUsed {
    /// Whether the system tells of memory and processor time; if not, only time was limited.
    pub measured: bool,
    /// Memory that might be asked for at once, in bytes.
    pub memory: u64,
    /// Processor time, in milliseconds.
    pub processor: u64,
    /// Time, in milliseconds.
    pub time: u64,
}

/// One case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseResult {
    /// Its slug.
    pub id: String,
    /// Its profile.
    pub profile: Profile,
    /// How much depends on it.
    pub level: case::Level,
    /// What became of it.
    pub verdict: Verdict,
    /// Of a refusal that is right: how exactly, 1 to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Level>,
    /// What was expected, in a line.
    pub expected: String,
    /// What came, in a line.
    pub got: String,
    /// The code that was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Differences, or other reasons why it is no pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<String>,
    /// Of an expected failure: why it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of an expected failure: where it is discussed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
    /// What is wrong or special in the case.
    pub fault: String,
    /// What a failure does to users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// How long it took.
    pub millis: u64,
    /// Peak of memory above that after `hello`, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// What the adapter said on standard error, of a failure: the last 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

/// Whether a profile's claim holds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// All required cases pass.
    Conformant,
    /// None fails, but some were skipped, listed, left out or could not be run.
    Partial,
    /// Some fail.
    Failing,
    /// None was run.
    NotRun,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Conformant => "conformant",
            Self::Partial => "partial",
            Self::Failing => "failing",
            Self::NotRun => "not-run",
        })
    }
}

/// A profile.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ProfileResult {
    /// Which.
    pub profile: Profile,
    /// Whether the adapter claims it.
    pub claimed: bool,
    /// Whether the claim holds.
    pub status: Status,
    /// The level that every refusal among required cases reached, also those that are listed; 0 when one was no refusal or
    /// another case failed, nothing when there was none.
    pub reached: Option<Level>,
    /// All cases.
    pub all: Counts,
    /// Those that the claim stands or falls with.
    pub required: Counts,
}

/// How many cases came to what. The others sum up to `total`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "they are those of the verdict")]
pub struct Counts {
    pub total: u64,
    pub pass: u64,
    pub expected_failure: u64,
    pub fail: u64,
    pub crash: u64,
    pub skip: u64,
    pub not_run: u64,
    /// Not chosen, or of a profile that is not claimed.
    pub left_out: u64,
}

impl Counts {
    fn count(&mut self, verdict: Option<Verdict>) {
        let place = match verdict {
            Some(Verdict::Pass) => &mut self.pass,
            Some(Verdict::ExpectedFailure) => &mut self.expected_failure,
            Some(Verdict::Fail) => &mut self.fail,
            Some(Verdict::Crash) => &mut self.crash,
            Some(Verdict::Skip) => &mut self.skip,
            Some(Verdict::NotRun) => &mut self.not_run,
            None => &mut self.left_out,
        };
        *place = place.saturating_add(1);
        self.total = self.total.saturating_add(1);
    }

    /// Cases that an adapter answered.
    fn executed(&self) -> u64 {
        let bad = self.fail.saturating_add(self.crash);
        self.pass.saturating_add(self.expected_failure).saturating_add(bad)
    }

    fn plus(mut self, other: &Self) -> Self {
        for (sum, more) in [
            (&mut self.total, other.total),
            (&mut self.pass, other.pass),
            (&mut self.expected_failure, other.expected_failure),
            (&mut self.fail, other.fail),
            (&mut self.crash, other.crash),
            (&mut self.skip, other.skip),
            (&mut self.not_run, other.not_run),
            (&mut self.left_out, other.left_out),
        ] {
            *sum = sum.saturating_add(more);
        }
        self
    }

    fn status(&self) -> Status {
        if self.executed() == 0 {
            Status::NotRun
        } else if self.fail > 0 || self.crash > 0 {
            Status::Failing
        } else if self.pass < self.total {
            Status::Partial
        } else {
            Status::Conformant
        }
    }
}

impl Report {
    pub(super) fn new(
        cases: &[Case],
        options: &Options,
        (adapter, measured): (Hello, bool),
        results: Vec<CaseResult>,
        problems: Vec<Problem>,
    ) -> Self {
        let Limits { memory, processor, time, .. } = options.limits;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let limits =
            LimitsUsed { measured, memory, processor: millis(processor), time: millis(time) };
        let profiles = PROFILES.map(|profile| tally(profile, cases, &results, &adapter)).into();
        let mut report = Self {
            report: 1,
            suite: env!("CARGO_PKG_VERSION").to_owned(),
            spec: SPEC.to_owned(),
            adapter,
            command: options.adapter.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
            level: options.level,
            isolated: options.isolate,
            profiles_asked: options.selection.profiles.clone(),
            cases_asked: options.selection.cases.clone(),
            limits,
            profiles,
            results,
            problems,
            fine: false,
        };
        report.fine = report.reasons().is_empty();
        report
    }

    /// Writes `report.json`, `junit.xml`, `summary.md` and `badge.json` into `dir`, which is made where it is not there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let named = |path: &Path, e| Error::io("write", e).in_file(path.display().to_string());
        fs::create_dir_all(dir).map_err(|e| named(dir, e))?;
        for (name, text) in [
            ("report.json", format!("{:#}\n", json!(self))),
            ("junit.xml", junit(self)),
            ("summary.md", markdown(self)),
            ("badge.json", format!("{:#}\n", badge(self))),
        ] {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|e| named(&path, e))?;
        }
        Ok(())
    }

    /// What no list of expected failures puts right, a line each.
    #[must_use]
    pub fn beyond_listing(&self) -> Vec<String> {
        let crashes = |r: &&CaseResult| r.verdict == Verdict::Crash && r.profile == Profile::Core;
        let crashes = self.results.iter().filter(crashes);
        let mut reasons: Vec<String> = crashes.map(|r| format!("{} crashes", r.id)).collect();
        reasons.extend(self.not_run());
        reasons
    }

    /// Why the run is not fine, a line each. A profile that was asked for and not run is no pass.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let bad = |result: &&CaseResult| match result.verdict {
            Verdict::Crash => true,
            Verdict::Fail => result.level == case::Level::Required,
            _ => false,
        };
        match self.results.iter().filter(bad).count() {
            0 => {}
            1 => reasons.push("1 case failed".to_owned()),
            many => reasons.push(format!("{many} cases failed")),
        }
        reasons.extend(self.problems.iter().map(ToString::to_string));
        reasons.extend(self.not_run());
        reasons
    }

    fn not_run(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for asked in &self.profiles_asked {
            let ran = self.profiles.iter().find(|p| p.profile == *asked);
            if ran.is_none_or(|ran| ran.status == Status::NotRun) {
                let why = match ran {
                    Some(ran) if !ran.claimed => {
                        "the adapter does not claim it: `profiles` of its answer to hello says what it claims"
                    }
                    Some(ran) if ran.required.left_out == ran.required.total => {
                        "none was chosen, see --case"
                    }
                    _ => "all that were chosen were skipped, or cannot be made here",
                };
                reasons.push(format!(
                    "of {asked}, which was asked for, no required case was run: {why}"
                ));
            }
        }
        let ran = |result: &CaseResult| !matches!(result.verdict, Verdict::Skip | Verdict::NotRun);
        for asked in &self.cases_asked {
            if !self.results.iter().any(|result| ran(result) && matches(asked, &result.id)) {
                reasons.push(format!(
                    "of {asked}, which was asked for, no case was run: the adapter does not claim its profile, or skips it"
                ));
            }
        }
        let counts = self.counts();
        if counts.executed() == 0 {
            reasons.push("no case was run".to_owned());
        }
        reasons
    }

    /// All profiles together.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.profiles.iter().fold(Counts::default(), |sum, profile| sum.plus(&profile.all))
    }
}

/// The version of the specification that the suite is about.
pub const SPEC: &str = "1.0";

fn tally(
    profile: Profile,
    cases: &[Case],
    results: &[CaseResult],
    adapter: &Hello,
) -> ProfileResult {
    let found: HashMap<&str, &CaseResult> = results.iter().map(|r| (r.id.as_str(), r)).collect();
    let (mut all, mut required) = (Counts::default(), Counts::default());
    let mut reached: Option<Level> = None;
    for case in cases.iter().filter(|case| case.expect.profile == profile) {
        let result = found.get(case.expect.id.as_str());
        let verdict = result.map(|result| result.verdict);
        all.count(verdict);
        if case.expect.level != case::Level::Required {
            continue;
        }
        required.count(verdict);
        let seen = result.and_then(|result| result.reached);
        let least = match (verdict, case.expect.outcome) {
            (Some(Verdict::Pass | Verdict::Fail | Verdict::ExpectedFailure), Outcome::Reject) => {
                Some(seen.unwrap_or(0))
            }
            (Some(Verdict::Fail | Verdict::Crash), _) => Some(0),
            // What may be refused was, or was not.
            (Some(Verdict::Pass | Verdict::ExpectedFailure), Outcome::Either) => seen,
            _ => None,
        };
        reached = match (reached, least) {
            (Some(reached), Some(least)) => Some(reached.min(least)),
            (reached, least) => reached.or(least),
        };
    }
    let status = required.status();
    let claimed = adapter.profiles.contains(&profile);
    ProfileResult { profile, claimed, status, reached, all, required }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_what_its_required_cases_are() {
        let status = |pass, fail, skip| {
            Counts { total: pass + fail + skip, pass, fail, skip, ..Counts::default() }.status()
        };
        assert_eq!(status(0, 0, 0), Status::NotRun);
        assert_eq!(status(0, 0, 3), Status::NotRun);
        assert_eq!(status(3, 0, 0), Status::Conformant);
        assert_eq!(status(3, 0, 1), Status::Partial);
        assert_eq!(status(3, 1, 1), Status::Failing);
    }

    #[test]
    fn counts_sum_up() {
        let mut counts = Counts::default();
        for verdict in [
            Some(Verdict::Pass),
            Some(Verdict::ExpectedFailure),
            Some(Verdict::Fail),
            Some(Verdict::Crash),
            Some(Verdict::Skip),
            Some(Verdict::NotRun),
            None,
        ] {
            counts.count(verdict);
        }
        let sum = counts.executed() + counts.skip + counts.not_run + counts.left_out;
        assert_eq!((counts.total, sum), (7, 7));
    }
}
