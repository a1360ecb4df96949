//! Cursors as JSON.
//!
//! It knows where each member stands. It checks nothing.

use super::{
    Augment, Canary, Cursor, Deficit, EndsWhen, EpochEnd, Item, LaneEnd, Leftover, Node, Numbers,
    Order, Partition, Piece, SeedRule, Selection, ShareRule, Source, Tail,
};
use crate::json::{Map, Value};
use crate::records::write::{count, list, tensor, text};
use crate::value_tree::Tree;

pub(super) fn cursor(cursor: &Cursor) -> Value {
    let mut members = node(&cursor.root);
    if let Some(augment) = cursor.augment {
        put(&mut members, "augment", text(augment.as_str()));
    }
    if let Some(consumed) = cursor.consumed {
        put(&mut members, "consumed", count(consumed));
    }
    if let Some(next) = &cursor.next {
        put(&mut members, "next", canary(next));
    }
    if let Some(partition) = &cursor.partition {
        put(&mut members, "partition", share(partition));
    }
    Value::Object(members)
}

fn canary(canary: &Canary) -> Value {
    object([
        ("count", count(canary.count)),
        ("first", list(&canary.first, item)),
        ("sha256", text(canary.sha256.to_string())),
    ])
}

fn share(partition: &Partition) -> Value {
    object([
        ("axes", list(&partition.axes, |axis| text(axis.as_str()))),
        ("batch", count(partition.batch)),
        ("rule", text(partition.rule.as_str())),
    ])
}

/// An integer stands bare when it is alone.
fn item(item: &Item) -> Value {
    match item.integers() {
        [alone] => count(*alone),
        several => counts(several),
    }
}

fn node(node: &Node) -> Map {
    let mut members = match node {
        Node::PermutedIndex(leaf) => Map::from([
            member("epoch", count(leaf.epoch)),
            member("epoch_end", epoch_end(leaf.epoch_end)),
            member("order", order(&leaf.order, Some(leaf.n))),
            member("position", count(leaf.position)),
            member("source", Value::Object(source(&leaf.source))),
        ]),
        Node::ShardedLanes(leaf) => {
            let lane = |(place, record): &(u64, u64)| counts(&[*place, *record]);
            let end = match leaf.epoch_end {
                LaneEnd::Wrap => "wrap",
                LaneEnd::Stop => "stop",
            };
            let mut from = source(&leaf.source);
            put(&mut from, "shards", numbers(&leaf.shards));
            Map::from([
                member("epoch", count(leaf.epoch)),
                member("epoch_end", object([("rule", text(end))])),
                member("lanes", list(&leaf.lanes, lane)),
                member("next_lane", count(leaf.next_lane)),
                member("order", order(&leaf.order, Some(leaf.n))),
                member("source", Value::Object(from)),
            ])
        }
        Node::Mixture(mixture) => Map::from([
            member("children", list(&mixture.children, inner)),
            member("selection", selection(&mixture.selection)),
        ]),
        Node::WindowShuffle(shuffle) => Map::from([
            member("anchor", inner(&shuffle.anchor)),
            member("index", count(shuffle.index)),
            member("order", order(&shuffle.order, None)),
            member("replay", count(shuffle.replay)),
            member("reverse", Value::Bool(shuffle.reverse)),
            member("window", count(shuffle.window)),
        ]),
        Node::StoredShuffle(shuffle) => Map::from([
            member("buffer", list(&shuffle.buffer, item)),
            member("child", inner(&shuffle.child)),
            member("order", order(&shuffle.order, None)),
        ]),
        Node::Pack(pack) => {
            let mut members = Map::from([
                member("algorithm", text(pack.leftover.algorithm())),
                member("child", inner(&pack.child)),
                member("leftover", leftover(&pack.leftover)),
                member("length", count(pack.length)),
                member("tail", text(pack.tail.as_str())),
            ]);
            if let Some(digest) = &pack.tokenizer {
                put(&mut members, "tokenizer", text(digest.to_string()));
            }
            members
        }
        Node::Opaque(opaque) => Map::from([
            member("fingerprint", opaque.fingerprint.to_value()),
            member("media_type", text(&opaque.media_type)),
            member("state", opaque.state.to_value()),
        ]),
    };
    put(&mut members, "kind", text(node.kind()));
    members
}

