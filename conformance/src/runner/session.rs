//! A run of the suite: one case after another, with an adapter that is started again when it has to be.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use waystation_format::{Code, Error, Result};
use waystation_state::Stop;

use super::adapter::{Adapter, Limits, check_memory};
use super::answer::Crash;
use super::expected::Expectations;
use super::grade::{Grade, Level, Verdict, expectation, grade};
use super::meter::Cost;
use super::place::{Placed, Unplaced};
use super::report::{CaseResult, Report};
use super::select::{Selection, matches};
use super::wrote::{self, Killing};
use crate::case::{Case, Op, Profile};

/// How the suite is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The adapter's program and its arguments.
    pub adapter: Vec<OsString>,
    /// Which cases.
    pub selection: Selection,
    /// How exactly refusals must be right.
    pub level: Level,
    /// A process for every case.
    pub isolate: bool,
    /// Saves that are killed in each case of `durability`.
    pub kills: u32,
    /// What a case may take.
    pub limits: Limits,
}

impl Options {
    /// Everything, at level 1, as the protocol has it.
    #[must_use]
    pub fn new(adapter: Vec<OsString>) -> Self {
        Self {
            adapter,
            selection: Selection::default(),
            level: 1,
            isolate: false,
            kills: 8,
            limits: Limits::default(),
        }
    }
}

/// Who watches a run.
pub trait Watcher {
    /// Before the first of this many cases.
    fn begin(&self, _cases: usize) {}
    /// After each.
    fn done(&self, _result: &CaseResult) {}
    /// After each of those that have no result of their own.
    fn advance(&self) {}
    /// A wish that the run end: no case is begun afterwards, and nobody waits for an answer.
    fn stop(&self) -> Stop {
        Stop::new()
    }
}

/// Nobody.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watcher for Unwatched {}

/// Puts the chosen cases of profiles that the adapter claims to it, in their order; `expected` are the failures
/// that are known of.
///
/// # Errors
/// [`Code::BadArgument`] for a selection that chooses no case, [`Code::Interrupted`], and those of the environment: an
/// adapter that cannot be started or does not answer `hello`, a case that cannot be written.
pub fn run(
    cases: &[Case],
    options: &Options,
    expected: Option<&Expectations>,
    watcher: &dyn Watcher,
) -> Result<Report> {
    let chosen: Vec<&Case> = cases.iter().filter(|case| options.selection.chooses(case)).collect();
    if chosen.is_empty() {
        return Err(Error::new(
            Code::BadArgument,
            format!("expected a selection of some case, found {}", options.selection),
        ));
    }
    for pattern in &options.selection.cases {
        if !chosen.iter().any(|case| matches(pattern, &case.expect.id)) {
            let alone = Selection { cases: vec![pattern.clone()], ..options.selection.clone() };
            let why = format!("expected a selection of some case, found {alone}");
            return Err(Error::new(Code::BadArgument, why));
        }
    }
    let stop = watcher.stop();
    let adapter = unless_stopped(&stop, Adapter::start(&options.adapter, options.limits, &stop))?;
    let hello = adapter.hello().clone();
    let measured = adapter.is_measured();
    let chosen: Vec<&Case> =
        chosen.into_iter().filter(|case| hello.profiles.contains(&case.expect.profile)).collect();
    watcher.begin(chosen.len());
    let adapter = Some(adapter);
    let mut session = Session { options, stop: &stop, adapter, asked: None, results: Vec::new() };
    for case in chosen {
        unless_stopped(&stop, Ok(()))?;
        // What a case came to that was stopped, or ended with us, is not known.
        let done = session.run_case(case);
        unless_stopped(&stop, done)?;
        if let Some(result) = session.results.last() {
            watcher.done(result);
        }
    }
    session.end();
    let mut results = session.results;
    let problems = expected.map(|list| list.apply(cases, &mut results)).unwrap_or_default();
    Ok(Report::new(cases, options, (hello, measured), results, problems))
}

/// What came of it, or that it was not to be ended.
///
/// # Errors
/// [`Code::Interrupted`], and those of the result.
pub(super) fn unless_stopped<T>(stop: &Stop, result: Result<T>) -> Result<T> {
    if stop.is_requested() {
        return Err(Error::new(Code::Interrupted, "asked to stop; nothing is left behind"));
    }
    result
}

struct Session<'a> {
    options: &'a Options,
    stop: &'a Stop,
    adapter: Option<Adapter>,
    /// The result, by position, of what the adapter that runs was asked last.
    asked: Option<usize>,
    results: Vec<CaseResult>,
}

/// What one case came to.
struct Put {
    grade: Grade,
    cost: Option<Cost>,
    errors: String,
}

