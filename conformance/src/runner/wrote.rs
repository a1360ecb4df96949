//! Cases of `write`: what was written must be a checkpoint, and hold what the recipe says. Those of `durability`
//! are killed on the way. Knows directories; the reference reader judges what is in them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use waystation_format::{Result, names, session};
use waystation_state::Stop;

use super::adapter::{Adapter, Limits, check_memory};
use super::answer::Answer;
use super::compare::differences;
use super::grade::{Grade, Verdict};
use super::place::{Placed, Unplaced};
use super::reference;
use crate::case::{Case, Outcome};

/// The directory to write: named as an attempt of the recipe where it names one, so that it may stand in a run.
#[must_use]
pub fn out(recipe: Option<&Value>, within: &Path) -> PathBuf {
    let step = recipe.and_then(|recipe| recipe.get("step")).and_then(Value::as_u64);
    let attempt = recipe.and_then(|recipe| recipe.get("attempt")).and_then(Value::as_str);
    let attempt = attempt.and_then(session::Attempt::parse);
    let name = step.zip(attempt).map(|(step, attempt)| names::attempt_dir(step, &attempt));
    within.join(name.as_deref().unwrap_or("out"))
}

/// The content that a case says will be there.
#[must_use]
pub fn expected(case: &Case) -> &Value {
    let answer = case.expect.answer.as_ref().unwrap_or(&Value::Null);
    answer.get("projection").unwrap_or(answer)
}

/// Looks at what stands at `out` after an adapter's `ok` or refusal.
#[must_use]
pub fn judge(case: &Case, out: &Path, mut grade: Grade) -> Grade {
    if grade.verdict != Verdict::Pass {
        return grade;
    }
    let refused = grade.code.is_some();
    let why = match case.expect.outcome {
        Outcome::Either if refused => left_nothing(out),
        Outcome::Reject => left_nothing(out),
        Outcome::Accept | Outcome::Either => {
            let mut why = holds(out, expected(case));
            if why.is_empty() {
                why = states(out, case);
            }
            why
        }
    };
    if !why.is_empty() {
        grade.verdict = Verdict::Fail;
        grade.why = why;
    }
    grade
}

/// Why what stands at `out` is no checkpoint of this content.
fn holds(out: &Path, expected: &Value) -> Vec<String> {
    if !fs::symlink_metadata(out).is_ok_and(|found| found.is_dir()) {
        return vec!["expected a directory at out, found none".to_owned()];
    }
    let directories = directories(out);
    if !directories.is_empty() {
        let say = |name| format!("it made the directory {name} in an attempt (dir.flat)");
        return directories.into_iter().map(say).collect();
    }
    match reference::findings(out) {
        Ok(findings) if findings.is_empty() => {}
        Ok(findings) => {
            return findings
                .into_iter()
                .map(|f| format!("what it wrote is refused: {f}"))
                .collect();
        }
        Err(e) => return vec![format!("what it wrote cannot be read: {e}")],
    }
    match reference::content(out) {
        Ok(content) => differences(expected, &content),
        Err(e) => vec![format!("what it wrote cannot be read: {e}")],
    }
}

/// Why what stands at `out` is not of the save that the recipe asks for: content alone says nothing of its attempt, its
/// parent, or its topology.
fn states(out: &Path, case: &Case) -> Vec<String> {
    let Some(recipe) = case.expect.request.get("recipe") else { return Vec::new() };
    let of = |name: &str| recipe.get(name).cloned().unwrap_or_default();
    let asked = json!({
        "attempt": of("attempt"), "block_bytes": of("block_bytes"), "parent": of("parent"), "topology": of("topology"),
        "writers": recipe.get("writers").and_then(Value::as_array).map_or(0, Vec::len),
    });
    match reference::save(out) {
        Ok(found) => differences(&asked, &found),
        Err(e) => vec![format!("what it wrote cannot be read: {e}")],
    }
}

/// What no reader looks at: directories in an attempt.
fn directories(out: &Path) -> Vec<String> {
    let listing = fs::read_dir(out).into_iter().flatten().filter_map(Result::ok);
    let folders = listing.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A recipe that was refused leaves no checkpoint.
fn left_nothing(out: &Path) -> Vec<String> {
    if out.join(names::COMMIT).exists() {
        vec!["it refused, and left a commit file all the same".to_owned()]
    } else {
        Vec::new()
    }
}

/// How saves are interrupted.
#[derive(Debug)]
pub(super) struct Killing<'a> {
    pub(super) command: &'a [OsString],
    pub(super) limits: Limits,
    /// How many saves of each case are killed.
    pub(super) kills: u32,
    pub(super) stop: &'a Stop,
}

