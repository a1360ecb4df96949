//! The names that tensors and aliases of the model go by, for the checks that look across entries.
//!
//! It knows identity keys of params and buffers in their order. Other roles can be neither
//! aliased nor share a name, so it never holds them.

use crate::entry::Alias;
use crate::identity::Identity;
use crate::{Code, Error, Result, Role, rule};

/// Keys of params and buffers, tensors and aliases, in strictly ascending order.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// All keys, one after the other.
    text: String,
    /// Where each ends in `text`, and what it is.
    keys: Vec<Key>,
    aliases: Vec<(Alias, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Key {
    end: usize,
    role: Role,
    holder: Holder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Tensor,
    EmptyTensor,
    Alias,
}

impl Names {
    /// Takes the next tensor, of any role.
    pub(super) fn tensor(&mut self, key: &str, role: Role, has_chunks: bool) {
        if matches!(role, Role::Param | Role::Buffer) {
            self.push(key, role, if has_chunks { Holder::Tensor } else { Holder::EmptyTensor });
        }
    }

    /// Takes the next alias; `source` says whose it is.
    pub(super) fn alias(&mut self, key: &str, alias: Alias, source: usize) {
        self.push(key, alias.role, Holder::Alias);
        self.aliases.push((alias, source));
    }

    /// Checks that every alias has a target with elements. The error's second half is the source
    /// of the alias.
    pub(super) fn check_aliases(&self) -> Result<(), (Error, usize)> {
        for (alias, source) in &self.aliases {
            let target = alias.of.key();
            let (rule, found) = match self.find(&target) {
                Some(Holder::Tensor) => continue,
                Some(Holder::EmptyTensor) => (rule::ALIAS_ELEMENTS, "a tensor without chunks"),
                Some(Holder::Alias) => (rule::ALIAS_TARGET, "an alias"),
                None => (rule::ALIAS_TARGET, "nothing"),
            };
            let message = format!("expected a tensor with elements as {target}, found {found}");
            let error =
                Error::rule(Code::BadAlias, rule, message).in_tensor(alias.identity().key());
            return Err((error, *source));
        }
        Ok(())
    }

    /// Checks that no param and buffer of one component and scope share a name.
    ///
    /// An alias of the same role and name has the same key as a tensor's and is refused as a
    /// conflict of entries, so what is left to find is one name under both roles.
    pub(super) fn check_one_name(&self) -> Result<()> {
        let mut begin = 0;
        for Key { end, role, .. } in &self.keys {
            let key = self.text.get(begin..*end).unwrap_or_default();
            begin = *end;
            if *role != Role::Buffer {
                continue;
            }
            let twin = Identity { role: Role::Param, ..Identity::parse_key(key)? }.key();
            if self.find(&twin).is_some() {
                let message = format!("expected each name once, found it as {key} and as {twin}");
                let error = Error::rule(Code::NameConflict, rule::IDENTITY_ONE_NAME, message);
                return Err(error.in_tensor(key));
            }
        }
        Ok(())
    }

    fn push(&mut self, key: &str, role: Role, holder: Holder) {
        self.text.push_str(key);
        self.keys.push(Key { end: self.text.len(), role, holder });
    }

    fn find(&self, key: &str) -> Option<Holder> {
        let (mut low, mut high) = (0, self.keys.len());
        while low < high {
            let middle = low.midpoint(high);
            let (found, holder) = self.at(middle)?;
            match found.cmp(key) {
                std::cmp::Ordering::Equal => return Some(holder),
                std::cmp::Ordering::Less => low = middle.checked_add(1)?,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    fn at(&self, index: usize) -> Option<(&str, Holder)> {
        let begin = match index.checked_sub(1) {
            Some(before) => self.keys.get(before)?.end,
            None => 0,
        };
        let key = self.keys.get(index)?;
        Some((self.text.get(begin..key.end)?, key.holder))
    }
}
