//! Which strings are names, and how a name that is not UTF-8 stands as a string.
//!
//! It knows single path components. It must not know which names the format gives.
//!
//! A listed name that is not UTF-8 has each stray byte as `/x` and two hex digits. A real name
//! cannot hold a slash, so the form is lossless and collides with nothing; such a name can be
//! looked at and removed, and nothing else.

use std::borrow::Cow;
use std::fmt::Write as _;

use waystation_format::{Code, Error, Result};

/// Accepts a single component in UTF-8: what may be opened or made.
///
/// # Errors
///
/// [`Code::BadArgument`] for anything that could leave the directory or cannot be a name.
pub(crate) fn check(name: &str) -> Result<()> {
    if is_component(name.as_bytes()) {
        return Ok(());
    }
    Err(Error::new(
        Code::BadArgument,
        format!("expected the name of one file or directory, found {name:?}"),
    ))
}

/// Accepts what [`check`] does, and listed names that are not UTF-8.
///
/// # Errors
///
/// As [`check`].
pub(crate) fn check_listed(name: &str) -> Result<()> {
    if decode(name).is_some() { Ok(()) } else { check(name) }
}

/// The string for a name as the file system gives it.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut name = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        name.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(name, "/x{byte:02x}");
        }
    }
    name
}

/// The file system's bytes for a name; `None` when the string is no single component.
pub(crate) fn decode(name: &str) -> Option<Cow<'_, [u8]>> {
    if !name.contains('/') {
        return is_component(name.as_bytes()).then_some(Cow::Borrowed(name.as_bytes()));
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut pieces = name.split('/');
    bytes.extend_from_slice(pieces.next()?.as_bytes());
    for piece in pieces {
        let rest = piece.strip_prefix('x')?;
        let (hex, rest) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    // Only the form that `encode` gives: otherwise one file had many names.
    (is_component(&bytes) && encode(&bytes) == name).then_some(Cow::Owned(bytes))
}

fn is_component(name: &[u8]) -> bool {
    !name.is_empty()
        && name != b"."
        && name != b".."
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_components_pass() {
        for good in ["a", "waystation.commit", "...", " ", "ü", "\\x80", "-rf"] {
            assert!(check(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "/", "a/b", "a/", "../a", "a\0b", "a/xff"] {
            assert_eq!(check(bad).unwrap_err().code(), Code::BadArgument, "{bad:?}");
        }
    }

    #[test]
    fn names_that_are_not_utf8_go_there_and_back() {
        for bytes in
            [&b"a\xff"[..], b"\x80", b"\xc3(", b"\xff\xfe.x", b"\xf0\x9f\x92", "ü\u{0}".as_bytes()]
        {
            let name = encode(bytes);
            let good = !bytes.contains(&0);
            assert_eq!(decode(&name).map(Cow::into_owned), good.then(|| bytes.to_vec()));
            assert_eq!(check_listed(&name).is_ok(), good);
        }
        assert_eq!(encode(b"a\xffb"), "a/xffb");
    }

    #[test]
    fn a_file_has_one_name() {
        // A byte that is ASCII or well-formed UTF-8 may not be spelled in hex, nor a slash smuggled.
        for bad in ["/x61", "a/x2f", "/xc3/xa9", "/xFF", "/x+f", "/xff/", "/xff/..", "/x2e", "/x"] {
            assert!(decode(bad).is_none(), "{bad}");
            assert!(check_listed(bad).is_err(), "{bad}");
        }
    }
}
