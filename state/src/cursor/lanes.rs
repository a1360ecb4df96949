//! Sharded lanes: the shards of a source in an order, read along a fixed number of lanes.
//!
//! It knows whose turn it is and where each lane goes after a shard. Which shard stands where is
//! the order's business.

use std::collections::BTreeSet;
use std::sync::Arc;

use waystation_format::records::cursor::{Item, LaneEnd, ShardedLanes};
use waystation_format::{Code, Error, Result, arith, rule};

use super::counted;
use crate::Budget;
use crate::order::{Epoch, Order};

/// How far the leaf is walked. At the end of an epoch it stays there until the next item.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    node: ShardedLanes,
    order: Order,
    /// Of each shard, its records and those of all before it.
    shards: Arc<[(u64, u64)]>,
    drawn: Epoch,
    /// Lanes that have a record.
    alive: BTreeSet<u64>,
    /// Whether an epoch has a record at all.
    any: bool,
    last: u64,
    weight: u64,
}

impl Lanes {
    /// Checks each lane against its shard; `path` is where the leaf stands.
    pub(super) fn new(
        node: ShardedLanes,
        order: Order,
        records: &[u64],
        weight: u64,
        path: &str,
        budget: &mut Budget,
    ) -> Result<Self> {
        budget.hold(arith::mul(node.n, 16, "bytes of shards")?)?;
        let mut before = 0;
        let mut shards = Vec::with_capacity(records.len());
        for records in records {
            budget.step(1)?;
            shards.push((*records, before));
            before = counted(arith::add(before, *records, "records of all shards")?)?;
        }
        let shards: Arc<[(u64, u64)]> = shards.into();
        let any = order.gives_any(|shard| records_of(&shards, shard) > 0);
        let drawn = order.epoch(node.epoch);
        let mut leaf =
            Self { node, order, shards, drawn, alive: BTreeSet::new(), any, last: 0, weight };
        for lane in 0..leaf.lanes() {
            let (place, record) = leaf.lane_at(lane);
            if place >= leaf.node.n {
                continue;
            }
            let shard = leaf.drawn.at(place, budget)?;
            let records = records_of(&leaf.shards, shard);
            if record >= records {
                let message = format!(
                    "expected a record below the {records} of shard {shard}, found {record}"
                );
                let error = Error::rule(Code::BadPosition, rule::CURSOR_LANE_RECORD, message);
                return Err(error.at_pointer(format!("{path}/lanes/{lane}/1")));
            }
            leaf.alive.insert(lane);
        }
        Ok(leaf)
    }

    pub(super) fn has_next(&self) -> bool {
        !self.alive.is_empty() || (self.any && self.node.epoch_end == LaneEnd::Wrap)
    }

    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<Option<Item>> {
        if !self.has_next() {
            return Ok(None);
        }
        if self.alive.is_empty() {
            self.begin_epoch(budget)?;
        }
        let lanes = self.lanes();
        // The first that has a record, cyclically.
        let on = self.alive.range(self.node.next_lane..).next();
        let Some(lane) = on.or_else(|| self.alive.first()).copied() else { return Ok(None) };
        let (place, record) = self.lane_at(lane);
        let shard = self.drawn.at(place, budget)?;
        let (records, before) = self.shard(shard);
        let after = record.saturating_add(1);
        if after < records {
            self.set_lane(lane, (place, after));
        } else {
            let to = self.occupied(place.saturating_add(lanes), budget)?;
            self.set_lane(lane, (to, 0));
            if to >= self.node.n {
                self.alive.remove(&lane);
            }
        }
        self.last = lane;
        self.node.next_lane = lane.saturating_add(1).checked_rem(lanes).unwrap_or(0);
        Ok(Some(Item::leaf(before.saturating_add(record))))
    }

    pub(super) fn to_node(&self) -> ShardedLanes {
        self.node.clone()
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    pub(super) fn held(&self) -> u64 {
        self.drawn.held()
    }

    pub(super) fn lanes(&self) -> u64 {
        u64::try_from(self.node.lanes.len()).unwrap_or(u64::MAX)
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    fn begin_epoch(&mut self, budget: &mut Budget) -> Result<()> {
        self.node.epoch = self.node.epoch.saturating_add(1);
        self.node.next_lane = 0;
        budget.release(self.drawn.held());
        self.drawn = self.order.epoch(self.node.epoch);
        for lane in 0..self.lanes() {
            let place = self.occupied(lane, budget)?;
            self.set_lane(lane, (place, 0));
            if place < self.node.n {
                self.alive.insert(lane);
            }
        }
        Ok(())
    }

    /// The first place from `place` on, a round of lanes apart, whose shard is not empty; else the
    /// first behind the last shard.
    fn occupied(&mut self, mut place: u64, budget: &mut Budget) -> Result<u64> {
        while place < self.node.n {
            let shard = self.drawn.at(place, budget)?;
            if records_of(&self.shards, shard) > 0 {
                break;
            }
            place = place.saturating_add(self.lanes());
        }
        Ok(place)
    }

    fn lane_at(&self, lane: u64) -> (u64, u64) {
        let found = usize::try_from(lane).ok().and_then(|lane| self.node.lanes.get(lane));
        found.copied().unwrap_or((u64::MAX, 0))
    }

    fn set_lane(&mut self, lane: u64, to: (u64, u64)) {
        let found = usize::try_from(lane).ok().and_then(|lane| self.node.lanes.get_mut(lane));
        if let Some(slot) = found {
            *slot = to;
        }
    }

    fn shard(&self, shard: u64) -> (u64, u64) {
        shard_of(&self.shards, shard)
    }
}

fn records_of(shards: &[(u64, u64)], shard: u64) -> u64 {
    shard_of(shards, shard).0
}

/// A shard that does not exist is empty.
fn shard_of(shards: &[(u64, u64)], shard: u64) -> (u64, u64) {
    let found = usize::try_from(shard).ok().and_then(|shard| shards.get(shard));
    found.copied().unwrap_or((0, 0))
}
