//! Attachments: other files kept under a logical path.
//!
//! It knows paths and digests. It must not write any file: the caller gives the place.

use std::io::Write;

use waystation_format::attachment::AttachmentEntry;
use waystation_format::digest::Hasher;
use waystation_format::{Code, Digest, Error, Result, arith, names, rule};
use waystation_store::{Object, Store};

use crate::checkpoint::Checkpoint;
use crate::complete::{check_length, digests_agree, with_rule, zeroed};
use crate::options::len;
use crate::progress::{Progress, go_on};

/// Bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// An attachment of a checkpoint.
#[derive(Clone, Debug)]
pub struct Attachment<'c> {
    /// The logical path, relative and of plain components.
    pub path: &'c str,
    /// What the manifest says of it.
    pub entry: &'c AttachmentEntry,
    /// The name of the file that holds it.
    pub file: String,
}

impl Checkpoint {
    /// All attachments, by logical path.
    pub fn attachments(&self) -> impl Iterator<Item = Attachment<'_>> {
        let mut all = Vec::new();
        for (writer, part) in (0_u32..).zip(&self.manifest().parts) {
            for (position, entry) in (0_u32..).zip(&part.attachments) {
                let file = names::attachment(writer, part.inc, position);
                all.push(Attachment { path: &entry.path, entry, file });
            }
        }
        all.sort_unstable_by_key(|attachment| attachment.path);
        all.into_iter()
    }

    /// Writes an attachment's bytes to `to`, piece by piece; success means that all of them had
    /// the stated length and digest.
    ///
    /// # Errors
    /// `not-found` when there is none of this path; `digest-mismatch`, `length-mismatch`; those of
    /// the system, and of `to`.
    pub fn read_attachment(&self, path: &str, to: &mut dyn Write) -> Result<()> {
        let (entry, file) = self.attachment(path).ok_or_else(|| {
            Error::new(Code::NotFound, format!("expected an attachment {path:?}, found none"))
        })?;
        let mut copy = || {
            let object = self.store().open(&file).map_err(with_rule)?;
            check_length(entry.bytes, object.bytes())?;
            let digest = pieces(&*object, &mut |bytes| {
                to.write_all(bytes).map_err(|e| Error::io("write an attachment", e))
            })?;
            digests_agree(&entry.sha256, &digest, rule::ATTACHMENT_DIGEST)
        };
        copy().map_err(|e: Error| e.in_file(&file))
    }

    /// The attachment under `path` and the name of its file. Nothing is made or sorted for the
    /// others: who copies all of them asks once for each.
    fn attachment(&self, path: &str) -> Option<(&AttachmentEntry, String)> {
        (0_u32..).zip(&self.manifest().parts).find_map(|(writer, part)| {
            let mut entries = (0_u32..).zip(&part.attachments);
            let (position, entry) = entries.find(|(_, entry)| entry.path == path)?;
            Some((entry, names::attachment(writer, part.inc, position)))
        })
    }
}

/// Checks a file of the stated length against its digest.
pub(crate) fn check(
    store: &dyn Store,
    file: &str,
    bytes: u64,
    expected: &Digest,
    progress: &dyn Progress,
) -> Result<()> {
    let check = || {
        let object = store.open(file).map_err(with_rule)?;
        check_length(bytes, object.bytes())?;
        let digest = pieces(&*object, &mut |bytes| {
            progress.advance(len(bytes));
            go_on(progress)
        })?;
        digests_agree(expected, &digest, rule::ATTACHMENT_DIGEST)
    };
    check().map_err(|e: Error| e.in_file(file))
}

/// Gives a file's bytes in order and answers with their digest.
fn pieces(object: &dyn Object, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Digest> {
    let mut hasher = Hasher::new();
    let mut buffer = zeroed(PIECE_BYTES.min(object.bytes()), "the bytes of a piece")?;
    let mut at = 0_u64;
    while at < object.bytes() {
        let left = arith::to_usize(object.bytes().saturating_sub(at), "bytes left")?;
        let size = buffer.len().min(left);
        let Some(piece) = buffer.get_mut(..size) else { break };
        object.read_at(piece, at)?;
        hasher.update(piece);
        take(piece)?;
        at = at.saturating_add(len(piece));
    }
    Ok(hasher.finish())
}
