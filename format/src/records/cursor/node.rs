//! The nodes of a cursor (18.1, 18.2): leaves over a source, and nodes over other nodes.
//!
//! It knows what each node says of itself. What comes next follows from all of them together, and
//! is for `waystation-state`.

use super::{Item, Numbers, Order};
use crate::Digest;
use crate::json::Map;
use crate::value_tree::Tree;

/// A sequence of items, and how far it is consumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// The records of a source in an order.
    PermutedIndex(PermutedIndex),
    /// The shards of a source in an order, read along a fixed number of lanes.
    ShardedLanes(ShardedLanes),
    /// Items of several nodes, one chosen after the other.
    Mixture(Mixture),
    /// Items of a node, permuted window by window.
    WindowShuffle(WindowShuffle),
    /// Items of a node through a buffer that had to be stored.
    StoredShuffle(StoredShuffle),
    /// Sequences of tokens of a node's records.
    Pack(Pack),
    /// What the loader of one framework saves of itself.
    Opaque(Opaque),
}

/// Data that a leaf counts records of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is called, where the writer says so.
    pub name: Option<String>,
    /// How many records it has.
    pub records: u64,
    /// Over what makes it this source; its owner says of what.
    pub sha256: Digest,
}

/// What an epoch of a permuted index ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochEnd {
    /// Items beyond the last whole `unit` are left out.
    DropLast {
        /// At least 1.
        unit: u64,
    },
    /// The order begins again until a `unit` is whole.
    Pad {
        /// At least 1.
        unit: u64,
    },
    /// The next epoch follows.
    Wrap,
    /// Nothing follows.
    Stop,
}

/// What comes after the last item of an epoch of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneEnd {
    /// The next epoch.
    Wrap,
    /// Nothing.
    Stop,
}

/// The records of a source in an order, epoch after epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermutedIndex {
    /// The epoch, from 0.
    pub epoch: u64,
    /// What it ends with.
    pub epoch_end: EpochEnd,
    /// Elements of the order.
    pub n: u64,
    /// Which record comes when.
    pub order: Order,
    /// Items consumed of this epoch.
    pub position: u64,
    /// Whose records they are.
    pub source: Source,
}

/// The shards of a source, read along lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardedLanes {
    /// The epoch, from 0.
    pub epoch: u64,
    /// What comes after its last item.
    pub epoch_end: LaneEnd,
    /// A lane each: the place in the order of the shard that it reads, and its next record there.
    pub lanes: Vec<(u64, u64)>,
    /// The lane whose turn it is.
    pub next_lane: u64,
    /// S: elements of the order, and shards of the source.
    pub n: u64,
    /// Which shard stands at which place.
    pub order: Order,
    /// Whose records they are.
    pub source: Source,
    /// Records of each shard.
    pub shards: Numbers,
}

/// Items of several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// 1 to 1024.
    pub children: Vec<Node>,
    /// Whose turn it is.
    pub selection: Selection,
}

/// The most children of a mixture.
pub(super) const MIXTURE_CHILDREN: u64 = 1024;

/// How a mixture chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The child that is furthest behind its share.
    Deficit(Deficit),
    /// A way that the specification does not define.
    Other {
        /// What it calls itself.
        algorithm: String,
        /// All that stands beside it, as it stands.
        members: Map,
    },
}

/// Choosing the child that is furthest behind its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deficit {
    /// When the mixture ends.
    pub end: EndsWhen,
    /// Items taken, a child each.
    pub taken: Vec<u64>,
    /// Shares, a child each, from 1 to 2^32 − 1.
    pub weights: Vec<u64>,
}

/// When a mixture ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndsWhen {
    /// With the first child that has no next item.
    First,
    /// With the last.
    All,
}

/// Items of a node, permuted window by window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowShuffle {
    /// The child as it stood at the beginning of the current window.
    pub anchor: Box<Node>,
    /// The number of the current window, from 0.
    pub index: u64,
    /// In which order the items of a window are given; the window's number is its epoch.
    pub order: Order,
    /// Items of the current window that are given already.
    pub replay: u64,
    /// Whether they are given from the end of the order to its beginning.
    pub reverse: bool,
    /// Items of a window.
    pub window: u64,
}

