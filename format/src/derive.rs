//! From parts to pages and manifest: the one function that makes what readers read.
//!
//! It knows how parts agree, merge and are cut into pages (chapters 7.4 and 8). It must not know
//! where parts come from or where pages go, and holds no more than one page, the entries at hand
//! and the names of params and buffers, so that it fits beside the largest parts.
//!
//! ```text
//! part 0 ─ entries ┐                ┌ conflict ┐
//! part 1 ─ entries ┼─ merge by key ─┤ chunks   ├─ cut into pages ─ sink
//! part n ─ entries ┘                └ cover    ┘        └─ digests ─ manifest
//! ```

mod entries;
mod merge;
mod names;
mod pages;
mod records;
mod session;

use std::collections::{BTreeMap, BTreeSet};

use crate::Result;
use crate::attachment;
use crate::manifest::{Manifest, PartSummary};
use crate::part::{Omitted, OmittedReason, Part};

/// A page that [`derive()`] has made: the whole file, to be put under its computed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derived<'a> {
    /// A page of tensors and aliases.
    TensorsPage {
        /// Its number.
        page: u32,
        /// The whole file.
        bytes: &'a [u8],
    },
    /// A page of records.
    RecordsPage {
        /// Its number.
        page: u32,
        /// The whole file.
        bytes: &'a [u8],
    },
}

/// Derives pages and manifest from the parts of an attempt, in any order. Pages go to `sink` in
/// order of their kind and number as they are made; the manifest's bytes are returned.
///
/// What `sink` got before an error is of no use: later checks may refuse the attempt.
///
/// # Errors
///
/// The first breach in this order: session ([`Code::PartDisagree`](crate::Code::PartDisagree)), [`Code::DuplicateWriter`](crate::Code::DuplicateWriter),
/// [`Code::WriterMissing`](crate::Code::WriterMissing), attachments ([`Code::BadPath`](crate::Code::BadPath)), extensions ([`Code::PartDisagree`](crate::Code::PartDisagree));
/// then by identity key [`Code::TensorConflict`](crate::Code::TensorConflict) or [`Code::AliasConflict`](crate::Code::AliasConflict), then
/// [`Code::CoverGap`](crate::Code::CoverGap) or [`Code::CoverOverlap`](crate::Code::CoverOverlap); then [`Code::BadAlias`](crate::Code::BadAlias), [`Code::NameConflict`](crate::Code::NameConflict),
/// [`Code::InventoryMismatch`](crate::Code::InventoryMismatch); then [`Code::RecordConflict`](crate::Code::RecordConflict), [`Code::RecordGrid`](crate::Code::RecordGrid); then the manifest's size ([`Code::Limit`](crate::Code::Limit)). Counts and sizes of pages
/// are [`Code::Limit`](crate::Code::Limit) where they are exceeded. Errors of `sink` are passed on.
pub fn derive(parts: &[Part], sink: &mut dyn FnMut(Derived<'_>) -> Result<()>) -> Result<Vec<u8>> {
    let parts = session::in_order(parts)?;
    let common = session::merged(&parts)?;
    attachment::check_unique(parts.iter().flat_map(|part| &part.attachments))?;
    session::check_extensions(&parts)?;

    let entries = entries::derive(&parts, &common, sink)?;
    let records = records::derive(&parts, &common, sink)?;
    let manifest = Manifest {
        common,
        contents: entries.contents,
        omitted: merged_omitted(&parts),
        parts: parts.iter().map(|part| summary(part)).collect(),
        records,
        tensors: entries.pages,
    };
    manifest.encode()
}

/// What the parts say is not there: for each component and reason the names of all.
fn merged_omitted(parts: &[&Part]) -> Vec<Omitted> {
    let mut merged: BTreeMap<(&str, OmittedReason), BTreeSet<&str>> = BTreeMap::new();
    for omitted in parts.iter().flat_map(|part| &part.omitted) {
        let names = merged.entry((&omitted.component, omitted.reason)).or_default();
        names.extend(omitted.names.iter().map(String::as_str));
    }
    let listed = |((component, reason), names): ((&str, _), BTreeSet<&str>)| Omitted {
        component: component.to_owned(),
        reason,
        names: names.into_iter().map(str::to_owned).collect(),
    };
    merged.into_iter().map(listed).collect()
}

/// What the manifest says of a part.
fn summary(part: &Part) -> PartSummary {
    PartSummary {
        attachments: part.attachments.clone(),
        bytes: part.raw().len() as u64,
        extensions: part.extensions.clone(),
        inc: part.inc,
        sha256: part.digest(),
        shards: part.shards.clone(),
    }
}
