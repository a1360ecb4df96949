//! Cuts a sequence of encoded entries into pages.
//!
//! It knows the frame of a page, where one ends, and its digest. It must not know what the
//! entries are.

use crate::common::Version;
use crate::digest::Digest;
use crate::manifest::PageRef;
use crate::{Code, Error, Result, arith, limits, rule};

/// Which pages are being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tensors,
    Records,
}

/// Takes a page's number and its bytes.
pub(super) type PageSink<'s> = dyn FnMut(u32, &[u8]) -> Result<()> + 's;

/// Entries of the page at hand, and what is known of those before.
pub(super) struct Cutter<'s> {
    kind: Kind,
    version: String,
    sink: &'s mut PageSink<'s>,
    file: Vec<u8>,
    first: Option<String>,
    page: u32,
    made: Vec<PageRef>,
}

impl<'s> Cutter<'s> {
    /// No entry yet.
    pub(super) fn new(kind: Kind, version: Version, sink: &'s mut PageSink<'s>) -> Self {
        let version = version.to_string();
        let mut cutter =
            Self { kind, version, sink, file: Vec::new(), first: None, page: 0, made: Vec::new() };
        cutter.file = cutter.head();
        cutter
    }

    /// Takes the next entry: its key, and its canonical JSON.
    pub(super) fn push(&mut self, key: &str, entry: &[u8]) -> Result<()> {
        let separator = usize::from(self.first.is_some());
        let length = [self.file.len(), separator, entry.len(), self.tail().len()]
            .into_iter()
            .try_fold(0_u64, |sum, n| arith::add(sum, n as u64, "length of a page"))?;
        if length > limits::PAGE_TARGET_BYTES && self.first.is_some() {
            self.close()?;
        }
        if self.first.is_some() {
            self.file.push(b',');
        } else {
            self.first = Some(key.to_owned());
        }
        self.file.extend_from_slice(entry);
        Ok(())
    }

    /// Closes the last page. Returns all of them; none when there was no entry.
    pub(super) fn finish(mut self) -> Result<Vec<PageRef>> {
        self.close()?;
        Ok(self.made)
    }

    fn close(&mut self) -> Result<()> {
        let Some(first) = self.first.take() else { return Ok(()) };
        let tail = self.tail();
        self.file.extend_from_slice(&tail);
        let bytes = self.file.len() as u64;
        if bytes > limits::PAGE_BYTES {
            let message = format!(
                "expected a page of at most {} bytes (page-bytes), found {bytes}",
                limits::PAGE_BYTES
            );
            return Err(Error::rule(Code::Limit, rule::DERIVE_SIZES, message));
        }
        (self.sink)(self.page, &self.file)?;
        self.made.push(PageRef { bytes, first, sha256: Digest::of(&self.file) });
        self.page = self.page.saturating_add(1);
        self.file = self.head();
        Ok(())
    }

    fn head(&self) -> Vec<u8> {
        match self.kind {
            Kind::Tensors => b"{\"entries\":[".to_vec(),
            Kind::Records => format!(
                "{{\"format\":\"waystation\",\"kind\":\"records\",\"page\":{},\"records\":[",
                self.page
            )
            .into_bytes(),
        }
    }

    fn tail(&self) -> Vec<u8> {
        let (page, version) = (self.page, &self.version);
        match self.kind {
            Kind::Tensors => format!(
                "],\"format\":\"waystation\",\"kind\":\"tensors\",\"page\":{page},\"version\":\"{version}\"}}"
            )
            .into_bytes(),
            Kind::Records => format!("],\"version\":\"{version}\"}}").into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the pages that entries of these lengths make, the second entry's adjusted so
    /// that the first page would be `excess` bytes above the target with it.
    #[expect(clippy::arithmetic_side_effects, reason = "small numbers")]
    fn lengths(kind: Kind, excess: usize) -> Vec<u64> {
        let frame = match kind {
            Kind::Tensors => {
                r#"{"entries":[],"format":"waystation","kind":"tensors","page":0,"version":"1.0"}"#
            }
            Kind::Records => {
                r#"{"format":"waystation","kind":"records","page":0,"records":[],"version":"1.0"}"#
            }
        };
        let (first, comma) = (1000, 1);
        let target = usize::try_from(limits::PAGE_TARGET_BYTES).unwrap();
        let second = target + excess - (frame.len() + first + comma);
        let mut pages = Vec::new();
        let mut sink = |_, bytes: &[u8]| {
            pages.push(bytes.len() as u64);
            Ok(())
        };
        let mut cutter = Cutter::new(kind, Version::CURRENT, &mut sink);
        for (key, length) in [("a", first), ("b", second)] {
            cutter.push(key, "1".repeat(length).as_bytes()).unwrap();
        }
        let made = cutter.finish().unwrap();
        assert_eq!(made.iter().map(|page| page.bytes).collect::<Vec<_>>(), pages);
        assert_eq!(made[0].first, "a");
        pages
    }

    #[test]
    fn a_page_may_be_as_long_as_the_target_and_no_longer() {
        for kind in [Kind::Tensors, Kind::Records] {
            assert_eq!(lengths(kind, 0), [limits::PAGE_TARGET_BYTES]);
            assert_eq!(lengths(kind, 1).len(), 2);
        }
    }

    #[test]
    fn an_entry_too_long_for_any_page_is_refused() {
        let mut sink = |_, _: &[u8]| Ok(());
        let mut cutter = Cutter::new(Kind::Records, Version::CURRENT, &mut sink);
        let entry = vec![b'1'; usize::try_from(limits::PAGE_BYTES).unwrap()];
        cutter.push("a", &entry).unwrap();
        let error = cutter.finish().unwrap_err();
        assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some("derive.sizes")));
    }
}
