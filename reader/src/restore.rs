//! Resume state for one place of a topology, the checkpoint's own or another (chapter 19).
//!
//! It knows which record is for a place and how good what it gives is. It must not know engines and
//! orders, which `waystation-state` has, nor put anything into a trainer: that is the caller's, in
//! the order of spec 19.2.
//!
//! ```no_run
//! use waystation_format::{Grade, Topology};
//! use waystation_reader::restore::{Place, RestoreOptions};
//! use waystation_reader::Checkpoint;
//!
//! # fn main() -> waystation_format::Result<()> {
//! let checkpoint = Checkpoint::open("run/step-000000001000-000000018280808e".as_ref())?;
//! let place = Place::new(
//!     Topology(vec![("dp".to_owned(), 3)]),
//!     vec![("dp".to_owned(), 2)],
//! )?;
//! let mut options = RestoreOptions::default();
//! options.streams = Grade::Fork; // where an axis changes its size, the streams of all places may be new ones
//! let state = checkpoint.restore(&place, &options)?;
//! for graded in &state.report {
//!     println!("{} {} {}", graded.key.kind, graded.key.name, graded.grade);
//! }
//! # Ok(())
//! # }
//! ```

mod appraisal;
mod cursor;
mod options;
mod place;
mod placement;
mod report;
mod stream;
mod tensor;

use std::collections::BTreeMap;

use waystation_format::record::{Record, RecordKey, check_grid};
use waystation_format::records::{Ema, Optimizer, Progress, Scaler, Schedule, Typed, optimizer};
use waystation_format::value_tree::Tree;
use waystation_format::{Coordinate, Error, Result};
use waystation_state::{Budget, Stop, schedule};

use crate::checkpoint::Checkpoint;

pub use appraisal::Appraisal;
pub use cursor::RestoredCursor;
pub use options::{Offer, RestoreOptions};
pub use place::Place;
pub use placement::{Cut, Placement};
pub use report::Graded;
pub use stream::RestoredStream;
pub use tensor::PlacedTensor;

use report::Report;

/// The kind of which all records are joined, whatever the place.
const OPTIMIZER: &str = "optimizer";

/// What one place gets of a checkpoint's records. Maps are by record name.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// How far training has come.
    pub progress: Option<Progress>,
    /// Optimizers, joined over all places.
    pub optimizers: BTreeMap<String, Optimizer>,
    /// Averages.
    pub averages: BTreeMap<String, Ema>,
    /// Schedules, whose values agree with their positions.
    pub schedules: BTreeMap<String, Schedule>,
    /// Loss scalers.
    pub scalers: BTreeMap<String, Scaler>,
    /// Value trees of the framework.
    pub values: BTreeMap<String, Tree>,
    /// Random streams by name, to be put in last.
    pub streams: Vec<RestoredStream>,
    /// Data cursors by name.
    pub cursors: Vec<RestoredCursor>,
    /// A grade for each record's kind and name, in order of record key.
    pub report: Vec<Graded>,
}

impl Checkpoint {
    /// The resume state for a place, with a grade for every record; tensors are
    /// [`placed`](Self::placed).
    ///
    /// # Errors
    /// `not-exact` when a stream or cursor is graded worse than `options` demand, or a stream that
    /// requires its axes has lost one; `source-changed` for other data than the cursor's;
    /// `canary-mismatch`, `bad-rng-state`, `bad-position`, `dangling`, `state-disagree` for records
    /// that are wrong; `bad-argument` for a name in `options` that no stream or cursor has; breaches
    /// of the pages; `interrupted` when the stop of the options' budget is requested. Nothing is
    /// handed out then.
    pub fn restore(&self, place: &Place, options: &RestoreOptions) -> Result<Restored> {
        let Appraisal { restored, refused } = self.appraise(place, options)?;
        refused.map_or(Ok(restored), Err)
    }

    /// What a place would get, and whether [`restore`](Self::restore) hands it out: to look at all
    /// grades at once. A trainer takes its state from [`restore`](Self::restore).
    ///
    /// # Errors
    /// As [`restore`](Self::restore), but for `not-exact`, which stands in the answer.
    pub fn appraise(&self, place: &Place, options: &RestoreOptions) -> Result<Appraisal> {
        self.resume(Some(place), options)
    }

