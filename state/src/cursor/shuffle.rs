//! A window shuffle: items of a node, permuted window by window.
//!
//! It knows the current window, which it reads as a whole. What the child gives is its business.

use waystation_format::records::cursor::{self as form, Item, Node, WindowShuffle};
use waystation_format::{Code, Error, Result, rule};

use super::live::Live;
use crate::Budget;
use crate::order::{Epoch, Order};

/// Bytes that an item of a window takes.
const ITEM: u64 = 48;
/// Bytes more that one of many integers takes, which it does not hold in itself.
const SPILLED: u64 = 80;
/// Integers that an item holds in itself.
const HELD: usize = 4;

/// How far the shuffle is walked. At the end of a window it stays there until the next item.
#[derive(Clone, Debug)]
pub(super) struct Shuffled {
    /// As it stood at the beginning of the window; `child` stands behind what was read of it.
    anchor: Node,
    child: Live,
    index: u64,
    order: form::Order,
    given: u64,
    reverse: bool,
    window: u64,
    /// Where the node stands.
    path: String,
    /// The items of the window, once one was asked for.
    read: Option<Window>,
}

#[derive(Clone, Debug)]
struct Window {
    items: Vec<Item>,
    /// Bytes of the budget that they hold.
    held: u64,
    drawn: Epoch,
}

impl Shuffled {
    /// `child` is the anchor, walked; `path` is where the node stands.
    pub(super) fn new(node: &WindowShuffle, child: Live, path: String) -> Self {
        Self {
            anchor: (*node.anchor).clone(),
            child,
            index: node.index,
            order: node.order.clone(),
            given: node.replay,
            reverse: node.reverse,
            window: node.window,
            path,
            read: None,
        }
    }

    pub(super) fn has_next(&mut self, budget: &mut Budget) -> Result<bool> {
        if self.read.is_none() {
            if self.given == 0 {
                return self.child.has_next(budget);
            }
            self.read_window(budget)?;
        }
        if self.given < self.length() { Ok(true) } else { self.child.has_next(budget) }
    }

    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<Option<Item>> {
        if self.read.is_none() {
            self.read_window(budget)?;
        }
        if self.given >= self.length() {
            if !self.child.has_next(budget)? {
                return Ok(None);
            }
            budget.take(self.child.steps_to_copy())?;
            let next = self.index.saturating_add(1);
            budget.release(self.held_here());
            (self.anchor, self.index, self.given, self.read) =
                (self.child.to_node(), next, 0, None);
            self.read_window(budget)?;
        }
        let length = self.length();
        let Some(window) = &mut self.read else { return Ok(None) };
        let place = if self.reverse {
            length.saturating_sub(1).saturating_sub(self.given)
        } else {
            self.given
        };
        let number = window.drawn.at(place, budget)?;
        let item = usize::try_from(number).ok().and_then(|number| window.items.get(number));
        let item = item.cloned();
        self.given = self.given.saturating_add(1);
        Ok(item)
    }

    pub(super) fn to_node(&self) -> WindowShuffle {
        WindowShuffle {
            anchor: Box::new(self.anchor.clone()),
            index: self.index,
            order: self.order.clone(),
            replay: self.given,
            reverse: self.reverse,
            window: self.window,
        }
    }

    pub(super) fn weight(&self) -> u64 {
        self.child.weight().saturating_add(1)
    }

    pub(super) fn held(&self) -> u64 {
        self.child.held().saturating_add(self.held_here())
    }

    fn held_here(&self) -> u64 {
        self.read.as_ref().map_or(0, |window| window.held.saturating_add(window.drawn.held()))
    }

    /// m: the items of the window, 0 before it is read.
    fn length(&self) -> u64 {
        let items = self.read.as_ref().map_or(0, |window| window.items.len());
        u64::try_from(items).unwrap_or(u64::MAX)
    }

    fn read_window(&mut self, budget: &mut Budget) -> Result<()> {
        let (mut items, mut held) = (Vec::new(), 0_u64);
        let mut left = self.window;
        while left > 0
            && let Some(item) = self.child.next(budget)?
        {
            let bytes = if item.integers().len() > HELD { ITEM + SPILLED } else { ITEM };
            budget.hold(bytes)?;
            held = held.saturating_add(bytes);
            items.push(item);
            left = left.saturating_sub(1);
        }
        let length = self.window.saturating_sub(left);
        if self.given > length {
            let message =
                format!("expected at most the {length} items of the window, found {}", self.given);
            let error = Error::rule(Code::BadPosition, rule::CURSOR_REPLAY, message);
            return Err(error.at_pointer(format!("{}/replay", self.path)));
        }
        let drawn = Order::of(&self.order, length, None)?.epoch(self.index);
        self.read = Some(Window { items, held, drawn });
        Ok(())
    }
}
