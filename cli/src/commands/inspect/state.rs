//! `inspect --state`: what the records say, for people, and how well they can be resumed.
//!
//! It knows words. Which grade a record has is the reader's business.

use serde_json::{Value, json};
use waystation_format::record::{Record, RecordKey};
use waystation_format::records::cursor::{Leftover, Node, Selection};
use waystation_format::records::optimizer::StepParams;
use waystation_format::records::{Cursor, Optimizer, Typed};
use waystation_format::value_tree::hex;
use waystation_format::{Code, Error, Grade, Result};
use waystation_reader::Checkpoint;
use waystation_reader::restore::{Graded, Place, RestoreOptions, Restored};
use waystation_state::cursor::Rank;

use crate::args::Inspect;
use crate::{output, place_arg};

/// Raw outputs and ordinals that are shown.
const SHOWN: usize = 3;

/// What was asked about the records.
pub(super) struct Asked {
    place: Option<Place>,
    options: RestoreOptions,
}

impl Asked {
    /// # Errors
    /// `bad-argument` for a place, source or grade of another form.
    pub(super) fn of(args: &Inspect) -> Result<Self> {
        let place = match (&args.topology, &args.place) {
            (Some(topology), Some(place)) => Some(place_arg::place(topology, place)?),
            _ => None,
        };
        let mut options = RestoreOptions::default();
        let demand = Grade::from_id(&args.demand).ok_or_else(|| {
            let all: Vec<&str> = Grade::ALL.iter().map(|grade| grade.as_str()).collect();
            let message = format!("--demand {:?}: expected one of {}", args.demand, all.join(", "));
            Error::new(Code::BadArgument, message)
        })?;
        (options.streams, options.cursors) = (demand, demand);
        options.leave_out = args.leave_out.iter().cloned().collect();
        for text in &args.source {
            let (cursor, records, sha256) = place_arg::source(text)?;
            options = options.with_source(&cursor, records, sha256);
        }
        Ok(Self { place, options })
    }

    /// The grades, and what the place gets when one was asked about.
    fn resume(&self, checkpoint: &Checkpoint) -> Result<(Vec<Graded>, Option<Restored>)> {
        match &self.place {
            None => Ok((checkpoint.grades()?, None)),
            Some(place) => {
                let restored = checkpoint.restore(place, &self.options)?;
                Ok((restored.report.clone(), Some(restored)))
            }
        }
    }
}

pub(super) fn as_text(checkpoint: &Checkpoint, asked: &Asked) -> Result<()> {
    for record in checkpoint.records() {
        let record = record?;
        output::line(&format!("record      {}  {}", name(&record.key), summary(&record)?))?;
    }
    let (grades, restored) = asked.resume(checkpoint)?;
    for Graded { key, grade, reason } in grades {
        let reason = reason.map_or_else(String::new, |reason| format!("  ({reason})"));
        output::line(&format!("resume      {} {}  {grade}{reason}", key.kind, key.name))?;
    }
    let Some(restored) = restored else { return Ok(()) };
    for stream in &restored.streams {
        if let Some(state) = &stream.state {
            let next = shortened(&stream.next_raw);
            output::line(&format!(
                "stream      {}  {}, next {next}",
                stream.name, state.algorithm
            ))?;
        }
    }
    for cursor in &restored.cursors {
        if let Some(Rank { rank, world }) = cursor.rank {
            output::line(&format!("cursor      {}  rank {rank} of {world}", cursor.name))?;
        }
    }
    Ok(())
}

/// The members `records`, `resume` and, for a place, `streams` and `cursors`.
pub(super) fn as_members(
    checkpoint: &Checkpoint,
    asked: &Asked,
) -> Result<Vec<(&'static str, Value)>> {
    let mut records = Vec::new();
    for record in checkpoint.records() {
        records.push(serde_json::from_str::<Value>(&record?.json).unwrap_or_default());
    }
    let (grades, restored) = asked.resume(checkpoint)?;
    let grades: Vec<Value> = grades
        .iter()
        .map(|graded| {
            json!({
                "kind": graded.key.kind, "name": graded.key.name, "grade": graded.grade.as_str(),
                "reason": graded.reason,
            })
        })
        .collect();
    let mut members = vec![("records", records.into()), ("resume", grades.into())];
    if let Some(restored) = restored {
        let streams: Vec<Value> = restored
            .streams
            .iter()
            .map(|stream| {
                let state = stream.state.as_ref().map(|state| hex(&state.state));
                json!({
                    "name": stream.name, "grade": stream.grade.as_str(),
                    "algorithm": stream.record.algorithm, "state": state, "next_raw": stream.next_raw,
                })
            })
            .collect();
        let mut cursors = Vec::new();
        for cursor in &restored.cursors {
            let value = match &cursor.cursor {
                Some(cursor) => {
                    serde_json::from_str(&cursor.to_value().encode()?).unwrap_or_default()
                }
                None => Value::Null,
            };
            cursors.push(json!({
                "name": cursor.name, "grade": cursor.grade.as_str(), "cursor": value,
                "rank": cursor.rank.map(|of| of.rank), "ranks": cursor.rank.map(|of| of.world),
            }));
        }
        members.push(("streams", streams.into()));
        members.push(("cursors", cursors.into()));
    }
    Ok(members)
}

