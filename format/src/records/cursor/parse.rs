//! Cursors out of JSON, with all rules that a record must keep by itself.
//!
//! It knows which rule each breach is of, and where it stands. `kind` and `algorithm` are looked
//! at first, since they say which members there are; then members go in the order they stand.

mod members;
mod node;
mod order;

use members::NodeMembers;
use node::{Place, node};

use super::{Augment, Canary, Cursor, Item, Node, Partition, ShareRule};
use crate::json::Value;
use crate::records::read::Reader;
use crate::{Code, Error, Result, Topology, limits, rule};

/// Whatever is not of a rule of its own.
const FORM: Reader = Reader::new(rule::CURSOR_FORM);

/// Items that a canary spells.
const FIRST: u64 = 4;

pub(super) fn cursor(value: &Value, topology: Option<&Topology>) -> Result<Cursor> {
    let mut root = Root::default();
    let node = node(value, &mut Place::root(&mut root))?;
    let cursor = Cursor {
        augment: root.augment,
        consumed: root.consumed,
        next: root.next,
        partition: root.partition,
        root: node,
    };
    if let (Some(consumed), Node::PermutedIndex(leaf)) = (cursor.consumed, &cursor.root)
        && consumed < leaf.position
    {
        let message = format!(
            "expected at least the {} items of this epoch, found {consumed}",
            leaf.position
        );
        return Err(position(message).in_member("consumed"));
    }
    if cursor.next.is_none() && cursor.is_computed() {
        let rule = Reader::new(rule::CURSOR_CANARY_THERE);
        return Err(rule.bad("expected the canary of a computed cursor, found no \"next\""));
    }
    if let Some(partition) = &cursor.partition {
        check_partition(partition, &cursor.root, topology)
            .map_err(|error| error.in_member("partition"))?;
    }
    Ok(cursor)
}

/// The members that stand at the root only.
#[derive(Default)]
struct Root {
    augment: Option<Augment>,
    consumed: Option<u64>,
    next: Option<Canary>,
    partition: Option<Partition>,
}

impl Root {
    /// In ascending order.
    const NAMES: [&'static str; 4] = ["augment", "consumed", "next", "partition"];

    /// Reads the member `name`, one of [`NAMES`](Self::NAMES), of a node of this kind.
    fn read(&mut self, name: &str, opaque: bool, members: &mut NodeMembers<'_, '_>) -> Result<()> {
        match name {
            "augment" => self.augment = members.plain_optional(name, augment)?,
            // What an opaque loader counts, it counts in its state.
            "consumed" if opaque => {}
            "consumed" => {
                self.consumed = Some(members.plain_required(name, |value| FORM.count(value))?);
            }
            "next" => self.next = members.plain_optional(name, canary)?,
            _ => self.partition = members.plain_optional(name, partition)?,
        }
        Ok(())
    }
}

fn augment(value: &Value) -> Result<Augment> {
    FORM.word(value, "\"none\", \"per-record\" or \"worker-stream\"", |word| {
        Some(match word {
            "none" => Augment::None,
            "per-record" => Augment::PerRecord,
            "worker-stream" => Augment::WorkerStream,
            _ => return None,
        })
    })
}

fn canary(value: &Value) -> Result<Canary> {
    let there = Reader::new(rule::CURSOR_CANARY_THERE);
    let mut members = FORM.object(value)?;
    let count = members.required("count", |value| FORM.count(value))?;
    let first = members.required("first", |value| FORM.list(value, |_, value| item(value)))?;
    let sha256 = members.required("sha256", |value| FORM.digest(value))?;
    members.end()?;
    if count > limits::CANARY_ITEMS {
        let message = format!("expected at most {} items, found {count}", limits::CANARY_ITEMS);
        let error = Error::rule(Code::Limit, rule::CURSOR_CANARY_THERE, message);
        return Err(error.in_member("count"));
    }
    let spelled = count.min(FIRST);
    if u64::try_from(first.len()) != Ok(spelled) {
        let message = format!("expected the first {spelled} items, found {}", first.len());
        return Err(there.bad(message).in_member("first"));
    }
    Ok(Canary { count, first, sha256 })
}

/// An integer, or a list of several.
fn item(value: &Value) -> Result<Item> {
    let Value::List(items) = value else { return Ok(Item::leaf(FORM.count(value)?)) };
    let integers = FORM.list(value, |_, value| FORM.count(value))?;
    if items.len() == 1 {
        return Err(FORM.bad("expected an item of one integer to be written bare"));
    }
    if items.is_empty() {
        return Err(FORM.bad("expected an item of at least one integer, found none"));
    }
    Ok(Item::of(&integers))
}

fn partition(value: &Value) -> Result<Partition> {
    let mut members = FORM.object(value)?;
    let axes = members
        .required("axes", |value| FORM.list(value, |_, value| FORM.name(value, "axis name")))?;
    let batch = members.required("batch", |value| FORM.count(value))?;
    let rule = members.required("rule", |value| {
        FORM.word(value, "\"round-robin\", \"contiguous\" or \"by-lane\"", |word| {
            Some(match word {
                "round-robin" => ShareRule::RoundRobin,
                "contiguous" => ShareRule::Contiguous,
                "by-lane" => ShareRule::ByLane,
                _ => return None,
            })
        })
    })?;
    members.end()?;
    Ok(Partition { axes, batch, rule })
}

fn check_partition(partition: &Partition, root: &Node, topology: Option<&Topology>) -> Result<()> {
    let rule = Reader::new(rule::CURSOR_PARTITION);
    let mut before: Vec<&str> = Vec::new();
    for (index, axis) in partition.axes.iter().enumerate() {
        let at_axis = |error: Error| error.in_item(index).in_member("axes");
        // Few are expected, and no more than a topology has are gone through.
        if topology.is_some_and(|topology| topology.size(axis).is_none()) {
            let message = format!("expected an axis of the topology, found {axis:?}");
            return Err(at_axis(rule.bad(message)));
        }
        if before.contains(&axis.as_str()) {
            let message = format!("expected each axis once, found {axis:?} again");
            return Err(at_axis(rule.bad(message)));
        }
        if u64::try_from(index).map_or(true, |index| index >= limits::TOPOLOGY_AXES) {
            let message = format!("expected at most {} axes", limits::TOPOLOGY_AXES);
            return Err(at_axis(rule.bad(message)));
        }
        before.push(axis);
    }
    if partition.batch == 0 {
        return Err(rule.bad("expected a batch of at least 1, found 0").in_member("batch"));
    }
    if partition.rule == ShareRule::ByLane && !matches!(root, Node::ShardedLanes(_)) {
        let message =
            format!("expected \"by-lane\" over sharded-lanes only, found {}", root.kind());
        return Err(rule.bad(message).in_member("rule"));
    }
    Ok(())
}

/// A breach of `cursor.position`.
#[cold]
fn position(message: impl Into<String>) -> Error {
    Error::rule(Code::BadPosition, rule::CURSOR_POSITION, message)
}
