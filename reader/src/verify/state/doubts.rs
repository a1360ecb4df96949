//! What no rule forbids and nobody should pass over: records that are each right and together
//! strange, as they are after a resume that went wrong in silence.
//!
//! It knows which counts ought to agree. What it says is a note, never a finding.

use waystation_format::records::rng::State;
use waystation_format::records::schedule::Unit;
use waystation_format::records::{Cursor, Progress, Schedule, Stream};

use super::RecordKey;
use crate::verify::Note;

/// The cursor that counts what training consumes.
const TRAIN: &str = "train";

/// Counts as records go by.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    progress: Option<Progress>,
    schedules: Vec<(String, Unit, u64)>,
    /// What the cursor `train` consumed, one at most.
    consumed: Option<u64>,
    alike: Option<Alike>,
    found: Vec<Note>,
}

/// Streams of one name that vary over places.
#[derive(Debug)]
struct Alike {
    name: String,
    /// Of the first of them.
    state: State,
    places: u64,
    differ: bool,
}

impl Doubts {
    pub(super) fn progress(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    pub(super) fn schedule(&mut self, key: &RecordKey, schedule: &Schedule) {
        self.schedules.push((key.name.clone(), schedule.unit, schedule.position));
    }

    pub(super) fn cursor(&mut self, key: &RecordKey, cursor: &Cursor) {
        if key.name == TRAIN && key.coordinate.is_empty() {
            self.consumed = cursor.consumed;
        }
    }

    /// Streams come by name, and so one after another.
    pub(super) fn stream(&mut self, key: &RecordKey, stream: &Stream) {
        if let Some(alike) = &mut self.alike
            && alike.name == key.name
        {
            alike.places = alike.places.saturating_add(1);
            alike.differ |= alike.state != stream.state;
            return;
        }
        self.close();
        let (name, state) = (key.name.clone(), stream.state.clone());
        self.alike =
            (!key.coordinate.is_empty()).then_some(Alike { name, state, places: 1, differ: false });
    }

    pub(super) fn finish(mut self) -> Vec<Note> {
        self.close();
        let Some(progress) = self.progress else { return self.found };
        for (name, unit, position) in &self.schedules {
            let count = match unit {
                Unit::OptimizerSteps => Some(progress.optimizer_step),
                Unit::Samples => progress.samples,
                Unit::Tokens => progress.tokens,
                Unit::Epochs => progress.epoch,
            };
            if let Some(count) = count.filter(|count| count != position) {
                let unit = unit.as_str();
                self.found.push(Note::Doubtful(format!(
                    "the schedule {name:?} stands at {position} {unit}, progress at {count}"
                )));
            }
        }
        if let Some((consumed, samples)) = self.consumed.zip(progress.samples)
            && consumed != samples
        {
            self.found.push(Note::Doubtful(format!(
                "the cursor {TRAIN:?} consumed {consumed} items, progress counts {samples} samples"
            )));
        }
        self.found
    }

    fn close(&mut self) {
        if let Some(alike) = self.alike.take()
            && alike.places > 1
            && !alike.differ
        {
            self.found.push(Note::Doubtful(format!(
                "the stream {:?} varies over {} places and is the same at all of them",
                alike.name, alike.places
            )));
        }
    }
}
