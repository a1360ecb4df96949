//! A complete checkpoint, open for reading.
//!
//! It knows the root and finds entries, records and tensors in the pages. It must not know
//! directories beyond names, nor how data is read: `tensor`, `plan` and `read` do.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use waystation_format::entry::{Alias, Entry, Tensor};
use waystation_format::manifest::Manifest;
use waystation_format::record::{Record, RecordKey};
use waystation_format::{Code, Digest, Error, Identity, Region, Result, rule};
use waystation_store::{Store, open_path};

use crate::complete::{complete, zeroed};
use crate::links::TrustedLinks;
use crate::options::{OpenOptions, threads};
use crate::pages::{Entries, Pages, check_target, page_of};
use crate::plan::{Builder, Plan, Want};
use crate::progress::{NoProgress, Progress};
use crate::read::Backend;
use crate::shards::Shards;
use crate::tensor::TensorRef;

/// A complete checkpoint. Opening reads the commit file and the manifest and looks at the kind and
/// length of every file; pages are read when they are needed, tensor data when it is asked for.
///
/// It may be shared among threads.
pub struct Checkpoint {
    store: Arc<dyn Store>,
    manifest: Manifest,
    digest: Digest,
    options: OpenOptions,
    pages: Pages,
    shards: Shards,
}

