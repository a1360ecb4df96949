//! Files of a checkpoint or run in memory, by path.

use std::collections::BTreeMap;

/// Content by path relative to the case's folder `given`, with `/` between components.
pub type Files = BTreeMap<String, Vec<u8>>;

/// What turns one set of files into another: the overlay that git holds for a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Files that are new or differ.
    pub written: Files,
    /// Paths that are gone.
    pub removed: Vec<String>,
}

impl Overlay {
    /// What makes `to` of `from`.
    #[must_use]
    pub fn between(from: &Files, to: &Files) -> Self {
        let differs = |(path, bytes): &(&String, &Vec<u8>)| from.get(*path) != Some(*bytes);
        Self {
            written: to.iter().filter(differs).map(|(p, b)| (p.clone(), b.clone())).collect(),
            removed: from.keys().filter(|path| !to.contains_key(*path)).cloned().collect(),
        }
    }

    /// `base` as the overlay changes it.
    #[must_use]
    pub fn over(&self, base: &Files) -> Files {
        let mut files = base.clone();
        files.retain(|path, _| !self.removed.contains(path));
        files.extend(self.written.iter().map(|(path, bytes)| (path.clone(), bytes.clone())));
        files
    }
}
