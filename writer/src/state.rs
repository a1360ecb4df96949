//! What a record of resume state must agree with before it is written: itself, and the step.
//!
//! It knows the checks of chapters 16 to 18 that need neither other records nor tensors. Those that
//! do are the validator's.

use std::collections::HashSet;

use waystation_format::part::Part;
use waystation_format::record::Record;
use waystation_format::records::Typed;
use waystation_format::records::rng::State;
use waystation_format::{Code, Result, RngAlgorithm};
use waystation_reader::progress::within;
use waystation_reader::{NoProgress, Progress};
use waystation_state::Budget;
use waystation_state::cursor::{NoTensors, check_canary_within};
use waystation_state::{rng, schedule};

use crate::commit::go_on;

/// Steps that the canaries of all cursors may cost at every save: some milliseconds, however many
/// ranks have one. An order that has to be drawn from its beginning costs more once training is some
/// way into it, and is then believed.
const STEPS: u64 = 1 << 20;
/// Bytes that one may hold.
const BYTES: u64 = 64 << 20;

/// The kinds of which something can be seen from the record alone.
const KINDS: [&str; 4] = ["cursor", "progress", "rng", "schedule"];

/// Checks the records that one writer declares.
///
/// # Errors
///
/// As [`check`].
pub(crate) fn check_all(records: &[Record], step: u64) -> Result<()> {
    let mut steps = STEPS;
    records.iter().try_for_each(|record| check(record, step, &mut steps, &NoProgress))
}

/// Checks the records of all parts, equal ones of several writers once.
///
/// # Errors
///
/// As [`check`], with the part; `interrupted`.
pub(crate) fn check_parts(parts: &[Part], progress: &dyn Progress) -> Result<()> {
    let mut seen = HashSet::new();
    let mut steps = STEPS;
    for part in parts {
        go_on(progress)?;
        for record in part.records() {
            let record = record?;
            if KINDS.contains(&record.key.kind.as_str()) && seen.insert(record.key.key()) {
                let checked = check(&record, part.common.step, &mut steps, progress);
                checked.map_err(|e| e.in_file(part.file_name()))?;
            }
        }
    }
    Ok(())
}

/// Checks what a record of a checkpoint of this step says, as far as it can be seen from it alone
/// and with the `steps` that are left for canaries of cursors.
///
/// # Errors
///
/// `state-disagree`, `bad-rng-state`, `bad-position`, `canary-mismatch`, `interrupted`; with the record.
fn check(record: &Record, step: u64, steps: &mut u64, progress: &dyn Progress) -> Result<()> {
    let checked = match record.typed()? {
        Typed::Progress(progress) => progress.check_step(step),
        Typed::Rng(stream) => match (RngAlgorithm::from_id(&stream.algorithm), &stream.state) {
            (Some(algorithm), State::Inline(state)) => {
                rng::check_canary(algorithm, state, &stream.next_raw)
            }
            _ => Ok(()),
        },
        Typed::Schedule(schedule) => schedule::check(&schedule),
        Typed::Cursor(cursor) => {
            let mut budget = within(Budget::new(*steps, BYTES), progress);
            let checked = check_canary_within(&cursor, &NoTensors, &mut budget);
            *steps = budget.steps();
            match checked {
                // It is in a tensor, or it costs too much.
                Err(e) if e.code() == Code::Dangling || e.code() == Code::Limit => Ok(()),
                checked => checked.map(drop),
            }
        }
        _ => Ok(()),
    };
    checked.map_err(|e| e.under_pointer("/value").in_record(record.key.key()))
}
