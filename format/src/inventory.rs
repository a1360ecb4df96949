//! The inventory: how many identities a checkpoint must have, and their digest.
//!
//! It knows how identity keys are counted and hashed. It must not know where they come from.

use crate::digest::Hasher;
use crate::part::Inventory;

/// Takes the identity keys of all tensors and aliases in strictly ascending order.
#[derive(Clone, Debug, Default)]
pub struct InventoryBuilder {
    count: u64,
    hasher: Hasher,
}

impl InventoryBuilder {
    /// No key yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next key, canonical JSON without a newline.
    pub fn push(&mut self, key: &str) {
        self.count = self.count.saturating_add(1);
        self.hasher.update(key.as_bytes());
        self.hasher.update(b"\n");
    }

    /// The inventory of the keys taken.
    #[must_use]
    pub fn finish(self) -> Inventory {
        Inventory { count: self.count, sha256: self.hasher.finish() }
    }
}

impl Inventory {
    /// The inventory of these identity keys, in any order; one given twice counts once.
    #[must_use]
    pub fn of<'k>(keys: impl IntoIterator<Item = &'k str>) -> Self {
        let mut keys: Vec<&str> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        let mut builder = InventoryBuilder::new();
        keys.into_iter().for_each(|key| builder.push(key));
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    #[test]
    fn it_is_the_digest_of_sorted_lines() {
        let inventory = Inventory::of(["b", "a", "b"]);
        assert_eq!(inventory.count, 2);
        assert_eq!(inventory.sha256, Digest::of(b"a\nb\n"));
        assert_eq!(Inventory::of([]).sha256, Digest::of(b""));
    }
}
