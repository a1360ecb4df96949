//! Reading the list of entries of a part or page with every check that each needs.
//!
//! It knows in which order an entry is checked (12.1). It must not know the rest of the file.

use crate::common::Topology;
use crate::entry::Entry;
use crate::entry_json::Place;
use crate::json::{Cursor, pointer_at};
use crate::part::ShardEntry;
use crate::{Code, Error, Result};

/// What the entries of a file are checked against.
pub(crate) struct Checks<'c> {
    pub(crate) place: Place,
    pub(crate) topology: &'c Topology,
    pub(crate) block_bytes: u64,
    /// The shard of a writer at a position.
    pub(crate) shard: &'c dyn Fn(u32, u32) -> Option<&'c ShardEntry>,
    /// The rule that keys out of order break.
    pub(crate) order: &'static str,
    /// The key that the first entry must have, where one is stated.
    pub(crate) first: Option<&'c str>,
    /// What all keys must be below, where something is.
    pub(crate) below: Option<&'c str>,
    /// Whether the chunks must cover the shape: not in a part.
    pub(crate) cover: bool,
}

impl Checks<'_> {
    /// Reads the list at the cursor, giving each entry that passes to `keep`.
    pub(crate) fn read(&self, cursor: &mut Cursor<'_>, keep: &mut dyn FnMut(Entry)) -> Result<()> {
        let mut items = cursor.begin_array()?;
        let mut before: Option<String> = None;
        while cursor.next_item(&mut items)? {
            let start = cursor.offset();
            let entry = Entry::read(cursor, self.place)?;
            let key = entry.key();
            self.check(&entry, before.as_deref(), &key).map_err(|error| {
                error.under_pointer(&pointer_at(cursor.text(), start)).in_tensor(&*key)
            })?;
            before = Some(key);
            keep(entry);
        }
        Ok(())
    }

    fn check(&self, entry: &Entry, before: Option<&str>, key: &str) -> Result<()> {
        let Entry::Tensor(tensor) = entry else {
            entry.check(self.topology)?;
            return self.check_key(before, key);
        };
        tensor.check_description(self.topology)?;
        self.check_key(before, key)?;
        tensor.check_chunks(self.block_bytes, self.shard)?;
        if self.cover { tensor.check_cover() } else { Ok(()) }
    }

    fn check_key(&self, before: Option<&str>, key: &str) -> Result<()> {
        check_key(self.order, self.first, self.below, before, key)
    }
}

/// Checks the place of a key: the first is `first`, each is above the one before, all are below
/// `below`, as far as these are given.
pub(crate) fn check_key(
    rule: &'static str,
    first: Option<&str>,
    below: Option<&str>,
    before: Option<&str>,
    key: &str,
) -> Result<()> {
    let message = match (before, first, below) {
        (Some(before), _, _) if key <= before => {
            format!("expected a key above {before}, found {key}")
        }
        (None, Some(first), _) if key != first => format!("expected the key {first}, found {key}"),
        (_, _, Some(below)) if key >= below => format!("expected a key below {below}, found {key}"),
        _ => return Ok(()),
    };
    Err(Error::rule(Code::BadOrder, rule, message))
}
