//! Which calls to stop at.

use super::content::Rng;
use super::stop_at::{Among, Counts, Moment, Stop};

/// Before the call and after it.
pub const AROUND: [Moment; 2] = [Moment::Before, Moment::After];

/// Calls at which to stop: all of them in random order, and again.
pub struct Deck {
    pub all: Vec<Stop>,
    left: Vec<Stop>,
}

impl Deck {
    pub fn new(counts: Counts, among: Among, moments: &[Moment]) -> Self {
        let stops = (1..=counts.of(among))
            .flat_map(|nth| moments.iter().map(move |&moment| Stop { among, nth, moment }));
        Self { all: stops.collect(), left: Vec::new() }
    }

    /// A random one of those that are left.
    pub fn draw(&mut self, rng: &mut Rng) -> Stop {
        if self.left.is_empty() {
            self.left.clone_from(&self.all);
        }
        let at = rng.below(self.left.len() as u64) as usize;
        self.left.swap_remove(at)
    }
}