impl Checkpoint {
    /// Opens the checkpoint in the directory `path`, which may have any name.
    ///
    /// # Errors
    /// The first breach in the order of spec 12.1: `deleted`, `not-committed`, `commit-grammar`,
    /// `digest-mismatch`, …; `not-found` when there is no such directory.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, OpenOptions::default())
    }

    /// Opens the checkpoint in the directory `path`, with choices.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: &Path, options: OpenOptions) -> Result<Self> {
        let store = open_path(path)?;
        if options.trust_links {
            return Self::open_store(Arc::new(TrustedLinks::new(store, path)), options);
        }
        Self::open_store(store, options)
    }

    /// Opens the checkpoint whose files `store` holds.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_store(store: Arc<dyn Store>, options: OpenOptions) -> Result<Self> {
        let root = complete(&*store, options.budget())?;
        let pages = Pages::new(options.budget());
        let shards = Shards::new();
        Ok(Self { store, manifest: root.manifest, digest: root.digest, options, pages, shards })
    }

    /// The root.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The digest of the manifest, which the commit file names: it stands for the checkpoint.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Where the files are.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The choices with which it was opened.
    #[must_use]
    pub fn options(&self) -> &OpenOptions {
        &self.options
    }

    /// Optimizer steps completed.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.manifest.common.step
    }

    /// The run's name.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.manifest.common.run
    }

    /// The number of pages of tensors and aliases.
    #[must_use]
    pub fn tensor_pages(&self) -> u32 {
        u32::try_from(self.manifest.tensors.len()).unwrap_or(u32::MAX)
    }

    /// All tensors and aliases, ascending by identity key, page by page. It ends after an error. The
    /// targets of aliases are not looked at.
    pub fn entries(&self) -> impl Iterator<Item = Result<Arc<Entry>>> + '_ {
        self.entries_in_pages(0..self.tensor_pages())
    }

    /// The entries of some pages: a contiguous share of all.
    pub fn entries_in_pages(
        &self,
        pages: Range<u32>,
    ) -> impl Iterator<Item = Result<Arc<Entry>>> + '_ {
        Walk { checkpoint: self, pages, page: None, end: None }
    }

    /// The entries whose identity keys are from `from` to below `until`, `None` being no bound.
    ///
    /// # Errors
    /// Those of the first page.
    pub fn entries_between(
        &self,
        from: Option<&str>,
        until: Option<&str>,
    ) -> Result<impl Iterator<Item = Result<Arc<Entry>>> + '_> {
        let end = until.map(Box::from);
        let pages = &self.manifest.tensors;
        let Some((from, first)) = from.and_then(|key| Some((key, page_of(pages, key)?))) else {
            return Ok(Walk { checkpoint: self, pages: 0..self.tensor_pages(), page: None, end });
        };
        let page = self.page(first)?;
        let at = page.search(from).unwrap_or_else(|at| at);
        let pages = first.saturating_add(1)..self.tensor_pages();
        Ok(Walk { checkpoint: self, pages, page: Some((page, at)), end })
    }

    /// The tensor or alias of an identity, `None` when there is none.
    ///
    /// # Errors
    /// Breaches of the page that would hold it. The target of an alias is not looked at.
    pub fn find(&self, identity: &Identity) -> Result<Option<Arc<Entry>>> {
        self.find_key(&identity.key())
    }

    /// A tensor, by its own identity or by that of an alias of it.
    ///
    /// # Errors
    /// As [`find`](Self::find); `not-found` when there is none; `bad-alias` when it is an alias of
    /// what is no tensor with elements.
    pub fn tensor(&self, identity: &Identity) -> Result<TensorRef<'_>> {
        let key = identity.key();
        let found = self.find_key(&key)?.ok_or_else(|| {
            Error::rule(Code::NotFound, rule::OPEN_FIND, "expected a tensor, found none")
                .in_tensor(key)
        })?;
        self.tensor_of(&found)
    }

    /// The tensor of an entry of this checkpoint; of an alias, its target.
    ///
    /// # Errors
    /// `bad-alias` when it is an alias of what is no tensor with elements, breaches of the page that would hold the target.
    pub fn tensor_of(&self, entry: &Arc<Entry>) -> Result<TensorRef<'_>> {
        let target = match &**entry {
            Entry::Tensor(_) => Arc::clone(entry),
            Entry::Alias(alias) => self.target(alias)?,
        };
        TensorRef::new(self, target)
    }

    /// All records, ascending by record key, page by page. It ends after an error.
    pub fn records(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        let pages = 0..self.record_pages();
        let mut failed = false;
        let pages = pages.map_while(move |page| {
            if failed {
                return None;
            }
            let records = self.record_page(page);
            failed = records.is_err();
            Some(records)
        });
        pages.flat_map(|page| {
            let (records, error) = match page {
                Ok(records) => (Some(records), None),
                Err(e) => (None, Some(Err(e))),
            };
            let count = records.as_ref().map_or(0, |records| records.len());
            (0..count).filter_map(move |at| records.as_ref()?.get(at).cloned().map(Ok)).chain(error)
        })
    }

    pub(crate) fn record_pages(&self) -> u32 {
        u32::try_from(self.manifest.records.len()).unwrap_or(u32::MAX)
    }

    /// The records of one page.
    pub(crate) fn records_in_page(&self, page: u32) -> Result<Arc<Vec<Record>>> {
        self.record_page(page)
    }

    /// The record of a key, `None` when there is none.
    ///
    /// # Errors
    /// Breaches of the page that would hold it.
    pub fn record(&self, key: &RecordKey) -> Result<Option<Record>> {
        let text = key.key();
        let Some(page) = page_of(&self.manifest.records, &text) else { return Ok(None) };
        let records = self.record_page(page)?;
        let at = records.binary_search_by(|record| record.key.key().as_str().cmp(&text));
        Ok(at.ok().and_then(|at| records.get(at)).cloned())
    }

    /// What has to be read for some regions, apart from reading it.
    ///
    /// # Errors
    /// `not-found`, `bad-region`, `block-boundary`, breaches of the pages that are needed.
    pub fn plan(&self, wants: &[Want]) -> Result<Plan> {
        let mut builder = self.builder();
        for want in wants {
            let tensor = self.tensor(&want.tensor)?;
            let whole;
            let region = match &want.region {
                Some(region) => region,
                None => {
                    whole = Region::whole(&tensor.entry().shape);
                    &whole
                }
            };
            tensor.add_region(&mut builder, region)?;
        }
        Ok(builder.build())
    }

    /// Does the reads of a plan of this checkpoint; `outs` are the results of its wants, in their
    /// order, each of [`Plan::out_bytes`].
    ///
    /// # Errors
    /// `crc-mismatch`, `crc-table-mismatch`, `length-mismatch`, those of the system;
    /// `bad-argument` when `outs` are not of the plan's number and lengths.
    pub fn serve(&self, plan: &Plan, outs: &mut [&mut [u8]]) -> Result<()> {
        self.serve_watched(plan, outs, &NoProgress)
    }

    /// As [`serve`](Self::serve), telling `progress` of the bytes read and stopping when it says so:
    /// within a step of half a mebibyte, or a block where blocks are larger.
    ///
    /// # Errors
    /// As [`serve`](Self::serve); `interrupted`, and then `outs` hold anything.
    pub fn serve_watched(
        &self,
        plan: &Plan,
        outs: &mut [&mut [u8]],
        progress: &dyn Progress,
    ) -> Result<()> {
        let backend = Backend {
            store: &*self.store,
            manifest: &self.manifest,
            shards: &self.shards,
            threads: threads(self.options.threads),
            progress,
        };
        backend.serve(plan, outs)
    }

    /// Reads some regions, each packed into memory of its own, in the order of the wants.
    ///
    /// # Errors
    /// As [`plan`](Self::plan) and [`serve`](Self::serve); `limit` when the results are beyond the
    /// caller's budget.
    pub fn read(&self, wants: &[Want]) -> Result<Vec<Vec<u8>>> {
        let plan = self.plan(wants)?;
        let sizes: Vec<u64> =
            (0..plan.wants()).map(|want| plan.out_bytes(want)).collect::<Result<_>>()?;
        let total = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(*size));
        self.options.budget().check(total, "the bytes of the regions")?;
        let mut outs: Vec<Vec<u8>> = sizes
            .iter()
            .map(|size| zeroed(*size, "the bytes of a region"))
            .collect::<Result<_>>()?;
        let mut slices: Vec<&mut [u8]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
        self.serve(&plan, &mut slices)?;
        Ok(outs)
    }

    pub(crate) fn builder(&self) -> Builder<'_> {
        Builder::new(&self.manifest, &self.shards.tables, self.options.verify_reads)
    }

    pub(crate) fn shards(&self) -> &Shards {
        &self.shards
    }

    fn find_key(&self, key: &str) -> Result<Option<Arc<Entry>>> {
        self.pages.find(&*self.store, &self.manifest, key)
    }

    /// The tensor that an alias names.
    fn target(&self, alias: &Alias) -> Result<Arc<Entry>> {
        let target = self.find_key(&alias.of.key())?;
        let page = page_of(&self.manifest.tensors, &alias.identity().key()).unwrap_or(0);
        check_target(alias, page, target.as_deref())?;
        target.ok_or_else(|| Error::new(Code::NotFound, "expected a target, found none"))
    }

    fn page(&self, page: u32) -> Result<Arc<Entries>> {
        self.pages.tensors(&*self.store, &self.manifest, page)
    }

    fn record_page(&self, page: u32) -> Result<Arc<Vec<Record>>> {
        self.pages.records(&*self.store, &self.manifest, page)
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("store", &self.store)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// Goes through pages, one held at a time.
struct Walk<'c> {
    checkpoint: &'c Checkpoint,
    /// Still to be opened.
    pages: Range<u32>,
    /// The open one, and the next entry in it.
    page: Option<(Arc<Entries>, usize)>,
    /// The key before which to stop.
    end: Option<Box<str>>,
}

impl Walk<'_> {
    fn step(&mut self) -> Result<Option<Arc<Entry>>> {
        loop {
            if let Some((page, at)) = &mut self.page
                && let (Some(entry), Some(key)) = (page.entries.get(*at), page.key(*at))
            {
                if self.end.as_deref().is_some_and(|end| key >= end) {
                    return Ok(None);
                }
                *at = at.saturating_add(1);
                return Ok(Some(Arc::clone(entry)));
            }
            self.page = None;
            let Some(next) = self.pages.next() else { return Ok(None) };
            self.page = Some((self.checkpoint.page(next)?, 0));
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Arc<Entry>>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().transpose();
        if matches!(step, None | Some(Err(_))) {
            self.pages = 0..0;
            self.page = None;
        }
        step
    }
}

/// A tensor entry's tensor.
pub(crate) fn as_tensor(entry: &Entry) -> Option<&Tensor> {
    match entry {
        Entry::Tensor(tensor) => Some(tensor),
        Entry::Alias(_) => None,
    }
}
