//! Parts, the layouts that they give, and what they derive.

use waystation_format::derive::{Derived, derive};
use waystation_format::manifest::{Manifest, PageRef};
use waystation_format::part::Part;
use waystation_format::{Code, Digest, Error, Result, names, rule};

use super::Check;
use crate::complete::read_stated;
use crate::options::{Budget, len};
use crate::parallel;
use crate::progress::go_on;

impl Check<'_> {
    /// The parts in order of writer, `None` where one is broken.
    pub(super) fn parts(&mut self, manifest: &Manifest) -> Result<Vec<Option<Part>>> {
        let writers = (0_u32..).zip(&manifest.parts).collect();
        let read = parallel::map(self.threads, writers, |(writer, summary)| {
            go_on(self.progress)?;
            let name = names::part(writer, &summary.sha256);
            if !self.is_good(&name) {
                // The breach is known already.
                return Ok(None);
            }
            let read = || {
                let (bytes, digest) = (summary.bytes, &summary.sha256);
                let rule = rule::INTEGRITY_PART;
                let raw = read_stated(self.store, &name, bytes, digest, rule, Budget::default())?;
                self.progress.advance(len(&raw));
                let part = Part::parse(raw)?;
                if part.writer == writer {
                    return Ok(part);
                }
                let message =
                    format!("expected the part of writer {writer}, found {}", part.writer);
                Err(Error::rule(Code::BadFormat, rule::PART_NAME, message).at_pointer("/writer"))
            };
            Ok(Some(read().map_err(|e: Error| e.in_file(&name))))
        })?;
        Ok(read.into_iter().map(|part| part.and_then(|part| self.keep(part))).collect())
    }

    /// Compares what the parts derive with the pages and the manifest.
    pub(super) fn derive(&mut self, parts: &[Part], manifest: &Manifest, raw: &[u8]) -> Result<()> {
        let mut found = Vec::new();
        let derived = derive(parts, &mut |derived| {
            go_on(self.progress)?;
            let (name, page, bytes) = match derived {
                Derived::TensorsPage { page, bytes } => {
                    (names::tensors_page(page), page_ref(&manifest.tensors, page), bytes)
                }
                Derived::RecordsPage { page, bytes } => {
                    (names::records_page(page), page_ref(&manifest.records, page), bytes)
                }
            };
            // One page more than the manifest has makes another manifest, which is seen below.
            if let Some(page) = page {
                found.extend(self.compare_page(&name, page, bytes).err());
            }
            Ok(())
        });
        go_on(self.progress)?;
        self.found.append(&mut found);
        if let Some(expected) = self.keep(derived) {
            let same = compare(&expected, raw).map_err(|e| e.in_file(names::MANIFEST));
            self.keep(same);
        }
        Ok(())
    }

    fn compare_page(&self, name: &str, page: &PageRef, expected: &[u8]) -> Result<()> {
        // A wrong length beside the right digest is wrong in the manifest alone.
        if page.sha256 == Digest::of(expected) {
            return Ok(());
        }
        let raw = read_stated(
            self.store,
            name,
            page.bytes,
            &page.sha256,
            rule::PAGE_DIGEST,
            Budget::default(),
        );
        match raw {
            Ok(raw) => compare(expected, &raw).map_err(|e| e.in_file(name)),
            // That the file is broken is known already; that it should be another is not.
            Err(_) => {
                let message =
                    "expected the page that the parts derive, found another in the manifest";
                Err(Error::rule(Code::DeriveMismatch, rule::DERIVE_FUNCTION, message).in_file(name))
            }
        }
    }
}

fn page_ref(pages: &[PageRef], page: u32) -> Option<&PageRef> {
    pages.get(usize::try_from(page).ok()?)
}

fn compare(expected: &[u8], found: &[u8]) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let message = format!(
        "expected the {} bytes that the parts derive, found {} bytes that differ",
        expected.len(),
        found.len()
    );
    Err(Error::rule(Code::DeriveMismatch, rule::DERIVE_FUNCTION, message)
        .at_offset(u64::try_from(same).unwrap_or(u64::MAX)))
}
