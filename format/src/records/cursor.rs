//! Data cursors (chapter 18): where training stands in its data, as a record of kind `cursor`
//! says it.
//!
//! It knows the form of cursors and what of them can be checked by looking at the record alone.
//! Which items come next is for `waystation-state`; whether a source or a tensor is there, for the
//! reader.

mod encode;
mod node;
mod order;
mod parse;

use smallvec::SmallVec;

use crate::json::Value;
use crate::{Digest, Result, Topology};

pub use node::{
    Deficit, EndsWhen, EpochEnd, LaneEnd, Leftover, Mixture, Node, Opaque, Pack, PermutedIndex,
    Piece, Selection, ShardedLanes, Source, StoredShuffle, Tail, WindowShuffle,
};
pub use order::{Numbers, Order, SeedRule};

/// The `value` of a record of kind `cursor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// What random changes to records are drawn from, where the writer says so.
    pub augment: Option<Augment>,
    /// Items consumed since the run began, over all epochs; none exactly where the root is opaque.
    pub consumed: Option<u64>,
    /// The canary.
    pub next: Option<Canary>,
    /// How ranks share a global batch.
    pub partition: Option<Partition>,
    /// The sequence that training consumes.
    pub root: Node,
}

/// What random changes to records are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Augment {
    /// There are none.
    None,
    /// A function of seed, epoch and record.
    PerRecord,
    /// A worker's own stream.
    WorkerStream,
}

/// The items that come next, by digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canary {
    /// How many it covers.
    pub count: u64,
    /// The first min(4, `count`) of them.
    pub first: Vec<Item>,
    /// Over all of them, each its integers as u64 little-endian.
    pub sha256: Digest,
}

impl Canary {
    /// Items that a canary spells, unless it covers fewer.
    pub const FIRST: u64 = 4;
}

/// How the ranks along some axes share a global batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The axes that ranks are counted along, outermost first.
    pub axes: Vec<String>,
    /// G: the items of a global batch.
    pub batch: u64,
    /// Which of them a rank takes.
    pub rule: ShareRule,
}

/// Which items of a global batch a rank takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRule {
    /// Every W-th, from its own number on.
    RoundRobin,
    /// A W-th of them, one after another.
    Contiguous,
    /// Those of every W-th lane, from its own number on.
    ByLane,
}

/// One item of a sequence: the ordinal of a record after what the nodes above it say, outermost
/// first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item(SmallVec<[u64; 4]>);

impl Cursor {
    /// Reads the `value` of a record and checks all that holds for it alone. That axes are the
    /// topology's is checked where a topology is given.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`](crate::Code::BadMember) for another form,
    /// [`Code::BadPosition`](crate::Code::BadPosition) for a place that its sequence does not have;
    /// with the pointer from the top of `value`.
    pub fn parse(value: &Value, topology: Option<&Topology>) -> Result<Self> {
        parse::cursor(value, topology, true)
    }

    /// As [`parse`](Self::parse), of a cursor that is to be walked and not yet a record's: it may be
    /// computed and have no canary.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_start(value: &Value) -> Result<Self> {
        parse::cursor(value, None, false)
    }

    /// The `value` of a record; [`parse`](Self::parse) checks it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        encode::cursor(self)
    }

    /// Whether the specification defines the items that come next.
    #[must_use]
    pub fn is_computed(&self) -> bool {
        self.root.is_computed()
    }
}

impl Item {
    /// The item of a leaf.
    #[must_use]
    pub fn leaf(ordinal: u64) -> Self {
        Self(SmallVec::from_slice(&[ordinal]))
    }

    /// An item of these integers, outermost first.
    #[must_use]
    pub fn of(integers: &[u64]) -> Self {
        Self(SmallVec::from_slice(integers))
    }

    /// The same item as one of child `index` of a mixture.
    #[must_use]
    pub fn of_child(mut self, index: u64) -> Self {
        self.0.insert(0, index);
        self
    }

    /// Its integers, outermost first: the last is the record's ordinal.
    #[must_use]
    pub fn integers(&self) -> &[u64] {
        &self.0
    }
}