    /// The grade of every record where no topology is asked about: canaries are compared, sources
    /// and fingerprints count as offered, nothing is demanded. Records of one kind and name have one
    /// grade, that of the worst of them.
    ///
    /// # Errors
    /// As [`restore`](Self::restore), but for what is demanded and offered.
    pub fn grades(&self) -> Result<Vec<Graded>> {
        self.grades_until(&Stop::new())
    }

    /// As [`grades`](Self::grades), until `stop` is requested.
    ///
    /// # Errors
    /// As [`grades`](Self::grades); `interrupted`.
    pub fn grades_until(&self, stop: &Stop) -> Result<Vec<Graded>> {
        // Whoever only asks did not say what it may cost.
        let budget = Budget::of_validator().until(stop.clone());
        let options = RestoreOptions { budget, ..RestoreOptions::default() };
        self.resume(None, &options).map(|appraisal| appraisal.restored.report)
    }

    fn resume(&self, place: Option<&Place>, options: &RestoreOptions) -> Result<Appraisal> {
        let mut restored = Restored::default();
        let mut report = Report::new(place, options);
        let mut group: Vec<Record> = Vec::new();
        for record in self.records() {
            let record = record?;
            options.budget.stop().map_or(Ok(()), Stop::go_on)?;
            let same = |first: &Record| {
                first.key.kind == record.key.kind && first.key.name == record.key.name
            };
            if !group.first().is_none_or(same) {
                self.group(&group, place, options, &mut restored, &mut report)?;
                group.clear();
            }
            group.push(record);
        }
        self.group(&group, place, options, &mut restored, &mut report)?;
        let refused = report.refused();
        restored.report = report.finish()?;
        Ok(Appraisal { restored, refused })
    }

    /// The records of one kind and name: together what one place gets of them, or where no place
    /// is asked about each by itself, and then none of them is kept.
    fn group(
        &self,
        group: &[Record],
        place: Option<&Place>,
        options: &RestoreOptions,
        restored: &mut Restored,
        report: &mut Report<'_>,
    ) -> Result<()> {
        if place.is_some() || group.first().is_some_and(|first| first.key.kind == OPTIMIZER) {
            return self.one(group, place, options, restored, report);
        }
        for record in group {
            let alone = std::slice::from_ref(record);
            self.one(alone, None, options, &mut Restored::default(), report)?;
        }
        Ok(())
    }

    /// What one place gets of the records of one kind and name.
    fn one(
        &self,
        group: &[Record],
        place: Option<&Place>,
        options: &RestoreOptions,
        restored: &mut Restored,
        report: &mut Report<'_>,
    ) -> Result<()> {
        let Some(first) = group.first() else { return Ok(()) };
        match typed(first)? {
            // Those of some places are half an optimizer.
            Typed::Optimizer(_) => match self.missing_place(group) {
                None => {
                    let joined = joined(group)?;
                    restored.optimizers.extend(joined.map(|one| (first.key.name.clone(), one)));
                    report.as_saved(&first.key);
                }
                Some(reason) => report.none(&first.key, reason),
            },
            Typed::Rng(_) => {
                restored.streams.push(stream::restore(self, group, place, options, report)?);
            }
            Typed::Cursor(_) => {
                restored.cursors.push(cursor::restore(self, group, place, options, report)?);
            }
            Typed::Uncaptured(what) => report.uncaptured(&first.key, &what),
            Typed::Unknown => report.none(&first.key, "the kind is not registered".to_owned()),
            _ => match self.choose(group, place, &first.key) {
                Ok(chosen) => {
                    hand_out(chosen, restored)?;
                    report.as_saved(&chosen.key);
                }
                Err(unfit) => report.none(&first.key, unfit.reason()),
            },
        }
        Ok(())
    }

    /// Why records are not there for every place that they vary over: only a validator has looked.
    fn missing_place(&self, group: &[Record]) -> Option<String> {
        let keys = group.iter().map(|record| &record.key);
        let checked = check_grid(keys, &self.manifest().common.topology);
        checked.err().map(|error| error.message().to_owned())
    }

