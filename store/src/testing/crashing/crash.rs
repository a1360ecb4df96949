//! A moment at which power fails: which changes may be kept, and the disks that follow.
//!
//! It knows sets of changes. It must not know what a caller expects of them.

use std::collections::{BTreeMap, BTreeSet};

use super::book::{Change, Ino};
use super::image::{Image, Node};
use super::open::{Open, STALE};

/// What is durable when power fails, and the changes of which each may be kept.
#[derive(Debug)]
pub struct Crash {
    durable: Image,
    pending: Vec<Change>,
}

/// How many sets of changes are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// With up to so many changes every subset of them, and up to 2 to the power of this every
    /// [shape](Crash::shapes).
    pub exhaustive: usize,
    /// With more of them: all, none, each alone, all but each, the first ones up to each, and so many
    /// drawn at random.
    pub sampled: usize,
    /// What the random ones follow from.
    pub seed: u64,
}

/// Whether every subset is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every one.
    Exhaustive,
    /// Those that [`Bound`] says.
    Sampled,
}

impl Crash {
    pub(super) fn new(durable: Image, pending: Vec<Change>) -> Self {
        Self { durable, pending }
    }

    /// Changes that are not durable: entries, lengths and pieces of writes.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The disks that may be left. Some are equal: a name that came and went may be lost twice.
    #[must_use]
    pub fn images(&self, bound: &Bound) -> (Coverage, Vec<Image>) {
        let (coverage, kept) = self.subsets(bound);
        let data = self.pending.iter().any(|change| !matches!(change, Change::Entry { .. }));
        let mut images = Vec::with_capacity(kept.len());
        for kept in kept {
            images.push(self.image(&kept, 0));
            // Without files that lost something both are the same.
            let lost = self
                .pending
                .iter()
                .zip(&kept)
                .any(|(change, kept)| !kept && matches!(change, Change::Data { .. }));
            if data && lost {
                images.push(self.image(&kept, STALE));
            }
        }
        (coverage, images)
    }

    /// The disks that may be left, those that are alike once only: every way in which names and lengths
    /// may have got there, whose bytes are left open where they may not have got there. Whoever looks
    /// at one asks it afterwards for those that it [stands for](Image::settled). Beyond the bound they
    /// are [those that are drawn](Crash::images), with all bytes settled.
    #[must_use]
    pub fn shapes(&self, bound: &Bound) -> (Coverage, Vec<Image>) {
        let most = 1_usize.checked_shl(shift(bound.exhaustive.min(20))).unwrap_or(usize::MAX);
        match self.every_shape(most) {
            Some(shapes) => (Coverage::Exhaustive, shapes),
            None => self.images(&Bound { exhaustive: 0, ..*bound }),
        }
    }

    /// `None` where there are more than `most`.
    fn every_shape(&self, most: usize) -> Option<Vec<Image>> {
        let mut entries: BTreeMap<(Ino, &str), Vec<Option<Ino>>> = BTreeMap::new();
        let mut lengths: BTreeMap<Ino, Vec<usize>> = BTreeMap::new();
        for change in &self.pending {
            match change {
                // The last that gets there counts, so that each may be the one.
                Change::Entry { dir, name, to } => {
                    let known = || vec![self.durable.entry(*dir, name)];
                    push_new(entries.entry((*dir, name)).or_insert_with(known), *to);
                }
                Change::Length { file, bytes } => {
                    let known = || vec![self.durable.bytes(*file).len()];
                    let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
                    push_new(lengths.entry(*file).or_insert_with(known), bytes);
                }
                Change::Data { .. } => {}
            }
        }
        let mut shapes = vec![self.durable.clone()];
        for ((dir, name), values) in &entries {
            shapes = each(shapes, values, most, |image, to| image.set_entry(*dir, name, *to))?;
        }
        // A file without a name has no length that anybody sees.
        let mut whole = Vec::new();
        for shape in shapes {
            let named = shape.files();
            let mut sized = vec![(shape, BTreeMap::new())];
            for (file, values) in lengths.iter().filter(|(file, _)| named.contains(file)) {
                sized = each(sized, values, most, |(_, chosen), length| {
                    chosen.insert(*file, *length);
                })?;
            }
            for (mut image, chosen) in sized {
                self.open_files(&mut image, &named, &chosen);
                whole.push(image);
            }
            if whole.len() > most {
                return None;
            }
        }
        Some(whole)
    }

