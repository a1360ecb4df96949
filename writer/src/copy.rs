//! Copying a checkpoint, and proving every byte on its way.
//!
//! It knows the order in which files appear in the copy: parts after all that they name, the commit
//! file last. The copy is the same
//! checkpoint: every named file has the same bytes.

use std::sync::Arc;

use waystation_format::digest::Hasher;
use waystation_format::manifest::NamedFile;
use waystation_format::part::Part;
use waystation_format::{Code, Digest, Error, Result, commit_file, limits, names, rule};
use waystation_reader::{Checkpoint, OpenOptions, Progress};
use waystation_store::Store;

use crate::check::{self, DigestCheck, Expected, ShardCheck};
use crate::commit;
use crate::gather;
use crate::marks;
use crate::put;
use crate::workers;

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Digest of the manifest: the same as the original's.
    pub digest: Digest,
    /// Bytes of all named files.
    pub bytes: u64,
    /// Named files.
    pub files: u64,
}

/// Copies the checkpoint in `from` into `parent` as the directory `name`, which is made. In a run
/// the name must be kept.
///
/// # Errors
///
/// `exists` when the directory is there; `name-disagrees` when `name` is that of another attempt; as
/// [`copy`].
pub fn copy_into(
    from: &Arc<dyn Store>,
    parent: &Arc<dyn Store>,
    name: &str,
    progress: &dyn Progress,
) -> Result<Copied> {
    // Nothing is made before the original is known to be a checkpoint.
    let original = Checkpoint::open_store(Arc::clone(from), OpenOptions::default())?;
    if names::parse_attempt_dir(name).is_some() {
        commit::check_name(Some(name), &original.manifest().common)?;
    }
    let to = parent.make_dir(name)?;
    parent.sync()?;
    let copied = copy(from, &to, progress)?;
    parent.sync()?;
    Ok(copied)
}

/// Copies the checkpoint in `from` into `to`, a new and empty directory, in bounded memory. What is
/// there after an error has no commit file and is no checkpoint.
///
/// # Errors
///
/// `exists` when `to` is not empty; the first breach of the original, with its file and place;
/// `interrupted`; the stores'.
pub fn copy(from: &Arc<dyn Store>, to: &Arc<dyn Store>, progress: &dyn Progress) -> Result<Copied> {
    if let Some(first) = to.list()?.first() {
        let message = "expected an empty directory, found a file";
        return Err(Error::rule(Code::Exists, rule::COPY_ORDER, message).in_file(&first.name));
    }
    let original = Checkpoint::open_store(Arc::clone(from), OpenOptions::default())?;
    let manifest = original.manifest();
    let digest = original.digest();
    let named = manifest.named_files()?;
    let raw = gather::read_all(from, names::MANIFEST, limits::MANIFEST_BYTES)?;
    check_manifest(&raw, &digest)?;
    let bytes = named.iter().fold(put::length(&raw), |sum, file| sum.saturating_add(file.bytes));
    progress.begin("copy", bytes);

    let threads = workers::default_threads();
    let is_part = |file: &&NamedFile| names::parse_part(&file.name).is_some();
    let parts: Vec<&NamedFile> = named.iter().filter(is_part).collect();
    let rest = named.iter().filter(|file| !is_part(file));
    let rest: Vec<&NamedFile> =
        rest.filter(|file| names::parse_shard(&file.name).is_none()).collect();
    workers::map(threads, &rest, |_, file| copy_file(from, to, file, progress))?;
    workers::map(threads, &parts, |_, file| copy_shards(from, to, file, progress))?;
    // Where all parts are, anyone may commit.
    to.sync()?;
    workers::map(threads, &parts, |_, file| {
        let part = read_part(from, file)?;
        let _: bool = put::put_checked(to, &file.name, part.raw())?;
        progress.advance(put::length(part.raw()));
        Ok(())
    })?;
    check_all(to, &named)?;
    let _: bool = put::put_checked(to, names::MANIFEST, &raw)?;
    if from.stat(names::REJECTED)?.is_some() {
        let reason = match gather::read_all(from, names::REJECTED, limits::REASON_BYTES) {
            // Whatever it is, it rejects.
            Err(e) if matches!(e.code(), Code::NotRegular | Code::Limit) => Vec::new(),
            read => read?,
        };
        let _: bool = put::put_checked(to, names::REJECTED, &reason)?;
    }
    // Somebody may have begun to delete the original; what was read of it is whole all the same,
    // but nobody wants it kept.
    if from.stat(names::DELETED)?.is_some() {
        return Err(marks::deleted());
    }
    to.sync()?;
    let _: bool = put::put_checked(to, names::COMMIT, &commit_file::encode(&digest))?;
    to.sync()?;
    let files = u64::try_from(named.len()).unwrap_or(u64::MAX).saturating_add(2);
    Ok(Copied { digest, bytes, files })
}

