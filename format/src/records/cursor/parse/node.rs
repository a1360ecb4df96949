//! Nodes out of JSON.
//!
//! It knows the members of each kind, and the rules about several of them, which come after all.

use super::order::{numbers, of_window, size, sized};
use super::{FORM, NodeMembers, Root, item, position};
use crate::json::Value;
use crate::records::cursor::node::MIXTURE_CHILDREN;
use crate::records::cursor::{
    Deficit, EndsWhen, EpochEnd, LaneEnd, Leftover, Mixture, Node, Numbers, Opaque, Order, Pack,
    PermutedIndex, Piece, Selection, ShardedLanes, Source, StoredShuffle, Tail, WindowShuffle,
};
use crate::records::read::missing;
use crate::value_tree::{MapKey, Tree};
use crate::{Code, Error, Result, limits, rule};

/// Where in a tree a node stands.
pub(super) struct Place<'r, 't> {
    /// Nodes above it.
    above: u64,
    root: Option<&'r mut Root<'t>>,
}

impl<'r, 't> Place<'r, 't> {
    pub(super) fn root(root: &'r mut Root<'t>) -> Self {
        Self { above: 0, root: Some(root) }
    }

    fn beneath(&self) -> Place<'static, 'static> {
        Place { above: self.above.saturating_add(1), root: None }
    }
}

/// Recursion ends at `cursor-depth`.
pub(super) fn node(value: &Value, place: &mut Place<'_, '_>) -> Result<Node> {
    if place.above >= limits::CURSOR_DEPTH {
        let message =
            format!("expected at most {} nodes in one another, found more", limits::CURSOR_DEPTH);
        return Err(Error::rule(Code::Limit, rule::CURSOR_FORM, message));
    }
    let object = value.as_object().ok_or_else(|| FORM.bad_type("a node", value))?;
    let kind = object.get("kind").ok_or_else(|| missing("kind"))?;
    let kind = FORM.text(kind).map_err(|error| error.in_member("kind"))?;
    let beneath = place.beneath();
    let members = NodeMembers::new(value, kind == "opaque", place.root.take())?;
    match kind {
        "permuted-index" => permuted_index(members),
        "sharded-lanes" => sharded_lanes(members),
        "mixture" => mixture(members, beneath.above),
        "window-shuffle" if object.contains_key("buffer") => stored_shuffle(members, beneath.above),
        "window-shuffle" => window_shuffle(members, beneath.above),
        "pack" => {
            let split = object.get("algorithm") == Some(&Value::Str(CONCAT.to_owned()));
            pack(members, beneath.above, split)
        }
        "opaque" => opaque(members),
        _ => {
            let message = format!("expected a kind of node, found {kind:?}");
            Err(FORM.bad(message).in_member("kind"))
        }
    }
}

fn child(value: &Value, above: u64) -> Result<Box<Node>> {
    node(value, &mut Place { above, root: None }).map(Box::new)
}

fn kind(members: &mut NodeMembers<'_, '_, '_>) -> Result<()> {
    members.required("kind", |_| Ok(())) // looked at before
}

fn permuted_index(mut members: NodeMembers<'_, '_, '_>) -> Result<Node> {
    let epoch = members.required("epoch", |value| FORM.count(value))?;
    let epoch_end = members.required("epoch_end", epoch_end)?;
    kind(&mut members)?;
    let (order, n) = members.required("order", sized)?;
    let at = members.required("position", |value| FORM.count(value))?;
    let source = members.required("source", |value| Ok(source(value, false)?.0))?;
    members.end()?;
    match epoch_end.items(n) {
        None | Some(0) => {
            let message = "expected an epoch of at least 1 item, found one of none";
            return Err(position(message).in_member("epoch_end"));
        }
        Some(items) if at > items => {
            let message =
                format!("expected a position of at most the {items} items of an epoch, found {at}");
            return Err(position(message).in_member("position"));
        }
        Some(_) => {}
    }
    domain(&order, n, source.records, true).map_err(|error| error.in_member("order"))?;
    Ok(Node::PermutedIndex(PermutedIndex { epoch, epoch_end, n, order, position: at, source }))
}

