//! Checks everything, and goes on after what it finds.
//!
//! It knows the order of spec 12.3 and what depends on what. It must not decide what a breach
//! means: it reports all that can still be seen.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use waystation_format::entry::{Alias, Entry};
use waystation_format::manifest::{FileKind, Manifest};
use waystation_format::names::{self, Marker};
use waystation_format::part::Part;
use waystation_format::{Code, Digest, Error, Result, rule};
use waystation_store::Store;

use crate::complete::{
    Directory, check_digest, check_named, check_not_deleted, read_commit, read_manifest,
};
use crate::options::{Budget, len, threads};
use crate::pages::{each_entry, parse_records, read_records, read_tensors};
use crate::progress::{NoProgress, Progress, go_on};
use crate::{attachment, parallel};

mod aliases;
mod data;
mod parts;
mod state;
mod stored;

use stored::Data;

/// How thorough a verification is.
#[derive(Clone, Copy)]
pub struct VerifyOptions<'p> {
    /// Leave out tensor data and attachments: everything else is checked.
    pub quick: bool,
    /// Threads; 0 takes what the machine has.
    pub threads: usize,
    /// Told what is going on.
    pub progress: &'p dyn Progress,
}

impl Default for VerifyOptions<'_> {
    fn default() -> Self {
        Self { quick: false, threads: 0, progress: &NoProgress }
    }
}

impl fmt::Debug for VerifyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyOptions")
            .field("quick", &self.quick)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// What a verification found.
#[derive(Debug)]
pub struct Report {
    /// Whether nothing was found.
    pub ok: bool,
    /// Breaches in the order of spec 12.3, and failures of the environment where they were met.
    pub findings: Vec<Error>,
    /// What is no breach but worth a look.
    pub notes: Vec<Note>,
    /// The manifest's digest, where the commit file names one.
    pub digest: Option<Digest>,
    /// Bytes of the files that were looked at.
    pub bytes: u64,
}

/// Something in the directory that is no named file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A file or directory that the format does not know.
    Unnamed(String),
    /// A file that a writer or committer left behind.
    Temporary(String),
    /// A marker.
    Marker(String),
    /// Something that was not looked at, and why.
    Unchecked(String),
    /// Records of resume state that are each right and together strange.
    Doubtful(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, name) = match self {
            Note::Unnamed(name) => ("unnamed", name),
            Note::Temporary(name) => ("temporary", name),
            Note::Marker(name) => ("marker", name),
            Note::Unchecked(what) => ("unchecked", what),
            Note::Doubtful(what) => ("doubtful", what),
        };
        write!(f, "{what}: {}", name.escape_default())
    }
}

/// Checks every rule and byte of the checkpoint in `store`.
///
/// Memory is the parts' own bytes, a few pages, and a few hundred KiB a thread.
///
/// # Errors
/// Those of the system about the directory itself, and `interrupted`. What is met later is a
/// finding, of class `io` when the environment failed.
pub fn verify(store: &Arc<dyn Store>, options: &VerifyOptions<'_>) -> Result<Report> {
    let directory = Directory::list(&**store)?;
    let mut check = Check {
        store: &**store,
        threads: threads(options.threads),
        progress: options.progress,
        found: Vec::new(),
        good: HashSet::new(),
        bad: HashSet::new(),
        known: false,
        readable: false,
        bytes: 0,
    };
    let digest = check.everything(&directory, options.quick)?;
    let mut notes = check.notes(&directory);
    if check.readable {
        match state::check(store, options.quick, options.progress) {
            Ok((found, unchecked)) => {
                check.found.extend(found);
                notes.extend(unchecked);
            }
            Err(e) if e.code() == Code::Interrupted => return Err(e),
            // What was good a moment ago cannot be read any more.
            Err(e) => check.found.push(e),
        }
    }
    Ok(Report {
        ok: check.found.is_empty(),
        notes,
        findings: check.found,
        digest,
        bytes: check.bytes,
    })
}

