//! Orders (18.4): which record of a source comes when, epoch by epoch.
//!
//! It knows the orders that the specification defines. Epochs that end early, are padded or go
//! round are the business of cursors.

mod index_shuffle;
mod randperm;

use std::ops::Range;
use std::sync::Arc;

use waystation_format::records::cursor as form;
use waystation_format::records::cursor::SeedRule;
use waystation_format::{Code, Error, Result, rule};

use crate::Budget;

use index_shuffle::IndexShuffle;
use randperm::Randperm;

/// An order of n ordinals for each epoch.
#[derive(Clone, Debug)]
pub struct Order {
    n: u64,
    algorithm: Algorithm,
}

#[derive(Clone, Debug)]
enum Algorithm {
    Identity,
    Explicit(Arc<[u64]>),
    Randperm { seed: u64, rule: SeedRule },
    IndexShuffle { seed: u32, rule: SeedRule, rounds: u16 },
}

/// The ordinals of one epoch. Those that are drawn one after another are drawn as far as they
/// are asked for, and kept.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    n: u64,
    ordinals: Ordinals,
}

#[derive(Clone, Debug)]
enum Ordinals {
    Identity,
    Explicit(Arc<[u64]>),
    Randperm(Randperm),
    IndexShuffle(IndexShuffle),
}

impl Order {
    /// Record i comes i-th.
    #[must_use]
    pub fn identity(n: u64) -> Self {
        Self { n, algorithm: Algorithm::Identity }
    }

    /// These ordinals.
    #[must_use]
    pub fn explicit(ordinals: Arc<[u64]>) -> Self {
        Self { n: length(&ordinals), algorithm: Algorithm::Explicit(ordinals) }
    }

    /// What `torch.randperm(n)` gives on the CPU.
    #[must_use]
    pub fn randperm(n: u64, seed: u64, rule: SeedRule) -> Self {
        Self { n, algorithm: Algorithm::Randperm { seed, rule } }
    }

    /// What Grain's `index_shuffle` gives for each of n.
    ///
    /// # Errors
    ///
    /// [`Code::BadPosition`] under `order.domain` for an n above 2^32; [`Code::BadMember`] under
    /// `order.form` for a number of `rounds` that is odd, below 4 or above 1024.
    pub fn index_shuffle(n: u64, seed: u32, rule: SeedRule, rounds: u64) -> Result<Self> {
        let rounds = match u16::try_from(rounds) {
            Ok(rounds @ 4..=1024) if rounds.is_multiple_of(2) => rounds,
            _ => {
                let message = "expected an even number of rounds from 4 to 1024";
                let message = format!("{message}, found {rounds}");
                return Err(Error::rule(Code::BadMember, rule::ORDER_FORM, message));
            }
        };
        if n > 1 << 32 {
            let message = format!("expected n of at most 2^32 for an index shuffle, found {n}");
            return Err(Error::rule(Code::BadPosition, rule::ORDER_DOMAIN, message));
        }
        Ok(Self { n, algorithm: Algorithm::IndexShuffle { seed, rule, rounds } })
    }

    /// The order that a record says, of n elements; `ordinals` are those of an explicit one.
    ///
    /// # Errors
    ///
    /// [`Code::NotExact`] for an order that the specification does not define;
    /// [`Code::BadPosition`] for explicit ordinals that are not n; and as
    /// [`index_shuffle`](Self::index_shuffle).
    pub fn of(order: &form::Order, n: u64, ordinals: Option<Arc<[u64]>>) -> Result<Self> {
        match order {
            form::Order::Identity => Ok(Self::identity(n)),
            form::Order::Explicit(numbers) => {
                let ordinals = match (ordinals, numbers) {
                    (Some(ordinals), _) => ordinals,
                    (None, form::Numbers::List(list)) => Arc::from(list.as_slice()),
                    (None, form::Numbers::Tensor(_)) => Arc::from([]),
                };
                if length(&ordinals) != n {
                    let message = format!("expected n = {n} ordinals, found {}", ordinals.len());
                    return Err(Error::rule(Code::BadPosition, rule::ORDER_DOMAIN, message));
                }
                Ok(Self::explicit(ordinals))
            }
            form::Order::TorchRandpermCpu { seed, seed_rule } => {
                Ok(Self::randperm(n, *seed, *seed_rule))
            }
            form::Order::GrainIndexShuffle { seed, seed_rule, rounds } => {
                Self::index_shuffle(n, *seed, *seed_rule, *rounds)
            }
            form::Order::Other { algorithm, .. } => Err(not_computed(algorithm)),
        }
    }

