//! The order `torch.randperm-cpu`: a Fisher–Yates shuffle by a Mersenne Twister, in two forms.
//!
//! It knows how elements are drawn and keeps what it drew. A prefix of the first form is had from
//! as many draws, so only what was moved is held until that is no longer the smaller part.

use std::collections::HashMap;

use waystation_format::{Code, Error, Result, arith, rule};

use crate::Budget;
use crate::rng::Mt19937;

/// From this n on the second form is used, which has no element before it has all.
const SECOND: u64 = 214_748_364;
/// Below this part of n, a map of what was moved is smaller than n elements.
const SPARSE_PART: u64 = 32;
/// A map is not worth it for fewer elements.
const SMALL: u64 = 4096;
/// Bytes that one moved element takes in a map: key, value and the room that the map keeps free.
const MOVED: u64 = 40;
/// Elements that are put in their places between two looks whether to stop.
const FILLED: u64 = 1 << 20;
/// Steps that it takes to seed the engine and to make its first words.
const SEEDING: u64 = 64;

/// The elements drawn so far.
#[derive(Clone, Debug)]
pub(super) struct Randperm {
    n: u64,
    seed: u32,
    /// None before the first draw: an epoch whose ordinals nobody asks for is not seeded.
    engine: Option<Box<Mt19937>>,
    /// Elements that are final, from the first.
    drawn: u64,
    elements: Elements,
    held: u64,
}

#[derive(Clone, Debug)]
enum Elements {
    /// Those that are not where they began.
    Moved(HashMap<u64, u64>),
    /// All, n ≤ 2^32.
    Short(Vec<u32>),
    /// All.
    Long(Vec<u64>),
}

impl Randperm {
    pub(super) fn new(n: u64, seed: u64) -> Self {
        let seed = low(seed);
        Self { n, seed, engine: None, drawn: 0, elements: Elements::Moved(HashMap::new()), held: 0 }
    }

    /// The element at a place below n. An element takes a step when it is drawn.
    pub(super) fn at(&mut self, place: u64, budget: &mut Budget) -> Result<u64> {
        if place >= self.drawn {
            if self.n >= SECOND {
                self.draw_all(budget)?;
            } else {
                self.draw_to(place.saturating_add(1), budget)?;
            }
        }
        self.elements.get(place)
    }

    /// Bytes that it holds.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// First form: as many elements as `end`.
    fn draw_to(&mut self, end: u64, budget: &mut Budget) -> Result<()> {
        budget.take(end.saturating_sub(self.drawn))?;
        let moved = matches!(self.elements, Elements::Moved(_));
        if moved && (self.n <= SMALL || end > self.n.div_ceil(SPARSE_PART)) {
            self.fill(budget)?;
        } else if moved {
            // Each draw moves at most two elements.
            let most = arith::mul(end, 2 * MOVED, "bytes of a map")?;
            budget.hold(most.saturating_sub(self.held))?;
            self.held = self.held.max(most);
        }
        while self.drawn < end {
            budget.step(1)?;
            let left = self.n.saturating_sub(self.drawn);
            // There is no draw for the last.
            if left > 1 {
                let draw = seeded(&mut self.engine, self.seed, budget)?.next_u32();
                let ahead = u64::from(draw).checked_rem(left).unwrap_or(0);
                self.elements.swap(self.drawn, self.drawn.saturating_add(ahead))?;
            }
            self.drawn = self.drawn.saturating_add(1);
        }
        Ok(())
    }

    /// Second form: all elements, or none.
    fn draw_all(&mut self, budget: &mut Budget) -> Result<()> {
        budget.take(self.n)?;
        self.fill(budget)?;
        let drawn = self.shuffle(budget);
        if drawn.is_err() {
            // Some are where they end and others where they began.
            budget.release(self.held);
            *self = Self::new(self.n, self.seed.into());
        }
        drawn
    }

    fn shuffle(&mut self, budget: &mut Budget) -> Result<()> {
        let engine = seeded(&mut self.engine, self.seed, budget)?;
        for place in 0..self.n {
            budget.step(1)?;
            let high = u64::from(engine.next_u32());
            let draw = (high << 32) | u64::from(engine.next_u32());
            let from = draw.checked_rem(place.saturating_add(1)).unwrap_or(0);
            // The element at `place` is `place` still, so a swap is what the text says.
            self.elements.swap(place, from)?;
        }
        self.drawn = self.n;
        Ok(())
    }

    /// Goes over to holding every element.
    fn fill(&mut self, budget: &mut Budget) -> Result<()> {
        let Elements::Moved(moved) = &self.elements else { return Ok(()) };
        let short = u32::try_from(self.n.saturating_sub(1)).is_ok();
        let bytes = arith::mul(self.n, if short { 4 } else { 8 }, "bytes of an order")?;
        budget.hold(bytes)?;
        let mut elements = if short {
            Elements::Short(counted(self.n, low, budget)?)
        } else {
            Elements::Long(counted(self.n, |place| place, budget)?)
        };
        for (place, element) in moved {
            elements.set(*place, *element)?;
        }
        budget.release(self.held);
        (self.elements, self.held) = (elements, bytes);
        Ok(())
    }
}

