//! What a checkpoint says beside tensors: progress, optimizer, schedule, dropout stream, cursor.
//!
//! It knows these records, written and read back. All ranks write the same ones: where two differ
//! the commit refuses, so ranks that have drifted apart are found at the next save.

use waystation_format::record::Record;
use waystation_format::records::optimizer::{Group, Optimizer, Param, StepParams, Steps};
use waystation_format::records::rng::{OnReshape, Origin, State};
use waystation_format::records::schedule::{Schedule, Unit};
use waystation_format::records::{Progress, Stream, Typed};
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Code, Error, Grade, Result, ScheduleAlgorithm, Topology};
use waystation_reader::Checkpoint;
use waystation_reader::restore::{self, RestoreOptions, Restored};

use crate::data::Data;
use crate::reduce::Place;
use crate::stream;
use crate::trainer::{ADAM, BATCH, SCHEDULE, SEED_OF_DROPOUT, Trainer};

/// The name of progress, optimizer and schedule; tensors of the optimizer name it as their owner.
pub(crate) const MAIN: &str = "main";
/// The name of the stream.
const DROPOUT: &str = "dropout";
/// The name of the cursor.
pub(crate) const TRAIN: &str = "train";

/// All records of a save.
///
/// # Errors
/// None: the forms are right.
pub(crate) fn records(trainer: &Trainer) -> Result<Vec<Record>> {
    // Nothing varies over the ranks, so no record has a coordinate.
    let record = |name, typed| Record::of(name, Vec::new(), &typed);
    Ok(vec![
        record(MAIN, Typed::Progress(progress(trainer)?))?,
        record(MAIN, Typed::Optimizer(optimizer(trainer)))?,
        record(MAIN, Typed::Schedule(schedule(trainer)))?,
        record(DROPOUT, Typed::Rng(Box::new(dropout(trainer)?)))?,
        record(TRAIN, Typed::Cursor(Box::new(trainer.data.cursor()?)))?,
    ])
}

fn progress(trainer: &Trainer) -> Result<Progress> {
    let (epoch, samples) = trainer.data.progress()?;
    Ok(Progress {
        batch: Some(BATCH as u64),
        epoch: Some(epoch),
        iteration: Some(trainer.step),
        optimizer_step: trainer.step,
        samples: Some(samples),
        skipped: Some(0),
        tokens: None,
    })
}

fn optimizer(trainer: &Trainer) -> Optimizer {
    let hyper = |name: &str, tree| (name.to_owned(), tree);
    let group = |name: &str, decays: bool| Group {
        hyper: vec![
            hyper("lr", Tree::f64(trainer.rate())),
            hyper("betas", Tree::Tuple(vec![Tree::f64(ADAM.beta1), Tree::f64(ADAM.beta2)])),
            hyper("eps", Tree::f64(ADAM.eps)),
            hyper("weight_decay", Tree::f64(if decays { ADAM.weight_decay } else { 0.0 })),
        ],
        implementation: None,
        name: name.to_owned(),
        params: trainer
            .model
            .params
            .0
            .iter()
            .filter(|param| param.decays == decays)
            .map(|param| Param { component: MAIN.to_owned(), name: param.name.to_owned() })
            .collect(),
    };
    Optimizer {
        algorithm: "adamw".to_owned(),
        groups: vec![group("weights", true), group("biases", false)],
        masters: None,
        steps: vec![Steps {
            params: StepParams::All,
            step: trainer.step,
            stored_as: "int".to_owned(),
        }],
    }
}

/// One value for each of the two groups.
fn schedule(trainer: &Trainer) -> Schedule {
    let parameter = |name: &str, tree| (MapKey::Str(name.to_owned()), tree);
    Schedule {
        algorithm: ScheduleAlgorithm::LinearWarmupCosine.as_str().to_owned(),
        last_value: vec![Tree::f64(trainer.rate()); 2],
        parameters: Tree::Map(vec![
            parameter("base", Tree::f64(SCHEDULE.base)),
            parameter("floor", Tree::f64(SCHEDULE.floor)),
            parameter("warmup", Tree::int(SCHEDULE.warmup.into())),
            parameter("total", Tree::int(SCHEDULE.total.into())),
        ]),
        unit: Unit::OptimizerSteps,
        position: trainer.step,
    }
}

fn dropout(trainer: &Trainer) -> Result<Stream> {
    Ok(Stream {
        algorithm: trainer.dropout.algorithm().to_owned(),
        caches: Vec::new(),
        fork: None,
        next_raw: trainer.dropout.canary()?,
        on_reshape: OnReshape::Require,
        origin: Some(Origin {
            form: None,
            framework: "waystation-tour".to_owned(),
            initial_seed: Some(SEED_OF_DROPOUT.into()),
            version: None,
        }),
        purpose: Some("dropout masks".to_owned()),
        seed_rule: None,
        state: State::Inline(trainer.dropout.state()?),
    })
}

/// What the records of a checkpoint say for one rank: all of it exact, and every canary compared.
///
/// # Errors
/// Those of [`Checkpoint::restore`]: `canary-mismatch` when stream or cursor would not go on as
/// recorded, `source-changed` when the text is another; `not-exact` for anything that is not.
pub(crate) fn read(checkpoint: &Checkpoint, trainer: &Trainer) -> Result<Restored> {
    let Place { rank, ranks } = trainer.place;
    let topology = Topology(vec![("dp".to_owned(), ranks as u64)]);
    let place = restore::Place::new(topology, vec![("dp".to_owned(), rank as u64)])?;
    let (records, sha256) = trainer.data.source()?;
    let options = RestoreOptions::default().with_source(TRAIN, records, sha256);
    let restored = checkpoint.restore(&place, &options)?;
    match restored.report.iter().find(|graded| graded.grade != Grade::Exact) {
        Some(graded) => {
            let message = format!("expected all records exact, found {}", graded.grade);
            Err(Error::new(Code::NotExact, message).in_record(graded.key.key()))
        }
        None => Ok(restored),
    }
}

/// Puts the records back, after the tensors: first what counts, then the cursor, and the random
/// stream last of all, since anything else might have drawn from it.
///
/// # Errors
/// `dangling` for a record that is missing; `not-exact` for those of another training.
pub(crate) fn put_back(restored: &Restored, trainer: &mut Trainer) -> Result<()> {
    let progress = restored.progress.as_ref().ok_or_else(|| missing("progress", MAIN))?;
    trainer.step = progress.optimizer_step;

    // Both are fixed in this program, and follow from the step.
    let found = restored.optimizers.get(MAIN).ok_or_else(|| missing("optimizer", MAIN))?;
    let driven = restored.schedules.get(MAIN).ok_or_else(|| missing("schedule", MAIN))?;
    if *found != optimizer(trainer) || *driven != schedule(trainer) {
        let message = "expected the optimizer and schedule of this program, found others";
        return Err(Error::new(Code::NotExact, message));
    }

    let cursor = restored.cursors.iter().find(|cursor| cursor.name == TRAIN);
    let cursor = cursor.and_then(|cursor| cursor.cursor.as_ref());
    trainer.data = Data::at(cursor.ok_or_else(|| missing("cursor", TRAIN))?)?;

    let stream = restored.streams.iter().find(|stream| stream.name == DROPOUT);
    let stream = stream.and_then(|stream| stream.state.as_ref());
    let stream = stream.ok_or_else(|| missing("rng", DROPOUT))?;
    trainer.dropout = stream::Stream::at(stream)?;
    Ok(())
}

fn missing(kind: &str, name: &str) -> Error {
    Error::new(Code::Dangling, format!("expected a record {kind} {name}, found none"))
}
