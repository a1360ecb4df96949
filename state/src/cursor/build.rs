//! From a cursor as a record says it to one that is walked.
//!
//! It knows what must be fetched for a node and what can be checked only then.

use std::sync::Arc;

use waystation_format::records::cursor::{
    Mixture, Node, Numbers, Order as Form, PermutedIndex, Selection, ShardedLanes, WindowShuffle,
};
use waystation_format::{Code, Error, Identity, Result, arith, limits, rule};

use super::lanes::Lanes;
use super::live::Live;
use super::mixture::Mixed;
use super::permuted::Permuted;
use super::shuffle::Shuffled;
use super::{Tensors, not_computed};
use crate::Budget;
use crate::order::Order;

/// Numbers of a tensor that are read in a step.
const READ: u64 = 8;

/// A node, walked. Errors name the place within it.
pub(super) fn live(node: &Node, tensors: &dyn Tensors, budget: &mut Budget) -> Result<Live> {
    Builder { tensors, budget, depth: 0, path: String::new() }.node(node)
}

/// Checks the leaves of a node that is not computed against the tensors that they name, as far as
/// what they say is computed. Errors name the place within it.
pub(super) fn check_leaves(node: &Node, tensors: &dyn Tensors, budget: &mut Budget) -> Result<()> {
    Builder { tensors, budget, depth: 0, path: String::new() }.leaves(node)
}

struct Builder<'a> {
    tensors: &'a dyn Tensors,
    budget: &'a mut Budget,
    depth: u64,
    /// Of the node that is built.
    path: String,
}

