//! What a checkpoint says beside tensors: progress, optimizer, schedule, dropout stream, cursor.
//!
//! It knows these records, written and read back. All ranks write the same ones, so a job whose
//! ranks have drifted apart cannot commit.

use serde_json::json;
use waystation_format::json::Value;
use waystation_format::record::{Record, RecordKey};
use waystation_format::{Code, Error, Result};
use waystation_reader::Checkpoint;
use waystation_state::schedule::agrees_f64;

use crate::data::Data;
use crate::params::Param;
use crate::stream::Stream;
use crate::trainer::{ADAM, BATCH, SCHEDULE, SEED_OF_DROPOUT, Trainer};

/// The optimizer, its schedule and progress; tensors of the optimizer name it as their owner.
pub(crate) const MAIN: &str = "main";
/// The stream.
pub(crate) const DROPOUT: &str = "dropout";
/// The cursor.
pub(crate) const TRAIN: &str = "train";

/// All records of a save.
///
/// # Errors
/// None: the forms are right.
pub(crate) fn records(trainer: &Trainer) -> Result<Vec<Record>> {
    let record = |kind, name, value: serde_json::Value| {
        Record::new(kind, name, Vec::new(), &Value::parse(&value.to_string())?)
    };
    Ok(vec![
        record("progress", MAIN, progress(trainer))?,
        record("optimizer", MAIN, optimizer(trainer))?,
        record("schedule", MAIN, schedule(trainer))?,
        record("rng", DROPOUT, dropout(trainer))?,
        record("cursor", TRAIN, cursor(trainer))?,
    ])
}

fn progress(trainer: &Trainer) -> serde_json::Value {
    json!({
        "batch": BATCH, "epoch": trainer.data.epoch, "iteration": trainer.step,
        "optimizer_step": trainer.step, "samples": trainer.data.consumed, "skipped": 0,
    })
}

fn optimizer(trainer: &Trainer) -> serde_json::Value {
    let group = |name: &str, decays: bool| {
        let members: Vec<&Param> =
            trainer.model.params.0.iter().filter(|param| param.decays == decays).collect();
        let params: Vec<_> = members.iter().map(|param| json!(["main", param.name])).collect();
        let decay = if decays { ADAM.weight_decay } else { 0.0 };
        json!({
            "hyper": [
                ["lr", f64(trainer.rate())],
                ["betas", {"tuple": [f64(ADAM.beta1), f64(ADAM.beta2)]}],
                ["eps", f64(ADAM.eps)],
                ["weight_decay", f64(decay)],
            ],
            "name": name, "params": params,
        })
    };
    json!({
        "algorithm": "adamw",
        "groups": [group("weights", true), group("biases", false)],
        "steps": [{"params": "all", "step": trainer.step, "stored_as": "int"}],
    })
}

fn schedule(trainer: &Trainer) -> serde_json::Value {
    json!({
        "algorithm": "linear-warmup+cosine",
        "last_value": [f64(trainer.rate()), f64(trainer.rate())],
        "parameters": {"map": [
            ["base", f64(SCHEDULE.base)], ["floor", f64(SCHEDULE.floor)],
            ["warmup", SCHEDULE.warmup], ["total", SCHEDULE.total],
        ]},
        "position": {"unit": "optimizer_steps", "value": trainer.step},
    })
}

fn dropout(trainer: &Trainer) -> serde_json::Value {
    json!({
        "algorithm": "xoshiro256++", "caches": [], "next_raw": trainer.dropout.canary(),
        "on_reshape": "require",
        "origin": {"framework": "waystation-tour", "initial_seed": SEED_OF_DROPOUT},
        "state": hex(&trainer.dropout.state()),
    })
}

fn cursor(trainer: &Trainer) -> serde_json::Value {
    let data = &trainer.data;
    let windows = trainer.text.windows();
    let (next, sha256) = data.canary();
    json!({
        "consumed": data.consumed, "epoch": data.epoch,
        "epoch_end": {"rule": "drop-last", "unit": BATCH}, "kind": "permuted-index",
        "next": {"count": next.len(), "first": next.get(..4), "sha256": sha256.to_string()},
        "order": {
            "algorithm": "torch.randperm-cpu", "n": windows, "seed": crate::data::SEED,
            "seed_rule": "seed+epoch",
        },
        "partition": {"axes": ["dp"], "batch": BATCH, "rule": "contiguous"},
        "position": data.position,
        "source": {"records": windows, "sha256": Data::source().to_string()},
    })
}