/// The engine, seeded when it is first asked for.
fn seeded<'e>(
    engine: &'e mut Option<Box<Mt19937>>,
    seed: u32,
    budget: &mut Budget,
) -> Result<&'e mut Mt19937> {
    if engine.is_none() {
        budget.take(SEEDING)?;
    }
    Ok(engine.get_or_insert_with(|| Box::new(Mt19937::init_genrand(seed))))
}

/// As many elements as `n`, each at its own place.
fn counted<T>(n: u64, element: impl Fn(u64) -> T, budget: &mut Budget) -> Result<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(index(n)).map_err(|_| {
        let message = format!("expected memory for an order of {n} elements, found none");
        Error::rule(Code::Limit, rule::CURSOR_CANARY_STEPS, message)
    })?;
    let mut begin = 0;
    while begin < n {
        let end = n.min(begin.saturating_add(FILLED));
        all.extend((begin..end).map(&element));
        budget.step(FILLED)?;
        begin = end;
    }
    Ok(all)
}

impl Elements {
    fn get(&self, place: u64) -> Result<u64> {
        match self {
            Self::Moved(moved) => Some(moved.get(&place).copied().unwrap_or(place)),
            Self::Short(all) => all.get(index(place)).map(|element| u64::from(*element)),
            Self::Long(all) => all.get(index(place)).copied(),
        }
        .ok_or_else(|| outside(place))
    }

    fn set(&mut self, place: u64, element: u64) -> Result<()> {
        match self {
            Self::Moved(moved) => {
                moved.insert(place, element);
                Some(())
            }
            Self::Short(all) => all.get_mut(index(place)).map(|slot| *slot = low(element)),
            Self::Long(all) => all.get_mut(index(place)).map(|slot| *slot = element),
        }
        .ok_or_else(|| outside(place))
    }

    fn swap(&mut self, a: u64, b: u64) -> Result<()> {
        let (at_a, at_b) = (self.get(a)?, self.get(b)?);
        self.set(a, at_b)?;
        self.set(b, at_a)
    }
}

#[cold]
fn outside(place: u64) -> Error {
    let message = format!("expected a place within the order, found {place}");
    Error::rule(Code::BadPosition, rule::ORDER_DOMAIN, message)
}

fn index(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
fn low(number: u64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shuffle as the specification writes it.
    #[expect(clippy::arithmetic_side_effects, reason = "numbers below n")]
    fn naive(n: u64, seed: u64) -> Vec<u64> {
        let mut engine = Mt19937::init_genrand(low(seed));
        let mut elements: Vec<u64> = (0..n).collect();
        for i in 0..n.saturating_sub(1) {
            let z = u64::from(engine.next_u32()) % (n - i);
            elements.swap(index(i), index(i + z));
        }
        elements
    }

    #[test]
    fn any_place_in_any_order_of_asking() {
        for n in [1, 2, 3, 10, 1000, 5000, 200_000] {
            let all = naive(n, 42);
            let mut budget = Budget::unlimited();
            for places in
                [vec![0, n / 100, n / 50, 0, n / 33, n / 20, 1 % n, n - 1], vec![n - 1, 0]]
            {
                let mut drawn = Randperm::new(n, 42);
                for place in places {
                    assert_eq!(drawn.at(place, &mut budget).unwrap(), all[index(place)]);
                }
            }
        }
    }

    #[test]
    fn few_of_many_hold_little() {
        let mut budget = Budget::new(1000 + SEEDING, 100_000);
        let mut drawn = Randperm::new(SECOND - 1, 42);
        // The first elements of torch.randperm(214748363) under the seed 42.
        for (place, element) in (0..).zip([105_399_001, 199_900_638, 3_068_019, 143_601_337]) {
            assert_eq!(drawn.at(place, &mut budget).unwrap(), element);
        }
        drawn.at(999, &mut budget).unwrap();
        assert_eq!(budget.steps(), 0);
        let spent = drawn.at(1000, &mut budget).unwrap_err();
        assert_eq!((spent.code(), spent.rule_id()), (Code::Limit, Some("cursor.canary-steps")));
    }

    #[test]
    fn only_draws_seed_the_engine() {
        let mut budget = Budget::new(1, 100);
        assert_eq!(Randperm::new(1, 42).at(0, &mut budget).unwrap(), 0);
        let mut budget = Budget::new(SEEDING + 1, 100);
        Randperm::new(2, 42).at(0, &mut budget).unwrap();
        assert_eq!(budget.steps(), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_held() {
        for n in [SECOND, 1 << 52] {
            let mut budget = Budget::new(u64::MAX, 1 << 20);
            let error = Randperm::new(n, 1).at(0, &mut budget).unwrap_err();
            assert_eq!(error.code(), Code::Limit);
        }
    }
}
