//! What makes a directory a complete checkpoint: the marker, the commit file, the manifest, and
//! every named file there, regular, of its length.
//!
//! Shared by open, verify, list and latest, so that they cannot differ. It knows one listing of
//! the directory and the order of checks of spec 12.1. It must not know pages or tensor data.

use waystation_format::manifest::{Manifest, NamedFile};
use waystation_format::{Code, Digest, Error, Result, arith, commit_file, limits, names, rule};
use waystation_store::{Kind, Listed, Stat, Store};

use crate::options::{Budget, len};

/// The directory as it was listed once: one look gives every kind and length, and names compared
/// byte for byte even where the file system would not.
#[derive(Debug)]
pub(crate) struct Directory(Vec<Listed>);

/// A complete checkpoint's root.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) manifest: Manifest,
    pub(crate) digest: Digest,
}

impl Directory {
    pub(crate) fn list(store: &dyn Store) -> Result<Self> {
        let mut listed = store.list()?;
        listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(Self(listed))
    }

    pub(crate) fn stat(&self, name: &str) -> Option<Stat> {
        let at = self.0.binary_search_by(|listed| listed.name.as_str().cmp(name)).ok()?;
        self.0.get(at).map(|listed| listed.stat)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listed> {
        self.0.iter()
    }

    /// The length of a regular file under `name`.
    ///
    /// # Errors
    /// `file-missing` when it is absent, `not-regular` when it is something else.
    fn regular(&self, name: &str) -> Result<u64> {
        let Some(stat) = self.stat(name) else {
            return Err(missing().in_file(name));
        };
        match stat.kind {
            Kind::Regular => Ok(stat.bytes),
            other => Err(not_regular(other).in_file(name)),
        }
    }
}

/// Reads the root and checks the directory against it, in the order of spec 12.1, steps 1 to 5.
///
/// # Errors
/// The first breach.
pub(crate) fn complete(store: &dyn Store, budget: Budget) -> Result<Root> {
    let directory = Directory::list(store)?;
    check_not_deleted(&directory)?;
    let digest = read_commit(store, &directory)?;
    let raw = read_manifest(store, &directory, budget)?;
    check_digest(&raw, &digest, rule::INTEGRITY_MANIFEST)
        .map_err(|e| e.in_file(names::MANIFEST))?;
    let manifest = Manifest::parse(&raw).map_err(|e| e.in_file(names::MANIFEST))?;
    for file in manifest.named_files()? {
        check_named(&directory, &file)?;
    }
    Ok(Root { manifest, digest })
}

/// Refuses a directory that is being removed.
pub(crate) fn check_not_deleted(directory: &Directory) -> Result<()> {
    if directory.stat(names::DELETED).is_none() {
        return Ok(());
    }
    let message = "expected no marker, found one that says the checkpoint is being removed";
    Err(Error::rule(Code::Deleted, rule::RUN_DELETED, message).in_file(names::DELETED))
}

/// Refuses a directory without a commit file.
pub(crate) fn check_committed(directory: &Directory) -> Result<()> {
    if directory.stat(names::COMMIT).is_some() {
        return Ok(());
    }
    let message = "expected a commit file, found none";
    Err(Error::rule(Code::NotCommitted, rule::COMMIT_ABSENT, message).in_file(names::COMMIT))
}

/// The manifest's digest, out of the commit file.
pub(crate) fn read_commit(store: &dyn Store, directory: &Directory) -> Result<Digest> {
    const BYTES: u64 = 80;
    check_committed(directory)?;
    let bytes = directory.regular(names::COMMIT)?;
    if bytes != BYTES {
        let message = format!("expected {BYTES} bytes, found {bytes}");
        return Err(
            Error::rule(Code::CommitGrammar, rule::COMMIT_FILE, message).in_file(names::COMMIT)
        );
    }
    let raw = read_file(store, names::COMMIT, BYTES, Budget::default())?;
    commit_file::parse(&raw).map_err(|e| e.in_file(names::COMMIT))
}

/// The manifest's bytes, not yet compared with any digest.
pub(crate) fn read_manifest(
    store: &dyn Store,
    directory: &Directory,
    budget: Budget,
) -> Result<Vec<u8>> {
    directory.regular(names::MANIFEST)?;
    read_file(store, names::MANIFEST, limits::MANIFEST_BYTES, budget)
}

/// One named file: there, regular, of its length.
pub(crate) fn check_named(directory: &Directory, file: &NamedFile) -> Result<()> {
    let found = directory.regular(&file.name)?;
    check_length(file.bytes, found).map_err(|e| e.in_file(&file.name))
}

/// A whole metadata file, its real length bounded by `most` and the budget before any is read.
pub(crate) fn read_file(
    store: &dyn Store,
    name: &str,
    most: u64,
    budget: Budget,
) -> Result<Vec<u8>> {
    let read = || {
        let object = store.open(name).map_err(with_rule)?;
        let bytes = object.bytes();
        if bytes > most {
            let message = format!("expected at most {most} bytes, found {bytes}");
            return Err(Error::rule(Code::Limit, rule::LIMIT_VALUE, message));
        }
        budget.check(bytes, "a metadata file")?;
        let mut raw = zeroed(bytes, "the length of a metadata file")?;
        object.read_at(&mut raw, 0)?;
        Ok(raw)
    };
    read().map_err(|e: Error| e.in_file(name))
}

/// A whole metadata file of a length and digest that the manifest states.
pub(crate) fn read_stated(
    store: &dyn Store,
    name: &str,
    bytes: u64,
    digest: &Digest,
    rule: &'static str,
    budget: Budget,
) -> Result<Vec<u8>> {
    budget.check(bytes, "a metadata file").map_err(|e| e.in_file(name))?;
    let raw = read_file(store, name, u64::MAX, budget)?;
    check_length(bytes, len(&raw)).map_err(|e| e.in_file(name))?;
    check_digest(&raw, digest, rule).map_err(|e| e.in_file(name))?;
    Ok(raw)
}

/// Compares a file's length with the stated one.
pub(crate) fn check_length(expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let message = format!("expected {expected} bytes, found {found}");
    Err(Error::rule(Code::LengthMismatch, rule::DIR_LENGTH, message))
}

/// Compares the SHA-256 of a file's bytes with the stated one.
pub(crate) fn check_digest(raw: &[u8], expected: &Digest, rule: &'static str) -> Result<()> {
    digests_agree(expected, &Digest::of(raw), rule)
}

/// Compares two digests.
pub(crate) fn digests_agree(expected: &Digest, found: &Digest, rule: &'static str) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let message = format!("expected SHA-256 {expected}, found {found}");
    Err(Error::rule(Code::DigestMismatch, rule, message))
}

/// So many zero bytes, or an error where the machine has not got them.
pub(crate) fn zeroed(bytes: u64, what: &str) -> Result<Vec<u8>> {
    let size = arith::to_usize(bytes, what)?;
    // Asked for first, so that a size beyond the machine is an error; then taken as pages that the
    // system zeroes when they are touched, which saves one pass over the memory.
    Vec::<u8>::new().try_reserve_exact(size).map_err(|_| {
        let message = format!("expected {what} that this machine has memory for, found {bytes}");
        Error::rule(Code::Limit, rule::OPEN_MEMORY, message)
    })?;
    Ok(vec![0; size])
}

/// Gives the store's answers about a named file the rule that they break.
pub(crate) fn with_rule(e: Error) -> Error {
    let broken = match e.code() {
        Code::FileMissing => rule::DIR_PRESENT,
        Code::NotRegular => rule::DIR_REGULAR,
        _ => return e,
    };
    let place = e.location().clone();
    let again = Error::rule(e.code(), broken, e.message());
    match place.file {
        Some(file) => again.in_file(file),
        None => again,
    }
}

#[cold]
fn missing() -> Error {
    Error::rule(Code::FileMissing, rule::DIR_PRESENT, "expected a file, found none of this name")
}

#[cold]
fn not_regular(kind: Kind) -> Error {
    let found = match kind {
        Kind::Directory => "a directory",
        _ => "a link, pipe, socket or device",
    };
    let message = format!("expected a regular file, found {found}");
    Error::rule(Code::NotRegular, rule::DIR_REGULAR, message)
}
