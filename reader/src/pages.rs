//! Pages of entries and records: read when needed, checked whole, kept within a bound.
//!
//! It knows which page holds a key, and steps 6 of spec 12.1. It must not know tensor data.

use std::sync::Arc;

use waystation_format::entry::{Alias, Entry};
use waystation_format::manifest::{Manifest, PageRef};
use waystation_format::page::{RecordPage, TensorPage};
use waystation_format::record::Record;
use waystation_format::{Code, Error, Result, limits, names, rule};
use waystation_store::Store;

use crate::cache::Cache;
use crate::complete::read_file;
use crate::options::Budget;

/// Parsed pages weigh about this many times their text.
const PARSED_WEIGHT: u64 = 4;

/// Parsed pages are kept up to this weight in bytes, or a quarter of the caller's budget.
const KEPT_BYTES: u64 = 192 << 20;

/// A page of tensors and aliases, whose every rule of depth O holds but the aliases' targets.
#[derive(Debug)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<Arc<Entry>>,
    /// The identity key of each.
    keys: Vec<Box<str>>,
}

/// The pages of one checkpoint.
#[derive(Debug)]
pub(crate) struct Pages {
    tensors: Cache<u32, Arc<Entries>>,
    records: Cache<u32, Arc<Vec<Record>>>,
    budget: Budget,
}

impl Entries {
    /// Where `key` stands, or would.
    pub(crate) fn search(&self, key: &str) -> std::result::Result<usize, usize> {
        self.keys.binary_search_by(|at| (**at).cmp(key))
    }

    pub(crate) fn key(&self, at: usize) -> Option<&str> {
        self.keys.get(at).map(|key| &**key)
    }
}

impl Pages {
    pub(crate) fn new(budget: Budget) -> Self {
        let kept = budget.0.map_or(KEPT_BYTES, |most| KEPT_BYTES.min(most.div_ceil(4)));
        Self { tensors: Cache::new(kept), records: Cache::new(kept), budget }
    }

    pub(crate) fn tensors(
        &self,
        store: &dyn Store,
        manifest: &Manifest,
        page: u32,
    ) -> Result<Arc<Entries>> {
        self.tensors.get_or(&page, || {
            let raw = read_tensors(store, manifest, page, self.budget)?;
            let weight = weight(raw.len());
            Ok((Arc::new(parse_tensors(&raw, manifest, page)?), weight))
        })
    }

    /// The entry of an identity key.
    pub(crate) fn find(
        &self,
        store: &dyn Store,
        manifest: &Manifest,
        key: &str,
    ) -> Result<Option<Arc<Entry>>> {
        let Some(page) = page_of(&manifest.tensors, key) else { return Ok(None) };
        let page = self.tensors(store, manifest, page)?;
        Ok(page.search(key).ok().and_then(|at| page.entries.get(at)).cloned())
    }

    pub(crate) fn records(
        &self,
        store: &dyn Store,
        manifest: &Manifest,
        page: u32,
    ) -> Result<Arc<Vec<Record>>> {
        self.records.get_or(&page, || {
            let raw = read_records(store, manifest, page, self.budget)?;
            let weight = weight(raw.len());
            Ok((Arc::new(parse_records(&raw, manifest, page)?), weight))
        })
    }
}

/// The only page that may hold `key`: the last whose first key is not above it.
pub(crate) fn page_of(pages: &[PageRef], key: &str) -> Option<u32> {
    let after = pages.partition_point(|page| page.first.as_str() <= key);
    u32::try_from(after.checked_sub(1)?).ok()
}

/// Checks the target of an alias, which stands in page number `page`.
///
/// # Errors
/// `bad-alias` when it is no tensor with elements.
pub(crate) fn check_target(alias: &Alias, page: u32, target: Option<&Entry>) -> Result<()> {
    let (rule, found) = match target {
        Some(Entry::Tensor(tensor)) if !tensor.chunks.is_empty() => return Ok(()),
        Some(Entry::Tensor(_)) => (rule::ALIAS_ELEMENTS, "a tensor without chunks"),
        Some(Entry::Alias(_)) => (rule::ALIAS_TARGET, "an alias"),
        None => (rule::ALIAS_TARGET, "nothing of its identity"),
    };
    let message = format!("expected a tensor with elements as the alias's target, found {found}");
    Err(Error::rule(Code::BadAlias, rule, message)
        .in_file(names::tensors_page(page))
        .in_tensor(alias.identity().key()))
}

/// The bytes of a page of tensors.
pub(crate) fn read_tensors(
    store: &dyn Store,
    manifest: &Manifest,
    page: u32,
    budget: Budget,
) -> Result<Vec<u8>> {
    read(store, &names::tensors_page(page), page_ref(&manifest.tensors, page)?, budget)
}

/// The bytes of a page of records.
pub(crate) fn read_records(
    store: &dyn Store,
    manifest: &Manifest,
    page: u32,
    budget: Budget,
) -> Result<Vec<u8>> {
    read(store, &names::records_page(page), page_ref(&manifest.records, page)?, budget)
}

pub(crate) fn parse_tensors(raw: &[u8], manifest: &Manifest, page: u32) -> Result<Entries> {
    let (mut entries, mut keys) = (Vec::new(), Vec::new());
    each_entry(raw, manifest, page, &mut |entry| {
        keys.push(entry.key().into_boxed_str());
        entries.push(Arc::new(entry));
    })?;
    Ok(Entries { entries, keys })
}

/// The entries of a page one by one, for whom keeping all of them would be too much.
pub(crate) fn each_entry(
    raw: &[u8],
    manifest: &Manifest,
    page: u32,
    take: &mut dyn FnMut(Entry),
) -> Result<()> {
    TensorPage::each(raw, manifest, page, take).map_err(|e| e.in_file(names::tensors_page(page)))
}

pub(crate) fn parse_records(raw: &[u8], manifest: &Manifest, page: u32) -> Result<Vec<Record>> {
    let name = || names::records_page(page);
    Ok(RecordPage::parse(raw, manifest, page).map_err(|e| e.in_file(name()))?.records)
}

/// Length and digest are compared when it is parsed.
fn read(store: &dyn Store, name: &str, page: &PageRef, budget: Budget) -> Result<Vec<u8>> {
    let parsed = page.bytes.saturating_mul(PARSED_WEIGHT);
    budget.check(parsed, "a parsed page").map_err(|e| e.in_file(name))?;
    read_file(store, name, limits::PAGE_BYTES, budget)
}

fn page_ref(pages: &[PageRef], page: u32) -> Result<&PageRef> {
    usize::try_from(page).ok().and_then(|at| pages.get(at)).ok_or_else(|| {
        let message = format!("expected one of {} pages, found page {page}", pages.len());
        Error::new(Code::BadArgument, message)
    })
}

fn weight(raw: usize) -> u64 {
    u64::try_from(raw).unwrap_or(u64::MAX).saturating_mul(PARSED_WEIGHT)
}
