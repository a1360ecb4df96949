//! What an answer is worth: the verdicts of the protocol. Knows cases, answers and the registry's codes; runs nothing.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use waystation_format::{Class, Code};

use super::answer::{Answer, Crash, INTERNAL, Refusal, shortened};
use super::compare::differences;
use crate::case::{Expect, Op, Outcome};

/// What became of a case.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As expected.
    Pass,
    /// Wrong, as the list of expected failures says.
    ExpectedFailure,
    /// Wrong.
    Fail,
    /// No answer, or one at too high a price.
    Crash,
    /// The implementation does not do this.
    Skip,
    /// The case cannot be made here.
    NotRun,
}

/// How exactly a refusal is right.
///
/// 1: refused. 2: with a code of the right class. 3: with the right code.
pub type Level = u8;

/// The grade of one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Grade {
    /// Pass, fail, crash or skip.
    pub verdict: Verdict,
    /// Of a case that wants a refusal and got one: how exactly.
    pub reached: Option<Level>,
    /// What was answered, in a line.
    pub got: String,
    /// The code that was answered.
    pub code: Option<String>,
    /// Why it is no pass, a line each.
    pub why: Vec<String>,
}

impl Grade {
    /// Of what is no answer.
    #[must_use]
    pub fn crash(crash: &Crash) -> Self {
        let got = crash.to_string();
        Self { verdict: Verdict::Crash, reached: None, got, code: None, why: Vec::new() }
    }

    pub(super) fn new(verdict: Verdict, answer: &Answer, why: Vec<String>) -> Self {
        let code = match answer {
            Answer::Refused(refusal) => Some(refusal.code.clone()),
            _ => None,
        };
        Self { verdict, reached: None, got: answer.brief(), code, why }
    }
}

/// Grades an answer to any operation, for an implementation that is to reach `gate`. Of `write` it is what
/// the adapter said; what it wrote is looked at afterwards.
#[must_use]
pub fn grade(expect: &Expect, answer: &Answer, gate: Level) -> Grade {
    if matches!(answer, Answer::Skip { .. }) {
        return Grade::new(Verdict::Skip, answer, Vec::new());
    }
    let refusals = match refusals(expect.op, answer) {
        Ok(refusals) => refusals,
        Err(crash) => return Grade::crash(&crash),
    };
    if let Some(fallen) = refusals.iter().find(|refusal| refusal.code == INTERNAL) {
        return Grade::crash(&Crash::Internal(shortened(&fallen.whole)));
    }
    match expect.outcome {
        // What is left open is which of both, and not what is in either.
        Outcome::Either if refusals.is_empty() => accept(expect, answer, &refusals),
        Outcome::Either => reject(expect, answer, &refusals, gate),
        Outcome::Accept => accept(expect, answer, &refusals),
        Outcome::Reject => reject(expect, answer, &refusals, gate),
    }
}

/// What the implementation refuses with: its error, or what it found.
fn refusals(op: Op, answer: &Answer) -> Result<Vec<Refusal>, Crash> {
    match answer {
        Answer::Refused(refusal) => Ok(vec![refusal.clone()]),
        Answer::Ok(ok) if op == Op::Validate => {
            let garbage = |why: &str| Crash::Garbage(format!("{why}: {}", answer.brief()));
            let found = ok.get("findings").and_then(Value::as_array);
            let found = found.ok_or_else(|| garbage("expected a list of findings"))?;
            let each = found.iter().map(|finding| Refusal::of(finding.clone()));
            each.collect::<Result<_, _>>().map_err(|why| garbage(&why))
        }
        _ => Ok(Vec::new()),
    }
}

fn accept(expect: &Expect, answer: &Answer, refusals: &[Refusal]) -> Grade {
    if let Some(refusal) = refusals.first() {
        let why = format!(
            "expected {}, found a refusal: {}",
            expectation(expect),
            shortened(&refusal.whole)
        );
        let mut grade = Grade::new(Verdict::Fail, answer, vec![why]);
        grade.code = Some(refusal.code.clone());
        return grade;
    }
    let got = match answer {
        Answer::Ok(ok) => Value::Object(ok.clone()),
        _ => Value::Null,
    };
    // What a write left is compared with the files, not with the words.
    let expected = expect.answer.as_ref().filter(|_| expect.op != Op::Write);
    let why = expected.map(|expected| differences(expected, &got)).unwrap_or_default();
    let verdict = if why.is_empty() { Verdict::Pass } else { Verdict::Fail };
    Grade::new(verdict, answer, why)
}

fn reject(expect: &Expect, answer: &Answer, refusals: &[Refusal], gate: Level) -> Grade {
    let best = refusals.iter().map(|refusal| (level(expect, &refusal.code), refusal));
    let Some((reached, refusal)) = best.max_by_key(|(level, _)| *level) else {
        let why = format!("expected {}, found none", expectation(expect));
        return Grade::new(Verdict::Fail, answer, vec![why]);
    };
    let (verdict, why) = if reached >= gate {
        (Verdict::Pass, Vec::new())
    } else {
        let why = format!(
            "expected {}, found {}: level {reached} where {gate} is asked for",
            expectation(expect),
            refusal.code
        );
        (Verdict::Fail, vec![why])
    };
    let grade = Grade::new(verdict, answer, why);
    Grade { reached: Some(reached), code: Some(refusal.code.clone()), ..grade }
}

/// How exactly `code` is one of those expected.
fn level(expect: &Expect, code: &str) -> Level {
    let class = |code: &str| Code::from_id(code).map(Code::class);
    let mut classes = expect.codes.iter().filter_map(|code| class(code));
    if expect.codes.is_empty() || expect.codes.iter().any(|expected| expected == code) {
        3
    } else if class(code).is_some_and(|found| classes.any(|class| class == found)) {
        2
    } else {
        1
    }
}

/// What a case expects, in a few words.
#[must_use]
pub fn expectation(expect: &Expect) -> String {
    let codes = expect.codes.join(" or ");
    let class = expect.class.as_deref().and_then(Class::from_id).map(Class::as_str);
    match (expect.outcome, expect.op) {
        (Outcome::Accept, Op::Write) => "a checkpoint that holds what the recipe says".to_owned(),
        (Outcome::Accept, Op::Validate) => "no findings".to_owned(),
        (Outcome::Accept, _) => "ok".to_owned(),
        (outcome, _) => {
            let either = if outcome == Outcome::Either { "ok or " } else { "" };
            match class {
                Some(class) => format!("{either}a refusal, {codes} ({class})"),
                None => format!("{either}a refusal, {codes}"),
            }
        }
    }
}
