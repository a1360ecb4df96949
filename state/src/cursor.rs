//! Data cursors (chapter 18): which items come next, what a cursor says after some of them, and
//! which of them a rank takes.
//!
//! It knows sequences of ordinals. Reading the records that they number, and the tensors that a
//! cursor names, is the caller's business.

mod build;
mod lanes;
mod live;
mod mixture;
mod pack;
mod permuted;
mod share;
mod shuffle;

use std::sync::Arc;

use waystation_format::records::cursor::{
    Augment, Canary, Cursor, Item, Mixture, Node, Partition, Selection,
};
use waystation_format::{Code, Digest, Error, Identity, Result, arith, limits, rule};

use crate::{Budget, Stop};
use live::Live;

pub use pack::Packed;
pub use share::{Batch, Rank};

/// The tensors that a cursor may name.
pub trait Tensors {
    /// Whether there is such a tensor, of dtype `U64` and shape `[count]`, without its elements:
    /// what this refuses costs nothing.
    ///
    /// # Errors
    ///
    /// [`Code::Dangling`] under `order.tensor` when there is none.
    fn expect(&self, tensor: &Identity, count: u64) -> Result<()>;

    /// The elements of a tensor of dtype `U64` and shape `[count]`.
    ///
    /// # Errors
    ///
    /// [`Code::Dangling`] under `order.tensor` when there is no such tensor, and whatever reading
    /// it may answer.
    fn numbers(&self, tensor: &Identity, count: u64) -> Result<Arc<[u64]>>;
}

/// No tensors: cursors that name one are refused.
#[derive(Clone, Copy, Debug)]
pub struct NoTensors;

impl Tensors for NoTensors {
    fn expect(&self, tensor: &Identity, _: u64) -> Result<()> {
        let message = "expected the tensor that the cursor names, found none";
        let error = Error::rule(Code::Dangling, rule::ORDER_TENSOR, message);
        Err(error.in_tensor(tensor.key()))
    }

    fn numbers(&self, tensor: &Identity, count: u64) -> Result<Arc<[u64]>> {
        self.expect(tensor, count).map(|()| Arc::from([]))
    }
}

/// The items of a computed cursor, from the one that comes next.
///
/// An iterator: each item is consumed as it is given. What was read ahead beyond a completed
/// optimizer step does not count, so a loader that reads ahead makes its cursors with [`after`],
/// or with a second walk that follows the first.
#[derive(Clone, Debug)]
pub struct Walk {
    live: Live,
    budget: Budget,
    consumed: u64,
    augment: Option<Augment>,
    partition: Option<Partition>,
}

impl Walk {
    /// At the next item of `cursor`. What is spent on it, and on each item, comes from `budget`.
    ///
    /// # Errors
    ///
    /// [`Code::NotExact`] for a cursor that the specification does not compute,
    /// [`Code::BadPosition`] for a place that its sequence does not have, [`Code::Limit`] when the
    /// budget is spent, and what `tensors` answer; with the pointer from the top of the cursor's
    /// value.
    pub fn new(cursor: &Cursor, tensors: &dyn Tensors, mut budget: Budget) -> Result<Self> {
        let live = build::live(&cursor.root, tensors, &mut budget)?;
        Ok(Self::of(cursor, live, budget))
    }

    fn of(cursor: &Cursor, live: Live, budget: Budget) -> Self {
        Self {
            live,
            budget,
            consumed: cursor.consumed.unwrap_or(0),
            augment: cursor.augment,
            partition: cursor.partition.clone(),
        }
    }

    /// Steps over `count` items and says over how many: fewer only when the cursor ends.
    ///
    /// # Errors
    ///
    /// As for [`next`](Iterator::next).
    pub fn skip_items(&mut self, count: u64) -> Result<u64> {
        let skipped = self.live.skip(count, &mut self.budget)?;
        self.consumed = arith::add(self.consumed, skipped, "items consumed")?;
        Ok(skipped)
    }

    /// Whether there is a next item.
    ///
    /// # Errors
    ///
    /// As for [`next`](Iterator::next).
    pub fn has_next(&mut self) -> Result<bool> {
        self.live.has_next(&mut self.budget)
    }

