//! Grades of what is restored, and whether they are good enough.
//!
//! It knows what was demanded and which refusal comes first. It must not know why a record has its
//! grade.

use waystation_format::record::RecordKey;
use waystation_format::records::Uncaptured;
use waystation_format::{Code, Error, Grade, Result, rule};

use super::{Place, RestoreOptions};
use crate::state::CanarySteps;

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
    key: RecordKey,
    rule: &'static str,
    message: String,
}

/// Refused records that an error about the first of them names besides.
const NAMED: usize = 8;

impl<'o> Report<'o> {
    pub(super) fn new(place: Option<&'o Place>, options: &'o RestoreOptions) -> Self {
        let steps = CanarySteps::of_validator();
        Self { place, options, steps, graded: Vec::new(), refused: Vec::new() }
    }

    /// The grades, unless one of them is worse than was demanded.
    pub(super) fn finish(self) -> Result<Vec<Graded>> {
        match self.refused.split_first() {
            Some((first, others)) if self.place.is_some() => Err(first.error(others)),
            _ => Ok(self.graded),
        }
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
        if grade <= worst || self.options.leave_out.contains(&key.name) {
            return;
        }
        let message = format!(
            "expected at least the grade {worst} for {} {:?}, found {grade}: {reason}",
            key.kind, key.name
        );
        self.refuse(key, rule::RESTORE_DEMAND, message);
    }

    /// Keeps the first refusal of each record; those of one record come one after the other.
    pub(super) fn refuse(&mut self, key: &RecordKey, rule: &'static str, message: String) {
        if self.refused.last().is_none_or(|last| last.key != *key) {
            self.refused.push(Refusal { key: key.clone(), rule, message });
        }
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
        let mut message = self.message.clone();
        for (index, Self { key, .. }) in others.iter().take(NAMED).enumerate() {
            let before = if index == 0 { "; refused too: " } else { ", " };
            message.push_str(&format!("{before}{} {:?}", key.kind, key.name));
        }
        if others.len() > NAMED {
            message.push_str(", and more");
        }
        Error::rule(Code::NotExact, self.rule, message).in_record(self.key.key())
    }
}