    /// Its elements.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The ordinals at the places of `range`, as far as there are such places, one at a time.
    /// Each is an error once `budget` is spent: a place costs a step beside those of the order.
    pub fn ordinals(
        &self,
        epoch: u64,
        range: Range<u64>,
        mut budget: Budget,
    ) -> impl Iterator<Item = Result<u64>> {
        let mut drawn = self.epoch(epoch);
        (range.start..range.end.min(self.n)).map(move |place| drawn.at(place, &mut budget))
    }

    /// Its ordinals in one epoch.
    pub(crate) fn epoch(&self, epoch: u64) -> Epoch {
        let n = self.n;
        let ordinals = match &self.algorithm {
            Algorithm::Identity => Ordinals::Identity,
            Algorithm::Explicit(ordinals) => Ordinals::Explicit(Arc::clone(ordinals)),
            Algorithm::Randperm { seed, rule } => {
                let seed = match rule {
                    SeedRule::Seed => *seed,
                    SeedRule::SeedPlusEpoch => seed.wrapping_add(epoch),
                };
                Ordinals::Randperm(Randperm::new(n, seed))
            }
            Algorithm::IndexShuffle { seed, rule, rounds } => {
                let seed = match rule {
                    SeedRule::Seed => *seed,
                    SeedRule::SeedPlusEpoch => seed.wrapping_add(low(epoch)),
                };
                Ordinals::IndexShuffle(IndexShuffle::new(n, seed, *rounds))
            }
        };
        Epoch { n, ordinals }
    }

    /// Whether some ordinal below n for which `wanted` holds comes in every epoch. Each algorithm
    /// gives the same ordinals in all epochs, if in another order.
    pub(crate) fn gives_any(&self, wanted: impl Fn(u64) -> bool) -> bool {
        match &self.algorithm {
            Algorithm::Explicit(ordinals) => ordinals.iter().any(|ordinal| wanted(*ordinal)),
            Algorithm::IndexShuffle { .. } if index_shuffle::leaves_out_the_last(self.n) => {
                (0..self.n.saturating_sub(1)).any(wanted)
            }
            _ => (0..self.n).any(wanted),
        }
    }
}

impl Epoch {
    /// The ordinal at a place below n.
    pub(crate) fn at(&mut self, place: u64, budget: &mut Budget) -> Result<u64> {
        budget.take(1)?;
        let found = match &mut self.ordinals {
            _ if place >= self.n => None,
            Ordinals::Identity => Some(place),
            Ordinals::Explicit(ordinals) => {
                usize::try_from(place).ok().and_then(|place| ordinals.get(place).copied())
            }
            Ordinals::Randperm(drawn) => return drawn.at(place, budget),
            Ordinals::IndexShuffle(cipher) => return cipher.at(place, budget),
        };
        found.ok_or_else(|| {
            let message = format!("expected a place below {}, found {place}", self.n);
            Error::rule(Code::BadPosition, rule::ORDER_DOMAIN, message)
        })
    }

    /// Bytes that it holds.
    pub(crate) fn held(&self) -> u64 {
        match &self.ordinals {
            Ordinals::Randperm(drawn) => drawn.held(),
            _ => 0,
        }
    }
}

#[cold]
pub(crate) fn not_computed(what: &str) -> Error {
    let message = format!("expected what the specification computes, found {what:?}");
    Error::new(Code::NotExact, message)
}

fn length(list: &[u64]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
fn low(epoch: u64) -> u32 {
    epoch as u32
}
