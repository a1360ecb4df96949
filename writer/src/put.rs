//! Giving a small file its name so that it is there whole or not at all, whatever the reply.
//!
//! It knows what to believe after "exists" and after a lost reply: only what can be read back. It
//! must not know what the file means, and removes nothing.

use std::sync::Arc;

use waystation_format::{Code, Error, Result, arith, rule};
use waystation_store::{Put, Store};

/// Bytes compared at a time when reading back.
const PIECE: usize = 1 << 20;

/// Puts `bytes` under `name`. True when this call gave the name, false when it was there with the
/// same bytes. Not durable before the directory is synced.
///
/// # Errors
///
/// `commit-conflict` when the name is there with other bytes; `commit-unknown` when that cannot be
/// told; the store's, when the name is not there afterwards.
pub(crate) fn put_checked(store: &Arc<dyn Store>, name: &str, bytes: &[u8]) -> Result<bool> {
    // Saves the temporary when someone was here before. Whether it is a file is seen on opening.
    if store.stat(name)?.is_some() {
        compare(store, name, bytes, None)?;
        return Ok(false);
    }
    match store.put_new(name, bytes) {
        Ok(Put::Created) => Ok(true),
        Ok(Put::Exists) => compare(store, name, bytes, None).map(|()| false),
        Err(lost) => compare(store, name, bytes, Some(lost)).map(|()| true),
    }
}

/// Reads `name` back and compares. `lost` is the error that raised the doubt: the answer when the
/// name turns out to be absent.
fn compare(store: &Arc<dyn Store>, name: &str, bytes: &[u8], lost: Option<Error>) -> Result<()> {
    let equal = match equals(store, name, bytes) {
        Ok(equal) => equal,
        Err(e) if e.code() == Code::FileMissing => return Err(lost.unwrap_or(e)),
        Err(e) if e.code() == Code::NotRegular => false,
        Err(e) => {
            let doubt =
                lost.map_or_else(String::new, |lost| format!(" after \"{}\"", lost.message()));
            let message = format!("expected to read the file back{doubt}, found: {}", e.message());
            return Err(Error::rule(Code::CommitUnknown, rule::COMMIT_PUT, message).in_file(name));
        }
    };
    if equal {
        return Ok(());
    }
    let message = "expected the bytes that the parts derive, found others under the name";
    Err(Error::rule(Code::CommitConflict, rule::COMMIT_PUT, message).in_file(name))
}

/// Whether the file `name` holds exactly `bytes`.
///
/// # Errors
///
/// `file-missing` when absent, `not-regular`, those of the system.
pub(crate) fn equals(store: &Arc<dyn Store>, name: &str, bytes: &[u8]) -> Result<bool> {
    let object = store.open(name)?;
    if usize::try_from(object.bytes()).ok() != Some(bytes.len()) {
        return Ok(false);
    }
    let mut buffer = vec![0; bytes.len().min(PIECE)];
    let mut offset = 0;
    for expected in bytes.chunks(PIECE) {
        let found = buffer.get_mut(..expected.len()).unwrap_or_default();
        object.read_at(found, offset)?;
        if found != expected {
            return Ok(false);
        }
        offset = arith::add(offset, length(expected), "offset in a file")?;
    }
    Ok(true)
}

/// The length of bytes in memory, which always fits 64 bits.
pub(crate) fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
