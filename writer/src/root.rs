//! The root that the parts derive: pages and manifest, made again as often as needed.
//!
//! It knows the order in which they are put. Derivation is the format's; it checks everything
//! before the first file is put.

use std::sync::Arc;

use waystation_format::derive::{Derived, derive};
use waystation_format::part::Part;
use waystation_format::{Digest, Result, names};
use waystation_store::Store;

use crate::put;

/// Pages kept in memory between checking and putting, in bytes; more are derived a second time.
const KEPT_BYTES: usize = 64 << 20;

/// What parts derive, known to keep every rule.
pub(crate) struct Root<'p> {
    parts: &'p [Part],
    /// `None` when the pages together were too long to keep.
    pages: Option<Vec<(String, Vec<u8>)>>,
    pub(crate) manifest: Vec<u8>,
    pub(crate) digest: Digest,
}

impl<'p> Root<'p> {
    /// Derives and checks, and puts nothing.
    ///
    /// # Errors
    ///
    /// The first rule that the parts together break.
    pub(crate) fn derive(parts: &'p [Part]) -> Result<Self> {
        let mut kept: Option<Vec<(String, Vec<u8>)>> = Some(Vec::new());
        let mut room = KEPT_BYTES;
        let manifest = derive(parts, &mut |page| {
            let (name, bytes) = named(&page);
            match room.checked_sub(bytes.len()) {
                Some(left) => {
                    room = left;
                    if let Some(pages) = &mut kept {
                        pages.push((name, bytes.to_vec()));
                    }
                }
                None => kept = None,
            }
            Ok(())
        })?;
        let digest = Digest::of(&manifest);
        Ok(Self { parts, pages: kept, manifest, digest })
    }

    /// Hands out every page and at last the manifest, with their names.
    ///
    /// # Errors
    ///
    /// Those of `sink`.
    pub(crate) fn each(&self, sink: &mut dyn FnMut(&str, &[u8]) -> Result<()>) -> Result<()> {
        match &self.pages {
            Some(pages) => pages.iter().try_for_each(|(name, bytes)| sink(name, bytes))?,
            None => {
                derive(self.parts, &mut |page| {
                    let (name, bytes) = named(&page);
                    sink(&name, bytes)
                })?;
            }
        }
        sink(names::MANIFEST, &self.manifest)
    }

    /// Puts every page and the manifest. Not durable before the directory is synced.
    ///
    /// # Errors
    ///
    /// As [`put::put_checked`].
    pub(crate) fn put(&self, attempt: &Arc<dyn Store>) -> Result<()> {
        self.each(&mut |name, bytes| put::put_checked(attempt, name, bytes).map(drop))
    }
}

fn named<'p>(page: &Derived<'p>) -> (String, &'p [u8]) {
    match *page {
        Derived::TensorsPage { page, bytes } => (names::tensors_page(page), bytes),
        Derived::RecordsPage { page, bytes } => (names::records_page(page), bytes),
    }
}
