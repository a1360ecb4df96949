//! Making a checkpoint of an attempt whose committer died, or whose root was lost.
//!
//! It knows how to prove every byte that the parts name, and what may be removed on the way: only
//! the root, and only when asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use waystation_format::names;
use waystation_format::part::Part;
use waystation_format::{Code, Error, Result, commit_file, rule};
use waystation_reader::Progress;
use waystation_store::{Kind, Store};

use crate::check::{self, DigestCheck, ShardCheck};
use crate::commit::{self, Committed};
use crate::gather::{self, Look};
use crate::put;
use crate::root::Root;
use crate::workers;

/// How to salvage.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SalvageOptions {
    /// The run that the attempt stands in, synced at last.
    pub run: Option<Arc<dyn Store>>,
    /// The attempt's name in the run, checked against what its parts say.
    pub name: Option<String>,
    /// Remove a manifest, pages and commit file that are not what the parts derive.
    pub discard_root: bool,
}

impl SalvageOptions {
    /// For an attempt that stands alone; nothing is removed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// Commits an attempt from its parts alone, after proving every byte that they name.
///
/// Unlike [`commit`](crate::commit) it does not wait, and it is not stopped by a higher timeline:
/// whoever salvages wants an attempt that a job left behind.
///
/// # Errors
///
/// `ambiguous` for two parts of one writer; `writer-missing`; `deleted`; the first breach of the
/// parts and of the bytes that they name; `commit-conflict` when a root of other bytes is there and
/// is not to be discarded; `interrupted`; the store's.
pub fn salvage(
    attempt: &Arc<dyn Store>,
    options: &SalvageOptions,
    progress: &dyn Progress,
) -> Result<Committed> {
    let look = Look::at(attempt).map_err(ambiguous)?;
    look.check_all(look.writers(attempt)?)?;
    let threads = workers::default_threads();
    let parts = gather::read_parts(attempt, &look, threads, progress)?;
    for part in &parts {
        commit::check_name(options.name.as_deref(), &part.common)?;
    }
    let root = Root::derive(&parts)?;
    if !options.discard_root {
        check_root(attempt, &look, &root)?;
    }
    verify(attempt, &parts, threads, progress)?;
    if options.discard_root {
        discard(attempt, &look, &root)?;
    }
    root.put(attempt)?;
    attempt.sync()?;
    let part = parts.first().map(Part::file_name).unwrap_or_default();
    commit::put_commit(attempt, options.run.as_ref(), &root.digest, &part)
}

/// Two parts of one writer cannot both be meant, and nothing says which is.
fn ambiguous(e: Error) -> Error {
    if e.code() != Code::DuplicateWriter {
        return e;
    }
    let error = Error::rule(Code::Ambiguous, rule::SALVAGE_VERIFY, e.message());
    match &e.location().file {
        Some(file) => error.in_file(file),
        None => error,
    }
}

/// Proves every byte of every attachment and shard.
fn verify(
    attempt: &Arc<dyn Store>,
    parts: &[Part],
    threads: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let mut total: u64 = 0;
    for part in parts {
        for file in gather::files_of(part)? {
            total = total.saturating_add(file.bytes);
        }
    }
    progress.begin("verify", total);
    workers::map(threads, parts, |_, part| verify_part(attempt, part, progress)).map(drop)
}

fn verify_part(attempt: &Arc<dyn Store>, part: &Part, progress: &dyn Progress) -> Result<()> {
    for file in gather::files_of(part)? {
        let Some(sha256) = file.sha256 else { continue };
        let mut check = DigestCheck::new(sha256);
        check::stream(attempt, &file.name, file.bytes, progress, &mut |bytes| {
            check.update(bytes);
            Ok(())
        })?;
        check.finish(rule::ATTACHMENT_DIGEST).map_err(|e| e.in_file(&file.name))?;
    }
    for shard in check::expected_shards(part, gather::layouts(part)?)? {
        let mut check = ShardCheck::new(&shard);
        check::stream(attempt, &shard.name, shard.bytes, progress, &mut |bytes| {
            check.update(bytes)
        })?;
        check.finish().map_err(|e| e.in_file(&shard.name))?;
    }
    Ok(())
}

/// # Errors
///
/// `commit-conflict` for the first file of a root that is not what the parts derive.
fn check_root(attempt: &Arc<dyn Store>, look: &Look, root: &Root<'_>) -> Result<()> {
    let differing = differing(attempt, look, root)?;
    let commit = match differs(attempt, look, names::COMMIT, &commit_file::encode(&root.digest))? {
        true => Some(names::COMMIT.to_owned()),
        false => None,
    };
    let Some(name) = differing.into_iter().chain(commit).next() else { return Ok(()) };
    let message = "expected no file or the one that the parts derive, found another";
    Err(Error::rule(Code::CommitConflict, rule::SALVAGE_CONFLICT, message).in_file(name))
}

/// Removes the commit file when any file of the root differs, then the files that do.
fn discard(attempt: &Arc<dyn Store>, look: &Look, root: &Root<'_>) -> Result<()> {
    let differing = differing(attempt, look, root)?;
    let commit = differs(attempt, look, names::COMMIT, &commit_file::encode(&root.digest))?;
    if differing.is_empty() && !commit {
        return Ok(());
    }
    // What cannot be removed must be seen before anything is.
    let removed = differing.iter().map(String::as_str).chain([names::COMMIT]);
    for name in removed {
        if look.files.get(name).is_some_and(|stat| stat.kind == Kind::Directory) {
            let message = "expected a file of the root that can be discarded, found a directory";
            return Err(Error::rule(Code::NotRegular, rule::DIR_REGULAR, message).in_file(name));
        }
    }
    attempt.remove(names::COMMIT)?;
    attempt.sync()?;
    for name in &differing {
        attempt.remove(name)?;
    }
    attempt.sync()
}

/// Pages and manifest that are there and are not what the parts derive.
fn differing(attempt: &Arc<dyn Store>, look: &Look, root: &Root<'_>) -> Result<BTreeSet<String>> {
    let is_root = |name: &String| {
        name == names::MANIFEST
            || names::parse_tensors_page(name).is_some()
            || names::parse_records_page(name).is_some()
    };
    let mut wrong: BTreeSet<String> =
        look.files.keys().filter(|name| is_root(name)).cloned().collect();
    root.each(&mut |name, bytes| {
        if !differs(attempt, look, name, bytes)? {
            wrong.remove(name);
        }
        Ok(())
    })?;
    Ok(wrong)
}

/// Whether something else than a file of these bytes is under `name`; nothing is no difference.
fn differs(attempt: &Arc<dyn Store>, look: &Look, name: &str, bytes: &[u8]) -> Result<bool> {
    if !look.files.contains_key(name) {
        return Ok(false);
    }
    match put::equals(attempt, name, bytes) {
        Ok(equal) => Ok(!equal),
        Err(e) if e.code() == Code::NotRegular => Ok(true),
        Err(e) => Err(e),
    }
}
