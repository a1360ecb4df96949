//! Merges the tensors and aliases of all parts into pages.
//!
//! It knows which descriptions agree and what holds for a merged entry as a whole. What holds for
//! an entry of one part was checked when the part was parsed.

use std::collections::BTreeMap;

use super::Derived;
use super::merge::Merge;
use super::names::Names;
use super::pages::{Cutter, Kind};
use crate::common::Common;
use crate::entry::{Entry, Tensor};
use crate::entry_json::Place;
use crate::inventory::InventoryBuilder;
use crate::json::Encoder;
use crate::manifest::{Contents, PageRef};
use crate::part::{Inventory, Part};
use crate::{Code, Error, Result, Role, limits, rule};

/// What the entries give to the manifest.
pub(super) struct Derivation {
    pub(super) contents: Contents,
    pub(super) pages: Vec<PageRef>,
}

pub(super) fn derive(
    parts: &[&Part],
    common: &Common,
    sink: &mut dyn FnMut(Derived<'_>) -> Result<()>,
) -> Result<Derivation> {
    let mut merge = Merge::new(parts.iter().map(|part| keyed(part)).collect())?;
    let mut emit = |page, bytes: &[u8]| sink(Derived::TensorsPage { page, bytes });
    let mut pages = Cutter::new(Kind::Tensors, common.version, &mut emit);
    let mut seen = Seen::default();
    let mut group = Vec::new();
    while let Some(key) = merge.next_group(&mut group)? {
        check_agree(parts, &group).map_err(|error| error.in_tensor(&key))?;
        let Some((source, entry)) = merged(&mut group) else { continue };
        if let Entry::Tensor(tensor) = &entry {
            tensor.check_cover().map_err(|error| error.in_tensor(&key))?;
        }
        let mut json = Encoder::new();
        entry.encode(&mut json, Place::Page);
        pages.push(&key, json.as_bytes())?;
        seen.push(&key, entry, source)?;
    }
    let contents = seen.check(parts)?;
    Ok(Derivation { contents, pages: pages.finish()? })
}

fn keyed(part: &Part) -> impl Iterator<Item = Result<(String, Entry)>> {
    part.entries().map(|entry| entry.map(|entry| (entry.key(), entry)))
}

/// Checks that entries of one key, each with the number of its part, can be merged.
fn check_agree(parts: &[&Part], group: &[(usize, Entry)]) -> Result<()> {
    let Some(((first, expected), others)) = group.split_first() else { return Ok(()) };
    for (other, entry) in others {
        let (code, rule, member) = match (expected, entry) {
            (Entry::Tensor(a), Entry::Tensor(b)) => match differing(a, b) {
                None => continue,
                Some(member) => (Code::TensorConflict, rule::DERIVE_TENSORS, member),
            },
            (Entry::Alias(a), Entry::Alias(b)) if a == b => continue,
            (Entry::Alias(a), Entry::Alias(b)) => {
                let member = if a.of == b.of { "native" } else { "of" };
                (Code::AliasConflict, rule::DERIVE_ALIASES, member)
            }
            _ => (Code::AliasConflict, rule::DERIVE_ALIASES, "kind of entry"),
        };
        let expected = file_name(parts, *first);
        let message = format!("expected the {member} that {expected} gives, found another");
        return Err(Error::rule(code, rule, message).in_file(file_name(parts, *other)));
    }
    Ok(())
}

/// The entry that agreeing entries of one key merge to, and the part that has it first.
fn merged(group: &mut Vec<(usize, Entry)>) -> Option<(usize, Entry)> {
    let mut entries = group.drain(..);
    let (source, mut merged) = entries.next()?;
    if let Entry::Tensor(tensor) = &mut merged {
        for (_, entry) in entries {
            if let Entry::Tensor(other) = entry {
                tensor.chunks.extend(other.chunks);
            }
        }
        // Runs that are sorted already, which this sort merges.
        tensor.chunks.sort_by(|a, b| a.region.at.cmp(&b.region.at));
    }
    Some((source, merged))
}

fn file_name(parts: &[&Part], source: usize) -> String {
    parts.get(source).map_or_else(String::new, |part| part.file_name())
}

/// The first member, chunks aside, in which two tensors of one identity differ.
fn differing(a: &Tensor, b: &Tensor) -> Option<&'static str> {
    let members = [
        ("axes", a.axes == b.axes),
        ("block", a.block == b.block),
        ("dtype", a.dtype == b.dtype),
        ("native", a.native == b.native),
        ("shape", a.shape == b.shape),
        ("valid", a.valid == b.valid),
    ];
    members.into_iter().find(|(_, same)| !same).map(|(name, _)| name)
}

/// What is kept of the entries that went by.
#[derive(Default)]
struct Seen {
    entries: u64,
    chunks: u64,
    /// By component and by the id of the role: the order in the manifest.
    contents: BTreeMap<String, BTreeMap<&'static str, (Role, u64)>>,
    inventory: InventoryBuilder,
    names: Names,
}

impl Seen {
    fn push(&mut self, key: &str, entry: Entry, source: usize) -> Result<()> {
        self.entries = self.entries.saturating_add(1);
        at_most(self.entries, limits::TENSORS, "tensors")?;
        self.inventory.push(key);
        match entry {
            Entry::Tensor(tensor) => {
                self.chunks = self.chunks.saturating_add(tensor.chunks.len() as u64);
                at_most(self.chunks, limits::CHUNKS, "chunks")?;
                let identity = tensor.identity;
                self.names.tensor(key, identity.role, !tensor.chunks.is_empty());
                let roles = self.contents.entry(identity.component).or_default();
                let (_, count) = roles.entry(identity.role.as_str()).or_insert((identity.role, 0));
                *count = count.saturating_add(1);
            }
            Entry::Alias(alias) => self.names.alias(key, alias, source),
        }
        Ok(())
    }

    /// Checks what can be seen only after the last entry: aliases, names, the inventory.
    fn check(self, parts: &[&Part]) -> Result<Contents> {
        self.names
            .check_aliases()
            .map_err(|(error, source)| error.in_file(file_name(parts, source)))?;
        self.names.check_one_name()?;
        check_inventory(parts, &self.inventory.finish())?;
        let counted = |(component, roles): (String, BTreeMap<_, _>)| {
            (component, roles.into_values().collect())
        };
        Ok(self.contents.into_iter().map(counted).collect())
    }
}

/// Checks what the parts state, which is the same in all that state it.
fn check_inventory(parts: &[&Part], found: &Inventory) -> Result<()> {
    let stated = |part: &&'_ Part| Some((part.file_name(), part.inventory?));
    match parts.iter().find_map(stated) {
        Some((file, expected)) if expected != *found => {
            let message = format!(
                "expected {} identities of digest {}, found {} of {}",
                expected.count, expected.sha256, found.count, found.sha256
            );
            let error = Error::rule(Code::InventoryMismatch, rule::PART_INVENTORY, message);
            Err(error.in_file(file).at_pointer("/inventory"))
        }
        _ => Ok(()),
    }
}

fn at_most(found: u64, limit: u64, name: &str) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    let message = format!("expected at most {limit} ({name}), found more");
    Err(Error::rule(Code::Limit, rule::LIMIT_VALUE, message))
}
