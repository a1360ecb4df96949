//! The list of expected failures, `waystation-conformance.toml`: what an implementation knows to be wrong. Knows
//! its TOML and results; strict, so that it says no more and no less than is true.

mod file;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::grade::Verdict;
use super::report::CaseResult;
use super::select::matches;
use crate::case::{Case, Profile};

pub use file::Expectations;

/// Cases that one pattern may stand for: a list of everything is no list.
pub const MOST_CASES: usize = 20;

/// One entry of the list.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The id of a case, or a pattern of several.
    pub case: String,
    /// Why it fails.
    pub reason: String,
    /// Where that is discussed.
    pub issue: Option<String>,
    /// The code that is answered; another answer is another failure.
    pub code: Option<String>,
}

/// What is wrong with the list.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// The id or pattern in the list.
    pub case: String,
    /// In words.
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the list of expected failures: {}: {}", self.case, self.problem)
    }
}

impl Expectations {
    /// Marks the failures that are listed, and says what is wrong with the list. Entries about cases that were
    /// not run this time are taken as they are.
    #[must_use]
    pub fn apply(&self, cases: &[Case], results: &mut [CaseResult]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for entry in self.entries() {
            let mut say =
                |problem: String| problems.push(Problem { case: entry.case.clone(), problem });
            let named = cases.iter().filter(|case| matches(&entry.case, &case.expect.id)).count();
            if named == 0 {
                say("there is no such case".to_owned());
            } else if named > MOST_CASES {
                say(format!("matches {named} cases, at most {MOST_CASES}"));
                continue;
            }
            for result in results.iter_mut().filter(|result| matches(&entry.case, &result.id)) {
                if let Err(problem) = entry.excuse(result) {
                    say(problem);
                }
            }
        }
        problems
    }
}

impl Expected {
    /// Makes a failure an expected one.
    fn excuse(&self, result: &mut CaseResult) -> Result<(), String> {
        let id = &result.id;
        match result.verdict {
            Verdict::Crash if result.profile == Profile::Core => {
                return Err(format!("{id} crashes, which cannot be expected in core"));
            }
            Verdict::Fail | Verdict::Crash => {}
            Verdict::ExpectedFailure => return Err(format!("{id} is listed twice")),
            Verdict::Pass => return Err(format!("{id} passes: take it off the list")),
            Verdict::Skip => return Err(format!("{id} is skipped, which is no failure")),
            Verdict::NotRun => return Ok(()),
        }
        if let Some(code) = &self.code
            && result.code.as_ref() != Some(code)
        {
            let got = result.code.as_deref().unwrap_or("no code");
            return Err(format!("{id} fails with {got}, not with {code}"));
        }
        result.verdict = Verdict::ExpectedFailure;
        result.reason = Some(self.reason.clone());
        result.issue.clone_from(&self.issue);
        Ok(())
    }
}
