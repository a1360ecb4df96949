//! What a record of resume state says, in a line of words.
//!
//! It knows records. It must not know grades or places.

use waystation_format::record::Record;
use waystation_format::records::cursor::{Leftover, Node, Selection};
use waystation_format::records::optimizer::StepParams;
use waystation_format::records::rng::Fork;
use waystation_format::records::{Cursor, Optimizer, Stream, Typed};
use waystation_format::{Coordinate, Result};

/// Raw outputs and ordinals that are shown.
const SHOWN: usize = 3;

/// One line on what a record says.
pub(super) fn of(record: &Record) -> Result<String> {
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
        Typed::Ema(ema) => {
            let decay = ema.decay.map(|decay| format!("decay {:e}, ", decay.to_f64()));
            format!("{}{} updates", decay.unwrap_or_default(), ema.updates)
        }
        Typed::Schedule(schedule) => {
            format!("{} at {} {}", schedule.algorithm, schedule.position, schedule.unit.as_str())
        }
        Typed::Scaler(scaler) => {
            format!("scale {:e}, {} good steps", scaler.scale.to_f64(), scaler.good_steps)
        }
        Typed::Rng(stream) => {
            let on_reshape = stream.on_reshape.as_str();
            format!("{}, {on_reshape}{}", of_stream(&stream), of_fork(stream.fork.as_ref()))
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

/// Its algorithm, its caches, and what comes next.
pub(super) fn of_stream(stream: &Stream) -> String {
    let caches: String = stream.caches.iter().map(|cache| format!(" + {}", cache.kind)).collect();
    format!("{}{caches}, next {}", stream.algorithm, shortened(&stream.next_raw))
}

/// A stream's lineage, with a comma before it; nothing when it has none.
pub(super) fn of_fork(fork: Option<&Fork>) -> String {
    let Some(fork) = fork else { return String::new() };
    let place = match axes(&fork.coordinate) {
        at if at.is_empty() => "all places".to_owned(),
        at => at,
    };
    format!(", forked for {place} at step {} of {}", fork.step, fork.manifest)
}

/// `dp=2 tp=0`.
pub(super) fn axes(coordinate: &Coordinate) -> String {
    let indices: Vec<String> =
        coordinate.iter().map(|(axis, index)| format!("{axis}={index}")).collect();
    indices.join(" ")
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
        Node::PermutedIndex(leaf) => {
            let end = match leaf.epoch_end.items(leaf.n) {
                Some(end) if end != leaf.n => format!(" (the epoch ends at {end})"),
                _ => String::new(),
            };
            format!(
                "{} {}, epoch {}, at {} of {} records{end}",
                node.kind(),
                leaf.order.algorithm(),
                leaf.epoch,
                leaf.position,
                leaf.n
            )
        }
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

/// The first few of them.
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

#[cfg(test)]
mod tests {
    use waystation_format::Digest;
    use waystation_format::json::Value;

    use super::*;

    #[test]
    fn streams_are_told_with_caches_and_lineage() {
        let text = r#"{"algorithm":"sfc64","caches":[{"bits":"7550a941","kind":"numpy/u32-half"}],"next_raw":["00000000000000aa","00000000000000bb","00000000000000cc","00000000000000dd"],"on_reshape":"fork","state":"00"}"#;
        let stream = Stream::parse(&Value::parse(text).unwrap()).unwrap();
        let next = "00000000000000aa 00000000000000bb 00000000000000cc …";
        assert_eq!(of_stream(&stream), format!("sfc64 + numpy/u32-half, next {next}"));
        let manifest = Digest::of(b"");
        let mut fork = Fork { coordinate: vec![("dp".to_owned(), 2)], manifest, step: 7 };
        let lineage = |place| format!(", forked for {place} at step 7 of {manifest}");
        assert_eq!(of_fork(Some(&fork)), lineage("dp=2"));
        fork.coordinate.clear();
        assert_eq!(of_fork(Some(&fork)), lineage("all places"));
        assert_eq!(of_fork(None), "");
    }
}