    /// The canary of the next `count` items, or of all that there are.
    ///
    /// # Errors
    ///
    /// As for [`next`](Iterator::next); [`Code::BadArgument`] for more than `canary-items`.
    pub fn canary(&self, count: u64) -> Result<Canary> {
        check_count(count)?;
        self.ahead()?.take_canary(count)
    }

    /// The same of items that are consumed.
    fn take_canary(&mut self, count: u64) -> Result<Canary> {
        let mut taken = Taken::default();
        while taken.count < count
            && let Some(item) = self.next().transpose()?
        {
            taken.push(item);
        }
        Ok(taken.finish())
    }

    /// The cursor as it stands, with a canary of `count` items. It is what was read where nothing
    /// was consumed since.
    ///
    /// # Errors
    ///
    /// As [`canary`](Self::canary); [`Code::BadArgument`] for a `count` of 0 unless the cursor has
    /// ended, since nobody could resume from that; [`Code::Limit`] when a count passes what metadata
    /// may hold.
    pub fn cursor(&self, count: u64) -> Result<Cursor> {
        let root = self.live.to_node();
        writable(&root)?;
        let next = self.canary(count.max(1))?;
        if next.count > count {
            let message = "expected a canary of at least 1 item, for there are more, found 0";
            return Err(Error::new(Code::BadArgument, message));
        }
        Ok(Cursor {
            augment: self.augment,
            consumed: Some(counted(self.consumed)?),
            next: Some(next),
            partition: self.partition.clone(),
            root,
        })
    }

    /// The next global batch, of `size` items: fewer only when the cursor ends.
    ///
    /// # Errors
    ///
    /// As for [`next`](Iterator::next).
    pub fn batch(&mut self, size: u64) -> Result<Batch> {
        let mut batch = Batch::new(size, self.live.lanes());
        while !batch.is_full()
            && let Some(item) = self.next().transpose()?
        {
            batch.push(item, self.live.lane());
        }
        Ok(batch)
    }

    /// Goes on until `stop` is requested, in place of whatever would have stopped it before. A walk
    /// that was interrupted stands nowhere: it is not to be gone on with.
    pub fn stop_by(&mut self, stop: Stop) {
        self.budget = self.budget.clone().until(stop);
    }

    /// What is left to be spent.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Another walk from here, which holds as much again.
    fn ahead(&self) -> Result<Self> {
        let mut ahead = self.clone();
        ahead.budget.hold(self.live.held())?;
        Ok(ahead)
    }
}

impl Iterator for Walk {
    type Item = Result<Item>;

    /// The next item: [`Code::Limit`] when the budget is spent, or a count passes what metadata
    /// may hold; [`Code::BadPosition`] where a window is shorter than what was given of it.
    fn next(&mut self) -> Option<Result<Item>> {
        let item = self.live.next(&mut self.budget).transpose()?;
        Some(item.and_then(|item| {
            self.consumed = arith::add(self.consumed, 1, "items consumed")?;
            Ok(item)
        }))
    }
}

/// The cursor after `consumed` more items, with a canary of `count`.
///
/// # Errors
///
/// As [`Walk::new`] and [`Walk::canary`]; [`Code::BadArgument`] when the cursor ends before.
pub fn after(
    cursor: &Cursor,
    consumed: u64,
    count: u64,
    tensors: &dyn Tensors,
    budget: Budget,
) -> Result<Cursor> {
    let mut walk = Walk::new(cursor, tensors, budget)?;
    let skipped = walk.skip_items(consumed)?;
    if skipped < consumed {
        let message = format!("expected at most the {skipped} items that come, found {consumed}");
        return Err(Error::new(Code::BadArgument, message));
    }
    walk.cursor(count)
}

/// Compares the canary of a computed cursor with the items that come. Of any other cursor nothing
/// is compared; the answer says whether it was.
///
/// # Errors
///
/// [`Code::CanaryMismatch`] under `cursor.canary`; [`Code::Limit`] under `cursor.canary-steps` when
/// the budget is spent before; and as [`Walk::new`].
pub fn check_canary(cursor: &Cursor, tensors: &dyn Tensors, mut budget: Budget) -> Result<bool> {
    check_canary_within(cursor, tensors, &mut budget)
}

