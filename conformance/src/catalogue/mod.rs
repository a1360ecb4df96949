//! Every case, by chapter of the specification. A case is one call: what is bent, what it breaks,
//! what it leads to.

mod accepted;
mod alias;
mod attachments;
pub mod bases;
mod chunks;
mod commit;
mod common;
mod companions;
mod cover;
mod crashes;
mod damage;
mod directory;
mod draft;
mod entry_order;
mod forms;
mod group;
mod hand;
mod identity;
mod integrity;
mod json;
pub mod layouts;
mod merging;
mod order;
mod origins;
mod pages;
mod parts;
mod records;
mod regions;
mod runs;
mod shards;
mod strangers;
mod tensors;
mod training;
pub mod untestable;
mod values;
mod writers;

use std::collections::BTreeMap;

use serde_json::Value;

pub use draft::Cases;

use crate::case::Case;
use crate::files::{Files, Overlay};

/// Bytes that differ from the base above which git holds only a digest of a case. Whoever wants the files exports them.
const STORED_BYTES: usize = 4 << 10;

/// All cases, ascending by id.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut cases = Cases::default();
    accepted::add(&mut cases);
    json::add(&mut cases);
    forms::add(&mut cases);
    directory::add(&mut cases);
    commit::add(&mut cases);
    common::add(&mut cases);
    attachments::add(&mut cases);
    identity::add(&mut cases);
    alias::add(&mut cases);
    tensors::add(&mut cases);
    chunks::add(&mut cases);
    cover::add(&mut cases);
    training::add(&mut cases);
    shards::add(&mut cases);
    integrity::add(&mut cases);
    regions::add(&mut cases);
    companions::add(&mut cases);
    entry_order::add(&mut cases);
    pages::add(&mut cases);
    order::add(&mut cases);
    parts::add(&mut cases);
    merging::add(&mut cases);
    records::add(&mut cases);
    values::add(&mut cases);
    runs::add(&mut cases);
    strangers::add(&mut cases);
    crashes::add(&mut cases);
    writers::add(&mut cases);
    hand::add(&mut cases);
    let mut cases = cases.finish();
    origins::name(&mut cases);
    cases
}

/// What git holds of the suite, by path beneath `conformance`: the bases, and of each case what it
/// expects and the files that differ from its base.
#[must_use]
pub fn stored(cases: &[Case]) -> Files {
    let mut files = Files::new();
    let mut bases: BTreeMap<&str, Files> = BTreeMap::new();
    for case in cases {
        let id = &case.expect.id;
        let mut expect = case.expect.clone();
        let base = case.expect.made.base.as_deref();
        let under = base.map_or_else(Files::new, |name| {
            let made = bases.entry(name).or_insert_with(|| base_files(name));
            made.clone()
        });
        let overlay = Overlay::between(&under, &case.given);
        let bytes: usize = overlay.written.values().map(Vec::len).sum();
        // What a twin has is what its case has, under the names of the base.
        if bytes > STORED_BYTES || expect.made.fixed_up == Some(false) {
            expect.made.digest = Some(digest(&case.given));
        } else {
            expect.made.removed = overlay.removed;
            for (path, bytes) in overlay.written {
                files.insert(format!("cases/{id}/given/{path}"), bytes);
            }
        }
        files.insert(format!("cases/{id}/expect.json"), pretty(&expect));
    }
    for (name, base) in bases {
        for (path, bytes) in base {
            files.insert(format!("bases/{name}/{path}"), bytes);
        }
    }
    files
}

/// The files of a base by its name.
///
/// # Panics
///
/// If no base has the name.
#[must_use]
pub fn base_files(name: &str) -> Files {
    bases::files(name).unwrap_or_else(|| panic!("no base {name}"))
}

/// SHA-256 over path, length and bytes of each file.
fn digest(files: &Files) -> String {
    let mut all = Vec::new();
    for (path, bytes) in files {
        all.extend_from_slice(format!("{path}\n{}\n", bytes.len()).as_bytes());
        all.extend_from_slice(bytes);
    }
    crate::build::sha256(&all)
}

fn pretty<T: serde::Serialize>(value: &T) -> Vec<u8> {
    let value: Value = serde_json::to_value(value).expect("a case is JSON");
    let mut text = serde_json::to_string_pretty(&value).expect("a value is JSON");
    text.push('\n');
    text.into_bytes()
}