/// Puts back what the records hold, but for streams: the step, the schedule's place, the cursor.
///
/// # Errors
/// `dangling` for a record that is missing; `state-disagree` and `canary-mismatch` for records that
/// say different things; `source-changed` when the text is another.
pub(crate) fn restore(checkpoint: &Checkpoint, trainer: &mut Trainer) -> Result<()> {
    let progress = value(checkpoint, "progress", MAIN)?;
    let step = number(&progress, &["optimizer_step"])?;
    if step != checkpoint.step() {
        let message = format!("expected the step {}, found {step}", checkpoint.step());
        return Err(Error::new(Code::StateDisagree, message));
    }
    trainer.step = step;
    let schedule = value(checkpoint, "schedule", MAIN)?;
    let position = number(&schedule, &["position", "value"])?;
    let recorded = match at(&schedule, &["last_value"])? {
        Value::List(values) => values.first().and_then(float),
        _ => None,
    };
    let computed = SCHEDULE.rate(position);
    if position != step || !recorded.is_some_and(|rate| agrees_f64(rate, computed)) {
        let message = format!("expected the rate {computed} of step {step}, found {recorded:?}");
        return Err(Error::new(Code::CanaryMismatch, message));
    }
    let cursor = value(checkpoint, "cursor", TRAIN)?;
    if text(&cursor, &["source", "sha256"])? != Data::source().to_string() {
        return Err(Error::new(Code::SourceChanged, "expected the text that was trained on"));
    }
    trainer.data = Data::restore(
        trainer.text.windows(),
        BATCH,
        number(&cursor, &["epoch"])?,
        usize::try_from(number(&cursor, &["position"])?).unwrap_or(usize::MAX),
        number(&cursor, &["consumed"])?,
        &text(&cursor, &["next", "sha256"])?,
    )?;
    Ok(())
}

/// Puts back the random stream, the last thing of all: nothing may draw from it any more before
/// the next step does.
///
/// # Errors
/// `dangling`; `bad-rng-state`; `canary-mismatch` when the stream would not go on as recorded.
pub(crate) fn restore_dropout(checkpoint: &Checkpoint, trainer: &mut Trainer) -> Result<()> {
    let rng = value(checkpoint, "rng", DROPOUT)?;
    let Value::List(next) = at(&rng, &["next_raw"])? else { return Err(missing("rng", DROPOUT)) };
    let next: Vec<String> = next
        .iter()
        .filter_map(|word| if let Value::Str(word) = word { Some(word.clone()) } else { None })
        .collect();
    trainer.dropout = Stream::restore(&bytes(&text(&rng, &["state"])?), &next)?;
    Ok(())
}

fn value(checkpoint: &Checkpoint, kind: &str, name: &str) -> Result<Value> {
    let key = RecordKey { kind: kind.to_owned(), name: name.to_owned(), coordinate: Vec::new() };
    checkpoint.record(&key)?.ok_or_else(|| missing(kind, name))?.value()
}

fn at<'v>(value: &'v Value, path: &[&str]) -> Result<&'v Value> {
    let found = path.iter().try_fold(value, |value, member| value.get(member));
    found.ok_or_else(|| Error::new(Code::BadMember, format!("expected {path:?}")))
}

fn number(value: &Value, path: &[&str]) -> Result<u64> {
    match at(value, path)? {
        Value::Int(number) => Ok(number.unsigned_abs()),
        _ => Err(Error::new(Code::BadMember, format!("expected a number, {path:?}"))),
    }
}

fn text(value: &Value, path: &[&str]) -> Result<String> {
    match at(value, path)? {
        Value::Str(text) => Ok(text.clone()),
        _ => Err(Error::new(Code::BadMember, format!("expected a text, {path:?}"))),
    }
}

fn f64(number: f64) -> serde_json::Value {
    json!({ "f64": format!("{:016x}", number.to_bits()) })
}

fn float(value: &Value) -> Option<f64> {
    let Value::Str(bits) = value.get("f64")? else { return None };
    u64::from_str_radix(bits, 16).ok().map(f64::from_bits)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.iter().filter_map(byte).collect()
}

fn missing(kind: &str, name: &str) -> Error {
    Error::new(Code::Dangling, format!("expected a record {kind} {name}, found none"))
}
