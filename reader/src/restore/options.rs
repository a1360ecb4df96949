//! What a caller demands of a restore, and what it brings along.
//!
//! It knows names, grades and costs. It must not know records.

use std::collections::{BTreeMap, BTreeSet};

use waystation_format::value_tree::Tree;
use waystation_format::{Digest, Grade};
use waystation_state::Budget;

/// What a caller demands of a restore, and what it brings along.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// The worst grade that a stream may have; `exact` unless said otherwise.
    pub streams: Grade,
    /// The worst grade that a cursor may have; `exact` unless said otherwise.
    pub cursors: Grade,
    /// Streams and cursors, by name, that the caller does without: nothing is demanded of them, and
    /// a stream among them that requires its axes is not restored when one has changed.
    pub leave_out: BTreeSet<String>,
    /// What the caller brings for a cursor, by the cursor's name.
    pub offers: BTreeMap<String, Offer>,
    /// What the canary of one cursor may cost; one that costs more is graded `none`. As given,
    /// 2^32 steps and 8 GiB: an order that has to be drawn from its beginning takes a step, and up to
    /// 8 bytes, for each record before the position. Its [`Stop`](waystation_state::Stop) ends the
    /// whole restore.
    pub budget: Budget,
}

/// The data and the software that a caller is about to resume a cursor with.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// Sources: how many records, and the digest that their owner defines.
    pub sources: Vec<(u64, Digest)>,
    /// What an opaque cursor's state depends on.
    pub fingerprint: Option<Tree>,
}

impl Default for RestoreOptions {
    fn default() -> Self {
        Self {
            streams: Grade::Exact,
            cursors: Grade::Exact,
            leave_out: BTreeSet::new(),
            offers: BTreeMap::new(),
            budget: Budget::new(1 << 32, 8 << 30),
        }
    }
}

impl RestoreOptions {
    /// Brings data for the cursor `name`.
    #[must_use]
    pub fn with_source(mut self, name: &str, records: u64, sha256: Digest) -> Self {
        self.offers.entry(name.to_owned()).or_default().sources.push((records, sha256));
        self
    }

    /// Brings the fingerprint of the software for the cursor `name`.
    #[must_use]
    pub fn with_fingerprint(mut self, name: &str, fingerprint: Tree) -> Self {
        self.offers.entry(name.to_owned()).or_default().fingerprint = Some(fingerprint);
        self
    }
}