/// Items of a node through a buffer that cannot be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredShuffle {
    /// Items read and not given.
    pub buffer: Vec<Item>,
    /// The child as it stands after what was read.
    pub child: Box<Node>,
    /// How the buffer is drawn from.
    pub order: Order,
}

/// Sequences of tokens of whole records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// The child as it stands after what was read.
    pub child: Box<Node>,
    /// How records become sequences, and what of them is left.
    pub leftover: Leftover,
    /// Tokens of a sequence.
    pub length: u64,
    /// What becomes of the last, shorter sequence.
    pub tail: Tail,
    /// Digest of what defines the tokens.
    pub tokenizer: Option<Digest>,
}

/// How a pack makes sequences, with what is read and not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Algorithm `concat-then-split`: the rest of the last record read.
    ConcatThenSplit(Option<Piece>),
    /// A way that the specification does not define.
    Other {
        /// What it calls itself.
        algorithm: String,
        /// Whatever it holds.
        pieces: Vec<Piece>,
    },
}

/// Tokens of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which record, as the child gives it.
    pub item: Item,
    /// Tokens of it before the piece.
    pub offset: u64,
    /// Tokens of the piece, at least 1.
    pub count: u64,
}

/// What becomes of the tokens that do not fill a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// They are left out.
    Drop,
    /// They are a shorter sequence.
    Keep,
}

/// What the loader of one framework saves of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// Everything the state depends on: a map with string keys.
    pub fingerprint: Tree,
    /// What the state is.
    pub media_type: String,
    /// The state.
    pub state: Tree,
}

impl EpochEnd {
    /// E: the items of an epoch over an order of n elements. None where they cannot be counted.
    #[must_use]
    pub fn items(self, n: u64) -> Option<u64> {
        match self {
            Self::DropLast { unit } => n.checked_sub(n.checked_rem(unit)?),
            Self::Pad { unit } => n.checked_next_multiple_of(unit),
            Self::Wrap | Self::Stop => Some(n),
        }
    }
}

impl Leftover {
    /// The algorithm's name.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        match self {
            Self::ConcatThenSplit(_) => "concat-then-split",
            Self::Other { algorithm, .. } => algorithm,
        }
    }
}

impl Node {
    /// What `kind` says.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::PermutedIndex(_) => "permuted-index",
            Self::ShardedLanes(_) => "sharded-lanes",
            Self::Mixture(_) => "mixture",
            Self::WindowShuffle(_) | Self::StoredShuffle(_) => "window-shuffle",
            Self::Pack(_) => "pack",
            Self::Opaque(_) => "opaque",
        }
    }

    /// The nodes right beneath it.
    #[must_use]
    pub fn children(&self) -> &[Node] {
        match self {
            Self::PermutedIndex(_) | Self::ShardedLanes(_) | Self::Opaque(_) => &[],
            Self::Mixture(mixture) => &mixture.children,
            Self::WindowShuffle(shuffle) => std::slice::from_ref(&*shuffle.anchor),
            Self::StoredShuffle(shuffle) => std::slice::from_ref(&*shuffle.child),
            Self::Pack(pack) => std::slice::from_ref(&*pack.child),
        }
    }

    /// Whether the specification defines its items.
    #[must_use]
    pub fn is_computed(&self) -> bool {
        let itself = match self {
            Self::PermutedIndex(leaf) => leaf.order.is_computed(),
            Self::ShardedLanes(leaf) => leaf.order.is_computed(),
            Self::Mixture(mixture) => matches!(mixture.selection, Selection::Deficit(_)),
            Self::WindowShuffle(shuffle) => shuffle.order.is_computed(),
            Self::StoredShuffle(_) | Self::Pack(_) | Self::Opaque(_) => false,
        };
        itself && self.children().iter().all(Self::is_computed)
    }

    /// Whether it or a node beneath it is opaque.
    #[must_use]
    pub fn has_opaque(&self) -> bool {
        matches!(self, Self::Opaque(_)) || self.children().iter().any(Self::has_opaque)
    }

    /// The sources of all leaves, from the first to the last.
    #[must_use]
    pub fn sources(&self) -> Vec<&Source> {
        match self {
            Self::PermutedIndex(leaf) => vec![&leaf.source],
            Self::ShardedLanes(leaf) => vec![&leaf.source],
            _ => self.children().iter().flat_map(Self::sources).collect(),
        }
    }
}