    /// The record of `group` that is for the place; the first where no place is asked about.
    ///
    /// # Errors
    /// Why there is none.
    fn choose<'r>(
        &self,
        group: &'r [Record],
        place: Option<&Place>,
        first: &RecordKey,
    ) -> std::result::Result<&'r Record, Unfit> {
        let topology = &self.manifest().common.topology;
        let coordinate = match place {
            None => first.coordinate.clone(),
            Some(place) => match place.misfit(&first.coordinate, topology) {
                Some(reason) => return Err(Unfit::Reshaped(reason)),
                None => place.along(&first.coordinate),
            },
        };
        // Only a validator has compared them all.
        if let Some(other) =
            group.iter().find(|record| !same_axes(&record.key.coordinate, &first.coordinate))
        {
            let (found, first) = (indices(&other.key.coordinate), indices(&first.coordinate));
            let reason = format!("its records vary over the axes of {first} and of {found}");
            return Err(Unfit::Missing(reason));
        }
        group.iter().find(|record| same_place(&record.key.coordinate, &coordinate)).ok_or_else(
            || Unfit::Missing(format!("there is no record for {}", indices(&coordinate))),
        )
    }
}

fn typed(record: &Record) -> Result<Typed> {
    record.typed().map_err(|e| of_record(e, &record.key))
}

/// What the records of an optimizer say together.
fn joined(group: &[Record]) -> Result<Option<Optimizer>> {
    let Some(first) = group.first() else { return Ok(None) };
    let mut all: Vec<(&Coordinate, Optimizer)> = Vec::with_capacity(group.len());
    for record in group {
        if let Typed::Optimizer(one) = typed(record)? {
            all.push((&record.key.coordinate, one));
        }
    }
    let pairs = all.iter().map(|(coordinate, one)| (*coordinate, one));
    optimizer::join(pairs).map_err(|e| of_record(e, &first.key))
}

/// Gives a record as it is, if it is one of those that are.
fn hand_out(record: &Record, restored: &mut Restored) -> Result<()> {
    let name = record.key.name.clone();
    match typed(record)? {
        Typed::Progress(progress) => restored.progress = Some(progress),
        Typed::Ema(ema) => {
            restored.averages.insert(name, ema);
        }
        Typed::Schedule(schedule) => {
            schedule::check(&schedule).map_err(|e| of_record(e, &record.key))?;
            restored.schedules.insert(name, schedule);
        }
        Typed::Scaler(scaler) => {
            restored.scalers.insert(name, scaler);
        }
        Typed::Value(tree) => {
            restored.values.insert(name, tree);
        }
        _ => {}
    }
    Ok(())
}

/// Why there is no record for a place.
enum Unfit {
    /// An axis has another size.
    Reshaped(String),
    /// The axes are as they were, so there ought to be one.
    Missing(String),
}

impl Unfit {
    fn reason(self) -> String {
        match self {
            Self::Reshaped(reason) | Self::Missing(reason) => reason,
        }
    }
}

fn same_axes(a: &Coordinate, b: &Coordinate) -> bool {
    a.iter().map(|(axis, _)| axis).eq(b.iter().map(|(axis, _)| axis))
}

/// Whether two coordinates name one place; topologies may list their axes in any order.
fn same_place(a: &Coordinate, b: &Coordinate) -> bool {
    a.len() == b.len() && a.iter().all(|index| b.contains(index))
}

/// `dp=2, tp=0`.
fn indices(coordinate: &Coordinate) -> String {
    if coordinate.is_empty() {
        return "no axis".to_owned();
    }
    let indices: Vec<String> =
        coordinate.iter().map(|(axis, index)| format!("{axis}={index}")).collect();
    indices.join(", ")
}

/// Names the record in an error about its value.
fn of_record(error: Error, key: &RecordKey) -> Error {
    // What is wrong in a file, such as a damaged tensor, has its own place.
    let error = if error.location().file.is_some() { error } else { error.under_pointer("/value") };
    error.in_record(key.key())
}
