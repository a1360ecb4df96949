//! What was done to a disk, taken apart into changes that become durable each by itself.
//!
//! It knows entries, lengths and bytes by the numbers of files. It must not know which of them a
//! crash keeps.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;

use super::crash::Crash;
use super::image::{Image, Node};

/// Bytes that reach a disk whole or not at all.
const SECTOR: u64 = 512;
/// The same of most disks of today: where a long write is parted.
const LARGE_SECTOR: u64 = 4096;

/// The number of a file or directory on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ino(pub(super) usize);

impl Ino {
    pub(super) const ROOT: Self = Self(0);
}

/// One change, which is on the disk after a crash or is not.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// What a name in a directory stands for; `None` for nothing.
    Entry { dir: Ino, name: String, to: Option<Ino> },
    /// A file is at least so long.
    Length { file: Ino, bytes: u64 },
    /// A file has these bytes.
    Data { file: Ino, offset: u64, bytes: Vec<u8> },
}

impl Change {
    /// The file or directory whose fsync makes it durable.
    pub(super) fn of(&self) -> Ino {
        match self {
            Self::Entry { dir, .. } => *dir,
            Self::Length { file, .. } | Self::Data { file, .. } => *file,
        }
    }
}

/// One call.
pub(super) struct Step {
    pub(super) line: String,
    changes: Vec<Change>,
    /// What it made durable.
    synced: Option<Ino>,
}

/// All calls since power came.
pub(super) struct Book {
    /// What was durable before.
    base: Image,
    /// Of every file and directory that was ever made, in the order of their numbers: what it is
    /// when nothing is in it.
    born: Vec<Node>,
    entries: BTreeMap<(Ino, String), Ino>,
    lengths: BTreeMap<Ino, u64>,
    pub(super) steps: Vec<Step>,
}

impl Book {
    pub(super) fn on(base: &Image) -> Self {
        let mut book = Self {
            base: base.clone(),
            born: base.nodes.iter().map(Node::empty_alike).collect(),
            entries: BTreeMap::new(),
            lengths: BTreeMap::new(),
            steps: Vec::new(),
        };
        for (at, node) in base.nodes.iter().enumerate() {
            match node {
                Node::Directory(entries) => {
                    let entries = entries.iter().map(|(name, to)| ((Ino(at), name.clone()), *to));
                    book.entries.extend(entries);
                }
                Node::File(file) => drop(book.lengths.insert(Ino(at), length(file.bytes()))),
            }
        }
        book
    }

    /// What a name stands for now.
    pub(super) fn entry(&self, dir: Ino, name: &str) -> io::Result<Ino> {
        self.entries.get(&(dir, name.to_owned())).copied().ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn create(&mut self, line: String, dir: Ino, name: &str) -> Ino {
        let ino = self.bear(Node::file(Vec::new()));
        self.change_entries(line, dir, &[(name, Some(ino))]);
        ino
    }

    pub(super) fn make_dir(&mut self, line: String, dir: Ino, name: &str) {
        let ino = self.bear(Node::Directory(BTreeMap::new()));
        self.change_entries(line, dir, &[(name, Some(ino))]);
    }

    pub(super) fn change_entries(
        &mut self,
        line: String,
        dir: Ino,
        changed: &[(&str, Option<Ino>)],
    ) {
        let mut changes = Vec::new();
        for &(name, to) in changed {
            let key = (dir, name.to_owned());
            match to {
                Some(ino) => drop(self.entries.insert(key, ino)),
                None => drop(self.entries.remove(&key)),
            }
            changes.push(Change::Entry { dir, name: name.to_owned(), to });
        }
        self.steps.push(Step { line, changes, synced: None });
    }

    pub(super) fn write(&mut self, line: String, file: Ino, offset: u64, bytes: &[u8]) {
        let end = offset.saturating_add(length(bytes));
        let mut changes: Vec<Change> = self.lengthen(file, end).into_iter().collect();
        let (first, second) = bytes.split_at(torn_at(offset, bytes.len()));
        let middle = offset.saturating_add(length(first));
        for (offset, piece) in [(offset, first), (middle, second)] {
            if !piece.is_empty() {
                changes.push(Change::Data { file, offset, bytes: piece.to_vec() });
            }
        }
        self.steps.push(Step { line, changes, synced: None });
    }

    pub(super) fn allocate(&mut self, line: String, file: Ino, bytes: u64) {
        let changes = self.lengthen(file, bytes).into_iter().collect();
        self.steps.push(Step { line, changes, synced: None });
    }

    pub(super) fn sync(&mut self, line: String, synced: Ino) {
        self.steps.push(Step { line, changes: Vec::new(), synced: Some(synced) });
    }

    /// What is durable after the first `point` calls, and what is not.
    pub(super) fn crash(&self, point: usize) -> Crash {
        let mut durable = self.base.clone();
        durable.nodes.extend(self.born.iter().skip(durable.nodes.len()).cloned());
        let mut pending: Vec<Change> = Vec::new();
        for step in self.steps.iter().take(point) {
            pending.extend(step.changes.iter().cloned());
            let Some(synced) = step.synced else { continue };
            let all = std::mem::take(&mut pending);
            let (last, rest) = all.into_iter().partition(|change| change.of() == synced);
            durable = durable.with(&last, 0);
            pending = rest;
        }
        Crash::new(durable, pending)
    }

    fn bear(&mut self, node: Node) -> Ino {
        let ino = Ino(self.born.len());
        self.born.push(node);
        ino
    }

    fn lengthen(&mut self, file: Ino, bytes: u64) -> Option<Change> {
        let length = self.lengths.entry(file).or_default();
        (bytes > *length).then(|| {
            *length = bytes;
            Change::Length { file, bytes }
        })
    }
}

/// Where a write is parted: the boundary of sectors nearest to its middle, 0 where there is none in it.
fn torn_at(offset: u64, bytes: usize) -> usize {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    let middle = offset.saturating_add(bytes / 2);
    let within = |sector: u64| {
        let rounded = middle.saturating_add(sector / 2).checked_div(sector)?;
        let boundary = rounded.checked_mul(sector)?;
        let at = boundary.checked_sub(offset)?;
        (at < bytes).then_some(at)
    };
    let at = within(LARGE_SECTOR).filter(|&at| at > 0).or_else(|| within(SECTOR)).unwrap_or(0);
    usize::try_from(at).unwrap_or(0)
}

/// A length in memory always fits.
fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_parted_at_a_sector() {
        assert_eq!(torn_at(0, 512), 0);
        assert_eq!(torn_at(0, 1024), 512);
        assert_eq!(torn_at(0, 80), 0);
        assert_eq!(torn_at(500, 80), 12);
        assert_eq!(torn_at(0, 9000), 4096);
        assert_eq!(torn_at(4096, 8192), 4096);
        assert_eq!(torn_at(4096, 4096), 2048);
    }
}
