//! The commit file: the 80 bytes that make an attempt a checkpoint.
//!
//! It knows the grammar only. What the digest is of, and whether it matches, is the reader's
//! business.

use crate::digest::Digest;
use crate::{Code, Error, Result, rule};

/// Length of a commit file in bytes.
pub const BYTES: usize = 80;

/// After the 64 hex digits of the digest.
const TAIL: &[u8; 16] = b"  manifest.json\n";
const DIGITS: usize = 64;

/// The commit file that names a manifest of this digest.
#[must_use]
pub fn encode(manifest: &Digest) -> [u8; BYTES] {
    let mut file = [0; BYTES];
    let hex = manifest.to_string();
    for (to, from) in file.iter_mut().zip(hex.as_bytes().iter().chain(TAIL)) {
        *to = *from;
    }
    file
}

/// The digest of the manifest that a commit file names.
///
/// # Errors
///
/// [`Code::CommitGrammar`] when `bytes` is not exactly what [`encode`] makes, at the offset of
/// the first byte that differs.
pub fn parse(bytes: &[u8]) -> Result<Digest> {
    let grammar = |offset: usize, message: String| {
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        Error::rule(Code::CommitGrammar, rule::COMMIT_FILE, message).at_offset(offset)
    };
    let digits = bytes.get(..DIGITS).unwrap_or(bytes);
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if let Some(at) = digits.iter().position(|byte| !is_digit(byte)) {
        return Err(grammar(
            at,
            format!("expected a lower-case hex digit, found {}", shown(bytes, at)),
        ));
    }
    let tail = bytes.get(DIGITS..).unwrap_or_default();
    if let Some(at) = tail.iter().zip(TAIL).position(|(found, expected)| found != expected) {
        let at = at.saturating_add(DIGITS);
        return Err(grammar(
            at,
            format!("expected \"  manifest.json\\n\" after the digest, found {}", shown(bytes, at)),
        ));
    }
    if bytes.len() != BYTES {
        let at = bytes.len().min(BYTES);
        return Err(grammar(at, format!("expected {BYTES} bytes, found {}", bytes.len())));
    }
    std::str::from_utf8(digits)
        .ok()
        .and_then(Digest::from_hex)
        .ok_or_else(|| grammar(0, "expected 64 hex digits".to_owned()))
}

fn shown(bytes: &[u8], at: usize) -> String {
    bytes.get(at).map_or_else(|| "the end".to_owned(), |byte| format!("byte 0x{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> [u8; BYTES] {
        encode(&Digest::of(b"a manifest"))
    }

    #[test]
    fn round_trip_is_what_sha256sum_reads() {
        let file = sample();
        assert_eq!(parse(&file).unwrap(), Digest::of(b"a manifest"));
        let text = std::str::from_utf8(&file).unwrap();
        assert_eq!(text, format!("{}  manifest.json\n", Digest::of(b"a manifest")));
    }

    #[test]
    fn every_other_byte_string_is_refused_where_it_differs() {
        let file = sample();
        for at in 0..BYTES {
            let mut damaged = file;
            damaged[at] ^= 0x80;
            let error = parse(&damaged).unwrap_err();
            assert_eq!((error.code(), error.rule_id()), (Code::CommitGrammar, Some("commit.file")));
            assert_eq!(error.location().offset, u64::try_from(at).ok());

            let error = parse(&file[..at]).unwrap_err();
            assert_eq!(error.location().offset, u64::try_from(at).ok(), "cut at {at}");
        }
        let mut long = file.to_vec();
        long.push(b'\n');
        assert_eq!(parse(&long).unwrap_err().location().offset, Some(80));
        assert!(parse(file.to_ascii_uppercase().as_slice()).is_err());
    }
}