    /// Gives the files their lengths, and leaves open what may not have got there.
    fn open_files(&self, image: &mut Image, named: &BTreeSet<Ino>, lengths: &BTreeMap<Ino, usize>) {
        for file in named {
            let writes = self.pending.iter().filter_map(|change| match change {
                Change::Data { file: of, offset, bytes } if of == file => {
                    Some((usize::try_from(*offset).unwrap_or(usize::MAX), bytes.clone()))
                }
                _ => None,
            });
            let writes: Vec<_> = writes.collect();
            let durable = self.durable.bytes(*file);
            let length = lengths.get(file).copied().unwrap_or(durable.len());
            if writes.is_empty() && length == durable.len() {
                continue;
            }
            let node = Open::of(durable.to_vec(), length, writes).map_or_else(
                || {
                    let mut bytes = durable.to_vec();
                    bytes.resize(length, 0);
                    Node::file(bytes)
                },
                Node::open,
            );
            image.set_file(*file, node);
        }
    }

    /// The disk on which nothing is that was not synced.
    #[must_use]
    pub fn nothing_more(&self) -> Image {
        self.durable.clone()
    }

    /// The disk on which all is, as after a kill of all processes with power kept.
    #[must_use]
    pub fn everything(&self) -> Image {
        self.durable.with(&self.pending, 0)
    }

    fn image(&self, kept: &[bool], fill: u8) -> Image {
        let kept = self.pending.iter().zip(kept).filter(|(_, kept)| **kept);
        self.durable.with(kept.map(|(change, _)| change), fill)
    }

    fn subsets(&self, bound: &Bound) -> (Coverage, Vec<Vec<bool>>) {
        let count = self.pending.len();
        if count <= bound.exhaustive.min(20) {
            let all = 0..1_u64.checked_shl(shift(count)).unwrap_or(1);
            let bits = |set: u64| (0..count).map(|n| (set >> shift(n)) & 1 == 1).collect();
            return (Coverage::Exhaustive, all.map(bits).collect());
        }
        let mut sets: Vec<Vec<bool>> = Vec::new();
        for n in 0..count {
            sets.push((0..count).map(|at| at == n).collect());
            sets.push((0..count).map(|at| at != n).collect());
            sets.push((0..count).map(|at| at < n).collect());
        }
        sets.push(vec![true; count]);
        let mut random = bound.seed | 1;
        for _ in 0..bound.sampled {
            let mut set = Vec::with_capacity(count);
            for _ in 0..count {
                // xorshift64
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                set.push((random >> 40) & 1 == 1);
            }
            sets.push(set);
        }
        (Coverage::Sampled, sets)
    }
}

fn push_new<T: PartialEq>(values: &mut Vec<T>, value: T) {
    if !values.contains(&value) {
        values.push(value);
    }
}

/// Each of `all` with each of `values`; `None` where these are more than `most`.
fn each<T: Clone, V>(
    all: Vec<T>,
    values: &[V],
    most: usize,
    set: impl Fn(&mut T, &V),
) -> Option<Vec<T>> {
    if all.len().checked_mul(values.len())? > most {
        return None;
    }
    let mut more = Vec::new();
    for one in &all {
        for value in values {
            let mut other = one.clone();
            set(&mut other, value);
            more.push(other);
        }
    }
    Some(more)
}

/// A count that is small enough to shift by.
fn shift(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