fn epoch_end(value: &Value) -> Result<EpochEnd> {
    let mut members = FORM.object(value)?;
    let rule = members.required("rule", |value| {
        FORM.word(value, "\"drop-last\", \"pad\", \"wrap\" or \"stop\"", |word| {
            Some(match word {
                "drop-last" => EpochEnd::DropLast { unit: 1 },
                "pad" => EpochEnd::Pad { unit: 1 },
                "wrap" => EpochEnd::Wrap,
                "stop" => EpochEnd::Stop,
                _ => return None,
            })
        })
    })?;
    let end = match rule {
        EpochEnd::DropLast { .. } => EpochEnd::DropLast { unit: members.required("unit", size)? },
        EpochEnd::Pad { .. } => EpochEnd::Pad { unit: members.required("unit", size)? },
        without => without,
    };
    members.end()?;
    Ok(end)
}

fn lane_end(value: &Value) -> Result<LaneEnd> {
    let mut members = FORM.object(value)?;
    let end = members.required("rule", |value| {
        FORM.word(value, "\"wrap\" or \"stop\"", |word| {
            Some(match word {
                "wrap" => LaneEnd::Wrap,
                "stop" => LaneEnd::Stop,
                _ => return None,
            })
        })
    })?;
    members.end()?;
    Ok(end)
}

/// A source, with the records of its shards where it is read by shards.
fn source(value: &Value, sharded: bool) -> Result<(Source, Numbers)> {
    let mut members = FORM.object(value)?;
    let name = members.optional("name", |value| FORM.name(value, "name of a source"))?;
    let records = members.required("records", size)?;
    let sha256 = members.required("sha256", |value| FORM.digest(value))?;
    let mut shards = Numbers::List(Vec::new());
    if sharded {
        shards = members.required("shards", |value| {
            let list = |value: &Value| {
                FORM.list_limited(value, limits::INLINE_ORDINALS, |_, value| FORM.count(value))
            };
            numbers(value, list, FORM)
        })?;
    }
    members.end()?;
    Ok((Source { name, records, sha256 }, shards))
}