/// A verification under way.
struct Check<'a> {
    store: &'a dyn Store,
    threads: usize,
    progress: &'a dyn Progress,
    found: Vec<Error>,
    /// Named files that are there, regular, of their length.
    good: HashSet<String>,
    /// Named files that are there and are not good.
    bad: HashSet<String>,
    /// Whether the manifest could be read: without it nobody knows which files are named.
    known: bool,
    /// Whether root and pages are good, so that records can be looked at.
    readable: bool,
    bytes: u64,
}

impl Check<'_> {
    fn everything(&mut self, directory: &Directory, quick: bool) -> Result<Option<Digest>> {
        self.keep(check_not_deleted(directory));
        let digest = self.keep(read_commit(self.store, directory));
        let raw = read_manifest(self.store, directory, Budget::default());
        if digest.is_none() && raw.as_ref().is_err_and(|e| e.code() == Code::FileMissing) {
            // Nothing names a manifest that was never made.
            return Ok(None);
        }
        let raw = self.keep(raw);
        let Some(raw) = raw else { return Ok(digest) };
        if let Some(digest) = &digest {
            let agree = check_digest(&raw, digest, rule::INTEGRITY_MANIFEST);
            self.keep(agree.map_err(|e| e.in_file(names::MANIFEST)));
        }
        let parsed = Manifest::parse(&raw)
            .and_then(|manifest| Ok((manifest.named_files()?, manifest)))
            .map_err(|e| e.in_file(names::MANIFEST));
        let Some((files, manifest)) = self.keep(parsed) else { return Ok(digest) };
        self.known = true;
        for file in &files {
            let checked = check_named(directory, file);
            if checked.as_ref().is_err_and(|e| e.code() != Code::FileMissing) {
                self.bad.insert(file.name.clone());
            }
            if self.keep(checked).is_some() {
                self.good.insert(file.name.clone());
                let skipped = quick
                    && matches!(file.kind, FileKind::Shard { .. } | FileKind::Attachment { .. });
                self.bytes = self.bytes.saturating_add(if skipped { 0 } else { file.bytes });
            }
        }
        self.progress.begin("verify", self.bytes);
        self.pages(&manifest)?;
        self.readable = self.found.is_empty();
        let parts = self.parts(&manifest)?;
        // Layouts and data are looked at writer by writer, so that one writer's are held at a
        // time, and stand in the report with what is looked at in between.
        let mut data = Vec::new();
        let layouts = self.layouts_and_data(&parts, quick, &mut data)?;
        self.found.extend(layouts);
        if parts.iter().all(Option::is_some) {
            let parts: Vec<Part> = parts.into_iter().flatten().collect();
            self.derive(&parts, &manifest, &raw)?;
        } else if !quick {
            let lost: Vec<u32> = (0_u32..)
                .zip(&parts)
                .filter_map(|(writer, part)| part.is_none().then_some(writer))
                .collect();
            drop(parts);
            for of_writer in Data::of_pages(self, &manifest, &lost) {
                data::check(self, &of_writer, &mut data)?;
            }
        }
        if !quick {
            self.attachments(&manifest)?;
        }
        // Parts come by writer, files by name, and threads end in any order.
        data.sort_by(|a, b| place(a).cmp(&place(b)));
        self.found.append(&mut data);
        Ok(digest)
    }

    /// Breaches of layouts; those of data go to `found`.
    fn layouts_and_data(
        &self,
        parts: &[Option<Part>],
        quick: bool,
        found: &mut Vec<Error>,
    ) -> Result<Vec<Error>> {
        let mut broken = Vec::new();
        let parts: Vec<&Part> = parts.iter().flatten().collect();
        for batch in parts.chunks(self.threads.max(1)) {
            let laid_out = parallel::map(self.threads, batch.to_vec(), |part| {
                go_on(self.progress)?;
                Ok(Data::of_part(part))
            })?;
            for (data, e) in laid_out {
                broken.extend(e);
                if !quick {
                    data::check(self, &data, found)?;
                }
            }
        }
        Ok(broken)
    }

    /// Keeps a breach, gives what is good.
    fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(e) => {
                self.found.push(e);
                None
            }
        }
    }

    fn is_good(&self, name: &str) -> bool {
        self.good.contains(name)
    }

    fn pages(&mut self, manifest: &Manifest) -> Result<()> {
        let store = self.store;
        let numbers = |count: usize| 0..u32::try_from(count).unwrap_or(u32::MAX);
        let tensors = numbers(manifest.tensors.len())
            .filter(|&page| self.is_good(&names::tensors_page(page)))
            .collect();
        let mut aliases: Vec<(u32, Alias)> = Vec::new();
        let checked = parallel::map(self.threads, tensors, |page: u32| {
            go_on(self.progress)?;
            let check = || {
                let raw = read_tensors(store, manifest, page, Budget::default())?;
                self.progress.advance(len(&raw));
                let mut aliases = Vec::new();
                each_entry(&raw, manifest, page, &mut |entry| {
                    if let Entry::Alias(alias) = entry {
                        aliases.push(alias);
                    }
                })?;
                Ok(aliases)
            };
            Ok((page, check()))
        })?;
        for (page, checked) in checked {
            let found = self.keep(checked).unwrap_or_default();
            aliases.extend(found.into_iter().map(|alias| (page, alias)));
        }
        let records = numbers(manifest.records.len())
            .filter(|&page| self.is_good(&names::records_page(page)))
            .collect();
        let more = parallel::map(self.threads, records, |page: u32| {
            go_on(self.progress)?;
            let check = || {
                let raw = read_records(store, manifest, page, Budget::default())?;
                self.progress.advance(len(&raw));
                parse_records(&raw, manifest, page)
            };
            Ok(check().err())
        })?;
        self.found.extend(more.into_iter().flatten());
        self.aliases(manifest, &aliases)
    }

    fn attachments(&mut self, manifest: &Manifest) -> Result<()> {
        let mut files = Vec::new();
        for (writer, part) in (0_u32..).zip(&manifest.parts) {
            for (position, entry) in (0_u32..).zip(&part.attachments) {
                let name = names::attachment(writer, part.inc, position);
                if self.is_good(&name) {
                    files.push((name, entry));
                }
            }
        }
        files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let checked = parallel::map(self.threads, files, |(name, entry)| {
            let checked =
                attachment::check(self.store, &name, entry.bytes, &entry.sha256, self.progress);
            go_on(self.progress)?;
            Ok(checked.err())
        })?;
        self.found.extend(checked.into_iter().flatten());
        Ok(())
    }

    /// What else is there.
    fn notes(&self, directory: &Directory) -> Vec<Note> {
        let mut notes = Vec::new();
        for listed in directory.iter() {
            let name = &listed.name;
            if name == names::MANIFEST
                || name == names::COMMIT
                || self.good.contains(name)
                || self.bad.contains(name)
            {
                continue;
            }
            if Marker::parse(name).is_some() {
                notes.push(Note::Marker(name.clone()));
            } else if names::is_temporary(name) {
                notes.push(Note::Temporary(name.clone()));
            } else if self.known || !may_be_named(name) {
                notes.push(Note::Unnamed(name.clone()));
            }
        }
        notes
    }
}

fn place(e: &Error) -> (Option<&str>, Option<u64>) {
    let place = e.location();
    (place.file.as_deref(), place.offset)
}

/// Whether some manifest could name a file so.
fn may_be_named(name: &str) -> bool {
    names::parse_part(name).is_some()
        || names::parse_shard(name).is_some()
        || names::parse_attachment(name).is_some()
        || names::parse_tensors_page(name).is_some()
        || names::parse_records_page(name).is_some()
}