impl Builder<'_> {
    /// Recursion ends at `cursor-depth`, also for a tree that was not read from a record.
    fn node(&mut self, node: &Node) -> Result<Live> {
        self.enter()?;
        match node {
            Node::PermutedIndex(leaf) => self.permuted(leaf),
            Node::ShardedLanes(leaf) => self.lanes(leaf),
            Node::Mixture(mixture) => self.mixture(mixture),
            Node::WindowShuffle(shuffle) => self.shuffle(shuffle),
            Node::StoredShuffle(_) | Node::Pack(_) | Node::Opaque(_) => {
                Err(not_computed(node).at_pointer(self.path.clone()))
            }
        }
    }

    fn enter(&mut self) -> Result<()> {
        self.budget.take(1)?;
        if self.depth < limits::CURSOR_DEPTH {
            return Ok(());
        }
        let message =
            format!("expected at most {} nodes in one another, found more", limits::CURSOR_DEPTH);
        Err(Error::rule(Code::Limit, rule::CURSOR_FORM, message))
    }

    fn leaves(&mut self, node: &Node) -> Result<()> {
        self.enter()?;
        match node {
            Node::PermutedIndex(leaf) if leaf.order.is_computed() => self.permuted(leaf).map(drop),
            Node::ShardedLanes(leaf) if leaf.order.is_computed() => self.lanes(leaf).map(drop),
            // Which shard a lane is in nobody can say.
            Node::ShardedLanes(leaf) => self.shards(leaf).map(drop),
            Node::PermutedIndex(_) | Node::Opaque(_) => Ok(()),
            Node::Mixture(mixture) => {
                mixture.children.iter().enumerate().try_for_each(|(index, child)| {
                    self.at(&format!("/children/{index}"), |s| s.leaves(child))
                })
            }
            Node::WindowShuffle(shuffle) => self.at("/anchor", |s| s.leaves(&shuffle.anchor)),
            Node::StoredShuffle(shuffle) => self.at("/child", |s| s.leaves(&shuffle.child)),
            Node::Pack(pack) => self.at("/child", |s| s.leaves(&pack.child)),
        }
    }

    fn at<T>(&mut self, step: &str, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let length = self.path.len();
        self.path.push_str(step);
        self.depth = self.depth.saturating_add(1);
        let built = act(self);
        self.depth = self.depth.saturating_sub(1);
        self.path.truncate(length);
        built
    }

    fn permuted(&mut self, leaf: &PermutedIndex) -> Result<Live> {
        let order = self.order(&leaf.order, leaf.n, leaf.source.records)?;
        let weight = weight_of(&leaf.order);
        let walked = Permuted::new(leaf.clone(), order, weight)
            .map_err(|error| error.at_pointer(format!("{}/position", self.path)))?;
        Ok(Live::Permuted(walked))
    }

    fn lanes(&mut self, leaf: &ShardedLanes) -> Result<Live> {
        let order = self.order(&leaf.order, leaf.n, leaf.n)?;
        let shards = self.shards(leaf)?;
        check_lanes(leaf).map_err(|error| error.at_pointer(format!("{}/lanes", self.path)))?;
        let lanes = u64::try_from(leaf.lanes.len()).unwrap_or(u64::MAX);
        let listed = match &leaf.shards {
            Numbers::List(list) => u64::try_from(list.len()).unwrap_or(u64::MAX),
            Numbers::Tensor(_) => 0,
        };
        let weight = weight_of(&leaf.order).saturating_add(lanes).saturating_add(listed);
        Lanes::new(leaf.clone(), order, &shards, weight, &self.path, self.budget).map(Live::Lanes)
    }

    /// The records of each shard.
    fn shards(&mut self, leaf: &ShardedLanes) -> Result<Arc<[u64]>> {
        let place = format!("{}/source/shards", self.path);
        let shards: Arc<[u64]> = match &leaf.shards {
            Numbers::List(list) => Arc::from(list.as_slice()),
            Numbers::Tensor(identity) => {
                self.fetch(identity, leaf.n).map_err(|error| error.at_pointer(&*place))?
            }
        };
        let sum = shards.iter().fold(0_u64, |sum, records| sum.saturating_add(*records));
        let length = u64::try_from(shards.len()).unwrap_or(u64::MAX);
        if sum != leaf.source.records || length != leaf.n {
            let message = format!(
                "expected the {} records of the source in {} shards, found {sum} in {length}",
                leaf.source.records, leaf.n
            );
            let error = Error::rule(Code::BadPosition, rule::CURSOR_LANE_RECORD, message);
            return Err(error.at_pointer(place));
        }
        Ok(shards)
    }

    fn mixture(&mut self, mixture: &Mixture) -> Result<Live> {
        let Selection::Deficit(deficit) = &mixture.selection else {
            return Err(crate::order::not_computed("selection")
                .at_pointer(format!("{}/selection", self.path)));
        };
        let children = mixture.children.len();
        for list in [&deficit.taken, &deficit.weights] {
            if list.len() != children {
                let message =
                    format!("expected a number for each of {children}, found {}", list.len());
                let error = Error::rule(Code::BadMember, rule::CURSOR_FORM, message);
                return Err(error.at_pointer(format!("{}/selection", self.path)));
            }
        }
        let mut children = Vec::new();
        for (index, child) in mixture.children.iter().enumerate() {
            children.push(self.at(&format!("/children/{index}"), |s| s.node(child))?);
        }
        Ok(Live::Mixed(Box::new(Mixed::new(children, deficit.clone()))))
    }

    fn shuffle(&mut self, shuffle: &WindowShuffle) -> Result<Live> {
        // Refused now rather than at the first window.
        Order::of(&shuffle.order, shuffle.window.min(1 << 32), None)
            .map_err(|error| error.at_pointer(format!("{}/order", self.path)))?;
        let child = self.at("/anchor", |s| s.node(&shuffle.anchor))?;
        Ok(Live::Shuffled(Box::new(Shuffled::new(shuffle, child, self.path.clone()))))
    }

    /// An order of ordinals below `limit`.
    fn order(&mut self, order: &Form, n: u64, limit: u64) -> Result<Order> {
        let place = format!("{}/order", self.path);
        let ordinals: Option<Arc<[u64]>> = match order {
            Form::Explicit(Numbers::List(list)) => Some(Arc::from(list.as_slice())),
            Form::Explicit(Numbers::Tensor(identity)) => {
                let fetched = self.fetch(identity, n);
                Some(fetched.map_err(|error| error.at_pointer(format!("{place}/ordinals")))?)
            }
            _ => None,
        };
        if let Some(index) =
            ordinals.as_deref().and_then(|all| all.iter().position(|ordinal| *ordinal >= limit))
        {
            let message = format!("expected ordinals below {limit}, found element {index} beyond");
            let error = Error::rule(Code::BadPosition, rule::ORDER_DOMAIN, message);
            return Err(error.at_pointer(format!("{place}/ordinals")));
        }
        Order::of(order, n, ordinals).map_err(|error| error.at_pointer(place))
    }

    /// The numbers of a tensor, which is looked for before room is made for them.
    fn fetch(&mut self, tensor: &Identity, count: u64) -> Result<Arc<[u64]>> {
        self.tensors.expect(tensor, count)?;
        self.budget.hold(arith::mul(count, 8, "bytes of a tensor of numbers")?)?;
        self.budget.take(count.div_ceil(READ))?;
        self.tensors.numbers(tensor, count)
    }
}

/// Lanes of a tree that was not read from a record could be none.
fn check_lanes(leaf: &ShardedLanes) -> Result<()> {
    let lanes = u64::try_from(leaf.lanes.len()).unwrap_or(u64::MAX);
    if leaf.next_lane < lanes {
        return Ok(());
    }
    let message = format!("expected one of {lanes} lanes, found {}", leaf.next_lane);
    Err(Error::rule(Code::BadPosition, rule::CURSOR_LANES, message))
}

/// Integers that an order lists, and one.
fn weight_of(order: &Form) -> u64 {
    match order {
        Form::Explicit(Numbers::List(list)) => {
            u64::try_from(list.len()).unwrap_or(u64::MAX).saturating_add(1)
        }
        _ => 1,
    }
}
