//! The one error type of all crates: what rule broke, where, and what to do about it.
//!
//! It knows codes, classes, rules and places. It must not know files, checkpoints or any reader:
//! those add their place with [`Error::in_file`] and its siblings on the way up.

use std::fmt;
use std::io;

use crate::registry::{Class, Code};

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with a stable [`code`](Error::code), one pointer wide.
///
/// Messages are for people and may change; codes, classes and rule ids are permanent.
pub struct Error(Box<Inner>);

struct Inner {
    code: Code,
    rule: Option<&'static str>,
    message: String,
    location: Location,
    source: Option<io::Error>,
}

/// Where in a checkpoint an error is: as much of it as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The file's name within the checkpoint's directory, or a path when it is not in one.
    pub file: Option<String>,
    /// Byte offset from the start of the file.
    pub offset: Option<u64>,
    /// JSON pointer (RFC 6901) into the file.
    pub pointer: Option<String>,
    /// Record key of the record, as canonical JSON.
    pub record: Option<String>,
    /// Identity key of the tensor, as canonical JSON.
    pub tensor: Option<String>,
}

impl Error {
    /// A broken rule of the spec. `message` says what was expected and what was found.
    #[cold]
    pub fn rule(code: Code, rule: &'static str, message: impl Into<String>) -> Self {
        Self::build(code, Some(rule), message.into(), None)
    }

    /// A failure that no rule of the spec names: usage and the environment.
    #[cold]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self::build(code, None, message.into(), None)
    }

    /// A failed system call, `what` in words ("open", "fsync"). The code follows from the kind:
    /// permissions are [`Code::IoDenied`], a full disk or quota [`Code::IoFull`], the rest [`Code::Io`].
    #[cold]
    pub fn io(what: &str, source: io::Error) -> Self {
        let code = match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Code::IoDenied,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::IoFull,
            _ => Code::Io,
        };
        Self::build(code, None, format!("{what}: {source}"), Some(source))
    }

    fn build(
        code: Code,
        rule: Option<&'static str>,
        message: String,
        source: Option<io::Error>,
    ) -> Self {
        Self(Box::new(Inner { code, rule, message, location: Location::default(), source }))
    }

    /// Names the file, unless a file is already named.
    #[must_use]
    pub fn in_file(mut self, name: impl Into<String>) -> Self {
        self.0.location.file.get_or_insert_with(|| name.into());
        self
    }

    /// Names the byte offset in the file, unless one is already named.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.location.offset.get_or_insert(offset);
        self
    }

    /// Names the place in the JSON, unless one is already named.
    #[must_use]
    pub fn at_pointer(mut self, pointer: impl Into<String>) -> Self {
        self.0.location.pointer.get_or_insert_with(|| pointer.into());
        self
    }

    /// Puts the place of the value that was checked before the pointer within it.
    #[must_use]
    pub fn under_pointer(mut self, prefix: &str) -> Self {
        let within = self.0.location.pointer.take().unwrap_or_default();
        self.0.location.pointer = Some(format!("{prefix}{within}"));
        self
    }

    /// Names the record by its record key, unless one is already named.
    #[must_use]
    pub fn in_record(mut self, key: impl Into<String>) -> Self {
        self.0.location.record.get_or_insert_with(|| key.into());
        self
    }

    /// Names the tensor by its identity key, unless one is already named.
    #[must_use]
    pub fn in_tensor(mut self, key: impl Into<String>) -> Self {
        self.0.location.tensor.get_or_insert_with(|| key.into());
        self
    }

    /// The stable code, spelled the same in the spec, in `--json` and in the conformance suite.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Who or what is at fault; decides how a caller reacts.
    #[must_use]
    pub fn class(&self) -> Class {
        self.0.code.class()
    }

    /// The id of the rule in the spec that is broken, if one is.
    #[must_use]
    pub fn rule_id(&self) -> Option<&'static str> {
        self.0.rule
    }

    /// The sentence for people, without place and advice.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where it is.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.0.location
    }

    /// The system's error, when there is one.
    #[must_use]
    pub fn io_source(&self) -> Option<&io::Error> {
        self.0.source.as_ref()
    }
}

impl fmt::Display for Error {
    /// One line: `code: place: message [rule] (advice)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(f, "{}: ", inner.code)?;
        if inner.location != Location::default() {
            write!(f, "{}: ", inner.location)?;
        }
        f.write_str(&inner.message)?;
        if let Some(rule) = inner.rule {
            write!(f, " [{rule}]")?;
        }
        write!(f, " ({})", inner.code.remedy())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = "";
        if let Some(file) = &self.file {
            write!(f, "{file}")?;
            space = " ";
        }
        if let Some(offset) = self.offset {
            write!(f, "{space}@{offset}")?;
            space = " ";
        }
        if let Some(pointer) = &self.pointer {
            write!(f, "{space}#{pointer}")?;
            space = " ";
        }
        if let Some(record) = &self.record {
            write!(f, "{space}record {record}")?;
            space = " ";
        }
        if let Some(tensor) = &self.tensor {
            write!(f, "{space}tensor {tensor}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pointer_wide_and_sendable() {
        fn sendable<T: Send + Sync + 'static>() {}
        sendable::<Error>();
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn the_first_place_named_is_kept() {
        let e = Error::new(Code::NotFound, "no tensor").in_file("inner").in_file("outer");
        assert_eq!(e.location().file.as_deref(), Some("inner"));
        assert!(e.to_string().starts_with("not-found: inner: no tensor ("));
    }

    #[test]
    fn system_errors_are_sorted_by_kind() {
        let full = Error::io("write", io::ErrorKind::StorageFull.into());
        assert_eq!((full.code(), full.class()), (Code::IoFull, Class::Io));
        let denied = Error::io("open", io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied.code(), Code::IoDenied);
    }
}
