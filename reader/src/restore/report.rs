//! Grades of what is restored, and whether they are good enough.
//!
//! It knows what was demanded and which refusal comes first. It must not know why a record has its
//! grade.

use waystation_format::record::RecordKey;
use waystation_format::records::Uncaptured;
use waystation_format::{Code, Error, Grade, Result, rule};

use super::{Place, RestoreOptions, indices};
use crate::state::CanarySteps;

/// Why a stream or cursor that the caller does without is not restored.
pub(super) const LEFT_OUT: &str = "the caller leaves it out";

/// The grade of the records of one kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graded {
    /// Kind and name; the coordinate is that of the first of them in order of key.
    pub key: RecordKey,
    /// How good what was restored is.
    pub grade: Grade,
    /// Why it is not exact.
    pub reason: Option<String>,
}

/// Grades as they come.
pub(super) struct Report<'o> {
    place: Option<&'o Place>,
    options: &'o RestoreOptions,
    /// What canaries may take together where no place is asked about.
    pub(super) steps: CanarySteps,
    graded: Vec<Graded>,
    /// What is not good enough, each record once.
    refused: Vec<Refusal>,
}

/// A record that is not good enough, and why.
struct Refusal {
    /// As the place would have it.
    key: RecordKey,
    rule: &'static str,
    /// What was expected of it, with its place.
    expected: String,
    /// What it is graded, and why.
    found: String,
}

/// Refused records that an error about the first of them names besides, and names that it offers
/// for one that no record has.
const NAMED: usize = 8;

impl<'o> Report<'o> {
    pub(super) fn new(place: Option<&'o Place>, options: &'o RestoreOptions) -> Self {
        let steps = CanarySteps::of_validator(options.budget.stop());
        Self { place, options, steps, graded: Vec::new(), refused: Vec::new() }
    }

    /// Why nothing is handed out, if for a place one of the grades is worse than was demanded.
    pub(super) fn refused(&self) -> Option<Error> {
        let (first, others) = self.refused.split_first()?;
        self.place.map(|_| first.error(others))
    }

    /// The grades.
    ///
    /// # Errors
    /// `bad-argument` for a name in the options that no stream or cursor has: it was meant for one
    /// that has another.
    pub(super) fn finish(self) -> Result<Vec<Graded>> {
        let kinds = ["rng", "cursor", "uncaptured"];
        for name in &self.options.leave_out {
            self.check_name(name, &kinds, "a stream or cursor to leave out")?;
        }
        // A trainer may always say what it reads, also to a checkpoint that has no cursor.
        let cursors = self.graded.iter().any(|graded| graded.key.kind == "cursor");
        for name in self.options.offers.keys().filter(|_| cursors) {
            self.check_name(name, &kinds[1..], "a cursor to bring data for")?;
        }
        Ok(self.graded)
    }

    /// # Errors
    /// `bad-argument`, with the names that there are.
    fn check_name(&self, name: &str, kinds: &[&str], what: &str) -> Result<()> {
        let of_kind = |graded: &&Graded| kinds.contains(&graded.key.kind.as_str());
        let mut known: Vec<&str> =
            self.graded.iter().filter(of_kind).map(|graded| graded.key.name.as_str()).collect();
        if known.contains(&name) {
            return Ok(());
        }
        known.dedup();
        let more = if known.len() > NAMED { ", …" } else { "" };
        known.truncate(NAMED);
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message =
            format!("expected the name of {what}, found {name:?}; there is {known}{more}");
        Err(Error::new(Code::BadArgument, message))
    }

    fn exact(&mut self, key: &RecordKey) {
        self.push(key, Grade::Exact, None);
    }

    /// What was restored as it was saved for the place: exact, or while no place is asked about,
    /// exact on some.
    pub(super) fn as_saved(&mut self, key: &RecordKey) {
        if self.place.is_some() || key.coordinate.is_empty() {
            return self.exact(key);
        }
        let axes: Vec<&str> = key.coordinate.iter().map(|(axis, _)| axis.as_str()).collect();
        let reason = format!("it varies over {}", axes.join(", "));
        self.push(key, Grade::ExactIfAxesUnchanged, Some(reason));
    }

    pub(super) fn none(&mut self, key: &RecordKey, reason: String) {
        self.push(key, Grade::None, Some(reason));
    }

    pub(super) fn uncaptured(&mut self, key: &RecordKey, what: &Uncaptured) {
        let reason = format!("{} was not captured: {}", what.kind, what.reason);
        match what.kind.as_str() {
            "rng" => self.demand(key, Grade::None, &reason, self.options.streams),
            "cursor" => self.demand(key, Grade::None, &reason, self.options.cursors),
            _ => {}
        }
        self.none(key, reason);
    }

    /// Grades a stream or cursor, of which `worst` is demanded.
    pub(super) fn demanded(
        &mut self,
        key: &RecordKey,
        grade: Grade,
        reason: Option<String>,
        worst: Grade,
    ) {
        self.demand(key, grade, reason.as_deref().unwrap_or_default(), worst);
        self.push(key, grade, reason);
    }

    fn demand(&mut self, key: &RecordKey, grade: Grade, reason: &str, worst: Grade) {
        if grade > worst {
            let expected = format!("at least the grade {worst}");
            self.refuse(key, rule::RESTORE_DEMAND, &expected, format!("{grade}: {reason}"));
        }
    }

    /// A stream that requires its axes, of which one has changed.
    pub(super) fn require(&mut self, key: &RecordKey, reason: &str) {
        let found = format!("{}: {reason}", Grade::None);
        self.refuse(key, rule::RESTORE_REQUIRE, "the axes unchanged, as it requires,", found);
    }

    /// Keeps the first refusal of each record, unless it is left out; those of one record come one
    /// after the other.
    fn refuse(&mut self, key: &RecordKey, rule: &'static str, expected: &str, found: String) {
        if self.options.leave_out.contains(&key.name) {
            return;
        }
        let coordinate = match self.place {
            Some(place) => place.along(&key.coordinate),
            None => key.coordinate.clone(),
        };
        let key = RecordKey { coordinate, ..key.clone() };
        if self.refused.last().is_some_and(|last| last.key == key) {
            return;
        }
        let mut expected = format!("expected {expected} for {} {:?}", key.kind, key.name);
        if !key.coordinate.is_empty() {
            expected.push_str(&format!(" at {}", indices(&key.coordinate)));
        }
        self.refused.push(Refusal { key, rule, expected, found });
    }

    /// Where no place is asked about, the worst of the records of one kind and name stands for all.
    fn push(&mut self, key: &RecordKey, grade: Grade, reason: Option<String>) {
        if self.place.is_none()
            && let Some(last) = self.graded.last_mut()
            && (&last.key.kind, &last.key.name) == (&key.kind, &key.name)
        {
            if grade > last.grade {
                (last.grade, last.reason) = (grade, reason);
            }
            return;
        }
        self.graded.push(Graded { key: key.clone(), grade, reason });
    }
}

impl Refusal {
    /// Who mends one record at a time wants to know of the others.
    fn error(&self, others: &[Self]) -> Error {
        let mut message = format!("{}, found {}", self.expected, self.found);
        for (index, Self { key, found, .. }) in others.iter().take(NAMED).enumerate() {
            let before = if index == 0 { "; refused too: " } else { ", " };
            message.push_str(&format!("{before}{} {:?} ({found})", key.kind, key.name));
        }
        if others.len() > NAMED {
            message.push_str(", and more");
        }
        Error::rule(Code::NotExact, self.rule, message).in_record(self.key.key())
    }
}