/// As [`check_canary`], with a budget of which as many steps are left as were not taken, also after
/// an error; who checks many cursors bounds them together.
///
/// # Errors
///
/// As [`check_canary`].
pub fn check_canary_within(
    cursor: &Cursor,
    tensors: &dyn Tensors,
    budget: &mut Budget,
) -> Result<bool> {
    if !cursor.is_computed() {
        build::check_leaves(&cursor.root, tensors, budget)?;
        return Ok(false);
    }
    let Some(next) = &cursor.next else {
        let message = "expected the canary of a computed cursor, found no \"next\"";
        return Err(Error::rule(Code::BadMember, rule::CURSOR_CANARY_THERE, message));
    };
    let live = build::live(&cursor.root, tensors, budget)?;
    let mut walk = Walk::of(cursor, live, budget.clone());
    let compared = compare_walk(next, &mut walk);
    *budget = walk.budget;
    compared.map(|()| true)
}

fn compare_walk(next: &Canary, walk: &mut Walk) -> Result<()> {
    if next.count == 0 {
        return match walk.has_next()? {
            false => compare(next, &Taken::default().finish()),
            true => Err(mismatch("no item to come", "some", "/count")),
        };
    }
    check_count(next.count)?;
    compare(next, &walk.take_canary(next.count)?)
}

/// Compares a canary with what comes, which has no more items than it.
fn compare(next: &Canary, found: &Canary) -> Result<()> {
    for (index, (said, comes)) in next.first.iter().zip(&found.first).enumerate() {
        if said != comes {
            let said = format!("item {index} to be {:?}", said.integers());
            let comes = format!("{:?}", comes.integers());
            return Err(mismatch(&said, &comes, &format!("/first/{index}")));
        }
    }
    if next.count != found.count {
        let said = format!("{} items to come", next.count);
        return Err(mismatch(&said, &found.count.to_string(), "/count"));
    }
    if next.sha256 != found.sha256 {
        let said = format!("items of sha256 {}", next.sha256);
        return Err(mismatch(&said, &found.sha256.to_string(), "/sha256"));
    }
    Ok(())
}

#[cold]
fn mismatch(recorded: &str, given: &str, pointer: &str) -> Error {
    let message = format!("expected {recorded}, as recorded; the cursor gives {given}");
    let error = Error::rule(Code::CanaryMismatch, rule::CURSOR_CANARY, message);
    error.at_pointer(format!("/next{pointer}"))
}

/// Items on their way into a canary.
#[derive(Default)]
struct Taken {
    count: u64,
    first: Vec<Item>,
    bytes: Vec<u8>,
}

impl Taken {
    fn push(&mut self, item: Item) {
        self.bytes.extend(item.integers().iter().flat_map(|integer| integer.to_le_bytes()));
        if self.count < Canary::FIRST {
            self.first.push(item);
        }
        self.count = self.count.saturating_add(1);
    }

    fn finish(self) -> Canary {
        Canary { count: self.count, first: self.first, sha256: Digest::of(&self.bytes) }
    }
}

fn check_count(count: u64) -> Result<()> {
    if count <= limits::CANARY_ITEMS {
        return Ok(());
    }
    let message =
        format!("expected a canary of at most {} items, found {count}", limits::CANARY_ITEMS);
    Err(Error::new(Code::BadArgument, message))
}

/// A count that metadata may hold.
fn counted(count: u64) -> Result<u64> {
    if count <= limits::MAX_INTEGER {
        return Ok(count);
    }
    let message = format!("expected a count of at most 2^53 - 1, found {count}");
    Err(Error::rule(Code::Limit, rule::LIMIT_VALUE, message))
}

/// Refuses counts that a walk has taken beyond what metadata may hold; their items come all the same.
fn writable(node: &Node) -> Result<()> {
    match node {
        Node::PermutedIndex(leaf) => counted(leaf.epoch).map(drop)?,
        Node::ShardedLanes(leaf) => counted(leaf.epoch).map(drop)?,
        Node::WindowShuffle(shuffle) => counted(shuffle.index).map(drop)?,
        Node::Mixture(Mixture { selection: Selection::Deficit(deficit), .. }) => {
            deficit.taken.iter().try_for_each(|taken| counted(*taken).map(drop))?;
        }
        _ => {}
    }
    node.children().iter().try_for_each(writable)
}

/// One more.
fn bump(count: u64) -> Result<u64> {
    counted(count.saturating_add(1))
}

/// Why a node has no computed items.
#[cold]
fn not_computed(node: &Node) -> Error {
    crate::order::not_computed(node.kind())
}
