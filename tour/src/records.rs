//! What a checkpoint says beside tensors: progress, optimizer, schedule, dropout stream, cursor.
//!
//! It knows these records, written and read back. All ranks write the same ones: where two differ
//! the commit refuses, so ranks that have drifted apart are found at the next save.

use waystation_format::record::{Record, RecordKey};
use waystation_format::records::optimizer::{Group, Optimizer, Param, StepParams, Steps};
use waystation_format::records::rng::{OnReshape, Origin, State};
use waystation_format::records::schedule::{Schedule, Unit};
use waystation_format::records::{Progress, Stream, Typed};
use waystation_format::value_tree::{MapKey, Tree};
use waystation_format::{Code, Error, Result, ScheduleAlgorithm, rule};
use waystation_reader::Checkpoint;
use waystation_state::schedule::agrees_f64;

use crate::stream;
use crate::trainer::{ADAM, BATCH, SCHEDULE, SEED_OF_DROPOUT, Trainer};

/// The name of progress, optimizer and schedule; tensors of the optimizer name it as their owner.
pub(crate) const MAIN: &str = "main";
/// The name of the stream.
const DROPOUT: &str = "dropout";
/// The name of the cursor.
const TRAIN: &str = "train";

/// All records of a save.
///
/// # Errors
/// None: the forms are right.
pub(crate) fn records(trainer: &Trainer) -> Result<Vec<Record>> {
    // Nothing varies over the ranks, so no record has a coordinate.
    let record = |name, typed| Record::of(name, Vec::new(), &typed);
    Ok(vec![
        record(MAIN, Typed::Progress(progress(trainer)))?,
        record(MAIN, Typed::Optimizer(optimizer(trainer)))?,
        record(MAIN, Typed::Schedule(schedule(trainer)))?,
        record(DROPOUT, Typed::Rng(Box::new(dropout(trainer)?)))?,
        record(TRAIN, Typed::Cursor(Box::new(trainer.data.cursor())))?,
    ])
}

fn progress(trainer: &Trainer) -> Progress {
    Progress {
        batch: Some(BATCH as u64),
        epoch: Some(trainer.data.epoch),
        iteration: Some(trainer.step),
        optimizer_step: trainer.step,
        samples: Some(trainer.data.consumed),
        skipped: Some(0),
        tokens: None,
    }
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

/// Puts back what the records say, but for the stream: the step, the cursor. Optimizer and schedule
/// are fixed in this program, so theirs are compared.
///
/// # Errors
/// `dangling` for a record that is missing; `state-disagree` and `canary-mismatch` for records that
/// say different things; `not-exact` for settings of another training; `source-changed` when the
/// text is another.
pub(crate) fn restore(checkpoint: &Checkpoint, trainer: &mut Trainer) -> Result<()> {
    let Typed::Progress(progress) = find(checkpoint, "progress", MAIN)? else {
        return Err(missing("progress", MAIN));
    };
    if progress.optimizer_step != checkpoint.step() {
        let message =
            format!("expected step {}, found {}", checkpoint.step(), progress.optimizer_step);
        return Err(Error::rule(Code::StateDisagree, rule::PROGRESS_STEP, message));
    }
    trainer.step = progress.optimizer_step;

    let Typed::Schedule(recorded) = find(checkpoint, "schedule", MAIN)? else {
        return Err(missing("schedule", MAIN));
    };
    let rate = trainer.rate();
    for value in &recorded.last_value {
        // A cosine may differ in its last place, a position by one step is beyond that.
        if !matches!(value, Tree::F64(bits) if agrees_f64(f64::from_bits(*bits), rate)) {
            let message = format!("expected the learning rate {rate}, found {value:?}");
            return Err(Error::rule(Code::CanaryMismatch, rule::SCHEDULE_CANARY, message));
        }
    }
    let Typed::Optimizer(found) = find(checkpoint, "optimizer", MAIN)? else {
        return Err(missing("optimizer", MAIN));
    };
    if recorded != schedule(trainer) || found != optimizer(trainer) {
        let message = "expected the optimizer and schedule of this program, found others";
        return Err(Error::new(Code::NotExact, message));
    }

    let Typed::Cursor(cursor) = find(checkpoint, "cursor", TRAIN)? else {
        return Err(missing("cursor", TRAIN));
    };
    trainer.data.restore(&cursor)
}

/// Puts back the random stream, the last thing of all: nothing may draw from it any more before
/// the next step does.
///
/// # Errors
/// `dangling`; `bad-rng-state`; `canary-mismatch` when the stream would not go on as recorded.
pub(crate) fn restore_dropout(checkpoint: &Checkpoint, trainer: &mut Trainer) -> Result<()> {
    let Typed::Rng(recorded) = find(checkpoint, "rng", DROPOUT)? else {
        return Err(missing("rng", DROPOUT));
    };
    let State::Inline(state) = &recorded.state else {
        return Err(Error::new(Code::NotExact, "expected a state in the record, found a tensor"));
    };
    if recorded.algorithm != trainer.dropout.algorithm() || !recorded.caches.is_empty() {
        return Err(Error::new(Code::NotExact, "expected a stream of this program, found another"));
    }
    trainer.dropout = stream::Stream::restore(state, &recorded.next_raw)?;
    Ok(())
}

fn find(checkpoint: &Checkpoint, kind: &str, name: &str) -> Result<Typed> {
    let key = RecordKey { kind: kind.to_owned(), name: name.to_owned(), coordinate: Vec::new() };
    checkpoint.record(&key)?.ok_or_else(|| missing(kind, name))?.typed()
}

fn missing(kind: &str, name: &str) -> Error {
    Error::new(Code::Dangling, format!("expected a record {kind} {name}, found none"))
}