/// Whether an order gives ordinals that there are; `limit` of them.
fn domain(order: &Order, n: u64, limit: u64, of_records: bool) -> Result<()> {
    let bad = |message: String| Error::rule(Code::BadPosition, rule::ORDER_DOMAIN, message);
    let explicit = matches!(order, Order::Explicit(_));
    if of_records && !explicit && n > limit {
        let message = format!("expected n of at most the {limit} records of the source, found {n}");
        return Err(bad(message).in_member("n"));
    }
    match order {
        Order::GrainIndexShuffle { .. } if n > 1 << 32 => {
            let message = format!("expected n of at most 2^32 for an index shuffle, found {n}");
            Err(bad(message).in_member("n"))
        }
        Order::Explicit(Numbers::List(ordinals)) => {
            let beyond = |(_, ordinal): &(usize, &u64)| **ordinal >= limit;
            if let Some((index, ordinal)) = ordinals.iter().enumerate().find(beyond) {
                let message = format!("expected an ordinal below {limit}, found {ordinal}");
                return Err(bad(message).in_item(index).in_member("ordinals"));
            }
            if u64::try_from(ordinals.len()) != Ok(n) {
                let message = format!("expected n = {n} ordinals, found {}", ordinals.len());
                return Err(bad(message).in_member("ordinals"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn sharded_lanes(mut members: NodeMembers<'_, '_, '_>) -> Result<Node> {
    let epoch = members.required("epoch", |value| FORM.count(value))?;
    let epoch_end = members.required("epoch_end", lane_end)?;
    kind(&mut members)?;
    let lanes = members.required("lanes", |value| {
        FORM.list_limited(value, limits::INLINE_ORDINALS, |_, value| {
            FORM.pair(value, "[place, record]", |v| FORM.count(v), |v| FORM.count(v))
        })
    })?;
    let next_lane = members.required("next_lane", |value| FORM.count(value))?;
    let (order, n) = members.required("order", sized)?;
    let (source, shards) = members.required("source", |value| source(value, true))?;
    members.end()?;
    let leaf = ShardedLanes { epoch, epoch_end, lanes, next_lane, n, order, source, shards };
    check_lanes(&leaf)?;
    domain(&leaf.order, n, n, false).map_err(|error| error.in_member("order"))?;
    Ok(Node::ShardedLanes(leaf))
}

fn check_lanes(leaf: &ShardedLanes) -> Result<()> {
    let bad = |message: String| Error::rule(Code::BadPosition, rule::CURSOR_LANES, message);
    let lanes = u64::try_from(leaf.lanes.len()).unwrap_or(u64::MAX);
    if leaf.next_lane >= lanes {
        let message = format!("expected one of {lanes} lanes, found {}", leaf.next_lane);
        return Err(bad(message).in_member("next_lane"));
    }
    for (index, (lane, (place, record))) in (0_u64..).zip(&leaf.lanes).enumerate() {
        let at = |error: Error, item| error.in_item(item).in_item(index).in_member("lanes");
        // Both counts are below 2^53, the lanes at most `inline-ordinals`.
        let own = place.checked_sub(lane).and_then(|past| past.checked_rem(lanes)) == Some(0);
        if !own || *place >= leaf.n.saturating_add(lanes) {
            let message = format!(
                "expected a place of lane {lane} of {lanes} over {} shards, found {place}",
                leaf.n
            );
            return Err(at(bad(message), 0));
        }
        if *place >= leaf.n && *record != 0 {
            let message = format!("expected record 0 of a lane that has ended, found {record}");
            return Err(at(bad(message), 1));
        }
    }
    if let Numbers::List(shards) = &leaf.shards {
        let at = |message| bad(message).in_member("shards").in_member("source");
        if u64::try_from(shards.len()) != Ok(leaf.n) {
            let message = format!("expected n = {} shards, found {}", leaf.n, shards.len());
            return Err(at(message));
        }
        let sum = shards.iter().try_fold(0_u64, |sum, records| sum.checked_add(*records));
        if sum != Some(leaf.source.records) {
            let sum = sum.map_or_else(|| "more than 2^64".to_owned(), |sum| sum.to_string());
            let message =
                format!("expected the sum {} of the source, found {sum}", leaf.source.records);
            return Err(at(message));
        }
    }
    Ok(())
}

fn mixture(mut members: NodeMembers<'_, '_, '_>, above: u64) -> Result<Node> {
    let children = members.required("children", |value| {
        let read = |_, value| node(value, &mut Place { above, root: None });
        let children = FORM.list_up_to(value, MIXTURE_CHILDREN, read)?;
        if children.is_empty() {
            return Err(FORM.bad("expected at least one child, found none"));
        }
        Ok(children)
    })?;
    kind(&mut members)?;
    let selection = members.required("selection", selection)?;
    members.end()?;
    if let Selection::Deficit(deficit) = &selection {
        for (name, list) in [("taken", &deficit.taken), ("weights", &deficit.weights)] {
            if list.len() != children.len() {
                let message =
                    format!("expected one for each of {}, found {}", children.len(), list.len());
                return Err(FORM.bad(message).in_member(name).in_member("selection"));
            }
        }
    }
    Ok(Node::Mixture(Mixture { children, selection }))
}

fn selection(value: &Value) -> Result<Selection> {
    let object = value.as_object().ok_or_else(|| FORM.bad_type("an object", value))?;
    let algorithm = object.get("algorithm").ok_or_else(|| missing("algorithm"))?;
    let algorithm =
        FORM.name(algorithm, "selection").map_err(|error| error.in_member("algorithm"))?;
    if algorithm != "deficit" {
        let mut members = object.clone();
        members.remove("algorithm");
        return Ok(Selection::Other { algorithm, members });
    }
    let mut members = FORM.object(value)?;
    members.required("algorithm", |_| Ok(()))?;
    let end = members.required("end", |value| {
        FORM.word(value, "\"first\" or \"all\"", |word| match word {
            "first" => Some(EndsWhen::First),
            "all" => Some(EndsWhen::All),
            _ => None,
        })
    })?;
    let taken =
        members.required("taken", |value| FORM.list(value, |_, value| FORM.count(value)))?;
    let weights = members.required("weights", |value| {
        FORM.list(value, |_, value| match FORM.count(value)? {
            weight if (1..=u64::from(u32::MAX)).contains(&weight) => Ok(weight),
            weight => {
                Err(FORM.bad(format!("expected a weight from 1 to 2^32 - 1, found {weight}")))
            }
        })
    })?;
    members.end()?;
    Ok(Selection::Deficit(Deficit { end, taken, weights }))
}

fn window_shuffle(mut members: NodeMembers<'_, '_, '_>, above: u64) -> Result<Node> {
    let anchor = members.required("anchor", |value| child(value, above))?;
    let index = members.required("index", |value| FORM.count(value))?;
    kind(&mut members)?;
    let order = members.required("order", of_window)?;
    let replay = members.required("replay", |value| FORM.count(value))?;
    let reverse = members.required("reverse", |value| match value {
        Value::Bool(reverse) => Ok(*reverse),
        _ => Err(FORM.bad_type("true or false", value)),
    })?;
    let window = members.required("window", size)?;
    members.end()?;
    if replay > window {
        let message = format!("expected a replay within a window of {window}, found {replay}");
        let error = Error::rule(Code::BadPosition, rule::CURSOR_REPLAY, message);
        return Err(error.in_member("replay"));
    }
    Ok(Node::WindowShuffle(WindowShuffle { anchor, index, order, replay, reverse, window }))
}

fn stored_shuffle(mut members: NodeMembers<'_, '_, '_>, above: u64) -> Result<Node> {
    let buffer = members.required("buffer", |value| FORM.list(value, |_, value| item(value)))?;
    let child = members.required("child", |value| child(value, above))?;
    kind(&mut members)?;
    let order = members.required("order", of_window)?;
    members.end()?;
    Ok(Node::StoredShuffle(StoredShuffle { buffer, child, order }))
}

const CONCAT: &str = "concat-then-split";

fn pack(mut members: NodeMembers<'_, '_, '_>, above: u64, split: bool) -> Result<Node> {
    let algorithm = members.required("algorithm", |value| FORM.name(value, "packing"))?;
    let child = members.required("child", |value| child(value, above))?;
    kind(&mut members)?;
    let leftover = members.required("leftover", |value| {
        Ok(match value {
            Value::Null if split => Leftover::ConcatThenSplit(None),
            _ if split => Leftover::ConcatThenSplit(Some(piece(value)?)),
            _ => {
                let pieces = FORM.list(value, |_, value| piece(value))?;
                Leftover::Other { algorithm, pieces }
            }
        })
    })?;
    let length = members.required("length", size)?;
    let tail = members.required("tail", |value| {
        FORM.word(value, "\"drop\" or \"keep\"", |word| match word {
            "drop" => Some(Tail::Drop),
            "keep" => Some(Tail::Keep),
            _ => None,
        })
    })?;
    let tokenizer = members.optional("tokenizer", |value| FORM.digest(value))?;
    members.end()?;
    Ok(Node::Pack(Pack { child, leftover, length, tail, tokenizer }))
}

/// `[item, offset, count]`.
fn piece(value: &Value) -> Result<Piece> {
    let Value::List(items) = value else {
        return Err(FORM.bad_type("[item, offset, count]", value));
    };
    let [first, offset, count] = items.as_slice() else {
        let message = format!("expected [item, offset, count], found {} items", items.len());
        return Err(FORM.bad(message));
    };
    let item = item(first).map_err(|error| error.in_item(0))?;
    let offset = FORM.count(offset).map_err(|error| error.in_item(1))?;
    let count = FORM.count(count).map_err(|error| error.in_item(2))?;
    if count == 0 {
        let message = "expected a piece of at least 1 token, found 0";
        let error = Error::rule(Code::BadPosition, rule::CURSOR_LEFTOVER, message);
        return Err(error.in_item(2));
    }
    Ok(Piece { item, offset, count })
}

fn opaque(mut members: NodeMembers<'_, '_, '_>) -> Result<Node> {
    let fingerprint = members.required("fingerprint", |value| {
        let tree = Tree::parse(value)?;
        let named = match &tree {
            Tree::Map(pairs) => pairs.iter().all(|(key, _)| matches!(key, MapKey::Str(_))),
            _ => false,
        };
        if named {
            Ok(tree)
        } else {
            Err(FORM.bad("expected a map with string keys, found another tree"))
        }
    })?;
    kind(&mut members)?;
    let media_type = members.required("media_type", |value| FORM.name(value, "media type"))?;
    let state = members.required("state", Tree::parse)?;
    members.end()?;
    Ok(Node::Opaque(Opaque { fingerprint, media_type, state }))
}
