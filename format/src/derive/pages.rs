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
