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

const PARTITION: Reader = Reader::new(rule::CURSOR_PARTITION);

/// A computed one without its canary is refused where it is that of a `record`.
pub(super) fn cursor(value: &Value, topology: Option<&Topology>, record: bool) -> Result<Cursor> {
    let mut root = Root { topology, ..Root::default() };
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
    if record && cursor.next.is_none() && cursor.is_computed() {
        let rule = Reader::new(rule::CURSOR_CANARY_THERE);
        return Err(rule.bad("expected the canary of a computed cursor, found no \"next\""));
    }
    if cursor.partition.as_ref().is_some_and(|partition| partition.rule == ShareRule::ByLane)
        && !matches!(cursor.root, Node::ShardedLanes(_))
    {
        let found = cursor.root.kind();
        let message = format!("expected \"by-lane\" over sharded-lanes only, found {found}");
        return Err(PARTITION.bad(message).in_member("rule").in_member("partition"));
    }
    Ok(cursor)
}

/// The members that stand at the root only.
#[derive(Default)]
struct Root<'t> {
    /// Of the checkpoint, where it is known.
    topology: Option<&'t Topology>,
    augment: Option<Augment>,
    consumed: Option<u64>,
    next: Option<Canary>,
    partition: Option<Partition>,
}

impl Root<'_> {
    /// In ascending order.
    const NAMES: [&'static str; 4] = ["augment", "consumed", "next", "partition"];

    /// Reads the member `name`, one of [`NAMES`](Self::NAMES), of a node of this kind.
    fn read(
        &mut self,
        name: &str,
        opaque: bool,
        members: &mut NodeMembers<'_, '_, '_>,
    ) -> Result<()> {
        match name {
            "augment" => self.augment = members.plain_optional(name, augment)?,
            // What an opaque loader counts, it counts in its state.
            "consumed" if opaque => {}
            "consumed" => {
                self.consumed = Some(members.plain_required(name, |value| FORM.count(value))?);
            }
            "next" => self.next = members.plain_optional(name, canary)?,
            _ => {
                let topology = self.topology;
                self.partition =
                    members.plain_optional(name, |value| partition(value, topology))?;
            }
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
    let count = members.required("count", |value| {
        there.count_limited(value, limits::CANARY_ITEMS, "canary-items")
    })?;
    let first = members.required("first", |value| FORM.list(value, |_, value| item(value)))?;
    let sha256 = members.required("sha256", |value| FORM.digest(value))?;
    members.end()?;
    let spelled = count.min(Canary::FIRST);
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
        return Err(FORM.bad("expected an item of one integer bare, found it in a list"));
    }
    if items.is_empty() {
        return Err(FORM.bad("expected an item of at least one integer, found none"));
    }
    Ok(Item::of(&integers))
}

fn partition(value: &Value, topology: Option<&Topology>) -> Result<Partition> {
    let mut members = FORM.object(value)?;
    let axes = members.required("axes", |value| axes(value, topology))?;
    let batch = members.required("batch", |value| match FORM.count(value)? {
        0 => Err(PARTITION.bad("expected a batch of at least 1, found 0")),
        batch => Ok(batch),
    })?;
    let rule = members.required("rule", |value| {
        FORM.word(value, "\"round-robin\", \"contiguous\" or \"by-lane\"", |word| {
            ShareRule::from_word(word)
        })
    })?;
    members.end()?;
    Ok(Partition { axes, batch, rule })
}

/// Axes of the topology, each once; no more than a topology has are gone through.
fn axes(value: &Value, topology: Option<&Topology>) -> Result<Vec<String>> {
    let mut before: Vec<String> = Vec::new();
    FORM.list(value, |_, value| {
        let axis = FORM.name(value, "axis name")?;
        if topology.is_some_and(|topology| topology.size(&axis).is_none()) {
            let message = format!("expected an axis of the topology, found {axis:?}");
            return Err(PARTITION.bad(message));
        }
        if before.contains(&axis) {
            let message = format!("expected each axis once, found {axis:?} again");
            return Err(PARTITION.bad(message));
        }
        if u64::try_from(before.len()).map_or(true, |axes| axes >= limits::TOPOLOGY_AXES) {
            let message = format!("expected at most {} axes, found more", limits::TOPOLOGY_AXES);
            return Err(PARTITION.bad(message));
        }
        before.push(axis);
        Ok(())
    })?;
    Ok(before)
}

/// A breach of `cursor.position`.
#[cold]
fn position(message: impl Into<String>) -> Error {
    Error::rule(Code::BadPosition, rule::CURSOR_POSITION, message)
}
