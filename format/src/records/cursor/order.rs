//! Orders (18.4): which record comes when, as a cursor says it.
//!
//! It knows their parameters. What they come to is for `waystation-state`.

use crate::json::Map;
use crate::{Identity, OrderAlgorithm};

/// An order of n ordinals; n stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Record i comes i-th.
    Identity,
    /// The ordinals as they stand here or in a tensor.
    Explicit(Numbers),
    /// What `torch.randperm` gives on the CPU.
    TorchRandpermCpu {
        /// Any 64 bits.
        seed: u64,
        /// How the seed of an epoch follows.
        seed_rule: SeedRule,
    },
    /// Grain's `index_shuffle`.
    GrainIndexShuffle {
        /// Any 32 bits.
        seed: u32,
        /// How the seed of an epoch follows.
        seed_rule: SeedRule,
        /// Rounds of the cipher behind it.
        rounds: u64,
    },
    /// An order that the specification only names, or does not know.
    Other {
        /// What it calls itself.
        algorithm: String,
        /// All that stands beside `algorithm` and `n`, as it stands.
        members: Map,
    },
}

/// How the seed of epoch e follows from an order's seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedRule {
    /// It is the same in all epochs.
    Seed,
    /// It is their sum.
    SeedPlusEpoch,
}

/// Integers that stand in the record, or in a tensor when they are many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// At most `inline-ordinals` of them.
    List(Vec<u64>),
    /// A tensor of role `blob` and dtype `U64`.
    Tensor(Box<Identity>),
}

impl Order {
    /// Its algorithm's id.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        match self {
            Self::Identity => OrderAlgorithm::Identity.as_str(),
            Self::Explicit(_) => OrderAlgorithm::Explicit.as_str(),
            Self::TorchRandpermCpu { .. } => OrderAlgorithm::TorchRandpermCpu.as_str(),
            Self::GrainIndexShuffle { .. } => OrderAlgorithm::GrainIndexShuffle.as_str(),
            Self::Other { algorithm, .. } => algorithm,
        }
    }

    /// Whether the specification defines it.
    #[must_use]
    pub fn is_computed(&self) -> bool {
        !matches!(self, Self::Other { .. })
    }
}
