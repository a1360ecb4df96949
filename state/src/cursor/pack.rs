//! Packing: sequences of tokens from the records of a node, by `concat-then-split`.
//!
//! It knows pieces of records. How many tokens a record has, the caller says.

use waystation_format::records::cursor::{
    Augment, Canary, Cursor, Item, Leftover, Node, Pack, Partition, Piece, Tail,
};
use waystation_format::{Code, Digest, Error, Result, arith, rule};

use super::live::Live;
use super::{Taken, Tensors, build, bump, check_count, compare, counted, not_computed, writable};
use crate::Budget;

/// The sequences of a cursor whose root is a pack over a computed child, from the one that comes
/// next.
#[derive(Clone, Debug)]
pub struct Packed {
    child: Live,
    /// Tokens of a sequence.
    length: u64,
    tail: Tail,
    tokenizer: Option<Digest>,
    /// What of the last record read is not given yet.
    rest: Option<Piece>,
    /// Where it stays when the tokens that are left are dropped.
    ended: Option<Box<(Node, Option<Piece>)>>,
    budget: Budget,
    consumed: u64,
    augment: Option<Augment>,
    partition: Option<Partition>,
}

impl Packed {
    /// At the next sequence of `cursor`.
    ///
    /// # Errors
    ///
    /// [`Code::NotExact`] for any other root, algorithm or child; else as
    /// [`Walk::new`](super::Walk::new).
    pub fn new(cursor: &Cursor, tensors: &dyn Tensors, mut budget: Budget) -> Result<Self> {
        let Node::Pack(pack) = &cursor.root else { return Err(not_computed(&cursor.root)) };
        let Leftover::ConcatThenSplit(rest) = &pack.leftover else {
            return Err(crate::order::not_computed(pack.leftover.algorithm()));
        };
        if pack.length == 0 {
            let message = "expected sequences of at least 1 token, found 0";
            return Err(Error::rule(Code::BadMember, rule::CURSOR_FORM, message));
        }
        let child = build::live(&pack.child, tensors, &mut budget)?;
        Ok(Self {
            child,
            length: pack.length,
            tail: pack.tail,
            tokenizer: pack.tokenizer,
            rest: rest.clone(),
            ended: None,
            budget,
            consumed: cursor.consumed.unwrap_or(0),
            augment: cursor.augment,
            partition: cursor.partition.clone(),
        })
    }

    /// The pieces of the next sequence, if there is one: of `length` tokens together, the last
    /// sequence of fewer. `lengths` says how many tokens the record of an item has.
    ///
    /// # Errors
    ///
    /// What `lengths` answers; [`Code::Limit`] when the budget is spent.
    pub fn next_sequence(
        &mut self,
        lengths: &mut dyn FnMut(&Item) -> Result<u64>,
    ) -> Result<Option<Vec<Piece>>> {
        if self.ended.is_some() {
            return Ok(None);
        }
        let before = match self.tail {
            Tail::Drop => {
                self.budget.take(self.child.steps_to_copy())?;
                Some(Box::new((self.child.to_node(), self.rest.clone())))
            }
            Tail::Keep => None,
        };
        let mut pieces = Vec::new();
        let mut left = self.length;
        while left > 0 {
            let Some(rest) = self.rest.take() else {
                let Some(item) = self.child.next(&mut self.budget)? else { break };
                let count = counted(lengths(&item)?)?;
                self.rest = (count > 0).then_some(Piece { item, offset: 0, count });
                continue;
            };
            self.budget.take(1)?;
            let count = rest.count.min(left);
            if count < rest.count {
                let offset = counted(arith::add(rest.offset, count, "tokens of a record")?)?;
                let count = rest.count.saturating_sub(count);
                self.rest = Some(Piece { item: rest.item.clone(), offset, count });
            }
            pieces.push(Piece { count, ..rest });
            left = left.saturating_sub(count);
        }
        if left > 0 && (before.is_some() || pieces.is_empty()) {
            self.ended = before;
            return Ok(None);
        }
        self.consumed = bump(self.consumed)?;
        Ok(Some(pieces))
    }

    /// The canary of the next `count` pieces, or of all that there are.
    ///
    /// # Errors
    ///
    /// As [`next_sequence`](Self::next_sequence); [`Code::BadArgument`] for more than
    /// `canary-items`.
    pub fn canary(
        &self,
        count: u64,
        lengths: &mut dyn FnMut(&Item) -> Result<u64>,
    ) -> Result<Canary> {
        check_count(count)?;
        let mut ahead = self.clone();
        ahead.budget.hold(self.child.held())?;
        let mut taken = Taken::default();
        while taken.count < count
            && let Some(pieces) = ahead.next_sequence(lengths)?
        {
            for piece in pieces {
                if taken.count == count {
                    break;
                }
                let mut integers = piece.item.integers().to_vec();
                integers.extend([piece.offset, piece.count]);
                taken.push(Item::of(&integers));
            }
        }
        Ok(taken.finish())
    }

    /// Compares the canary of `cursor`, at which this stands, with the pieces that come.
    ///
    /// # Errors
    ///
    /// [`Code::CanaryMismatch`] under `cursor.canary`, and as [`canary`](Self::canary).
    pub fn check_canary(
        &self,
        next: &Canary,
        lengths: &mut dyn FnMut(&Item) -> Result<u64>,
    ) -> Result<()> {
        compare(next, &self.canary(next.count, lengths)?)
    }

    /// The cursor as it stands, with a canary of `count` pieces.
    ///
    /// # Errors
    ///
    /// As [`canary`](Self::canary); [`Code::Limit`] when a count passes what metadata may hold.
    pub fn cursor(
        &self,
        count: u64,
        lengths: &mut dyn FnMut(&Item) -> Result<u64>,
    ) -> Result<Cursor> {
        let (child, rest) = match self.ended.as_deref() {
            Some((child, rest)) => (child.clone(), rest.clone()),
            None => (self.child.to_node(), self.rest.clone()),
        };
        let pack = Pack {
            child: Box::new(child),
            leftover: Leftover::ConcatThenSplit(rest),
            length: self.length,
            tail: self.tail,
            tokenizer: self.tokenizer,
        };
        writable(&pack.child)?;
        Ok(Cursor {
            augment: self.augment,
            consumed: Some(self.consumed),
            next: Some(self.canary(count, lengths)?),
            partition: self.partition.clone(),
            root: Node::Pack(pack),
        })
    }
}