impl Killing<'_> {
    /// One save that is let be, which says how long one takes; then one for each kill, in a run of its own and by a
    /// process of its own. What the run gives afterwards is the checkpoint from before or the new one, whole.
    ///
    /// # Errors
    /// Those of the environment; an adapter that does not start.
    pub(super) fn grade(&self, case: &Case) -> Result<Grade, Unplaced> {
        let (grade, time) = self.whole(case)?;
        if grade.verdict != Verdict::Pass {
            return Ok(grade);
        }
        for kill in 0..self.kills {
            if self.stop.is_requested() {
                break;
            }
            let delay = time.mul_f64(fraction(&case.expect.id, kill, self.kills));
            let why = self.killed(case, delay)?;
            if !why.is_empty() {
                let place = format!("killed {} µs after the request", delay.as_micros());
                let why = why.into_iter().map(|why| format!("{place}: {why}")).collect();
                return Ok(Grade { verdict: Verdict::Fail, why, ..grade });
            }
        }
        Ok(grade)
    }

    fn whole(&self, case: &Case) -> Result<(Grade, Duration), Unplaced> {
        let mut save = self.begin(case)?;
        let start = Instant::now();
        let answer = save.adapter.ask("write", save.members.clone());
        let time = start.elapsed();
        let mut grade = match &answer {
            Ok((answer, cost)) => {
                let bytes = size(case, Some(&save.out));
                match cost.map_or(Ok(()), |cost| check_memory(cost, bytes)) {
                    Ok(()) => super::grade::grade(&case.expect, answer, 1),
                    Err(crash) => Grade::crash(&crash),
                }
            }
            Err(crash) => Grade::crash(crash),
        };
        if matches!(answer, Ok((Answer::Ok(_), _))) && grade.verdict == Verdict::Pass {
            grade = judge(case, &save.out, grade);
            if grade.verdict == Verdict::Pass {
                let found = reference::latest(&save.placed.given()).map_err(Unplaced::Failed)?;
                if found != save.name() {
                    let found = found.as_deref().unwrap_or("none");
                    grade.why =
                        vec![format!("expected the new checkpoint as the latest, found {found}")];
                    grade.verdict = Verdict::Fail;
                }
            }
        }
        Ok((grade, time))
    }

    /// What is wrong with the run after a kill.
    fn killed(&self, case: &Case, delay: Duration) -> Result<Vec<String>, Unplaced> {
        let mut save = self.begin(case)?;
        let before = save.before.clone();
        if save.adapter.send("write", save.members.clone()).is_err() {
            return Ok(vec!["the adapter ended by itself".to_owned()]);
        }
        thread::sleep(delay);
        save.adapter.kill();
        let given = save.placed.given();
        let found = match reference::latest(&given) {
            Ok(found) => found,
            Err(e) => return Ok(vec![format!("the run cannot be read: {e}")]),
        };
        Ok(match (&found, before) {
            (name, _) if *name == save.name() => holds(&save.out, expected(case)),
            (Some(name), Some((old, content))) if *name == old => {
                holds(&given.join(name), &content)
            }
            (None, None) => Vec::new(),
            (found, _) => {
                let found = found.as_deref().unwrap_or("none");
                vec![format!("expected the checkpoint before or the new one, found {found}")]
            }
        })
    }

    fn begin(&self, case: &Case) -> Result<Save, Unplaced> {
        let placed = Placed::new(&case.given, &case.expect.setup)?;
        let given = placed.given();
        let read = || -> Result<_> {
            let Some(name) = reference::latest(&given)? else { return Ok(None) };
            let content = reference::content(&given.join(&name))?;
            Ok(Some((name, content)))
        };
        let before = read().map_err(Unplaced::Failed)?;
        let out = out(case.expect.request.get("recipe"), &given);
        let mut members = case.expect.request.clone();
        members.insert("out".to_owned(), json!(out));
        let adapter =
            Adapter::start(self.command, self.limits, self.stop).map_err(Unplaced::Failed)?;
        Ok(Save { placed, out, members, before, adapter })
    }
}

/// A save about to begin.
struct Save {
    placed: Placed,
    out: PathBuf,
    members: Map<String, Value>,
    /// Name and content of the checkpoint that is there already.
    before: Option<(String, Value)>,
    adapter: Adapter,
}

impl Save {
    fn name(&self) -> Option<String> {
        Some(self.out.file_name()?.to_string_lossy().into_owned())
    }
}

/// The size of what a case is about: its files, its recipe, and what was written.
#[must_use]
pub fn size(case: &Case, out: Option<&Path>) -> u64 {
    let given: usize = case.given.values().map(Vec::len).sum();
    let request: usize = case.expect.request.values().map(|value| value.to_string().len()).sum();
    let listing = out.and_then(|out| fs::read_dir(out).ok()).into_iter().flatten();
    let written = listing.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    let sum = written.fold(0_u64, u64::saturating_add);
    sum.saturating_add(u64::try_from(given.saturating_add(request)).unwrap_or(u64::MAX))
}

/// The place of a kill in the time that a save takes: spread evenly up to a little more than all of it, the
/// same in every run of the suite.
fn fraction(id: &str, kill: u32, kills: u32) -> f64 {
    let digest = Sha256::digest(format!("{id}/{kill}"));
    let chance = f64::from(digest.first().copied().unwrap_or(0)) / 256.0;
    1.1 * (f64::from(kill) + chance) / f64::from(kills.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_spread_and_the_same_each_time() {
        let places: Vec<f64> = (0..8).map(|kill| fraction("durability/a", kill, 8)).collect();
        assert!(places.is_sorted() && places[0] < 0.14 && places[7] > 0.96 && places[7] < 1.1);
        assert_eq!(places[3], fraction("durability/a", 3, 8));
        assert_ne!(places[3], fraction("durability/b", 3, 8));
    }
}