fn inner(inner: &Node) -> Value {
    Value::Object(node(inner))
}

fn source(source: &Source) -> Map {
    let mut members = Map::from([
        member("records", count(source.records)),
        member("sha256", text(source.sha256.to_string())),
    ]);
    if let Some(name) = &source.name {
        put(&mut members, "name", text(name));
    }
    members
}

fn epoch_end(end: EpochEnd) -> Value {
    match end {
        EpochEnd::DropLast { unit } => object([("rule", text("drop-last")), ("unit", count(unit))]),
        EpochEnd::Pad { unit } => object([("rule", text("pad")), ("unit", count(unit))]),
        EpochEnd::Wrap => object([("rule", text("wrap"))]),
        EpochEnd::Stop => object([("rule", text("stop"))]),
    }
}

/// Without `n` within a window.
fn order(order: &Order, n: Option<u64>) -> Value {
    let mut members = match order {
        Order::Identity => Map::new(),
        Order::Explicit(ordinals) => Map::from([member("ordinals", numbers(ordinals))]),
        Order::TorchRandpermCpu { seed, seed_rule } => seeded(*seed, *seed_rule),
        Order::GrainIndexShuffle { seed, seed_rule, rounds } => {
            let mut members = seeded(u64::from(*seed), *seed_rule);
            put(&mut members, "rounds", count(*rounds));
            members
        }
        Order::Other { members, .. } => members.clone(),
    };
    put(&mut members, "algorithm", text(order.algorithm()));
    if let Some(n) = n {
        put(&mut members, "n", count(n));
    }
    Value::Object(members)
}

fn seeded(seed: u64, rule: SeedRule) -> Map {
    Map::from([
        member("seed", Tree::int(i128::from(seed)).to_value()),
        member("seed_rule", text(rule.as_str())),
    ])
}

fn numbers(numbers: &Numbers) -> Value {
    match numbers {
        Numbers::List(list) => counts(list),
        Numbers::Tensor(identity) => tensor(identity),
    }
}

fn selection(selection: &Selection) -> Value {
    match selection {
        Selection::Deficit(Deficit { end, taken, weights }) => object([
            ("algorithm", text("deficit")),
            ("end", text(end.as_str())),
            ("taken", counts(taken)),
            ("weights", counts(weights)),
        ]),
        Selection::Other { algorithm, members } => {
            let mut members = members.clone();
            put(&mut members, "algorithm", text(algorithm));
            Value::Object(members)
        }
    }
}

fn leftover(leftover: &Leftover) -> Value {
    let piece = |piece: &Piece| {
        Value::List(vec![item(&piece.item), count(piece.offset), count(piece.count)])
    };
    match leftover {
        Leftover::ConcatThenSplit(rest) => rest.as_ref().map_or(Value::Null, piece),
        Leftover::Other { pieces, .. } => list(pieces, piece),
    }
}

impl Augment {
    /// How it is spelled.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PerRecord => "per-record",
            Self::WorkerStream => "worker-stream",
        }
    }
}

impl ShareRule {
    /// The rule that is spelled so.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "round-robin" => Self::RoundRobin,
            "contiguous" => Self::Contiguous,
            "by-lane" => Self::ByLane,
            _ => return None,
        })
    }

    /// How it is spelled.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Contiguous => "contiguous",
            Self::ByLane => "by-lane",
        }
    }
}

impl SeedRule {
    /// How it is spelled.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::SeedPlusEpoch => "seed+epoch",
        }
    }
}

impl EndsWhen {
    /// How it is spelled.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::All => "all",
        }
    }
}

impl Tail {
    /// How it is spelled.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Keep => "keep",
        }
    }
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| member(name, value)).collect())
}

fn member(name: &str, value: Value) -> (String, Value) {
    (name.to_owned(), value)
}

fn put(members: &mut Map, name: &str, value: Value) {
    members.insert(name.to_owned(), value);
}

fn counts(counts: &[u64]) -> Value {
    list(counts, |value| count(*value))
}
