//! Attachments: files of any kind, kept under a logical path.
//!
//! It knows the form of paths and which may stand beside each other. It must not turn one into a
//! path of a file system: where an attachment is stored follows from integers.

use crate::common::{check_limit, read_digest};
use crate::json::{Cursor, Encoder, Form, pointer_at};
use crate::{Code, Digest, Error, Result, limits, rule};

const FORM: &Form = &[("bytes", true), ("path", true), ("sha256", true)];

/// An attachment of a part; its position there is part of its file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentEntry {
    /// Length of the file.
    pub bytes: u64,
    /// Logical path, `/` between components.
    pub path: String,
    /// Digest of the file.
    pub sha256: Digest,
}

impl AttachmentEntry {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let start = cursor.offset();
        let (mut bytes, mut path, mut sha256) = (None, None, None);
        let mut object = cursor.begin(FORM)?;
        while let Some(name) = cursor.next_of(&mut object)? {
            let place = cursor.offset();
            match name {
                "bytes" => bytes = Some(cursor.uint()?),
                "path" => {
                    let text = cursor.string()?.into_owned();
                    check_path(&text)
                        .map_err(|error| error.at_pointer(pointer_at(cursor.text(), place)))?;
                    path = Some(text);
                }
                _ => sha256 = Some(read_digest(cursor)?),
            }
        }
        Ok(Self {
            bytes: cursor.required(start, "bytes", bytes)?,
            path: cursor.required(start, "path", path)?,
            sha256: cursor.required(start, "sha256", sha256)?,
        })
    }

    fn encode(&self, json: &mut Encoder) {
        json.begin_object();
        json.member("bytes");
        json.uint(self.bytes);
        json.member("path");
        json.string(&self.path);
        json.member("sha256");
        json.display(&self.sha256);
        json.end_object();
    }
}

/// Reads the value of `attachments`.
pub(crate) fn read_attachments(cursor: &mut Cursor<'_>) -> Result<Vec<AttachmentEntry>> {
    const LIMIT: u64 = limits::ATTACHMENTS_PER_WRITER;
    let mut attachments = Vec::new();
    let mut items = cursor.begin_array()?;
    while cursor.next_item(&mut items)? {
        let start = cursor.offset();
        attachments.push(AttachmentEntry::read(cursor)?);
        check_limit(cursor, start, attachments.len(), LIMIT, "attachments of a writer")?;
    }
    Ok(attachments)
}

pub(crate) fn encode_attachments(attachments: &[AttachmentEntry], json: &mut Encoder) {
    json.begin_array();
    attachments.iter().for_each(|entry| entry.encode(json));
    json.end_array();
}

/// Checks the form of a logical path.
///
/// # Errors
/// [`Code::BadPath`].
pub fn check_path(path: &str) -> Result<()> {
    let long = |text: &str, limit| u64::try_from(text.len()).is_ok_and(|length| length > limit);
    let bad = |component: &str| {
        let plain = |byte| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b' ');
        matches!(component, "" | "." | "..")
            || long(component, limits::PATH_COMPONENT_BYTES)
            || !component.bytes().all(plain)
    };
    if !long(path, limits::PATH_BYTES) && !path.split('/').any(bad) {
        return Ok(());
    }
    let message = format!(
        "expected components of A-Z a-z 0-9 . _ - and space, not `.` or `..`, joined by single `/`, found {path:?}"
    );
    Err(Error::rule(Code::BadPath, rule::ATTACHMENT_PATH, message))
}

/// Checks that the attachments of a whole checkpoint can stand in one tree: without regard to
/// case, all paths differ and none is a directory of another.
///
/// # Errors
/// [`Code::BadPath`], naming the two.
pub fn check_unique<'a>(attachments: impl IntoIterator<Item = &'a AttachmentEntry>) -> Result<()> {
    // With `/` below every other character, what lies in a directory follows it at once.
    let lowered = |entry: &AttachmentEntry| entry.path.to_ascii_lowercase().replace('/', "\0");
    let mut paths: Vec<String> = attachments.into_iter().map(lowered).collect();
    paths.sort_unstable();
    for (before, path) in paths.iter().zip(paths.iter().skip(1)) {
        let rest = path.strip_prefix(before.as_str());
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('\0')) {
            let message = format!(
                "expected paths that differ and are no directory of another, found {:?} and {:?}",
                before.replace('\0', "/"),
                path.replace('\0', "/")
            );
            return Err(Error::rule(Code::BadPath, rule::ATTACHMENT_UNIQUE, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unique(paths: &[&str]) -> bool {
        let entry = |path: &&str| AttachmentEntry {
            bytes: 0,
            path: (*path).to_owned(),
            sha256: Digest::of(b""),
        };
        let entries: Vec<_> = paths.iter().map(entry).collect();
        check_unique(&entries).is_ok()
    }

    #[test]
    fn paths_that_leave_or_surprise_are_refused() {
        let longest = "a".repeat(255);
        for path in
            ["config.json", "1_Pooling/config.json", "a b", "...", ".hidden/-x", longest.as_str()]
        {
            assert!(check_path(path).is_ok(), "{path}");
        }
        let long_component = "a".repeat(256);
        let long_path = "a/".repeat(512) + "b";
        for path in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "a/..",
            "../a",
            "a/./b",
            "a\\b",
            "a:b",
            "é",
            "a\0",
            "a\n",
            &long_component,
            &long_path,
        ] {
            let error = check_path(path).unwrap_err();
            assert_eq!(
                (error.code(), error.rule_id()),
                (Code::BadPath, Some(rule::ATTACHMENT_PATH)),
                "{path}"
            );
        }
    }

    #[test]
    fn paths_that_collide_are_refused() {
        assert!(unique(&["a", "b", "a b/c", "a.b"]));
        assert!(unique(&[]));
        for paths in [&["a", "a"][..], &["a/B", "A/b"], &["a", "a b", "a/b"], &["x/y/z", "x/Y"]] {
            assert!(!unique(paths), "{paths:?}");
        }
    }
}
