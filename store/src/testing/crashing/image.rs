//! What is on a disk: files and directories, each state cheap to make from another.
//!
//! It knows trees of names and bytes. It must not know how they came to be there.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::book::{Change, Ino};
use super::crash::Coverage;
use super::open::Open;
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
    /// Of a file whose bytes may be others.
    open: Option<Open>,
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
        Self::File(Arc::new(Content { hash: hasher.finish(), bytes, open: None }))
    }

    /// A file of which only the length is known.
    pub(super) fn open(open: Open) -> Self {
        let mut hasher = DefaultHasher::new();
        ("open", open.bytes.len()).hash(&mut hasher);
        let bytes = open.bytes.clone();
        Self::File(Arc::new(Content { hash: hasher.finish(), bytes, open: Some(open) }))
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

    /// Whether bytes were read that may be others: what was seen then is one case of several.
    #[must_use]
    pub fn was_read(&self) -> bool {
        self.open().any(|(_, open)| open.was_read())
    }

    /// The disks that this one stands for where bytes were read that may be others, one of these files
    /// settled in each, and whether these are all. None where nothing was read that is open.
    #[must_use]
    pub fn settled(&self) -> (Coverage, Vec<Self>) {
        let Some((at, open)) = self.open().find(|(_, open)| open.was_read()) else {
            return (Coverage::Exhaustive, Vec::new());
        };
        let (all, contents) = open.settled();
        let settle = |bytes| {
            let mut image = self.clone();
            for node in &mut image.nodes {
                if let Node::File(content) = node
                    && let Some(open) = &content.open
                {
                    *node = Node::open(open.anew());
                }
            }
            if let Some(node) = image.nodes.get_mut(at) {
                *node = Node::file(bytes);
            }
            image
        };
        let coverage = if all { Coverage::Exhaustive } else { Coverage::Sampled };
        (coverage, contents.into_iter().map(settle).collect())
    }

    fn open(&self) -> impl Iterator<Item = (usize, &Open)> {
        self.nodes.iter().enumerate().filter_map(|(at, node)| match node {
            Node::File(content) => Some((at, content.open.as_ref()?)),
            Node::Directory(_) => None,
        })
    }

    /// After these changes; what a file has by its length alone is `fill`.
    pub(super) fn with<'c>(&self, changes: impl IntoIterator<Item = &'c Change>, fill: u8) -> Self {
        let mut image = self.clone();
        let mut files: BTreeMap<Ino, Building> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Entry { dir, name, to } => image.set_entry(*dir, name, *to),
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
            image.set_file(file, building.finish(fill));
        }
        image
    }

    /// What a name stands for.
    pub(super) fn entry(&self, dir: Ino, name: &str) -> Option<Ino> {
        match self.nodes.get(dir.0)? {
            Node::Directory(entries) => entries.get(name).copied(),
            Node::File(_) => None,
        }
    }

    pub(super) fn set_entry(&mut self, dir: Ino, name: &str, to: Option<Ino>) {
        let Some(Node::Directory(entries)) = self.nodes.get_mut(dir.0) else { return };
        match to {
            Some(ino) => drop(entries.insert(name.to_owned(), ino)),
            None => drop(entries.remove(name)),
        }
    }

    pub(super) fn bytes(&self, file: Ino) -> &[u8] {
        match self.nodes.get(file.0) {
            Some(Node::File(content)) => &content.bytes,
            _ => &[],
        }
    }

    pub(super) fn set_file(&mut self, file: Ino, to: Node) {
        if let Some(node) = self.nodes.get_mut(file.0) {
            *node = to;
        }
    }

    /// The files that have a name.
    pub(super) fn files(&self) -> BTreeSet<Ino> {
        let mut found = BTreeSet::new();
        let mut directories = vec![Ino::ROOT];
        while let Some(dir) = directories.pop() {
            let Some(Node::Directory(entries)) = self.nodes.get(dir.0) else { continue };
            for ino in entries.values() {
                match self.nodes.get(ino.0) {
                    Some(Node::File(_)) => drop(found.insert(*ino)),
                    Some(Node::Directory(_)) => directories.push(*ino),
                    None => {}
                }
            }
        }
        found
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
                    let Ok(file) = file else { continue };
                    let _ = fs.write_at(&file, &content.bytes, 0);
                    if let Some(open) = &content.open {
                        file.watch(open.watch());
                    }
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
