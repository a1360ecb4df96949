//! Where training stands in its data: a cursor over shuffled epochs of windows of the text.
//!
//! It knows the order of an epoch and the position in it. It counts samples of completed steps over
//! all ranks together, so it is the same whatever their number.

use waystation_format::{Code, Digest, Error, Result};

use crate::text;

/// Seed of the shuffling; each epoch adds its number.
pub(crate) const SEED: u64 = 1;
/// Samples that the cursor foretells.
const CANARY: usize = 16;

/// A place in the data.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    windows: usize,
    unit: usize,
    pub(crate) epoch: u64,
    pub(crate) position: usize,
    pub(crate) consumed: u64,
    order: Vec<usize>,
}

impl Data {
    pub(crate) fn new(windows: usize, unit: usize) -> Self {
        Self::at(windows, unit, 0, 0, 0)
    }

    fn at(windows: usize, unit: usize, epoch: u64, position: usize, consumed: u64) -> Self {
        let order = permutation(windows, SEED.wrapping_add(epoch));
        Self { windows, unit, epoch, position, consumed, order }
    }

    /// The next `count` samples: where their windows begin.
    pub(crate) fn next(&self, count: usize) -> Vec<usize> {
        let mut ahead = self.clone();
        let mut next = Vec::new();
        for _ in 0..count {
            next.extend(ahead.order.get(ahead.position));
            ahead.advance(1);
        }
        next
    }

    pub(crate) fn advance(&mut self, count: usize) {
        let epoch = self.windows.saturating_sub(self.windows.checked_rem(self.unit).unwrap_or(0));
        for _ in 0..count {
            self.position = self.position.saturating_add(1);
            if self.position >= epoch {
                self.position = 0;
                self.epoch = self.epoch.saturating_add(1);
                self.order = permutation(self.windows, SEED.wrapping_add(self.epoch));
            }
        }
        self.consumed = self.consumed.saturating_add(count as u64);
    }

    pub(crate) fn source() -> Digest {
        Digest::of(&text::raw())
    }

    pub(crate) fn canary(&self) -> (Vec<usize>, Digest) {
        let next = self.next(CANARY);
        let bytes: Vec<u8> = next.iter().flat_map(|&at| (at as u64).to_le_bytes()).collect();
        (next, Digest::of(&bytes))
    }

    pub(crate) fn restore(
        windows: usize,
        unit: usize,
        epoch: u64,
        position: usize,
        consumed: u64,
        sha256: &str,
    ) -> Result<Self> {
        let data = Self::at(windows, unit, epoch, position, consumed);
        if data.canary().1.to_string() != sha256 {
            return Err(Error::new(Code::CanaryMismatch, "the cursor differs"));
        }
        Ok(data)
    }
}

fn permutation(n: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut stream = crate::stream::Stream::seeded(seed);
    for (at, out) in stream.draw(n).into_iter().enumerate() {
        let left = n.saturating_sub(at) as u64;
        let pick = at.saturating_add(out.checked_rem(left).unwrap_or(0) as usize);
        order.swap(at, pick);
    }
    order
}
