//! Files whose bytes are left open until somebody reads them.
//!
//! What nobody reads cannot matter: of all sets of writes that a crash may keep, only those of files
//! that were read have to be told apart. It knows the writes of one file. It must not know names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What else than zeros may be where a file's bytes did not get to the disk.
pub(super) const STALE: u8 = 0xa5;
/// Writes of one file of which every set is looked at.
const EVERY: usize = 8;

/// The bytes of a file that may be on the disk or not.
#[derive(Debug)]
pub(super) struct Open {
    /// Shown to whoever reads: as if every write had got there.
    read: Arc<AtomicBool>,
    pub(super) bytes: Vec<u8>,
    writes: Vec<(usize, Vec<u8>)>,
    durable: Vec<u8>,
}

impl Open {
    /// A file of `length` bytes with `durable` ones, and writes of which any may have got there.
    /// `None` where that makes no difference.
    pub(super) fn of(
        durable: Vec<u8>,
        length: usize,
        writes: Vec<(usize, Vec<u8>)>,
    ) -> Option<Self> {
        let writes: Vec<_> = writes.into_iter().filter(|(at, _)| *at < length).collect();
        if writes.is_empty() {
            return None;
        }
        let mut open = Self { read: Arc::default(), bytes: Vec::new(), writes, durable };
        open.durable.truncate(length);
        open.bytes = open.with(length, 0, |_| true);
        Some(open)
    }

    pub(super) fn watch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.read)
    }

    pub(super) fn was_read(&self) -> bool {
        self.read.load(Ordering::Acquire)
    }

    /// The same, and nobody has read it.
    pub(super) fn anew(&self) -> Self {
        let Self { bytes, writes, durable, .. } = self;
        let (bytes, writes, durable) = (bytes.clone(), writes.clone(), durable.clone());
        Self { read: Arc::default(), bytes, writes, durable }
    }

    /// Everything that may be in it, and whether that is all.
    pub(super) fn settled(&self) -> (bool, Vec<Vec<u8>>) {
        let count = self.writes.len();
        let mut found = Vec::new();
        let mut add = |kept: &dyn Fn(usize) -> bool| {
            // What was never written is zeros where all that was written is there.
            let lost = (0..count).any(|n| !kept(n));
            for &fill in if lost { &[0, STALE][..] } else { &[0] } {
                let bytes = self.with(self.bytes.len(), fill, kept);
                if !found.contains(&bytes) {
                    found.push(bytes);
                }
            }
        };
        if count <= EVERY {
            (0..1_usize << count).for_each(|set| add(&|n| (set >> n) & 1 == 1));
        } else {
            for at in 0..count {
                add(&|n| n == at);
                add(&|n| n != at);
                add(&|n| n < at);
            }
            add(&|_| true);
        }
        (count <= EVERY, found)
    }

    fn with(&self, length: usize, fill: u8, kept: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        bytes.resize(length, fill);
        for (_, (at, written)) in self.writes.iter().enumerate().filter(|(n, _)| kept(*n)) {
            let place = bytes.get_mut(*at..).unwrap_or_default();
            for (to, from) in place.iter_mut().zip(written) {
                *to = *from;
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_writes_is_there_once() {
        let writes = vec![(0, b"ab".to_vec()), (2, b"cd".to_vec())];
        let open = Open::of(Vec::new(), 4, writes).unwrap();
        assert_eq!(open.bytes, b"abcd");
        let (all, mut found) = open.settled();
        found.sort_unstable();
        let mut expected: Vec<Vec<u8>> = vec![
            vec![0; 4],
            vec![STALE; 4],
            b"ab\0\0".to_vec(),
            b"ab\xa5\xa5".to_vec(),
            b"\0\0cd".to_vec(),
            b"\xa5\xa5cd".to_vec(),
            b"abcd".to_vec(),
        ];
        expected.sort_unstable();
        assert!(all);
        assert_eq!(found, expected);
    }

    #[test]
    fn what_lies_beyond_the_length_makes_no_difference() {
        assert!(Open::of(Vec::new(), 0, vec![(0, b"a".to_vec())]).is_none());
        assert!(Open::of(b"a".to_vec(), 1, Vec::new()).is_none());
    }
}
