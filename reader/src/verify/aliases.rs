//! What aliases name, over all pages.
//!
//! It knows the order in which pages have to be read so that each is read once, whatever aliases
//! name: a hostile checkpoint has as many aliases as it likes, and pages as long.

use waystation_format::entry::{Alias, Entry};
use waystation_format::manifest::Manifest;
use waystation_format::{Error, Result};

use super::Check;
use crate::options::Budget;
use crate::pages::{check_target, each_entry, page_of, read_tensors};
use crate::progress::go_on;

/// An alias that waits for its target.
struct Waiting<'a> {
    /// The page that would hold the target; `None` when it would stand before all pages.
    page: Option<u32>,
    /// The target's identity key.
    key: String,
    /// Position among the aliases.
    at: usize,
    /// The page of the alias itself.
    own: u32,
    alias: &'a Alias,
}

impl Check<'_> {
    /// The targets of `aliases`, each with the page in which it stands, where their pages are good.
    pub(super) fn aliases(&mut self, manifest: &Manifest, aliases: &[(u32, Alias)]) -> Result<()> {
        let mut waiting = Vec::with_capacity(aliases.len());
        for (at, (own, alias)) in aliases.iter().enumerate() {
            let key = alias.of.key();
            let page = page_of(&manifest.tensors, &key);
            waiting.push(Waiting { page, key, at, own: *own, alias });
        }
        waiting.sort_unstable_by(|a, b| (a.page, &a.key, a.at).cmp(&(b.page, &b.key, b.at)));
        let mut breaches: Vec<(usize, Error)> = Vec::new();
        for group in waiting.chunk_by(|a, b| a.page == b.page) {
            go_on(self.progress)?;
            // What is wrong with a page was found before, and nothing is known of what it holds.
            breaches.append(&mut self.in_one_page(manifest, group).unwrap_or_default());
        }
        breaches.sort_unstable_by_key(|(at, _)| *at);
        self.found.extend(breaches.into_iter().map(|(_, e)| e));
        Ok(())
    }

    /// Breaches of aliases whose targets would stand in one page, ascending by key.
    fn in_one_page(
        &self,
        manifest: &Manifest,
        waiting: &[Waiting<'_>],
    ) -> Result<Vec<(usize, Error)>> {
        let mut rest = waiting;
        let mut breaches = Vec::new();
        let mut settle = |one: &Waiting<'_>, target: Option<&Entry>| {
            breaches.extend(check_target(one.alias, one.own, target).err().map(|e| (one.at, e)));
        };
        if let Some(page) = waiting.first().and_then(|first| first.page) {
            let raw = read_tensors(self.store, manifest, page, Budget::default())?;
            each_entry(&raw, manifest, page, &mut |entry| {
                let key = entry.key();
                while let Some((one, after)) = rest.split_first().filter(|(one, _)| one.key <= key)
                {
                    settle(one, (one.key == key).then_some(&entry));
                    rest = after;
                }
            })?;
        }
        for one in rest {
            settle(one, None);
        }
        Ok(breaches)
    }
}
