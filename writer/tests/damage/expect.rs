//! What the specification says must be found, for each kind of damage.
//!
//! Findings are compared whole: a damaged byte has the finding that chapter 12.3 gives it, and
//! nothing that is undamaged has one.

use std::collections::BTreeMap;

use waystation_format::{Code, Error, names};

use super::Golden;
use super::disk::{ENTRIES, MANIFEST, Outcome, RECORDS};
use super::places::Place;

/// A finding that is expected; `None` is any.
#[derive(Debug)]
pub struct Finding {
    pub code: Code,
    pub file: String,
    pub offset: Option<u64>,
    pub tensor: Option<String>,
}

impl Finding {
    pub fn new(code: Code, file: &str) -> Self {
        Self { code, file: file.to_owned(), offset: None, tensor: None }
    }

    fn at(code: Code, file: &str, offset: u64) -> Self {
        Self { offset: Some(offset), ..Self::new(code, file) }
    }

    fn is(&self, found: &Error) -> bool {
        let place = found.location();
        found.code() == self.code
            && found.rule_id().is_some()
            && place.file.as_deref() == Some(&*self.file)
            && (self.offset.is_none() || place.offset == self.offset)
            && (self.tensor.is_none() || place.tensor == self.tensor)
    }
}

/// What must be found.
#[derive(Debug)]
pub enum Expected {
    /// These and nothing else.
    Exactly(Vec<Finding>),
    /// This, and then whatever.
    First(Finding),
}

impl Expected {
    pub fn one(finding: Finding) -> Self {
        Self::Exactly(vec![finding])
    }

    /// # Errors
    /// What was found instead.
    pub fn check(&self, found: &[Error]) -> Result<(), String> {
        let met = match self {
            Self::Exactly(all) => {
                all.len() == found.len() && all.iter().zip(found).all(|(a, b)| a.is(b))
            }
            Self::First(first) => found.first().is_some_and(|found| first.is(found)),
        };
        if met { Ok(()) } else { Err(format!("expected {self:?}, found {found:?}")) }
    }
}

/// After one flipped bit.
pub fn of_flip(golden: &Golden, file: &str, byte: u64, bit: u32) -> Expected {
    let place = golden.places.place(file, byte);
    let digest = |file| Finding::new(Code::DigestMismatch, file);
    match place {
        Place::Commit => {
            let flipped = golden.small.files[file][byte as usize] ^ 1 << bit;
            // Still a digest, but of other bytes.
            if byte < 64 && matches!(flipped, b'0'..=b'9' | b'a'..=b'f') {
                return Expected::one(digest(names::MANIFEST));
            }
            Expected::one(Finding::new(Code::CommitGrammar, file))
        }
        Place::Manifest => Expected::First(digest(file)),
        Place::TensorsPage | Place::RecordsPage | Place::Part | Place::Attachment => {
            Expected::one(digest(file))
        }
        Place::Header => Expected::one(Finding::at(Code::HeaderMismatch, file, byte)),
        Place::Pad => Expected::one(Finding::at(Code::NonzeroPad, file, byte)),
        Place::Table(begin) => Expected::one(Finding::at(Code::CrcTableMismatch, file, begin)),
        Place::Chunk(at) => {
            let chunk = &golden.places.chunks[at];
            let within = byte - chunk.offset;
            let block = chunk.block(within) * super::small::BLOCK_BYTES;
            let tensor = Some(chunk.tensor.clone());
            let crc = Finding::at(Code::CrcMismatch, file, chunk.offset + block);
            let mut all = vec![Finding { tensor: tensor.clone(), ..crc }];
            if chunk.is_unused(within, bit) {
                all.push(Finding { tensor, ..Finding::at(Code::NonzeroPad, file, byte) });
            }
            Expected::Exactly(all)
        }
    }
}

/// What cannot be read after one flipped bit; everything else can.
pub fn unreadable(golden: &Golden, file: &str, byte: u64, bit: u32) -> BTreeMap<String, Code> {
    let only = |label: &str, code| BTreeMap::from([(label.to_owned(), code)]);
    let reads = golden.reads.iter();
    match golden.places.place(file, byte) {
        Place::Commit | Place::Manifest => match of_flip(golden, file, byte, bit) {
            Expected::First(first) => only(MANIFEST, first.code),
            Expected::Exactly(all) => only(MANIFEST, all[0].code),
        },
        Place::TensorsPage => {
            let all = reads.map(|read| &*read.label).chain([ENTRIES]);
            all.map(|label| (label.to_owned(), Code::DigestMismatch)).collect()
        }
        Place::RecordsPage => only(RECORDS, Code::DigestMismatch),
        Place::Attachment => only(file, Code::DigestMismatch),
        // Readers look at none of these.
        Place::Part | Place::Header | Place::Pad => BTreeMap::new(),
        Place::Table(_) => {
            let long =
                |at: usize| golden.places.chunks[at].table && golden.places.chunks[at].file == file;
            let using = reads.filter(|read| read.units.iter().any(|(at, _)| long(*at)));
            using.map(|read| (read.label.clone(), Code::CrcTableMismatch)).collect()
        }
        Place::Chunk(at) => {
            let chunk = &golden.places.chunks[at];
            let unit = (at, chunk.block(byte - chunk.offset));
            let touching = reads.filter(|read| read.units.contains(&unit));
            touching.map(|read| (read.label.clone(), Code::CrcMismatch)).collect()
        }
    }
}

/// After a change of a file's length.
pub fn of_length(golden: &Golden, file: &str) -> Expected {
    match golden.places.place(file, 0) {
        Place::Commit => Expected::one(Finding::new(Code::CommitGrammar, file)),
        Place::Manifest => Expected::First(Finding::new(Code::DigestMismatch, file)),
        _ => Expected::one(Finding::new(Code::LengthMismatch, file)),
    }
}

/// What opening must have answered: what the validator found first, where it can be seen without
/// opening a page or a shard; else nothing.
///
/// # Errors
/// What opening answered instead.
pub fn check_open(found: &[Error], outcome: &Outcome) -> Result<(), String> {
    let seen_by_open = |e: &Error| {
        let file = e.location().file.as_deref().unwrap_or_default();
        let root = file == names::MANIFEST || file == names::COMMIT;
        let kind = matches!(e.code(), Code::FileMissing | Code::LengthMismatch | Code::NotRegular);
        root || kind
    };
    let first = found.iter().find(|e| seen_by_open(e));
    // What the parts derive is beyond what opening can know.
    let first = first.filter(|e| e.code() != Code::DeriveMismatch);
    match (first, &outcome.opened) {
        (None, None) => Ok(()),
        (Some(a), Some(b)) if a.code() == b.code() && a.location() == b.location() => Ok(()),
        (first, opened) => Err(format!("verify found {first:?}, open answered {opened:?}")),
    }
}