impl Session<'_> {
    fn run_case(&mut self, case: &Case) -> Result<()> {
        let start = Instant::now();
        let put = match self.put(case) {
            Ok(put) => put,
            Err(Unplaced::Failed(e)) => return Err(e.in_file(case.expect.id.clone())),
            Err(Unplaced::NotHere(why)) => {
                let got = format!("not run here: {why}");
                let grade = Grade {
                    verdict: Verdict::NotRun,
                    reached: None,
                    got,
                    code: None,
                    why: Vec::new(),
                };
                Put { grade, cost: None, errors: String::new() }
            }
        };
        let (grade, expect) = (put.grade, &case.expect);
        let bad = matches!(grade.verdict, Verdict::Fail | Verdict::Crash);
        self.results.push(CaseResult {
            id: expect.id.clone(),
            profile: expect.profile,
            level: expect.level,
            verdict: grade.verdict,
            reached: grade.reached,
            expected: expectation(expect),
            got: grade.got,
            code: grade.code,
            why: grade.why,
            reason: None,
            issue: None,
            fault: expect.fault.clone(),
            effect: expect.effect,
            millis: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            memory: put.cost.map(|cost| cost.memory),
            stderr: (bad && !put.errors.is_empty()).then_some(put.errors),
        });
        if self.options.isolate {
            self.end();
        }
        Ok(())
    }

    fn put(&mut self, case: &Case) -> Result<Put, Unplaced> {
        if case.expect.profile == Profile::Durability && case.expect.op == Op::Write {
            let options = self.options;
            let (command, limits, kills) = (&options.adapter, options.limits, options.kills);
            let killing = Killing { command, limits, kills, stop: self.stop };
            let grade = killing.grade(case)?;
            return Ok(Put { grade, cost: None, errors: String::new() });
        }
        let placed = Placed::new(&case.given, &case.expect.setup)?;
        // The case before, and a crash that may have been its fault.
        let mut suspect: Option<(usize, Crash)> = None;
        let mut again = 0_u32;
        loop {
            let (put, crash, fresh) = self.ask(case, &placed, again).map_err(Unplaced::Failed)?;
            let Some(crash) = crash else {
                // A new process did not crash.
                if let Some((before, crash)) = suspect {
                    self.blame(before, &crash);
                }
                self.asked = Some(self.results.len());
                return Ok(put);
            };
            let blames = self.adapter.as_ref().is_some_and(|a| a.blames_before(&crash));
            // What comes too late is the fault of the case before; what a process took in its life is
            // not what this case took.
            let innocent = match self.asked {
                Some(before) if blames => {
                    self.blame(before, &crash);
                    true
                }
                Some(before) if crash.may_be_late() => {
                    suspect = Some((before, crash));
                    true
                }
                _ => matches!(crash, Crash::Memory { .. }) && !fresh,
            };
            self.drop_adapter();
            if !innocent || again > 0 {
                return Ok(put);
            }
            again = again.saturating_add(1);
        }
    }

    /// Asks once; the crash, if there is one, stands beside its grade. True when the process was new.
    fn ask(
        &mut self,
        case: &Case,
        placed: &Placed,
        again: u32,
    ) -> Result<(Put, Option<Crash>, bool)> {
        let level = self.options.level;
        let expect = &case.expect;
        let mut members = expect.request.clone();
        let mut out = None;
        if expect.op == Op::Write {
            let within = fresh_folder(placed, again)?;
            let path = wrote::out(expect.request.get("recipe"), &within);
            members.insert("out".to_owned(), json!(path));
            out = Some(path);
        } else {
            members.insert("path".to_owned(), json!(placed.given()));
        }
        let adapter = self.adapter()?;
        let (fresh, mark) = (adapter.is_fresh(), adapter.mark());
        let op = json!(expect.op);
        let asked = adapter.ask(op.as_str().unwrap_or_default(), members);
        let asked = asked.and_then(|(answer, cost)| {
            let bytes = wrote::size(case, out.as_deref());
            cost.map_or(Ok(()), |cost| check_memory(cost, bytes)).map(|()| (answer, cost))
        });
        let (mut graded, cost, crash) = match asked {
            Ok((answer, cost)) => (grade(expect, &answer, level), cost, None),
            Err(crash) => (Grade::crash(&crash), None, Some(crash)),
        };
        if let Some(out) = &out {
            graded = wrote::judge(case, out, graded);
        } else {
            graded = unchanged(placed, graded);
        }
        let bad = matches!(graded.verdict, Verdict::Fail | Verdict::Crash);
        if bad {
            // What it says on the way down may come a moment after its end.
            std::thread::sleep(Duration::from_millis(20));
        }
        let errors = if bad { adapter.errors_since(mark) } else { String::new() };
        Ok((Put { grade: graded, cost, errors }, crash, fresh))
    }

    fn adapter(&mut self) -> Result<&mut Adapter> {
        let running = match self.adapter.take() {
            Some(running) => running,
            None => Adapter::start(&self.options.adapter, self.options.limits, self.stop)?,
        };
        Ok(self.adapter.insert(running))
    }

    fn drop_adapter(&mut self) {
        self.adapter = None;
        self.asked = None;
    }

    /// A line too much makes a crash of the case before, whatever its answer was.
    fn blame(&mut self, before: usize, crash: &Crash) {
        if let Some(result) = self.results.get_mut(before) {
            result.verdict = Verdict::Crash;
            (result.reached, result.code) = (None, None);
            result.why = vec![format!("after its answer, {}", result.got)];
            result.got = crash.to_string();
        }
    }

    fn end(&mut self) {
        let said = self.adapter.take().and_then(Adapter::end);
        if let (Some(crash), Some(before)) = (said, self.asked.take()) {
            self.blame(before, &crash);
        }
    }
}

/// Who reads leaves alone what he reads.
fn unchanged(placed: &Placed, mut grade: Grade) -> Grade {
    let changed = placed.changed();
    if !changed.is_empty() && grade.verdict != Verdict::Crash {
        grade.verdict = Verdict::Fail;
        grade
            .why
            .extend(changed.into_iter().map(|path| format!("it changed what it read: {path}")));
    }
    grade
}

/// A directory in which nothing was written yet.
fn fresh_folder(placed: &Placed, again: u32) -> Result<PathBuf> {
    let within = placed.root().join(format!("written-{again}"));
    std::fs::create_dir(&within).map_err(|e| Error::io("make a directory to write into", e))?;
    Ok(within)
}