fn name(key: &RecordKey) -> String {
    let mut text = format!("{} {}", key.kind, key.name);
    for (axis, index) in &key.coordinate {
        text.push_str(&format!(" {axis}={index}"));
    }
    text
}

/// One line on what a record says.
fn summary(record: &Record) -> Result<String> {
    Ok(match record.typed()? {
        Typed::Progress(progress) => {
            let counts = [
                ("epoch", progress.epoch),
                ("samples", progress.samples),
                ("tokens", progress.tokens),
                ("skipped", progress.skipped),
            ];
            let mut text = format!("step {}", progress.optimizer_step);
            for (what, count) in counts {
                if let Some(count) = count {
                    text.push_str(&format!(", {what} {count}"));
                }
            }
            text
        }
        Typed::Optimizer(optimizer) => of_optimizer(&optimizer),
        Typed::Ema(ema) => format!("decay {:e}, {} updates", ema.decay.to_f64(), ema.updates),
        Typed::Schedule(schedule) => {
            format!("{} at {} {}", schedule.algorithm, schedule.position, schedule.unit.as_str())
        }
        Typed::Scaler(scaler) => {
            format!("scale {:e}, {} good steps", scaler.scale.to_f64(), scaler.good_steps)
        }
        Typed::Rng(stream) => {
            let caches: String =
                stream.caches.iter().map(|cache| format!(" + {}", cache.kind)).collect();
            let next = shortened(&stream.next_raw);
            format!("{}{caches}, next {next}, {}", stream.algorithm, stream.on_reshape.as_str())
        }
        Typed::Cursor(cursor) => of_cursor(&cursor),
        Typed::Value(tree) => {
            let bytes = tree.to_record_value().encode()?.len();
            format!("a value tree of {bytes} bytes")
        }
        Typed::Uncaptured(what) => format!("NOT CAPTURED ({}): {}", what.kind, what.reason),
        _ => "a kind that is not registered".to_owned(),
    })
}

fn of_optimizer(optimizer: &Optimizer) -> String {
    let mut steps: Vec<String> = optimizer
        .steps
        .iter()
        .take(SHOWN)
        .map(|steps| match &steps.params {
            StepParams::All => format!("step {}", steps.step),
            StepParams::Listed(params) => format!("step {} of {} params", steps.step, params.len()),
        })
        .collect();
    if optimizer.steps.len() > SHOWN {
        steps.push("…".to_owned());
    }
    let params = counted(optimizer.params().count(), "param");
    let groups = counted(optimizer.groups.len(), "group");
    let mut text = format!("{}, {groups}, {params}", optimizer.algorithm);
    for step in steps {
        text.push_str(&format!(", {step}"));
    }
    text
}

/// `1 group`, `2 groups`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn of_cursor(cursor: &Cursor) -> String {
    let mut text = of_node(&cursor.root);
    if let Some(consumed) = cursor.consumed {
        text.push_str(&format!(", {consumed} consumed"));
    }
    if let Some(next) = &cursor.next {
        let first: Vec<String> = next
            .first
            .iter()
            .map(|item| {
                let integers: Vec<String> = item.integers().iter().map(u64::to_string).collect();
                integers.join("/")
            })
            .collect();
        text.push_str(&format!(", next {}", shortened(&first)));
    }
    text
}

/// Recursion ends at `cursor-depth`.
fn of_node(node: &Node) -> String {
    match node {
        Node::PermutedIndex(leaf) => format!(
            "{} {}, epoch {}, at {} of {} records",
            node.kind(),
            leaf.order.algorithm(),
            leaf.epoch,
            leaf.position,
            leaf.n
        ),
        Node::ShardedLanes(leaf) => format!(
            "{} {}, epoch {}, {} lanes over {} shards",
            node.kind(),
            leaf.order.algorithm(),
            leaf.epoch,
            leaf.lanes.len(),
            leaf.n
        ),
        Node::Mixture(mixture) => {
            let algorithm = match &mixture.selection {
                Selection::Deficit(_) => "deficit",
                Selection::Other { algorithm, .. } => algorithm,
            };
            let children: Vec<String> = mixture.children.iter().take(SHOWN).map(of_node).collect();
            let more = if mixture.children.len() > SHOWN { ", …" } else { "" };
            format!("mixture {algorithm} of ({}{more})", children.join("; "))
        }
        Node::WindowShuffle(shuffle) => format!(
            "window-shuffle of {}, {} given, over ({})",
            shuffle.window,
            shuffle.replay,
            of_node(&shuffle.anchor)
        ),
        Node::StoredShuffle(shuffle) => {
            let (items, child) = (shuffle.buffer.len(), of_node(&shuffle.child));
            format!("window-shuffle with {items} items stored, over ({child})")
        }
        Node::Pack(pack) => {
            let left = match &pack.leftover {
                Leftover::ConcatThenSplit(piece) => usize::from(piece.is_some()),
                Leftover::Other { pieces, .. } => pieces.len(),
            };
            format!(
                "pack {} to {} tokens, {left} pieces left, over ({})",
                pack.leftover.algorithm(),
                pack.length,
                of_node(&pack.child)
            )
        }
        Node::Opaque(opaque) => format!("opaque {}", opaque.media_type),
    }
}

fn shortened(all: &[String]) -> String {
    let mut text: String = all.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        "none".clone_into(&mut text);
    }
    if all.len() > SHOWN {
        text.push_str(" …");
    }
    text
}
