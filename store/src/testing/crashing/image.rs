//! What is on a disk: files and directories, each state cheap to make from another.
//!
//! It knows trees of names and bytes. It must not know how they came to be there.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::book::{Change, Ino};
use crate::fs::Fs;
use crate::memory::{MemoryDir, MemoryFs};

/// A disk without power.
#[derive(Clone, Debug)]
pub struct Image {
    /// By their numbers; the first is the root.
    pub(super) nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Arc<Content>),
    Directory(BTreeMap<String, Ino>),
}

#[derive(Debug)]
pub(super) struct Content {
    bytes: Vec<u8>,
    hash: u64,
}

impl Content {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Node {
    pub(super) fn file(bytes: Vec<u8>) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Self::File(Arc::new(Content { hash: hasher.finish(), bytes }))
    }

    /// As it was when it was made.
    pub(super) fn empty_alike(&self) -> Self {
        match self {
            Self::File(_) => Self::file(Vec::new()),
            Self::Directory(_) => Self::Directory(BTreeMap::new()),
        }
    }
}

impl Default for Image {
    fn default() -> Self {
        Self { nodes: vec![Node::Directory(BTreeMap::new())] }
    }
}

impl Image {
    /// The same disk as a file system to read from or go on with. Two names of one file are so where
    /// they are in one directory.
    #[must_use]
    pub fn memory(&self) -> MemoryFs {
        let fs = MemoryFs::new();
        let root = fs.root();
        self.fill(&fs, &root, Ino::ROOT);
        fs
    }

    /// Two disks with the same have the same files under the same names, whatever was drawn at random
    /// for the names of temporaries.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_below(Ino::ROOT, &mut hasher);
        hasher.finish()
    }

    /// The [`fingerprint`](Image::fingerprint) of what is below a directory of the root; `None` where
    /// there is none of that name.
    #[must_use]
    pub fn fingerprint_of(&self, name: &str) -> Option<u64> {
        let Some(Node::Directory(root)) = self.nodes.first() else { return None };
        let mut hasher = DefaultHasher::new();
        self.hash_below(*root.get(name)?, &mut hasher);
        Some(hasher.finish())
    }

    /// After these changes; what a file has by its length alone is `fill`.
    pub(super) fn with<'c>(&self, changes: impl IntoIterator<Item = &'c Change>, fill: u8) -> Self {
        let mut nodes = self.nodes.clone();
        let mut files: BTreeMap<Ino, Building> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Entry { dir, name, to } => {
                    let Some(Node::Directory(entries)) = nodes.get_mut(dir.0) else { continue };
                    match to {
                        Some(ino) => drop(entries.insert(name.clone(), *ino)),
                        None => drop(entries.remove(name)),
                    }
                }
                Change::Length { file, bytes } => {
                    let building = files.entry(*file).or_insert_with(|| self.building(*file));
                    building.length = building.length.max(size(*bytes));
                }
                Change::Data { file, offset, bytes } => {
                    let building = files.entry(*file).or_insert_with(|| self.building(*file));
                    building.write(size(*offset), bytes, fill);
                }
            }
        }
        for (file, building) in files {
            if let Some(node) = nodes.get_mut(file.0) {
                *node = building.finish(fill);
            }
        }
        Self { nodes }
    }

    fn building(&self, file: Ino) -> Building {
        match self.nodes.get(file.0) {
            Some(Node::File(content)) => {
                Building { length: content.bytes.len(), bytes: content.bytes.clone() }
            }
            _ => Building { length: 0, bytes: Vec::new() },
        }
    }

    fn fill(&self, fs: &MemoryFs, into: &MemoryDir, dir: Ino) {
        let Some(Node::Directory(entries)) = self.nodes.get(dir.0) else { return };
        let mut names: BTreeMap<Ino, &str> = BTreeMap::new();
        for (name, ino) in entries {
            // In memory none of these can fail: the directory is new, and its names are its own.
            match self.nodes.get(ino.0) {
                Some(Node::File(_)) if names.contains_key(ino) => {
                    let first = names.get(ino).copied().unwrap_or_default();
                    let _ = fs.link(into, first, name);
                }
                Some(Node::File(content)) => {
                    names.insert(*ino, name);
                    let file = fs.create(into, name);
                    let _ = file.and_then(|file| fs.write_at(&file, &content.bytes, 0));
                }
                Some(Node::Directory(_)) => {
                    let _ = fs.make_dir(into, name);
                    if let Ok(below) = fs.open_dir(into, name) {
                        self.fill(fs, &below, *ino);
                    }
                }
                None => {}
            }
        }
    }

    fn hash_below(&self, dir: Ino, hasher: &mut DefaultHasher) {
        let Some(Node::Directory(entries)) = self.nodes.get(dir.0) else { return };
        // Temporaries are told apart by their bytes, not by their names.
        let mut temporaries = Vec::new();
        for (name, ino) in entries {
            match self.nodes.get(ino.0) {
                Some(Node::File(content)) if name.starts_with("tmp-") => {
                    temporaries.push(content.hash);
                }
                Some(Node::File(content)) => (name, content.hash).hash(hasher),
                Some(Node::Directory(_)) => {
                    (name, "/").hash(hasher);
                    self.hash_below(*ino, hasher);
                    "..".hash(hasher);
                }
                None => {}
            }
        }
        temporaries.sort_unstable();
        temporaries.hash(hasher);
    }
}

/// A file while changes come to it: bytes may be there that its length does not reach.
struct Building {
    length: usize,
    bytes: Vec<u8>,
}

impl Building {
    fn write(&mut self, offset: usize, bytes: &[u8], fill: u8) {
        let end = offset.saturating_add(bytes.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, fill);
        }
        if let Some(place) = self.bytes.get_mut(offset..end) {
            place.copy_from_slice(bytes);
        }
    }

    fn finish(mut self, fill: u8) -> Node {
        self.bytes.resize(self.length, fill);
        Node::file(self.bytes)
    }
}

/// What was in memory once fits there.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
