//! Random streams for a place: as saved, forked, or not at all.
//!
//! It knows what becomes of a stream on another topology, and its lineage. Engines and the seeds of
//! forks are those of `waystation-state`.

use waystation_format::record::Record;
use waystation_format::records::rng::{Fork, OnReshape};
use waystation_format::records::{Stream, Typed};
use waystation_format::{Code, Error, Grade, Result, RngAlgorithm};
use waystation_state::rng::{Engine, StreamState, canary, fork_seed};

use super::report::{LEFT_OUT, Report};
use super::{Place, RestoreOptions, Unfit, of_record};
use crate::checkpoint::Checkpoint;
use crate::state::check_stream;

/// Outputs in the canary of a stream that was forked.
const FORK_CANARY: usize = 4;

/// A stream for one place.
#[derive(Clone, Debug)]
pub struct RestoredStream {
    /// The stream's name.
    pub name: String,
    /// How good it is.
    pub grade: Grade,
    /// What to put into the engine, its caches with it; `None` when it is not restored.
    pub state: Option<StreamState>,
    /// The raw outputs that come next, as in a record.
    pub next_raw: Vec<String>,
    /// The lineage that the next checkpoint has to tell, if it is a fork.
    pub fork: Option<Fork>,
    /// The record: that of the place, or the first of the stream's when it has none.
    pub record: Stream,
}

impl RestoredStream {
    /// The record of this stream as it was restored, with its lineage when it is a fork; `None` when
    /// it was not restored. Of a stream that was drawn from since, the lineage is still to be kept:
    /// the next checkpoint writes it.
    ///
    /// # Errors
    /// `bad-rng-state` only for a state that was changed by hand.
    pub fn to_record(&self) -> Result<Option<Stream>> {
        let Some(state) = &self.state else { return Ok(None) };
        if self.fork.is_none() {
            return Ok(Some(self.record.clone()));
        }
        let forked = state.to_record(self.record.on_reshape, "")?;
        Ok(Some(Stream {
            caches: Vec::new(),
            fork: self.fork.clone(),
            next_raw: forked.next_raw,
            seed_rule: None,
            state: forked.state,
            ..self.record.clone()
        }))
    }
}

pub(super) fn restore(
    checkpoint: &Checkpoint,
    group: &[Record],
    place: Option<&Place>,
    options: &RestoreOptions,
    report: &mut Report<'_>,
) -> Result<RestoredStream> {
    let Some(first) = group.first() else {
        return Err(Error::new(Code::BadArgument, "expected a record of the stream, found none"));
    };
    if place.is_some() && options.leave_out.contains(&first.key.name) {
        report.none(&first.key, LEFT_OUT.to_owned());
        return Ok(RestoredStream {
            name: first.key.name.clone(),
            grade: Grade::None,
            state: None,
            next_raw: Vec::new(),
            fork: None,
            record: stream_of(first)?,
        });
    }
    match checkpoint.choose(group, place, &first.key) {
        Ok(record) => as_saved(checkpoint, record, place, options, report),
        Err(unfit) => reshaped(checkpoint, first, place, unfit, options, report),
    }
}

fn as_saved(
    checkpoint: &Checkpoint,
    record: &Record,
    place: Option<&Place>,
    options: &RestoreOptions,
    report: &mut Report<'_>,
) -> Result<RestoredStream> {
    let stream = stream_of(record)?;
    // What is not restored is not looked into.
    let known = match StreamState::of_record(&stream, Vec::new()) {
        Ok(known) => {
            let state = check_stream(checkpoint, &stream).map_err(|e| of_record(e, &record.key))?;
            Ok(StreamState { state, ..known })
        }
        Err(unknown) => Err(unknown),
    };
    let (grade, state, reason) = match known {
        Ok(state) if place.is_none() && !record.key.coordinate.is_empty() => {
            (Grade::ExactIfAxesUnchanged, Some(state), Some(on_reshape(&stream).to_owned()))
        }
        Ok(state) => (Grade::Exact, Some(state), None),
        Err(reason) => (Grade::None, None, Some(reason)),
    };
    report.demanded(&record.key, grade, reason, options.streams);
    Ok(RestoredStream {
        name: record.key.name.clone(),
        grade,
        state,
        next_raw: stream.next_raw.clone(),
        fork: None,
        record: stream,
    })
}

/// A stream that has no record for the place.
fn reshaped(
    checkpoint: &Checkpoint,
    first: &Record,
    place: Option<&Place>,
    unfit: Unfit,
    options: &RestoreOptions,
    report: &mut Report<'_>,
) -> Result<RestoredStream> {
    let record = stream_of(first)?;
    let (key, name) = (&first.key, first.key.name.clone());
    let mut restored = RestoredStream {
        name,
        grade: Grade::None,
        state: None,
        next_raw: Vec::new(),
        fork: None,
        record,
    };
    let reason = match unfit {
        Unfit::Reshaped(reason) => reason,
        Unfit::Missing(reason) => {
            report.demanded(key, Grade::None, Some(reason), options.streams);
            return Ok(restored);
        }
    };
    // The state is not used, so its canary says nothing here; its caches would be.
    let known = StreamState::of_record(&restored.record, Vec::new()).map(|stream| stream.algorithm);
    let reason = match (restored.record.on_reshape, known, place) {
        // Also one of an engine that is not registered.
        (OnReshape::Require, ..) => {
            report.require(key, &reason);
            format!("{reason}, and the stream requires it")
        }
        (_, Err(unknown), _) => unknown,
        (OnReshape::Fork, Ok(algorithm), Some(place)) => {
            let fork = Fork {
                coordinate: place.along(&key.coordinate),
                manifest: checkpoint.digest(),
                step: checkpoint.step(),
            };
            let state = forked(checkpoint, &restored.name, &fork, algorithm)?;
            restored.next_raw = match algorithm.has_canary() {
                true => canary(algorithm, &state.state, FORK_CANARY)?,
                false => Vec::new(),
            };
            (restored.grade, restored.state, restored.fork) =
                (Grade::Fork, Some(state), Some(fork));
            format!("{reason}; it is a new stream")
        }
        _ => format!("{reason}; it is for the trainer to seed anew"),
    };
    report.demanded(key, restored.grade, Some(reason), options.streams);
    Ok(restored)
}

fn forked(
    checkpoint: &Checkpoint,
    name: &str,
    fork: &Fork,
    algorithm: RngAlgorithm,
) -> Result<StreamState> {
    let seed = fork_seed(checkpoint.run(), fork.step, name, &fork.coordinate);
    StreamState::new(algorithm, Engine::seeded(algorithm, seed)?.encode()?)
}

fn stream_of(record: &Record) -> Result<Stream> {
    match record.typed().map_err(|e| of_record(e, &record.key))? {
        Typed::Rng(stream) => Ok(*stream),
        _ => Err(Error::new(Code::BadArgument, "expected a record of kind rng")),
    }
}

/// What becomes of a stream with axes when they change.
fn on_reshape(stream: &Stream) -> &'static str {
    match stream.on_reshape {
        OnReshape::Require => "it requires its axes unchanged",
        OnReshape::Fork => "it forks where its axes change",
        OnReshape::Reinit => "it is seeded anew where its axes change",
    }
}