/// The manifest may not have changed since it was opened.
fn check_manifest(raw: &[u8], digest: &Digest) -> Result<()> {
    let mut check = DigestCheck::new(*digest);
    check.update(raw);
    check.finish(rule::INTEGRITY_MANIFEST).map_err(|e| e.in_file(names::MANIFEST))
}

/// The parts say which shards there are, and so does the manifest: they may not disagree.
fn check_all(to: &Arc<dyn Store>, named: &[NamedFile]) -> Result<()> {
    let copied = to.list()?;
    let is_there = |file: &&NamedFile| {
        let at = copied.binary_search_by(|listed| listed.name.as_str().cmp(&file.name));
        let found = at.ok().and_then(|at| copied.get(at));
        found.is_some_and(|listed| listed.stat.bytes == file.bytes)
    };
    match named.iter().find(|file| !is_there(file)) {
        None => Ok(()),
        Some(file) => {
            let message = "expected the manifest's files to be those of the parts, found one more";
            Err(Error::rule(Code::DeriveMismatch, rule::DERIVE_FUNCTION, message)
                .in_file(&file.name))
        }
    }
}

/// Copies a page or attachment.
fn copy_file(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    file: &NamedFile,
    progress: &dyn Progress,
) -> Result<()> {
    let mut hasher = Hasher::new();
    write_through(from, to, &file.name, file.bytes, progress, &mut |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    let broken = match names::parse_attachment(&file.name) {
        Some(_) => rule::ATTACHMENT_DIGEST,
        None => rule::PAGE_DIGEST,
    };
    check_digest(file, hasher.finish(), broken)
}

fn check_digest(file: &NamedFile, found: Digest, broken: &'static str) -> Result<()> {
    match file.digest {
        Some(expected) if expected != found => {
            let message = format!("expected SHA-256 {expected}, found {found}");
            Err(Error::rule(Code::DigestMismatch, broken, message).in_file(&file.name))
        }
        _ => Ok(()),
    }
}

/// Reads a part that the manifest names.
fn read_part(from: &Arc<dyn Store>, file: &NamedFile) -> Result<Part> {
    let raw = gather::read_all(from, &file.name, limits::PART_BYTES)?;
    check_digest(file, Digest::of(&raw), rule::INTEGRITY_PART)?;
    Part::parse(raw).map_err(|e| e.in_file(&file.name))
}

/// Copies the shards of a part.
fn copy_shards(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    file: &NamedFile,
    progress: &dyn Progress,
) -> Result<()> {
    let part = read_part(from, file)?;
    let layouts = gather::layouts(&part)?;
    let shards = check::expected_shards(&part, layouts).map_err(|e| e.in_file(&file.name))?;
    drop(part);
    shards.iter().try_for_each(|shard| copy_shard(from, to, shard, progress))
}

fn copy_shard(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    shard: &Expected,
    progress: &dyn Progress,
) -> Result<()> {
    let mut check = ShardCheck::new(shard);
    write_through(from, to, &shard.name, shard.bytes, progress, &mut |bytes| check.update(bytes))?;
    check.finish().map_err(|e| e.in_file(&shard.name))
}

/// Copies one file, handing its bytes to `check`, and makes it durable.
fn write_through(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    name: &str,
    bytes: u64,
    progress: &dyn Progress,
    check: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let object = to.create(name, Some(bytes))?;
    let mut at: u64 = 0;
    check::stream(from, name, bytes, progress, &mut |piece| {
        check(piece)?;
        object.write_at(piece, at)?;
        at = at.saturating_add(put::length(piece));
        Ok(())
    })?;
    object.finish()
}
